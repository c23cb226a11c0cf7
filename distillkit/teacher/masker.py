"""Choose which tokens of a row are masked, and what replaces them, by any masking strategy.

Axes: B rows, T tokens, W units (tokens or words) of a row, K chosen runs of units.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from distillkit.data.counter import GOLDEN, mix_tensor
from distillkit.errors import InputError
from distillkit.recipe import MaskingConfig
from distillkit.teacher.similar import SimilarWords

# What torch's cross-entropy, and transformers' models, take for "nothing is asked here".
IGNORED = -100

# Uniform numbers in [0, 1): a count n in, (B, n) float32 out, each call's independent of the
# others'.
Draw = Callable[[int], Tensor]


def fresh_draw(rows: int, device: torch.device, generator: torch.Generator | None = None) -> Draw:
    """Draw other numbers at every call; None: from torch's own generator."""
    return lambda count: torch.rand(rows, count, device=device, generator=generator)


def keyed_draw(keys: Tensor) -> Draw:
    """Draw numbers of a row's key alone, (B,) int64, not of its batch, for masks that are drawn once."""
    calls = 0

    def draw(count: int) -> Tensor:
        nonlocal calls
        calls += 1
        columns = torch.arange(count, device=keys.device)
        mixed = mix_tensor(
            mix_tensor(keys + torch.full_like(keys, calls) * GOLDEN)[:, None] + columns * GOLDEN
        )
        return ((mixed >> 40) & 0xFFFFFF).float() * 2.0**-24

    return draw


