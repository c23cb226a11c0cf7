"""Tables of a run's metrics: every model a row, from the commonest class to the teacher."""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

_ROWS = {
    "majority": "one answer to all",
    "tfidf": "TF-IDF + logistic regression",
    "frozen": "frozen teacher + logistic regression",
    "student_gold": "student on gold labels",
    "student": "student, distilled",
    "shipped": "student, compressed: bundle.zip",
    "teacher": "teacher",
}
# Titles of the rows without a network that differ by task; a task is known by its score.
BASELINES = {
    "accuracy": {"majority": "majority class"},
    "micro_f1": {"majority": "commonest labels"},
    "pearson": {
        "majority": "mean score",
        "tfidf": "TF-IDF + ridge regression",
        "frozen": "frozen teacher + ridge regression",
    },
}
# Titles of the comparison's columns; a task has some of them.
SCORE_NAMES = {
    "accuracy": "accuracy",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "exact_match": "exact match",
    "pearson": "Pearson",
    "spearman": "Spearman",
}


def titles(score: str) -> dict[str, str]:
    """Return the models' names in tables, from the simplest to the teacher, by their keys."""
    return _ROWS | BASELINES[score]


def not_gold(result: Mapping[str, Any]) -> str:
    """Return who gave dev its labels where no person did, so that a score is no accuracy; else ""."""
    return str(result.get("data", {}).get("first_labels", {}).get("dev_by", ""))


def score_names(result: Mapping[str, Any]) -> dict[str, str]:
    """Return `SCORE_NAMES` for a run, or other names where dev has no labels of its own."""
    if not not_gold(result):
        return SCORE_NAMES
    unknown = {"accuracy": "agreement with first labels", "macro_f1": "macro-F1 on first labels"}
    return SCORE_NAMES | unknown


def comparison_table(result: dict[str, Any], latency: dict[str, float]) -> str:
    """Lay a run's result out as a Markdown table, scores and agreement times 100.

    Args:
        result: What `result.json` holds.
        latency: Median milliseconds a sentence at batch 1, by model.
    """
    splits = [split for split in ("dev", "test") if split in result["models"]["teacher"]]
    scored = [key for key in SCORE_NAMES if key in result["models"]["teacher"][splits[-1]]]
    columns = [f"{split} {score_names(result)[key]}" for split in splits for key in scored]
    sizes = ["parameters", "without embeddings", "MB", "ms a sentence"]
    head = ["model", *columns, "agreement", *sizes]
    rows = [head]
    for name, title in titles(scored[0]).items():
        if name not in result["models"]:
            continue
        model = result["models"][name]
        scores = [f"{100 * model[split][key]:.1f}" for split in splits for key in scored]
        size = model.get("parameters", {})
        rows.append(
            [
                title,
                *scores,
                f"{100 * model[splits[-1]]['agreement']:.1f}",
                f"{size['total']:,}" if size else "",
                f"{size['without_embeddings']:,}" if size else "",
                f"{model['megabytes']:.1f}" if "megabytes" in model else "",
                f"{latency[name]:.2f}" if name in latency else "",
            ]
        )
    return table(rows)


def metrics_table(report: Mapping[str, Any]) -> str:
    """Lay out `metrics.metrics`: one line, and a table of classes and a confusion matrix if any."""
    values = "  ".join(
        f"{key} {value:.4f}" for key, value in report.items() if isinstance(value, float)
    )
    parts = [f"{report['rows']} rows  {values}"]
    if "classes" in report:
        rows = [
            [name, *(f"{row[k]:.3f}" for k in ("precision", "recall", "f1")), str(row["rows"])]
            for name, row in report["classes"].items()
        ]
        parts.append(table([["class", "precision", "recall", "f1", "rows"], *rows]))
    if "confusion" in report:
        names = list(report["classes"])
        counts = zip(names, report["confusion"], strict=True)
        rows = [[name, *map(str, found)] for name, found in counts]
        parts.append(table([["gold \\ found", *names], *rows]))
    return "\n\n".join(parts)


def cells_of(markdown: str) -> list[list[str]]:
    """Return the cells of a table as `table` writes it."""
    lines = [line for line in markdown.split("\n") if not line.startswith("|-")]
    return [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]


def percent(share: float | None) -> str:
    """Write a share, 0 to 1, times 100; nothing for what is none."""
    return "" if share is None or math.isnan(share) else f"{100 * share:.1f}"


def own_model(models: Mapping[str, Any]) -> str:
    """Return which of a run's models ships: `shipped`, or else `student`."""
    return "shipped" if "shipped" in models else "student"


def beside(difference: float) -> str:
    """Say how a score, a share of 1, compares with another: "2.1 points above", or "level with"."""
    points = f"{100 * abs(difference):.1f}"
    if points == "0.0":
        return "level with"
    return f"{points} points {'above' if difference > 0 else 'below'}"


def table(rows: list[list[str]]) -> str:
    """Lay rows of text out as a Markdown table, the first as its head, all but one column right.

    Ours because `tabulate` would be one more dependency.
    """
    rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        right = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append(" | ".join([first.ljust(widths[0]), *right]))
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def narrow(shown: str, width: int | None) -> str:
    """Cut the tables in a text that are wider than a terminal into several, one below the other.

    Args:
        shown: Lines, some of them tables as `table` writes them.
        width: Columns of the terminal; None: there is none, and nothing is cut.
    """
    if width is None:
        return shown
    parts = []
    for is_table, block in groupby(shown.split("\n"), lambda line: line.startswith("|")):
        lines = list(block)
        if not is_table or max(map(len, lines)) <= width:
            parts += lines
            continue
        parts += "\n\n".join(map(table, _parts(cells_of("\n".join(lines)), width))).split("\n")
    return "\n".join(parts)


def _parts(rows: list[list[str]], width: int) -> Iterator[list[list[str]]]:
    """Yield the columns of a table in groups that fit, each behind the first column."""
    first, *others = map(list, zip(*rows, strict=True))
    group = [first]
    for column in others:
        if len(group) > 1 and sum(max(map(len, c)) + 3 for c in [*group, column]) + 1 > width:
            yield [list(row) for row in zip(*group, strict=True)]
            group = [first]
        group.append(column)
    yield [list(row) for row in zip(*group, strict=True)]
