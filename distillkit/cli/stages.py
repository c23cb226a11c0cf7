"""The commands of single stages, one function of `distillkit.pipeline` each."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from distillkit.cli.command import Command
from distillkit.errors import InputError
from distillkit.recipe import (
    AdaptConfig,
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
    load_config,
)

# The same flags, --data.columns.*, whether a command takes a whole task or one source.
Columns = Annotated[ColumnsConfig, arg(name="data.columns")]
TaskKind = Annotated[Task, arg(name="data.task")]


@dataclass
class TrainTeacher:
    """Fine-tune an encoder on labelled text; keep the epoch that is best on dev.

    Example: distillkit train-teacher minilm-l6 --data.train embedded:reviews/train --data.dev
    embedded:reviews/dev --output runs/teacher
    """

    teacher_name: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A teacher's name on the shelf, or a .yaml file; its values are the defaults below."""
    output: Path
    """Folder for the fine-tuned checkpoint."""
    data: DataConfig = field(default_factory=DataConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    seed: int = 1
    """Seed of the new head, the order of rows, dropout."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""


@dataclass
class AdaptTeacher:
    """Adapt an encoder to text of the task's domain, or train a small one from scratch.

    Example: distillkit adapt-teacher minilm-l6 --adapt.text.sources reviews.txt --output
    runs/adapted
    """

    teacher_name: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A teacher's name on the shelf, or a .yaml file: its model is where this starts
    (scratch-small: from nothing)."""
    output: Path
    """Folder for the adapted checkpoint, which train-teacher takes as --teacher.model."""
    model: str = ""
    """The checkpoint to start from, in place of the teacher's: a folder, package:NAME, a hub name,
    or scratch."""
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    seed: int = 1
    """Seed of the held-out rows, new heads, the order of rows, masks, dropout."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""


@dataclass
class Augment:
    """Build a transfer set by the rules of Tang et al. 2019 and the methods of augment.mix.

    Example: distillkit augment embedded:reviews/train runs/transfer.parquet --held-out
    embedded:reviews/dev embedded:reviews/test
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Training text: a file, embedded:NAME/SPLIT or datasets:NAME[:CONFIG]:SPLIT."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Parquet file to write."""
    held_out: tuple[str, ...] = ()
    """Dev and test sources: no added row equals one of theirs."""
    unlabelled: tuple[str, ...] = ()
    """More text; cut into sentences with --augment.mix.sentences, varied only with
    --augment.vary-unlabelled."""
    teacher: str = ""
    """Encoder that infilling and neighbours ask where they do not name another: a folder,
    package:NAME, or a hub name."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """What a label is: one class a text, any number of labels, or a number."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    engine: Engine = "local"
    """local: processes of this machine; ray: a Ray cluster (pip install 'distillkit[ray]'). The
    bytes written are the same."""
    workers: int = 0
    """Processes; 0: one per core, fewer for few texts."""
    seed: int = 1
    """Seed of everything random."""


@dataclass
class Label:
    """Give every row of a table the teacher's logits.

    The same command resumes after an interruption. Several processes may work on one store.

    Example: distillkit label runs/transfer.parquet runs/logits --teacher runs/teacher
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """A transfer set, or any text; rows with a label are used to check the teacher."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Folder of the logit store; an existing one grows by what is new."""
    teacher: str = ""
    """Checkpoint of a fine-tuned classifier: a folder, package:NAME, or a hub name."""
    logits: str = ""
    """In place of a teacher, logits from anywhere: a .parquet or .jsonl file with text and logits,
    a list of numbers a row."""
    labels: tuple[str, ...] = ()
    """What the logits of that file mean, in their order; none: what the file says, or else the
    source's labels."""
    name: str = "teacher"
    """The teacher's folder in the store, which may hold several teachers side by side."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """What the logits of that file are for: one class a text, any number of labels, or a number; a
    teacher says it itself."""
    label: LabelConfig = field(default_factory=LabelConfig)
    engine: Engine = "local"
    """local: this process, and all others on the same store; ray: actors on a Ray cluster (pip
    install 'distillkit[ray]')."""
    workers: int = 0
    """Actors on Ray; 0: one per GPU; without GPUs, one per CPU except one."""


@dataclass
class TrainStudent:
    """Train a student on a transfer set and its logits; keep the epoch that is best on dev.

    Example: distillkit train-student bilstm --transfer-set runs/transfer.parquet --logits
    runs/logits --teacher runs/teacher --dev embedded:reviews/dev --output runs/student
    """

    student_name: Annotated[str, Positional, arg(metavar="STUDENT")]
    """A student's name on the shelf, or a .yaml file; its values are the defaults below."""
    transfer_set: str
    """What distillkit augment wrote, or any table of texts."""
    dev: str
    """Labelled development data."""
    output: Path
    """Folder for the student."""
    logits: Path | None = None
    """The store that distillkit label wrote; none: learn from gold labels, with --loss.alpha 1."""
    teacher: str = ""
    """The teacher's checkpoint, where student.embeddings.source or student.kind needs it."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """Without --logits, what a label is: one class a text, any number of labels, or a number; a
    store says it itself."""
    student: StudentConfig = field(default_factory=StudentConfig)
    training: TrainingConfig = field(default_factory=lambda: Recipe().training)
    loss: LossConfig = field(default_factory=LossConfig)
    seed: int = 1
    """Seed of weights, order of rows, dropout."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""


@dataclass
class Evaluate:
    """Measure a student or teacher on labelled text.

    Example: distillkit evaluate runs/quickstart/student/model embedded:reviews/test --teacher
    runs/quickstart/teacher/model
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Labelled data."""
    teacher: str = ""
    """Another classifier, to report agreement with."""
    columns: Columns = field(default_factory=ColumnsConfig)


@dataclass
class Predict:
    """Answer texts, one JSON line each: text, label or labels and probabilities, or score.

    Example: echo 'I would go again tomorrow.' | distillkit predict runs/quickstart/student/model
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier, or a bundle that distillkit export
    wrote."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")] = "-"
    """A source, or - for stdin: one text a line, the two texts of a pair split by a tab."""
    teacher: str = ""
    """With a bundle that distillkit cascade gave a threshold: the teacher's bundle, asked where the
    student is not sure."""
    columns: Columns = field(default_factory=ColumnsConfig)


def _train_teacher(command: TrainTeacher) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.train_teacher(
        command.data, command.teacher, command.output, command.seed, resume=command.resume
    )


def _adapt_teacher(command: AdaptTeacher) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.adapt_teacher(
        command.adapt, command.model, command.output, command.seed, resume=command.resume
    )


def _augment(command: Augment) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.augment(
        command.source,
        command.target,
        command.augment,
        command.columns,
        command.held_out,
        command.unlabelled,
        command.seed,
        task=command.task,
        teacher=command.teacher,
        engine=command.engine,
        workers=command.workers,
    )


def _label(command: Label) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.label(
        command.source,
        command.target,
        command.teacher,
        command.label,
        command.columns,
        task=command.task,
        logits=command.logits,
        labels=command.labels,
        name=command.name,
        engine=command.engine,
        workers=command.workers,
    )


def _train_student(command: TrainStudent) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.train_student(
        pipeline.StudentJob(
            command.transfer_set,
            command.dev,
            command.output,
            command.student,
            logits=command.logits,
            teacher=command.teacher,
            loss=command.loss,
            training=command.training,
            columns=command.columns,
            task=command.task,
            seed=command.seed,
            resume=command.resume,
        )
    )


def _evaluate(command: Evaluate) -> dict[str, Any]:
    from distillkit import pipeline
    from distillkit.measure.report import metrics_table

    report = pipeline.evaluate(command.model, command.source, command.columns, command.teacher)
    sys.stderr.write(metrics_table(report) + "\n")
    return report


def _predict(command: Predict) -> Iterator[dict[str, Any]]:
    from distillkit.runtime.bundle import is_bundle

    # A person at a terminal wants each answer at once; a pipe wants them fast.
    batch_rows = 1 if command.source == "-" and sys.stdin.isatty() else 64
    if is_bundle(Path(command.model)):  # needs neither torch nor transformers
        from distillkit.runtime import Predictor

        teacher = Predictor(command.teacher) if command.teacher else None
        predictor = Predictor(command.model, teacher=teacher)
        return predictor.stream(_rows(command, predictor.manifest.pairs), batch_rows)
    if command.teacher:
        raise InputError(
            f"--teacher: {command.model} is not a bundle; distillkit export writes one, distillkit cascade gives it a threshold"
        )
    if (
        find_spec("torch") is None
        and not command.model.startswith("package:")
        and not Path(command.model).exists()
    ):
        raise InputError(
            f"{command.model}: no such folder or file; expected a distillkit export bundle (other models need torch: pip install 'distillkit[train]')"
        )
    from distillkit import pipeline

    return pipeline.predict(command.model, _rows(command), batch_rows)


def _rows(command: Predict, pairs: bool | None = None) -> Iterable[tuple[str, str | None]]:
    """Return the rows to answer; `pairs`: what the model takes, None for either."""
    if command.source == "-":
        return _stdin_rows(pairs)
    if ":" not in command.source and not Path(command.source).exists():
        raise InputError(
            f"{command.source}: no such file or folder; expected a source, or - for stdin"
        )
    from distillkit.data.tables import paired, read_table, texts_of

    return paired(*texts_of(read_table(command.source, command.columns, labels="ignored")))


def _stdin_rows(pairs: bool | None) -> Iterator[tuple[str, str | None]]:
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(
                f"stdin:{number}: byte {error.start + 1} of the line is not UTF-8"
            ) from None
        text, _, pair = line.partition("\t")
        if pairs is not None and pairs != bool(pair):
            wanted = (
                "pairs, their two texts split by a tab"
                if pairs
                else "single texts, and this line has a tab"
            )
            raise InputError(f"stdin:{number}: this model answers {wanted}")
        yield text, pair or None


def _teacher(name: str) -> dict[str, Any]:
    return {"teacher_name": name, "teacher": load_config("teachers", name, TeacherConfig())}


def _student(name: str) -> dict[str, Any]:
    return {"student_name": name, "student": load_config("students", name, StudentConfig())}


def _encoder(name: str) -> dict[str, Any]:
    return {"teacher_name": name, "model": load_config("teachers", name, TeacherConfig()).model}


COMMANDS: dict[str, Command] = {
    "adapt-teacher": Command(AdaptTeacher, _adapt_teacher, _encoder),
    "train-teacher": Command(TrainTeacher, _train_teacher, _teacher),
    "augment": Command(Augment, _augment),
    "label": Command(Label, _label),
    "train-student": Command(TrainStudent, _train_student, _student),
    "evaluate": Command(Evaluate, _evaluate),
    "predict": Command(Predict, _predict),
}
