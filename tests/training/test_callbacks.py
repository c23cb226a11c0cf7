import json
import sys

import pytest

from distillkit.errors import InputError
from distillkit.training.callbacks import JsonLog, TensorBoard

REPORT = {"step": 20, "epoch": 1, "loss": 0.5, "rows_per_second": 10.0}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_log_has_an_object_a_line_at_once(tmp_path):
    log = JsonLog(tmp_path / "deep" / "log.jsonl")
    log.report(REPORT)
    log.epoch({"step": 30, "epoch": 1, "loss": 0.4, "dev": 0.9})
    expected = [
        {"kind": "report"} | REPORT,
        {"kind": "epoch", "step": 30, "epoch": 1, "loss": 0.4, "dev": 0.9},
    ]
    assert lines(tmp_path / "deep" / "log.jsonl") == expected
    log.close()


def test_a_resumed_log_drops_what_will_happen_again_and_a_line_cut_by_a_kill(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"kind": "report", "step": 20}\n{"kind": "epoch", "step": 30}\n{"kind": "report", "step": 40}\n{"kin'
    )
    log = JsonLog(path, after=30)
    log.report({"step": 40})
    log.close()
    assert [line["step"] for line in lines(path)] == [20, 30, 40]


def test_a_fresh_log_forgets_an_old_one(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"kind": "report", "step": 20}\n')
    JsonLog(path).close()
    assert path.read_text() == ""


def test_tensorboard_reads_what_was_written_and_a_resumed_one_purges(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for after, losses in ((0, {20: 0.9, 40: 0.8}), (20, {40: 0.7, 60: 0.6})):
        board = TensorBoard(tmp_path, after)
        for step, loss in losses.items():
            board.report({"step": step, "epoch": 1, "loss": loss})
        board.epoch({"step": 60, "epoch": 1, "dev": 0.5})
        board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {"training/loss", "epoch/dev"}
    found = [(event.step, round(event.value, 5)) for event in events.Scalars("training/loss")]
    assert found == [(20, 0.9), (40, 0.7), (60, 0.6)]


def test_without_the_package_tensorboard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'distillkit\[tensorboard\]'"):
        TensorBoard(tmp_path)
