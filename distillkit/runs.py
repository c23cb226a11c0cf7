"""`distillkit run`: all stages in order, each done once, whole or not at all."""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from distillkit import __version__, pipeline
from distillkit.augment.method import Models
from distillkit.augment.taggers import load_tagger
from distillkit.data.files import (
    check_foreign,
    disk_errors,
    fingerprint,
    recover_folder,
    replace_folder,
    whole_file,
)
from distillkit.data.readers import source_files
from distillkit.data.tables import gold_of, label_summary, paired, read_table, texts_of, write_table
from distillkit.errors import InputError
from distillkit.measure.baselines import TfidfBaseline, majority_logits
from distillkit.measure.cost import answer_one, megabytes, milliseconds, parameter_counts
from distillkit.measure.metrics import metrics
from distillkit.measure.report import comparison_table
from distillkit.recipe import SCORES, ColumnsConfig, DataConfig, LossConfig, Recipe, dump
from distillkit.teacher.checkpoint import (
    SCRATCH,
    labels_of,
    load_classifier,
    load_config_of,
    resolve,
)

Summary = dict[str, Any]

# Few rows want small batches: at the transfer set's batch size the gold student would take too few
# steps to be a fair rival.
GOLD_BATCH = 64

# Rooms whose code a stage's result depends on: a change there makes the stage run again. The stages
# of a ladder or a search name one of these too.
_ROOMS = {
    "data": ["data"],
    "adapted": ["data", "training", "teacher"],
    "teacher": ["data", "training", "teacher/checkpoint.py", "teacher/fine_tune.py"],
    "transfer": ["data", "augment", "training", "teacher/word_vectors.py"],
    "logits": ["data", "training", "teacher"],
    "student-gold": ["data", "training", "student", "loss.py", "teacher/word_vectors.py"],
    "student": ["data", "training", "student", "loss.py", "teacher/word_vectors.py"],
    "proof": ["."],
    "baseline": ["data", "measure/baselines.py"],
    "trial": [
        "data",
        "training",
        "student",
        "loss.py",
        "teacher/word_vectors.py",
        "measure/cost.py",
        "tune/space.py",
    ],
}


@dataclass
class RunFolder:
    """`runs/<name>/`: a folder a stage, each with a stage.json that says what it was made from."""

    folder: Path

    def stage(
        self,
        name: str,
        settings: object,
        after: Sequence[str],
        build: Callable[[Path], Summary],
        *,
        code: str = "",
    ) -> Summary:
        """Return a stage's summary, building the stage only if something it depends on has changed.

        Args:
            name: Folder of the stage.
            settings: Everything of the recipe, and the fingerprint of every file, that the result
                depends on.
            after: Stages whose results it reads.
            build: Fills the folder it is given. The folder gets the stage's name only when it is
                whole; one left by a killed run is handed back, with what it holds, if nothing has
                changed since.
            code: The kind of stage whose code it depends on; empty: the one of its name.
        """
        final = (self.folder / name).resolve()  # a stage may be a link to another disk
        partial = final.with_name(f".{name}.partial")
        recover_folder(final)
        if final.exists() and not (final / "stage.json").is_file():
            raise InputError(
                f"{final}: not a stage of a run, and would be replaced; choose another --name or --runs"
            )
        key = self._key(name, settings, after, code)
        stamp = self._stamp(name)
        if stamp.get("key") == key:
            log(f"{name}: nothing has changed, kept")
            return stamp["summary"]
        check_foreign(final)
        began = time.monotonic()
        with disk_errors(final):
            # A kill may fall between a stage's last byte and its renaming.
            if _stamp(partial).get("key") != key:
                self._fill(partial, key, build)
            (partial / "key").unlink(missing_ok=True)
            replace_folder(partial, final)
        log(f"{name}: done in {timedelta(seconds=round(time.monotonic() - began))}")
        return self._stamp(name)["summary"]

    def kept(
        self, name: str, settings: object, after: Sequence[str], *, code: str = ""
    ) -> Summary | None:
        """Return a stage's summary if `stage` would keep it, or None: nothing is built. Its arguments are those of `stage`."""
        if not all(self._stamp(stage) for stage in after):
            return None
        stamp = self._stamp(name)
        return (
            stamp["summary"] if stamp.get("key") == self._key(name, settings, after, code) else None
        )

    def key_of(self, name: str) -> str:
        """Return the key of a finished stage: what a stage of another folder that reads it has among its settings."""
        return self._stamp(name)["key"]

    def _key(self, name: str, settings: object, after: Sequence[str], code: str) -> str:
        made_from = [
            name,
            settings,
            [self.key_of(stage) for stage in after],
            _code_version(code or name),
        ]
        return hashlib.sha256(
            json.dumps(made_from, default=str, sort_keys=True).encode()
        ).hexdigest()

    def _fill(self, partial: Path, key: str, build: Callable[[Path], Summary]) -> None:
        if not (partial / "key").is_file() or (partial / "key").read_text(encoding="utf-8") != key:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            (partial / "key").write_text(key, encoding="utf-8")
        try:
            summary = build(partial)
            with whole_file(partial / "stage.json") as stamp:
                stamp.write_text(
                    json.dumps({"key": key, "summary": summary}, ensure_ascii=False, indent=1),
                    encoding="utf-8",
                )
        except Exception:
            # A training that was told to end, or came upon a number that is none, has left what it
            # takes to go on, or to see why.
            if not any(partial.glob(".*.training")):
                shutil.rmtree(partial, ignore_errors=True)
            raise

    def _stamp(self, name: str) -> Summary:
        final = (self.folder / name).resolve()
        recover_folder(final)
        return _stamp(final)


