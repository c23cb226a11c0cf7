"""The command line: parse, one library call, print. Results on stdout, everything else on stderr."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import OmitSubcommandPrefixes, Positional, arg

from distillkit import shelf
from distillkit.errors import InputError, Preempted
from distillkit.processes import rank, world
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
    load_config,
    load_recipe,
)
from distillkit.tune.space import SearchConfig

T = TypeVar("T")
# The same flags, --data.columns.*, whether a command takes a whole task or one source.
Columns = Annotated[ColumnsConfig, arg(name="data.columns")]
TaskKind = Annotated[Task, arg(name="data.task")]


@dataclass
class List:
    """Show what is on the shelves: recipes, teachers, students.

    Example: distillkit list
    """


@dataclass
class Run:
    """Run a recipe from labelled text to a proven student; finished stages are kept, so the same command resumes.

    Example: distillkit run quickstart
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class Ladder:
    """Train a recipe's student on more and more, from gold labels to the full transfer set, and say what each step is worth.

    Finished students are kept, so the same command resumes, and more seeds or rungs are added to what is there.

    Example: distillkit ladder quickstart --seeds 3 --rungs gold originals full
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    rungs: tuple[str, ...] = ()
    """Which to train: majority, tfidf, gold, hard, originals, no-RULE, full, in-domain, teacher; none: all that the recipe has."""
    seeds: int = 3
    """Students of each rung, with the seeds --seed, --seed + 1, ...; the teacher is the one of --seed."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs; the ladder is in <runs>/<name>/ladder."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class Doctor:
    """Say what is wrong with a recipe's data and teacher, and which student they speak for, before hours are spent; writes nothing.

    Example: distillkit doctor quickstart --teacher runs/quickstart/teacher/model
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    teacher: str = ""
    """A fine-tuned checkpoint to examine; empty: that of the run's folder, if it is there."""
    logits: str = ""
    """A logit store to examine; empty: that of the run's folder, if it is there."""
    rows: int = 1000
    """Dev rows that the teacher is asked about, at most; about half of them it is asked ten times, their words in another order or masked."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class Tune:
    """Search a student's settings over a run's logits: dev score against milliseconds and megabytes.

    Finished trials are kept, so the same command resumes, and a larger --trials adds to what is there.

    Example: distillkit tune quickstart --trials 40
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below, its student the first trial."""
    trials: int = 40
    """Students in all, those from before included."""
    tolerance: float = 0.5
    """How far below the best dev score best.yaml may be, in points (hundredths), to be faster and smaller."""
    study: str = ""
    """Name of one of several searches over the same logits; empty: the one without a name."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs; the search is in <runs>/<name>/tune, or <runs>/<name>/tune-<study>."""
    search: SearchConfig = field(default_factory=SearchConfig)
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class TrainTeacher:
    """Fine-tune an encoder on labelled text; keep the epoch that is best on dev.

    Example: distillkit train-teacher minilm-l6 --data.train embedded:reviews/train --data.dev embedded:reviews/dev --output runs/teacher
    """

    teacher_name: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A teacher's name on the shelf, or a .yaml file; its values are the defaults below."""
    output: Path
    """Folder for the fine-tuned checkpoint."""
    data: DataConfig = field(default_factory=DataConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    seed: int = 1
    """Draws the new head, the order of rows, dropout."""
    resume: bool = True
    """Go on from the checkpoints that a killed training left; --no-resume starts over."""


@dataclass
class Augment:
    """Build the transfer set of a file by the three rules of Tang et al. 2019 and, where augment.mix says so, in other ways.

    Example: distillkit augment embedded:reviews/train runs/transfer.parquet --held-out embedded:reviews/dev embedded:reviews/test
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Training text: a file, embedded:NAME/SPLIT or datasets:NAME[:CONFIG]:SPLIT."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Parquet file to write."""
    held_out: tuple[str, ...] = ()
    """Dev and test sources: no added row equals one of theirs."""
    unlabelled: tuple[str, ...] = ()
    """More text; cut into sentences with --augment.mix.sentences, varied only with --augment.vary-unlabelled."""
    teacher: str = ""
    """Encoder that infilling and neighbours ask where they do not name another: a folder, package:NAME, or a hub name."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """What a label is: one class a text, any number of labels, or a number."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    engine: Engine = "local"
    """local: processes of this machine; ray: a Ray cluster (pip install 'distillkit[ray]'). The bytes written are the same."""
    workers: int = 0
    """Processes; 0: one a core where there is work enough."""
    seed: int = 1
    """Draws everything."""


@dataclass
class Label:
    """Give every row of a table the teacher's logits; interrupted, it resumes, and several processes share the work.

    Example: distillkit label runs/transfer.parquet runs/logits --teacher runs/teacher
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """A transfer set, or any text; rows with a label are used to check the teacher."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Folder of the logit store; an existing one grows by what is new."""
    teacher: str = ""
    """Checkpoint of a fine-tuned classifier: a folder, package:NAME, or a hub name."""
    logits: str = ""
    """In place of a teacher, logits from anywhere: a .parquet or .jsonl file with text and logits, a list of numbers a row."""
    labels: tuple[str, ...] = ()
    """What the logits of that file mean, in their order; none: what the file says, or else the source's labels."""
    name: str = "teacher"
    """The teacher's folder in the store, which may hold several teachers side by side."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """What the logits of that file are for: one class a text, any number of labels, or a number; a teacher says it itself."""
    label: LabelConfig = field(default_factory=LabelConfig)
    engine: Engine = "local"
    """local: this process, and all others on the same store; ray: actors on a Ray cluster (pip install 'distillkit[ray]')."""
    workers: int = 0
    """On Ray, how many actors; 0: one a GPU, or without any one a CPU but one."""


@dataclass
class TrainStudent:
    """Train a student on a transfer set and its logits; keep the epoch that is best on dev.

    Example: distillkit train-student bilstm --transfer-set runs/transfer.parquet --logits runs/logits --teacher runs/teacher
    --dev embedded:reviews/dev --output runs/student
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
    """Without --logits, what a label is: one class a text, any number of labels, or a number; a store says it itself."""
    student: StudentConfig = field(default_factory=StudentConfig)
    training: TrainingConfig = field(default_factory=lambda: Recipe().training)
    loss: LossConfig = field(default_factory=LossConfig)
    seed: int = 1
    """Draws weights, order, dropout."""
    resume: bool = True
    """Go on from the checkpoints that a killed training left; --no-resume starts over."""


@dataclass
class Evaluate:
    """Measure a model, student or teacher, on labelled text; it says itself whether for classes, labels or scores.

    Example: distillkit evaluate runs/quickstart/student/model embedded:reviews/test --teacher runs/quickstart/teacher/model
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
    """Answer texts, one JSON line each: text, and label (labels) and probabilities, or score.

    Example: echo 'I would go again tomorrow.' | distillkit predict runs/quickstart/student/model
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")] = "-"
    """A source, or - for stdin: one text a line, the two texts of a pair split by a tab."""
    columns: Columns = field(default_factory=ColumnsConfig)


def _list(_: List) -> Iterator[dict[str, str]]:
    return (
        {"shelf": name, "name": entry, "what": shelf.description(path)}
        for name in shelf.SHELVES
        for entry, path in shelf.entries(name).items()
    )


def _in_one_process(command: str) -> None:
    if world() > 1:
        raise InputError(
            f"{command} works in one process, and torchrun has started {world()}: start {command} without it, or give it single stages, such as train-student"
        )


def _run(command: Run) -> dict[str, Any]:
    from distillkit import runs

    _in_one_process("run")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    result = runs.run(command.settings, folder)
    score = SCORES[command.settings.data.task]
    scores = {
        name: {split: model[split][score] for split in ("dev", "test") if split in model}
        for name, model in result["models"].items()
    }
    return {"output": str(folder), score: scores}


def _ladder(command: Ladder) -> dict[str, Any]:
    from distillkit.ladder import ladder

    _in_one_process("ladder")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    result = ladder(command.settings, folder, command.rungs, command.seeds)
    score = SCORES[command.settings.data.task]
    shown = (score, f"{score}_sd", "difference", "mcnemar_p")
    rungs = {
        name: {
            split: {key: rung[split][key] for key in shown if key in rung[split]}
            for split in ("dev", "test")
            if split in rung
        }
        for name, rung in result["rungs"].items()
    }
    return {"output": str(folder / "ladder"), "rungs": rungs}


def _doctor(command: Doctor) -> Iterator[dict[str, Any]]:
    from distillkit.doctor.examine import doctor
    from distillkit.doctor.findings import findings_table

    _in_one_process("doctor")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    report = doctor(command.settings, command.teacher, command.logits, folder, command.rows)
    sys.stderr.write(findings_table(report) + "\n")
    yield report
    if report["errors"]:
        raise InputError(f"{command.recipe}: errors found: {report['errors']}; what to do stands above")


def _tune(command: Tune) -> dict[str, Any]:
    from distillkit.tune.study import tune

    _in_one_process("tune")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    result = tune(command.settings, folder, command.search, command.trials, command.tolerance, command.study)
    shown = ("trial", "score", "milliseconds", "megabytes")
    recipes, best = ({key: result["trials"][number][key] for key in shown} for number in (0, result["best"]))
    output = str(folder / (f"tune-{command.study}" if command.study else "tune"))
    return {"output": output, "trials": len(result["trials"]), "recipe": recipes, "best": best}


def _train_teacher(command: TrainTeacher) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.train_teacher(command.data, command.teacher, command.output, command.seed, resume=command.resume)


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
        command.source, command.target, command.teacher, command.label, command.columns, task=command.task, logits=command.logits,
        labels=command.labels, name=command.name, engine=command.engine, workers=command.workers,
    )  # fmt: skip


