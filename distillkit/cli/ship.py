"""The commands that take a model out of the workshop."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from distillkit.cli.command import Command
from distillkit.cli.stages import Columns
from distillkit.recipe import ColumnsConfig


@dataclass
class Export:
    """Write a model as a bundle that answers by ONNX Runtime, without torch, and hold its answers against torch's first.

    Example: distillkit export runs/quickstart/student/model runs/quickstart/bundle --source embedded:reviews/dev
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier with a fast tokenizer, student or teacher."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Folder to write; with --one-file a file."""
    source: str = ""
    """Texts or pairs to compare both on, beside some that are made to be hard."""
    one_file: bool = False
    """Write one file in place of a folder."""
    columns: Columns = field(default_factory=ColumnsConfig)


@dataclass
class Bench:
    """Measure what models cost to serve: size, memory, start, milliseconds and rows a second, in torch and in ONNX Runtime, by turns.

    Example: distillkit bench runs/quickstart/student/model runs/quickstart/teacher/model --source embedded:reviews/dev
    """

    models: Annotated[tuple[str, ...], Positional, arg(metavar="MODEL...")]
    """Classifiers (folder, package:NAME, hub name) or bundles; the last is what the others are compared with."""
    source: str
    """Texts or pairs to answer, yours if you can."""
    output: Path = Path("runs/bench")
    """Folder for bench.json, bench.md and bench.svg."""
    forms: tuple[str, ...] = ("torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8")
    """Of models that are no bundles."""
    batch_sizes: tuple[int, ...] = (1, 8, 32, 256)
    """Rows a call."""
    threads: tuple[int, ...] = ()
    """Of each call; none: 1, and all cores."""
    rows: int = 500
    """Of the source, at most."""
    columns: Columns = field(default_factory=ColumnsConfig)


def _bench(command: Bench) -> dict[str, Any]:
    from distillkit.bench.run import bench

    result = bench(
        command.models, command.source, command.output, command.columns, forms=command.forms, batch_sizes=command.batch_sizes,
        threads=command.threads, rows=command.rows,
    )  # fmt: skip
    first = f"{result['threads'][0]} x {command.batch_sizes[0]}"
    rates = {form["name"]: round(form["speed"][first]["rows_per_second"], 1) for form in result["forms"]}
    return {"output": str(command.output), "rows_per_second": rates}


@dataclass
class Cascade:
    """Find how sure a student must be to answer alone, so that its teacher is asked as seldom as an accuracy allows; leave the threshold in its bundle.

    Example: distillkit cascade runs/bundle runs/teacher embedded:reviews/dev --share 0.2
    """

    student: Annotated[str, Positional, arg(metavar="STUDENT")]
    """A bundle, which is given the threshold; or a checkpoint, which is only measured."""
    teacher: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A bundle or a checkpoint with the same labels."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Labelled dev rows."""
    accuracy: float = 0.0
    """Wanted, in percent, with as few rows to the teacher as can be; with neither this nor --share the teacher's own."""
    share: float = 0.0
    """Of the rows that may go to the teacher, 0 to 1, with the best accuracy."""
    output: Path = Path("runs/cascade")
    """Folder for cascade.json and cascade.svg."""
    columns: Columns = field(default_factory=ColumnsConfig)


def _cascade(command: Cascade) -> dict[str, Any]:
    from distillkit.cascade import cascade

    result = cascade(
        command.student, command.teacher, command.source, command.output, command.columns, accuracy=command.accuracy, share=command.share
    )  # fmt: skip
    shown = (
        "threshold",
        "temperature",
        "accuracy",
        "share",
        "held_out",
        "student_accuracy",
        "teacher_accuracy",
        "milliseconds",
    )
    return {"output": str(command.output), **{key: result[key] for key in shown}}


def _export(command: Export) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.export(command.model, command.target, command.source, command.columns, one_file=command.one_file)


COMMANDS: dict[str, Command] = {
    "export": Command(Export, _export),
    "bench": Command(Bench, _bench),
    "cascade": Command(Cascade, _cascade),
}
