"""Kills and faults at random moments: nothing is asked twice, no row is lost, no budget is passed.

`DISTILLKIT_FAULTS=2000` sets how often the service fails, with one kill for 40 faults; `pytest -s` shows the counts.
"""

import os
import random
import sys
import time
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest
from conftest import WORDS

from distillkit import pipeline
from distillkit.data.logits import join_logits, keys_of, stored_keys
from distillkit.data.tables import write_table
from distillkit.errors import InputError
from distillkit.recipe import EndpointConfig, LabelConfig
from distillkit.teacher.endpoint.journal import read_journal

FAULTS = int(os.environ.get("DISTILLKIT_FAULTS", 40))
ROWS = 10 * FAULTS
KILLS = max(2, FAULTS // 40)
AT_ONCE = 8
KINDS = ["429", "500", "cut", "wrong-json", "time-out", "echo"]


def label(server, source, store, most):
    endpoint = EndpointConfig(
        server.url, "tiny", timeout=server.late / 2, concurrency=AT_ONCE, max_calls=most
    )
    config = LabelConfig(shard_rows=ROWS // 12, storage="fp32", endpoint=endpoint)
    return pipeline.label(source, store, "", config, labels=["positive", "negative"])


def kill(server, calls, *given):
    """Start to label, and kill it when the service has had so many calls more."""
    run = get_context("fork").Process(target=label, args=(server, *given), daemon=True)
    until = server.calls + calls
    run.start()
    while server.calls < until:
        assert run.is_alive()
        time.sleep(0.0005)
    run.kill()
    run.join()
    server.settle()


def answered(folder, texts):
    """The texts that a shard or the journal has an answer for."""
    if not folder.is_dir():
        return set()
    keys = {*stored_keys(folder).to_pylist(), *(key for key, _ in read_journal(folder).answers)}
    return {text for key, text in texts.items() if key in keys}


def test_kills_and_faults_lose_nothing_and_pay_nothing_twice(server, tmp_path):
    chance = random.Random(FAULTS)
    words = list(WORDS)
    texts = [f"{chance.choice(words)} film, number {number}" for number in range(ROWS)]
    table = pa.table({"text": texts})
    source, store = str(tmp_path / "bare.parquet"), tmp_path / "s"
    write_table(table, tmp_path / "bare.parquet")
    texts = dict(zip(keys_of(table).to_pylist(), texts, strict=True))
    faults = [chance.choice(KINDS) for _ in range(FAULTS)]
    # The first call finds out what the service takes; then each ninth or so fails.
    server.faults = [*faults, *["logprobs"] * (ROWS - 2 * FAULTS)]
    chance.shuffle(server.faults)
    server.late, most, paid = 0.4, ROWS, {}
    for _ in range(KILLS):
        kill(server, chance.randint(1, ROWS // KILLS - AT_ONCE), source, store, most)
        for text, times in paid.items():
            assert server.asked[text] == times
        paid = {text: server.asked[text] for text in answered(store / "teacher", texts)}
        noted = read_journal(store / "teacher").spent.calls
        assert 0 <= noted - server.calls <= KILLS * AT_ONCE  # a killed call may not have been sent
    with pytest.raises(InputError, match=r"max_calls .* is reached"):
        label(server, source, store, most)
    assert 0.9 * most < server.calls <= most
    summary = label(server, source, store, 2 * most)
    assert not server.faults
    assert all(server.asked[text] == times for text, times in paid.items())
    assert summary["distinct"] == ROWS
    found, rows = join_logits(table, store), list(texts.values())
    silent = found[:, 0] == found[:, 1]  # echoed twice
    assert silent.sum() == summary["unanswered"] <= FAULTS / 2
    wanted = np.array([server.distribution(text, 2) for text in rows])
    np.testing.assert_allclose(found[~silent], wanted[~silent], atol=1e-5)
    lost = sum(server.asked.values()) - ROWS
    assert lost <= FAULTS + KILLS * AT_ONCE
    said = f"{FAULTS} faults, {KILLS} kills, {server.calls} calls, {lost} paid answers lost"
    sys.stdout.write(f"{said}\n")
