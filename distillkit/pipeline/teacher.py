"""`adapt_teacher`, `train_teacher`, `label`: the stages that need a teacher."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distillkit.data.files import check_replaceable, fingerprint, whole_folder
from distillkit.data.tables import mask_of, read_table
from distillkit.errors import InputError
from distillkit.pipeline.task import COLUMNS, check_reads, read_data, write_note
from distillkit.processes import rank
from distillkit.recipe import (
    AdaptConfig,
    ColumnsConfig,
    DataConfig,
    Engine,
    LabelConfig,
    Task,
    TeacherConfig,
    dump,
)
from distillkit.teacher import adapt, fine_tune
from distillkit.teacher.checkpoint import SCRATCH, labels_of, task_of
from distillkit.teacher.label import label_from_file, label_table
from distillkit.teacher.logits_file import LogitsFile
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest

# Raise it when the same settings and inputs give another result: runs then do the stage again.
ADAPT_VERSION = 1


def adapt_teacher(
    config: AdaptConfig, model: str, output: Path, seed: int = 1, *, resume: bool = True
) -> dict[str, Any]:
    """Continue an encoder's pre-training on raw text; save what predicts held-out text best.

    Args:
        config: The text, what is masked, what is learnt, and how.
        model: The checkpoint to start from; or `scratch`, for what `config.scratch` says.
        output: Folder for the adapted checkpoint: what `train_teacher` and `from_pretrained` take.
        seed: Draws the held-out masks, new heads, the order of rows, masks, dropout.
        resume: Go on from the checkpoints that a killed training of the same settings left; False:
            start over.

    Returns:
        `output`, `text` (documents, rows, tokens), `held_out` (`before` and `after`:
        `teacher.pretraining.measures`), `best_epoch`, `history`.
    """
    check_replaceable(output, "adapt.yaml")
    masking = config.masking
    settings = {
        "model": model,
        "segmenter": config.text.segmenter,
        **asdict(masking),
        **asdict(config.objectives),
        "files (SHA-256)": [
            fingerprint(Path(name)) for name in masking.files if Path(name).exists()
        ],
    }
    made_from = {"adapt": settings}
    if model == SCRATCH:
        made_from["adapt.scratch"] = asdict(config.scratch)
    checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
    adapted = adapt.adapt(config, model, seed, checkpoints)
    summary = {"text": adapted.text, "held_out": adapted.held_out}
    if rank() == 0:
        with whole_folder(output) as folder:
            adapt.save(adapted, folder)
            (folder / "adapt.yaml").write_text(dump(config), encoding="utf-8")
            checkpoints.hand_over(folder)
        checkpoints.discard()
    return {
        "output": str(output),
        **summary,
        "best_epoch": adapted.result.best_epoch,
        "history": adapted.result.history,
    }


# Raise it when the same settings and inputs give another result: runs then do the stage again.
TEACHER_VERSION = 1


def train_teacher(
    data: DataConfig, teacher: TeacherConfig, output: Path, seed: int = 1, *, resume: bool = True
) -> dict[str, Any]:
    """Fine-tune an encoder on labelled text and save the checkpoint that is best on dev.

    Args:
        data: Labelled data and its kind of task; `train`, and `dev` or a `dev_fraction`.
        teacher: Which checkpoint, and how.
        output: Folder for the fine-tuned checkpoint: what `from_pretrained` takes.
        seed: Draws the head, the order of rows, dropout.
        resume: Go on from the checkpoints that a killed training of the same settings left; False:
            start over.

    Returns:
        `output`, `labels`, `dev_accuracy` (`dev_micro_f1`, `dev_pearson`), `best_epoch`, `history`.
    """
    check_replaceable(output, "teacher.yaml")
    tables = read_data(data, seed)
    labels = tables["train"]["label"].to_pylist()
    made_from = {
        "teacher": {"model": teacher.model, "max_tokens": teacher.max_tokens},
        "labels (SHA-256)": digest(labels),
    }
    checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
    model, tokenizer, result = fine_tune.fine_tune(
        tables["train"], tables["dev"], teacher, seed, checkpoints
    )
    if rank() == 0:
        with whole_folder(output) as folder:
            fine_tune.save(model, tokenizer, folder, teacher.max_tokens)
            (folder / "teacher.yaml").write_text(dump(teacher), encoding="utf-8")
            write_note(folder, pairs="text_pair" in tables["train"].column_names)
            checkpoints.hand_over(folder)
        checkpoints.discard()
    return {"output": str(output), "labels": labels_of(model), **result.summary(data.task)}


# Raise it when the same settings and inputs give another result: runs then do the stage again.
LABEL_VERSION = 1


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
        target: Folder of the logit store, as docs/files.md has it. Where it exists it grows by what
            is new.
        teacher: Checkpoint of a fine-tuned classifier.
        config: Batches, precision, shards.
        columns: Names of the source's columns.
        task: What the labels, and the logits of a file, are; a teacher says it itself.
        logits: In place of `teacher`, a .parquet or .jsonl file with text and `logits`.
        labels: What the logits of that file mean, in their order; empty: what the file says, or
            else the source's labels.
        name: The teacher's folder in the store.
        engine: local or ray; logits of a file are joined here in any case.
        workers: On Ray, how many actors; 0: one a GPU, or without any one a CPU but one.

    Returns:
        `output` and the summary of `teacher.label.label_table`.
    """
    if bool(teacher) == bool(logits):
        raise InputError("expected either --teacher, a checkpoint, or --logits, a file of logits")
    if labels and teacher:
        raise InputError(
            "--labels says what the logits of --logits mean; a --teacher has its own labels"
        )
    task = task_of(teacher) if teacher else task
    table, config = (
        read_table(source, columns, task=task, labels="optional"),
        config or LabelConfig(),
    )
    if teacher:
        check_reads(teacher, pairs="text_pair" in table.column_names, source=source)
    if logits:
        summary = label_from_file(table, target, LogitsFile(logits, columns), config, labels, name)
    else:
        summary = label_table(
            table, target, teacher, config, mask_of(table), name, engine=engine, workers=workers
        )
    return {"output": str(target), **summary}
