"""The page: figures and charts in a template, with its style and script inside."""

import base64
import json
import math
import platform
import unicodedata
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from tokenizers import Tokenizer

from distillkit.data.checked import read_json
from distillkit.data.content import texts_of
from distillkit.data.files import whole_file
from distillkit.data.labels import labels_of
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.measure.ablation import ablations_in, ladder_tables
from distillkit.measure.closing import interval, predict_command, verdict
from distillkit.measure.report import (
    SCORE_NAMES,
    cells_of,
    comparison_table,
    not_gold,
    own_model,
    percent,
    score_names,
)
from distillkit.measure.statistics import fit_temperature
from distillkit.pipeline.javascript import RUNTIME, check_javascript
from distillkit.recipe import SCORES, ColumnsConfig, Recipe
from distillkit.report import charts, figures
from distillkit.runs.evaluation import evaluation_folder
from distillkit.runs.finished import finished
from distillkit.runs.folder import BUNDLE, stages_of
from distillkit.runtime.bundle import TOKENIZER, read_bundle
from distillkit.student.vocabulary import with_backend
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.checkpoints import training_log

Summary = dict[str, Any]

_SHORT = {
    "majority": "one answer",
    "tfidf": "TF-IDF",
    "frozen": "frozen teacher",
    "student_gold": "student, gold",
    "student": "student, distilled",
    "shipped": "bundle.zip",
    "teacher": "teacher",
}
_LIVE_BYTES = 1_050_000  # of a bundle; a third more in base64
_ROWS_BYTES = 500_000  # of the rows that the page holds
_CELLS = 30  # labels of a confusion matrix; above it, the commonest confusions alone
_PACKAGES = ("torch", "transformers", "tokenizers", "onnxruntime", "numpy", "scikit-learn")
_JOINERS = "\u200c\u200d"  # of emoji and of Indic and Persian words


def write_report(run: str | Path) -> Path:
    """Write a finished run's `report.html`: one file, at most 2 MB, that needs no network.

    The teacher and the student answer dev and test again, since a run keeps no answers.

    Args:
        run: The run's folder.

    Returns:
        The file's path.

    Raises:
        InputError: The run is not finished.
    """
    folder = Path(run)
    for name in ("recipe.yaml", "result.json", "teacher/model", "student/model", "data"):
        if not (folder / name).exists():
            raise InputError(
                f"{folder}: not a finished run: it has no {name}; distillkit run RECIPE makes one"
            )
    target = folder / "report.html"
    page = template("page").render(_values(folder, *finished(folder)))
    with whole_file(target) as partial:
        partial.write_text(page, encoding="utf-8")
    return target


def template(name: str) -> Template:
    """Return a template of this folder, with the style and the helpers of the pages."""
    loader = PackageLoader("distillkit.report", ".")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "percent": percent, "json": inline_json}
    own = Path(__file__).parent
    for file in (own / "page.css", *own.glob("*.js"), RUNTIME / "distillkit.js"):
        variable = file.name.replace(".", "_")  # {{ page_css }}
        environment.globals[variable] = Markup(file.read_text(encoding="utf-8"))  # noqa: S704 -- our own files
    return environment.get_template(f"{name}.html.j2")


def shown(text: str) -> str:
    """Cut a long text; write controls and directions of writing as their code points.

    >>> shown("a" + chr(0x202E) + "b")
    'a⟨U+202E⟩b'
    """
    cut = text if len(text) <= figures.SHOWN else text[: figures.SHOWN] + " …"
    return "".join(
        f"⟨U+{ord(sign):04X}⟩"
        if unicodedata.category(sign) in ("Cc", "Cf", "Cs") and sign not in _JOINERS + "\n\t"
        else sign
        for sign in cut
    )


