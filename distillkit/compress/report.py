"""What each step of a compression left, as a table."""

from collections.abc import Mapping
from typing import Any

from distillkit.measure.report import SCORE_NAMES, table


def steps_table(result: Mapping[str, Any]) -> str:
    """Lay the steps of `compress.json` out as Markdown, scores and agreement times 100."""
    steps = result["steps"]
    score = next(name for name in SCORE_NAMES if name in steps[0])
    head = f"|dev {SCORE_NAMES[score]}|lost|agreement|MB|times smaller|parameters|ms a row"
    rows = [
        [
            step["step"],
            f"{100 * step[score]:.2f}",
            f"{100 * (steps[0][score] - step[score]):.2f}",
            f"{100 * step['agreement']:.1f}",
            f"{step['megabytes']:.2f}",
            f"{steps[0]['megabytes'] / step['megabytes']:.1f}",
            f"{step['parameters']:,}",
            f"{step['milliseconds']:.3f}",
        ]
        for step in steps
    ]
    return table([head.split("|"), *rows])
