"""`distillkit doctor`: every check in turn, on samples, and the student that they suggest."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit import pipeline
from distillkit.data.batches import encode
from distillkit.data.content import texts_of
from distillkit.data.gold import class_counts, label_ids, label_names
from distillkit.data.labels import labels_of
from distillkit.data.logits import join_logits, joined_labels, read_store, stored_rows
from distillkit.data.own_tables import raw_columns
from distillkit.data.tables import draw_rows, read_blocks, read_table
from distillkit.data.words import is_unsegmented
from distillkit.doctor.advice import advise
from distillkit.doctor.answers import (
    check_against_baseline,
    check_answers,
    check_same_teacher,
    check_store,
)
from distillkit.doctor.findings import Finding
from distillkit.doctor.gap import gap_finding, steps_of
from distillkit.doctor.labels import check_target, suspect_labels
from distillkit.doctor.order import ASKS, Rows, order_finding, word_order
from distillkit.doctor.rows import check_raw_text, check_rows, check_spelling
from distillkit.doctor.text import (
    check_student_vocabulary,
    check_teacher_tokenizer,
    check_truncation,
)
from distillkit.doctor.unlabelled import check_unlabelled
from distillkit.errors import InputError, checkpoint_errors
from distillkit.measure.baselines import TfidfBaseline
from distillkit.pipeline.task import settle_columns
from distillkit.processes import progress_bar
from distillkit.recipe import ColumnsConfig, Recipe
from distillkit.recipe.data import AUTO_RAW
from distillkit.runs import with_data
from distillkit.runs.first_labels import labelled_data
from distillkit.runs.gap import Probe, texts_for
from distillkit.student.vocabulary import build_tokenizer
from distillkit.teacher.checkpoint import (
    SCRATCH,
    load_classifier,
    match_labels,
    max_tokens_of,
    resolve,
)
from distillkit.training.inference import predict_logits

Report = dict[str, Any]

ROWS = 1000
# Enough for tenths of a percent; the student's vocabulary and the baseline take as many as a minute
# allows.
_SAMPLE, _BASELINE_ROWS, _VOCABULARY_TEXTS, _SAME_ROWS = 2000, 100_000, 200_000, 100


def doctor(
    recipe: Recipe,
    teacher: str = "",
    logits: str = "",
    folder: Path | None = None,
    rows: int = ROWS,
    labels: Path | None = None,
) -> Report:
    """Say what is wrong with a recipe's data and teacher before hours are spent on them.

    It writes nothing but `labels`.

    Args:
        recipe: What would be run.
        teacher: A fine-tuned checkpoint; empty: that of `folder`, if there is one.
        logits: A logit store; empty: that of `folder`, if there is one.
        folder: The run's folder.
        rows: Most dev rows that the teacher answers; half of them ten times over for word order.
        labels: A .csv file to write the labels into that look wrong; None: they are not looked for.

    Returns:
        `errors` and `warnings` (how many), `findings` (each with `check`, `severity`, `seen`, `do`,
        `metrics`), `not_checked`, and `student`: the kind that the findings suggest, or None
        without a sound teacher.

    Raises:
        InputError: The data cannot be read, or `teacher` or `logits` is not what it should be.
    """
    if rows < 2:
        raise InputError(f"--rows is {rows}: expected at least 2")
    if recipe.data.labels and folder is not None:
        labelled = labelled_data(recipe.data, folder)
        recipe = replace(recipe, data=labelled if Path(labelled.train).is_file() else recipe.data)
    if labels is not None:
        check_target(recipe, labels)
    if folder is not None:
        model, stored = folder / "teacher" / "model", folder / "logits" / "store"
        teacher = teacher or (str(model) if model.is_dir() else "")
        logits = logits or (str(stored) if stored.is_dir() else "")
    store = Path(logits) if logits else None
    findings: list[Finding] = []
    if recipe.data.labels:
        findings, left = (
            check_unlabelled(with_data(recipe)),
            ["everything that needs labelled rows"],
        )
    else:
        examination = _Examination(recipe, teacher, store, rows, folder, labels)
        for found in progress_bar(examination.checks(), desc="doctor", unit="check"):
            findings += found
        left = examination.not_checked
    kinds = [one.metrics["kind"] for one in findings if one.check == "student"]
    return {
        "errors": sum(one.severity == "error" for one in findings),
        "warnings": sum(one.severity == "warning" for one in findings),
        "findings": [asdict(one) for one in findings],
        "not_checked": left,
        "student": kinds[0] if kinds else None,
    }


def quick_checks(recipe: Recipe) -> list[Finding]:
    """Check in a second what would waste a run: what its teacher can read, how labels are spelt.

    Args:
        recipe: What is about to be run.

    Returns:
        Warnings and errors, found in the first training rows.

    Raises:
        InputError: The data cannot be read.
    """
    data, _ = settle_columns(recipe.data)
    if not data.train:
        return []
    table = next(
        read_blocks(data.train, data.columns, task=data.task, missing=data.missing, rows=_SAMPLE)
    )
    found = check_spelling(class_counts(table)) if data.task == "classification" else []
    if (tokenizer := _tokenizer_here(recipe.teacher.model)) is not None:
        found.append(check_teacher_tokenizer(tokenizer, _flat([table]), recipe.teacher.model))
        limit = recipe.teacher.max_tokens
        found.append(check_truncation("teacher", tokenizer, *texts_of(table), limit))
    if data.unlabelled and data.unlabelled != (AUTO_RAW,):
        blocks = (
            read_blocks(
                raw,
                raw_columns(raw, data.columns),
                labels="ignored",
                missing=data.missing,
                or_canonical=True,
                rows=_SAMPLE,
            )
            for raw in data.unlabelled
        )
        found += [check_raw_text(table, next(iter(block))) for block in blocks]
    return [one for one in found if one.severity != "fine"]


def _tokenizer_here(model: str) -> Any:
    """Return a checkpoint's tokenizer, None where it is not on this machine: nothing is fetched."""
    from transformers import AutoTokenizer

    if model == SCRATCH:  # the run makes it
        return None
    path = resolve(model)
    try:
        with checkpoint_errors(model):
            return AutoTokenizer.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            )
    except InputError:  # absent and damaged look alike here
        return None


