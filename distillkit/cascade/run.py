"""`distillkit cascade`: when to ask the teacher after all, and what that costs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from distillkit import __version__, pipeline
from distillkit.bench.forms import BUNDLE, Form, load
from distillkit.data.content import paired, texts_of
from distillkit.data.gold import check_labels_known, gold_of
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.measure.cost import milliseconds
from distillkit.measure.deferral import Curve, asks, best_within, cascade_curve, first_reaching
from distillkit.measure.report import table
from distillkit.measure.results import write_results
from distillkit.measure.statistics import fit_temperature
from distillkit.pipeline.export import change_manifest
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import is_bundle, read_bundle
from distillkit.teacher.checkpoint import task_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rule = Callable[[Curve, float], int]  # which point of a curve to take, by the teacher's accuracy
_FOLDS = 10
_TIMED = 100  # rows


def cascade(
    student: str,
    teacher: str,
    source: str,
    output: Path,
    columns: ColumnsConfig,
    *,
    accuracy: float = 0.0,
    deferral_rate: float = 0.0,
) -> dict[str, Any]:
    """Find how confident a student must be to answer alone.

    Args:
        student: A bundle, which gets the threshold; or another classifier, which is only measured.
        teacher: A bundle or classifier with the same labels.
        source: Labelled dev rows, on which neither was trained.
        output: Folder for `cascade.json` and `cascade.svg`.
        columns: Names of the source's columns.
        accuracy: Wanted, in percent, at the least deferral rate. Without it and `deferral_rate`,
            the teacher's own.
        deferral_rate: Largest fraction of rows that may go to the teacher, 0 to 1.

    Returns:
        What is written to `cascade.json`: temperature, threshold, accuracy and deferral rate on
            these rows and on held-out tenths, milliseconds a row, and the curve.

    Raises:
        InputError: Something given is wrong, or the accuracy is not reached.
    """
    if accuracy and deferral_rate:
        raise InputError("--accuracy and --deferral-rate: give one of the two")
    if not 0 <= accuracy <= 100 or not 0 <= deferral_rate <= 1:
        raise InputError("expected an --accuracy from 0 to 100, and a --deferral-rate from 0 to 1")
    if 0 < accuracy <= 1:
        raise InputError(
            f"--accuracy {accuracy:g}: expected percent, above 1 (--deferral-rate is what goes from 0 to 1); did you mean {100 * accuracy:g}?"
        )
    _check_tasks(student, teacher)
    rows = read_table(source, columns)
    if len(rows) < _FOLDS:
        raise InputError(
            f"{source}: labelled rows: {len(rows)}; a threshold needs hundreds of labelled dev rows"
        )
    gold, (ours, theirs) = _logits(student, teacher, rows, source)
    own = float((theirs.argmax(1) == gold).mean())
    wanted = accuracy / 100 or own

    def rule(curve: Curve, theirs: float) -> int:
        if deferral_rate:
            return best_within(curve, deferral_rate)
        return _reached(curve, accuracy / 100 or theirs)

    temperature = fit_temperature(ours, gold)
    curve = cascade_curve(ours, theirs, gold, temperature)
    if not deferral_rate and first_reaching(curve, wanted) is None:
        best = int(curve.accuracies.argmax())
        raise InputError(
            f"--accuracy {100 * wanted:.2f} is not reached on {source}: the best is {100 * curve.accuracies[best]:.2f}, "
            f"with {100 * curve.deferral_rates[best]:.1f} % of the rows going to the teacher"
        )
    point = rule(curve, own)
    deferred = float(curve.deferral_rates[point])
    if not point or curve.accuracies[0] > own:
        log(
            f"cascade: the student alone scores {100 * curve.accuracies[0]:.1f}, the teacher {100 * own:.1f}, and is "
            f"{'asked where the student is not confident' if point else 'never asked (threshold 0)'}; if that is a surprise: STUDENT comes first, then TEACHER"
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
        "deferral_rate": deferred,
        "held_out": _held_out(ours, theirs, gold, rule),
        "student_accuracy": float(curve.accuracies[0]),
        "teacher_accuracy": own,
        "milliseconds": took | {"cascade": took["student"] + deferred * took["teacher"]},
        "curve": {
            "thresholds": curve.thresholds.tolist(),
            "deferral_rates": curve.deferral_rates.tolist(),
            "accuracies": curve.accuracies.tolist(),
        },
    }
    write_results("cascade", output, result, _table(result), (6, 4), partial(_draw, result))
    if is_bundle(Path(student)):
        kept = ("temperature", "threshold", "accuracy", "deferral_rate")
        change_manifest(Path(student), cascade={key: result[key] for key in kept})
    return result


def _check_tasks(*models: str) -> None:
    for model in models:
        task = read_bundle(Path(model))[0].task if is_bundle(Path(model)) else task_of(model)
        if task != "classification":
            raise InputError(f"{model}: its task is {task}; a cascade is for classification")


def _reached(curve: Curve, accuracy: float) -> int:
    """Return the first point with this accuracy; other rows may have none: then the best."""
    found = first_reaching(curve, accuracy)
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
            names = predictor.labels
            logits = predictor.logits(*texts_of(rows))
        else:
            logits, names = pipeline.classify(model, rows, source)
        labels = labels or names
        if set(names) != set(labels):
            raise InputError(
                f"{model}: its labels ({', '.join(names)}) are not the student's ({', '.join(labels)}); give the teacher that it learned from"
            )
        found.append(logits[:, [names.index(name) for name in labels]])
    check_labels_known(rows, labels, source)
    return gold_of(rows, labels, "classification"), found


def _held_out(
    ours: np.ndarray, theirs: np.ndarray, gold: np.ndarray, rule: Rule
) -> dict[str, float]:
    """Measure thresholds on held-out rows: each tenth is answered by what the others chose."""
    fold = np.random.default_rng(0).permutation(len(gold)) % _FOLDS
    right, asked = np.zeros(len(gold), bool), np.zeros(len(gold), bool)
    for number in range(_FOLDS):
        mine, others = fold == number, fold != number
        temperature = fit_temperature(ours[others], gold[others])
        curve = cascade_curve(ours[others], theirs[others], gold[others], temperature)
        point = rule(curve, float((theirs[others].argmax(1) == gold[others]).mean()))
        asked[mine] = asks(ours[mine], temperature, float(curve.thresholds[point]))
        found = np.where(asked[mine], theirs[mine].argmax(1), ours[mine].argmax(1))
        right[mine] = found == gold[mine]
    return {"accuracy": float(right.mean()), "deferral_rate": float(asked.mean())}


def _milliseconds(student: str, teacher: str, rows: pa.Table) -> dict[str, float]:
    """Return the median milliseconds of each model a row, one row at a time on one thread."""
    answers = {}
    for who, model in (("student", student), ("teacher", teacher)):
        form = Form(who, BUNDLE if is_bundle(Path(model)) else "torch-fp32", model)
        answers[who] = load(form, 1)
    return milliseconds(answers, list(paired(*texts_of(rows.slice(0, _TIMED)))))


def _table(result: dict[str, Any]) -> str:
    took = result["milliseconds"]
    rows = [["", "accuracy", "rows to the teacher, %", "ms a row"]]
    alone = {"accuracy": result["student_accuracy"], "deferral_rate": 0}
    above = {"accuracy": result["teacher_accuracy"], "deferral_rate": 1}
    for name, found, cost in (
        ("student", alone, f"{took['student']:.2f}"),
        (f"teacher below {result['threshold']:.3f}", result, f"{took['cascade']:.2f}"),
        ("chosen on other rows", result["held_out"], ""),
        ("teacher", above, f"{took['teacher']:.2f}"),
    ):
        percents = [f"{100 * found[key]:.1f}" for key in ("accuracy", "deferral_rate")]
        rows.append([name, *percents, cost])
    return table(rows)


def _draw(result: dict[str, Any], figure: "Figure") -> None:
    """Draw accuracy against the deferral rate, and against milliseconds a row."""
    rates, accuracies = (
        100 * np.array(result["curve"][name]) for name in ("deferral_rates", "accuracies")
    )
    ours, theirs = result["milliseconds"]["student"], result["milliseconds"]["teacher"]

    def milliseconds(rate: Any) -> Any:
        return ours + rate / 100 * theirs

    def rate_of(milliseconds: Any) -> Any:
        return 100 * (milliseconds - ours) / theirs

    panel = figure.subplots()
    panel.plot(rates, accuracies, color="tab:blue")
    panel.plot([100 * result["deferral_rate"]], [100 * result["accuracy"]], "o", color="tab:blue")
    panel.axhline(100 * result["teacher_accuracy"], linestyle="--", color="0.5", linewidth=1)
    panel.set(xlabel="rows that go to the teacher, %", ylabel="accuracy, %")
    panel.grid(color="0.9")
    above = panel.secondary_xaxis("top", functions=(milliseconds, rate_of))
    above.set_xlabel("milliseconds a row")
