"""The ladder's figures: what each rung's models answered, held against gold labels, the teacher and the student on gold labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from distillkit.data.scores import dev_score
from distillkit.measure.metrics import expected_calibration_error, metrics
from distillkit.measure.parts import SCORE_OF_PARTS, right_rows, row_parts
from distillkit.measure.report import BASELINES, SCORE_NAMES, table
from distillkit.measure.statistics import cross_scaled, fit_temperature, mcnemar, paired_bootstrap
from distillkit.recipe import SCORES, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# From the ground up; a ladder is shown in this order.
TITLES = {
    "majority": "majority class",
    "tfidf": "TF-IDF + logistic regression",
    "gold": "student, gold labels",
    "hard": "student, teacher's hard labels",
    "originals": "student, logits of the originals alone",
    "no-mask": "full without masking",
    "no-pos": "full without part-of-speech replacement",
    "no-ngram": "full without n-grams",
    "no-rules": "full without the three rules",
    "no-infill": "full without infilling",
    "no-neighbours": "full without nearest neighbours",
    "no-generated": "full without generated texts",
    "no-swap": "full without swapped pairs",
    "full": "student, full transfer set",
    "in-domain": "student, full + in-domain text",
    "teacher": "teacher",
}
REFERENCE = "gold"
RESAMPLES = 10_000
# Figures that are shown as the mean over seeds, those that a task has.
_MEANS = (
    "accuracy",
    "micro_f1",
    "macro_f1",
    "exact_match",
    "pearson",
    "spearman",
    "mse",
    "mae",
    "agreement",
    "logit_correlation",
    "calibration_error",
    "calibration_error_scaled",
    "temperature",
)
_AXES = {"accuracy": "accuracy, %", "micro_f1": "micro-F1, %", "pearson": "100 x Pearson"}


@dataclass(frozen=True)
class Answers:
    """What one model answered, and what it took to train.

    Attributes:
        logits: Of each split, (N, C) float.
        cost: `rows`, `epochs`, `steps`, `parameters`, `megabytes`, where they mean something.
    """

    logits: Mapping[str, np.ndarray]
    cost: Mapping[str, float]


Rung = Mapping[int | None, Answers]  # by seed; a rung that draws nothing has None alone


def ladder_figures(
    rungs: Mapping[str, Rung],
    gold: Mapping[str, np.ndarray],
    labels: Sequence[str],
    task: Task = "classification",
    *,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Measure every rung on every split.

    Args:
        rungs: At least the teacher.
        gold: Of each split's rows, as `data.tables.gold_of` gives it; `dev` first.
        labels: C names in the order of the logits.
        task: What a label is.
        resamples: Of each bootstrap.

    Returns:
        By rung: `title`, `seeds`, `cost` (means over seeds) and by split `rows`; of
            `measure.metrics.metrics` the scores, errors, agreement and
        calibration error that the task has, of a classification `calibration_error_scaled` and
        `temperature` too (means over seeds); of the task's score, here accuracy, `accuracy_sd`
        (with one seed None) and `accuracy_by_seed`; where the gold student has a seed in common
        `difference` (mean, low, high) and, but for a regression, `mcnemar_p`.
    """
    teacher, titles = rungs["teacher"][None], TITLES | BASELINES[SCORES[task]]
    figures: dict[str, Any] = {}
    for name, rung in rungs.items():
        costs = [answers.cost for answers in rung.values()]
        figures[name] = {
            "title": titles[name],
            "seeds": [seed for seed in rung if seed is not None],
            "cost": {key: float(np.mean([cost[key] for cost in costs])) for key in costs[0]},
        }
        for split in gold:
            figures[name][split] = _scores(task, rung, gold, split, labels, teacher.logits[split])
            if name != REFERENCE and REFERENCE in rungs:
                figures[name][split] |= _against(
                    task, rung, rungs[REFERENCE], gold, split, resamples
                )
    return figures


def _scores(
    task: Task,
    rung: Rung,
    gold: Mapping[str, np.ndarray],
    split: str,
    labels: Sequence[str],
    teacher: np.ndarray,
) -> dict[str, Any]:
    reports = []
    for answers in rung.values():
        report = metrics(task, answers.logits[split], gold[split], labels, teacher)
        reports.append(report | (_scaled(answers, gold, split) if task == "classification" else {}))
    score = SCORES[task]
    found = [report[score] for report in reports]
    return {
        "rows": len(gold[split]),
        **{
            key: float(np.mean([report[key] for report in reports]))
            for key in _MEANS
            if key in reports[0]
        },
        f"{score}_sd": float(np.std(found, ddof=1)) if len(found) > 1 else None,
        f"{score}_by_seed": {
            str(seed): one for seed, one in zip(rung, found, strict=True) if seed is not None
        },
    }


def _scaled(answers: Answers, gold: Mapping[str, np.ndarray], split: str) -> dict[str, float]:
    """Return how sure a classifier should have been; no temperature is measured on the rows that it was fitted on."""
    temperature, logits = fit_temperature(answers.logits["dev"], gold["dev"]), answers.logits[split]
    scaled = cross_scaled(logits, gold[split]) if split == "dev" else logits / temperature
    error = expected_calibration_error(softmax(scaled, axis=1), gold[split])
    return {"temperature": temperature, "calibration_error_scaled": error}


