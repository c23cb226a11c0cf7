"""The order of rows is drawn pool by pool, and each row comes as often as it should."""

import pytest
import torch

from distillkit.data.batches import shuffled_batches
from distillkit.training import order as module
from distillkit.training.order import Order

LENGTHS = torch.arange(103) % 7 + 1


@pytest.fixture
def pools(monkeypatch):
    """Several pools, of several blocks each, of the 103 rows."""
    monkeypatch.setattr(module, "POOL_ROWS", 30)
    monkeypatch.setattr(module, "BLOCK_ROWS", 8)


def numbers(groups):
    return [[part.tolist() for part in group] for group in groups]


def flat(groups):
    return [row for group in numbers(groups) for part in group for row in part]


def test_few_rows_are_one_shuffle():
    order, generator = Order(LENGTHS, None, 4, 2), torch.Generator().manual_seed(7)
    parts = [part.tolist() for part in shuffled_batches(LENGTHS, 4, generator)]
    assert numbers(order.epoch(7, 99)) == [parts[i : i + 2] for i in range(0, len(parts), 2)]


@pytest.mark.parametrize(("part_rows", "parts"), [(4, 2), (5, 3), (40, 2), (1, 1)])
def test_every_row_comes_once_and_steps_are_full_but_for_the_last_part(pools, part_rows, parts):
    order = Order(LENGTHS, None, part_rows, parts)
    found = order.epoch(3, 10**6)
    assert len(found) == order.steps == len(list(found))
    assert sorted(flat(found)) == list(range(103))
    assert found.rows == order.rows == 103
    sizes = [len(part) for group in found for part in group]
    assert sorted(sizes)[1:] == [part_rows] * (len(sizes) - 1)
    assert all(len(group) == parts for group in list(found)[:-1])


def test_an_order_is_its_seeds_and_no_other(pools):
    first, again, other = (
        numbers(Order(LENGTHS, None, 4, 2).epoch(seed, 99)) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_rows_of_all_places_meet_in_a_pool(pools):
    pool = flat(Order(LENGTHS, None, 4, 2).epoch(3, 3))
    assert max(pool) - min(pool) > 60


def test_an_epoch_is_gone_on_with_at_any_step(pools):
    whole = numbers(Order(LENGTHS, None, 4, 2).epoch(3, 99))
    for step in range(len(whole) + 1):
        fresh = Order(LENGTHS, None, 4, 2).epoch(3, 99)
        assert numbers(fresh.after(step)) == whole[step:]
    assert numbers(Order(LENGTHS, None, 4, 2).epoch(3, 5)) == whole[:5]
    assert Order(LENGTHS, None, 4, 2).epoch(3, 5).rows == 40


def test_weighted_rows_come_as_often_as_they_should_and_as_many_each_epoch(pools):
    weights = torch.full((103,), 1.5)
    weights[:20] = 0
    order = Order(LENGTHS, weights, 4, 2)
    epochs = [flat(order.epoch(seed, 99)) for seed in range(20)]
    assert {len(rows) for rows in epochs} == {order.rows}
    counts = torch.tensor([[rows.count(row) for row in range(103)] for rows in epochs])
    assert not counts[:, :20].any()
    assert set(counts[:, 20:].flatten().tolist()) == {1, 2}
    assert abs(order.rows - 1.5 * 83) <= 5  # half a row a block
