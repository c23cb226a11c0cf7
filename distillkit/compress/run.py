"""`compress`: make a model as small as asked, in steps, each of which is measured."""

import copy
import json
import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from distillkit import __version__
from distillkit.compress.quantise import keep_quantised, quantise_in_training, stored_numbers
from distillkit.compress.report import steps_table
from distillkit.compress.steps import (
    Model,
    Reading,
    check_fits,
    shrink,
    store,
    token_counts,
)
from distillkit.compress.storage import stored_graph
from distillkit.compress.target import NotMetError, find_plans
from distillkit.data.content import Texts, paired, texts_of
from distillkit.data.files import replaceable, whole_folder
from distillkit.data.gold import check_labels_known, gold_of
from distillkit.data.labels import labels_of, task_of_model
from distillkit.data.logits import join_logits, joined_labels
from distillkit.data.memory import source_of
from distillkit.data.scores import dev_score
from distillkit.data.scratch import Scratch
from distillkit.data.tables import mask_of, read_table, take_rows
from distillkit.errors import InputError, say_renamed
from distillkit.measure.cost import milliseconds
from distillkit.measure.metrics import agreement
from distillkit.pipeline.export import check_fast, check_installed, export_model
from distillkit.pipeline.results import Compressed
from distillkit.processes import log, rank
from distillkit.recipe import SCORES, CompressConfig, CompressJob, Task, TrainingConfig, dump
from distillkit.runtime import Predictor
from distillkit.student.train import fit_plan, training_rows
from distillkit.teacher.checkpoint import load_classifier, max_tokens_of
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest
from distillkit.training.loop import fit
from distillkit.training.scores import rescale, scale_of

BUNDLE, MODEL = "bundle.zip", "model"
_TIMED = 200  # rows
_TRIES = 3  # of a wanted size, from the plan that looks best
_TRIAL_STEPS = 200  # of training, after which plans are compared


def compress(job: CompressJob | str, *old: Any, **named: Any) -> Compressed:
    """Make a model smaller, in steps, and measure it after each.

    Args:
        job: What to compress, and how far; `dev` and `transfer_set` may be rows in memory, as
            `data.memory.source_of` takes them.
        *old: The fields of a `CompressJob` one by one, as before; for one release.
        **named: The same.

    Raises:
        InputError: Something given is wrong. Nothing is written then.
        NotMetError: The size is not met, or not with that little loss. Nothing is written then.
    """
    if not isinstance(job, CompressJob):
        say_renamed("", "compress(MODEL, ...)", "compress(CompressJob(MODEL, ...))")
        named |= zip(("output", "dev", "settings"), old, strict=False)
        job = CompressJob(job, **{key: given for key, given in named.items() if given is not None})
    check_installed("compress")
    job = replace(
        job,
        model=str(job.model),
        output=Path(job.output),
        dev=source_of(job.dev, "dev"),
        transfer_set=source_of(job.transfer_set, "transfer_set"),
    )
    with replaceable(job.output, "compress.json"):
        _check_finished(job)
        network, tokenizer = load_classifier(job.model)
        check_fast(job.model, tokenizer)
        tokenizer.model_max_length = max_tokens_of(network, tokenizer)
        model, settings = Model(network, tokenizer), job.settings
        check_fits(model, settings)
        with tempfile.TemporaryDirectory() as work:
            steps = _Steps.of(job, model, Path(work))
            steps.measure("as it was", model)
            if job.max_mb:
                dev = Reading(*texts_of(steps.dev))
                of = (model, settings, job.max_mb, steps.reading, dev)
                plans = find_plans(*of, retrains=job.retrains)
                if job.retrains:
                    plans = steps.ranked(model, plans)
                settings, model = _met(steps, model, plans[:_TRIES])
            else:
                steps.take(model, settings)
            result = Compressed(
                distillkit=__version__,
                model=job.model,
                dev=job.dev,
                asked=_asked(job),
                rows=len(steps.dev),
                compress=asdict(settings),
                steps=steps.timed(),
            )
            if rank() == 0:
                _write(job.output, dict(result), settings, model, steps.last)
                shutil.rmtree(checkpoint_folder(job.output), ignore_errors=True)
    return result


def _asked(job: CompressJob) -> dict[str, Any]:
    """Return what a job says of its result."""
    where = ("output", "resume", "overwrite")
    asked = {name: value for name, value in asdict(job).items() if name not in where}
    return json.loads(json.dumps(asked, default=str))


def _check_finished(job: CompressJob) -> None:
    """Refuse to replace a finished result that other settings made.

    Raises:
        InputError: It would be replaced.
    """
    finished = job.output / "compress.json"
    if job.overwrite or not finished.is_file():
        return
    try:
        asked = json.loads(finished.read_text(encoding="utf-8")).get("asked")
    except (ValueError, AttributeError):  # damaged: none of ours
        asked = None
    if asked != _asked(job):
        raise InputError(
            f"{job.output}: holds a finished result of other settings; choose another folder, or give --overwrite to replace it"
        )


