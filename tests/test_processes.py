import io
import platform
import subprocess
import sys
from logging import StreamHandler

import pytest
from tqdm import tqdm
from transformers.utils import logging

from distillkit.data.checked import save_pretrained
from distillkit.processes import log, progress_bar, rank, terminal_width, world
from distillkit.teacher.checkpoint import load_classifier


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


def test_bars_are_shown_in_a_notebook_and_not_in_a_log(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress_bar([1, 2], desc="log", file=stream)) == [1, 2]
    assert not stream.getvalue()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert list(progress_bar([1, 2], desc="", file=stream)) == [1, 2]
    assert not stream.getvalue()
    assert list(progress_bar([1, 2], desc="notebook", file=stream)) == [1, 2]
    assert "notebook: 100%" in stream.getvalue()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_freed_memory_is_kept_for_the_next_step_and_given_back_when_asked():
    code = """
import resource
from pathlib import Path
from distillkit.processes import keep_memory, return_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        b"x" * (40 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20
first, before = faults(), held()
keep_memory()
faults()
kept, between = faults(), held()
return_memory()
print(first, kept, between - before, held() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    first, kept, more, after = map(int, done.stdout.split())
    assert kept < first / 10
    assert (more, after) == (pytest.approx(40, abs=5), pytest.approx(0, abs=5))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_checkpoint_is_saved_and_loaded_without_a_foreign_bar(
    hidden, classifier_folder, tmp_path, capfd
):
    """transformers draws its bars wherever stderr goes; who had hidden them finds them hidden."""
    (logging.disable_progress_bar if hidden else logging.enable_progress_bar)()
    try:
        save_pretrained(tmp_path / "copy", *load_classifier(classifier_folder))
        assert logging.is_progress_bar_enabled() is not hidden
    finally:
        logging.enable_progress_bar()
    assert "%" not in capfd.readouterr().err
    assert (tmp_path / "copy" / "config.json").is_file()


def test_a_line_is_written_above_a_bar_that_is_drawn(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    with tqdm(total=9, desc="working", file=stream):
        log("a line")
    shown = stream.getvalue().split("\r")
    assert [part.strip() for part in shown if "a line" in part] == ["a line"]
    assert terminal_width() is not None


def test_transformers_is_silent_while_it_loads_and_as_loud_as_before_after_it(encoder_folder):
    before, said = logging.get_verbosity(), io.StringIO()
    handler = StreamHandler(said)
    logging.set_verbosity_info()
    logging.add_handler(handler)
    try:
        load_classifier(encoder_folder, ["a", "b", "c"])  # a new head, of which transformers warns
        assert logging.get_verbosity() == logging.INFO
    finally:
        logging.remove_handler(handler)
        logging.set_verbosity(before)
    assert said.getvalue() == ""
