"""The order of rows is drawn pool by pool, and each row comes as often as it should."""

import weakref

import pytest
import torch

from distillkit.data.batches import shuffled_batches
from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training import order as module
from distillkit.training.order import PRIME, Order

LENGTHS = torch.arange(103) % 7 + 1


@pytest.fixture
def pools(monkeypatch):
    """Several pools, of several blocks each, of the 103 rows."""
    monkeypatch.setattr(module, "POOL_ROWS", 30)
    monkeypatch.setattr(module, "BLOCK_ROWS", 8)


def order_of(part_rows=4, parts=2, weights=None, seed=3, steps=0):
    config = TrainingConfig(epochs=20, steps=steps, batch_size=part_rows, accumulation_steps=parts)
    return Order(LENGTHS, weights, config, seed)


def numbers(groups):
    return [[part.tolist() for part in group] for group in groups]


def flat(groups):
    return [row for group in numbers(groups) for part in group for row in part]


def test_few_rows_are_one_shuffle():
    generator = torch.Generator().manual_seed(3 * PRIME + 7)
    parts = [part.tolist() for part in shuffled_batches(LENGTHS, 4, generator)]
    assert numbers(order_of().epoch(7)) == [parts[i : i + 2] for i in range(0, len(parts), 2)]


@pytest.mark.parametrize(("part_rows", "parts"), [(4, 2), (5, 3), (40, 2), (1, 1)])
def test_every_row_comes_once_and_steps_are_full_but_for_the_last_part(pools, part_rows, parts):
    order = order_of(part_rows, parts)
    found = order.epoch(1)
    assert len(found) == order.steps_an_epoch == len(list(found))
    assert sorted(flat(found)) == list(range(103))
    assert found.rows == order.rows_an_epoch == 103
    sizes = [len(part) for group in found for part in group]
    assert sorted(sizes)[1:] == [part_rows] * (len(sizes) - 1)
    assert all(len(group) == parts for group in list(found)[:-1])


@pytest.mark.parametrize("weight", [0.4, 0.6, 2.4])
def test_a_fraction_of_a_weight_is_of_all_rows_however_few_a_block_has(pools, weight):
    weights = torch.ones(103)
    weights[::10] = weight  # one or two in each block of eight
    drawn = flat(order_of(weights=weights).epoch(1))
    assert sum(row % 10 == 0 for row in drawn) == round(11 * weight)


def test_an_order_is_its_seeds_and_epochs_and_no_other(pools):
    first, again, other, later = (
        numbers(order_of(seed=seed).epoch(number))
        for seed, number in ((3, 1), (3, 1), (4, 1), (3, 2))
    )
    assert first == again
    assert first not in (other, later)


def test_rows_of_all_places_meet_in_a_pool(pools):
    pool = flat([*order_of().epoch(1).after(0)][:3])
    assert max(pool) - min(pool) > 60


def test_a_part_takes_no_pool_with_it_to_another_process(pools):
    for group in order_of().epoch(1):
        assert all(part.untyped_storage().nbytes() == part.nbytes for part in group)


def test_one_pool_is_held_at_a_time(pools, monkeypatch):
    drawn, draw = [], module.Epoch._draw

    def watched(epoch, pool):
        assert [number for number, rows in drawn if rows() is not None] == []
        found = draw(epoch, pool)
        drawn.append((pool, weakref.ref(found[0])))
        return found

    monkeypatch.setattr(module.Epoch, "_draw", watched)
    assert len(list(order_of().epoch(1))) > 1
    assert [number for number, _ in drawn] == list(range(len(drawn)))
    assert len(drawn) > 2


def test_an_epoch_is_gone_on_with_at_any_step(pools):
    whole = numbers(order_of().epoch(2))
    for step in range(len(whole) + 1):
        assert numbers(order_of().epoch(2).after(step)) == whole[step:]
    last = order_of(steps=len(whole) + 5).epoch(2)
    assert numbers(last) == whole[:5]
    assert last.rows == 40


def test_weighted_rows_come_as_often_as_they_should_and_as_many_each_epoch(pools):
    weights = torch.full((103,), 1.5)
    weights[:20] = 0
    order = order_of(weights=weights)
    epochs = [flat(order.epoch(number)) for number in range(1, 21)]
    assert {len(rows) for rows in epochs} == {order.rows_an_epoch}
    counts = torch.tensor([[rows.count(row) for row in range(103)] for rows in epochs])
    assert not counts[:, :20].any()
    assert set(counts[:, 20:].flatten().tolist()) == {1, 2}
    assert abs(order.rows_an_epoch - 1.5 * 83) <= 5  # half a row a block


@pytest.mark.parametrize("weight", [0.0, 0.001])
def test_weights_that_leave_no_row_are_refused(weight):
    with pytest.raises(
        InputError, match="leaves no row to learn from; give some rows a weight above 0"
    ):
        order_of(weights=torch.full((103,), weight))