@dataclass
class _Steps:
    """The steps of a compression, and what each left.

    Attributes:
        work: Folder for each step's bundle; all are kept until they are timed in turn.
        gold: The labels of dev, as `dev_score` takes them.
        reading: The transfer set's texts, or else dev's.
        table: The transfer set.
        targets: The teacher's logits for it, (N, C).
        done: The metrics of each step.
        first: The uncompressed model's logits for dev, (M, C).
        weights: Digest of the uncompressed model's weights.
    """

    job: CompressJob
    work: Path
    dev: pa.Table
    gold: np.ndarray
    task: Task
    reading: Reading
    table: pa.Table | None = None
    targets: np.ndarray | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    first: np.ndarray | None = None
    weights: str = ""

    @classmethod
    def of(cls, job: CompressJob, model: Model, work: Path) -> "_Steps":
        """Read the sources of a job and join the logits; refuse what does not fit the model."""
        task, names = task_of_model(model.network.config), labels_of(model.network)
        dev = read_table(job.dev, job.columns, task=task)
        check_labels_known(dev, names, job.dev)
        gold = gold_of(dev, names, task)
        if not job.transfer_set:
            return cls(job, work, dev, gold, task, Reading(*texts_of(dev)))
        weights_of = model.network.state_dict().values()
        own = digest(*(weight.float().numpy().reshape(-1) for weight in weights_of))
        scratch = Scratch(job.output.parent)
        table = read_table(
            job.transfer_set, job.columns, task=task, labels="optional", scratch=scratch
        )
        pairs = Texts(table["text_pair"]) if "text_pair" in table.column_names else None
        reading = Reading(Texts(table["text"]), pairs, mask_of(table), scratch)
        targets = None
        if job.logits is not None:
            job.loss.check_task(task)
            weights = job.loss.teacher_weights()
            targets = join_logits(table, job.logits, weights, scratch, as_targets=True)
            found = joined_labels(job.logits, weights)
            if found != names:
                raise InputError(
                    f"{job.logits}: its labels ({', '.join(found)}) are not the model's ({', '.join(names)}); give the logits that it learned from"
                )
        return cls(job, work, dev, gold, task, reading, table, targets, weights=own)

    @property
    def last(self) -> Path:
        """The bundle of the last step."""
        return self.work / f"{len(self.done) - 1}.zip"

    def measure(self, name: str, model: Model, stored: CompressConfig | None = None) -> None:
        """Write a model's bundle, its weights stored as a configuration says, and measure it."""
        place, texts = self.work / f"{len(self.done)}.zip", texts_of(self.dev)
        rewrite = made_from = None
        if stored is not None:
            rewrite = partial(stored_graph, compress=stored)
            made_from = {"embeddings": stored.embeddings, "weights": stored.weights}
        written = export_model(
            model.network,
            model.tokenizer,
            place,
            paired(*texts),
            one_file=True,
            rewrite=rewrite,
            made_from=made_from,
            dev=self.dev,
        )
        found = Predictor(place, threads=0).logits(*texts)
        self.first = found if self.first is None else self.first
        score = dev_score(self.task, found, self.gold)
        self.done.append(
            {
                "step": name,
                SCORES[self.task]: score,
                "agreement": agreement(self.task, found, self.first),
                "megabytes": written["megabytes"],
                "parameters": stored_numbers(model.network, stored or CompressConfig()),
                "parity": written["parity"]["largest"],
            }
        )
        log(f"compress: {name}: {100 * score:.2f}, {written['megabytes']:.2f} MB")

    def take(self, model: Model, settings: CompressConfig) -> None:
        """Take all steps of a configuration, measuring after each."""
        retrains = self.job.retrains
        for name in shrink(model, settings, self.reading):
            self.measure(name, model)
        whole = copy.deepcopy(model.network)
        if settings.changes_storage:
            self.measure(store(model, settings, self.reading), model, settings)
        if not retrains:
            return
        cut, score = model.network, self.done[-1][SCORES[self.task]]
        model.network = whole  # training starts from the weights that are not rounded
        self.retrain(model, settings)
        if settings.changes_storage:
            store(model, settings, self.reading)
        self.measure("trained again", model, settings)
        if self.done[-1][SCORES[self.task]] < score:
            model.network = cut
            self.measure("as before that training", model, settings)

    def retrain(self, model: Model, settings: CompressConfig) -> None:
        """Train a model on the transfer set, with weights as they will be stored."""
        made_from = {
            "compress": asdict(settings),
            "loss": asdict(self.job.loss),
            "targets (SHA-256)": digest(self.targets),
        }
        # Other plans, and another model under the same name, have other folders.
        place = checkpoint_folder(self.job.output) / digest(asdict(settings), self.weights)[:8]
        checkpoints = Checkpoints(place, made_from, resume=self.job.resume)
        self._fit(
            model, settings, self.job.training, self.table, self.targets, "at last", checkpoints
        )

    def ranked(self, model: Model, plans: list[CompressConfig]) -> list[CompressConfig]:
        """Put first the plan that is nearest to the model's logits after a short training.

        Training repairs the loss of units, but not that of tokens. So the best plan of each number of
        units, or of layers, is trained for a moment: a round of successive halving (Jamieson and
        Talwalkar 2016, arXiv 1502.07943).

        Args:
            model: To be compressed; left as it is.
            plans: As `find_plans` orders them.
        """
        best: dict[tuple[float, int], CompressConfig] = {}
        for plan in plans:
            best.setdefault((plan.units, plan.layers), plan)
        if len(best) < 2:
            return plans
        texts = Reading(*texts_of(self.dev))
        own = texts.logits(model)
        training = replace(self.job.training, epochs=-1, steps=_TRIAL_STEPS)
        assert self.table is not None
        assert self.targets is not None
        count = min(len(self.table), training.steps * training.batch_size)
        drawn = np.random.default_rng(self.job.seed).choice(len(self.table), count, replace=False)
        drawn.sort()
        table, targets = take_rows(self.table, drawn), self.targets[drawn]
        errors: dict[CompressConfig, float] = {}
        for number, plan in enumerate(best.values(), 1):
            trial = copy.deepcopy(model)
            list(shrink(trial, plan, self.reading))
            self._fit(trial, plan, training, table, targets, f"plan {number} of {len(best)}")
            errors[plan] = float(np.square(texts.logits(trial) - own).mean())
        tried = sorted(errors, key=errors.__getitem__)
        return tried + [plan for plan in plans if plan not in errors]

    def _fit(
        self,
        model: Model,
        settings: CompressConfig,
        training: TrainingConfig,
        table: pa.Table | None,
        targets: np.ndarray | None,
        name: str,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        counts = token_counts(model, settings, self.reading)
        centre, spread = 0.0, 1.0
        if self.task == "regression" and targets is not None:
            centre, spread = scale_of(torch.from_numpy(targets))
            spread = 2.0 ** round(math.log2(spread))  # what is stored in fp16 stays as it is
            rescale(model.network, -centre / spread, 1 / spread)
        quantise_in_training(model.network, settings, counts)
        progress = f"compress: {name}"
        rows = training_rows(
            model.network,
            model.tokenizer,
            table,
            targets,
            self.job.loss,
            training,
            mask=mask_of(table),
            progress=progress,
            scratch=self.reading.scratch,
        )
        plan = fit_plan(
            model.network,
            model.tokenizer,
            rows,
            self.dev,
            self.job.loss,
            training,
            self.job.seed,
            progress,
            checkpoints,
            (centre, spread),
        )
        fit(model.network, plan)
        keep_quantised(model.network.cpu())
        if spread != 1 or centre:
            rescale(model.network, centre, spread)

    def timed(self) -> list[dict[str, Any]]:
        """Time all bundles in turn, one row a call on one thread, and return all metrics."""
        numbers = range(len(self.done))
        answers = {str(i): Predictor(self.work / f"{i}.zip", threads=1).logits for i in numbers}
        took = milliseconds(answers, paired(*texts_of(self.dev))[:_TIMED])
        for number, metrics in enumerate(self.done):
            metrics["milliseconds"] = took[str(number)]
        return self.done


def _met(
    steps: _Steps, model: Model, plans: Sequence[CompressConfig]
) -> tuple[CompressConfig, Model]:
    """Try plans until one meets the target, and return it with the model; refuse if none does."""
    score, start = SCORES[steps.task], len(steps.done)
    max_mb, max_drop = steps.job.max_mb, steps.job.max_drop
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
    how = "" if steps.job.retrains else "; --transfer-set and --logits would train it again"
    raise NotMetError(
        f"--max-mb {max_mb:g} --max-drop {max_drop:g}: not met, the nearest: {'; '.join(near)}{how}"
    )


def _write(
    output: Path, result: dict[str, Any], settings: CompressConfig, model: Model, bundle: Path
) -> None:
    """Write the compressed model, its bundle and the metrics of each step."""
    files = {
        "compress.json": json.dumps(result, indent=1) + "\n",
        "compress.md": steps_table(result) + "\n",
        "compress.yaml": dump(settings),
    }
    with whole_folder(output) as folder:
        model.save(folder / MODEL)
        (folder / BUNDLE).write_bytes(bundle.read_bytes())
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
