"""Arguments: what fills a command from them, its help, and its errors in two lines."""

import io
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, NoReturn

import tyro
from tyro.conf import OmitSubcommandPrefixes

from distillkit.cli.command import Command
from distillkit.processes import environment
from distillkit.recipe.renamed import removed, rename_flags

# What people change in a recipe: --help shows these, --help-all every setting.
USUAL = (
    *("data.train", "data.dev", "data.test", "data.unlabelled", "data.task"),
    *("data.columns.text", "data.columns.text-pair", "data.columns.label"),
    *("teacher.model", "teacher.training.epochs", "augment.n-iter", "student.hidden-size"),
    *("training.epochs", "training.batch-size", "training.learning-rate", "training.precision"),
    *("loss.kind", "loss.alpha", "loss.temperature"),
)
_FRAME = str.maketrans("│─╭╮╰╯", " -    ")
_CONFIG = (OmitSubcommandPrefixes,)
# What Python says of a value of the wrong type, and what a user is told.
_SAID = {
    r"invalid literal for int\(\) with base 10: (.*)": r"expected a whole number, found \1",
    r"could not convert string to float: (.*)": r"expected a number, found \1",
}

# tyro leaves each line of an indented docstring, and each that begins with a sign, on its own. Only
# the look of --help depends on this.
with suppress(ImportError, AttributeError):
    from tyro import _strings

    _strings.remove_single_line_breaks = lambda helptext: "\n\n".join(
        " ".join(paragraph.split()) for paragraph in helptext.split("\n\n")
    )