def inline_json(value: Any) -> Markup:
    """Write JSON that a script element can hold: NaN is null, and no tag can begin or end in it."""
    finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
    text = json.dumps(finite, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def _values(run: Path, recipe: Recipe, result: Summary) -> Summary:
    latency = read_json(evaluation_folder(run) / "latency.json")
    score = SCORES[recipe.data.task]
    splits = [split for split in ("dev", "test") if split in result["models"]["teacher"]]
    ladder = _ladder(run, score)
    live = live_part(run, _LIVE_BYTES if "shipped" in result["models"] else 0)
    values = {
        "name": run.resolve().name,
        "score": score,
        "score_name": score_names(result)[score],
        "splits": splits,
        "verdict": _verdict(result, score, splits[-1]),
        "results": cells_of(comparison_table(result, latency)),
        "costs": _costs(result, latency, score, splits[-1]),
        "curves": _curves(run, result),
        "ladder": ladder,
        "seconds": _seconds(run, recipe),
        "versions": _versions(result),
        "recipe": (run / "recipe.yaml").read_text(encoding="utf-8"),
        "transfer": figures.transfer_rows(run / "transfer" / "transfer.parquet"),
        "live": live,
        "commands": _commands(run, _place(run, result), pairs=live["pairs"]),
        **_answers(run, recipe, result, splits),
    }
    kept = ("verdict", "reliability", "coverage", "slices", "seconds", "versions")
    values["figures"] = result | {"latency": latency} | {name: values[name] for name in kept}
    return values


def live_part(run: Path, most: float = math.inf) -> Summary:
    """Return what a page needs to let a run's student answer what is typed.

    Args:
        run: The run's folder.
        most: Bytes of a bundle that the page has room for.

    Returns:
        A dev row, `example` and of pairs `second`; whether there are `pairs`; the `bundle` in
            base64, empty where it is absent or too large, or where JavaScript cannot answer from it.
    """
    row = read_table(str(run / "data" / "dev.parquet"), ColumnsConfig(), labels="ignored")[:1]
    first, second = texts_of(row)
    found = {
        "example": first[0][: figures.SHOWN],
        "second": second[0][: figures.SHOWN] if second else "",
        "pairs": second is not None,
    }
    bundle = run / BUNDLE
    if not bundle.is_file() or bundle.stat().st_size > most:
        return found | {"bundle": ""}
    manifest, files = read_bundle(bundle)
    try:
        check_javascript(str(bundle), manifest.made_from, files[TOKENIZER])
    except InputError:
        return found | {"bundle": ""}
    return found | {"bundle": base64.b64encode(bundle.read_bytes()).decode()}


def _verdict(result: Summary, score: str, split: str) -> str:
    models = result["models"]
    own, found = own_model(models), models[own_model(models)][split]
    bounds = interval(score, found)
    between = f" (95 % interval {percent(bounds[0])} to {percent(bounds[1])})" if bounds else ""
    who = "The compressed student" if own == "shipped" else "The student"
    said = (
        f"{who} scores {percent(found[score])} % {score_names(result)[score]} on {found['rows']:,} {split} rows"
        f"{between}; {verdict(models, score, not_gold(result))}."
    )
    return said.replace(" %", "\u00a0%")  # a number and its unit stay on one line


def _costs(result: Summary, latency: Summary, score: str, split: str) -> list[Markup]:
    """Draw every model's score against milliseconds and megabytes."""
    models = result["models"]
    megabytes = {name: model.get("megabytes", 0.0) for name, model in models.items()}
    steps = [
        charts.Point("", step["megabytes"], *[100 * step[score]] * 3)
        for step in result.get("shipped", {}).get("steps", [])
        if split == "dev"
    ]
    scored = score_names(result)[score]
    drawn = []
    for costs, unit, more in ((latency, "milliseconds a row", []), (megabytes, "MB", steps)):
        points = []
        for name, model in models.items():
            value, own = model[split][score], name == own_model(models)
            low, high = interval(score, model[split]) or (value, value)
            if math.isfinite(value):
                bounds = (100 * value, 100 * low, 100 * high)
                points.append(charts.Point(_SHORT[name], costs.get(name, 0.0), *bounds, own))
        heading = f"{scored} on {split} against {unit}, a point a model"
        drawn.append(
            charts.scatter([*points, *more], heading, f"{unit}, logarithmic", f"{scored}, %")
        )
    return drawn


def _curves(run: Path, result: Summary) -> list[Markup]:
    """Draw dev scores by epoch, and each training's loss by step."""
    epochs = {
        _SHORT[name]: [(one["epoch"], 100 * one["dev"], 2) for one in found["history"]]
        for name, found in result["training"].items()
    }
    drawn = [charts.lines(epochs, "dev score after each epoch", "epoch", "dev score, %")]
    for name in result["training"]:
        log = training_log(run / name.replace("_", "-") / "model")
        reports = [one for one in log if one["kind"] == "report"]
        thinned = reports[:: max(1, len(reports) // 100)]
        losses = [(one["step"], one["loss"], 0) for one in thinned if math.isfinite(one["loss"])]
        heading = f"training loss: {_SHORT[name]}"
        drawn.append(charts.lines({_SHORT[name]: losses}, heading, "step", "loss"))
    return [one for one in drawn if one]


def _ladder(run: Path, score: str) -> Summary | None:
    path = run / "ladder" / "ladder.json"
    if not path.is_file():
        return None
    rows, points = ablations_in(read_json(path)), []
    # Of its own: the run may have been given a test split since.
    splits = [split for split in ("dev", "test") if split in next(iter(rows.values()))]
    split = splits[-1]
    for row in rows.values():
        mean, gap = row[split][score], row[split].get("difference")
        low, high = (mean - gap["mean"] + gap[end] if gap else mean for end in ("low", "high"))
        points.append(charts.Point(row["title"], 100 * mean, 0, 100 * low, 100 * high))
    heading = f"{SCORE_NAMES[score]} of each row of the ladder on {split}"
    return {
        "chart": charts.intervals(points, heading, f"{SCORE_NAMES[score]} on {split}, %"),
        "tables": [cells_of(part) for part in ladder_tables(rows, splits).split("\n\n")],
    }


def _answers(run: Path, recipe: Recipe, result: Summary, splits: list[str]) -> Summary:
    """Return all that needs the models' answers."""
    task, place = recipe.data.task, _place(run, result)
    is_bundle = place.is_file()
    fitted = read_bundle(place)[0].temperature if is_bundle else 1.0
    labels = labels_of(load_classifier(str(run / "teacher" / "model"))[0])
    models = figures.Models(run, place, task, labels, fitted)
    found = [models.answered(split) for split in splits]
    if task == "classification" and not is_bundle:
        models = replace(models, temperature=fit_temperature(found[0].student, found[0].gold))
    _, tokenizer = load_classifier(str(run / "student" / "model"))
    if is_bundle:  # compress may have cut its vocabulary
        backend = Tokenizer.from_buffer(read_bundle(place)[1][TOKENIZER])
        tokenizer = with_backend(tokenizer, backend)
    rows = [row for one in found for row in figures.compared(models, one)]
    values: Summary = {
        "task": task,
        "rows": _affordable(rows),
        "rows_in_all": len(rows),
        "kinds": sorted({row["kind"] for row in rows} - {figures.AGREE}),
        "doubtful": figures.doubtful(models, found[0]) + figures.doubtful_training(models),
        "slices": figures.slices(models, found[-1], tokenizer),
    } | dict.fromkeys(("confusion", "reliability", "coverage"))
    if task == "classification":
        values["confusion"] = [confusion(result, split) for split in splits]
        values |= _confidence(models, found)
    return values


def _confidence(models: figures.Models, found: list[figures.Answered]) -> Summary:
    """Return calibration and coverage, figures and charts, on the last split."""
    bins, curve = figures.calibration(models, found[-1]), figures.coverage(models, found[-1])
    split, rows = found[-1].split, len(found[-1].table)
    dots = {
        name: [(100 * sure, 100 * right, 2 + 8 * math.sqrt(n / rows)) for sure, right, n in mine]
        for name, mine in bins.items()
    }
    answered = [
        (100 * one["coverage"], 100 * one["accuracy"], 0) for one in curve if one["coverage"]
    ]
    answered[0] = (*answered[0][:2], 5)  # the dot that the slider moves
    return {
        "temperature": models.temperature,
        "reliability": bins,
        "reliability_chart": charts.lines(
            dots,
            f"accuracy against confidence on {split}",
            "confidence, %",
            "right, %",
            diagonal=True,
        ),
        "coverage": curve,
        "coverage_chart": charts.lines(
            {"": answered},
            f"accuracy against rows answered on {split}",
            "rows answered, %",
            "right of these, %",
        ),
    }


def _affordable(rows: list[Summary]) -> list[Summary]:
    """Keep the first rows, those of disagreement before others, that fit into the page."""
    rows = sorted(rows, key=lambda row: row["kind"] == figures.AGREE)
    room, kept = _ROWS_BYTES, []
    for row in rows:
        room -= 300 + sum(len(shown(row[name]).encode()) for name in ("text", "text_pair"))
        if room < 0:
            break
        kept.append(row)
    return kept


def confusion(result: Summary, split: str) -> Summary:
    """Return the matrix of what is shipped, or the commonest confusions of many labels."""
    found = result["models"][own_model(result["models"])][split]
    labels, counts = list(found["classes"]), found["confusion"]
    pairs = [
        (counts[i][j], gold, said)
        for i, gold in enumerate(labels)
        for j, said in enumerate(labels)
        if i != j and counts[i][j]
    ]
    few = len(labels) <= _CELLS
    return {
        "split": split,
        "labels": labels if few else [],
        "counts": counts if few else [],
        "most": max(map(max, counts)),
        "pairs": [] if few else sorted(pairs, reverse=True)[:40],
    }


def _seconds(run: Path, recipe: Recipe) -> dict[str, float]:
    """Return what each stage took, where the run kept it."""
    stamps = {name: run / name / "stage.json" for name in stages_of(recipe)}
    found = {
        name: read_json(path).get("seconds") for name, path in stamps.items() if path.is_file()
    }
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def _place(run: Path, result: Summary) -> Path:
    """Return what the run ships."""
    return run / (BUNDLE if own_model(result["models"]) == "shipped" else "student/model")


def _commands(run: Path, place: Path, *, pairs: bool) -> list[str]:
    folder = quote(str(run))
    again = f"distillkit run {quote(str(run / 'recipe.yaml'))} --output {folder}"
    return [again, predict_command(place, pairs=pairs), f"distillkit report {folder}"]


def _versions(result: Summary) -> dict[str, str]:
    """Return what made the run, as far as it kept that, and what wrote the page."""
    found = {"distillkit (of the run)": result["distillkit"], "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | {"machine": f"{platform.system()} {platform.machine()}"}
