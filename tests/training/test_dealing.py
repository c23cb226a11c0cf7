import random

import pytest
import torch

from distillkit.data.batches import shuffled_batches
from distillkit.training.dealing import PASS_TOKENS, deal

LENGTHS = torch.tensor([3, 4, 5, 5, 6, 8, 9, 11, 13, 16, 19, 22, 26, 30, 40] * 300)


def parts(count, rows=256, seed=1):
    return shuffled_batches(LENGTHS, rows, torch.Generator().manual_seed(seed))[:count]


def work(passes, lengths=LENGTHS):
    return sum(len(rows) * int(lengths[rows].max()) for rows, _ in passes)


def counted(passes):
    return [row for rows, count in passes for row in rows[:count].tolist()]


def test_one_process_computes_part_by_part():
    batch = parts(8)
    (own,) = deal(batch, LENGTHS, 1, pass_tokens=128)
    assert all(
        rows is part and count == 256 for (rows, count), part in zip(own, batch, strict=True)
    )


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("processes", [2, 3, 8])
@pytest.mark.parametrize("sizes", [[1], [7], [1, 1, 1], [256, 256], [256] * 7 + [3], [250] * 16])
def test_every_row_counts_once_and_all_take_as_many_passes(processes, sizes, alike):
    batch = torch.randperm(len(LENGTHS))[: sum(sizes)].split(sizes)
    dealt = deal(batch, LENGTHS, processes, pass_tokens=128, alike=alike)
    assert len(dealt) == processes
    assert len({len(own) for own in dealt}) == 1
    assert sorted(row for own in dealt for row in counted(own)) == sorted(torch.cat(batch).tolist())
    for rows, count in (one for own in dealt for one in own):
        assert len(rows) == max(count, 1)
        assert set(rows.tolist()) <= set(torch.cat(batch).tolist())


@pytest.mark.parametrize(("processes", "count"), [(8, 8), (8, 16), (8, 12), (2, 3), (4, 7)])
@pytest.mark.parametrize("device", PASS_TOKENS)
def test_large_batches_are_level(processes, count, device):
    batch, tokens = parts(count), PASS_TOKENS[device]
    dealt = deal(batch, LENGTHS, processes, pass_tokens=tokens)
    found = [work(own) for own in dealt]
    ideal = sum(len(part) * int(LENGTHS[part].max()) for part in batch) / processes
    assert max(found) < (1.1 if device == "cuda" else 1.06) * ideal
    assert min(found) > 0.85 * max(found)
    fewest = -(-count // processes)
    assert len(dealt[0]) <= (fewest if device == "cuda" else 2 * fewest)


def test_no_other_cut_has_a_smaller_largest_run():
    drawn = random.Random(1)
    for _ in range(50):
        lengths = torch.tensor([drawn.randint(1, 9) for _ in range(drawn.randint(3, 9))])
        batch = torch.arange(len(lengths)).split([2, len(lengths) - 2])
        dealt = deal(batch, lengths, 2, pass_tokens=10**6)
        ordered = sorted(lengths.tolist(), reverse=True)
        best = min(
            max(cut * ordered[0], (len(ordered) - cut) * ordered[cut])
            for cut in range(1, len(ordered))
        )
        assert max(work(own, lengths) for own in dealt) == best


def test_rows_of_two_lengths_are_level_in_more_passes():
    lengths = torch.tensor([9] * 164 + [4] * 256)
    dealt = deal(torch.arange(420).split([164, 256]), lengths, 2, pass_tokens=128)
    assert [work(own, lengths) for own in dealt] == [82 * 9 + 128 * 4] * 2


def test_where_processes_move_weights_alone_each_has_a_sample_of_every_part():
    batch = parts(8)
    for own in deal(batch, LENGTHS, 8, pass_tokens=128, alike=True):
        assert [len(rows) for rows, _ in own] == [32] * 8


def test_rows_without_tokens_are_dealt_out_as_well():
    batch = torch.arange(6).split(3)
    dealt = deal(batch, torch.zeros(6, dtype=torch.int64), 2, pass_tokens=128)
    assert [len(counted(own)) for own in dealt] == [3, 3]