def _stamp(stage: Path) -> Summary:
    path = stage / "stage.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def run(recipe: Recipe, folder: Path) -> Summary:
    """Run a recipe from labelled text to proof.

    Args:
        recipe: What to run.
        folder: Where every stage keeps its result; finished stages are kept when it is run again.

    Returns:
        What is written to `result.json`: the data, the transfer set, and for each model its scores
            and size. It holds no times, so that
        the same run gives the same bytes; those are in `proof/latency.json`.

    Raises:
        InputError: Something given is wrong, or another run is at work in the folder.
    """
    with at_work(folder) as home:
        return _run(recipe, home)


@contextmanager
def at_work(folder: Path) -> Iterator[RunFolder]:
    """Hold a run's folder for one process; where a mistake ends the work before anything came of it, leave nothing behind.

    Raises:
        InputError: Another process holds it.
    """
    fresh = not folder.exists()
    try:
        with _alone(folder):
            yield RunFolder(folder)
    except InputError:
        if fresh and not any(folder.glob("*/stage.json")):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                folder.parent.rmdir()
        raise


@dataclass(frozen=True)
class Taught:
    """What everything after the teacher starts from."""

    columns: ColumnsConfig  # of the tables in `path`
    path: dict[str, str]  # of train, dev, test, unlabelled
    data: Summary
    teacher: Summary
    model: str  # folder of the fine-tuned teacher
    adapted: Summary | None  # None: the recipe has no text to adapt to


def teach(recipe: Recipe, home: RunFolder, saved: Path) -> Taught:
    """Bring the stages `data`, `adapted` where the recipe has text to adapt to, and `teacher` up to date, the recipe saved before they start."""
    folder, seed, adapt = home.folder, recipe.seed, recipe.adapt
    start = recipe.teacher.model
    scratch = start == SCRATCH and adapt.text.sources
    checkpoint = start if scratch else resolve(start)
    recipe.student.check_width(
        adapt.scratch.hidden_size if scratch else load_config_of(start).hidden_size
    )
    weights = fingerprint(Path(checkpoint)) if Path(checkpoint).is_dir() else checkpoint
    sources, text = _fingerprints(_sources(recipe.data)), _fingerprints(adapt.text.sources)
    with whole_file(saved) as partial:
        partial.write_text(dump(recipe), encoding="utf-8")
    columns = ColumnsConfig(text_pair="text_pair" if recipe.data.columns.text_pair else "")
    path = {
        split: str(folder / "data" / f"{split}.parquet")
        for split in ("train", "dev", "test", "unlabelled")
    }

    def data(out: Path) -> Summary:
        tables = pipeline.read_data(recipe.data, seed)
        if "text_pair" in tables["train"].column_names and not recipe.data.columns.text_pair:
            raise InputError(
                f"{recipe.data.train}: a table of pairs; set data.columns.text_pair to text_pair"
            )
        for split, table in tables.items():
            write_table(table, out / f"{split}.parquet")
        labelled = {split: table for split, table in tables.items() if split != "unlabelled"}
        return {
            "rows": {split: len(table) for split, table in tables.items()},
            "labels": {split: label_summary(table) for split, table in labelled.items()},
        }

    def adapted(out: Path) -> Summary:
        return pipeline.adapt_teacher(adapt, start, out / "model", seed)

    def teacher(out: Path) -> Summary:
        here = DataConfig(
            task=recipe.data.task, train=path["train"], dev=path["dev"], columns=columns
        )
        model = str(folder / "adapted" / "model") if text else start
        return pipeline.train_teacher(
            here, replace(recipe.teacher, model=model), out / "model", seed
        )

    prepared = home.stage("data", [asdict(recipe.data), sources, seed], [], data)
    beside = [fingerprint(Path(name)) for name in adapt.masking.files if Path(name).exists()]
    known = (
        _relative(home.stage("adapted", [asdict(adapt), text, beside, weights, seed], [], adapted))
        if text
        else None
    )
    before = ["adapted", "data"] if text else ["data"]
    taught = _relative(
        home.stage("teacher", [asdict(recipe.teacher), weights, seed], before, teacher)
    )
    return Taught(columns, path, prepared, taught, str(folder / "teacher" / "model"), known)


