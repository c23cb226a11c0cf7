"""A training that is stopped and goes on is the training that was never stopped."""

import itertools
import json
import math
import os
import random
import signal
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from distillkit.data.checked import seal
from distillkit.errors import InputError, Preempted
from distillkit.recipe import LoaderConfig, TrainingConfig
from distillkit.training.callbacks import Callback
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.interruption import Interrupted
from distillkit.training.loop import _Trainer, fit
from distillkit.training.plan import FitPlan
from distillkit.training.strategies import start
from tests.training.test_loop import Network, config, rows, state

HOW = {
    "epochs": 3,
    "batch_size": 2,
    "accumulation_steps": 2,
    "learning_rate": 0.01,
    "checkpoint_steps": 1,
    "precision": "fp32",
}
STEPS = 4 * 3  # 15 rows: the last step of an epoch has three


@pytest.fixture(autouse=True)
def listening():
    """Processes started in the background ignore SIGINT, and their children with them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Stop(Callback):
    """Does something after so many forward passes."""

    def __init__(self, passes, action):
        self.left, self.action = passes, action

    def rows(self, count):
        self.left -= 1
        if self.left == 0:
            self.action()


def killed():
    raise KeyboardInterrupt("as a kill does, at any moment")


def train(checkpoints=None, callbacks=(), seed=3, loss=None, **options):
    torch.manual_seed(99)  # what was drawn before must not matter
    gold = torch.arange(15) % 2
    model = Network(dropout=0.5)

    def cross_entropy(batch, logits):
        return torch.nn.functional.cross_entropy(logits, gold.to(logits.device)[batch])

    watch = {
        "dev": rows(6),
        "score": lambda logits: float(logits[:, 0].sum()),
        "checkpoints": checkpoints,
    }
    config = TrainingConfig(**HOW | options)
    result = fit(
        model,
        FitPlan(
            rows(15), loss or cross_entropy, config, seed, "test", callbacks=callbacks, **watch
        ),
    )
    return state(model), result


OPTIONS = [
    {"optimizer": "adamw"},
    {"optimizer": "lamb"},
    {"optimizer": "adadelta", "schedule": "constant"},
    {"optimizer": "sgd", "schedule": "polynomial"},
    {"patience": 2},
    {"steps": 9},
    {"precision": "bf16"},
    {"loader": LoaderConfig(rows="host")},
]


# In the first step, at an epoch's end, within the second one and at the end; with each option once.
@pytest.mark.parametrize(
    ("options", "passes"),
    [(OPTIONS[0], n) for n in (1, 8, 13, 24)] + [(o, 13) for o in OPTIONS[1:]],
)
def test_killed_and_resumed_is_never_killed_bit_for_bit(tmp_path, options, passes):
    expected = train(**options)
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path / "c"), [Stop(passes, killed)], **options)
    weights, result = train(Checkpoints(tmp_path / "c"), **options)
    assert torch.equal(weights, expected[0])
    assert result == expected[1]


@pytest.mark.parametrize(
    ("number", "passes"), [(signal.SIGTERM, 1), (signal.SIGINT, 5), (signal.SIGTERM, 8)]
)
def test_interrupted_it_saves_at_that_step_and_goes_on_from_there(tmp_path, number, passes):
    expected, _ = train(checkpoint_steps=0)
    before = signal.getsignal(number)
    with pytest.raises(Preempted, match="interrupted, saved at step") as stopped:
        train(
            Checkpoints(tmp_path),
            [Stop(passes, lambda: os.kill(os.getpid(), number))],
            checkpoint_steps=0,
        )
    assert stopped.value.signal == number
    assert signal.getsignal(number) == before
    (only,) = Checkpoints(tmp_path).all()
    assert json.loads((only / "state.json").read_text())["position"]["step"] == -(-passes // 2)
    passed = []
    weights, _ = train(Checkpoints(tmp_path), [Counter(passed)], checkpoint_steps=0)
    assert torch.equal(weights, expected)
    assert len(passed) == 24 - 2 * -(-passes // 2)


def test_a_schedule_that_fp16_has_delayed_goes_on_as_it_was(tmp_path, monkeypatch):
    for module in ("strategies.base", "inference"):  # a CPU refuses fp16: its loss scaling alone
        monkeypatch.setattr(f"distillkit.training.{module}.resolve", lambda *_: "fp16")
        monkeypatch.setattr(f"distillkit.training.{module}.autocast", lambda *_: nullcontext())

    def losing():
        passes = itertools.count()

        def loss(batch, logits):
            # The gradients of steps 3 and 23 of 48, of two passes each, are out of float32's range.
            lost = next(passes) // 2 in (2, 22)
            return logits[:, 0].mean() * (1e35 if lost else 1.0)

        return loss

    how = {"epochs": 12, "checkpoint_steps": 0}
    expected, result = train(**how, loss=losing())
    assert result.history[-1]["skipped_steps"] == 2
    stop = Stop(59, lambda: os.kill(os.getpid(), signal.SIGTERM))
    how["loss"] = losing()
    with pytest.raises(Preempted, match="step 30"):
        train(Checkpoints(tmp_path), [stop], **how)
    weights, _ = train(Checkpoints(tmp_path), **how)
    assert torch.equal(weights, expected)


class Counter(Callback):
    def __init__(self, passed):
        self.passed = passed

    def rows(self, count):
        self.passed.append(count)


def test_told_to_end_in_the_last_step_it_ends_and_needs_no_step_more(tmp_path):
    expected, _ = train()
    with pytest.raises(Preempted, match="step 12"):  # or a run would go on with its next stage
        train(Checkpoints(tmp_path), [Stop(24, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    passed = []
    weights, _ = train(Checkpoints(tmp_path), [Counter(passed)])
    assert torch.equal(weights, expected)
    assert passed == []


def test_a_second_interrupt_does_not_wait(tmp_path):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(3, twice)])


def test_without_checkpoints_signals_are_left_alone():
    with pytest.raises(KeyboardInterrupt):
        train(None, [Stop(3, lambda: os.kill(os.getpid(), signal.SIGINT))])


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    weights, _ = train(
        Checkpoints(tmp_path), [Stop(3, lambda: os.kill(os.getpid(), signal.SIGINT))]
    )
    assert torch.equal(weights, train()[0])


def test_the_last_few_and_the_best_are_kept(tmp_path):
    train(Checkpoints(tmp_path), keep_checkpoints=3)
    names = [path.name for path in Checkpoints(tmp_path).all()]
    # The end of the last epoch needs none.
    assert names == [f"checkpoint-{step:09d}" for step in (STEPS - 3, STEPS - 2, STEPS - 1)]
    assert (
        json.loads((tmp_path / "best" / "state.json").read_text())["epoch"] == train()[1].best_epoch
    )
    assert not list(tmp_path.glob(".*"))


def test_python_and_numpy_go_on_drawing_where_they_stood(tmp_path):
    drawn = []

    class Draw(Callback):
        def rows(self, count):
            drawn.append((random.random(), np.random.rand(), random.gauss(0, 1), np.random.randn()))  # noqa: NPY002

    random.seed(1), np.random.seed(1)  # noqa: NPY002
    train(None, [Draw()])
    expected = list(drawn)
    drawn.clear()
    random.seed(1), np.random.seed(1)  # noqa: NPY002
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Draw(), Stop(7, killed)])
    random.seed(5), np.random.seed(5)  # noqa: NPY002
    train(Checkpoints(tmp_path), [Draw()])
    # Killed in the seventh pass, it goes on after the third step: the seventh comes twice.
    assert drawn[:6] + drawn[7:] == expected


def test_starting_over_forgets_what_was_there(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(9, killed)], learning_rate=0.5)
    passed = []
    weights, _ = train(Checkpoints(tmp_path, resume=False), [Counter(passed)])
    assert len(passed) == 24
    assert torch.equal(weights, train()[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learning_rate": 0.02}, "training.learning_rate 0.01, this one with 0.02"),
        ({"seed": 4}, "seed 3, this one with 4"),
        ({"batch_size": 4}, "training.batch_size 2, this one with 4"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, change, said):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(9, killed)])
    with pytest.raises(InputError, match=said):
        train(Checkpoints(tmp_path), **change)


def test_what_the_caller_says_it_was_made_from_counts(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path, {"student": {"hidden_size": 150}}), [Stop(9, killed)])
    with pytest.raises(
        InputError, match=r"student.hidden_size 150, this one with 300; .* --no-resume"
    ):
        train(Checkpoints(tmp_path, {"student": {"hidden_size": 300}}))


def test_how_often_it_saves_may_change(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(9, killed)])
    weights, _ = train(Checkpoints(tmp_path), checkpoint_steps=0, keep_checkpoints=1)
    assert torch.equal(weights, train()[0])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone", "state"])
def test_a_damaged_checkpoint_is_one_line(tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(9, killed)])
    last = Checkpoints(tmp_path).all()[-1]
    if damage == "truncated":
        (last / "rank-0.safetensors").write_bytes((last / "rank-0.safetensors").read_bytes()[:100])
    elif damage == "flipped":  # in the middle of the weights, where nothing but a checksum sees it
        content = bytearray((last / "rank-0.safetensors").read_bytes())
        content[-100] ^= 1
        (last / "rank-0.safetensors").write_bytes(content)
    elif damage == "gone":
        (last / "rank-0.safetensors").unlink()
    else:
        (last / "state.json").write_text("{")
    with pytest.raises(InputError, match=f"{last.name}.*: cannot be read.*; remove that folder"):
        train(Checkpoints(tmp_path))


def test_parts_that_other_processes_have_kept_are_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(9, killed)])
    last = Checkpoints(tmp_path).all()[-1]
    state = json.loads((last / "state.json").read_text())
    state |= {"separate": True, "strategy": "deepspeed", "world": 2}
    (last / "state.json").write_text(json.dumps(state))
    seal(last)
    said = (
        r"each of 2 processes of deepspeed has kept its own part; .* or --no-resume to start over"
    )
    with pytest.raises(InputError, match=said):
        train(Checkpoints(tmp_path))
    train(Checkpoints(tmp_path, resume=False))


def test_weights_that_are_no_numbers_are_no_checkpoint(tmp_path):
    passes = iter(range(100))

    def loss(_, logits):
        return logits.sum() * (math.nan if next(passes) == 4 else 1.0)

    plan = FitPlan(
        rows(40),
        loss,
        config(batch_size=2, checkpoint_steps=6),
        1,
        "test",
        checkpoints=Checkpoints(tmp_path),
    )
    trainer = _Trainer(start(plan.config), plan)
    trainer.look_every = 20  # as on a GPU
    trainer.prepare(Network())

    def steps():
        for group, own, feed in trainer.steps(Interrupted()):
            trainer.step(group, own, feed)

    with pytest.raises(InputError, match="of step 5, epoch 1, is not a number"):
        steps()
    assert Checkpoints(tmp_path).all() == []


def test_a_whole_checkpoint_is_not_called_a_part(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path), [Stop(9, killed)])
    with pytest.raises(InputError, match="auto wrote it whole, local-sgd keeps a part a process"):
        train(Checkpoints(tmp_path), strategy="local-sgd")


def test_a_number_that_is_none_stops_before_the_weights_are_spoilt_and_leaves_the_batch(tmp_path):
    def loss(batch, logits):
        loss.passes += 1
        return logits.sum() * (float("nan") if loss.passes == 11 else 1.0)

    loss.passes = 0
    seen = []
    with pytest.raises(InputError, match=r"step 6, epoch 2, is not a number; .*bad-batch-0.json"):
        train(Checkpoints(tmp_path), [Counter(seen)], loss=loss)
    bad = json.loads((tmp_path / "bad-batch-0.json").read_text())
    assert (bad["step"], bad["epoch"]) == (6, 2)
    assert len(bad["rows"]) == 4 == len(bad["input_ids"])
    data = rows(15)
    assert bad["input_ids"] == [
        data.ids[data.offsets[i] : data.offsets[i + 1]].tolist() for i in bad["rows"]
    ]
    last = Checkpoints(tmp_path).all()[-1]
    assert last.name == "checkpoint-000000005"


@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_a_gradient_that_is_none_stops_it_too(tmp_path, max_norm):
    def loss(batch, logits):
        return (logits * 0.0).sum().sqrt()  # 0, with an infinite slope

    with pytest.raises(InputError, match="step 1, epoch 1, is not a number"):
        train(Checkpoints(tmp_path), loss=loss, max_grad_norm=max_norm)


@pytest.mark.parametrize("what", ["loss alone", "gradient"])
def test_the_first_of_several_passes_is_looked_at_without_clipping(tmp_path, what):
    def loss(batch, logits):
        loss.passes += 1
        bad = float("inf") if loss.passes == 3 else 0.0
        return logits.sum() + bad if what == "loss alone" else logits.sum() * (1 - bad)

    loss.passes = 0
    with pytest.raises(InputError, match="step 2, epoch 1, is not a number"):
        train(Checkpoints(tmp_path), loss=loss, max_grad_norm=0.0, accumulation_steps=2)


def test_the_log_of_a_resumed_training_is_that_of_one_never_killed(tmp_path):
    def lines(folder):
        found = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if not k.endswith("per_second")} for line in found]

    train(Checkpoints(tmp_path / "whole"), epochs=12)
    with pytest.raises(KeyboardInterrupt):
        train(Checkpoints(tmp_path / "killed"), [Stop(75, killed)], epochs=12, checkpoint_steps=7)
    train(Checkpoints(tmp_path / "killed"), epochs=12, checkpoint_steps=7)
    whole = lines(tmp_path / "whole")
    assert [line["kind"] for line in whole].count("report") == 2
    assert [line["step"] for line in whole if line["kind"] == "epoch"] == list(range(4, 49, 4))
    assert [(line["kind"], line["step"]) for line in lines(tmp_path / "killed")] == [
        (line["kind"], line["step"]) for line in whole
    ]
