"""The ladder's figures: what each rung's models answered, held against gold labels, the teacher and the student on gold labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from distillkit.measure.metrics import classification_metrics, expected_calibration_error
from distillkit.measure.report import table
from distillkit.measure.statistics import cross_scaled, fit_temperature, mcnemar, paired_bootstrap

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
    rungs: Mapping[str, Rung], gold: Mapping[str, np.ndarray], labels: Sequence[str], *, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Measure every rung on every split.

    Args:
        rungs: At least the teacher.
        gold: Class numbers of each split's rows, (N,) int; `dev` first.
        labels: C names in the order of the logits.
        resamples: Of each bootstrap.

    Returns:
        By rung: `seeds`, `cost` (means over seeds) and by split `accuracy`, `macro_f1`, `agreement`, `calibration_error`,
        `calibration_error_scaled`, `temperature` (means over seeds), `accuracy_sd` (with one seed None), `accuracy_by_seed`; where the gold
        student has a seed in common `difference` (mean, low, high) and `mcnemar_p`.
    """
    teacher = rungs["teacher"][None]
    figures: dict[str, Any] = {}
    for name, rung in rungs.items():
        costs = [answers.cost for answers in rung.values()]
        figures[name] = {
            "title": TITLES[name],
            "seeds": [seed for seed in rung if seed is not None],
            "cost": {key: float(np.mean([cost[key] for cost in costs])) for key in costs[0]},
        }
        for split, ids in gold.items():
            figures[name][split] = _scores(rung, gold, split, labels, teacher.logits[split])
            if name != REFERENCE and REFERENCE in rungs:
                figures[name][split] |= _against(rung, rungs[REFERENCE], gold, split, ids, resamples)
    return figures


def _scores(
    rung: Rung, gold: Mapping[str, np.ndarray], split: str, labels: Sequence[str], teacher: np.ndarray
) -> dict[str, Any]:
    reports = []
    for answers in rung.values():
        report = classification_metrics(answers.logits[split], gold[split], labels, teacher)
        report["temperature"] = fit_temperature(answers.logits["dev"], gold["dev"])
        # A temperature is never measured on the rows that it was fitted on.
        scaled = (
            cross_scaled(answers.logits[split], gold[split])
            if split == "dev"
            else answers.logits[split] / report["temperature"]
        )
        report["calibration_error_scaled"] = expected_calibration_error(softmax(scaled, axis=1), gold[split])
        reports.append(report)
    means = (
        "accuracy",
        "macro_f1",
        "agreement",
        "calibration_error",
        "calibration_error_scaled",
        "temperature",
    )
    found = [report["accuracy"] for report in reports]
    return {
        "rows": len(gold[split]),
        **{key: float(np.mean([report[key] for report in reports])) for key in means},
        "accuracy_sd": float(np.std(found, ddof=1)) if len(found) > 1 else None,
        "accuracy_by_seed": {str(seed): score for seed, score in zip(rung, found, strict=True) if seed is not None},
    }


def _against(
    rung: Rung, reference: Rung, gold: Mapping[str, np.ndarray], split: str, ids: np.ndarray, resamples: int
) -> dict[str, Any]:
    """Compare a rung with the gold student, over the seeds that both have; a rung without seeds stands for each of them."""
    seeds = [seed for seed in reference if seed in rung or None in rung]
    if not seeds:
        return {}
    ours = np.stack([_right(rung[None if None in rung else seed], split, ids) for seed in seeds])
    theirs = np.stack([_right(reference[seed], split, ids) for seed in seeds])
    found = paired_bootstrap(ours, theirs, resamples=resamples)
    pair = (_right(_median(one, gold["dev"]), split, ids) for one in (rung, reference))
    return {
        "difference": {"mean": found.mean, "low": found.low, "high": found.high},
        "mcnemar_p": mcnemar(*pair),
    }


def _right(answers: Answers, split: str, gold: np.ndarray) -> np.ndarray:
    return answers.logits[split].argmax(1) == gold


