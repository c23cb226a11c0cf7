"""Which trials no other beats, which of them to take, and how they are shown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distillkit.measure.report import table
from distillkit.tune.space import RATE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# `trial` (its number), `parameters`, and `failed` or `score`, `milliseconds` and `megabytes`.
Trial = Mapping[str, Any]
_COSTS = {"milliseconds": "milliseconds a text", "megabytes": "megabytes"}


def pareto_front(scores: Sequence[float], *costs: Sequence[float]) -> list[bool]:
    """Return which points are on the Pareto front: no other is as good in all and better in one.

    Args:
        scores: (N,), more is better.
        costs: Each (N,), less is better.

    Example:
        >>> pareto_front([0.9, 0.8, 0.8], [2.0, 1.0, 1.5])
        [True, True, False]
    """
    points = np.array([np.negative(scores), *costs], float).T  # (N, K), less is better
    return [not ((points <= own).all(1) & (points < own).any(1)).any() for own in points]


def choose(trials: Iterable[Trial], tolerance: float) -> Trial:
    """Return the fastest and smallest trial (by product) of those with nearly the best score.

    Args:
        trials: That did not fail.
        tolerance: How far a score may be below the best, in points (hundredths).
    """
    trials = list(trials)
    # As the scores are shown: a difference of 0.5 points in binary fractions may be a hair more.
    least = max(trial["score"] for trial in trials) - tolerance / 100 - 1e-9
    good = (trial for trial in trials if trial["score"] >= least)
    return min(
        good, key=lambda one: (one["milliseconds"] * one["megabytes"], -one["score"], one["trial"])
    )


def front_table(result: Mapping[str, Any]) -> str:
    """Return the front as a Markdown table, best score first, with the recipe's own student."""
    names = list(result["space"])
    trials = [trial for trial in result["trials"] if trial.get("front")]
    trials.sort(key=lambda trial: (-trial["score"], trial["milliseconds"]))
    head = ["trial", f"dev {result['score']}", "ms a text", "MB", "parameters"]
    rows = [[*head, *(name.removeprefix(RATE).replace("_", " ") for name in names)]]
    for trial in trials if result["trials"][0].get("front") else [*trials, result["trials"][0]]:
        marks = {"the recipe's": trial["trial"] == 0, "best.yaml": trial["trial"] == result["best"]}
        named = ", ".join(mark for mark, its in marks.items() if its)
        rows.append(
            [
                f"{trial['trial']} ({named})" if named else str(trial["trial"]),
                f"{100 * trial['score']:.1f}",
                f"{trial['milliseconds']:.3f}",
                f"{trial['megabytes']:.2f}",
                f"{trial['model_parameters']:,}",
                *(f"{trial['parameters'][name]:g}" for name in names),
            ]
        )
    return table(rows)


def draw_front(result: Mapping[str, Any], figure: "Figure") -> None:
    """Draw the dev score of every trial against each cost, and the best at each cost."""
    panels = figure.subplots(1, len(_COSTS), sharey=True)
    for cost, panel in zip(_COSTS, panels, strict=True):
        _draw_panel(panel, result, cost)
    panels[0].set_ylabel(f"dev {result['score'].replace('_', ' ')}, times 100")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8
    )


def _draw_panel(panel: "Axes", result: Mapping[str, Any], cost: str) -> None:
    from matplotlib.ticker import MaxNLocator

    trials = [trial for trial in result["trials"] if "failed" not in trial]
    best = pareto_front([t["score"] for t in trials], [t[cost] for t in trials])
    edge = [trial for trial, on in zip(trials, best, strict=True) if on]
    edge.sort(key=lambda trial: trial[cost])
    panel.step(
        *_places(edge, cost), where="post", color="tab:blue", linewidth=1, label="best at this cost"
    )
    for name, chosen, (marker, colour) in (
        ("trial", [trial for trial in trials if not trial["front"]], (".", "0.6")),
        ("trial on the front", [trial for trial in trials if trial["front"]], ("o", "tab:blue")),
        ("the recipe's student", trials[:1], ("s", "tab:orange")),
        ("best.yaml", [t for t in trials if t["trial"] == result["best"]], ("*", "tab:red")),
    ):
        panel.plot(*_places(chosen, cost), linestyle="", label=name, marker=marker, color=colour)
    panel.set_xscale("log")
    panel.minorticks_off()
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlabel(_COSTS[cost])
    panel.grid(color="0.9")
    panel.set_axisbelow(True)


def _places(trials: Sequence[Trial], cost: str) -> tuple[list[float], list[float]]:
    return [trial[cost] for trial in trials], [100 * trial["score"] for trial in trials]
