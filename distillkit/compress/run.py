"""`compress`: a model as small as is asked, step by step, each step measured."""

import copy
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit import __version__
from distillkit.bench.measure import times
from distillkit.compress.quantise import settle, watch
from distillkit.compress.report import steps_table
from distillkit.compress.steps import Model, Reading, check_fits, make_zeros, shrink, store
from distillkit.compress.storage import stored_as, stored_graph
from distillkit.compress.target import find_plans
from distillkit.data.files import check_replaceable, whole_folder
from distillkit.data.labels import task_of_model
from distillkit.data.logits import joined_labels
from distillkit.data.scores import dev_score
from distillkit.data.tables import (
    check_labels_known,
    gold_of,
    mask_of,
    paired,
    read_table,
    texts_of,
)
from distillkit.data.weighting import teacher_targets
from distillkit.errors import InputError
from distillkit.pipeline.export import check_fast, check_installed, export_model
from distillkit.processes import rank
from distillkit.recipe import (
    SCORES,
    ColumnsConfig,
    CompressConfig,
    LossConfig,
    Task,
    TrainingConfig,
    dump,
)
from distillkit.runs import log
from distillkit.runtime import Predictor
from distillkit.student.train import DistillationTask, prepare
from distillkit.teacher.checkpoint import labels_of, load_classifier, max_tokens_of
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest
from distillkit.training.loop import fit

BUNDLE, MODEL = "bundle.zip", "model"
_TIMED = 200  # rows
_TRIES = 3  # of a wanted size, from the plan that looks best


@dataclass
class Lesson:
    """What a compressed model is trained on again.

    Attributes:
        table: The transfer set.
        targets: The teacher's logits for it, (N, C); None: there are none, and nothing is trained.
        loss: What to match.
        training: How.
        seed: Order of the rows, dropout.
        folder: Where checkpoints go.
        resume: Whether those that are there are gone on from.
    """

    table: pa.Table
    targets: np.ndarray | None
    loss: LossConfig
    training: TrainingConfig
    seed: int
    folder: Path
    resume: bool

    @property
    def is_given(self) -> bool:
        """Whether anything is trained at all."""
        return self.targets is not None and self.training.epochs > 0

    def forget(self) -> None:
        """Remove the checkpoints."""
        if rank() == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def give(
        self, model: Model, compress: CompressConfig, dev: pa.Table, name: str, epochs: int
    ) -> None:
        """Train a model on it, with weights as they will be stored."""
        made_from = {
            "compress": asdict(compress),
            "loss": asdict(self.loss),
            "targets (SHA-256)": digest(self.targets),
        }
        place = (
            self.folder / f"{digest(asdict(compress))[:8]}-{name}"
        )  # other plans have other folders
        training = replace(self.training, epochs=epochs)
        watch(model.network, compress)
        task = DistillationTask(
            model.network,
            model.tokenizer,
            self.table,
            self.targets,
            dev,
            self.loss,
            training,
            self.seed,
            mask=mask_of(self.table),
            progress=f"compress: {name}",
            checkpoints=Checkpoints(place, made_from, resume=self.resume),
        )
        fit(*prepare(task))
        settle(model.network.cpu())


