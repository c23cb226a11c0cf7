import itertools
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from distillkit.cli import main
from distillkit.data.batches import Encoded
from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.callbacks import Callback
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan
from distillkit.training.strategies import start
from distillkit.training.strategies.base import Strategy


class Network(nn.Module):
    """Mean of embeddings, a layer, logits: the smallest thing that `fit` trains."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(10, 4)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[:, :, None]
        mean = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        return SimpleNamespace(logits=self.out(self.dropout(mean)))


def rows(n=8):
    lengths = torch.arange(n) % 3 + 1
    ids = torch.randint(
        1, 10, (int(lengths.sum()),), generator=torch.Generator().manual_seed(n), dtype=torch.int32
    )
    return Encoded(ids, None, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]), 0)


def config(**options):
    return TrainingConfig(
        **{"learning_rate": 0.01, "warmup_fraction": 0.0, "precision": "fp32"} | options
    )


def train(
    model=None,
    n=8,
    seed=1,
    score=lambda logits: 0.0,
    seen=None,
    checkpoints=None,
    callbacks=(),
    times=None,
    **options,
):
    model = model or Network()
    gold = torch.arange(n) % 2

    def loss(batch, logits):
        if seen is not None:
            seen.append(batch.tolist())
        return nn.functional.cross_entropy(logits, gold.to(logits.device)[batch])

    watch = {
        "dev": rows(4),
        "score": score,
        "checkpoints": checkpoints,
        "callbacks": callbacks,
        "sampling_weights": times,
    }
    return model, fit(model, FitPlan(rows(n), loss, config(**options), seed, "test", **watch))


def state(model):
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("optimizer", ["adamw", "adadelta"])
@pytest.mark.parametrize(("n", "small", "steps"), [(8, 1, 8), (8, 2, 4), (5, 2, 4), (7, 4, 2)])
def test_accumulated_batches_are_one_large_batch_uneven_tails_included(optimizer, n, small, steps):
    large, _ = train(n=n, batch_size=small * steps, epochs=4, optimizer=optimizer)
    accumulated, _ = train(
        n=n, batch_size=small, accumulation_steps=steps, epochs=4, optimizer=optimizer
    )
    torch.testing.assert_close(state(accumulated), state(large), atol=1e-6, rtol=0)
    assert not torch.equal(state(large), state(Network()))


@pytest.mark.parametrize(
    ("n", "batch_size", "accumulation"), [(7, 3, 1), (7, 3, 2), (10, 4, 4), (1, 8, 1)]
)
def test_every_row_is_seen_once_an_epoch_the_tail_included(n, batch_size, accumulation):
    seen = []
    train(n=n, batch_size=batch_size, accumulation_steps=accumulation, epochs=3, seen=seen)
    per_epoch = math.ceil(n / batch_size)
    assert len(seen) == 3 * per_epoch
    for epoch in range(3):
        batches = seen[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(row for batch in batches for row in batch) == list(range(n))


def test_a_large_batch_has_rows_of_all_lengths_each_part_of_one():
    seen = []
    train(n=3000, batch_size=1000, epochs=1, seen=seen)
    assert [len(part) for part in seen] == [250] * 12
    lengths = rows(3000).lengths
    spread = [lengths[part].unique().tolist() for part in seen]
    assert sum(len(found) == 1 for found in spread) >= 9
    assert all(
        len({length for found in spread[i : i + 4] for length in found}) > 1 for i in (0, 4, 8)
    )


def test_an_epoch_has_rows_as_often_as_wanted_and_the_loss_is_their_mean():
    seen = []
    times = torch.tensor([2.0, 0, 1, 1, 0.5, 0.5, 0.5, 0.5])
    _, result = train(n=8, batch_size=3, epochs=2, times=times, seen=seen, learning_rate=0.0)
    first, second = ([row for batch in half for row in batch] for half in (seen[:2], seen[2:]))
    assert (
        [first.count(row) for row in range(4)]
        == [2, 0, 1, 1]
        == [second.count(row) for row in range(4)]
    )
    assert len(first) == len(second) == 6
    logits = torch.cat(
        [Network().eval()(**rows().batch(torch.tensor([row]))).logits for row in first]
    )
    expected = nn.functional.cross_entropy(logits, torch.tensor(first) % 2).item()
    assert result.history[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_epochs_come_in_another_order():
    seen = []
    train(n=8, batch_size=2, epochs=2, seen=seen)
    assert seen[:4] != seen[4:]


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.1, 0.9, 0.2], 2), ([0.3, 0.2, 0.1], 1), ([0.1, 0.2, 0.3], 3), ([0.4, 0.4, 0.1], 2)],
)
def test_the_best_epochs_weights_are_kept_of_equals_the_last(scores, best):
    after, model = [], Network()

    def score(logits):
        after.append(state(model))
        return scores[len(after) - 1]

    _, result = train(model, epochs=3, score=score)
    assert (result.best_epoch, result.best_score) == (best, scores[best - 1])
    assert [row["dev"] for row in result.history] == scores
    assert torch.equal(state(model), after[best - 1])
    assert not torch.equal(after[0], after[1])
    assert not model.training


def test_steps_end_training_within_an_epoch_and_the_schedule_with_it():
    seen, rates = [], []

    class Watch(Callback):
        def epoch(self, record):
            rates.append((record["epoch"], record["step"]))

    _, result = train(n=7, batch_size=3, epochs=50, steps=5, seen=seen, callbacks=[Watch()])
    assert sorted(row for batch in seen[:3] for row in batch) == list(range(7))
    assert (len(seen), rates) == (5, [(1, 3), (2, 5)])
    assert [record["epoch"] for record in result.history] == [1, 2]
    whole = train(n=7, batch_size=3, epochs=1)[0]
    assert torch.equal(state(whole), state(train(n=7, batch_size=3, steps=3)[0]))


def test_no_epochs_leave_the_model_as_it_is():
    model, result = train(epochs=0)
    assert torch.equal(state(model).cpu(), state(Network()))
    assert (result.best_epoch, result.history) == (0, [])


def test_a_seed_fixes_order_and_dropout_whatever_was_drawn_before():
    def once(seed):
        model = Network(dropout=0.5)
        torch.rand(int(torch.randint(1, 50, (1,)).item()))
        return state(train(model, batch_size=2, epochs=2, seed=seed)[0])

    assert torch.equal(once(3), once(3))
    assert not torch.equal(once(3), once(4))


def test_dropout_is_on_while_training_even_if_the_model_came_in_eval_mode():
    model = Network(dropout=0.5).eval()
    assert not torch.equal(state(train(model)[0]), state(train(Network())[0]))


def test_the_loss_reported_is_the_mean_over_rows():
    _, result = train(n=7, batch_size=3, learning_rate=0.0)
    model, data = Network(), rows(7)
    logits = model(**data.batch(torch.arange(7))).logits
    expected = nn.functional.cross_entropy(logits, torch.arange(7) % 2).item()
    assert result.history[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_one_process_under_torchrun_is_fine(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert train(epochs=1)[1].best_epoch == 1


def test_processes_that_torchrun_did_not_start_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match="LOCAL_RANK is not set; start with torchrun"):
        train()


def test_run_is_for_one_process(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["run", "quickstart", "--output", str(tmp_path / "run")]) == 1
    assert "run works in one process" in capsys.readouterr().err


def test_the_seed_draws_the_order_of_the_rows():
    orders = {}
    for seed in (1, 2):
        orders[seed] = []
        train(n=20, seed=seed, batch_size=4, epochs=1, seen=orders[seed])
    seen = [[row for batch in orders[seed] for row in batch] for seed in (1, 2)]
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(20))
    assert seen[0] != seen[1]


def test_a_loss_that_is_no_number_is_refused():
    def loss(batch, logits):
        return logits.sum() * math.nan

    with pytest.raises(
        InputError,
        match="the loss or gradient of step 1, epoch 1, is not a number; lower the learning rate",
    ):
        fit(Network(), FitPlan(rows(), loss, config(), 1, "test"))


def test_fp16_on_a_cpu_is_refused():
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(InputError, match="fp16"):
        train(precision="fp16")


@pytest.mark.parametrize(("max_grad_norm", "ratio"), [(0.0, 100.0), (0.01, 1.0)])
def test_gradients_are_scaled_down_to_the_norm_and_0_means_never(max_grad_norm, ratio):
    def first_gradient(scale):
        norms = []

        def note(optimizer, args, kwargs):
            groups = optimizer.param_groups
            norms.append(
                math.sqrt(
                    sum(float(p.grad.square().sum()) for group in groups for p in group["params"])
                )
            )

        handle = register_optimizer_step_pre_hook(note)
        try:
            how = config(epochs=1, max_grad_norm=max_grad_norm)
            fit(
                Network(),
                FitPlan(rows(), lambda _, logits: logits[:, 0].mean() * scale, how, 1, "test"),
            )
        finally:
            handle.remove()
        return norms[0]

    assert first_gradient(100.0) / first_gradient(1.0) == pytest.approx(ratio, rel=1e-3)


class Heard(Callback):
    def __init__(self):
        self.passes, self.reports, self.epochs, self.closed = [], [], [], 0

    def rows(self, count):
        self.passes.append(count)

    def report(self, record):
        self.reports.append(record)

    def epoch(self, record):
        self.epochs.append(record)

    def close(self):
        self.closed += 1


def test_callbacks_hear_of_passes_reports_and_epochs():
    heard = Heard()
    _, result = train(n=80, batch_size=2, epochs=2, learning_rate=0.0, callbacks=[heard])
    assert heard.passes == [2] * 80
    assert [record["step"] for record in heard.reports] == [20, 40, 60, 80]
    assert {record["learning_rate"] for record in heard.reports} == {0.0}
    # The weights stand still, so the reports' mean losses are, two and two, the epochs'.
    losses = [record["loss"] for record in heard.reports]
    assert [sum(losses[:2]) / 2, sum(losses[2:]) / 2] == pytest.approx(
        [row["loss"] for row in result.history], rel=1e-5
    )
    assert all(
        record["rows_per_second"] < record["tokens_per_second"] < 3 * record["rows_per_second"]
        for record in heard.reports
    )
    assert heard.epochs == [{"step": 40 * (i + 1), **row} for i, row in enumerate(result.history)]
    assert heard.closed == 1


def test_a_report_is_of_one_epoch_alone():
    heard = Heard()
    _, result = train(n=60, batch_size=2, epochs=2, learning_rate=0.0, callbacks=[heard])
    assert [record["step"] for record in heard.reports] == [20, 40, 60]
    # Of the second epoch's thirty steps the first ten are in the report of step 40, the other
    # twenty in that of step 60.
    losses = [record["loss"] for record in heard.reports]
    assert (losses[1] + 2 * losses[2]) / 3 == pytest.approx(result.history[1]["loss"], rel=1e-5)


def test_callbacks_are_closed_when_training_fails():
    heard = Heard()
    with pytest.raises(InputError):
        fit(
            Network(),
            FitPlan(
                rows(),
                lambda _, logits: logits.sum() * math.nan,
                config(),
                1,
                "test",
                callbacks=[heard],
            ),
        )
    assert heard.closed == 1


@pytest.mark.parametrize(("patience", "epochs"), [(0, 8), (1, 4), (2, 5), (3, 8)])
def test_training_stops_after_so_many_epochs_without_a_better_score(patience, epochs):
    scores = iter([0.1, 0.2, 0.3, 0.2, 0.1, 0.4, 0.1, 0.1])
    _, result = train(epochs=8, patience=patience, score=lambda _: next(scores))
    assert len(result.history) == epochs
    assert result.best_epoch == (6 if epochs == 8 else 3)


def test_an_equal_score_is_no_better_one_and_its_weights_are_kept():
    _, result = train(epochs=8, patience=2, score=lambda _: 1.0)
    assert (len(result.history), result.best_epoch) == (3, 3)


def test_learning_rates_grow_with_the_batch_by_the_rule():
    heard = Heard()
    how = {
        "learning_rate_scaling": "sqrt",
        "reference_batch": 1,
        "batch_size": 2,
        "accumulation_steps": 2,
    }
    train(n=80, epochs=1, schedule="constant", callbacks=[heard], **how)
    assert heard.reports[0]["learning_rate"] == pytest.approx(0.01 * 2)


def test_steps_that_fp16_loses_do_not_advance_the_schedule(monkeypatch):
    # A CPU refuses fp16: the number format is left as it is, and its loss scaling is on.
    base = "distillkit.training.strategies.base"
    monkeypatch.setattr(f"{base}.resolve", lambda *_: "fp16")
    monkeypatch.setattr(f"{base}.autocast", lambda *_: nullcontext())
    heard, passes = Heard(), itertools.count()

    def loss(_, logits):
        # The scaled gradient of the first two steps is out of float32's range, their loss is not.
        return logits[:, 0].mean() * (1e35 if next(passes) < 2 else 1.0)

    how = config(batch_size=2, epochs=1)
    fit(Network(), FitPlan(rows(80), loss, how, 1, "test", callbacks=[heard]))
    assert [record["skipped_steps"] for record in heard.reports] == [2, 2]
    # 19 and 39 steps were done before those of the reports; of the latter 37 moved the weights.
    rates = [record["learning_rate"] for record in heard.reports]
    assert rates == [pytest.approx(0.01 * (40 - counted) / 40) for counted in (19, 37)]


@pytest.mark.parametrize("name", ["apex-o1", "apex-o2"])
def test_apex_levels_mean_fp16(name):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(InputError, match="precision fp16 needs a GPU"):
        train(precision=name)


@pytest.mark.parametrize("rank", [0, 1])
def test_dp_in_several_processes_says_what_they_do(rank, monkeypatch, capsys):
    monkeypatch.setattr(Strategy, "prepare", lambda *_: None)
    strategy = start(config(strategy="dp"))
    strategy.rank, strategy.world = rank, 2
    strategy.prepare(Network(), torch.optim.SGD)
    said = "training.strategy dp is for one process; these 2 train as ddp does\n"
    assert capsys.readouterr().err == ("" if rank else said)


DEAD = {
    "byteps": "ddp over NCCL",
    "bagua": "local-sgd",
    "apex": "ddp",
    "nccl": "expected one of auto",
}


@pytest.mark.parametrize(("name", "instead"), DEAD.items())
def test_a_strategy_that_is_dead_or_unknown_is_refused_with_what_does_its_work(name, instead):
    with pytest.raises(InputError, match=f"training.strategy is '?{name}.*{instead}"):
        config(strategy=name)


def test_gradients_are_compressed_by_ddp_alone():
    with pytest.raises(
        InputError,
        match=r"gradient_compression is fp16, but training\.strategy is fsdp: expected ddp",
    ):
        config(strategy="fsdp", gradient_compression="fp16")


@pytest.mark.parametrize(
    "strategy", ["ddp", "dp", "fsdp", "local-sgd", "tensor-parallel", "pipeline"]
)
def test_in_one_process_every_strategy_does_what_one_process_does(strategy):
    if strategy in ("tensor-parallel", "pipeline"):
        with pytest.raises(
            InputError, match=f"training.strategy {strategy} knows the layers of bert"
        ):
            train(epochs=2, strategy=strategy)
        return
    alone, _ = train(epochs=2)
    found, _ = train(epochs=2, strategy=strategy)
    assert torch.equal(state(found), state(alone))
