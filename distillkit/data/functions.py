"""Functions of the user's own, named MODULE:FUNCTION in a setting."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distillkit.data.checked import fingerprint
from distillkit.errors import library_errors


def load_function(name: str, setting: str) -> Callable[..., Any]:
    """Import a function.

    Args:
        name: MODULE:FUNCTION.
        setting: What names it, for the error.

    Raises:
        InputError: There is no such module, or no such function in it.
    """
    module, _, function = name.partition(":")
    place = f"{setting} {name!r}"
    if os.getcwd() not in sys.path:  # last, so that a file there stands before no package
        sys.path.append(os.getcwd())
    with library_errors(place, "expected MODULE:FUNCTION that can be imported"):
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def function_version(name: str, setting: str) -> str:
    """Name a function so that it has another name when its module's file has changed.

    Raises:
        InputError: There is no such function.
    """
    load_function(name, setting)
    source = importlib.import_module(name.partition(":")[0]).__file__
    return f"{name} {fingerprint(Path(source)) if source else ''}"