def parse(name: str, kind: type[Command], argv: list[str]) -> Command:
    """Return a command's arguments as its dataclass; a shelf file that is named gives the defaults.

    Raises:
        InputError: There is no such shelf file, or it is wrong.
        SystemExit: Help was asked for (0), or the arguments are wrong (2); stderr says which.
    """
    argv = rename_flags(name, argv)
    if not kind.shelf_word or argv[:1] in ([], ["-h"], ["--help"], ["--help-all"]):
        return _fill(name, kind, argv, None)
    behind = argv[0].startswith("-")  # the name of the shelf file stands behind options
    word = getattr(_fill(name, kind, argv, None), kind.shelf_word) if behind else argv[0]
    fixed = kind.from_shelf(word, _named(kind, argv))

    # What the shelf file says stands in for the defaults; a field without a default is still
    # required.
    required = (
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
    missing = {name: tyro.MISSING for name in required if name not in fixed}
    return _fill(name, kind, argv, kind(**fixed, **missing))


def _named(kind: type[Command], argv: list[str]) -> dict[str, str]:
    """Return the values of the options that `from_shelf` needs."""
    given = {}
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        section = _flag(flag)[2:]
        if flag.startswith("--") and section in kind.early:
            given[section] = value if equals else after
    return {section: name for section, name in given.items() if name}


def _fill(name: str, kind: type[Command], argv: list[str], default: Command | None) -> Command:
    options: dict[str, Any] = {"prog": f"distillkit {name}", "config": _CONFIG}
    if default is not None:
        options["default"] = default
    if {"-h", "--help", "--help-all"} & set(argv):
        _help(kind, options, whole="--help-all" in argv)
    said = io.StringIO()
    try:
        with environment("COLUMNS", "1000"), redirect_stderr(said):
            filled, unknown = tyro.cli(kind, args=argv, return_unknown_args=True, **options)
    except SystemExit:
        known = _options(kind, options)
        unknown = [word for word in argv if word.startswith("--") and _flag(word) not in known]
        if not unknown:
            # Options that fit the shelf file need not fit the general defaults.
            word = _shelf_word(kind) if default is None and len(argv) > 1 else ""
            first = f"; with {word} before the options its values count as well" if word else ""
            _usage(name, _gist(said.getvalue()) + first)
    if unknown:
        _usage(name, _unknown(unknown, _options(kind, options)))
    return filled


def _shelf_word(kind: type[Command]) -> str:
    return kind.shelf_word.partition("_")[0].upper()


def _usage(name: str, message: str) -> NoReturn:
    sys.stderr.write(f"distillkit {name}: {message}\n(distillkit {name} --help)\n")
    raise SystemExit(2)


def _gist(box: str) -> str:
    """Return what tyro says in a box, without the help that it quotes below."""
    message = re.split("^.*---.*$", "\n".join(_unframed(box)), flags=re.MULTILINE)[1]
    rows = [row.strip() for row in message.splitlines() if not row.startswith(" " * 8)]
    said = re.sub("^Error parsing (\\w[\\w.]*: )?", "", " ".join(rows).strip())
    said = re.sub("^Missing from distillkit [^:]*:", "missing:", said)
    for pattern, ours in _SAID.items():
        said = re.sub(pattern, ours, said)
    return said


def _unframed(text: str) -> list[str]:
    """Return the lines that tyro wrote, with spaces in place of a frame's sides."""
    return [line.translate(_FRAME).rstrip() for line in text.splitlines()]


def _flag(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _unknown(words: list[str], known: Mapping[str, tuple[str, str]]) -> str:
    """Say that an option is none of a command's, and which are near."""
    flag = next((_flag(word) for word in words if word.startswith("-")), "")
    if not flag:
        return f"unexpected argument {words[0]!r}"
    if removed(flag.lstrip("-").replace("-", "_")) is not None:
        return f"unknown option {flag}; distillkit no longer has it: leave it out"
    if flag in ("--name", "--runs") and "RECIPE" in known:
        return f"unknown option {flag}; --output runs/NAME is the run's folder"
    last = flag.lstrip("-").rpartition(".")[2]
    same = [other for other in known if other.lstrip("-").rpartition(".")[2] == last]
    same.sort(key=lambda other: (other[2:] not in USUAL, len(other)))
    close = same[:3] or get_close_matches(flag, known, 1)
    if not close:
        ends = {other.rpartition(".")[2]: other for other in known if "." in other}
        close = [ends[end] for end in get_close_matches(last, ends, 1, 0.7)]
    plain = get_close_matches(last.upper(), [other for other in known if other.isupper()], 1)
    if plain and not close:
        return f"unknown option {flag}; {plain[0]} is given without a name"
    return f"unknown option {flag}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def _help(kind: type[Command], options: dict[str, Any], *, whole: bool) -> NoReturn:
    known = _options(kind, options)
    if whole or not kind.early:
        tyro.cli(kind, args=["--help"], **options)
    sys.stdout.write(_short_help(kind, known, options["prog"]))
    raise SystemExit(0)


def _options(kind: type[Command], options: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return a command's options, each with how it is written and its help, read from tyro's."""
    said = io.StringIO()
    # wider, and tyro sets the options in two columns
    with environment("COLUMNS", "100"), redirect_stdout(said), suppress(SystemExit):
        tyro.cli(kind, args=["--help"], **options)
    found: dict[str, tuple[str, str]] = {}
    flags: list[str] = []
    for line in _unframed(said.getvalue()):
        if re.match("  (--?\\w|[A-Z]+(\\.\\.\\.)?(  |$))", line):
            written, _, text = line.strip().partition("  ")
            flags = re.findall(r"--[\w.-]+", written) or [written]
            found |= dict.fromkeys(flags, (written, text.strip()))
        elif line.startswith(" " * 8):
            found |= {f: (found[f][0], f"{found[f][1]} {line.strip()}".strip()) for f in flags}
        else:
            flags = []
    return found


def _short_help(kind: type[Command], known: Mapping[str, tuple[str, str]], prog: str) -> str:
    width = max(shutil.get_terminal_size().columns, 60)
    lines = [" ".join(f"usage: {prog} {_shelf_word(kind)} [OPTIONS]".split())]
    for paragraph in (kind.__doc__ or "").split("\n\n"):
        lines += ["", " ".join(paragraph.split())]
    shown = [flag for flag in known if "." not in flag or flag[2:] in USUAL]
    lines += ["", *(_line(*known[flag], width) for flag in shown if flag != "--help"), ""]
    lines += [f"{prog} --help-all shows the other {len(known) - len(shown)} settings as well."]
    return "\n".join(lines) + "\n"


def _line(written: str, text: str, width: int) -> str:
    """Return an option on one line: how it is written, its value, the beginning of its help."""
    text, _, value = text.partition(" (default: ")
    value = value.removesuffix(")")
    written = re.sub(r"\[(\w+) .*", r"\1 ...", written.partition(", ")[0])
    written = written if len(written) <= 32 else written[:31] + "…"
    start = f"  {written:<32} "
    tail = f" [{value}]" if value not in ("", "''") else ""
    room = width - len(start) - len(tail)
    text = text if len(text) <= room else text[: max(room - 2, 0)].rpartition(" ")[0] + " …"
    return start + text + tail