def _against(
    task: Task,
    rung: Rung,
    reference: Rung,
    gold: Mapping[str, np.ndarray],
    split: str,
    resamples: int,
) -> dict[str, Any]:
    """Compare a rung with the gold student, over the seeds that both have; a rung without seeds stands for each of them."""
    seeds = [seed for seed in reference if seed in rung or None in rung]
    if not seeds:
        return {}
    models = [
        [rung[None if None in rung else seed] for seed in seeds],
        [reference[seed] for seed in seeds],
    ]
    ours, theirs = (
        np.stack([row_parts(task, answers.logits[split], gold[split]) for answers in side])
        for side in models
    )
    found = paired_bootstrap(ours, theirs, SCORE_OF_PARTS[task], resamples=resamples)
    figures: dict[str, Any] = {
        "difference": {"mean": found.mean, "low": found.low, "high": found.high}
    }
    if task != "regression":
        middle, other = (_median(task, one, gold["dev"]).logits[split] for one in (rung, reference))
        figures["mcnemar_p"] = mcnemar(
            right_rows(task, middle, gold[split]), right_rows(task, other, gold[split])
        )
    return figures


def _median(task: Task, rung: Rung, dev: np.ndarray) -> Answers:
    """Return the model of the seed whose dev score is the median; of two in the middle the lower."""
    order = sorted(rung, key=lambda seed: (dev_score(task, rung[seed].logits["dev"], dev), seed))
    return rung[order[(len(order) - 1) // 2]]


def ladder_tables(figures: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Lay the figures out as Markdown: a table a split, of what its task has, and one of what training took."""
    parts = []
    for split in splits:
        shown = [
            column
            for column in _COLUMNS
            if any(column[0] in rung[split] for rung in figures.values())
        ]
        rows = [[split, *(heading for _, heading, _ in shown)]]
        rows += [
            [rung["title"], *(_cell(rung[split].get(key), form) for key, _, form in shown)]
            for rung in figures.values()
        ]
        parts.append(table(rows))
    rows = [["training", "seeds", "rows", "epochs", "steps", "parameters", "MB"]]
    rows += [_cost_row(rung) for rung in figures.values()]
    return "\n\n".join([*parts, table(rows)])


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


# Of a split's table key, heading and form, in this order; a column that no rung has a figure for is
# left out.
_COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    *((key, SCORE_NAMES[key], _percent) for key in SCORES.values()),
    *((f"{key}_sd", "sd", _percent) for key in SCORES.values()),
    *((key, SCORE_NAMES[key], _percent) for key in ("macro_f1", "exact_match", "spearman")),
    ("difference", "- gold", lambda found: f"{100 * found['mean']:+.1f}"),
    (
        "difference",
        "95 % interval",
        lambda found: f"{100 * found['low']:+.1f} to {100 * found['high']:+.1f}",
    ),
    ("mcnemar_p", "McNemar p", lambda p: f"{p:.2g}"),
    ("agreement", "agreement", _percent),
    ("logit_correlation", "logits' correlation", _percent),
    ("calibration_error", "ECE", _percent),
    ("calibration_error_scaled", "ECE scaled", _percent),
]


def _cell(value: Any, form: Callable[[Any], str]) -> str:
    return "" if value is None else form(value)


def _cost_row(rung: Mapping[str, Any]) -> list[str]:
    cost = rung["cost"]
    forms = {
        "rows": ",.0f",
        "epochs": ".1f",
        "steps": ",.0f",
        "parameters": ",.0f",
        "megabytes": ",.1f",
    }
    figures = [format(cost[key], form) if key in cost else "" for key, form in forms.items()]
    return [rung["title"], ", ".join(map(str, rung["seeds"])), *figures]


def draw_ladder(figures: Mapping[str, Any], splits: Sequence[str], target: Path) -> None:
    """Draw the rungs, the teacher on top.

    A dot is the mean of the task's score, a stroke a seed; the bar is the interval of the
    difference to the gold student, whose mean is the dashed line.

    Args:
        figures: What `ladder_figures` returns.
        splits: A panel each.
        target: SVG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    score = next(key for key in SCORES.values() if key in figures["teacher"][splits[0]])
    # Text stays text, and the same figures give the same bytes.
    with rc_context({"svg.hashsalt": "distillkit", "svg.fonttype": "none"}):
        height = 1.2 + 0.3 * len(figures)
        figure = Figure(figsize=(3.2 + 3.4 * len(splits), height), layout="constrained")
        panels = figure.subplots(1, len(splits), sharey=True, squeeze=False)[0]
        for split, panel in zip(splits, panels, strict=True):
            _draw_panel(panel, figures, split, score)
        panels[0].set_yticks(range(len(figures)), [rung["title"] for rung in figures.values()])
        figure.supxlabel(
            "dot: mean; strokes: seeds; bar: 95 % interval of the difference to gold (dashed)",
            fontsize=8,
        )
        figure.savefig(target, format="svg", metadata={"Date": None})


def _draw_panel(panel: "Axes", figures: Mapping[str, Any], split: str, score: str) -> None:
    base = figures[REFERENCE][split][score] if REFERENCE in figures else None
    for place, rung in enumerate(figures.values()):
        scores = rung[split]
        seeds = [100 * one for one in scores[f"{score}_by_seed"].values()]
        if len(seeds) > 1:
            panel.plot(seeds, [place] * len(seeds), "|", color="0.6", markersize=7)
        if "difference" in scores:
            # Around the rung's own mean, so that it reaches the line exactly where its difference
            # reaches 0.
            shift = 100 * (scores[score] - scores["difference"]["mean"])
            bounds = [shift + 100 * scores["difference"][end] for end in ("low", "high")]
            panel.plot(bounds, [place, place], "-", color="tab:blue", linewidth=1.5)
        panel.plot([100 * scores[score]], [place], "o", color="tab:blue", markersize=5)
    if base is not None:
        panel.axvline(100 * base, linestyle="--", color="0.5", linewidth=1)
    panel.set_xlabel(f"{split} {_AXES[score]}")
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
