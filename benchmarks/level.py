"""Simulate how evenly the processes of a training share large batches.

python benchmarks/level.py train.tsv --column sentence --tokenizer TEACHER

The work of a pass is its rows times the longest of them, in tokens, and what it costs besides, in
tokens as well. A step takes as long as the process with the most work. Ideal is the work of one process
alone, divided by the processes. `before` is the dealing of whole parts. runs/level.json has the figures,
as a file for benchmarks/results/.
"""

import argparse
from collections.abc import Sequence

import torch
from tables import keyed, save_results
from torch import Tensor
from transformers import AutoTokenizer

from distillkit.data.batches import encode, shuffled_batches
from distillkit.data.content import texts_of
from distillkit.data.tables import read_table
from distillkit.measure.report import table
from distillkit.recipe import ColumnsConfig
from distillkit.training.dealing import PASS_TOKENS, Pass, deal

_PART = 256
_HEAD = ["rows a batch", "device", "passes a process"]
_HEAD += [
    f"{when}, {what}" for what in ("tokens", "tokens and passes") for when in ("before", "now")
]


def _work(passes: Sequence[Pass], lengths: Tensor, besides: int) -> int:
    return sum(len(rows) * int(lengths[rows].max()) + besides for rows, _ in passes)


def simulate(lengths: Tensor, batch: int, device: str, processes: int) -> list[str]:
    """Deal out the full batches of an epoch; return the cells of a line."""
    parts = shuffled_batches(lengths, _PART, torch.Generator().manual_seed(1))
    size, passes, batches = batch // _PART, 0, 0
    ideal, before, now = [0.0, 0.0], [0, 0], [0, 0]
    for first in range(0, len(parts) - size, size):
        (alone,) = deal(parts[first : first + size], lengths, 1, pass_tokens=0)
        dealt = deal(
            parts[first : first + size], lengths, processes, pass_tokens=PASS_TOKENS[device]
        )
        batches, passes = batches + 1, passes + len(dealt[0])
        whole = [alone[process::processes] for process in range(processes)]
        for i, besides in enumerate((0, PASS_TOKENS[device])):
            ideal[i] += _work(alone, lengths, besides) / processes
            before[i] += max(_work(own, lengths, besides) for own in whole)
            now[i] += max(_work(own, lengths, besides) for own in dealt)
    shares = [f"{100 * ideal[i] / taken[i]:.1f} %" for i in (0, 1) for taken in (before, now)]
    return [f"{batch:,}", device, f"{passes / batches:.1f}", *shares]


def main() -> None:
    """Simulate each batch on each device, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("train")
    parser.add_argument("--column", default="text")
    parser.add_argument("--tokenizer", required=True, help="a checkpoint")
    parser.add_argument("--batches", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--processes", type=int, default=8)
    given = parser.parse_args()
    data = read_table(given.train, ColumnsConfig(text=given.column))
    rows = encode(AutoTokenizer.from_pretrained(given.tokenizer), *texts_of(data), 128)
    lines = [_HEAD] + [
        simulate(rows.lengths, batch, device, given.processes)
        for batch in given.batches
        for device in PASS_TOKENS
    ]
    print(table(lines))
    what = f"step time of {given.processes} processes against ideal, simulated, {len(data):,} rows"
    save_results("level", what, [], keyed(lines))


if __name__ == "__main__":
    main()