def _median(rung: Rung, dev: np.ndarray) -> Answers:
    """Return the model of the seed whose dev accuracy is the median; of two in the middle the lower."""
    order = sorted(rung, key=lambda seed: (_right(rung[seed], "dev", dev).mean(), seed))
    return rung[order[(len(order) - 1) // 2]]


def ladder_tables(figures: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Lay the figures out as Markdown: a table a split, and one of what training took."""
    parts = []
    for split in splits:
        rows = [
            [
                split,
                "accuracy",
                "sd",
                "macro-F1",
                "- gold",
                "95 % interval",
                "McNemar p",
                "agreement",
                "ECE",
                "ECE scaled",
            ]
        ]
        rows += [_score_row(rung["title"], rung[split]) for rung in figures.values()]
        parts.append(table(rows))
    rows = [["training", "seeds", "rows", "epochs", "steps", "parameters", "MB"]]
    rows += [_cost_row(rung) for rung in figures.values()]
    return "\n\n".join([*parts, table(rows)])


def _score_row(title: str, scores: Mapping[str, Any]) -> list[str]:
    against = scores.get("difference")
    sd = scores["accuracy_sd"]
    return [
        title,
        f"{100 * scores['accuracy']:.1f}",
        "" if sd is None else f"{100 * sd:.1f}",
        f"{100 * scores['macro_f1']:.1f}",
        f"{100 * against['mean']:+.1f}" if against else "",
        f"{100 * against['low']:+.1f} to {100 * against['high']:+.1f}" if against else "",
        f"{scores['mcnemar_p']:.2g}" if against else "",
        *(f"{100 * scores[key]:.1f}" for key in ("agreement", "calibration_error", "calibration_error_scaled")),
    ]


def _cost_row(rung: Mapping[str, Any]) -> list[str]:
    cost = rung["cost"]
    forms = {"rows": ",.0f", "epochs": ".1f", "steps": ",.0f", "parameters": ",.0f", "megabytes": ",.1f"}
    figures = [format(cost[key], form) if key in cost else "" for key, form in forms.items()]
    return [rung["title"], ", ".join(map(str, rung["seeds"])), *figures]


def draw_ladder(figures: Mapping[str, Any], splits: Sequence[str], target: Path) -> None:
    """Draw the rungs, the teacher on top.

    A dot is the mean accuracy, a stroke a seed; the bar is the interval of the difference to the gold student, whose mean is the dashed line.

    Args:
        figures: What `ladder_figures` returns.
        splits: A panel each.
        target: SVG file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text stays text, and the same figures give the same bytes.
    with rc_context({"svg.hashsalt": "distillkit", "svg.fonttype": "none"}):
        height = 1.2 + 0.3 * len(figures)
        figure = Figure(figsize=(3.2 + 3.4 * len(splits), height), layout="constrained")
        panels = figure.subplots(1, len(splits), sharey=True, squeeze=False)[0]
        for split, panel in zip(splits, panels, strict=True):
            _draw_panel(panel, figures, split)
        panels[0].set_yticks(range(len(figures)), [rung["title"] for rung in figures.values()])
        figure.supxlabel("dot: mean; strokes: seeds; bar: 95 % interval of the difference to gold (dashed)", fontsize=8)
        figure.savefig(target, format="svg", metadata={"Date": None})


def _draw_panel(panel: "Axes", figures: Mapping[str, Any], split: str) -> None:
    base = figures[REFERENCE][split]["accuracy"] if REFERENCE in figures else None
    for place, rung in enumerate(figures.values()):
        scores = rung[split]
        seeds = [100 * score for score in scores["accuracy_by_seed"].values()]
        if len(seeds) > 1:
            panel.plot(seeds, [place] * len(seeds), "|", color="0.6", markersize=7)
        if "difference" in scores:
            # Around the rung's own mean, so that it reaches the line exactly where its difference reaches 0.
            shift = 100 * (scores["accuracy"] - scores["difference"]["mean"])
            bounds = [shift + 100 * scores["difference"][end] for end in ("low", "high")]
            panel.plot(bounds, [place, place], "-", color="tab:blue", linewidth=1.5)
        panel.plot([100 * scores["accuracy"]], [place], "o", color="tab:blue", markersize=5)
    if base is not None:
        panel.axvline(100 * base, linestyle="--", color="0.5", linewidth=1)
    panel.set_xlabel(f"{split} accuracy, %")
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
