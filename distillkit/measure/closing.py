"""What a run says at its end: what was made, how good it is, what to do next."""

import math
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from scipy.stats import binomtest

from distillkit.measure.report import SCORE_NAMES, beside, not_gold, own_model, score_names, titles

# What could be shipped in the student's place, and how.
_RIVALS = {
    "student_gold": "the same student on gold labels",
    "frozen": "a linear model over the frozen teacher",
    "tfidf": "a linear model over TF-IDF",
}
_PLACES = {"shipped": "bundle.zip", "student": "student/model"}
_SHOWN = ("teacher", "student_gold", "frozen", "tfidf")
_FEWEST_ROWS = 20  # of dev, on which a student can be said to have learnt nothing


def closing_lines(
    result: dict[str, Any], latency: dict[str, float], folder: Path, *, pairs: bool
) -> list[str]:
    """Return the lines that a run ends with.

    Args:
        result: What `result.json` holds.
        latency: Median milliseconds a row, by model.
        folder: The run's.
        pairs: Whether its rows are pairs.
    """
    models = result["models"]
    score = next(key for key in SCORE_NAMES if key in models["teacher"]["dev"])
    splits = [split for split in ("dev", "test") if split in models["teacher"]]
    names = titles(score)
    own = own_model(models)
    shown = [own, *(name for name in _SHOWN if name in models)]
    lines = [_made(models, latency, folder, own)]
    heads = [f"{split}, {models['teacher'][split]['rows']:,} rows" for split in splits]
    width = max(len(names[name]) for name in shown)
    lines.append(
        " ".join([score_names(result)[score].ljust(width), *(head.rjust(24) for head in heads)])
    )
    for name in shown:
        cells = (_with_interval(score, models[name][split]).rjust(24) for split in splits)
        lines.append(" ".join([names[name].ljust(width), *cells]))
    lines.append(verdict(models, score, not_gold(result)))
    main = folder / _PLACES[own]
    lines.append(f"all of it: {folder / 'report.html'}")
    serve = f"distillkit serve {quote(str(main))}"
    if own == "student":  # a checkpoint, and serve takes bundles
        bundle = quote(str(folder / "bundle"))
        serve = f"distillkit export {quote(str(main))} {bundle} && distillkit serve {bundle}"
    lines.append(f"next: {predict_command(main, pairs=pairs)}, or {serve}")
    return lines


def predict_command(place: Path, *, pairs: bool) -> str:
    """Return the command that asks a model about one row.

    >>> predict_command(Path("my run/b.zip"), pairs=False)
    "echo 'a text' | distillkit predict 'my run/b.zip'"
    """
    row = r"printf 'a text\tanother\n'" if pairs else "echo 'a text'"
    return f"{row} | distillkit predict {quote(str(place))}"


def _made(models: dict[str, Any], latency: dict[str, float], folder: Path, name: str) -> str:
    """Name what was made, its size and its speed."""
    line = f"{folder / _PLACES[name]}: {models[name]['megabytes']:.2f} MB"
    smaller = models["teacher"]["megabytes"] / models[name]["megabytes"]
    if smaller > 1:
        line += f", {_times(smaller)} smaller than the teacher"
    if name in latency:
        faster = latency["teacher"] / latency[name]
        line += f"; {latency[name]:.2f} ms a row on one thread"
        line += f", {_times(faster)} faster" if faster > 1 else ""
    return line


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"


def interval(score: str, found: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return a score's 95 % interval over rows: Wilson's of an accuracy, Fisher's of a correlation.

    Args:
        score: A key of `SCORE_NAMES`.
        found: A model's metrics on one split.

    Returns:
        Lower and upper bound, 0 to 1; None where the score has no such interval, or rows are few.
    """
    value, rows = found[score], found["rows"]
    if score == "accuracy":
        wilson = binomtest(round(value * rows), rows).proportion_ci(0.95, method="wilson")
        return float(wilson.low), float(wilson.high)
    if score == "pearson" and rows > 3 and abs(value) < 1:
        middle, half = math.atanh(value), 1.96 / math.sqrt(rows - 3)
        return math.tanh(middle - half), math.tanh(middle + half)
    return None


def _with_interval(score: str, found: dict[str, Any]) -> str:
    bounds = interval(score, found)
    shown = f" ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" if bounds else ""
    return f"{100 * found[score]:.1f}{shown}"


COLLAPSE_CURE = "lower training.learning_rate or raise training.steps, and see distillkit doctor"


def collapsed(models: dict[str, Any], score: str) -> bool:
    """Say whether the student is no better on dev than one answer to all rows; not of a few rows."""
    if models["student"]["dev"]["rows"] < _FEWEST_ROWS:
        return False
    floor = models["majority"]["dev"][score]
    if floor == 1:  # dev has one label
        return False
    if score == "pearson" and not any(model["dev"][score] for model in models.values()):
        return False  # dev has one score
    own = models["student"]["dev"][score]
    return not own > (0.0 if math.isnan(floor) else floor)


def verdict(models: dict[str, Any], score: str, by: str = "") -> str:
    """Say in one sentence what the figures mean for what is shipped.

    Dev alone decides: test is there to be read, not to choose by.

    Args:
        models: Metrics by model and split.
        score: A key of `SCORE_NAMES`.
        by: From `not_gold`.
    """
    if by:
        return (
            f"the labels of dev are those of {by}: how often the student is right is unknown; label"
            " a hundred texts or more by hand and name them as data.dev"
        )
    name = own_model(models)
    found, teacher = models[name]["dev"], models["teacher"]["dev"][score]
    if collapsed(models, score):
        return f"COLLAPSED: the student answers no better than the commonest label does; {COLLAPSE_CURE}"
    if found["rows"] < _FEWEST_ROWS:
        return (
            f"dev has {found['rows']} rows, too few to say what the student is worth; label a hundred"
            " texts by hand and name them as data.dev"
        )
    best = max(
        (rival for rival in _RIVALS if rival in models), key=lambda r: models[r]["dev"][score]
    )
    lead = models[best]["dev"][score] - found[score]
    if lead > 0:
        return f"{_RIVALS[best]} scores {100 * lead:.1f} points more on dev{_beyond_noise(score, found, models[best]['dev'])}: compare before you ship"
    return (
        f"what is shipped is {beside(found[score] - teacher)} the teacher on dev and"
        f" {beside(-lead)} {_RIVALS[best]}"
    )


def _beyond_noise(score: str, own: dict[str, Any], better: dict[str, Any]) -> str:
    """Say whether a difference of two models is more than chance; nothing of a score without interval.

    Both models answer the same rows, which the interval does not use: it is a wide one.

    Source: Newcombe 1998 (method 10) for shares; Zou 2007 for correlations.
    """
    ours, theirs = interval(score, own), interval(score, better)
    if ours is None or theirs is None:
        return ""
    least = math.hypot(ours[1] - own[score], better[score] - theirs[0])
    few = better[score] - own[score] <= least
    return ", within the noise of so few rows" if few else ", beyond noise"
