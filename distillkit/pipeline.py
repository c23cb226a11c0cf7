"""The story, one function a stage, each of the same name as its command.

    labelled text -> train_teacher -> augment -> label -> train_student -> evaluate / predict

`distillkit.runs.run` chains them. Every function takes sources (files, `embedded:` or `datasets:` names) and folders, and answers with a
summary that can be printed as JSON.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, softmax
from torch import Tensor

from distillkit.augment.mix import Models
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.data.batches import encode
from distillkit.data.files import whole_folder
from distillkit.data.labels import PROBLEM_TYPES, task_of_model
from distillkit.data.logits import joined_labels, store_task
from distillkit.data.tables import (
    check_labels_known,
    check_task,
    gold_of,
    label_names,
    mask_of,
    read_blocks,
    read_table,
    split_dev,
    texts_of,
)
from distillkit.data.weighting import teacher_targets
from distillkit.data.workers import leading
from distillkit.errors import InputError
from distillkit.measure.metrics import metrics
from distillkit.processes import rank
from distillkit.recipe import (
    SCORES,
    AugmentConfig,
    ColumnsConfig,
    DataConfig,
    Engine,
    LabelConfig,
    LossConfig,
    Recipe,
    StudentConfig,
    Task,
    TeacherConfig,
    TrainingConfig,
    dump,
)
from distillkit.student.build import build_student
from distillkit.student.train import train_student_model
from distillkit.teacher import fine_tune
from distillkit.teacher.checkpoint import (
    labels_of,
    load_classifier,
    load_config_of,
    match_labels,
    max_tokens_of,
    resolve,
    task_of,
)
from distillkit.teacher.label import label_from_file, label_table
from distillkit.teacher.logits_file import LogitsFile
from distillkit.teacher.word_vectors import word_vectors
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest
from distillkit.training.inference import predict_logits

COLUMNS = ColumnsConfig()


def read_data(data: DataConfig, seed: int = 1) -> dict[str, pa.Table]:
    """Read everything a task has into canonical tables.

    Args:
        data: The kind of task, sources and their columns.
        seed: Which rows become dev where the task has none.

    Returns:
        `train`, `dev`, where given `test` and `unlabelled`.

    Raises:
        InputError: A source is wrong, has one class or score only, or has a label that train has not.
    """
    if not data.train:
        raise InputError("no training data: give --data.train, a file with a text and a label column")
    tables = {"train": read_table(data.train, data.columns, task=data.task)}
    names = label_names(tables["train"], data.train)
    for split in ("dev", "test"):
        source = getattr(data, split)
        if source:
            tables[split] = read_table(source, data.columns, task=data.task, known=names)
    if "dev" not in tables:
        if not data.dev_fraction:
            raise InputError("no dev data: give --data.dev, or a --data.dev-fraction above 0")
        tables["train"], tables["dev"] = split_dev(tables["train"], data.dev_fraction, seed)
    if data.unlabelled:
        tables["unlabelled"] = pa.concat_tables(
            [
                read_table(source, data.columns, labels="ignored").select(_text_names(data.columns))
                for source in data.unlabelled
            ]
        )
    return tables


def train_teacher(
    data: DataConfig, teacher: TeacherConfig, output: Path, seed: int = 1, *, resume: bool = True
) -> dict[str, Any]:
    """Fine-tune an encoder on labelled text and save the checkpoint that is best on dev.

    Args:
        data: Labelled data and its kind of task; `train`, and `dev` or a `dev_fraction`.
        teacher: Which checkpoint, and how.
        output: Folder for the fine-tuned checkpoint: what `from_pretrained` takes.
        seed: Draws the head, the order of rows, dropout.
        resume: Go on from the checkpoints that a killed training of the same settings left; False: start over.

    Returns:
        `output`, `labels`, `dev_accuracy` (`dev_micro_f1`, `dev_pearson`), `best_epoch`, `history`.
    """
    _check_output(output, "teacher.yaml")
    tables = read_data(data, seed)
    labels = tables["train"]["label"].to_pylist()
    made_from = {
        "teacher": {"model": teacher.model, "max_tokens": teacher.max_tokens},
        "labels (SHA-256)": digest(labels),
    }
    checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
    model, tokenizer, result = fine_tune.fine_tune(tables["train"], tables["dev"], teacher, seed, checkpoints)
    if rank() == 0:
        with whole_folder(output) as folder:
            fine_tune.save(model, tokenizer, folder, teacher.max_tokens)
            (folder / "teacher.yaml").write_text(dump(teacher), encoding="utf-8")
            checkpoints.hand_over(folder)
        checkpoints.discard()
    return {"output": str(output), "labels": labels_of(model), **_fit_summary(data.task, result)}


def augment(
    source: str,
    target: Path,
    config: AugmentConfig | None = None,
    columns: ColumnsConfig = COLUMNS,
    held_out: Sequence[str] = (),
    unlabelled: Sequence[str] = (),
    seed: int = 1,
    *,
    task: Task = "classification",
    teacher: str = "",
    engine: Engine = "local",
    workers: int = 0,
) -> dict[str, Any]:
    """Build the transfer set of a file: its own texts byte for byte, more text if given, and variants by the paper's rules and others.

    Args:
        source: Training text; labels are kept where there are any.
        target: Parquet file to write; docs/files.md has its columns.
        config: Rates, iterations, tagger, mix.
        columns: Names of the columns of every source here.
        held_out: Dev and test sources: no added row equals one of theirs.
        unlabelled: More text; cut into sentences where the mix has them, varied only where `config.vary_unlabelled` says so.
        seed: Draws everything.
        task: What a label is.
        teacher: Encoder that infilling and neighbours ask where they do not name another.
        engine: local or ray.
        workers: Processes; 0: one a core where there is work enough. Under torchrun its processes share the work, and only process 0 reports.

    Returns:
        `output` and the yield that `build_transfer_set` reports.
    """
    _check_suffix(target)
    config, counts = config or AugmentConfig(), {}
    with leading() as here:
        if here:
            models = models_of(config, teacher, columns, unlabelled)
            sources = {"original": read_blocks(source, columns, task=task, labels="optional")}
            if unlabelled:
                blocks = (read_blocks(name, columns, labels="ignored") for name in unlabelled)
                sources["unlabelled"] = chain.from_iterable(blocks)
            others = [read_table(name, columns, labels="ignored") for name in held_out]
            counts = build_transfer_set(
                sources, target, config, seed, held_out=others, models=models, engine=engine, workers=workers
            )
    return {"output": str(target), **counts}


def models_of(
    config: AugmentConfig, teacher: str = "", columns: ColumnsConfig = COLUMNS, unlabelled: Sequence[str] = ()
) -> Models:
    """Find what the mix of a transfer set needs beside the training texts.

    Args:
        config: The mix, and each way's settings.
        teacher: Encoder where infilling and neighbours do not name another.
        columns: Names of the columns; with a second text the task is of pairs.
        unlabelled: Sources of more text.

    Raises:
        InputError: A model or file is not there, or there is nothing that could be cut into sentences.
    """
    mix, vectors = config.mix, config.neighbours.vectors
    if mix.sentences and (columns.text_pair or not unlabelled):
        why = "the task is of pairs" if columns.text_pair else "there is no unlabelled text"
        raise InputError(
            f"augment.mix.sentences is {mix.sentences}, but {why}; it cuts unlabelled single texts: give some, or set it to 0"
        )
    asked = teacher if vectors == "teacher" else ""
    if mix.neighbours and not asked and not Path(vectors).is_file():
        what = "no teacher is given" if vectors == "teacher" else "no such file"
        raise InputError(
            f"augment.neighbours.vectors {vectors!r}: {what}; expected teacher and an encoder for it, or a word-vector text file"
        )
    return Models(
        infill=_checkpoint("augment.infill.model", config.infill.model or teacher) if mix.infill else "",
        generated=_checkpoint("augment.generated.model", config.generated.model) if mix.generated else "",
        vectors="" if not mix.neighbours else _checkpoint("augment.neighbours.vectors", asked) if asked else vectors,
        ask=_word_vectors if asked else None,
    )


def _checkpoint(setting: str, model: str) -> str:
    """Return what a checkpoint can be loaded by, once its configuration has been."""
    if not model:
        raise InputError(f"{setting} is empty and no teacher is given; name a checkpoint")
    load_config_of(model)
    return resolve(model)


def _word_vectors(encoder: str, words: Sequence[str]) -> Tensor:
    # Any two labels will do: the head is not asked.
    return word_vectors(*load_classifier(encoder, ["no", "yes"]), words, progress="augment: word vectors")


def label(
    source: str,
    target: Path,
    teacher: str = "",
    config: LabelConfig | None = None,
    columns: ColumnsConfig = COLUMNS,
    *,
    task: Task = "classification",
    logits: str = "",
    labels: Sequence[str] = (),
    name: str = "teacher",
    engine: Engine = "local",
    workers: int = 0,
) -> dict[str, Any]:
    """Give every row of a table the logits of a fine-tuned teacher, or those of a file.

    Args:
        source: A transfer set, or any text; rows with a label are used to check the teacher.
        target: Folder of the logit store, as docs/files.md has it. Where it exists it grows by what is new.
        teacher: Checkpoint of a fine-tuned classifier.
        config: Batches, precision, shards.
        columns: Names of the source's columns.
        task: What the labels, and the logits of a file, are; a teacher says it itself.
        logits: In place of `teacher`, a .parquet or .jsonl file with text and `logits`.
        labels: What the logits of that file mean, in their order; empty: what the file says, or else the source's labels.
        name: The teacher's folder in the store.
        engine: local or ray; logits of a file are joined here in any case.
        workers: On Ray, how many actors; 0: one a GPU, or without any one a CPU but one.

    Returns:
        `output` and the summary of `teacher.label.label_table`.
    """
    if bool(teacher) == bool(logits):
        raise InputError("expected either --teacher, a checkpoint, or --logits, a file of logits")
    if labels and teacher:
        raise InputError("--labels says what the logits of --logits mean; a --teacher has its own labels")
    task = task_of(teacher) if teacher else task
    table, config = read_table(source, columns, task=task, labels="optional"), config or LabelConfig()
    if logits:
        summary = label_from_file(table, target, LogitsFile(logits, columns), config, labels, name)
    else:
        summary = label_table(table, target, teacher, config, mask_of(table), name, engine=engine, workers=workers)
    return {"output": str(target), **summary}


def train_student(
    transfer_set: str,
    dev: str,
    output: Path,
    student: StudentConfig | None = None,
    *,
    logits: Path | None = None,
    teacher: str = "",
    loss: LossConfig | None = None,
    training: TrainingConfig | None = None,
    columns: ColumnsConfig = COLUMNS,
    task: Task = "classification",
    vocabulary_from: str = "",
    seed: int = 1,
    progress: str = "student",
    resume: bool = True,
) -> dict[str, Any]:
    """Distil: train a student on a transfer set and its logits, keep what is best on dev.

    Args:
        transfer_set: What `augment` wrote, or any table of texts.
        dev: Labelled source.
        output: Folder for the student: what `from_pretrained` takes.
        student: Kind, sizes, vocabulary, embeddings.
        logits: The store that `label` wrote; None: learn from the gold labels of `transfer_set` alone.
        teacher: Its checkpoint, where `student.embeddings.source` is teacher or teacher-context.
        loss: What to match.
        training: How.
        columns: Names of the sources' columns.
        task: What the labels are, where there are no logits; a store says it itself.
        vocabulary_from: Another source for the vocabulary; empty: `transfer_set`.
        seed: Draws weights, order, dropout.
        progress: Name of the progress bar.
        resume: Go on from the checkpoints that a killed training of the same settings left; False: start over.

    Returns:
        `output`, `labels`, `dev_accuracy` (`dev_micro_f1`, `dev_pearson`), `best_epoch`, `history`, `vocabulary`; of several teachers
        `teacher_weights`, unless they differ from row to row.
    """
    student, loss = student or StudentConfig(), loss or LossConfig()
    training = training or Recipe().training
    _check_output(output, "student.yaml")
    gold_only = logits is None
    if gold_only and loss.asks_teacher:
        which = "alpha" if loss.alpha < 1 else "alpha_end"
        raise InputError(
            f"loss.{which} is {getattr(loss, which)}, which needs the teacher's logits: give --logits, or --loss.alpha 1 to learn from gold labels alone"
        )
    weights = loss.teacher_weights()
    task = task if logits is None else store_task(logits, weights)
    loss.check_task(task)
    table = read_table(transfer_set, columns, task=task, labels="required" if gold_only else "optional")
    dev_table = read_table(dev, columns, task=task)
    student.check_fits(pairs="text_pair" in table.column_names, source=transfer_set)
    words = read_table(vocabulary_from, columns, labels="ignored") if vocabulary_from else table
    mask = mask_of(words)
    texts, pairs = texts_of(words)
    names = label_names(table) if logits is None else joined_labels(logits, weights)
    targets, weights = (None, {}) if logits is None else teacher_targets(table, logits, loss, dev_table)
    asked = student.asks_teacher or loss.hidden or loss.attention
    taught = load_classifier(teacher) if teacher and asked else None
    ask = partial(word_vectors, *taught, progress="word vectors") if taught else None
    model, tokenizer = build_student([*texts, *(pairs or [])], names, student, seed, ask, mask, taught)
    model.config.problem_type = PROBLEM_TYPES[task]
    gold = table["label"].to_pylist() if "label" in table.column_names else []
    made_from = {"student": asdict(student), "loss": asdict(loss), "targets (SHA-256)": digest(targets, gold, names)}
    checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
    result = train_student_model(
        model, tokenizer, table, targets, dev_table, loss, training, seed,
        mask=mask_of(table), progress=progress, checkpoints=checkpoints, teacher_model=taught[0] if taught else None,
    )  # fmt: skip
    if rank() == 0:
        with whole_folder(output) as folder:
            model.cpu().save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            (folder / "student.yaml").write_text(dump(student), encoding="utf-8")
            checkpoints.hand_over(folder)
        checkpoints.discard()
    summary = {"output": str(output), "labels": names, "vocabulary": len(tokenizer), **_fit_summary(task, result)}
    return summary | ({"teacher_weights": weights} if len(weights) > 1 else {})


def evaluate(model: str, source: str, columns: ColumnsConfig = COLUMNS, teacher: str = "") -> dict[str, Any]:
    """Measure a model, student or teacher, on labelled text.

    Args:
        model: Folder, package or hub name of a fine-tuned model, which says itself what a label is.
        source: Labelled source.
        columns: Names of its columns.
        teacher: Another model of the same task, to report agreement with.

    Returns:
        What `measure.metrics.metrics` does.
    """
    task = task_of(model)
    table = read_table(source, columns, task=task)
    logits, names = classify(model, table, source)
    other = classify(teacher, table, source, names)[0] if teacher else None
    return metrics(task, logits, gold_of(table, names, task), names, other)


def classify(
    model: str, table: pa.Table, source: str, order: Sequence[str] | None = None
) -> tuple[np.ndarray, list[str]]:
    """Return a model's logits for a canonical table, (N, C) float32, and the C labels they are for.

    Args:
        model: Folder, package or hub name of a fine-tuned model.
        table: N rows.
        source: Named in errors.
        order: Labels in the order wanted; None: the model's own.

    Raises:
        InputError: The table has a label that the model has not, or of another task, or the model's labels are not those of `order`.
    """
    network, tokenizer = load_classifier(model)
    names = labels_of(network)
    if "label" in table.column_names:
        check_task(table, task_of_model(network.config), source)
        if all(name == f"LABEL_{i}" for i, name in enumerate(names)):
            names = match_labels(names, label_names(table, source), model)
        check_labels_known(table, names, source)
    rows = encode(tokenizer, *texts_of(table), max_tokens_of(network, tokenizer))
    logits = predict_logits(network, rows).numpy()
    if order is None:
        return logits, names
    if set(names) != set(order):
        raise InputError(
            f"{model}: its labels ({', '.join(names)}) are not those it is compared with ({', '.join(order)})"
        )
    return logits[:, [names.index(name) for name in order]], list(order)


def predict(model: str, rows: Iterable[tuple[str, str | None]], batch_rows: int = 64) -> Iterator[dict[str, Any]]:
    """Answer texts or pairs as they come.

    Args:
        model: Folder, package or hub name of a fine-tuned model.
        rows: (text, None) or (text, second text).
        batch_rows: Rows a forward pass; 1 answers each row at once.

    Yields:
        For each row, in order, `text`, `text_pair` (pairs only) and the answer: `label` and `probabilities` by label; of a multi-label model
        `labels`, those with a probability above 0.5, and `probabilities`; of a regression `score`.
    """
    network, tokenizer = load_classifier(model)
    names, limit, task = labels_of(network), max_tokens_of(network, tokenizer), task_of_model(network.config)
    for group in _groups(rows, batch_rows):
        texts, pairs = [text for text, _ in group], [pair for _, pair in group if pair is not None]
        encoded = encode(tokenizer, texts, pairs or None, limit)
        logits = predict_logits(network, encoded).numpy().astype(np.float64)
        for (text, pair), answer in zip(group, _answers(task, logits, names), strict=True):
            yield ({"text": text} if pair is None else {"text": text, "text_pair": pair}) | answer


def _answers(task: Task, logits: np.ndarray, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Say what each row's logits, (N, C), mean."""
    if task == "regression":
        yield from ({"score": score} for score in logits[:, 0].tolist())
        return
    for p in expit(logits) if task == "multi-label" else softmax(logits, axis=1):
        if task == "multi-label":
            found: dict[str, Any] = {"labels": [name for name, share in zip(names, p, strict=True) if share > 0.5]}
        else:
            found = {"label": names[int(p.argmax())]}
        yield found | {"probabilities": dict(zip(names, p.tolist(), strict=True))}


def _groups(rows: Iterable[tuple[str, str | None]], size: int) -> Iterator[list[tuple[str, str | None]]]:
    group: list[tuple[str, str | None]] = []
    for row in rows:
        if group and (len(group) == size or (row[1] is None) != (group[0][1] is None)):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _text_names(columns: ColumnsConfig) -> list[str]:
    return ["text", "text_pair"] if columns.text_pair else ["text"]


def _fit_summary(task: Task, result: Any) -> dict[str, Any]:
    return {f"dev_{SCORES[task]}": result.best_score, "best_epoch": result.best_epoch, "history": result.history}


def _check_output(output: Path, ours: str) -> None:
    """Refuse to replace anything but what an earlier call wrote."""
    if output.is_dir() and any(output.iterdir()) and not (output / ours).is_file():
        raise InputError(f"{output}: holds other files, which would be lost; choose a new or empty folder")


def _check_suffix(target: Path) -> None:
    if target.suffix != ".parquet":
        raise InputError(f"{target}: expected a target that ends in .parquet")
