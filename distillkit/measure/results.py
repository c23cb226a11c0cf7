"""The files and the table of a command that measures."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distillkit.data.files import whole_file
from distillkit.measure.report import narrow
from distillkit.processes import terminal_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_results(
    command: str,
    folder: Path,
    result: dict[str, Any],
    shown: str,
    size: tuple[float, float],
    draw: "Callable[[Figure], None]",
) -> None:
    """Write `<command>.json`, `.md` and `.svg`, and show the table on stderr.

    Args:
        command: Its name.
        folder: Where the files are written, each whole or not at all.
        result: For the JSON file.
        shown: Tables in Markdown.
        size: Of the picture, width and height in inches.
        draw: Draws the picture, which needs matplotlib.
    """
    for suffix, text in (
        ("json", json.dumps(result, ensure_ascii=False, indent=1)),
        ("md", shown),
    ):
        with whole_file(folder / f"{command}.{suffix}") as partial:
            partial.write_text(text + "\n", encoding="utf-8")
    sys.stderr.write(f"\n{narrow(shown, terminal_width())}\n\n")
    try:
        write_picture(folder / f"{command}.svg", size, draw)
    except ImportError:
        sys.stderr.write(
            f"{command}: no picture, as matplotlib is not installed: "
            "pip install 'distillkit[plots]'\n"
        )
    sys.stderr.write(f"{folder / command}.json\n")


def write_picture(
    target: Path, size: tuple[float, float], draw: "Callable[[Figure], None]"
) -> None:
    """Write an SVG file: text stays text, and the same results give the same bytes.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with (
        whole_file(target) as partial,
        rc_context({"svg.hashsalt": "distillkit", "svg.fonttype": "none"}),
    ):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(partial, format="svg", metadata={"Date": None})
