import io
import sys

import pytest
from tqdm import tqdm

from distillkit.processes import log, rank, terminal_width, world


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, (1, 2)),
    ],
)
def test_rank_and_world_are_those_of_whoever_started_the_processes(
    monkeypatch, environment, expected
):
    for name in ("RANK", "WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (rank(), world()) == expected


def test_a_line_is_written_above_a_bar_that_is_drawn(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    with tqdm(total=9, desc="working", file=stream):
        log("a line")
    shown = stream.getvalue().split("\r")
    assert [part.strip() for part in shown if "a line" in part] == ["a line"]
    assert terminal_width() is not None
