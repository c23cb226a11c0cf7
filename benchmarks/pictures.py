"""Draw the pictures of README and docs from the files in results/.

python benchmarks/pictures.py
"""

import json
from pathlib import Path
from typing import Any

from distillkit.report.charts import Point, intervals, scatter

HERE = Path(__file__).parent
STYLE = """<style>
text { font: 11px system-ui, sans-serif; fill: #57606a }
.grid, .lead { stroke: #8c959f; stroke-width: .5; opacity: .5 }
.point { fill: #0a58a8 } .own { fill: #b3261e } .bar { stroke: none }
</style>"""


def results(name: str) -> dict[str, Any]:
    """Return a file of results/: what was measured, by which command, and its rows."""
    found: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text("utf-8"))
    return found


def save(drawn: str, name: str) -> None:
    """Write a chart of a report as a file of its own."""
    head, _, rest = str(drawn).partition(">")
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" width="600"')
    picture = HERE.parent / "docs" / "pictures" / name
    picture.write_text(f"{head}>{STYLE}{rest}\n", encoding="utf-8")


def main() -> None:
    """Write docs/pictures/."""
    server, ladder = results("server"), results("ladder-sst2")
    points = [
        Point(row["model"], row["p50_ms"], *[row["accuracy"]] * 3, row["model"].startswith("stu"))
        for row in server["rows"]
    ]
    unit = "milliseconds a row, logarithmic"
    save(scatter(points, server["what"], unit, "accuracy, %"), "headline.svg")
    points = [
        Point(r["student"], r["correlation"], 0, *[r["correlation"]] * 2) for r in ladder["rows"]
    ]
    save(
        intervals(points, ladder["what"], "correlation with the teacher's logits, %"),
        "transfer-set.svg",
    )


if __name__ == "__main__":
    main()
