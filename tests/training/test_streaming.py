"""A student learns the same from rows in memory, in files, and in a folder of files."""

import json

import numpy as np
import pytest

from distillkit.data import keys, scratch
from distillkit.data.logits import FORMAT, shard_table, write_shard
from distillkit.data.tables import read_table, with_mask, write_table
from distillkit.pipeline import StudentJob, train_student
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
)
from distillkit.training import loop, order

SMALL = StudentConfig(kind="static", head_size=4, embeddings=EmbeddingConfig("random", 4))
HOW = TrainingConfig(
    epochs=2,
    batch_size=8,
    precision="fp32",
    checkpoint_steps=3,
    sampling_weights=("original=2", "mask=0.5"),
)


@pytest.fixture
def folder(tmp_path, train_table, dev_table):
    """96 rows as a file and as a folder of three, a store of their logits, and a dev set."""
    marks = {"origin": ["original", "augmented"] * 48, "rules": [None, "mask"] * 48}
    rows = train_table
    for name, values in marks.items():
        rows = rows.append_column(name, [values])
    rows = with_mask(rows.cast(rows.schema), "[MASK]")
    write_table(rows, tmp_path / "one.parquet")
    for number, start in enumerate((0, 40, 41)):
        part = rows.slice(start, (40, 1, 55)[number])
        write_table(part, tmp_path / "many" / f"part-{number}.parquet")
    write_table(dev_table, tmp_path / "dev.parquet")
    teacher = tmp_path / "store" / "teacher"
    teacher.mkdir(parents=True)
    names = ["negative", "positive"]
    (teacher / "manifest.json").write_text(json.dumps({"format": FORMAT, "labels": names}))
    logits = np.random.default_rng(0).normal(size=(96, 2)).astype(np.float32)
    for start in range(0, 96, 20):
        part = rows.slice(start, 20)
        write_shard(teacher, shard_table(part, logits[start : start + 20], "fp32", "drawn", names))
    return tmp_path


@pytest.fixture
def trained(folder):
    """Train on a source of the folder; return the student's files but for what tells the time."""

    def train(source, name="student"):
        job = StudentJob(
            str(folder / source),
            str(folder / "dev.parquet"),
            folder / name,
            SMALL,
            folder / "store",
            loss=LossConfig(alpha=0.3),
            training=HOW,
        )
        train_student(job)
        return {
            path.name: path.read_bytes() for path in (folder / name).iterdir() if path.is_file()
        }

    return train


@pytest.fixture
def streamed(monkeypatch):
    """Everything that grows with the rows goes to files, and its keys are cut into parts."""
    monkeypatch.setattr(scratch, "MAPPED_BYTES", 0)
    monkeypatch.setattr(keys, "PART_KEYS", 20)


@pytest.fixture
def pools(monkeypatch):
    """Epochs of several pools."""
    monkeypatch.setattr(order, "POOL_ROWS", 40)
    monkeypatch.setattr(order, "BLOCK_ROWS", 8)


def test_a_folder_of_tables_is_read_as_one_file_is(folder):
    one, many = (
        read_table(str(folder / name), ColumnsConfig()) for name in ("one.parquet", "many")
    )
    assert many.equals(one, check_metadata=True)
    assert {"origin", "rules"} < set(many.column_names)


@pytest.mark.slow
def test_files_and_folders_make_the_same_student(trained, request, folder):
    expected = trained("one.parquet")
    assert trained("many") == expected
    request.getfixturevalue("streamed")
    before = {path.name for path in folder.iterdir()}
    assert trained("one.parquet") == expected
    assert trained("many") == expected
    assert {path.name for path in folder.iterdir()} == before  # nothing is left


def test_a_killed_training_goes_on_to_the_same_student(trained, streamed, pools, monkeypatch):
    expected, step = trained("one.parquet"), loop._Trainer.step
    for last in (4, 9, 20):  # of 30 steps; the checkpoints are of every third
        with monkeypatch.context() as patch:

            def killed(self, *args, last=last):
                if self.at.step == last:
                    raise KeyboardInterrupt
                step(self, *args)

            patch.setattr(loop._Trainer, "step", killed)
            with pytest.raises(KeyboardInterrupt):
                trained("one.parquet", "again")
    assert trained("one.parquet", "again") == expected
