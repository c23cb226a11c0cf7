"""Measure what grows with the rows: seconds, memory and files at many million rows, one core.

python benchmarks/scale.py duplicates --millions 1 3 10 30 100
python benchmarks/scale.py label --millions 1 3 10 30
python benchmarks/scale.py train --millions 1 3 10 30
python benchmarks/scale.py store --millions 3 30 200
python benchmarks/scale.py ray --millions 1 3 10

`duplicates` runs `augment --augment.n-iter 0` on drawn texts of 3 to 7 words, one in ten of them twice.
`label` runs a teacher of one layer of 8 units, in fp32, with which the rows cost less than anything else.
`train` runs `train-student static` for one epoch on such texts in a store of drawn logits. `store` does
so with 3 million texts among so many keys. `ray` runs `label` on Ray with 2 and 4 workers and on the local
engine, compares the bytes of the stores, and has the memory of the command's own process alone. Each size
has a process of its own. Peak MB is of the command and its children: what no file stands behind. Mapped MB
are pages of files, which the system takes back where it needs them. SCALE_FOLDER says where the files are:
30 million rows need some 15 GB. Time is the processor's, user and system, since another program may share
the cores.
runs/scale-NAME.json has the figures, as a file for benchmarks/results/.
"""

import argparse
import contextlib
import hashlib
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
    "duplicates": [
        *("rows", "microseconds a row", "peak MB", "mapped MB", "most files", "duplicates")
    ],
    "label": ["rows", "microseconds a row", "peak MB", "mapped MB"],
    "train": ["rows", "microseconds a row", "before the first step", "peak MB", "mapped MB"],
    "store": ["keys", "seconds before the first step", "peak MB", "mapped MB"],
    "ray": ["rows", "engine", "workers", "driver's peak MB", "bytes"],
}
_JOINED = 3_000_000  # rows that `store` joins


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


class _Peak:
    """The most memory that a command has had, bytes, with its children or without."""

    def __init__(self, *, children: bool = True) -> None:
        self.held = self.mapped = 0
        self._children = children

    def look(self, process: psutil.Process) -> None:
        """Look at a process; what no file stands behind, and the pages of files."""
        children = process.children(recursive=True) if self._children else []
        found = [one.memory_info() for one in (process, *children)]
        self.held = max(self.held, sum(one.rss - one.shared for one in found))
        self.mapped = max(self.mapped, sum(one.shared for one in found))

    def cells(self) -> list[str]:
        return [f"{self.held / 1e6:,.0f}", f"{self.mapped / 1e6:,.0f}"]


def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(dir=os.environ.get("SCALE_FOLDER"))


def duplicates(rows: int) -> list[list[str]]:
    """Run `augment` on so many rows; return the cells of a line."""
    peak, files = _Peak(), 0
    with _folder() as name:
        source, target = Path(name) / "rows.parquet", Path(name) / "transfer.parquet"
        write_rows(source, rows)

        def watch(process: psutil.Process) -> None:
            nonlocal files
            peak.look(process)
            files = max(files, _files(target.with_name(f".{target.name}.work")))

        options = ["--augment.n-iter", "0", "--augment.tagger", "none", "--workers", "1"]
        seconds, found = _run(["augment", str(source), str(target), *options], watch)
    cells = [f"{rows:,}", f"{seconds / rows * 1e6:.1f}", *peak.cells(), f"{files:,}"]
    return [[*cells, f"{found['duplicates']:,}"]]


def write_logits(source: Path, store: Path, keys: int = 0) -> None:
    """Give each text of a file drawn logits in a store, as `label` does with a teacher's.

    Args:
        source: The file.
        store: The store, new.
        keys: Keys of no text that are added, with logits of their own.
    """
    from distillkit.data.logits import MANIFEST, shard_table, teacher_folder, write_shard
    from distillkit.data.readers import read_batches

    folder = teacher_folder(store, "teacher")
    folder.mkdir(parents=True)
    manifest = {"format": 2, "labels": ["no", "yes"], "head": "softmax", "storage": "fp16"}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    rng = np.random.default_rng(2)
    for _, block in read_batches(UPath(source), 16_384, ["text"]):
        logits = rng.normal(size=(len(block), 2)).astype(np.float32)
        shard = shard_table(block, logits, "fp16", "drawn", ["no", "yes"])
        write_shard(folder, shard)
    for begin in range(0, keys, 16_384):
        size = min(16_384, keys - begin)
        drawn = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), size, [None, pa.py_buffer(rng.bytes(16 * size))]
        )
        logits = rng.normal(size=2 * size).astype(np.float16)
        columns = [drawn, pa.repeat("", size), pa.FixedSizeListArray.from_arrays(logits, 2)]
        write_shard(folder, pa.table(columns, shard.schema))


