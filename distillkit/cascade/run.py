"""`distillkit cascade`: when to ask the teacher after all, and what that costs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit import __version__, pipeline
from distillkit.bench.forms import BUNDLE, Form, load
from distillkit.bench.measure import times
from distillkit.cascade.curve import Curve, asks, best_within, cascade_curve, least_share
from distillkit.data.files import whole_file
from distillkit.data.tables import gold_of, paired, read_table, texts_of
from distillkit.errors import InputError
from distillkit.measure.picture import write_picture
from distillkit.measure.report import table
from distillkit.measure.statistics import fit_temperature
from distillkit.recipe import ColumnsConfig
from distillkit.runs import log
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import MANIFEST, is_bundle, read_bundle, write_bundle
from distillkit.teacher.checkpoint import task_of

Rule = Callable[[Curve], int]  # which point of a curve to take
_FOLDS = 2
_TIMED = 100  # rows


def cascade(
    student: str,
    teacher: str,
    source: str,
    output: Path,
    columns: ColumnsConfig,
    *,
    accuracy: float = 0.0,
    share: float = 0.0,
) -> dict[str, Any]:
    """Find how sure a student must be to answer alone.

    Args:
        student: A bundle, which is given the threshold, or any other classifier, which is only
            measured.
        teacher: A bundle or classifier with the same labels.
        source: Labelled dev rows, which neither has learnt from.
        output: Folder for `cascade.json` and `cascade.svg`.
        columns: Names of the source's columns.
        accuracy: That is wanted, in percent, with the smallest share of rows that go to the
            teacher.
        share: Of the rows that may go to the teacher, 0 to 1, with the best accuracy. With neither
            the accuracy is the teacher's.

    Returns:
        What is written to `cascade.json`: the temperature, the threshold, its accuracy and share on
            these rows and on rows that it was not chosen on,
        milliseconds a row, and the curve.

    Raises:
        InputError: Something given is wrong, or the accuracy is not to be had.
    """
    if accuracy and share:
        raise InputError("--accuracy and --share: give one of the two")
    if not 0 <= accuracy <= 100 or not 0 <= share <= 1:
        raise InputError("expected an --accuracy from 0 to 100, and a --share from 0 to 1")
    if 0 < accuracy <= 1:
        raise InputError(
            f"--accuracy {accuracy:g}: expected percent, above 1 (--share is what goes from 0 to 1); did you mean {100 * accuracy:g}?"
        )
    rows = read_table(source, columns)
    gold, (ours, theirs) = _logits(student, teacher, rows, source)
    own = float((theirs.argmax(1) == gold).mean())
    wanted = accuracy / 100 or own

    def rule(curve: Curve) -> int:
        return best_within(curve, share) if share else _reached(curve, wanted)

    temperature = fit_temperature(ours, gold)
    curve = cascade_curve(ours, theirs, gold, temperature)
    if not share and least_share(curve, wanted) is None:
        best = int(curve.accuracies.argmax())
        raise InputError(
            f"--accuracy {100 * wanted:.2f} is not reached on {source}: the best is {100 * curve.accuracies[best]:.2f}, "
            f"with {100 * curve.shares[best]:.1f} % of the rows going to the teacher"
        )
    point = rule(curve)
    if not point or curve.accuracies[0] > own:
        log(
            f"cascade: the student alone has {100 * curve.accuracies[0]:.1f}, the teacher {100 * own:.1f}, and is "
            f"{'asked where the student is not sure' if point else 'never asked (threshold 0)'}; if that is a surprise: STUDENT comes first, then TEACHER"
        )
    took = _milliseconds(student, teacher, rows)
    result: dict[str, Any] = {
        "distillkit": __version__,
        "student": student,
        "teacher": teacher,
        "source": source,
        "rows": len(gold),
        "temperature": temperature,
        "threshold": float(curve.thresholds[point]),
        "accuracy": float(curve.accuracies[point]),
        "share": float(curve.shares[point]),
        "held_out": _held_out(ours, theirs, gold, rule),
        "student_accuracy": float(curve.accuracies[0]),
        "teacher_accuracy": own,
        "milliseconds": took
        | {"cascade": took["student"] + float(curve.shares[point]) * took["teacher"]},
        "curve": {"shares": curve.shares.tolist(), "accuracies": curve.accuracies.tolist()},
    }
    _report(result, output)
    if is_bundle(Path(student)):
        _keep(
            Path(student),
            {key: result[key] for key in ("temperature", "threshold", "accuracy", "share")},
        )
    return result


def _reached(curve: Curve, accuracy: float) -> int:
    """Return the first point that is good enough, or the best if none is, as on part of the rows."""
    found = least_share(curve, accuracy)
    return int(curve.accuracies.argmax()) if found is None else found


def _logits(
    student: str, teacher: str, rows: pa.Table, source: str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return gold classes, (N,), and both models' logits, (N, C), in the student's label order."""
    found: list[np.ndarray] = []
    labels: list[str] = []
    for model in (student, teacher):
        if is_bundle(Path(model)):
            predictor = Predictor(model, threads=0)
            task, names, logits = (
                predictor.task,
                predictor.labels,
                predictor.logits(*texts_of(rows)),
            )
        else:
            task = task_of(model)
            logits, names = pipeline.classify(model, rows, source)
        if task != "classification":
            raise InputError(f"{model}: its task is {task}; a cascade is for classification")
        labels = labels or names
        if set(names) != set(labels):
            raise InputError(
                f"{model}: its labels ({', '.join(names)}) are not the student's ({', '.join(labels)})"
            )
        found.append(logits[:, [names.index(name) for name in labels]])
    return gold_of(rows, labels, "classification"), found