def _train_student(command: TrainStudent) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.train_student(
        command.transfer_set, command.dev, command.output, command.student, logits=command.logits, teacher=command.teacher,
        loss=command.loss, training=command.training, columns=command.columns, task=command.task, seed=command.seed, resume=command.resume,
    )  # fmt: skip


def _evaluate(command: Evaluate) -> dict[str, Any]:
    from distillkit import pipeline
    from distillkit.measure.report import metrics_table

    report = pipeline.evaluate(command.model, command.source, command.columns, command.teacher)
    sys.stderr.write(metrics_table(report) + "\n")
    return report


def _predict(command: Predict) -> Iterator[dict[str, Any]]:
    from distillkit import pipeline
    from distillkit.data.tables import paired, read_table, texts_of

    if command.source == "-":
        # A person at a terminal wants each answer at once; a pipe wants them fast.
        return pipeline.predict(command.model, _stdin_rows(), 1 if sys.stdin.isatty() else 64)
    rows = paired(*texts_of(read_table(command.source, command.columns, labels="ignored")))
    return pipeline.predict(command.model, rows)


def _stdin_rows() -> Iterator[tuple[str, str | None]]:
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"stdin:{number}: byte {error.start + 1} of the line is not UTF-8") from None
        text, _, pair = line.partition("\t")
        yield text, pair or None


