"""Metrics of a ladder's ablation rows: against gold labels, the teacher and the gold student."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from distillkit.data.scores import dev_score
from distillkit.measure.metrics import expected_calibration_error, metrics
from distillkit.measure.parts import SCORE_OF_PARTS, right_rows, row_parts
from distillkit.measure.report import BASELINES, SCORE_NAMES, percent, table
from distillkit.measure.statistics import cross_scaled, fit_temperature, mcnemar, paired_bootstrap
from distillkit.recipe import SCORES, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ablation rows in the order of the tables, the simplest first.
TITLES = {
    "majority": "majority class",
    "tfidf": "TF-IDF + logistic regression",
    "frozen": "frozen teacher + logistic regression",
    "gold": "student, gold labels",
    "hard": "student, teacher's hard labels",
    "originals": "student, logits of the originals alone",
    "no-mask": "full without masking",
    "no-pos": "full without part-of-speech replacement",
    "no-ngram": "full without n-grams",
    "no-rules": "full without the three rules",
    "no-neighbours": "full without nearest neighbours",
    "no-generated": "full without generated texts",
    "no-markov": "full without Markov chains",
    "no-pairs": "full without new pairs",
    "no-self_pairs": "full without texts beside their own variants",
    "no-swap": "full without swapped pairs",
    "full": "student, full transfer set",
    "in-domain": "student, full + in-domain text",
    "teacher": "teacher",
}
REFERENCE = "gold"
RESAMPLES = 10_000
_AXES = {"accuracy": "accuracy, %", "micro_f1": "micro-F1, %", "pearson": "100 x Pearson"}


@dataclass(frozen=True)
class Answers:
    """What one model answered, and what it took to train.

    Attributes:
        logits: Of each split, (N, C) float.
        cost: `rows`, `epochs`, `steps`, `parameters`, `megabytes`, where they mean something; for
            students of a teacher `unexplained_train`, `_variants`, `_raw`, `_dev`: the share of the
            variance of its logits that they miss.
    """

    logits: Mapping[str, np.ndarray]
    cost: Mapping[str, float]


Ablation = Mapping[int | None, Answers]  # by seed; None where nothing is drawn


def ladder_metrics(
    ablations: Mapping[str, Ablation],
    gold: Mapping[str, np.ndarray],
    labels: Sequence[str],
    task: Task = "classification",
) -> dict[str, Any]:
    """Measure every ablation row on every split.

    Args:
        ablations: At least the teacher.
        gold: Of each split's rows, as `data.gold.gold_of` gives it; `dev` first.
        labels: C names in the order of the logits.
        task: What a label is.

    Returns:
        By row: `title`, `seeds`, `cost` (means over seeds) and the splits. A split has `rows` and
            the means of `measure.metrics.metrics`. A classification adds `temperature` and
            `calibration_error_scaled`. The task's score, such as accuracy, adds `accuracy_sd`
            (None of one seed) and `accuracy_by_seed`. Seeds in common with the gold student add
            `difference` (mean, low, high) and, except for a regression, `mcnemar_p`.
    """
    titles = TITLES | BASELINES[SCORES[task]]
    study = _Study(task, gold, labels, ablations["teacher"][None])
    reference = ablations.get(REFERENCE)
    measured: dict[str, Any] = {}
    for name, ablation in ablations.items():
        costs = [answers.cost for answers in ablation.values()]
        counted = set.intersection(*map(set, costs))  # earlier cells noted less
        measured[name] = {
            "title": titles.get(name, f"full without {name.removeprefix('no-')}"),
            "seeds": [seed for seed in ablation if seed is not None],
            "cost": {
                key: float(np.mean([cost[key] for cost in costs]))
                for key in costs[0]
                if key in counted
            },
        }
        for split in gold:
            measured[name][split] = study.scores(ablation, split)
            if reference is not None and name != REFERENCE:
                measured[name][split] |= study.against(ablation, reference, split)
    return measured


@dataclass(frozen=True)
class _Study:
    task: Task
    gold: Mapping[str, np.ndarray]
    labels: Sequence[str]
    teacher: Answers

    def scores(self, ablation: Ablation, split: str) -> dict[str, Any]:
        """Measure a row's models on a split."""
        gold, score, reports = self.gold[split], SCORES[self.task], []
        for answers in ablation.values():
            teacher = self.teacher.logits[split]
            report = metrics(self.task, answers.logits[split], gold, self.labels, teacher)
            if self.task == "classification":
                report |= self._scaled(answers, split)
            reports.append(report)
        found = {seed: report[score] for seed, report in zip(ablation, reports, strict=True)}
        spread = float(np.std([*found.values()], ddof=1)) if len(found) > 1 else None
        means = [key for key, value in reports[0].items() if isinstance(value, float)]
        return {
            "rows": len(gold),
            **{key: float(np.mean([report[key] for report in reports])) for key in means},
            f"{score}_sd": spread,
            f"{score}_by_seed": {str(seed): one for seed, one in found.items() if seed is not None},
        }

    def _scaled(self, answers: Answers, split: str) -> dict[str, float]:
        """Return the calibration error after temperature scaling, fitted on other rows."""
        temperature = fit_temperature(answers.logits["dev"], self.gold["dev"])
        logits, gold = answers.logits[split], self.gold[split]
        scaled = cross_scaled(logits, gold) if split == "dev" else logits / temperature
        error = expected_calibration_error(softmax(scaled, axis=1), gold)
        return {"temperature": temperature, "calibration_error_scaled": error}

    def against(self, ablation: Ablation, reference: Ablation, split: str) -> dict[str, Any]:
        """Compare with the gold student over common seeds; without seeds, with all of its seeds."""
        seeds = [seed for seed in reference if seed in ablation or None in ablation]
        if not seeds:
            return {}
        own = [ablation[None if None in ablation else seed] for seed in seeds]
        ours, theirs = (
            np.stack([row_parts(self.task, one.logits[split], self.gold[split]) for one in side])
            for side in (own, [reference[seed] for seed in seeds])
        )
        score = SCORE_OF_PARTS[self.task]
        found = paired_bootstrap(ours, theirs, score, resamples=RESAMPLES)
        measured: dict[str, Any] = {"difference": vars(found)}
        if self.task != "regression":
            right = (
                right_rows(self.task, self._median(one).logits[split], self.gold[split])
                for one in (ablation, reference)
            )
            measured["mcnemar_p"] = mcnemar(*right)
        return measured

    def _median(self, ablation: Ablation) -> Answers:
        """Return the model of the median dev score; of two in the middle the lower."""
        dev = self.gold["dev"]
        scored = [
            (dev_score(self.task, answers.logits["dev"], dev), seed)
            for seed, answers in ablation.items()
        ]
        return ablation[sorted(scored)[(len(scored) - 1) // 2][1]]


def ablations_in(ladder: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rows of a `ladder.json`; version 0.1 wrote them as `rungs`."""
    return ladder["ablations"] if "ablations" in ladder else ladder["rungs"]


def ladder_tables(measured: Mapping[str, Any], splits: Sequence[str]) -> str:
    """Return Markdown: a table per split, and one of what training took."""
    parts, found = [], measured.values()
    for split in splits:
        shown = [column for column in _COLUMNS if any(column[0] in row[split] for row in found)]
        rows = [[split, *(heading for _, heading, _ in shown)]]
        for row in found:
            cells = (_cell(row[split].get(key), form) for key, _, form in shown)
            rows.append([row["title"], *cells])
        parts.append(table(rows))
    costs = [key for key in _COSTS if any(key in row["cost"] for row in found)]
    rows = [["training", "seeds", *(_COSTS[key][0] for key in costs)]]
    for row in found:
        cells = (_cell(row["cost"].get(key), _COSTS[key][1]) for key in costs)
        rows.append([row["title"], ", ".join(map(str, row["seeds"])), *cells])
    return "\n\n".join([*parts, table(rows)])


# Columns of a split's table: key, heading, format. A column without any value is left out.
_COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    *((key, SCORE_NAMES[key], percent) for key in SCORES.values()),
    *((f"{key}_sd", "sd", percent) for key in SCORES.values()),
    *((key, SCORE_NAMES[key], percent) for key in ("macro_f1", "exact_match", "spearman")),
    ("difference", "- gold", lambda found: f"{100 * found['mean']:+.1f}"),
    (
        "difference",
        "95 % interval",
        lambda found: f"{100 * found['low']:+.1f} to {100 * found['high']:+.1f}",
    ),
    ("mcnemar_p", "McNemar p", lambda p: f"{p:.2g}"),
    ("agreement", "agreement", percent),
    ("logit_correlation", "logits' correlation", percent),
    ("calibration_error", "ECE", percent),
    ("calibration_error_scaled", "ECE scaled", percent),
]

# Of the table of what training took: heading and format, by key.
_COSTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "rows": ("rows", "{:,.0f}".format),
    "epochs": ("epochs", "{:.1f}".format),
    "steps": ("steps", "{:,.0f}".format),
    "parameters": ("parameters", "{:,.0f}".format),
    "megabytes": ("MB", "{:,.1f}".format),
    **{
        f"unexplained_{name}": (f"missed: {name}", percent)
        for name in ("train", "variants", "raw", "dev")
    },
}


def _cell(value: Any, form: Callable[[Any], str]) -> str:
    return "" if value is None else form(value)


def picture_size(measured: Mapping[str, Any], splits: Sequence[str]) -> tuple[float, float]:
    """Return the width and height of the picture, in inches."""
    return 3.2 + 3.4 * len(splits), 1.2 + 0.3 * len(measured)


def draw_ladder(measured: Mapping[str, Any], splits: Sequence[str], figure: "Figure") -> None:
    """Draw the task's score of each ablation row, the teacher on top, one panel per split.

    Dots are means and strokes are seeds. Bars are intervals of the difference to the gold student,
    whose mean is the dashed line.
    """
    score = next(key for key in SCORES.values() if key in measured["teacher"][splits[0]])
    panels = figure.subplots(1, len(splits), sharey=True, squeeze=False)[0]
    for split, panel in zip(splits, panels, strict=True):
        _draw_panel(panel, measured, split, score)
    panels[0].set_yticks(range(len(measured)), [row["title"] for row in measured.values()])
    figure.supxlabel(
        "dot: mean; strokes: seeds; bar: 95 % interval of the difference to gold (dashed)",
        fontsize=8,
    )


def _draw_panel(panel: "Axes", measured: Mapping[str, Any], split: str, score: str) -> None:
    base = measured[REFERENCE][split][score] if REFERENCE in measured else None
    for place, ablation in enumerate(measured.values()):
        scores = ablation[split]
        seeds = [100 * one for one in scores[f"{score}_by_seed"].values()]
        if len(seeds) > 1:
            panel.plot(seeds, [place] * len(seeds), "|", color="0.6", markersize=7)
        if "difference" in scores:
            # Around the row's own mean: it reaches the line where its difference reaches 0.
            shift = 100 * (scores[score] - scores["difference"]["mean"])
            bounds = [shift + 100 * scores["difference"][end] for end in ("low", "high")]
            panel.plot(bounds, [place, place], "-", color="tab:blue", linewidth=1.5)
        panel.plot([100 * scores[score]], [place], "o", color="tab:blue", markersize=5)
    if base is not None:
        panel.axvline(100 * base, linestyle="--", color="0.5", linewidth=1)
    panel.set_xlabel(f"{split} {_AXES[score]}")
    panel.grid(axis="x", color="0.9")
    panel.set_axisbelow(True)