def _held_out(
    ours: np.ndarray, theirs: np.ndarray, gold: np.ndarray, rule: Rule
) -> dict[str, float]:
    """Measure thresholds on held-out rows: each half is answered by what the other half chose."""
    fold = np.random.default_rng(0).permutation(len(gold)) % _FOLDS
    right, asked = np.zeros(len(gold), bool), np.zeros(len(gold), bool)
    for number in range(_FOLDS):
        mine, others = fold == number, fold != number
        temperature = fit_temperature(ours[others], gold[others])
        curve = cascade_curve(ours[others], theirs[others], gold[others], temperature)
        asked[mine] = asks(ours[mine], temperature, float(curve.thresholds[rule(curve)]))
        found = np.where(asked[mine], theirs[mine].argmax(1), ours[mine].argmax(1))
        right[mine] = found == gold[mine]
    return {"accuracy": float(right.mean()), "share": float(asked.mean())}


def _milliseconds(student: str, teacher: str, rows: pa.Table) -> dict[str, float]:
    """Return the median milliseconds of each model a row, alone and on one thread, by turns."""
    models = {"student": student, "teacher": teacher}
    forms = {
        who: Form(who, BUNDLE if is_bundle(Path(model)) else "torch-fp32", model)
        for who, model in models.items()
    }
    taken = times(
        {who: load(form, 1) for who, form in forms.items()},
        list(paired(*texts_of(rows.slice(0, _TIMED)))),
        1,
    )
    return {who: float(np.median(seconds)) * 1000 for who, seconds in taken.items()}


def _keep(bundle: Path, rule: dict[str, float]) -> None:
    """Leave a rule in a bundle's manifest."""
    manifest, files = read_bundle(bundle)
    manifest = replace(manifest, cascade=rule)
    with whole_file(bundle if bundle.is_file() else bundle / MANIFEST) as partial:
        if bundle.is_file():
            write_bundle(partial, manifest, files, one_file=True)
        else:  # beside whatever else its owner keeps there
            partial.write_text(manifest.text(), encoding="utf-8")


def _report(result: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with whole_file(output / "cascade.json") as partial:
        partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_picture("cascade", output / "cascade.svg", lambda path: _draw(result, path))
    took = result["milliseconds"]
    rows = [["", "accuracy", "rows to the teacher, %", "ms a row"]]
    for name, accuracy, share, cost in (
        ("student", result["student_accuracy"], 0, took["student"]),
        (
            f"teacher below {result['threshold']:.3f}",
            result["accuracy"],
            result["share"],
            took["cascade"],
        ),
        ("chosen on other rows", result["held_out"]["accuracy"], result["held_out"]["share"], None),
        ("teacher", result["teacher_accuracy"], 1, took["teacher"]),
    ):
        rows.append(
            [
                name,
                f"{100 * accuracy:.1f}",
                f"{100 * share:.1f}",
                "" if cost is None else f"{cost:.2f}",
            ]
        )
    log("\n" + table(rows) + "\n")
    log(str(output / "cascade.json"))


def _draw(result: dict[str, Any], target: Path) -> None:
    """Draw accuracy against the share of rows for the teacher, and against milliseconds a row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shares, accuracies = (
        100 * np.array(result["curve"][name]) for name in ("shares", "accuracies")
    )
    ours, theirs = result["milliseconds"]["student"], result["milliseconds"]["teacher"]

    def milliseconds(share: Any) -> Any:
        return ours + share / 100 * theirs

    def share_of(milliseconds: Any) -> Any:
        return 100 * (milliseconds - ours) / theirs

    with rc_context({"svg.hashsalt": "distillkit", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6, 4), layout="constrained")
        panel = figure.subplots()
        panel.plot(shares, accuracies, color="tab:blue")
        panel.plot([100 * result["share"]], [100 * result["accuracy"]], "o", color="tab:blue")
        panel.axhline(100 * result["teacher_accuracy"], linestyle="--", color="0.5", linewidth=1)
        panel.set(xlabel="rows that go to the teacher, %", ylabel="accuracy, %")
        panel.grid(color="0.9")
        above = panel.secondary_xaxis("top", functions=(milliseconds, share_of))
        above.set_xlabel("milliseconds a row")
        figure.savefig(target, format="svg", metadata={"Date": None})