# name: what is parsed, what is called, and, where the first word names a shelf file, how its values become the defaults
COMMANDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[str], dict[str, Any]] | None]] = {
    "list": (List, _list, None),
    "run": (Run, _run, lambda name: {"recipe": name, "settings": load_recipe(name)}),
    "ladder": (Ladder, _ladder, lambda name: {"recipe": name, "settings": load_recipe(name)}),
    "doctor": (Doctor, _doctor, lambda name: {"recipe": name, "settings": load_recipe(name)}),
    "tune": (Tune, _tune, lambda name: {"recipe": name, "settings": load_recipe(name)}),
    "train-teacher": (
        TrainTeacher,
        _train_teacher,
        lambda name: {"teacher_name": name, "teacher": load_config("teachers", name, TeacherConfig())},
    ),
    "augment": (Augment, _augment, None),
    "label": (Label, _label, None),
    "train-student": (
        TrainStudent,
        _train_student,
        lambda name: {"student_name": name, "student": load_config("students", name, StudentConfig())},
    ),
    "evaluate": (Evaluate, _evaluate, None),
    "predict": (Predict, _predict, None),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments; None: those of the process.

    Returns:
        Exit status: 0 fine, 1 a user's mistake. Usage errors leave with 2, as the parser does.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(_overview())
        return 0
    if argv[0] == "--version":
        from distillkit import __version__

        sys.stdout.write(f"distillkit {__version__}\n")
        return 0
    if argv[0] not in COMMANDS:
        close = get_close_matches(argv[0], COMMANDS, 1)
        sys.stderr.write(
            f"distillkit: no command {argv[0]!r}; {f'did you mean {close[0]!r}?' if close else 'see distillkit --help'}\n"
        )
        return 2
    _quieten()
    try:
        kind, call, from_shelf = COMMANDS[argv[0]]
        command: Any = _parse(kind, argv[0], argv[1:], from_shelf)
        out = sys.stdout
        with redirect_stdout(
            sys.stderr
        ):  # deepspeed, imported by transformers wherever it is installed, logs to stdout
            result = call(command)
            for line in result if isinstance(result, Iterator) else [result]:
                if rank() == 0:  # of the processes that torchrun starts one prints
                    out.write(json.dumps(line, ensure_ascii=False) + "\n")
    except InputError as error:
        sys.stderr.write(f"distillkit: {error}\n")
        return 1
    except Preempted as stopped:
        sys.stderr.write(f"distillkit: {stopped}; the same command goes on from there\n")
        return 130 if stopped.signal == signal.SIGINT else 0
    except KeyboardInterrupt:
        sys.stderr.write("distillkit: interrupted; the same command goes on from what is finished\n")
        return 130
    except BrokenPipeError:
        # The reader of our output has what it wants (| head).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parse(kind: type[T], name: str, argv: list[str], from_shelf: Callable[[str], dict[str, Any]] | None) -> T:
    options: dict[str, Any] = {"prog": f"distillkit {name}", "config": (OmitSubcommandPrefixes,)}
    if from_shelf is None or not argv or argv[0].startswith("-"):
        return tyro.cli(kind, args=argv, **options)
    fixed = from_shelf(argv[0])

    # What the shelf file says stands in for the defaults; a field without a default is still required.
    required = (f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)  # type: ignore[arg-type]
    missing = {name: tyro.MISSING for name in required if name not in fixed}
    return tyro.cli(kind, args=argv[1:], default=kind(**fixed, **missing), **options)


def _quieten() -> None:
    """Keep transformers' own bars and reports out of the way of ours, unless the user has asked for them."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    # Without it two busy processes on one machine wait for each other's spinning threads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _overview() -> str:
    lines = [
        "distillkit: labelled text -> teacher -> transfer set -> logits -> student -> proof",
        "",
        "usage: distillkit COMMAND ...",
        "",
    ]
    lines += [f"  {name:<14} {(kind.__doc__ or '').partition(chr(10))[0]}" for name, (kind, _, _) in COMMANDS.items()]
    lines += [
        "",
        "distillkit COMMAND --help shows a command's options, their defaults and an example.",
        "Start here: distillkit run quickstart",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
