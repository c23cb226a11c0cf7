"""Trainings whose results fill the cells of a table: each is kept as soon as it is done."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow as pa

Cell = dict[str, Any]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return the arguments that every such benchmark has."""
    found = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--results", type=Path, required=True)
    found.add_argument("--table", action="store_true", help="print what is there")
    found.add_argument("--transfer-set")
    found.add_argument("--logits", type=Path)
    found.add_argument("--teacher")
    found.add_argument("--dev")
    found.add_argument("--column", default="text")
    found.add_argument("--rows", type=int, default=0, help="about so many rows, evenly; 0: all")
    found.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    found.add_argument("--shard", default="0/1", help="of several processes the first is 0/N")
    return found


def finished(path: Path) -> list[Cell]:
    """Return the cells that are done."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def train_missing(
    arguments: argparse.Namespace, keys: Sequence[Cell], train: Callable[[Cell], Cell]
) -> None:
    """Train this shard's cells that are not done, and keep each.

    Args:
        arguments: Of `parser`.
        keys: What tells the cells apart.
        train: A key in, what was measured out.
    """
    shard, shards = map(int, arguments.shard.split("/"))
    for key in keys[shard::shards]:
        if any(key.items() <= cell.items() for cell in finished(arguments.results)):
            continue
        line = json.dumps(key | train(key)) + "\n"
        with arguments.results.open("a", encoding="utf-8") as file:
            file.write(line)
        sys.stderr.write(line)


def grouped(cells: Sequence[Cell], *names: str) -> dict[tuple[Any, ...], list[Cell]]:
    """Bring the cells together that differ in their seed alone."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        found.setdefault(tuple(cell[name] for name in names), []).append(cell)
    return found


def accuracies(group: Sequence[Mapping[str, float]]) -> list[str]:
    """Return mean and standard deviation of a group's accuracies, in percent, and how many."""
    scores = [100 * cell["accuracy"] for cell in group]
    spread = f"{stdev(scores):.2f}" if len(scores) > 1 else ""
    return [f"{mean(scores):.2f}", spread, str(len(group))]


def some(table: pa.Table, rows: int) -> pa.Table:
    """Take about so many rows, evenly; 0: all."""
    return table.take(list(range(0, len(table), -(-len(table) // rows)))) if rows else table