class _Examination:
    """What the checks of one recipe share: its tables, its labels, samples of its rows."""

    def __init__(
        self,
        recipe: Recipe,
        teacher: str,
        store: Path | None,
        rows: int,
        folder: Path | None,
        suspects: Path | None,
    ) -> None:
        self.recipe, self.suspects = with_data(recipe), suspects
        recipe = self.recipe
        self.teacher, self.store, self.rows, self.folder = teacher, store, rows, folder
        self.tables = pipeline.read_data(recipe.data, recipe.seed)
        self.labels = label_names(self.tables["train"], recipe.data.train)
        self.not_checked: list[str] = []

    def checks(self) -> Iterator[list[Finding]]:
        yield check_rows(self.tables, self.recipe.data.task)
        if "unlabelled" in self.tables:
            yield [check_raw_text(self.tables["train"], self._sample("unlabelled", _SAMPLE))]
        if self.suspects is not None:
            yield [self._suspects(self.suspects)]
        model, tokenizer, limit = self._reader()
        yield self._text(tokenizer, limit)
        if self.store is None:
            self.not_checked.append("the teacher's logits: give --logits, a logit store")
        else:
            yield self._logits(self.store, limit)
        if model is None:
            self.not_checked.append(
                "what the teacher answers, the order of words, and so which student to choose: give --teacher, a fine-tuned checkpoint"
            )
        else:
            yield from self._teacher(model, tokenizer, limit)
        yield self._student_gap()

    def _suspects(self, target: Path) -> Finding:
        """Write the labels that look wrong; an encoder that is not on this machine is not asked."""
        encoder = self.recipe.teacher.model
        if _tokenizer_here(encoder) is None:
            self.not_checked.append(
                f"what {encoder} says of the labels, for it is not on this machine: TF-IDF alone ranks them"
            )
            encoder = ""
        return suspect_labels(self.recipe, target, encoder)

    def _student_gap(self) -> list[Finding]:
        """Compare the run's finished student with its teacher."""
        data, service = self.recipe.data, self.recipe.label.endpoint.url
        if data.logits or (service and not data.labels):
            self.not_checked.append("what a student misses: its logits are not its teacher's")
            return []
        folder = self.folder or Path()
        student, transfer_set = (
            folder / "student" / "model",
            folder / "transfer" / "transfer.parquet",
        )
        needed = (student / "training" / "log.jsonl", transfer_set)
        if not (self.folder and self.teacher and all(path.is_file() for path in needed)):
            self.not_checked.append("what a student misses of its teacher: the run is not finished")
            return []
        columns = ColumnsConfig(text_pair="text_pair" if self.recipe.data.columns.text_pair else "")
        config = self.recipe.augment
        try:
            tables = texts_for(
                self.tables["train"],
                self.tables["dev"],
                str(transfer_set),
                columns,
                config,
                self.recipe.seed,
            )
            probe = Probe(self.teacher, tables, self.recipe.data.task, config.mask)
            found = probe.gaps(str(student))
        except InputError as error:  # a teacher or texts that earlier checks have refused
            self.not_checked.append(f"what a student misses of its teacher: {error}")
            return []
        return [gap_finding(found, steps_of(student))]

    def _reader(self) -> tuple[Any, Any, int]:
        """Return the teacher, its tokenizer, and where its input is truncated.

        Without a fine-tuned teacher: None, and the tokenizer of the recipe's encoder.
        """
        if self.teacher:
            model, tokenizer = load_classifier(self.teacher)
            return model, tokenizer, max_tokens_of(model, tokenizer)
        config = self.recipe.teacher
        tokenizer = _tokenizer_here(config.model)
        if tokenizer is None:
            self.not_checked.append(
                f"what the teacher can read: no tokenizer of {config.model} on this machine"
            )
            return None, None, 0
        return None, tokenizer, min(config.max_tokens, tokenizer.model_max_length)

    def _text(self, teacher: Any, limit: int) -> list[Finding]:
        """Check the text against both vocabularies; `teacher` is its tokenizer, or None."""
        texts, pairs = self._texts()
        student, found, reader = self.recipe.student, [], teacher
        if teacher is not None:
            name = self.teacher or self.recipe.teacher.model
            found.append(check_teacher_tokenizer(teacher, [*texts, *(pairs or [])], name))
            found.append(check_truncation("teacher", teacher, texts, pairs, limit))
        if student.reads_words and student.vocabulary.unit != "teacher":
            reader = self._student_tokenizer(teacher)
            found.append(check_student_vocabulary(reader, _flat([self._sample("dev", _SAMPLE)])))
        if reader is not None:
            found.append(check_truncation("student", reader, texts, pairs, student.max_tokens))
        return found

    def _student_tokenizer(self, teacher: Any) -> Any:
        """Build the student's tokenizer from a sample, with the teacher's words if there is one."""
        student = self.recipe.student
        splits = [split for split in ("train", "unlabelled") if split in self.tables]
        texts = _flat([self._sample(split, _VOCABULARY_TEXTS) for split in splits])
        vocabulary = student.vocabulary
        if teacher is None:
            vocabulary = replace(vocabulary, teacher_words=False)
        return build_tokenizer(texts, vocabulary, student.max_tokens, teacher=teacher)

    def _logits(self, store: Path, limit: int) -> list[Finding]:
        """Check a logit store; `limit`: where the teacher's input is truncated, 0: unknown."""
        tables = {split: t for split, t in self.tables.items() if split in ("train", "unlabelled")}
        transfer = store.parent.parent / "transfer" / "transfer.parquet"  # of the same run
        if transfer.is_file():
            columns = ColumnsConfig(
                text_pair="text_pair" if self.recipe.data.columns.text_pair else ""
            )
            tables["transfer"] = read_table(str(transfer), columns, labels="ignored")
        wanted = self.recipe.teacher.max_tokens
        wanted = min(wanted, limit) if limit else wanted
        return check_store(store, tables, self.labels, self.recipe.data.task, wanted)

    def _teacher(self, model: Any, tokenizer: Any, limit: int) -> Iterator[list[Finding]]:
        task = self.recipe.data.task
        try:
            names = match_labels(labels_of(model), self.labels, self.teacher)
        except InputError as error:
            yield [Finding("teacher-labels", "error", str(error), "give a teacher of this task")]
            return
        if task != "classification":
            self.not_checked.append(
                f"what the teacher answers, and which student to choose: known for classification, not for {task}"
            )
            return
        rows = min(self.rows, len(self.tables["dev"]))
        total = rows + ASKS * min(self.rows // 2, rows)
        with progress_bar(total=total, desc="doctor: teacher", unit="row", leave=False) as bar:

            def ask(rows: Rows) -> np.ndarray:
                encoded = encode(tokenizer, *rows, limit)
                return predict_logits(model, encoded, precision="auto", on_rows=bar.update).numpy()

            mask = tokenizer.mask_token or tokenizer.unk_token or self.recipe.augment.mask
            yield from self._answers(names, ask, mask)

    def _answers(
        self, names: list[str], ask: Callable[[Rows], np.ndarray], mask: str
    ) -> Iterator[list[Finding]]:
        """Check what a teacher answers on dev, then how much it depends on word order."""
        dev = self._sample("dev", self.rows)
        found, gold = ask(texts_of(dev)), np.array(label_ids(dev, names))
        answers = check_answers(found, gold, names, "the teacher")
        yield answers
        if self.store is not None and not self.recipe.labelled_elsewhere:
            yield self._same_teacher(self.store, names, ask)
        if any(one.severity == "error" for one in answers):
            self.not_checked.append(
                "the order of words, and which student to choose: mend the teacher first"
            )
            return
        baseline = self._baseline(dev, found, gold, names)
        yield [baseline]
        few = self._sample("dev", self.rows // 2)
        (texts, pairs), gold = texts_of(few), np.array(label_ids(few, names))
        moved = word_order(texts, pairs, gold, ask, mask, self.recipe.seed)
        unit = "character" if is_unsegmented(texts) else "word"
        gap, asked = baseline.metrics["gap"], self.recipe.student.kind
        yield [
            order_finding(moved, len(few), unit),
            advise(moved, gap, pairs=pairs is not None, asked=asked),
        ]

    def _baseline(
        self, dev: pa.Table, found: np.ndarray, gold: np.ndarray, names: list[str]
    ) -> Finding:
        train = self._sample("train", _BASELINE_ROWS)
        tfidf = TfidfBaseline(*texts_of(train), np.array(label_ids(train, names)), len(names))
        return check_against_baseline(found, tfidf.logits(*texts_of(dev)), gold, len(train))

    def _same_teacher(
        self, store: Path, names: list[str], ask: Callable[[Rows], np.ndarray]
    ) -> list[Finding]:
        """Compare each stored teacher's logits of some training rows with this teacher's."""
        found, train = [], self.tables["train"]
        for name in read_store(store):
            own, there = joined_labels(store, {name: 1.0}), stored_rows(train, store / name)
            rows = train.filter(pa.array(there)).slice(0, _SAME_ROWS)
            if len(rows) and set(own) == set(names):
                order = [own.index(label) for label in names]
                stored = join_logits(rows, store, {name: 1.0})[:, order]
                found.append(check_same_teacher(stored, ask(texts_of(rows)), name))
        return found

    def _sample(self, split: str, rows: int) -> pa.Table:
        return draw_rows(self.tables[split], rows, self.recipe.seed)

    def _texts(self) -> Rows:
        """Return a sample of train and dev, the two alike."""
        (a, b), (c, d) = (texts_of(self._sample(split, _SAMPLE)) for split in ("train", "dev"))
        return [*a, *c], None if b is None or d is None else [*b, *d]


def _flat(tables: list[pa.Table]) -> list[str]:
    """Return all texts of some tables, of pairs both."""
    return [text for table in tables for side in texts_of(table) for text in side or ()]
