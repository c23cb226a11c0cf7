"""The run's table: every model a row, from the commonest class to the teacher."""

from typing import Any

_ROWS = {
    "majority": "majority class",
    "tfidf": "TF-IDF + logistic regression",
    "student_gold": "student on gold labels",
    "student": "student, distilled",
    "teacher": "teacher",
}


def comparison_table(result: dict[str, Any], latency: dict[str, float]) -> str:
    """Lay a run's result out as a Markdown table.

    Args:
        result: What `result.json` holds.
        latency: Median milliseconds a sentence at batch 1, by model.
    """
    splits = [split for split in ("dev", "test") if split in result["models"]["teacher"]]
    head = [
        "model",
        *(f"{split} {name}" for split in splits for name in ("accuracy", "macro-F1")),
        "agreement",
        "parameters",
        "without embeddings",
        "MB",
        "ms a sentence",
    ]
    rows = [head]
    for name, title in _ROWS.items():
        if name not in result["models"]:
            continue
        model = result["models"][name]
        scores = [f"{100 * model[split][key]:.1f}" for split in splits for key in ("accuracy", "macro_f1")]
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


def metrics_table(report: dict[str, Any]) -> str:
    """Lay out what `classification_metrics` returns: the figures, a row a class, the confusion matrix."""
    figures = "  ".join(
        f"{key} {report[key]:.4f}"
        for key in ("accuracy", "macro_f1", "f1", "calibration_error", "agreement")
        if key in report
    )
    names = list(report["classes"])
    classes = [["class", "precision", "recall", "f1", "rows"]]
    classes += [
        [name, *(f"{row[k]:.3f}" for k in ("precision", "recall", "f1")), str(row["rows"])]
        for name, row in report["classes"].items()
    ]
    confusion = [["gold \\ found", *names]] + [
        [name, *map(str, counts)] for name, counts in zip(names, report["confusion"], strict=True)
    ]
    return f"{report['rows']} rows  {figures}\n\n{table(classes)}\n\n{table(confusion)}"


def table(rows: list[list[str]]) -> str:
    """Lay rows of text out as a Markdown table, the first as its head; numbers to the right."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        " | ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])