def compress(
    model: str,
    output: Path,
    dev: str,
    settings: CompressConfig | None = None,
    *,
    transfer_set: str = "",
    logits: Path | None = None,
    loss: LossConfig | None = None,
    training: TrainingConfig,
    columns: ColumnsConfig,
    max_mb: float = 0.0,
    max_drop: float = 0.0,
    seed: int = 1,
    resume: bool = True,
) -> dict[str, Any]:
    """Make a model smaller, in steps, and say after each what is left.

    Args:
        model: Folder, package or hub name of a classifier with a fast tokenizer, student or
            teacher.
        output: Folder for `bundle.zip`, `model` (a checkpoint with the same answers),
            `compress.json`, `compress.md` and `compress.yaml`.
        dev: Labelled rows, on which each step is measured and an epoch is chosen.
        settings: What it is to lose.
        transfer_set: What says which tokens are used, and what the model is trained on again; none:
            `dev` for the first, and no training.
        logits: The teacher's, for `transfer_set`; None: no training.
        loss: What to match.
        training: How; of 0 epochs, not at all.
        columns: Names of the sources' columns.
        max_mb: Size of `bundle.zip`, in MB (10^6 bytes); settings that come to it are looked for.
        max_drop: Points of the dev score that may be lost, with `max_mb`.
        seed: Draws order, dropout, and what curvature is taken on.
        resume: Go on from the checkpoints that a killed training left.

    Returns:
        What is written to `compress.json`: the settings, and by step score, agreement with the
            model as it was, MB, and milliseconds a row.

    Raises:
        InputError: Something given is wrong, or the target is not met; the line says how near it
            came, and nothing is written.
    """
    check_installed("compress")
    check_replaceable(output, "compress.json")
    if logits is not None and not transfer_set:
        raise InputError("--logits: expected --transfer-set with it, whose rows they are for")
    settings = settings or CompressConfig()
    changes = (
        settings.changes_tensors or settings.embeddings != "fp32" or settings.weights != "fp32"
    )
    if max_mb and changes:
        raise InputError("--max-mb chooses the settings: give it, or --compress.*, not both")
    if not max_mb and not changes:
        raise InputError(
            "nothing that the model is to lose: give --max-mb, or settings such as --compress.weights int8, --compress.sparsity 0.5, "
            "--compress.units 0.5 or, of a transformer, --compress.layers 2"
        )
    if max_mb < 0 or max_drop < 0:
        raise InputError("--max-mb and --max-drop: expected 0 or more")
    network, tokenizer = load_classifier(model)
    check_fast(model, tokenizer)
    tokenizer.model_max_length = max_tokens_of(network, tokenizer)
    first = Model(network, tokenizer)
    check_fits(first, settings)
    task, names = task_of_model(network.config), labels_of(network)
    dev_table = read_table(dev, columns, task=task)
    check_labels_known(dev_table, names, dev)
    table = (
        read_table(transfer_set, columns, task=task, labels="optional") if transfer_set else None
    )
    reading = (
        Reading(*_lists(dev_table))
        if table is None
        else Reading(*_lists(table), mask=mask_of(table))
    )
    loss = loss or LossConfig()
    targets = (
        None
        if logits is None or table is None
        else teacher_targets(table, logits, loss, dev_table)[0]
    )
    if logits is not None and (found := joined_labels(logits, loss.teacher_weights())) != names:
        raise InputError(
            f"{logits}: its labels ({', '.join(found)}) are not the model's ({', '.join(names)})"
        )
    lesson = Lesson(table, targets, loss, training, seed, checkpoint_folder(output), resume)
    with tempfile.TemporaryDirectory() as work:
        steps = _Steps(
            Path(work), dev_table, gold_of(dev_table, names, task), task, reading, lesson
        )
        steps.measure("as it was", first, None)
        if max_mb:
            plans = find_plans(first, settings, max_mb, reading, steps.dev_reading, seed)
            settings, first = _met(steps, first, plans[:_TRIES], max_mb, max_drop)
        else:
            steps.take(first, settings)
        result = {
            "distillkit": __version__,
            "model": model,
            "dev": dev,
            "rows": len(dev_table),
            "compress": asdict(settings),
            "steps": steps.timed(),
        }
        if rank() == 0:
            _write(output, result, settings, first, steps.last)
    lesson.forget()
    return result


