"""Kill augment, label and both trainings at random moments, run them again, and see that the bytes are those of an undisturbed run.

python benchmarks/kill.py sst2/train.tsv TEACHER --column sentence --rows 4000 --times 50

A moment is drawn anew for each try, over the time that an undisturbed run takes; every third try is
killed twice. The signal is SIGKILL.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from distillkit import pipeline
from distillkit.data.tables import read_table, write_table
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    DataConfig,
    EmbeddingConfig,
    LabelConfig,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
)

AUGMENT, LABEL = (
    AugmentConfig(tagger="pattern", n_iter=20, memory_mb=5),
    LabelConfig(shard_rows=256),
)


def augment(source: str, target: Path) -> None:
    """Build a transfer set in two processes."""
    pipeline.augment(source, target, AUGMENT, workers=2)
    os._exit(0)  # a process started by multiprocessing would wait for its own idle workers


def label(source: str, target: Path, teacher: str) -> None:
    """Label a table."""
    pipeline.label(source, target, teacher, LABEL)


def train_teacher(source: str, target: Path, teacher: str) -> None:
    """Fine-tune on from a teacher, with a checkpoint every few steps."""
    training = TrainingConfig(epochs=2, batch_size=16, checkpoint_steps=5)
    pipeline.train_teacher(
        DataConfig(train=source, dev=source), TeacherConfig(teacher, 32, training), target
    )


def train_student(source: str, target: Path, teacher: str, logits: Path) -> None:
    """Train the paper's student, from random word vectors, with a checkpoint every few steps."""
    training = TrainingConfig(epochs=4, batch_size=32, checkpoint_steps=5, learning_rate=1e-3)
    student = StudentConfig(embeddings=EmbeddingConfig("random"))
    pipeline.train_student(
        pipeline.StudentJob(source, source, target, student, logits=logits, training=training)
    )


def digest(path: Path) -> str:
    """Hash a file, or all files of a folder with their names, hidden ones too: nothing may be left behind. How long training took may differ."""
    files = (
        sorted(p for p in path.rglob("*") if p.is_file() and p.parent.name != "training")
        if path.is_dir()
        else [path]
    )
    return hashlib.sha256(
        b"".join(str(p.relative_to(path)).encode() + p.read_bytes() for p in files)
    ).hexdigest()


def started(step, *args):  # noqa: ANN001, ANN002, ANN201
    """Start a step in a process of its own, which has everything imported already."""
    process = multiprocessing.get_context("forkserver").Process(target=step, args=args)
    process.start()
    return process


def trial(step, source: str, target: Path, *more: str, seconds: float, kills: int) -> int:  # noqa: ANN001
    """Kill a step some times, then let it end; return how often it was alive to be killed."""
    hits = 0
    for _ in range(kills):
        process = started(step, source, target, *more)
        process.join(random.uniform(0, seconds))
        hits += process.is_alive()
        process.kill()
        process.join()
    process = started(step, source, target, *more)
    process.join()
    if process.exitcode:
        raise SystemExit(f"{step.__name__}: exit status {process.exitcode} after a kill")
    return hits


def main() -> int:
    """Try both steps; exit with 1 at the first difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source")
    parser.add_argument("teacher")
    parser.add_argument("--column", default="text")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument(
        "--steps", nargs="+", default=["augment", "label", "train_teacher", "train_student"]
    )
    parser.add_argument("--times", type=int, default=50, help="kills that found the step at work")
    options = parser.parse_args()
    multiprocessing.set_forkserver_preload(["distillkit.pipeline"])
    random.seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = read_table(
            options.source, ColumnsConfig(text=options.column), labels="optional"
        ).slice(0, options.rows)
        write_table(table, folder / "source.parquet")
        source = str(folder / "source.parquet")
        if "train_student" in options.steps:
            pipeline.label(source, folder / "logits", options.teacher)
        everything = (
            (augment, "transfer.parquet", ()),
            (label, "store", (options.teacher,)),
            (train_teacher, "teacher", (options.teacher,)),
            (train_student, "student", (options.teacher, folder / "logits")),
        )
        for step, target, more in everything:
            if step.__name__ not in options.steps:
                continue
            for _ in range(2):  # the second time everything is warm, as it is in the tries
                shutil.rmtree(folder / "expected", ignore_errors=True)
                began = time.perf_counter()
                trial(step, source, folder / "expected" / target, *more, seconds=0, kills=0)
                seconds = time.perf_counter() - began
            expected, hits, tries = digest(folder / "expected" / target), 0, 0
            with tqdm(total=options.times, desc=step.__name__, disable=None) as bar:
                while hits < options.times:
                    again, tries = folder / "again" / target, tries + 1
                    hits += trial(
                        step, source, again, *more, seconds=seconds, kills=1 + (tries % 3 == 0)
                    )
                    bar.update(hits - bar.n)
                    left = [p.name for p in again.parent.iterdir() if p.name != again.name]
                    if digest(again) != expected or left:
                        print(f"{step.__name__}: try {tries} differs, or left {left}")
                        return 1
                    shutil.rmtree(again.parent)
            print(
                f"{step.__name__}: killed {hits} times at work in {tries} tries of {seconds:.1f} s: all bytes equal"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
