"""What a user is told in one line: a mistake and its mend, a saved interruption, an old name."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """A user's mistake, said in one line: where it is, what was expected, how to mend it.

    The command line prints it without a traceback and exits with status 1; every other exception is
    a bug and keeps its traceback.
    """


class MissingValue(InputError):
    """A row without a text or a label.

    Args:
        place: Of the row, FILE:LINE or FILE row N.
        what: Which column has what in place of a value.
        mend: What to do.
    """

    def __init__(self, place: str, what: str, mend: str) -> None:
        super().__init__(f"{place}: {what}{mend}")
        self.place, self.what = place, what


class Preempted(Exception):
    """A signal (SIGTERM or SIGINT) ended a training, which has saved what it needs to resume.

    Args:
        message: Where it stopped.
        signal: The number of the signal.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


@contextmanager
def file_errors(place: str, expected: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged or hostile file into one line.

    Args:
        place: The file.
        expected: What it should be.

    Raises:
        InputError: The block failed.
    """
    try:
        yield
    except InputError:
        raise
    except (
        Exception
    ) as error:  # zipfile, json, tokenizers and ONNX Runtime raise some twenty classes
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise InputError(f"{place}: expected {expected} ({what}); export again") from None


@contextmanager
def checkpoint_errors(model: str) -> Iterator[None]:
    """Say in one line why a checkpoint does not load; hide stdin from the loader.

    Raises:
        InputError: The checkpoint cannot be loaded.
    """
    # stdin holds the rows that predict answers: no library's question may be answered by them.
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        yield
    except Exception as error:
        # transformers, safetensors, tokenizers and the hub raise some ten unrelated classes here.
        what = " ".join(str(error).split())[:300]
        if "trust_remote_code" in str(error):
            raise InputError(
                f"{model}: the checkpoint needs Python code of its own (auto_map in its config.json), "
                "which distillkit never runs; expected an architecture that transformers has"
            ) from None
        raise InputError(
            f"{model}: not a checkpoint folder, nor a hub name that can be loaded: {what}"
        ) from None
    finally:
        sys.stdin = stdin


_SAID: set[str] = set()  # old names that this process has mentioned


def say_renamed(place: str, old: str, new: str) -> None:
    """Write once a process, on stderr, that an old name has a new one.

    Args:
        place: File and line of the old name; empty: the command line.
        old: The name that was found.
        new: The name to write instead.
    """
    if old not in _SAID:
        _SAID.add(old)
        start = f"{place}: " if place else ""
        sys.stderr.write(
            f"distillkit: {start}{old} is now {new}; the old name works for one more release\n"
        )
