"""What two real processes must agree on."""

import json

import pytest

from tests.training.launch import train

pytestmark = pytest.mark.slow

# 20 steps an epoch, each with weights that stand still.
STILL = {"n": 320, "batch_size": 16, "epochs": 2, "learning_rate": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def two(folder):
    told = {"pause": 2.5, "stop": "pass", "checkpoints": str(folder / "told")}
    configurations = {
        "still": STILL | {"checkpoints": str(folder / "still")},
        "told": STILL | told,
    }
    return dict(zip(configurations, train(folder, *configurations.values()), strict=True))


def test_the_log_has_the_mean_loss_over_all_processes(folder, two):
    lines = [json.loads(line) for line in (folder / "still" / "log.jsonl").read_text().splitlines()]
    reports, epochs = (
        [line["loss"] for line in lines if line["kind"] == kind] for kind in ("report", "epoch")
    )
    assert len(reports) == len(epochs) == 2
    assert reports == pytest.approx(epochs, rel=1e-5)


def test_of_slow_steps_none_is_waited_for_when_another_process_is_told_to_end(two):
    # torchrun would kill them after 30 s.
    assert [process["error"] for process in two["told"]] == [
        "worker: interrupted, saved at step 2"
    ] * 2
