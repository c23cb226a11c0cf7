"""Draw the pictures of README and docs; their figures come from the files in results/.

python benchmarks/pictures.py

Every picture has a white ground, because a page may be dark.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

from tables import cell, results

from distillkit.report.charts import Point, scatter

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
GROUND = '<rect class="ground" width="100%" height="100%" rx="6"/>'
CHART = """<style>
text { font: 11px system-ui, sans-serif; fill: #57606a } .ground { fill: #fff }
.grid, .lead { stroke: #8c959f; stroke-width: .5; opacity: .5 }
.point { fill: #0a58a8 } .own { fill: #b3261e } .bar { stroke: none }
</style>"""
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f; paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round }
.box + text { stroke: none }
.title { font-weight: 600 } .small { font-size: 12px; fill: #57606a } .word { text-anchor: middle }
.blue { fill: #0a58a8 } .red { fill: #b3261e } .grey { fill: #6e7781 }
.ground, circle.open { fill: #fff } circle.open { stroke: #57606a; stroke-width: 2 }
.box { fill: #f6f8fa; stroke: #8c959f } .band { fill: #d8dee4 }
line, path { fill: none; stroke: #8c959f; stroke-width: 1.2 } .grid { stroke: #d8dee4 }
.strong { stroke: #24292f } .dashed { stroke: #57606a; stroke-dasharray: 4 4 }
line.blue, path.blue { stroke: #0a58a8; stroke-width: 2.5; fill: none }
line.grey, path.grey { stroke: #6e7781; stroke-width: 2.5; fill: none }
path.arrow { marker-end: url(#tip) } #tip path { fill: #57606a; stroke: none }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>"""

Scale = Callable[[float], float]
"""From a value to pixels."""


def alone(drawn: str) -> str:
    """Return a chart of a report as a file of its own."""
    head, _, rest = str(drawn).partition(">")
    head = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg" width="600"')
    return f"{head}>{CHART}{GROUND}{rest}\n"


def drawing(height: int, said: str, parts: Iterable[str]) -> str:
    """Return a picture of 720 pixels' width; `said` is read to those who do not see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" viewBox="0 0 720 {height}" role="img" aria-label="{escape(said)}">'
    return "\n".join([head, STYLE, GROUND, *parts, "</svg>\n"])


def text(said: str, x: float, y: float, kind: str = "", anchor: str = "start") -> str:
    """Write; `y` is the line on which the letters stand."""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(said)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "") -> str:
    """Draw a straight line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def dot(x: float, y: float, kind: str = "blue", radius: float = 5) -> str:
    """Draw a circle."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def path(along: str, kind: str = "arrow") -> str:
    """Draw a path, an arrow unless its kind is another."""
    return f'<path class="{kind}" d="{along}"/>'


def word(said: str, x: float, y: float, width: float, kind: str = "") -> str:
    """Draw a word in a box whose middle is (x, y)."""
    box = f'<rect class="box" x="{x - width / 2:.1f}" y="{y - 13:.1f}" width="{width}" height="26" rx="5"/>'
    return box + text(said, x, y + 4.5, f"word {kind}")


def scale(low: float, high: float, start: float, stop: float) -> Scale:
    """Return a linear axis from `low` at `start` pixels to `high` at `stop`."""
    return lambda value: start + (value - low) / (high - low) * (stop - start)


def grid(at: Scale, ticks: Sequence[float], top: float, bottom: float, unit: str) -> list[str]:
    """Draw an axis below (top, bottom) with a line a tick, and its unit."""
    lines = [line(at(tick), top, at(tick), bottom, "grid") for tick in ticks]
    numbers = [text(f"{tick:g}", at(tick), bottom + 16, "small", "middle") for tick in ticks]
    return [
        *lines,
        *numbers,
        text(unit, (at(ticks[0]) + at(ticks[-1])) / 2, bottom + 34, "small", "middle"),
    ]


def rows_of(name: str) -> dict[str, dict[str, Any]]:
    """Return a result file's rows by what they are called there."""
    return {row.get("id") or next(iter(row.values())): row for row in results(name)["rows"]}


def score(row: dict[str, Any], heading: str = "mean") -> str:
    """Return a row's figure as a table shows it: the mean of its seeds unless told otherwise."""
    return cell(row, heading)


def logits() -> str:
    """Draw what a label says of three texts, what logits say, and what the student makes of each."""
    at = scale(-1, 1, 226, 366)
    parts = [
        text("A sketch: logits tell two positives apart", 16, 28, "title"),
        text("text", 16, 58, "small"),
        text("label", 156, 58, "small"),
        text("the teacher's logits", at(0), 58, "small", "middle"),
        line(at(0), 70, at(0), 180, "dashed"),
    ]
    texts = [("Not a dull minute", 0.85), ("Watchable", 0.12), ("A dull two hours", -0.75)]
    for place, (said, where) in enumerate(texts):
        y = 88 + 38 * place
        label, kind = ("positive", "blue") if where > 0 else ("negative", "red")
        parts += [
            text(said, 16, y + 4.5),
            text(label, 156, y + 4.5, kind),
            line(at(-1), y, at(1), y),
            dot(at(where), y, kind),
        ]
    parts += [
        text("negative", at(-1), 200, "small"),
        text("positive", at(1), 200, "small", "end"),
        line(394, 16, 394, 232, "grid"),
    ]
    ladder = {row.get("student"): row for row in results("ladder-sst2")["rows"]}
    hard, soft = ladder["hard labels, all rows"], ladder["logits: + variants"]
    at = scale(87, 93, 430, 690)
    parts += [
        text("SST-2: two students of the same rows", 424, 28, "title"),
        *grid(at, range(87, 94), 44, 166, "dev (872 rows), mean of three seeds, %"),
    ]
    for y, name, heading in [
        (80, "accuracy", "mean"),
        (140, "correlation with the teacher's logits", "logits' correlation"),
    ]:
        parts.append(text(name, 430, y - 16, "small"))
        figures = [(score(row, heading), kind) for row, kind in ((hard, "open"), (soft, "blue"))]
        (least, _), (most, _) = sorted(figures)
        parts.append(line(at(float(least)), y, at(float(most)), y))
        for figure, kind in figures:
            left = figure == least
            place = at(float(figure)) + (-11 if left else 11)
            parts.append(dot(at(float(figure)), y, kind))
            parts.append(
                text(
                    figure,
                    place,
                    y + 4.5,
                    "blue" if kind == "blue" else "",
                    "end" if left else "start",
                )
            )
    parts += [
        dot(436, 224, "open"),
        text("learns hard labels", 448, 228, "small"),
        dot(584, 224),
        text("learns logits", 596, 228, "small"),
    ]
    return drawing(
        248, "the same label for two texts, logits that differ; what students learn of each", parts
    )


def transfer_set() -> str:
    """Draw the correlation by transfer set, and the accuracy of few rows by raw text."""
    parts = [
        text("SST-2, all 67,349 rows", 16, 28, "title"),
        text("more texts bring the student nearer to the teacher", 16, 46, "small"),
        text("SST-2, 2,000 rows", 384, 28, "title"),
        text("texts of the task's domain help most", 384, 46, "small"),
        line(360, 16, 360, 228, "grid"),
    ]
    rows = [row for row in results("ladder-sst2")["rows"] if "student" in row]
    at = scale(86, 95, 172, 336)
    parts += grid(at, range(86, 95, 2), 62, 194, "correlation of the logits on dev, %")
    for place, row in enumerate(rows):
        y, figure = 78 + 25 * place, score(row, "logits' correlation")
        parts += [text(row["student"], 16, y + 4.5), dot(at(float(figure)), y)]
        parts.append(text(figure, at(float(figure)) - 11, y + 4.5, "blue", "end"))
    row = rows_of("near-raw")["sst-2000"]
    at = scale(76, 85, 548, 694)
    teacher = cell(row, "teacher")
    parts += grid(at, range(76, 86, 2), 62, 194, "accuracy on dev, %")
    parts += [line(at(float(teacher)), 62, at(float(teacher)), 194, "dashed")]
    for place, (name, heading) in enumerate(
        [
            ("gold labels", "gold labels: mean"),
            ("+ 30,000 of WordNet", "default: 30,000 texts of WordNet: mean"),
            ("+ 30,000 of reviews", "30,000 sentences: mean"),
            ("+ 100,000 of reviews", "100,000 sentences: mean"),
        ]
    ):
        y, figure = 78 + 25 * place, cell(row, heading)
        parts += [text(name, 384, y + 4.5), dot(at(float(figure)), y)]
        beside, anchor = (-11, "end") if place == 2 else (11, "start")
        parts.append(text(figure, at(float(figure)) + beside, y + 4.5, "blue", anchor))
    parts.append(text(f"teacher {teacher}", at(float(teacher)) - 5, 189, "small", "end"))
    parts.append(text("dev has 872 rows; means of three seeds", 16, 252, "small"))
    return drawing(268, "SST-2 dev: students by the texts that the teacher labels", parts)


def word_order() -> str:
    """Draw two texts of the same words for a mean and for a BiLSTM, and what three kinds score."""
    parts = [
        text("mean of word vectors", 16, 30),
        text("two texts of the same words", 354, 30, "", "middle"),
        text("BiLSTM", 692, 30, "", "end"),
        dot(90, 90, "grey", 9),
        text("one vector for both", 16, 122, "small"),
    ]
    for y, words, kind, said in [
        (64, ("not", "good", "just", "bad"), "red", "negative"),
        (116, ("not", "bad", "just", "good"), "blue", "positive"),
    ]:
        parts += [
            word(one, 255 + 66 * i, y, 56, {"good": "blue", "bad": "red"}.get(one, ""))
            for i, one in enumerate(words)
        ]
        parts += [path(f"M{283 + 66 * i} {y}h9", "") for i in range(3)]
        parts += [
            path(f"M220 {y}Q150 {y} 103 {90 + (y - 90) / 6:.1f}"),
            path(f"M488 {y}H604"),
            dot(618, y, kind, 9),
            text(said, 636, y + 4.5),
        ]
    parts += [
        line(16, 148, 704, 148, "grid"),
        text("SST-2: students of the same rows and steps", 16, 178, "title"),
    ]
    at = scale(80, 94, 240, 690)
    teacher = score(rows_of("ladder-sst2")["teacher"])
    parts += grid(at, range(80, 95, 2), 194, 288, "dev (872 rows), mean of three seeds, %")
    parts.append(line(at(float(teacher)), 194, at(float(teacher)), 288, "dashed"))
    for place, (kind, said) in enumerate(
        [
            ("bilstm", "bilstm: reads in order"),
            ("textcnn", "textcnn: neighbouring words"),
            ("static", "static: mean of word vectors"),
        ]
    ):
        row, y = rows_of("kinds-sst2")[kind], 212 + 30 * place
        right, near = score(row), score(row, "logits' correlation")
        parts += [
            text(said, 16, y + 4.5),
            line(at(float(right)), y, at(float(near)), y),
            dot(at(float(right)), y, "open"),
            dot(at(float(near)), y),
        ]
        for figure, other, kind in [(right, near, ""), (near, right, "blue")]:
            beside, anchor = (-11, "end") if figure < other else (11, "start")
            parts.append(text(figure, at(float(figure)) + beside, y + 4.5, kind, anchor))
    parts += [
        dot(22, 348, "open"),
        text("accuracy", 34, 352, "small"),
        dot(130, 348),
        text("correlation with the teacher's logits", 142, 352, "small"),
        line(400, 348, 424, 348, "dashed"),
        text(f"the teacher's accuracy, {teacher}", 432, 352, "small"),
    ]
    return drawing(
        368,
        "a mean of word vectors cannot tell two texts of the same words apart, a BiLSTM can",
        parts,
    )


def ladder() -> str:
    """Draw each model's difference from the gold student with its interval."""
    rows = rows_of("ladder-sst2")
    gold = mean(float(seed) for seed in rows["gold"]["seeds"])
    at = scale(-9, 6, 236, 590)
    shown = [
        row for row in rows.values() if "student" in row or row.get("id") in ("tfidf", "teacher")
    ]
    shown = [row for row in shown if row is not rows["gold"]]
    bottom = 60 + 30 * len(shown)
    parts = [
        text("Accuracy on SST-2 dev (872 rows): difference from the gold student", 16, 28, "title"),
        *grid(at, range(-8, 7, 2), 48, bottom, "points, 95 % interval"),
        line(at(0), 48, at(0), bottom, "strong"),
    ]
    for place, row in enumerate(shown):
        y = 66 + 30 * place
        interval = row["- gold, 95 % interval"]
        low, high = (float(end) for end in interval.split(" to "))
        apart = low > 0 or high < 0
        kind = "blue" if apart else "grey"
        difference = mean(map(float, row.get("seeds", [row.get("mean")]))) - gold
        parts += [
            text(row.get("student") or row["dev accuracy"], 16, y + 4.5),
            line(at(low), y, at(high), y, kind),
            dot(at(difference), y, kind),
            text(interval, 704, y + 4.5, kind, "end"),
        ]
    y = bottom + 60
    parts += [
        line(16, y, 40, y, "blue"),
        dot(28, y),
        text("the interval excludes 0", 48, y + 4, "small"),
        line(226, y, 250, y, "grey"),
        dot(238, y, "grey"),
        text("it includes 0: the difference may be luck", 258, y + 4, "small"),
    ]
    return drawing(
        bottom + 76,
        "only TF-IDF and the teacher differ from the gold student by more than luck",
        parts,
    )


def calibration() -> str:
    """Draw what a temperature does to a confidence, and to the error of students."""
    x, y = scale(0, 5, 62, 320), scale(50, 100, 200, 56)
    cut = 2.1

    def confident(gap: float) -> float:
        return 100 / (1 + exp(-gap))

    def curve(temperature: float) -> str:
        points = (f"{x(i / 10):.1f} {y(confident(i / 10 / temperature)):.1f}" for i in range(51))
        return "M" + "L".join(points)

    gap = 2.94
    before, after = confident(gap), confident(gap / cut)
    parts = [
        text("Two classes: confidence in the answer", 16, 28, "title"),
        *(line(x(0), y(tick), x(5), y(tick), "grid") for tick in range(50, 101, 10)),
        *(text(f"{tick} %", 54, y(tick) + 4, "small", "end") for tick in range(50, 101, 10)),
        *(text(f"{tick}", x(tick), 217, "small", "middle") for tick in range(6)),
        text("difference of the two logits", x(2.5), 235, "small", "middle"),
        path(curve(1), "grey"),
        path(curve(cut), "blue"),
        path(f"M{x(gap):.1f} {y(before) + 8:.1f}V{y(after) - 8:.1f}"),
        dot(x(gap), y(before), "grey"),
        dot(x(gap), y(after)),
        text("as they are", x(3.4), y(92)),
        text(f"divided by {cut}", x(3.25), y(76), "blue"),
        text(f"{before:.0f} %", x(gap) - 8, y(before) - 8, "", "end"),
        text(f"{after:.0f} %", x(gap) - 9, y(after) - 7, "blue", "end"),
        line(344, 16, 344, 236, "grid"),
        text("Calibration error on dev", 368, 28, "title"),
    ]
    at = scale(0, 20, 480, 690)
    parts += grid(at, range(0, 21, 5), 44, 160, "ECE, 15 bins of confidence, %")
    found = results("calibration")["rows"]
    for place, row in enumerate(sorted(found, key=lambda row: -row["before"])):
        top = 62 + 29 * place
        name, _, size = row["run"].partition(", ")
        scaled = mean(float(one) for one in row["after, seeds 0 to 2"].split(", "))
        chance = row["perfect calibration, by chance (90 %)"]
        low, high = (float(one) for one in chance.partition("(")[2].rstrip(")").split(" to "))
        error = float(row["before"])
        parts += [
            f'<rect class="band" x="{at(low):.1f}" y="{top - 10}" width="{at(high) - at(low):.1f}" height="20" rx="3"/>',
            text(name, 368, top - 2),
            text(size, 368, top + 10, "small"),
            line(at(scaled), top, at(error), top),
            dot(at(error), top, "grey"),
            dot(at(scaled), top),
        ]
        apart = at(error) - at(scaled) > 80
        right = at(scaled) + 12 if apart else at(error) + 46
        before = at(error) - (10 if apart else -42)
        parts += [
            text(f"{error:.1f}", before, top - 7 if apart else top + 4.5, "", "end"),
            text(
                f"→ {scaled:.1f}" if not apart else f"{scaled:.1f}",
                right,
                top - 7 if apart else top + 4.5,
                "blue",
            ),
        ]
    parts += [
        dot(374, 214, "grey"),
        text("before", 386, 218, "small"),
        dot(446, 214),
        text("divided by its temperature, cross-fitted", 458, 218, "small"),
        '<rect class="band" x="368" y="226" width="14" height="14" rx="3"/>',
        text("what perfect calibration shows by chance (90 %)", 390, 238, "small"),
    ]
    said = (
        "a temperature lowers confidence and keeps the answer; calibration errors before and after"
    )
    return drawing(252, said, parts)


def calls() -> str:
    """Draw the accuracy of a run's teacher and student against the answers it paid for."""
    rows = sorted(results("service-trec")["rows"], key=lambda row: row["calls"])
    at = scale(log(rows[0]["calls"]), log(rows[-1]["calls"]), 90, 560)
    y = scale(84, 96, 250, 52)
    parts = [
        text("TREC-6: accuracy on dev (546 questions) by calls of the service", 16, 28, "title")
    ]
    for tick in range(84, 97, 2):
        parts += [line(76, y(tick), 574, y(tick), "grid")]
        parts += [text(f"{tick} %", 66, y(tick) + 4, "small", "end")]
    for row in rows:
        parts += [text(f"{row['calls']:,}", at(log(row["calls"])), 270, "small", "middle")]
    parts += [text("questions that the service answers, logarithmic", 325, 290, "small", "middle")]
    for who, kind in (("teacher", "grey"), ("student", "blue")):
        means = [(at(log(row["calls"])), y(mean(map(float, row[who])))) for row in rows]
        parts += [path("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in means), kind)]
        parts += [
            dot(at(log(row["calls"])), y(float(one)), kind, 3) for row in rows for one in row[who]
        ]
        parts += [text(who, 580, means[-1][1] + 4, kind)]
    best = mean(map(float, rows[-1]["student"]))
    enough = 0.98 * best
    parts += [line(76, y(enough), 574, y(enough), "dashed")]
    parts += [text(f"98 % of {best:.1f} %", 580, y(enough) + 4, "small")]
    said = "half of the calls keep 98 % of the student's accuracy with all of them, a fifth of them almost"
    return drawing(304, said, parts)


def pictures() -> dict[str, str]:
    """Return what docs/pictures/ should have, by name of the file."""
    server = results("server")
    points = []
    for row in server["rows"]:
        accuracy, milliseconds = float(row["accuracy, %"]), float(row["ms a row"])
        own = row["model"].startswith("stu")
        points.append(Point(row["model"], milliseconds, accuracy, accuracy, accuracy, own))
    unit = "milliseconds a row, logarithmic"
    return {
        "headline.svg": alone(scatter(points, server["what"], unit, "accuracy, %")),
        "logits.svg": logits(),
        "transfer-set.svg": transfer_set(),
        "word-order.svg": word_order(),
        "ladder.svg": ladder(),
        "calibration.svg": calibration(),
        "calls.svg": calls(),
    }


if __name__ == "__main__":
    for name, picture in pictures().items():
        (PICTURES / name).write_text(picture, encoding="utf-8")
