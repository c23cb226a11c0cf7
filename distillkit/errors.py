"""The one exception that means: the input is wrong, and here is how to mend it; and the one that means: told to end, all is saved."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """A user's mistake, said in one line: where it is, what was expected, how to mend it.

    The command line prints it without a traceback and exits with status 1; every other exception is
    a bug and keeps its traceback.
    """


class Preempted(Exception):
    """A training was told to end (SIGTERM before a machine is taken away, or SIGINT) and has saved what it takes to go on.

    Args:
        message: Where it stopped.
        signal: The number of the signal.
    """

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


@contextmanager
def checkpoint_errors(model: str) -> Iterator[None]:
    """Turn whatever is raised while a checkpoint is loaded into one line, and keep stdin from its loader.

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