class _Steps:
    """Models after each step: their bundles, kept until all are timed beside each other, and their figures."""

    def __init__(
        self,
        work: Path,
        dev: pa.Table,
        gold: np.ndarray,
        task: Task,
        reading: Reading,
        lesson: Lesson,
    ) -> None:
        self.work, self.dev, self.gold, self.task, self.reading, self.lesson = (
            work,
            dev,
            gold,
            task,
            reading,
            lesson,
        )
        self.dev_reading = Reading(*_lists(dev))
        self.rows = list(paired(*texts_of(dev)))
        self.done: list[dict[str, Any]] = []
        self.first: np.ndarray | None = None

    @property
    def last(self) -> Path:
        """The bundle of the last step."""
        return self.work / f"{len(self.done) - 1}.zip"

    def measure(self, name: str, model: Model, settings: CompressConfig | None) -> None:
        """Write a model's bundle and measure it; the time comes later."""
        place = self.work / f"{len(self.done)}.zip"
        written = export_model(
            model.network,
            model.tokenizer,
            place,
            self.rows,
            one_file=True,
            rewrite=None if settings is None else partial(stored_graph, compress=settings),
            made_from=None if settings is None else stored_as(settings),
        )
        found = Predictor(place, threads=0).logits(*texts_of(self.dev))
        self.first = found if self.first is None else self.first
        figures = {
            "step": name,
            SCORES[self.task]: dev_score(self.task, found, self.gold),
            "agreement": _agreement(self.task, found, self.first),
            "megabytes": written["megabytes"],
            "parameters": sum(weight.numel() for weight in model.network.parameters()),
            "parity": written["parity"]["largest"],
        }
        self.done.append(figures)
        log(
            f"compress: {name}: {100 * figures[SCORES[self.task]]:.2f}, {figures['megabytes']:.2f} MB"
        )

    def take(self, model: Model, settings: CompressConfig) -> None:
        """Take all steps of a configuration, measuring after each."""
        lesson = self.lesson
        for name in shrink(model, settings, self.reading, lesson.seed):
            self.measure(name, model, None)
        for number in range(1, settings.rounds + 1) if settings.sparsity else ():
            self.measure(
                make_zeros(model, settings, self.reading, lesson.seed, number), model, None
            )
            if lesson.is_given and number < settings.rounds:
                lesson.give(
                    model,
                    CompressConfig(sparsity=settings.sparsity),
                    self.dev,
                    f"round {number}",
                    1,
                )
        stored = settings.embeddings != "fp32" or settings.weights != "fp32"
        if stored:
            whole = copy.deepcopy(model.network)
            self.measure(store(model, settings), model, settings)
            if lesson.is_given:  # from the weights that are not rounded
                model.network = whole
        if lesson.is_given:
            lesson.give(model, settings, self.dev, "at last", lesson.training.epochs)
            if stored:
                store(model, settings)
            self.measure("trained again", model, settings)

    def timed(self) -> list[dict[str, Any]]:
        """Time all bundles by turns, one row a call on one thread, and return the figures."""
        answers = {
            str(i): Predictor(self.work / f"{i}.zip", threads=1).logits
            for i in range(len(self.done))
        }
        taken = times(answers, self.rows[:_TIMED], 1)
        for number, figures in enumerate(self.done):
            figures["milliseconds"] = float(np.median(taken[str(number)])) * 1000
        return self.done


def _met(
    steps: _Steps, model: Model, plans: Sequence[CompressConfig], max_mb: float, max_drop: float
) -> tuple[CompressConfig, Model]:
    """Try plans until one meets the target, and return it with what is left of the model.

    Raises:
        InputError: None does.
    """
    score, start = SCORES[steps.task], len(steps.done)
    near: list[str] = []
    for plan in plans:
        del steps.done[start:]
        trial = copy.deepcopy(model)
        steps.take(trial, plan)
        found = steps.done[-1]
        drop = 100 * (steps.done[0][score] - found[score])
        if found["megabytes"] <= max_mb and (not max_drop or drop <= max_drop + 1e-9):
            return plan, trial
        near.append(f"{found['megabytes']:.2f} MB with {drop:.2f} points lost")
    how = "" if steps.lesson.is_given else "; --transfer-set and --logits would train it again"
    raise InputError(
        f"--max-mb {max_mb:g} --max-drop {max_drop:g}: not met, the nearest: {'; '.join(near)}{how}"
    )


def _write(
    output: Path, result: dict[str, Any], settings: CompressConfig, model: Model, bundle: Path
) -> None:
    """Write what is left of a model and how it came to that."""
    shown = steps_table(result)
    with whole_folder(output) as folder:
        model.save(folder / MODEL)
        (folder / BUNDLE).write_bytes(bundle.read_bytes())
        (folder / "compress.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (folder / "compress.md").write_text(shown + "\n", encoding="utf-8")
        (folder / "compress.yaml").write_text(dump(settings), encoding="utf-8")
    log("\n" + shown + "\n")
    log(str(output / "compress.json"))


def _agreement(task: Task, found: np.ndarray, first: np.ndarray) -> float:
    """Return the share of rows with the first model's answer; of a regression the correlation with it."""
    if task == "regression":
        return float(np.corrcoef(found[:, 0], first[:, 0])[0, 1])
    if task == "multi-label":
        return float(((found > 0) == (first > 0)).all(1).mean())
    return float((found.argmax(1) == first.argmax(1)).mean())


def _lists(table: pa.Table) -> tuple[list[str], list[str] | None]:
    texts, pairs = texts_of(table)
    return list(texts), None if pairs is None else list(pairs)
