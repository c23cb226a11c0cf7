"""`distill`: the whole way in one call. `load`: whatever answers, from wherever it lies."""

import json
import shutil
import tempfile
import webbrowser
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from distillkit import runs
from distillkit.data.checked import read_json, save_pretrained
from distillkit.data.files import HeldError, hold
from distillkit.data.memory import source_of
from distillkit.doctor.examine import quick_checks
from distillkit.errors import InputError
from distillkit.measure.closing import closing_lines
from distillkit.measure.report import SCORE_NAMES
from distillkit.pipeline import Classifier
from distillkit.processes import log, world
from distillkit.recipe import Recipe, load_recipe
from distillkit.report import write_report
from distillkit.runs.folder import BUNDLE, Summary, write_index
from distillkit.runtime.bundle import is_bundle

if TYPE_CHECKING:
    import pandas as pd

    from distillkit.runtime import Predictor


def distill(
    train: Any,
    dev: Any = None,
    *,
    test: Any = None,
    unlabelled: Any = None,
    logits: Any = None,
    teacher: Any = "minilm-l6",
    student: Any = "auto",
    output: str | Path = "runs/distilled",
    **settings: Any,
) -> "Run":
    """Distil a teacher into a student, as `distillkit run` does; the same call resumes.

    Args:
        train: Labelled rows: a pandas DataFrame, a `datasets.Dataset`, lists (texts, labels) or
            (texts, second texts, labels), or a source as a recipe names it. Columns are found by
            their names, or given as `data={"columns": {"text": ..., "label": ...}}`. None with
            `unlabelled`, `data={"labels": [...]}` and `label={"endpoint": {...}}`: a service, or a
            zero-shot encoder, labels the first texts.
        dev: The same; None: a tenth of `train`.
        test: The same; None: no test.
        unlabelled: Texts: a list, a Series, a frame, or a source. None: as the recipe's default;
            an empty list: no raw text.
        logits: Rows with a text and `logits` from anywhere, C numbers in the order of the sorted
            labels (or of `data={"logit_labels": [...]}`): what the student learns in place of the
            teacher's answers.
        teacher: A name on the shelf, a folder, a hub name, a section of a recipe, or a pair of a
            transformers model and its tokenizer. One that is fine-tuned on these labels already is
            taken as it is with `{"model": FOLDER, "training": {"epochs": 0}}`.
        student: A name on the shelf or a section of a recipe; auto: the texts choose one.
        output: Folder of the run.
        **settings: Any other section or key of a recipe: `augment={"n_iter": 10}`, `seed=2`; a
            section may be an object of its class, too.

    Returns:
        The finished run.

    Raises:
        InputError: Something given is wrong.
    """
    if world() > 1:
        raise InputError("distill works in one process; start it without torchrun")
    folder = Path(output)
    given, fresh = folder / "given", not folder.exists()
    try:
        data = _mapping(settings.pop("data", {}))
        tables = {"train": train, "dev": dev, "test": test}
        if any(isinstance(rows, tuple) and len(rows) == 3 for rows in tables.values()):
            columns = _mapping(data.get("columns", {}))
            data["columns"] = columns | {"text_pair": columns.get("text_pair") or "text_pair"}
        with hold(folder):  # a run at work there reads what is given
            for name, rows in tables.items():
                if rows is not None:
                    data[name] = source_of(rows, name, given)
            if logits is not None:
                data["logits"] = source_of(logits, "logits", given)
            if unlabelled is not None:
                none = isinstance(unlabelled, list) and not unlabelled
                data["unlabelled"] = [] if none else [source_of(unlabelled, "unlabelled", given)]
            teacher = _teacher(teacher, given)
        spec = {"data": data, "teacher": teacher, "student": student, **settings}
        return run_recipe(_recipe(spec), folder)
    except HeldError:
        raise
    except InputError:
        if fresh and not any(folder.glob("*/stage.json")):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def run_recipe(recipe: Recipe, folder: Path) -> "Run":
    """Check a recipe, run it, write its report, say how it went; `runs.run` runs it alone.

    Raises:
        InputError: As `runs.run`.
    """
    for one in quick_checks(recipe):
        log(f"{one.severity}: {one.seen}; {one.do}")
    run = Run(folder, runs.run(recipe, folder))
    write_report(folder)
    write_index(folder)
    log(f"\n{run!r}")
    return run


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: Where it lies.
        result: What its `result.json` holds.
    """

    folder: Path
    result: Summary

    @cached_property
    def model(self) -> "Predictor | Classifier":
        """What the run ships: its bundle, or else its student."""
        return load(self.folder)

    def predict(self, texts: Any, text_pairs: Any = None) -> Any:
        """Answer one text with a dict, or N texts with a list of them; see `Predictor.predict`."""
        if isinstance(texts, str):
            return self.model.predict([texts], None if text_pairs is None else [text_pairs])[0]
        return self.model.predict(texts, text_pairs)

    @property
    def scores(self) -> "pd.DataFrame":
        """Every model's scores, 0 to 1, correlations -1 to 1: a row a model, columns (split, score)."""
        import pandas as pd

        rows = {
            name: {
                (split, score): value
                for split in ("dev", "test")
                for score, value in model.get(split, {}).items()
                if score in SCORE_NAMES and isinstance(value, float)
            }
            for name, model in self.result["models"].items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def report(self) -> Path:
        """Open the run's `report.html` in a browser; return its path."""
        page = self.folder / "report.html"
        webbrowser.open(page.resolve().as_uri())
        return page

    def __repr__(self) -> str:
        place = self.folder / "evaluation" / "latency.json"
        latency = read_json(place)
        pairs = "text_pair" in pq.read_schema(self.folder / "data" / "dev.parquet").names
        return "\n".join(closing_lines(self.result, latency, self.folder, pairs=pairs))

    def _repr_html_(self) -> str:
        shown = self.scores.map(lambda score: f"{100 * score:.1f}").to_html()
        return f"<p>{repr(self).splitlines()[0]}</p>{shown}"


def load(place: str | Path) -> "Predictor | Classifier":
    """Load what answers: the bundle or student of a run, a bundle, or a fine-tuned checkpoint.

    Args:
        place: Folder of a run, folder or file of a bundle, or folder, package or hub name of a
            checkpoint.

    Raises:
        InputError: Nothing there answers.
    """
    folder = Path(place)
    if (folder / "recipe.yaml").is_file() and (folder / "student").is_dir():
        made = [part for part in (folder / BUNDLE, folder / "student" / "model") if part.exists()]
        if not made:
            raise InputError(f"{place}: the run has no student yet; finish it: distillkit run")
        place = folder = made[0]
    if is_bundle(folder):
        from distillkit.runtime import Predictor

        return Predictor(folder)
    return Classifier(str(place))


def _teacher(teacher: Any, given: Path) -> Any:
    """Return the recipe's section for a teacher; a model in memory is saved first."""
    if isinstance(teacher, tuple):
        model, tokenizer = teacher
        save_pretrained(given / "teacher", model, tokenizer)
        return {"model": str(given / "teacher")}
    if isinstance(teacher, str | Path):
        return str(teacher)
    if isinstance(teacher, dict) or is_dataclass(teacher):
        return _mapping(teacher)
    raise InputError(
        f"distill: teacher is a {type(teacher).__name__}; expected a name, a folder, a section of a recipe, or (model, tokenizer)"
    )


def _mapping(section: Any) -> dict[str, Any]:
    """Return a section of a recipe as its YAML has it."""
    is_section = is_dataclass(section) and not isinstance(section, type)
    return asdict(section) if is_section else dict(section)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _mapping(value)
    return value.item() if isinstance(value, np.generic) else str(value)


def _recipe(spec: dict[str, Any]) -> Recipe:
    """Load a recipe from what its YAML would hold."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "distill.yaml"
        # Of paths and numpy's numbers YAML knows nothing.
        plain = json.loads(json.dumps(spec, default=_plain))
        place.write_text(
            yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )
        try:
            return load_recipe(str(place))
        except InputError as error:
            line = str(error).removeprefix(f"{place}:").partition(": ")[2]
            raise InputError(f"distill: {line or error}") from None
