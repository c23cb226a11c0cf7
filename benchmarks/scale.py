"""Measure what grows with the rows: seconds, memory and files at a few million rows, one core.

python benchmarks/scale.py duplicates --millions 1 3 10
python benchmarks/scale.py label --millions 1 3 30
python benchmarks/scale.py train --millions 1 3 30

`duplicates` runs `augment --augment.n-iter 0` on drawn texts of 3 to 7 words, one in ten of them twice.
`label` runs a teacher of one layer of 8 units, in fp32, with which the rows cost less than anything else.
`train` runs `train-student static` for one epoch on such texts in a store of drawn logits. Each size has a
process of its own. Peak MB is of the command and its children: what no file stands behind. Mapped MB are
pages of files, which the system takes back where it needs them. SCALE_FOLDER says where the files are: 30
million rows need some 15 GB. Time is the processor's, user and system, since another program may share the
cores.
runs/scale-NAME.json has the figures, as a file for benchmarks/results/.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from tables import keyed, save_results
from upath import UPath

from distillkit.data.tables import table_writer
from distillkit.measure.report import table
from distillkit.processes import log

_BLOCK, _WORDS = 100_000, 20_000
_TRAINING = ["--student.embeddings.source", "random", "--training.batch-size", "512"]
_HEADS = {
    "duplicates": ["rows", "microseconds a row", "peak MB", "most files", "duplicates"],
    "label": ["rows", "microseconds a row", "peak MB", "mapped MB"],
    "train": ["rows", "microseconds a row", "before the first step", "peak MB", "mapped MB"],
}


def write_rows(path: Path, rows: int, seed: int = 1, *, labelled: bool = True) -> None:
    """Write drawn texts, with labels or without; the last tenth of each block repeats its first."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{n}" for n in range(_WORDS)])
    types = [("text", pa.string()), ("label", pa.string())]
    schema = pa.schema(types if labelled else types[:1])
    with table_writer(path, schema) as writer:
        for begin in range(0, rows, _BLOCK):
            new = min(_BLOCK, rows - begin) * 9 // 10
            lengths = rng.integers(3, 8, new)
            drawn = words[rng.integers(0, len(words), lengths.sum())]
            texts = [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]
            texts += texts[: min(_BLOCK, rows - begin) - new]
            labels = np.where(np.arange(len(texts)) % 2, "yes", "no")
            block = pa.table({"text": texts, "label": labels})
            writer.write_table(block.select(schema.names))


