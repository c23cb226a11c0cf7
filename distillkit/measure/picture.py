"""Pictures of results, which need matplotlib; all else works without it."""

import sys
from collections.abc import Callable
from pathlib import Path

from distillkit.data.files import whole_file


def write_picture(command: str, target: Path, draw: Callable[[Path], None]) -> None:
    """Write a picture, or say on stderr how to get one where matplotlib is not installed.

    Args:
        command: Its name, for that line.
        target: SVG file to write, whole or not at all.
        draw: Draws into the path it is given; raises ImportError without matplotlib.
    """
    try:
        with whole_file(target) as partial:
            draw(partial)
    except ImportError:
        sys.stderr.write(
            f"{command}: no picture, as matplotlib is not installed: "
            "pip install 'distillkit[plots]'\n"
        )
