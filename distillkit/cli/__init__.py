"""The command line: parse, one library call, print; results on stdout, all else on stderr."""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

import tyro
from tyro.conf import OmitSubcommandPrefixes

from distillkit.cli import recipes, ship, stages
from distillkit.cli.command import Command
from distillkit.errors import InputError, Preempted
from distillkit.processes import rank
from distillkit.recipe.renamed import rename_flags

# None of them loads torch before it is called.
COMMANDS: dict[str, type[Command]] = {
    "list": recipes.List,
    "run": recipes.Run,
    "ladder": recipes.Ladder,
    "doctor": recipes.Doctor,
    "tune": recipes.Tune,
    "adapt-teacher": stages.AdaptTeacher,
    "train-teacher": stages.TrainTeacher,
    "augment": stages.Augment,
    "label": stages.Label,
    "train-student": stages.TrainStudent,
    "evaluate": stages.Evaluate,
    "predict": stages.Predict,
    "export": ship.Export,
    "compress": ship.Compress,
    "bench": ship.Bench,
    "cascade": ship.Cascade,
    "serve": ship.Serve,
    "push": ship.Push,
}

# tyro leaves each line of an indented docstring, and each that begins with a sign, on its own. Only
# the look of --help depends on this.
with suppress(ImportError, AttributeError):
    from tyro import _strings

    _strings.remove_single_line_breaks = lambda helptext: "\n\n".join(
        " ".join(paragraph.split()) for paragraph in helptext.split("\n\n")
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        Exit status: 0 fine, 1 a user's mistake. Usage errors leave with 2, as the parser does.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(_overview())
        return 0
    if argv[0] == "--version":
        from distillkit import __version__

        sys.stdout.write(f"distillkit {__version__}\n")
        return 0
    if argv[0] not in COMMANDS:
        close = get_close_matches(argv[0], COMMANDS, 1)
        sys.stderr.write(
            f"distillkit: no command {argv[0]!r}; {f'did you mean {close[0]!r}?' if close else 'see distillkit --help'}\n"
        )
        return 2
    _quieten()
    try:
        _call(argv[0], argv[1:])
    except (InputError, ModuleNotFoundError, Preempted, KeyboardInterrupt) as error:
        return _status(argv[0], error)
    except BrokenPipeError:
        # The reader of our output has closed it (| head).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _call(name: str, argv: list[str]) -> None:
    arguments = parse(name, argv)
    out = sys.stdout
    # deepspeed, imported by transformers wherever it is installed, logs to stdout
    with redirect_stdout(sys.stderr):
        result = arguments()
        for line in result if isinstance(result, Iterator) else [result]:
            if rank() == 0:  # of the processes that torchrun starts one prints
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


def _status(name: str, error: BaseException) -> int:
    """Write in one line what ended a command; return the exit status."""
    line, status = f"{error}", 1
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "distillkit").partition(".")[0] == "distillkit":
            raise error
        extra = "runtime" if error.name in ("onnxruntime", "tokenizers") else "train"
        extra = "serve" if name == "serve" else extra
        line = f"{name} needs {error.name}: pip install 'distillkit[{extra}]'"
    elif isinstance(error, Preempted):
        line, status = (
            f"{error}; the same command resumes",
            130 if error.signal == signal.SIGINT else 0,
        )
    elif isinstance(error, KeyboardInterrupt):
        line, status = (
            "interrupted; the same command begins again, from what is finished if anything is",
            130,
        )
    sys.stderr.write(f"distillkit: {line}\n")
    return status


def parse(name: str, argv: list[str]) -> Command:
    """Return a command's arguments as its dataclass; a shelf file that is named gives the defaults.

    Raises:
        InputError: There is no such shelf file, or it is wrong.
        SystemExit: The arguments are wrong; stderr says which.
    """
    kind = COMMANDS[name]
    argv = rename_flags(name, argv)
    options: dict[str, Any] = {"prog": f"distillkit {name}", "config": (OmitSubcommandPrefixes,)}
    general_help = argv[:1] in ([], ["-h"], ["--help"])
    if not kind.shelf_word or general_help:
        return tyro.cli(kind, args=argv, **options)
    fixed = kind.from_shelf(_first_word(kind, argv, options))

    # What the shelf file says stands in for the defaults; a field without a default is still
    # required.
    required = (
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
    missing = {name: tyro.MISSING for name in required if name not in fixed}
    return tyro.cli(kind, args=argv, default=kind(**fixed, **missing), **options)


def _first_word(kind: type[Command], argv: list[str], options: dict[str, Any]) -> str:
    """Return the name of the shelf file, which may stand behind options."""
    if not argv[0].startswith("-"):
        return argv[0]
    try:
        return getattr(tyro.cli(kind, args=argv, **options), kind.shelf_word)
    except SystemExit:
        # Options that fit the shelf file need not fit the general defaults.
        word = kind.shelf_word.partition("_")[0].upper()
        sys.stderr.write(f"distillkit: with {word} before the options its values count as well\n")
        raise


def _quieten() -> None:
    """Silence the bars and reports of other libraries, unless the user has asked for them."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    # Otherwise two busy processes on one machine wait for each other's spinning threads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _overview() -> str:
    lines = [
        "distillkit: labelled text -> teacher -> transfer set -> logits -> student -> evaluation",
        "",
        "usage: distillkit COMMAND ...",
        "",
    ]
    lines += [
        f"  {name:<14} {(command.__doc__ or '').partition(chr(10))[0]}"
        for name, command in COMMANDS.items()
    ]
    lines += [
        "",
        "distillkit COMMAND --help shows a command's options, their defaults and an example.",
        "Start here: distillkit run quickstart",
        "",
    ]
    return "\n".join(lines)