class Masker:
    """A masking strategy for one vocabulary.

    Args:
        config: The strategy and its numbers.
        tokenizer: With a mask token.
        similar: What `macbert` puts in a word's place.

    Raises:
        InputError: The tokenizer has no mask token, or macbert no similar words.
    """

    def __init__(
        self, config: MaskingConfig, tokenizer: Any, similar: SimilarWords | None = None
    ) -> None:
        if tokenizer.mask_token_id is None:
            raise InputError(
                "adapt: the tokenizer has no mask token; expected that of an encoder such as BERT"
            )
        self.config, self._similar, self._strategy = config, similar, config.of_strategy
        if self._strategy.similar != (similar is not None):
            raise InputError(
                "adapt.masking.strategy macbert, and it alone, takes similar words: expected both or neither"
            )
        self._mask = int(tokenizer.mask_token_id)
        # A random token is a word piece of the language: neither special nor one of BERT's unused
        # places.
        names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        special = set(tokenizer.all_special_ids)
        self._ordinary = torch.tensor(
            [i for i, n in enumerate(names) if i not in special and not n.startswith("[unused")]
        )
        self._lengths = _length_shares(config)

    def __call__(self, ids: Tensor, words: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Mask a batch.

        Args:
            ids: Tokens, (B, T) int64.
            words: 0 where a token is never touched (special, padding), 1 at a word's first token, 2
                at a later one, (B, T) int.
            draw: Where chance comes from.

        Returns:
            The tokens with some of them replaced, and the labels: the token that was there where
                one was chosen, else `IGNORED`; (B, T) int64 each.
        """
        config = self.config
        unit = units(words, whole=self._strategy.words)
        chosen, run = self._choose(unit, draw)
        labels = ids.masked_fill(~chosen, IGNORED)
        u = draw(ids.shape[1] + 1)
        together = {"run": run, "word": unit}.get(self._strategy.together)
        u = u[:, 1:] if together is None else u.gather(1, together)
        ordinary = self._ordinary.to(ids.device)
        random = ordinary[(draw(ids.shape[1]) * len(ordinary)).long()]
        hidden = chosen & (u < config.mask_share)
        replaced = chosen & (u >= config.mask_share) & (u < config.mask_share + config.random_share)
        instead = torch.full_like(ids, self._mask)
        if self._similar is not None:
            # Cui et al. 2020, section 3.1: where there is no similar word, a random one.
            instead = self._similar.replace(ids, unit, draw(ids.shape[1] + 1), random)
        return torch.where(hidden, instead, torch.where(replaced, random, ids)), labels

    def _choose(self, unit: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Choose runs of units until the mean share of chosen units comes to `config.rate`.

        The number of runs is drawn first, rounded up or down at random, then their lengths, then
        one of all ways to lay them out with a unit between any two. So lengths have exactly the
        shares they should have, and rows of any length the same rate.

        Args:
            unit: Number of the unit of each token, from 1, 0 where there is none, (B, T) int64.
            draw: Where chance comes from.

        Returns:
            Whether each token is chosen, (B, T) bool, and the number of its run, (B, T) int64, from
            1 where it is.
        """
        count = unit.amax(1)  # (B,)
        widest = max(int(count.max()), 1)
        taken, lengths = self._draw_runs(count, draw)
        most, gap = lengths.shape[1], int(len(self._lengths) > 1)
        # Laid out: `runs` of the free places are where a run begins, the free units before it and
        # the runs before it lying to its left.
        places = count - lengths.sum(1) + 1 if gap else count
        keys = draw(widest + 1)
        free = torch.arange(widest + 1, device=unit.device) < places[:, None]
        start = keys.masked_fill(~free, -torch.inf).topk(min(most, widest + 1), dim=1).indices
        start = start.masked_fill(~taken, widest + 1).sort(1).values
        if gap:
            start = start + lengths.cumsum(1) - lengths
        edges = torch.zeros(len(unit), widest + 2, dtype=torch.long, device=unit.device)
        begins = edges.scatter_add(1, start.clamp(max=widest + 1), taken.long())
        ends = edges.scatter_add(1, (start + lengths).clamp(max=widest + 1), taken.long())
        inside = (begins - ends).cumsum(1) > 0
        chosen = inside.gather(1, (unit - 1).clamp_min(0)) & (unit > 0)
        return chosen, begins.cumsum(1).gather(1, (unit - 1).clamp_min(0)) * chosen

    def _draw_runs(self, count: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Draw the lengths of the runs of rows of `count` units, (B,).

        Returns:
            Whether each run is there, (B, K) bool, and its units, (B, K) int64, 0 where it is not.
        """
        shares = self._lengths.to(count.device)
        fits = count.clamp(1, len(shares)) - 1  # a run that is longer than the row is not drawn
        sizes = torch.arange(1, len(shares) + 1, device=count.device)
        mean = (shares * sizes).cumsum(0)
        # Shares of 0 for the shortest runs: in a row too short for any other, single units.
        total = shares.cumsum(0).clamp_min(1e-9)
        wanted = self.config.rate * count * total[fits] / mean[fits].clamp_min(1e-9)
        runs = torch.minimum((wanted + draw(1)[:, 0]).floor().long(), count)
        most = max(int(runs.max()), 1)
        gap = int(len(shares) > 1)  # between two runs, which would else be one
        lengths = torch.ones(len(count), most, dtype=torch.long, device=count.device)
        if gap:
            lengths += torch.bucketize(draw(most) * total[fits][:, None], total, right=True)
            lengths = torch.minimum(lengths, fits[:, None] + 1)
        taken = torch.arange(most, device=count.device) < runs[:, None]
        taken &= (lengths + gap).cumsum(1) - gap <= count[:, None]
        return taken, lengths * taken


def units(words: Tensor, *, whole: bool) -> Tensor:
    """Number the units of each row.

    Args:
        words: As for `Masker`, (B, T).
        whole: A unit is a word; else a token.

    Returns:
        From 1, and 0 where there is none, (B, T) int64. The rest of a word whose beginning another
        row has counts as one.

    >>> units(torch.tensor([[0, 2, 1, 2, 1, 0]]), whole=True).tolist()
    [[0, 1, 2, 2, 3, 0]]
    """
    inside = words > 0
    starts = inside
    if whole:
        before = torch.cat([torch.zeros_like(words[:, :1]), words[:, :-1]], 1)
        starts = (words == 1) | (inside & (before == 0))
    return starts.long().cumsum(1) * inside


def _length_shares(config: MaskingConfig) -> Tensor:
    """Return how often a run has 1, 2, ... units, (L,) float32, summing to 1."""
    runs = config.of_strategy.runs
    shares = torch.as_tensor(runs(config) if runs else [1.0])
    return shares / shares.sum()
