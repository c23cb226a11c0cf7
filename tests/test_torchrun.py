"""The commands under torchrun, killed and interrupted, as a user would see them."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from tests.training.launch import ENVIRONMENT, PATIENCE, torchrun

pytestmark = pytest.mark.slow

LAUNCH = [
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--rdzv-backend",
    "c10d",
    "--rdzv-endpoint",
    "localhost:0",
]


def options(folder, output, **more):
    """Return the words of a training that takes some seconds."""
    settings = {
        "transfer-set": folder / "train.parquet",
        "dev": folder / "dev.parquet",
        "output": output,
        "loss.alpha": 1,
        "student.embeddings.source": "random",
        "student.embeddings.dimension": 16,
        "student.hidden-size": 16,
        "student.head-size": 16,
        "student.dropout": 0,
        "training.epochs": 40,
        "training.batch-size": 8,
        "training.precision": "fp32",
        "training.checkpoint-steps": 50,
    } | more
    return [
        "train-student",
        "bilstm",
        *(str(word) for name, value in settings.items() for word in (f"--{name}", value)),
    ]


def start(*command):
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ENVIRONMENT,
    )


def wait_for_checkpoint(output, process):
    """Wait until training has written a checkpoint, and is far from its end."""
    until = time.monotonic() + PATIENCE
    while not list(output.parent.glob(f".{output.name}.training/checkpoint-*")):
        assert process.poll() is None, process.stderr.read()[-2000:]
        assert time.monotonic() < until
        time.sleep(0.02)


def weights(output):
    found = load_file(output / "model.safetensors")
    assert not list(output.parent.glob(f".{output.name}.*"))
    return found


def distance(a, b):
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.fixture(scope="module")
def data(tmp_path_factory, train_table, dev_table):
    folder = tmp_path_factory.mktemp("data")
    pq.write_table(train_table, folder / "train.parquet")
    pq.write_table(dev_table, folder / "dev.parquet")
    return folder


@pytest.fixture(scope="module")
def undisturbed(data):
    process = start("-m", "distillkit", *options(data, data / "undisturbed"))
    out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    return json.loads(out), weights(data / "undisturbed")


def test_two_processes_train_the_student_that_one_does(data, undisturbed, tmp_path):
    done = torchrun("-m", "distillkit", *options(data, tmp_path / "two"))
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert report["best_epoch"] == undisturbed[0]["best_epoch"]
    assert distance(weights(tmp_path / "two"), undisturbed[1]) < 1e-3
    log = [
        json.loads(line)
        for line in (tmp_path / "two" / "training" / "log.jsonl").read_text().splitlines()
    ]
    assert [line["epoch"] for line in log if line["kind"] == "epoch"] == list(range(1, 41))


def test_two_processes_read_the_rows_once(data, tmp_path):
    lines = ["text,label", *["fine film,positive", "dull film,negative"] * 20, ",positive"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    done = torchrun(
        "-m",
        "distillkit",
        *options(data, tmp_path / "student", **{"transfer-set": tmp_path / "rows.csv"}),
    )
    assert done.returncode == 1
    assert done.stderr.count("rows.csv:42") == 1
    assert not list(tmp_path.glob("*student*"))


def test_sigterm_saves_and_exits_0_and_the_same_command_ends_as_if_nothing_had_been(
    data, undisturbed, tmp_path
):
    process = start("-m", "distillkit", *options(data, tmp_path / "told"))
    wait_for_checkpoint(tmp_path / "told", process)
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "")
    assert error.splitlines()[-1].startswith("distillkit: student: interrupted, saved at step ")
    assert not (tmp_path / "told").exists()
    process = start("-m", "distillkit", *options(data, tmp_path / "told"))
    assert json.loads(process.communicate(timeout=PATIENCE)[0]) == undisturbed[0] | {
        "output": str(tmp_path / "told")
    }
    assert distance(weights(tmp_path / "told"), undisturbed[1]) == 0


def test_a_rank_that_dies_under_elastic_torchrun_comes_back_by_itself(data, undisturbed, tmp_path):
    process = start(
        *LAUNCH, "--max-restarts", 2, "-m", "distillkit", *options(data, tmp_path / "elastic")
    )
    wait_for_checkpoint(tmp_path / "elastic", process)
    ranks = [
        child for child in psutil.Process(process.pid).children() if "distillkit" in child.cmdline()
    ]
    assert len(ranks) == 2
    ranks[1].kill()
    out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error[:8000]
    assert len(out.splitlines()) == 1
    assert distance(weights(tmp_path / "elastic"), undisturbed[1]) < 1e-3


def test_two_processes_that_are_interrupted_are_followed_by_one(data, undisturbed, tmp_path):
    process = start(*LAUNCH, "-m", "distillkit", *options(data, tmp_path / "fewer"))
    wait_for_checkpoint(tmp_path / "fewer", process)
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=PATIENCE)[1]
    assert error.count("interrupted, saved at step") == 2
    checkpoints = sorted((tmp_path / ".fewer.training").glob("checkpoint-*"))
    assert json.loads((checkpoints[-1] / "state.json").read_text())["world"] == 2
    process = start("-m", "distillkit", *options(data, tmp_path / "fewer"))
    out, error = process.communicate(timeout=PATIENCE)
    assert json.loads(out)["best_epoch"] == undisturbed[0]["best_epoch"], error
    assert distance(weights(tmp_path / "fewer"), undisturbed[1]) < 1e-3


def test_processes_that_augment_share_the_work_and_write_the_same_bytes(data, tmp_path):
    command = ["-m", "distillkit", "augment", data / "train.parquet"]
    more = ["--held-out", data / "dev.parquet", "--augment.tagger", "pattern"]
    alone = start(*command, tmp_path / "one.parquet", *more)
    expected = json.loads(alone.communicate(timeout=PATIENCE)[0])
    done = torchrun(*command, tmp_path / "two.parquet", *more)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == expected | {"output": str(tmp_path / "two.parquet")}
    assert (tmp_path / "two.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


def test_what_is_wrong_in_another_process_is_said_once_and_nobody_waits(data, tmp_path):
    done = torchrun(
        "-m",
        "distillkit",
        "augment",
        data / "train.parquet",
        tmp_path / "x.parquet",
        "--augment.tagger",
        "nosuch:tagger",
    )
    assert done.returncode == 1
    assert done.stderr.count("distillkit: ") == 1


def test_a_teacher_is_fine_tuned_in_two_processes_layer_by_layer(data, encoder_folder, tmp_path):
    def command(output, *more):
        how = [
            "--data.train",
            data / "train.parquet",
            "--data.dev",
            data / "dev.parquet",
            "--output",
            output,
        ]
        how += [
            "--teacher.model",
            encoder_folder,
            "--teacher.training.epochs",
            8,
            "--teacher.training.batch-size",
            16,
        ]
        how += [
            "--teacher.training.learning-rate",
            3e-3,
            "--teacher.training.precision",
            "fp32",
            *more,
        ]
        return ["-m", "distillkit", "train-teacher", "minilm-l6", *how]

    done = torchrun(*command(tmp_path / "two", "--teacher.training.strategy", "fsdp"))
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["labels"] == ["negative", "positive"]
    assert report["dev_accuracy"] > 0.9
    out = start("-m", "distillkit", "evaluate", tmp_path / "two", data / "dev.parquet").communicate(
        timeout=PATIENCE
    )[0]
    assert json.loads(out)["accuracy"] == report["dev_accuracy"]
