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


def _export(command: Export) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.export(command.model, command.target, command.source, command.columns, one_file=command.one_file)


COMMANDS: dict[str, Command] = {"export": Command(Export, _export)}
