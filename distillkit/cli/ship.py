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


def _export(command: Export) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.export(command.model, command.target, command.source, command.columns, one_file=command.one_file)


COMMANDS: dict[str, Command] = {"export": Command(Export, _export), "bench": Command(Bench, _bench)}
