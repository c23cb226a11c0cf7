"""Train and measure the ablation rows of a recipe's ladder.

    data -> teacher -> transfer sets, one per removed rule -> one logit store -> cells -> metrics

A cell is one ablation row with one seed. The first two stages are those of `distillkit run`, in the
same folder. Every transfer set and every cell is a stage of its own below `ladder/`. So a ladder
resumes after a kill, and grows by rows and seeds.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit import __version__, pipeline
from distillkit.augment.taggers import own_tagger
from distillkit.data.checked import read_parquet
from distillkit.data.content import texts_of
from distillkit.data.gold import gold_of
from distillkit.data.logits import read_store
from distillkit.data.tables import read_table, write_table
from distillkit.errors import InputError
from distillkit.ladder.plan import (
    Lesson,
    ablations_of,
    pace,
    repeated,
    transfer_variants,
    weighted_steps,
)
from distillkit.measure.ablation import (
    RESAMPLES,
    Answers,
    draw_ladder,
    ladder_metrics,
    ladder_tables,
    picture_size,
)
from distillkit.measure.baselines import majority_logits
from distillkit.measure.cost import megabytes, parameter_counts
from distillkit.measure.results import write_results
from distillkit.pipeline.student import STUDENT_VERSION
from distillkit.pipeline.teacher import LABEL_VERSION
from distillkit.pipeline.transfer_set import TRANSFER_VERSION
from distillkit.processes import log, progress_bar
from distillkit.recipe import LossConfig, Recipe
from distillkit.runs import (
    RunFolder,
    Summary,
    Taught,
    at_work,
    look_ahead,
    student_job,
    teach,
    vectors_of,
    with_data,
    with_variants,
)
from distillkit.runs.evaluation import baseline
from distillkit.runs.folder import relative
from distillkit.runs.gap import Probe, texts_for
from distillkit.student.train import rows_an_epoch
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.checkpoints import training_log

# Ablation rows that draw nothing have one cell each; students have one per seed.
_SEEDLESS = ("majority", "tfidf", "frozen", "teacher")
# Raise the 1 when a cell of the same settings, inputs and student gives other answers.
CELL_VERSION = STUDENT_VERSION + 2
_SEEDLESS_VERSION = CELL_VERSION + 1  # of a cell without a student


def ladder(recipe: Recipe, folder: Path, ablations: Sequence[str] = (), seeds: int = 3) -> Summary:
    """Train and measure the ablation rows of a recipe's ladder.

    Args:
        recipe: What to run. Its seed is that of the teacher, of the transfer sets and of the first
            student.
        folder: A run's folder, as for `runs.run`; the ladder is in its `ladder/`.
        ablations: Which rows to train; empty: all of `ablations_of`. Earlier rows that still hold
            are shown with them.
        seeds: How many students of each row.

    Returns:
        What is written to `ladder/ladder.json`: the data, the transfer sets, and by row what
            `measure.ablation.ladder_metrics` returns.

    Raises:
        InputError: Something given is wrong, the recipe has no such row, or another run is at work
            in the folder.
    """
    if recipe.data.logits:
        raise InputError(
            "data.logits: a ladder compares transfer sets that its teacher labels; leave it out"
        )
    if recipe.label.endpoint.url and not recipe.data.labels:
        raise InputError(
            "label.endpoint.url: a ladder compares transfer sets that its teacher labels; leave it out"
        )
    recipe = with_data(recipe)
    known = ablations_of(recipe)
    for name in ablations:
        if name not in known:
            raise InputError(f"--ablations {name}: this recipe's ladder has {', '.join(known)}")
    if seeds < 1:
        raise InputError(f"--seeds is {seeds}: expected at least 1")
    if not recipe.training.epochs:
        raise InputError(
            "training.epochs is 0: the ladder's students learn as long as the recipe's; give at least 1"
        )
    with at_work(folder) as home:
        look_ahead(recipe)
        task = teach(recipe, home, folder / "ladder" / "recipe.yaml")
        return _Ladder(with_variants(recipe, task), home, task).run(
            known, set(ablations or known), seeds
        )


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
        self.store = self.stages.folder / "logits" / "store"
        self.kind = [recipe.data.task, asdict(task.columns)]
        self.variants = transfer_variants(recipe)
        # The transfer set of `distillkit run`.
        self.own = "in-domain" if "in-domain" in self.variants else "full"
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
        # What every cell is made from.
        self.base = {split: task.tables[split] for split in self.tables} | home.keys("teacher")
        self.transfers: dict[str, Summary] = {}  # rows of the transfer sets that hold
        self.labelled: set[str] = set()  # transfer sets whose every row has logits
        self.begun = False  # the logit store

    def run(self, known: Sequence[str], asked: set[str], seeds: int) -> Summary:
        """Train what is asked for, then measure all that is there."""
        of_students = range(self.recipe.seed, self.recipe.seed + seeds)
        ablations: dict[str, dict[int | None, Answers]] = {}
        cells = [
            (name, seed)
            for name in known
            for seed in ([None] if name in _SEEDLESS else of_students)
        ]
        for name, seed in progress_bar(cells, desc="ladder", unit="model"):
            build = name in asked or name == "teacher"  # every row is compared with the teacher
            found = self._cell(name, seed, build=build)
            if found is not None:
                ablations.setdefault(name, {})[seed] = found
        log("ladder: metrics")
        gold = {split: self.gold[split] for split in self.splits}
        measured = ladder_metrics(ablations, gold, self.labels, self.recipe.data.task)
        result = {
            "distillkit": __version__,
            "seed": self.recipe.seed,
            "data": self.task.data,
            "transfer_sets": {
                name: self.transfers[name] for name in self.variants if name in self.transfers
            },
            "bootstrap": {"resamples": RESAMPLES, "level": 0.95},
            "ablations": measured,
        }
        tables = ladder_tables(measured, self.splits)
        draw = partial(draw_ladder, measured, self.splits)
        size = picture_size(measured, self.splits)
        write_results("ladder", self.stages.folder, result, tables, size, draw)
        return result

    def _stage(
        self,
        name: str,
        settings: object,
        inputs: Mapping[str, str],
        fill: Callable[[Path], Summary],
        version: int,
        build: bool,
    ) -> Summary | None:
        """Return a stage's summary; None where it does not hold and is not to be built."""
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
            return relative(summary)

        settings = [config.settings(), self.kind, models.fingerprints(), recipe.seed]
        tables = {
            split: found
            for split, found in task.tables.items()
            if split != "unlabelled" or unlabelled
        }
        counts = self._stage(
            f"transfer-{name}",
            settings,
            tables | own_tagger(config.tagger),
            transfer,
            TRANSFER_VERSION,
            build,
        )
        if counts is not None:
            self.transfers[name] = counts
        return counts

    def _transfer_path(self, name: str) -> str:
        return str(self.stages.folder / f"transfer-{name}" / "transfer.parquet")

    def _begin_store(self, *, build: bool) -> bool:
        """Begin the logit store of all rows with that of a run; say whether it is there."""
        if self.begun:
            return True
        label, mask = self.recipe.label.settings(), self.recipe.augment.mask

        def logits(out: Path) -> Summary:
            read = self.home.keys("teacher", "transfer")
            ready = self.home.folder / "logits" / "store"
            done = self.home.kept("logits", label, read, version=LABEL_VERSION)
            if done and all(manifest["mask"] == mask for manifest in read_store(ready).values()):
                shutil.copytree(ready, out / "store")
            else:
                (out / "store").mkdir()
            return {}

        teacher = self.home.keys("teacher")
        begun = self._stage("logits", [label, mask], teacher, logits, LABEL_VERSION, build)
        self.begun = begun is not None
        return self.begun

    def _label(self, name: str) -> None:
        """Label the rows of a transfer set that the store does not have yet."""
        if name in self.labelled:
            return
        log(f"label: transfer set {name!r}")
        pipeline.label(
            self._transfer_path(name),
            self.store,
            self.task.model,
            self.recipe.label,
            self.task.columns,
            engine=self.recipe.engine,
            workers=self.recipe.workers,
        )
        self.labelled.add(name)

    def _cell(self, name: str, seed: int | None, *, build: bool) -> Answers | None:
        """Return the answers of a row's model; None where it is missing and not to be trained."""
        if seed is None:
            folder, fill = name, partial(self._without_student, name)
            found = self._stage(folder, self.kind, self.base, fill, _SEEDLESS_VERSION, build)
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
        train, gold, task = self.tables["train"], self.gold["train"], self.recipe.data.task
        classes = len(self.labels)
        if name == "teacher":
            return self._answer(self.task.model, out) | {"rows": len(train)}
        if name != "majority":
            answer = baseline(name, self.recipe, self.task, (*texts_of(train), gold, classes, task))
        for split in self.splits:
            table = self.tables[split]
            logits = (
                majority_logits(gold, classes, len(table), task)
                if name == "majority"
                else answer(*texts_of(table))
            )
            np.save(out / f"{split}.npy", logits, allow_pickle=False)
        return {"rows": len(train)}

    def _lesson(self, name: str, *, build: bool) -> Lesson | None:
        """Say what the students of a row learn from; None where its transfer sets are not there."""
        variant = name if name in self.variants else "full"
        vocabulary = "in-domain" if name == "in-domain" else "full"
        counts = {
            needed: self._transfer(needed, build=build)
            for needed in {self.own, variant, vocabulary}
        }
        own, mine = counts[self.own], counts[variant]
        if own is None or mine is None or counts[vocabulary] is None:
            return None
        loss, rows = self.recipe.loss, mine["rows"]
        if name == "gold":
            loss = LossConfig(alpha=1)
            rows = self.task.data["rows"]["train"]
        elif name == "hard":
            loss = LossConfig(alpha=1, teachers=loss.teachers)
        elif name == "originals":
            rows = mine["original"]
        epochs, shown = pace(self.recipe, own["rows"], rows)
        if name == "gold":
            # Texts that come twice may make these more than the transfer set's rows. A sample
            # could miss a class.
            shown = max(shown, rows)
        own_epochs = self.recipe.training.rows_shown(own["rows"]) / own["rows"]
        weighted = self.recipe.training.sampling_weights
        steps = weighted_steps(self.recipe, own["rows"], self._drawn) if weighted else 0
        return Lesson(name, variant, vocabulary, loss, rows, epochs, shown, own_epochs, steps)

    @cached_property
    def _drawn(self) -> float:
        """Rows that an epoch of the recipe's own student has, by their sampling weights."""
        marks = read_parquet(self._transfer_path(self.own), ["origin", "rules"])
        return rows_an_epoch(marks, self.recipe.training.weight_of())

    def _student(self, name: str, lesson: Lesson, seed: int, *, build: bool) -> Summary | None:
        """Train a student and keep its answers, not its weights."""
        if not lesson.gold and not self._begin_store(build=build):
            return None
        training = lesson.training(self.recipe)

        def student(out: Path) -> Summary:
            if not lesson.gold:
                self._label(lesson.variant)
            shown, model = out / "shown.parquet", out / "model"
            write_table(repeated(self._rows(lesson), lesson.shown, seed), shown)
            logits = None if lesson.gold else self.store
            pipeline.train_student(
                replace(
                    student_job(self.recipe, self.task, str(shown), model, logits),
                    loss=lesson.loss,
                    training=training,
                    vocabulary_from=self._transfer_path(lesson.vocabulary),
                    seed=seed,
                    progress=name,
                )
            )
            summary = self._answer(str(model), out) | {"rows": min(lesson.rows, lesson.shown)}
            if not lesson.gold:
                gaps = self._probe.gaps(str(model))
                summary |= {f"unexplained_{name}": share for name, share in gaps.items()}
            shown.unlink()
            shutil.rmtree(model)
            return summary

        settings = [
            asdict(self.recipe.student),
            training.settings(),
            asdict(lesson.loss),
            lesson.shown,
            self.kind,
            seed,
        ]
        if self.recipe.student.kind == "siamese-transformer":  # as in `runs.students`
            settings.append("both texts begin alike")
        if self.recipe.data.task == "multi-label" and not lesson.gold:  # at first centred
            settings.append("what is unexplained counts by logit")
        transfers = [f"transfer-{kind}" for kind in {lesson.variant, lesson.vocabulary}]
        read = self.stages.keys(*transfers, *([] if lesson.gold else ["logits"]))
        inputs = self.base | read | vectors_of(self.recipe)
        return self._stage(name, settings, inputs, student, CELL_VERSION, build)

    @cached_property
    def _probe(self) -> Probe:
        texts = texts_for(
            self.tables["train"],
            self.tables["dev"],
            self._transfer_path(self.own),
            self.task.columns,
            self.recipe.augment,
            self.recipe.seed,
        )
        return Probe(self.task.model, texts, self.recipe.data.task, self.recipe.augment.mask)

    def _rows(self, lesson: Lesson) -> pa.Table:
        """Return the distinct rows of a lesson."""
        if lesson.gold:
            return self.tables["train"]
        path, task = self._transfer_path(lesson.variant), self.recipe.data.task
        table = read_table(path, self.task.columns, task=task, labels="optional")
        if lesson.ablation == "originals":
            return table.filter(pc.equal(table["origin"], "original"))
        if lesson.ablation == "hard":  # without a label, the loss takes the teacher's
            place = table.column_names.index("label")
            return table.set_column(place, "label", pa.nulls(len(table), table["label"].type))
        return table

    def _answer(self, model: str, out: Path) -> Summary:
        """Write a model's logits for dev and test; return what it took to train, and its size."""
        for split in self.splits:
            logits, _ = pipeline.classify(model, self.tables[split], split, self.labels)
            np.save(out / f"{split}.npy", logits, allow_pickle=False)
        log = training_log(Path(model))
        last = [record for record in log if record["kind"] == "epoch"][-1:]
        return {
            "epochs": last[0]["epoch"] if last else 0,
            "steps": last[0]["step"] if last else 0,
            "parameters": parameter_counts(load_classifier(model)[0])["total"],
            "megabytes": megabytes(Path(model)),
        }
