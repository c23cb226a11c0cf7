"""Processes share a store: the same files, however many write and however often they are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit.data.logits import keys_of, shard_name, shard_path
from distillkit.data.tables import write_table
from distillkit.teacher import shards
from distillkit.teacher.shards import Turns, plan_shards


def keys(numbers):
    return keys_of(pa.table({"text": [f"text {number}" for number in numbers]}))


NONE = keys([])


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.sets(st.integers(0, 40)), st.integers(1, 15))
def test_plan_has_every_new_content_once_in_the_order_of_the_table(numbers, stored, shard_rows):
    plan = plan_shards(keys(numbers), keys(sorted(stored)), shard_rows)
    rows = [int(row) for shard in plan for row in shard.rows]
    assert [numbers[row] for row in rows] == [n for n in dict.fromkeys(numbers) if n not in stored]
    assert all(row == numbers.index(numbers[row]) for row in rows)
    assert all(len(shard.rows) == shard_rows for shard in plan[:-1])
    assert all(
        shard.name == shard_name(keys([numbers[row] for row in shard.rows])) for shard in plan
    )


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 15), st.randoms())
def test_what_is_left_is_cut_as_it_was_at_first_whatever_shards_are_done(count, shard_rows, draw):
    table = keys(range(count))
    plan = plan_shards(table, NONE, shard_rows)
    done = [shard for shard in plan if draw.random() < 0.5]
    stored = table.take(pa.array([int(row) for shard in done for row in shard.rows], pa.int64()))
    left = plan_shards(table, stored, shard_rows)
    assert [(s.name, s.rows.tolist()) for s in left] == [
        (s.name, s.rows.tolist()) for s in plan if s not in done
    ]


@pytest.fixture
def plan():
    return plan_shards(keys(range(10)), NONE, 1)


def test_each_shard_goes_to_one_of_those_at_work(plan, tmp_path):
    taken = Counter()

    def work(rank):
        with Turns(tmp_path, plan, rank, 3) as turns:
            while shard := turns.take(wait=True):
                taken[shard.name] += 1
                time.sleep(0.01)
                shard_path(tmp_path, shard.name).write_text("")
                turns.done(shard)

    workers = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert taken == Counter(shard.name for shard in plan)
    assert len(list(tmp_path.iterdir())) == len(plan)  # the shards, and no locks


def test_ranks_begin_at_their_own_share(plan, tmp_path):
    first = []
    for rank in range(3):
        with Turns(tmp_path, plan, rank, 3) as turns:
            first.append(turns.take(wait=False).name)
    assert first == [plan[0].name, plan[3].name, plan[6].name]


def test_a_written_shard_is_skipped_and_counted(plan, tmp_path):
    others = []
    for shard in plan[:9]:
        shard_path(tmp_path, shard.name).write_text("")
    with Turns(tmp_path, plan, on_other=others.append) as turns:
        assert turns.take(wait=False) is plan[9]
        assert others == [1] * 9
        assert turns.take(wait=True) is None


def test_a_shard_in_other_hands_is_waited_for_and_taken_over_when_it_is_dropped(
    plan, tmp_path, monkeypatch
):
    monkeypatch.setattr(shards, "WAIT_SECONDS", 0.01)
    other = FileLock(tmp_path / f".shard-{plan[0].name}.parquet.lock", thread_local=False)
    other.acquire()
    partial = tmp_path / f".shard-{plan[0].name}.parquet.0123abcd-77.partial"
    partial.write_text("half of i")
    with Turns(tmp_path, plan[:1]) as turns:
        assert turns.take(wait=False) is None
        assert partial.exists()
        timer = threading.Timer(0.2, other.release)
        timer.start()
        assert turns.take(wait=True) is plan[0]
        timer.join()
        assert not partial.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_the_killed_have_left_is_cleared_away_and_what_is_in_use_is_not(plan, tmp_path):
    written, in_use = shard_path(tmp_path, plan[0].name), tmp_path / ".shard-11.parquet.lock"
    killed = (
        f".shard-{plan[0].name}.parquet.lock",
        ".shard-00.parquet.lock",
        ".shard-00.parquet.0123abcd-77.partial",
    )
    partial = tmp_path / ".shard-11.parquet.0123abcd-78.partial"
    for path in (written, partial, *(tmp_path / name for name in killed)):
        path.write_text("half of i")
    with FileLock(in_use):
        with Turns(tmp_path, plan[:1]) as turns:
            assert turns.take(wait=True) is None
        assert set(tmp_path.iterdir()) == {written, in_use, partial}


def start(source, store, teacher, **environment):
    """Label by the command line, in small shards."""
    command = ["label", str(source), str(store), "--teacher", teacher, "--label.shard-rows", "7"]
    options = ["--label.precision", "bf16", "--label.max-batch-tokens", "32"]
    return subprocess.Popen(
        [sys.executable, "-m", "distillkit", *command, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def contents(store):
    return {path.name: path.read_bytes() for path in (store / "teacher").iterdir()}


@pytest.fixture(scope="module")
def undisturbed(train_table, classifier_folder, tmp_path_factory):
    """A transfer set of 96 rows, and the store that one process makes of it: 14 shards."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_table(train_table, folder / "transfer.parquet")
    process = start(folder / "transfer.parquet", folder / "store", classifier_folder)
    summary = json.loads(process.communicate()[0])
    assert (process.returncode, summary["labelled_now"]) == (0, 96)
    files = contents(folder / "store")
    assert len(files) == 1 + 14
    return folder / "transfer.parquet", files


@pytest.mark.slow
def test_two_processes_make_the_very_same_store_and_the_first_alone_speaks(
    undisturbed, classifier_folder, tmp_path
):
    source, expected = undisturbed
    ranks = [{"RANK": rank, "WORLD_SIZE": "2"} for rank in "01"]
    both = [start(source, tmp_path / "s", classifier_folder, **rank) for rank in ranks]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert json.loads(said[0])["rows"] == 96
    assert said[1] == ""
    assert contents(tmp_path / "s") == expected


@pytest.mark.slow
def test_killed_at_any_moment_and_gone_on_with_it_is_the_very_same_store(
    undisturbed, classifier_folder, tmp_path
):
    source, expected = undisturbed
    store, draw = tmp_path / "s", random.Random(0)
    for written in (1, 6):
        process = start(source, store, classifier_folder)
        while process.poll() is None and len(list(store.glob("*/shard-*"))) < written:
            time.sleep(0.001)
        time.sleep(draw.random() / 50)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done = {path.name: path.read_bytes() for path in store.glob("*/shard-*")}
        assert done.items() <= expected.items()  # whole or absent, at every moment
    process = start(source, store, classifier_folder)
    assert json.loads(process.communicate()[0])["labelled_now"] < 96
    assert contents(store) == expected
