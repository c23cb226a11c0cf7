"""What one process prepares is what all processes of a training start from."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from distillkit.errors import InputError
from distillkit.pipeline import prepared as module
from distillkit.pipeline.prepared import Prepared, shared
from distillkit.recipe import EmbeddingConfig, LossConfig, StudentConfig, TrainingConfig
from distillkit.student.build import build_student
from distillkit.student.train import training_rows

WEIGHTED = TrainingConfig(sampling_weights=("original=2",))


def make(table, loss=LossConfig(), training=TrainingConfig()):  # noqa: B008 - frozen
    embeddings = EmbeddingConfig("random", 4, channels="multi")
    config = StudentConfig(hidden_size=4, head_size=4, embeddings=embeddings)
    labels = ["negative", "positive"]
    model, tokenizer = build_student(table["text"].to_pylist(), labels, config, seed=1)
    logits = None
    if loss.asks_teacher:
        logits = np.random.default_rng(0).normal(size=(len(table), 2)).astype(np.float32)
    rows = training_rows(model, tokenizer, table, logits, loss, training)
    return Prepared(model, tokenizer, rows, {"teacher": 1.0}, "of targets")


class Process:
    """One of several processes, each a thread here, that meet at a barrier."""

    def __init__(self, rank, meeting, said):
        self.rank, self.world, self.wait, self._said = rank, 2, meeting.wait, said

    def broadcast(self, value):
        if self.rank == 0:
            self._said.append(value)
        self.wait()
        return self._said[-1]


def together(output, make):
    meeting, said = threading.Barrier(2, timeout=60), []

    def run(rank):
        process = Process(rank, meeting, said)
        with shared(process, output, make) as prepared:
            there = list(output.parent.iterdir())
            process.wait()
        return prepared, there

    with ThreadPoolExecutor(2) as pool:
        found, there = zip(*pool.map(run, range(2)), strict=True)
    assert [len(folders) for folders in there] == [1, 1]
    return found


def fields(rows):
    tokens = rows.tokens
    flat = (tokens.ids, tokens.types, tokens.offsets, tokens.counted)
    return [*flat, rows.targets, rows.gold, rows.sampling_weights]


@pytest.mark.parametrize(
    ("loss", "training"),
    [
        (LossConfig(), TrainingConfig()),
        (LossConfig(alpha=1), WEIGHTED),
        (LossConfig(alpha=0.5), WEIGHTED),
    ],
)
def test_every_process_gets_what_one_prepares_and_no_file_is_left(
    tmp_path, train_table, loss, training
):
    origins = ["original", "augmented"] * (len(train_table) // 2)
    table = train_table.append_column("origin", [origins])
    made = []

    def prepare():
        made.append(make(table, loss, training))
        return made[-1]

    found = together(tmp_path / "student", prepare)
    assert len(made) == 1
    assert not list(tmp_path.iterdir())
    for other in found:
        assert (other.teacher_shares, other.digest) == (made[0].teacher_shares, made[0].digest)
        assert other.rows.tokens.pad_id == made[0].rows.tokens.pad_id
        for mine, theirs in zip(fields(made[0].rows), fields(other.rows), strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or (torch.equal(mine, theirs) and mine.dtype == theirs.dtype)
        for name, weight in made[0].model.state_dict().items():
            assert torch.equal(weight, other.model.state_dict()[name])
        for name, parameter in made[0].model.named_parameters():
            assert other.model.get_parameter(name).requires_grad == parameter.requires_grad
        text = "a fine film that nobody knows"
        assert other.tokenizer(text) == made[0].tokenizer(text)
        assert other.tokenizer.model_max_length == made[0].tokenizer.model_max_length


def test_rows_that_a_killed_training_left_are_not_taken_for_new_ones(tmp_path, train_table):
    left = tmp_path / ".student.rows-000000000000"
    left.mkdir()
    make(train_table).save(left)
    found = together(tmp_path / "student", lambda: make(train_table.slice(0, 7)))
    assert [len(other.rows.tokens) for other in found] == [7, 7]
    assert not list(tmp_path.iterdir())


def test_one_process_prepares_without_files(tmp_path, train_table):
    alone = Process(0, threading.Barrier(1), [])
    alone.world = 1
    prepared = make(train_table)
    with shared(alone, tmp_path / "student", lambda: prepared) as found:
        assert found is prepared
        assert not list(tmp_path.iterdir())


def test_another_trainings_folder_stays(tmp_path, train_table):
    other = tmp_path / ".student.rows-000000000000-more.training"
    other.mkdir()
    meeting = threading.Barrier(1)
    process = Process(0, meeting, [])
    with shared(process, tmp_path / "student", lambda: make(train_table)):
        pass
    assert list(tmp_path.iterdir()) == [other]


def test_where_process_0_fails_the_others_end_too(tmp_path):
    def fail():
        raise InputError("rows.csv:42: no text")

    meeting, said = threading.Barrier(2, timeout=60), []

    def run(rank):
        with shared(Process(rank, meeting, said), tmp_path / "student", fail):
            pass

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(run, rank) for rank in range(2))
        assert str(first.exception()) == "rows.csv:42: no text"
        assert "process 0 could not prepare the rows" in str(second.exception())
    assert not list(tmp_path.iterdir())


def test_a_process_that_does_not_see_the_output_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SEEN_WITHIN", 0.3)
    process = Process(1, threading.Barrier(1), [7.0])
    said = pytest.raises(InputError, match="all processes must see the output's folder")
    with said, shared(process, tmp_path / "student", lambda: None):
        pass
