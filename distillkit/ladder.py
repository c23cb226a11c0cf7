"""`distillkit ladder`: a recipe's student held against everything that could explain it, rung by rung, with several seeds.

    data -> teacher -> transfer sets, one a rule removed -> one logit store -> cells: a rung, a seed
    -> figures

The first two stages are those of `distillkit run`, in the same folder. Every transfer set and every
cell is a stage of its own below `ladder/`, so that a ladder goes on after a kill, and grows by
rungs and seeds.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit import __version__, pipeline
from distillkit.data.files import whole_file
from distillkit.data.logits import read_store
from distillkit.data.tables import gold_of, read_table, texts_of, write_table
from distillkit.errors import InputError
from distillkit.measure.baselines import TfidfBaseline, majority_logits
from distillkit.measure.cost import megabytes, parameter_counts
from distillkit.measure.picture import write_picture
from distillkit.measure.variants import (
    RESAMPLES,
    TITLES,
    Answers,
    Rung,
    draw_ladder,
    ladder_figures,
    ladder_tables,
)
from distillkit.pipeline.student import STUDENT_VERSION
from distillkit.pipeline.teacher import LABEL_VERSION
from distillkit.pipeline.transfer_set import TRANSFER_VERSION
from distillkit.recipe import AugmentConfig, LossConfig, MixConfig, Recipe
from distillkit.runs import RunFolder, Summary, Taught, at_work, log, look_ahead, teach, vectors_of
from distillkit.teacher.checkpoint import load_classifier

# Rungs that draw nothing of their own have one cell each; students have one a seed.
_SEEDLESS = ("majority", "tfidf", "teacher")
# Raise the 1 when a cell of the same settings, inputs and student gives other answers.
CELL_VERSION = STUDENT_VERSION + 1
_RULES: dict[str, dict[str, Any]] = {
    "no-mask": {"p_mask": 0.0},
    "no-pos": {"p_pos": 0.0},
    "no-ngram": {"p_ng": 0.0},
}
_WAYS = ("rules", "infill", "neighbours", "generated")


def ladder(recipe: Recipe, folder: Path, rungs: Sequence[str] = (), seeds: int = 3) -> Summary:
    """Train and measure the rungs of a recipe's ladder.

    Args:
        recipe: What to run. Its seed is the teacher's and the transfer sets', and the first of the
            students'.
        folder: A run's folder, as for `runs.run`; the ladder is in its `ladder/`.
        rungs: Which to train; empty: all of `rungs_of`. Others that are there from before, and
            still hold, are shown with them.
        seeds: How many students of each rung.

    Returns:
        What is written to `ladder/ladder.json`: the data, the transfer sets, and by rung what
            `measure.variants.ladder_figures` returns.

    Raises:
        InputError: Something given is wrong, the recipe has no such rung, or another run is at work
            in the folder.
    """
    known = rungs_of(recipe)
    for name in rungs:
        if name not in known:
            raise InputError(f"--rungs {name}: this recipe's ladder has {', '.join(known)}")
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}: expected at least 1")
    if not recipe.training.epochs:
        raise InputError(
            "training.epochs is 0: the ladder's students learn as long as the recipe's; give at least 1"
        )
    with at_work(folder) as home:
        look_ahead(recipe)
        task = teach(recipe, home, folder / "ladder" / "recipe.yaml")
        return _Ladder(recipe, home, task).climb(known, set(rungs or known), seeds)


def rungs_of(recipe: Recipe) -> list[str]:
    """List the rungs of a recipe's ladder, from the ground up."""
    variants = transfer_variants(recipe)
    known = {"majority", "tfidf", "gold", "teacher", *variants}
    if (
        recipe.data.task != "regression"
    ):  # where the teacher's answer is its score, which `full` learns
        known.add("hard")
    if variants["full"].n_iter or variants["full"].swap:
        known.add("originals")
    return [name for name in TITLES if name in known]


def transfer_variants(recipe: Recipe) -> dict[str, AugmentConfig]:
    """Return how each transfer set of the ladder is made, by the rung that is named after it.

    `full` has no unlabelled text; from it each rule, each way of the mix and the swapping of pairs
    is removed in turn, where something else is left; `in-domain` is the recipe's own.
    """
    full = _without_unlabelled(recipe.augment)
    variants = {"full": full}
    if full.n_iter:
        ways = [way for way in _WAYS if asdict(full.mix)[way]]
        rules = [rung for rung, (rate,) in _RULES.items() if full.mix.rules and asdict(full)[rate]]
        if len(rules) > 1:
            variants |= {rung: replace(full, **_RULES[rung]) for rung in rules}
        if len(ways) > 1:
            variants |= {
                f"no-{way}": replace(full, mix=replace(full.mix, **{way: 0.0})) for way in ways
            }
        if full.swap and recipe.data.columns.text_pair:
            variants["no-swap"] = replace(full, swap=False)
    if recipe.data.unlabelled:
        variants["in-domain"] = recipe.augment
    return variants


