"""Which rows of a batch each process computes, and in how many forward passes."""

from bisect import bisect_left
from collections.abc import Sequence

import torch
from torch import Tensor

# Row numbers (B,) int64, and how many of them count: none where a process has no row left.
Pass = tuple[Tensor, int]

# What a forward and backward pass costs before its first token, in tokens. BiLSTM with 150 units
# on one core: 4.5 ms, where a token takes 0.05 ms. Of a GPU, which starts kernels one by one, it is
# an estimate.
PASS_TOKENS = {"cpu": 128, "cuda": 2048}


def deal(
    parts: Sequence[Tensor],
    lengths: Tensor,
    processes: int,
    *,
    pass_tokens: int,
    alike: bool = False,
) -> list[list[Pass]]:
    """Deal a batch out to processes that wait for each other after each batch.

    Rows are sorted by length and cut into runs of almost the same work, rows times the longest of
    them: a process with long rows gets few. So every process computes its own lengths, in few
    passes with little padding. Where that is slower, each process gets every n-th row of every
    part.

    Args:
        parts: Row numbers, (B,) int64 each; the rows of a part have about the same length. One
            process computes part by part.
        lengths: Tokens of every row that there is, (N,) int64, on the CPU.
        processes: How many share the batch.
        pass_tokens: Tokens that could be computed in the time that a pass costs besides its own.
        alike: Every process gets every n-th row of every part, so a sample of the whole batch.

    Returns:
        The passes of each process, as many of each. One without a row of its own computes another's
        in a pass of which 0 rows count.
    """
    if processes == 1:
        return [[(part, len(part)) for part in parts]]
    by_row = [
        [_counted(part[first::processes], part) for part in parts] for first in range(processes)
    ]
    if alike or len(parts) == 1:  # already of like length
        return by_row
    rows = torch.cat(list(parts))
    rows = rows[lengths[rows].argsort(descending=True, stable=True)]
    ordered = lengths[rows].clamp(min=1).tolist()
    fewest = -(-len(parts) // processes)
    dealt = [by_row]
    for passes in (fewest, 2 * fewest):
        runs = [_counted(run, rows) for run in rows.split(_level(ordered, passes * processes))]
        dealt.append([runs[first::processes] for first in range(processes)])
    return min(dealt, key=lambda all_passes: _slowest(all_passes, lengths, pass_tokens))


def _slowest(dealt: Sequence[Sequence[Pass]], lengths: Tensor, pass_tokens: int) -> int:
    """Return the work of the process that has most of it, in tokens."""
    return max(
        sum(len(rows) * int(lengths[rows].max()) + pass_tokens for rows, _ in own) for own in dealt
    )


def _counted(own: Tensor, others: Tensor) -> Pass:
    return (own, len(own)) if len(own) else (others[:1], 0)


def _level(lengths: Sequence[int], runs: int) -> list[int]:
    """Cut rows, the longest first, into runs whose largest is as small as can be; return sizes."""
    least, most = max(lengths[0], sum(lengths) // runs), len(lengths) * lengths[0]
    most = bisect_left(
        range(most), 0, lo=least, key=lambda most: runs - len(_filled(lengths, runs, most))
    )
    sizes = _filled(lengths, runs, most)
    return sizes + [0] * (runs - len(sizes))


def _filled(lengths: Sequence[int], runs: int, most: int) -> list[int]:
    """Fill runs with `most` padded tokens or one row, but leave a row for each run to come."""
    sizes: list[int] = []
    start = 0
    while start < len(lengths):
        left = len(lengths) - start - (runs - len(sizes) - 1)
        sizes.append(max(1, min(most // lengths[start], left)))
        start += sizes[-1]
    return sizes