def label_transfer_set(
    recipe: Recipe, home: RunFolder, task: Taught, models: Models
) -> tuple[Summary, str]:
    """Bring the stages `transfer` and `logits` up to date.

    Args:
        recipe: How the transfer set is made, and labelled.
        home: The run's folder.
        task: What `teach` left there.
        models: From `look_ahead`.

    Returns:
        What the transfer set yielded, and its path.
    """
    transfer_set = str(home.folder / "transfer" / "transfer.parquet")

    def transfer(out: Path) -> Summary:
        held_out = [task.path[split] for split in ("dev", "test") if split in task.data["rows"]]
        extra = [task.path["unlabelled"]] if "unlabelled" in task.data["rows"] else []
        return pipeline.augment(
            task.path["train"],
            out / "transfer.parquet",
            recipe.augment,
            task.columns,
            held_out,
            extra,
            recipe.seed,
            task=recipe.data.task,
            teacher=recipe.teacher.model,
            engine=recipe.engine,
            workers=recipe.workers,
        )

    def logits(out: Path) -> Summary:
        # Summed up over all of the store, so that a killed and resumed run says the same as an
        # undisturbed one.
        summary = pipeline.label(
            transfer_set,
            out / "store",
            task.model,
            recipe.label,
            task.columns,
            engine=recipe.engine,
            workers=recipe.workers,
        )
        return {key: value for key, value in summary.items() if key != "labelled_now"}

    settings = [asdict(recipe.augment), models.fingerprints(), recipe.seed]
    counts = _relative(home.stage("transfer", settings, ["data"], transfer))
    home.stage("logits", asdict(recipe.label), ["teacher", "transfer"], logits)
    return counts, transfer_set