def _without_unlabelled(augment: AugmentConfig) -> AugmentConfig:
    weights = asdict(augment.mix) | {"sentences": 0.0}
    if not any(weights.values()):  # sentences cut from unlabelled text were all there was
        return replace(augment, n_iter=0, mix=MixConfig(), vary_unlabelled=False)
    return replace(augment, mix=MixConfig(**weights), vary_unlabelled=False)


def pace(recipe: Recipe, recipe_rows: int, rows: int) -> tuple[int, int]:
    """Say how long a student learns from some rows, so that every rung takes as many steps as the recipe's own student.

    Args:
        recipe: Its epochs, and the most epochs (`evaluation.gold_epochs`) that fewer rows are spread
            over.
        recipe_rows: Of the recipe's own transfer set.
        rows: To learn from.

    Returns:
        Epochs, and rows shown in each: fewer rows come again within an epoch, more are cut to a
            sample.
    """
    shown = recipe.training.epochs * recipe_rows
    most = max(recipe.training.epochs, recipe.evaluation.gold_epochs)
    # one more would leave some rows out
    epochs = max(recipe.training.epochs, min(most, shown // rows))
    return epochs, round(shown / epochs)


def repeated(table: pa.Table, rows: int, seed: int) -> pa.Table:
    """Return so many rows of a table: all of it as often as it fits, and a sample for the rest."""
    rest = np.random.default_rng(seed).permutation(len(table))[: rows % len(table)]
    return table.take(
        pa.array(np.concatenate([np.tile(np.arange(len(table)), rows // len(table)), rest]))
    )


@dataclass(frozen=True)
class _Lesson:
    """What a student of some rung learns from, and for how long."""

    rung: str
    variant: str  # transfer set that its rows are of
    vocabulary: str  # transfer set that its words are of
    loss: LossConfig
    rows: int  # to learn from
    epochs: int
    shown: int  # rows an epoch


class _Ladder:
    """One call of `ladder`.

    Args:
        recipe: What to run.
        home: The run's folder.
        task: What `runs.teach` left there.
    """

    def __init__(self, recipe: Recipe, home: RunFolder, task: Taught) -> None:
        self.recipe, self.home, self.task = recipe, home, task
        self.stages = RunFolder(home.folder / "ladder")
        self.variants = transfer_variants(recipe)
        self.own = (
            "in-domain" if "in-domain" in self.variants else "full"
        )  # what `distillkit run` would learn from
        self.splits = [split for split in ("dev", "test") if split in task.data["rows"]]
        self.tables = {
            split: read_table(task.path[split], task.columns, task=recipe.data.task)
            for split in ("train", *self.splits)
        }
        self.labels: list[str] = task.teacher["labels"]
        self.gold = {
            split: gold_of(table, self.labels, recipe.data.task)
            for split, table in self.tables.items()
        }
        labelled = {split: task.tables[split] for split in ("train", *self.splits)}
        self.base = labelled | home.keys("teacher")  # what every cell is made from
        self.transfers: dict[str, Summary] = {}  # of the transfer sets that hold, what is in them
        self.labelled: set[str] = set()  # of these, those whose every row has logits
        self.begun = False  # the logit store

    def climb(self, known: Sequence[str], asked: set[str], seeds: int) -> Summary:
        """Train what is asked for, then measure all that is there."""
        rungs: dict[str, Rung] = {}
        for name in known:
            numbers = (
                [None] if name in _SEEDLESS else range(self.recipe.seed, self.recipe.seed + seeds)
            )
            build = name in asked or name == "teacher"  # which every rung is compared with
            cells = {seed: self._cell(name, seed, build=build) for seed in numbers}
            found = {seed: answers for seed, answers in cells.items() if answers is not None}
            if found:
                rungs[name] = found
        log("ladder: figures")
        result = {
            "distillkit": __version__,
            "seed": self.recipe.seed,
            "data": self.task.data,
            "transfer_sets": {
                name: self.transfers[name] for name in self.variants if name in self.transfers
            },
            "bootstrap": {"resamples": RESAMPLES, "level": 0.95},
            "rungs": ladder_figures(
                rungs,
                {split: self.gold[split] for split in self.splits},
                self.labels,
                self.recipe.data.task,
            ),
        }
        self._report(result)
        return result

    def _report(self, result: Summary) -> None:
        folder, tables = self.stages.folder, ladder_tables(result["rungs"], self.splits)
        texts = {
            "ladder.json": json.dumps(result, ensure_ascii=False, indent=1),
            "ladder.md": tables,
        }
        for name, text in texts.items():
            with whole_file(folder / name) as partial:
                partial.write_text(text + "\n", encoding="utf-8")
        log("\n" + tables + "\n")
        write_picture(
            "ladder",
            folder / "ladder.svg",
            lambda path: draw_ladder(result["rungs"], self.splits, path),
        )
        log(str(folder / "ladder.json"))

    def _stage(
        self,
        name: str,
        settings: object,
        inputs: Mapping[str, str],
        fill: Callable[[Path], Summary],
        version: int,
        build: bool,
    ) -> Summary | None:
        """Return a stage's summary; None where it is not there, or no longer holds, and is not to be built."""
        if build:
            return self.stages.stage(name, settings, inputs, fill, version=version)
        return self.stages.kept(name, settings, inputs, version=version)

    def _transfer(self, name: str, *, build: bool) -> Summary | None:
        """Return what is in a transfer set."""
        if name in self.transfers:
            return self.transfers[name]
        recipe, task, config = self.recipe, self.task, self.variants[name]
        unlabelled = recipe.data.unlabelled if name == "in-domain" else ()
        models = pipeline.models_of(config, recipe.teacher.model, recipe.data.columns, unlabelled)

        def transfer(out: Path) -> Summary:
            summary = pipeline.augment(
                task.path["train"],
                out / "transfer.parquet",
                config,
                task.columns,
                [task.path[split] for split in self.splits],
                [task.path["unlabelled"]] if unlabelled else [],
                recipe.seed,
                task=recipe.data.task,
                teacher=recipe.teacher.model,
                engine=recipe.engine,
                workers=recipe.workers,
            )
            return {key: value for key, value in summary.items() if key != "output"}

        kind = [recipe.data.task, asdict(task.columns)]
        settings = [asdict(config), kind, models.fingerprints(), recipe.seed]
        tables = {
            split: found
            for split, found in task.tables.items()
            if split != "unlabelled" or unlabelled
        }
        counts = self._stage(
            f"transfer-{name}", settings, tables, transfer, TRANSFER_VERSION, build
        )
        if counts is not None:
            self.transfers[name] = counts
        return counts

    def _transfer_path(self, name: str) -> str:
        return str(self.stages.folder / f"transfer-{name}" / "transfer.parquet")

    def _begin_store(self, *, build: bool) -> bool:
        """Begin the logit store of all rungs, which grows in place, with what a run of the same teacher has labelled; say if it is there."""
        recipe, ready = self.recipe, self.home.folder / "logits" / "store"

        def logits(out: Path) -> Summary:
            done = self.home.kept(
                "logits",
                asdict(recipe.label),
                self.home.keys("teacher", "transfer"),
                version=LABEL_VERSION,
            )
            if done and all(
                manifest["mask"] == recipe.augment.mask for manifest in read_store(ready).values()
            ):
                shutil.copytree(ready, out / "store")
            else:
                (out / "store").mkdir()
            return {}

        if not self.begun:
            settings, teacher = (
                [asdict(recipe.label), recipe.augment.mask],
                self.home.keys("teacher"),
            )
            begun = self._stage("logits", settings, teacher, logits, LABEL_VERSION, build)
            self.begun = begun is not None
        return self.begun

    def _label(self, name: str) -> None:
        """Give every row of a transfer set its logits; what the store has already is not labelled again."""
        if name in self.labelled:
            return
        log(f"label: transfer set {name!r}")
        pipeline.label(
            self._transfer_path(name),
            self.stages.folder / "logits" / "store",
            self.task.model,
            self.recipe.label,
            self.task.columns,
            engine=self.recipe.engine,
            workers=self.recipe.workers,
        )
        self.labelled.add(name)

    def _cell(self, name: str, seed: int | None, *, build: bool) -> Answers | None:
        """Return what a rung's model of a seed answers; None where it is not there and not to be trained."""
        if seed is None:
            folder = name
            found = self._stage(
                name,
                [self.recipe.data.task, asdict(self.task.columns)],
                self.base,
                partial(self._without_student, name),
                CELL_VERSION,
                build,
            )
        else:
            folder, lesson = f"{name}-seed-{seed}", self._lesson(name, build=build)
            found = None if lesson is None else self._student(folder, lesson, seed, build=build)
        if found is None:
            return None
        place = self.stages.folder / folder
        return Answers(
            {split: np.load(place / f"{split}.npy", allow_pickle=False) for split in self.splits},
            found,
        )

    def _without_student(self, name: str, out: Path) -> Summary:
        """Fill the cell of the teacher or of a baseline."""
        train, classes, task = self.tables["train"], len(self.labels), self.recipe.data.task
        if name == "teacher":
            return self._answer(self.task.model, out) | {"rows": len(train)}
        if name == "tfidf":
            baseline = TfidfBaseline(*texts_of(train), self.gold["train"], classes, task)
        for split in self.splits:
            table = self.tables[split]
            logits = (
                baseline.logits(*texts_of(table))
                if name == "tfidf"
                else majority_logits(self.gold["train"], classes, len(table), task)
            )
            np.save(out / f"{split}.npy", logits, allow_pickle=False)
        return {"rows": len(train)}

    def _lesson(self, rung: str, *, build: bool) -> _Lesson | None:
        """Say what the students of a rung learn from; None where its transfer sets are not there."""
        variant = rung if rung in self.variants else "full"
        vocabulary = "in-domain" if rung == "in-domain" else "full"
        counts = {
            name: self._transfer(name, build=build) for name in {self.own, variant, vocabulary}
        }
        own, mine = counts[self.own], counts[variant]
        if own is None or mine is None or counts[vocabulary] is None:
            return None
        loss = self.recipe.loss
        if rung == "gold":
            rows = self.task.data["rows"]["train"]
            loss = LossConfig(alpha=1, label_smoothing=self.recipe.loss.label_smoothing)
        elif rung == "hard":
            rows = mine["rows"]
            loss = LossConfig(alpha=1, teachers=self.recipe.loss.teachers)
        else:
            rows = mine["original" if rung == "originals" else "rows"]
        epochs, shown = pace(self.recipe, own["rows"], rows)
        # Gold rows may be more than the transfer set's where texts come twice; a sample of them
        # could miss a class.
        return _Lesson(
            rung,
            variant,
            vocabulary,
            loss,
            rows,
            epochs,
            max(shown, rows) if rung == "gold" else shown,
        )

    def _student(self, name: str, lesson: _Lesson, seed: int, *, build: bool) -> Summary | None:
        recipe, gold = self.recipe, lesson.rung == "gold"
        patience = math.ceil(recipe.training.patience * lesson.epochs / recipe.training.epochs)
        training = replace(recipe.training, epochs=lesson.epochs, patience=patience)
        if not gold and not self._begin_store(build=build):
            return None

        def student(out: Path) -> Summary:
            if not gold:
                self._label(lesson.variant)
            write_table(repeated(self._rows(lesson), lesson.shown, seed), out / "shown.parquet")
            pipeline.train_student(
                pipeline.StudentJob(
                    str(out / "shown.parquet"),
                    self.task.path["dev"],
                    out / "model",
                    recipe.student,
                    logits=None if gold else self.stages.folder / "logits" / "store",
                    teacher=self.task.model,
                    loss=lesson.loss,
                    training=training,
                    columns=self.task.columns,
                    task=recipe.data.task,
                    vocabulary_from=self._transfer_path(lesson.vocabulary),
                    seed=seed,
                    progress=name,
                )
            )
            summary = self._answer(str(out / "model"), out) | {
                "rows": min(lesson.rows, lesson.shown)
            }
            (out / "shown.parquet").unlink()
            shutil.rmtree(out / "model")
            return summary

        settings = [
            asdict(recipe.student),
            asdict(training),
            asdict(lesson.loss),
            lesson.shown,
            [recipe.data.task, asdict(self.task.columns)],
            seed,
        ]
        transfers = [f"transfer-{kind}" for kind in {lesson.variant, lesson.vocabulary}]
        read = self.stages.keys(*transfers, *([] if gold else ["logits"]))
        inputs = self.base | read | vectors_of(recipe)
        return self._stage(name, settings, inputs, student, CELL_VERSION, build)

    def _rows(self, lesson: _Lesson) -> pa.Table:
        """Return the distinct rows of a lesson."""
        if lesson.rung == "gold":
            return self.tables["train"]
        table = read_table(
            self._transfer_path(lesson.variant),
            self.task.columns,
            task=self.recipe.data.task,
            labels="optional",
        )
        if lesson.rung == "originals":
            return table.filter(pc.equal(table["origin"], "original"))
        if lesson.rung == "hard":  # without a label, the hard one is the teacher's
            return table.set_column(
                table.column_names.index("label"),
                "label",
                pa.nulls(len(table), table["label"].type),
            )
        return table

    def _answer(self, model: str, out: Path) -> Summary:
        """Write a model's logits for dev and test; return what it took and takes."""
        for split in self.splits:
            logits, _ = pipeline.classify(model, self.tables[split], split, self.labels)
            np.save(out / f"{split}.npy", logits, allow_pickle=False)
        log_file = Path(model) / "training" / "log.jsonl"
        records = [json.loads(line) for line in log_file.read_text(encoding="utf-8").splitlines()]
        epochs = [record for record in records if record["kind"] == "epoch"]
        return {
            "epochs": epochs[-1]["epoch"] if epochs else 0,
            "steps": epochs[-1]["step"] if epochs else 0,
            "parameters": parameter_counts(load_classifier(model)[0])["total"],
            "megabytes": megabytes(Path(model)),
        }
