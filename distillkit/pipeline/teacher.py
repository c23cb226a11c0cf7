"""`adapt_teacher`, `train_teacher`, `label`: the stages that need a teacher."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from distillkit.data.checked import fingerprint_or_name
from distillkit.data.files import replaceable, whole_folder
from distillkit.data.labels import labels_of
from distillkit.data.logits import join_logits, joined_labels
from distillkit.data.memory import source_of
from distillkit.data.scratch import Scratch
from distillkit.data.tables import mask_of, read_table
from distillkit.errors import InputError
from distillkit.pipeline.results import Adapted, Labelled, Trained
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
from distillkit.teacher.checkpoint import SCRATCH, task_of
from distillkit.teacher.endpoint.label import label_from_endpoint, plan_endpoint
from distillkit.teacher.label import label_from_file, label_table
from distillkit.teacher.logits_file import LogitsFile
from distillkit.teacher.zero_shot import label_zero_shot
from distillkit.training.checkpoints import Checkpoints, checkpoint_folder, digest

if TYPE_CHECKING:
    from distillkit.data.memory import Rows

# Raise it when the same settings and inputs give another result: runs then do the stage again.
ADAPT_VERSION = 3


def adapt_teacher(
    config: AdaptConfig, model: str, output: Path, seed: int = 1, *, resume: bool = True
) -> Adapted:
    """Continue an encoder's pre-training on raw text; save what predicts held-out text best.

    Args:
        config: The text, what is masked, what is learnt, and how.
        model: The checkpoint to start from; or `scratch`, for what `config.scratch` says.
        output: Folder for the adapted checkpoint: what `train_teacher` and `from_pretrained` take.
        seed: Draws the held-out masks, new heads, the order of rows, masks, dropout.
        resume: Go on from the checkpoints that a killed training of the same settings left; False:
            start over.
    """
    output, masking = Path(output), config.masking
    settings = {
        "model": model,
        "segmenter": config.text.segmenter,
        **asdict(masking),
        **asdict(config.objectives),
        "similar (SHA-256)": fingerprint_or_name(masking.similar),
    }
    made_from = {"adapt": settings}
    if model == SCRATCH:
        made_from["adapt.scratch"] = asdict(config.scratch)
    with replaceable(output, "adapt.yaml"):
        checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
        adapted = adapt.adapt(config, model, seed, checkpoints)
        if rank() == 0:
            with whole_folder(output) as folder:
                adapt.save(adapted, folder)
                (folder / "adapt.yaml").write_text(dump(config), encoding="utf-8")
                checkpoints.hand_over(folder)
            checkpoints.discard()
    found = adapted.result
    return Adapted(str(output), adapted.text, adapted.held_out, found.best_epoch, found.history)


# Raise it when the same settings and inputs give another result: runs then do the stage again.
TEACHER_VERSION = 1


def train_teacher(
    data: DataConfig,
    teacher: TeacherConfig,
    output: Path,
    seed: int = 1,
    *,
    resume: bool = True,
    answers: Path | None = None,
) -> Trained:
    """Fine-tune an encoder on labelled text and save the checkpoint that is best on dev.

    Args:
        data: Labelled data and its kind of task; `train`, and `dev` or a `dev_fraction`. They may
            be rows in memory, as `data.memory.source_of` takes them.
        teacher: Which checkpoint, and how.
        output: Folder for the fine-tuned checkpoint: what `from_pretrained` takes.
        seed: Draws the head, the order of rows, dropout.
        resume: Go on from the checkpoints that a killed training of the same settings left; False:
            start over.
        answers: Logit store with a service's log-probabilities of every training row, which are learnt
            in place of the labels.
    """
    output = Path(output)
    with replaceable(output, "teacher.yaml"):
        tables = read_data(data, seed)
        train = tables["train"]
        given = None if answers is None else (join_logits(train, answers), joined_labels(answers))
        made_from = {
            "teacher": {"model": teacher.model, "max_tokens": teacher.max_tokens},
            "labels (SHA-256)": digest(train["label"].to_pylist() if given is None else given[0]),
        }
        checkpoints = Checkpoints(checkpoint_folder(output), made_from, resume=resume)
        model, tokenizer, result = fine_tune.fine_tune(
            train, tables["dev"], teacher, seed, checkpoints, given
        )
        if rank() == 0:
            with whole_folder(output) as folder:
                fine_tune.save(model, tokenizer, folder, teacher.max_tokens)
                (folder / "teacher.yaml").write_text(dump(teacher), encoding="utf-8")
                write_note(folder, pairs="text_pair" in train.column_names)
                checkpoints.hand_over(folder)
            checkpoints.discard()
    return Trained(
        str(output), labels_of(model), **result.summary(teacher.training.score_of(data.task))
    )


# Raise it when the same settings and inputs give another result: runs then do the stage again.
LABEL_VERSION = 1


def label(
    source: "Rows",
    target: Path,
    teacher: str = "",
    config: LabelConfig | None = None,
    columns: ColumnsConfig = COLUMNS,
    *,
    task: Task = "classification",
    logits: "Rows" = "",
    labels: Sequence[str] = (),
    name: str = "teacher",
    endpoint: str = "",
    model: str = "",
    dry_run: bool = False,
    engine: Engine = "local",
    workers: int = 0,
) -> Labelled:
    """Give every row of a table the logits of a fine-tuned teacher, of a file or of a service.

    Args:
        source: A transfer set, or any text, also in memory as `data.memory.source_of` takes it;
            rows with a label are used to check the teacher.
        target: Folder of the logit store, as docs/files.md has it. Where it exists it grows by what
            is new.
        teacher: Checkpoint of a fine-tuned classifier.
        config: Batches, precision, shards.
        columns: Names of the source's columns.
        task: What the labels, and the logits of a file, are; a teacher says it itself.
        logits: In place of `teacher`, text and `logits`: a .parquet or .jsonl file, or a frame.
        labels: What the logits of that file mean, or what the service chooses from, in their order;
            empty: what the file says, or else the source's labels. With `teacher`, which then is no
            classifier of them: what a zero-shot model chooses from.
        name: The teacher's folder in the store.
        endpoint: In place of `teacher`, the address of an OpenAI-compatible service; short for
            `config.endpoint.url`.
        model: The service's name of the model; short for `config.endpoint.model`.
        dry_run: Say what the service would be asked, and ask nothing.
        engine: local or ray; logits of a file or a service are brought here in any case.
        workers: On Ray, how many actors; 0: one per GPU; without GPUs, one per CPU except one.
    """
    source, logits = source_of(source, "source"), source_of(logits, "logits")
    target = Path(target)
    config = config or LabelConfig()
    asked = config.endpoint
    asked = replace(asked, url=endpoint or asked.url, model=model or asked.model)
    config, service = replace(config, endpoint=asked), bool(asked.url)
    if [bool(teacher), bool(logits), service].count(True) != 1:
        raise InputError(
            "expected either --teacher, a checkpoint, or --logits, a file of logits, or --endpoint, the address of a service"
        )
    if dry_run and not service:
        raise InputError("--dry-run says what an --endpoint would be asked; leave it out")
    if service and task != "classification":
        raise InputError(
            f"--data.task {task}: a service gives one class a text; expected classification"
        )
    zero_shot = bool(teacher and labels)
    task = task_of(teacher) if teacher and not zero_shot else task
    scratch = Scratch(target.parent)
    table = read_table(source, columns, task=task, labels="optional", scratch=scratch)
    if teacher and not zero_shot:
        check_reads(teacher, pairs="text_pair" in table.column_names, source=source)
    if service:
        by_service = plan_endpoint if dry_run else label_from_endpoint
        summary = by_service(table, target, config, labels, name)
    elif zero_shot:
        summary = label_zero_shot(table, target, teacher, config, labels, name)
    elif logits:
        file = LogitsFile(logits, columns, scratch)
        summary = label_from_file(table, target, file, config, labels, name)
    else:
        summary = label_table(
            table, target, teacher, config, mask_of(table), name, engine=engine, workers=workers
        )
    return Labelled(str(target), **summary)
