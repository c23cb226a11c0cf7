"""What a user is told in one line: a mistake and its mend, a saved interruption, an old name."""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# How text that is not UTF-8 is mended. Latin 1 makes some text of any file, so it is no first guess.
ICONV = "for example with iconv -f cp1252 -t utf-8 (Western European) or -f gb18030 (Chinese)"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.EEXIST),
    errno.ENAMETOOLONG,
)
_BROKEN = (errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO)


class InputError(ValueError):
    """A user's mistake, said in one line: where it is, what was expected, how to mend it.

    The command line prints it without a traceback and exits with status 1; every other exception is
    a bug and keeps its traceback.

    Args:
        message: Lines are joined. Of more than 2,000 characters the middle is left out, so that
            whoever quotes a value of a file need not look how long it is.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(filter(None, map(str.strip, message.splitlines())))
        super().__init__(line if len(line) <= 2_000 else f"{line[:1_500]} ... {line[-400:]}")


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


class Unfinished(InputError):
    """A full disk, or the death of a process that shared the work: what is done is kept."""


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
def library_errors(place: str, what: str, mend: str = "") -> Iterator[None]:
    """Turn whatever a library raises over a damaged or hostile file into one line.

    Args:
        place: The file, and its line if one is known.
        what: What is wrong with it.
        mend: Ends the error.

    Raises:
        InputError: The block raised anything.
    """
    try:
        yield
    except InputError:
        raise
    except BaseException as error:
        # A panic of tokenizers' Rust code is no Exception, and its class cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # Arrow, csv, json and yaml raise a dozen unrelated classes over damaged bytes.
        deep = isinstance(error, RecursionError)
        said = "nested too deeply" if deep else str(error)[:300] or type(error).__name__
        raise InputError(f"{place}: {what}: {said}{mend}") from None


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
        if unknown := re.search("has model type `([^`]+)` but Transformers does not recog", what):
            raise InputError(
                f"{model}: no model of type {unknown[1]!r} is known here; "
                "import the module that declares it first (a student kind of your own: python mine.py ...)"
            ) from None
        offline = "couldn't connect" in what
        mend = "; name a folder, or an installed encoder (--teacher minilm-l6)" if offline else ""
        raise InputError(
            f"{model}: not a checkpoint folder, nor a hub name that can be loaded: {what}{mend}"
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


def disk_failed(error: Exception) -> bool:
    """Say whether a disk is full or does not answer, so that the same command may go on later."""
    return _number(error) in (*FULL, *_BROKEN)


def _number(error: Exception) -> int | None:
    number: int | None = getattr(error, "errno", None)
    if number is None and (
        found := re.search(r"(?:os error|errno) (\d+)\b", str(error), re.IGNORECASE)
    ):
        number = int(found[1])
    return number


def disk_error(error: Exception, target: object = "", *, absent: bool = False) -> str:
    """Return the line about an error that a disk or file system raised, or "" for another error.

    Args:
        error: Of Python, or of a library: safetensors, tokenizers and pyarrow raise classes of
            their own, with the system's number in the text.
        target: What is being written; "": unknown.
        absent: A missing file is an error of the target's too.
    """
    number, place = _number(error), getattr(error, "filename", None) or ""
    if number in FULL:
        return f"{target or place or error}: no space left on the disk; free some and run the same command again"
    if number in _BROKEN:
        return f"{place or target or error}: the disk does not answer ({os.strerror(number)}); run the same command again once it does"
    if number in _REFUSED or (absent and number == errno.ENOENT):
        what = "written" if target else "opened"
        if number == errno.EEXIST:  # of a folder to make, in whose place a file is
            number = errno.ENOTDIR
        return f"{target or place or error}: cannot be {what}: {os.strerror(number)}"
    return ""