def _run(recipe: Recipe, home: RunFolder) -> Summary:
    folder, seed = home.folder, recipe.seed
    models = look_ahead(recipe)
    task = teach(recipe, home, folder / "recipe.yaml")
    counts, transfer_set = label_transfer_set(recipe, home, task, models)
    columns, path, rows, teacher_model = task.columns, task.path, task.data["rows"], task.model

    def student_gold(out: Path) -> Summary:
        smoothing = recipe.loss.label_smoothing
        training = replace(
            recipe.training,
            epochs=recipe.proof.gold_epochs,
            batch_size=min(recipe.training.batch_size, GOLD_BATCH),
        )
        return pipeline.train_student(
            pipeline.StudentJob(
                path["train"],
                path["dev"],
                out / "model",
                recipe.student,
                teacher=teacher_model,
                loss=LossConfig(alpha=1, label_smoothing=smoothing),
                training=training,
                columns=columns,
                task=recipe.data.task,
                vocabulary_from=transfer_set,
                seed=seed,
                progress="student on gold labels",
            )
        )

    def student(out: Path) -> Summary:
        return pipeline.train_student(
            pipeline.StudentJob(
                transfer_set,
                path["dev"],
                out / "model",
                recipe.student,
                logits=folder / "logits" / "store",
                teacher=teacher_model,
                loss=recipe.loss,
                training=recipe.training,
                columns=columns,
                seed=seed,
            )
        )

    def proof(out: Path) -> Summary:
        summary, latency = _prove(recipe, folder, rows, columns)
        (out / "latency.json").write_text(json.dumps(latency, indent=1) + "\n", encoding="utf-8")
        (out / "report.md").write_text(comparison_table(summary, latency) + "\n", encoding="utf-8")
        return summary

    vectors = Path(recipe.student.embeddings.source)
    learn = [
        asdict(recipe.student),
        asdict(recipe.training),
        fingerprint(vectors) if vectors.is_file() else "",
        seed,
    ]
    gold = None
    if recipe.proof.gold_epochs:
        gold = _relative(
            home.stage(
                "student-gold",
                [learn, recipe.proof.gold_epochs, recipe.loss.label_smoothing],
                ["teacher", "transfer"],
                student_gold,
            )
        )
    distilled = _relative(home.stage("student", [learn, asdict(recipe.loss)], ["logits"], student))
    proven = home.stage(
        "proof", asdict(recipe.proof), ["student-gold", "student"] if gold else ["student"], proof
    )
    stages = {"teacher": task.teacher, "student_gold": gold, "student": distilled}
    result = {
        "distillkit": __version__,
        "seed": seed,
        "data": task.data,
        **({"adapted": task.adapted} if task.adapted else {}),
        "transfer_set": counts,
        "training": {
            name: {
                key: stage[key]
                for key in (f"dev_{SCORES[recipe.data.task]}", "best_epoch", "history")
            }
            for name, stage in stages.items()
            if stage
        },
        "models": proven["models"],
    }
    with whole_file(folder / "result.json") as partial:
        partial.write_text(
            json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
    log(
        "\n"
        + (folder / "proof" / "report.md").read_text(encoding="utf-8")
        + f"\n{folder / 'result.json'}"
    )
    return result


def look_ahead(recipe: Recipe) -> Models:
    """Find at once what a stage would find wrong only after the hours before it; return what the transfer set's mix needs.

    Raises:
        InputError: The student does not fit the data, its vectors are not there, or the tagger or
            what the mix needs is not to be had, or the loss asks for what the task has no meaning
            for.
    """
    recipe.loss.check_task(recipe.data.task)
    recipe.student.check_fits(
        pairs=bool(recipe.data.columns.text_pair), source="the data, by data.columns.text_pair,"
    )
    vectors = recipe.student.embeddings.source
    if (
        not recipe.student.embeddings.asks_teacher
        and vectors != "random"
        and not Path(vectors).is_file()
    ):
        raise InputError(
            f"student.embeddings.source {vectors!r}: no such file; expected teacher, teacher-context, random, or a word-vector text file"
        )
    if recipe.augment.n_iter and recipe.augment.tagger != "auto":
        load_tagger(recipe.augment.tagger, [])
    return pipeline.models_of(
        recipe.augment, recipe.teacher.model, recipe.data.columns, recipe.data.unlabelled
    )


def _prove(
    recipe: Recipe, folder: Path, rows: dict[str, int], columns: ColumnsConfig
) -> tuple[Summary, dict[str, float]]:
    """Measure every model on dev and test; return the scores, and milliseconds a sentence by model."""
    task = recipe.data.task
    tables = {
        split: read_table(str(folder / "data" / f"{split}.parquet"), columns, task=task)
        for split in rows
        if split != "unlabelled"
    }
    stages = {"student_gold": "student-gold", "student": "student", "teacher": "teacher"}
    if not recipe.proof.gold_epochs:
        del stages["student_gold"]
    folders = {name: folder / stage / "model" for name, stage in stages.items()}
    loaded = {name: load_classifier(str(path)) for name, path in folders.items()}
    names = labels_of(loaded["teacher"][0])
    train_gold = gold_of(tables["train"], names, task)
    log("proof: TF-IDF")
    tfidf = TfidfBaseline(*texts_of(tables["train"]), train_gold, len(names), task)
    models: dict[str, Summary] = {name: {} for name in ("majority", "tfidf", *folders)}
    for split, table in tables.items():
        if split == "train":
            continue
        logits = {
            name: pipeline.classify(str(path), table, split, names)[0]
            for name, path in folders.items()
        }
        logits["majority"] = majority_logits(train_gold, len(names), len(table), task)
        logits["tfidf"] = tfidf.logits(*texts_of(table))
        gold = gold_of(table, names, task)
        for name, found in logits.items():
            models[name][split] = metrics(task, found, gold, names, logits["teacher"])
    for name, (model, _) in loaded.items():
        models[name] |= {
            "parameters": parameter_counts(model),
            "megabytes": megabytes(folders[name]),
        }
    log("proof: milliseconds a sentence")
    answers = {name: answer_one(*pair) for name, pair in loaded.items()}
    answers["tfidf"] = lambda text, second: tfidf.logits(
        [text], None if second is None else [second]
    )
    timed = paired(*texts_of(tables["dev"].slice(0, recipe.proof.latency_sentences)))
    latency = milliseconds(answers, timed) if timed else {}
    return {"models": models}, latency


def _relative(summary: Summary) -> Summary:
    """Leave out where a stage was built: a temporary folder that is gone."""
    return {key: value for key, value in summary.items() if key != "output"}


def _sources(data: DataConfig) -> list[str]:
    return [source for source in (data.train, data.dev, data.test, *data.unlabelled) if source]


def _fingerprints(sources: Sequence[str]) -> list[str]:
    """Fingerprint every source that is a file here; a hub's data set, or one elsewhere, is known by its name alone."""
    return [
        source
        if source.startswith("datasets:") or "://" in source
        else fingerprint(*(Path(str(file)) for file in source_files(source)))
        for source in sources
    ]


def _code_version(stage: str) -> str:
    package = Path(__file__).parent
    files = sorted(
        {
            file
            for room in _ROOMS[stage]
            for file in (
                [package / room] if room.endswith(".py") else (package / room).rglob("*.py")
            )
        }
    )
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a run's folder for one process; the lock goes with the process, however it ends."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"{folder}: another run is at work there; wait for it, or choose another --name"
            ) from None
    try:
        yield
    finally:
        lock.release()


def log(message: str) -> None:
    """Say a line on stderr; stdout is for results."""
    sys.stderr.write(message + "\n")