def _tiny_teacher(folder: str) -> None:
    """Write a teacher of one layer of 8 units that knows the drawn words."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(_WORDS))]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(
        vocab_size=len(words), intermediate_size=8, **sizes, id2label={0: "no", 1: "yes"}
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)


def label(rows: int) -> list[list[str]]:
    """Run `label` with a tiny teacher on so many rows; return the cells of a line."""
    peak = _Peak()
    with _folder() as name:
        source, teacher = Path(name) / "rows.parquet", f"{name}/teacher"
        write_rows(source, rows, labelled=False)
        _tiny_teacher(teacher)
        options = [str(source), f"{name}/store", "--teacher", teacher]
        seconds, _ = _run(["label", *options, "--label.precision", "fp32"], peak.look)
    return [[f"{rows:,}", f"{seconds / rows * 1e6:.1f}", *peak.cells()]]


def ray(rows: int) -> list[list[str]]:
    """Run `label` on the local engine and on Ray; return the cells of three lines."""
    lines, bytes_of = [], {}
    with _folder() as name:
        source, teacher = Path(name) / "rows.parquet", f"{name}/teacher"
        write_rows(source, rows, labelled=False)
        _tiny_teacher(teacher)
        for engine, workers in (("local", 1), ("ray", 2), ("ray", 4)):
            peak, store = _Peak(children=False), Path(name) / f"{engine}-{workers}"
            options = [str(source), str(store), "--teacher", teacher, "--label.precision", "fp32"]
            if engine == "ray":
                options += ["--engine", "ray", "--workers", str(workers)]
            _run(["label", *options], peak.look)
            bytes_of[store.name] = _digest(store)
            same = "the same" if bytes_of[store.name] == bytes_of["local-1"] else "others"
            lines.append([f"{rows:,}", engine, str(workers), peak.cells()[0], same])
    return lines


def _digest(store: Path) -> str:
    """Hash the names and the bytes of a store's shards."""
    found = hashlib.sha256()
    for path in sorted(store.glob("*/shard-*.parquet")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def train(rows: int) -> list[list[str]]:
    """Run `train-student` on so many rows; return the cells of a line."""
    seconds, first, peak = _train(rows)
    per_row = [f"{spent / rows * 1e6:.1f}" for spent in (seconds, first)]
    return [[f"{rows:,}", *per_row, *peak.cells()]]


def store(keys: int) -> list[list[str]]:
    """Run `train-student` with so many keys in its store; return the cells of a line."""
    _, first, peak = _train(_JOINED, keys)
    return [[f"{keys:,}", f"{first:.0f}", *peak.cells()]]


def _train(rows: int, keys: int = 0) -> tuple[float, float, _Peak]:
    """Train on so many rows; return the seconds, those before the first step, and the memory."""
    peak, first = _Peak(), 0.0
    with _folder() as name:
        source, dev, output = (Path(name) / part for part in ("t.parquet", "dev.parquet", "out"))
        write_rows(source, rows)
        write_rows(dev, 1000, seed=3)
        write_logits(source, Path(name) / "logits", max(0, keys - rows))
        log_file = output.with_name(".out.training") / "log.jsonl"

        def watch(process: psutil.Process) -> None:
            nonlocal first
            peak.look(process)
            if not first and log_file.is_file():
                first = sum(process.cpu_times()[:4])

        options = ["--transfer-set", str(source), "--logits", f"{name}/logits", "--dev", str(dev)]
        options += ["--output", str(output), "--training.epochs", "1", *_TRAINING]
        seconds, _ = _run(["train-student", "static", *options], watch)
    return seconds, first, peak


def main() -> None:
    """Measure each size in its own process, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=list(_HEADS))
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10])
    parser.add_argument("--one", type=int, help="measure this many rows here, and print the cells")
    given = parser.parse_args()
    measures = {
        "duplicates": duplicates,
        "label": label,
        "train": train,
        "store": store,
        "ray": ray,
    }
    if given.one:
        print(json.dumps(measures[given.what](given.one)))
        return
    rows = [_HEADS[given.what]]
    for millions in given.millions:
        command = [sys.executable, __file__, given.what, "--one", f"{int(millions * 1e6)}"]
        log(" ".join(command))
        # A library may write lines of its own before the last.
        rows += json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    print(table(rows))
    save_results(f"scale-{given.what}", f"growth of {given.what}", [], keyed(rows))


if __name__ == "__main__":
    main()