def _files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _run(arguments: list[str], watch: Callable[[psutil.Process], None]) -> tuple[float, Any]:
    """Run a command; return its seconds of processor time and its answer."""
    command = [sys.executable, "-m", "distillkit", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        own = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                watch(own)
            time.sleep(0.5)
        assert process.stdout is not None
        found = json.loads(process.stdout.read())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, found


def duplicates(rows: int) -> list[str]:
    """Run `augment` on so many rows; return the cells of a line."""
    peak = files = 0
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "rows.parquet", Path(name) / "transfer.parquet"
        write_rows(source, rows)

        def watch(process: psutil.Process) -> None:
            nonlocal peak, files
            peak = max(peak, process.memory_full_info().uss)
            files = max(files, _files(target.with_name(f".{target.name}.work")))

        options = ["--augment.n-iter", "0", "--augment.tagger", "none", "--workers", "1"]
        seconds, found = _run(["augment", str(source), str(target), *options], watch)
    cells = [f"{rows:,}", f"{seconds / rows * 1e6:.1f}", f"{peak / 1e6:,.0f}", f"{files:,}"]
    return [*cells, f"{found['duplicates']:,}"]


def write_logits(source: Path, store: Path) -> None:
    """Give each text of a file drawn logits in a store, as `label` does with a teacher's."""
    from distillkit.data.logits import MANIFEST, shard_table, teacher_folder, write_shard
    from distillkit.data.readers import read_batches

    folder = teacher_folder(store, "teacher")
    folder.mkdir(parents=True)
    manifest = {"format": 2, "labels": ["no", "yes"], "head": "softmax", "storage": "fp16"}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    rng = np.random.default_rng(2)
    for _, block in read_batches(UPath(source), 16_384, ["text"]):
        logits = rng.normal(size=(len(block), 2)).astype(np.float32)
        write_shard(folder, shard_table(block, logits, "fp16", "drawn", ["no", "yes"]))


class _Peak:
    """The most memory that a command and its children have had, bytes."""

    def __init__(self) -> None:
        self.held = self.mapped = 0

    def look(self, process: psutil.Process) -> None:
        """Look at a process; what no file stands behind, and the pages of files."""
        found = [one.memory_info() for one in (process, *process.children(recursive=True))]
        self.held = max(self.held, sum(one.rss - one.shared for one in found))
        self.mapped = max(self.mapped, sum(one.shared for one in found))

    def cells(self) -> list[str]:
        return [f"{self.held / 1e6:,.0f}", f"{self.mapped / 1e6:,.0f}"]


def label(rows: int) -> list[str]:
    """Run `label` with a tiny teacher on so many rows; return the cells of a line."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    peak = _Peak()
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCALE_FOLDER")) as name:
        source, teacher = Path(name) / "rows.parquet", f"{name}/teacher"
        write_rows(source, rows, labelled=False)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(_WORDS))]
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        config = BertConfig(
            vocab_size=len(words), intermediate_size=8, **sizes, id2label={0: "no", 1: "yes"}
        )
        BertForSequenceClassification(config).save_pretrained(teacher)
        vocabulary = {word: number for number, word in enumerate(words)}
        BertTokenizerFast(vocab=vocabulary).save_pretrained(teacher)
        options = [str(source), f"{name}/store", "--teacher", teacher]
        seconds, _ = _run(["label", *options, "--label.precision", "fp32"], peak.look)
    return [f"{rows:,}", f"{seconds / rows * 1e6:.1f}", *peak.cells()]


def train(rows: int) -> list[str]:
    """Run `train-student` on so many rows; return the cells of a line."""
    peak, first = _Peak(), 0.0
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCALE_FOLDER")) as name:
        source, dev, output = (Path(name) / part for part in ("t.parquet", "dev.parquet", "out"))
        write_rows(source, rows)
        write_rows(dev, 1000, seed=3)
        write_logits(source, Path(name) / "logits")
        log_file = output.with_name(".out.training") / "log.jsonl"

        def watch(process: psutil.Process) -> None:
            nonlocal first
            peak.look(process)
            if not first and log_file.is_file():
                first = sum(process.cpu_times()[:4])

        options = ["--transfer-set", str(source), "--logits", f"{name}/logits", "--dev", str(dev)]
        options += ["--output", str(output), "--training.epochs", "1", *_TRAINING]
        seconds, _ = _run(["train-student", "static", *options], watch)
    per_row = [f"{spent / rows * 1e6:.1f}" for spent in (seconds, first)]
    return [f"{rows:,}", *per_row, *peak.cells()]


def main() -> None:
    """Measure each size in its own process, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=list(_HEADS))
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10])
    parser.add_argument("--one", type=int, help="measure this many rows here, and print the cells")
    given = parser.parse_args()
    measure: Any = {"duplicates": duplicates, "label": label, "train": train}[given.what]
    if given.one:
        print(json.dumps(measure(given.one)))
        return
    rows = [_HEADS[given.what]]
    for millions in given.millions:
        command = [sys.executable, __file__, given.what, "--one", f"{int(millions * 1e6)}"]
        log(" ".join(command))
        rows.append(json.loads(subprocess.check_output(command, text=True)))
    print(table(rows))
    save_results(f"scale-{given.what}", f"growth of {given.what}", [], keyed(rows))


if __name__ == "__main__":
    main()
