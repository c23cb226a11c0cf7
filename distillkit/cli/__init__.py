"""The command line: parse, one library call, print; results on stdout, all else on stderr."""

import io
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from difflib import get_close_matches
from typing import Any, TextIO

from distillkit.cli import parsing, recipes, ship, stages
from distillkit.cli.command import Command
from distillkit.cli.places import check_sources
from distillkit.errors import FULL, InputError, Preempted, disk_error
from distillkit.processes import rank
from distillkit.recipe.bounds import check

# None of them loads torch before it is called.
GROUPS: dict[str, dict[str, type[Command]]] = {
    "make": {
        "init": recipes.Init,
        "run": recipes.Run,
        "adapt-teacher": stages.AdaptTeacher,
        "train-teacher": stages.TrainTeacher,
        "augment": stages.Augment,
        "label": stages.Label,
        "train-student": stages.TrainStudent,
        "tune": recipes.Tune,
    },
    "look": {
        "list": recipes.List,
        "doctor": recipes.Doctor,
        "predict": stages.Predict,
        "evaluate": stages.Evaluate,
        "ladder": recipes.Ladder,
        "bench": ship.Bench,
        "report": ship.Report,
    },
    "ship": {
        "compress": ship.Compress,
        "export": ship.Export,
        "cascade": ship.Cascade,
        "serve": ship.Serve,
        "demo": ship.Demo,
        "push": ship.Push,
    },
}
# The extra that a package belongs to; the others are of `train`.
_EXTRAS = {
    **dict.fromkeys(("onnxruntime", "tokenizers"), "runtime"),
    **dict.fromkeys(("onnx", "onnxscript"), "export"),
    **dict.fromkeys(("h11", "prometheus_client", "starlette", "uvicorn"), "serve"),
    **{"jieba": "zh", "matplotlib": "plots", "optuna": "tune", "httpx": "endpoint"},
    **{name: name for name in ("deepspeed", "ray", "spacy", "tensorboard")},
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        Exit status: 0 fine, 1 a user's mistake. Usage errors leave with 2, as the parser does.
    """
    _prepare_streams()
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed it (| head)
        status = 0
    except OSError as error:
        if not _of_stdout(error):
            raise
        sys.stderr.write(f"distillkit: stdout cannot be written: {error.strerror}\n")
        status = 1
    # Python would try once more to write what is left, and fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _of_stdout(error: Exception) -> bool:
    """Say whether stdout is full: an error of a file of ours names the file."""
    return isinstance(error, OSError) and not error.filename and error.errno in FULL


def _prepare_streams() -> None:
    """Have somewhere to write where a stream is closed, and a way where it takes ASCII alone."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(argv: list[str]) -> int:
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
    except Exception as error:
        # A file that cannot be read or written is the system's doing, wherever it is met.
        if not _of_stdout(error) and (line := disk_error(error, absent=True)):
            return _status(argv[0], InputError(line))
        raise
    return 0


def _call(name: str, argv: list[str]) -> None:
    try:
        "".join(argv).encode()
    except UnicodeEncodeError:
        raise InputError(f"{argv}: not UTF-8; rename the file or folder") from None
    readable = sys.stdout.isatty() and "--json" not in argv
    arguments = parse(name, [word for word in argv if word != "--json"])
    out = sys.stdout
    # deepspeed, imported by transformers wherever it is installed, logs to stdout
    with redirect_stdout(sys.stderr):
        check(arguments, "")
        check_sources(vars(arguments))
        result = arguments()
        lines = result if isinstance(result, Iterator) else iter([result])
        for line in arguments.readable(lines) if readable else _json(lines, out):
            if rank() == 0:  # of the processes that torchrun starts one prints
                out.write(line + "\n")


def parse(name: str, argv: list[str]) -> Command:
    """Return a command's arguments as its dataclass; see `parsing.parse`."""
    return parsing.parse(name, COMMANDS[name], argv)


def _json(lines: Iterable[Any], out: TextIO) -> Iterator[str]:
    ascii_alone = not (out.encoding or "utf-8").lower().startswith("utf")
    return (json.dumps(line, ensure_ascii=ascii_alone, default=dict) for line in lines)


def _status(name: str, error: BaseException) -> int:
    """Write in one line what ended a command; return the exit status."""
    line, status = f"{error}", 1
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "distillkit").partition(".")[0] == "distillkit":
            raise error
        extra = "serve" if name == "serve" else _EXTRAS.get(error.name or "", "train")
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


def _quieten() -> None:
    """Silence the bars and reports of other libraries, unless the user has asked for them."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    # Two busy processes on one machine wait for each other's spinning threads. Threads that sleep
    # at once slow down a process that is alone. docs/training.md has the figures.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _overview() -> str:
    lines = [
        "distillkit: labelled text -> teacher -> transfer set -> logits -> student -> evaluation",
        "",
        "usage: distillkit COMMAND ...",
    ]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [
            f"  {name:<14} {(command.__doc__ or '').partition(chr(10))[0]}"
            for name, command in commands.items()
        ]
    lines += [
        "",
        "distillkit COMMAND --help shows a command's options, their defaults and an example.",
        "On a terminal results are tables; in a pipe, or with --json, one JSON object a line.",
        "Start here: distillkit run quickstart, or with a file of yours: distillkit run train.csv",
        "",
    ]
    return "\n".join(lines)
