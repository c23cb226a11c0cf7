"""Draw the pictures of README and docs from the files in results/.

python benchmarks/pictures.py
"""

from pathlib import Path

from tables import cell, results

from distillkit.report.charts import Point, intervals, scatter

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
STYLE = """<style>
text { font: 11px system-ui, sans-serif; fill: #57606a }
.grid, .lead { stroke: #8c959f; stroke-width: .5; opacity: .5 }
.point { fill: #0a58a8 } .own { fill: #b3261e } .bar { stroke: none }
</style>"""


def alone(drawn: str) -> str:
    """Return a chart of a report as a file of its own."""
    head, _, rest = str(drawn).partition(">")
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" width="600"')
    return f"{head}>{STYLE}{rest}\n"


def pictures() -> dict[str, str]:
    """Return what docs/pictures/ should have, by name of the file."""
    server, ladder = results("server"), results("ladder-sst2")
    points = []
    for row in server["rows"]:
        accuracy, milliseconds = float(row["accuracy, %"]), float(row["ms a row"])
        own = row["model"].startswith("stu")
        points.append(Point(row["model"], milliseconds, accuracy, accuracy, accuracy, own))
    unit = "milliseconds a row, logarithmic"
    headline = scatter(points, server["what"], unit, "accuracy, %")
    points = []
    for row in (row for row in ladder["rows"] if "student" in row):
        correlation = float(cell(row, "logits' correlation"))
        points.append(Point(row["student"], correlation, 0, correlation, correlation))
    unit = "correlation with the teacher's logits, %"
    transfer_set = intervals(points, ladder["what"], unit)
    return {"headline.svg": alone(headline), "transfer-set.svg": alone(transfer_set)}


if __name__ == "__main__":
    for name, picture in pictures().items():
        (PICTURES / name).write_text(picture, encoding="utf-8")
