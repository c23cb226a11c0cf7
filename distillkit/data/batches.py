"""Tokenised rows as flat tensors, and batches of like length gathered from them by index."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from distillkit.data.pieces import WordPieces, gathers
from distillkit.data.scratch import TEMPORARY, Scratch
from distillkit.processes import progress_bar

_CHUNK = 8192


@dataclass(frozen=True)
class Encoded:
    """N tokenised rows without padding.

    `ids` and `types` are flat (all tokens of all rows, in order), int32; row i is
    `ids[offsets[i]:offsets[i + 1]]`. `types` is None where the model has no token types. `counted`
    are the lengths, on the CPU, where they are kept beside the offsets.
    """

    ids: Tensor
    types: Tensor | None
    offsets: Tensor
    pad_id: int
    counted: Tensor | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens a row, (N,) int64."""
        return self.offsets.diff() if self.counted is None else self.counted

    def batch(self, rows: Tensor, longest: int | None = None) -> dict[str, Tensor]:
        """Gather rows into padded tensors.

        Args:
            rows: Row numbers, (B,) int64.
            longest: Tokens of the longest of them, where that is known.

        Returns:
            `input_ids`, `attention_mask` and, where the model has them, `token_type_ids`, each (B,
            T) int64, padded on the right to the longest row.
        """
        start, length = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        steps = torch.arange(
            max(int(length.max()) if longest is None else longest, 1), device=rows.device
        )
        mask = steps < length[:, None]  # (B, T)
        places = (start[:, None] + steps).clamp_(max=len(self.ids) - 1)
        gathered = {
            name: _gathered(flat, places, mask, fill) for name, flat, fill in self._columns()
        }
        return gathered | {"attention_mask": mask.long()}

    def _columns(self) -> Iterator[tuple[str, Tensor, int]]:
        """Yield for each input of the model its name, its flat column and its padding value."""
        yield "input_ids", self.ids, self.pad_id
        if self.types is not None:
            yield "token_type_ids", self.types, 0

    def to(self, device: torch.device) -> Self:
        """Return the same rows on another device; `counted` stays on the CPU."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "counted"}
        moved: dict[str, Any] = {n: v.to(device) for n, v in own.items() if isinstance(v, Tensor)}
        return replace(self, **moved)


def _gathered(flat: Tensor, places: Tensor, mask: Tensor, fill: int) -> Tensor:
    if not len(flat):  # every row is empty: nothing to gather
        return torch.full(mask.shape, fill, device=mask.device)
    return flat[places].long().masked_fill_(~mask, fill)


def with_own_mask(texts: Sequence[str], mask: str, tokenizer: Any) -> Sequence[str]:
    """Replace the transfer set's mask word by the tokenizer's mask token, or else its unknown token.

    A tokenizer with neither, as of some decoders, reads the word as it is.
    """
    own = tokenizer.mask_token or tokenizer.unk_token or mask
    return texts if not mask or own == mask else [text.replace(mask, own) for text in texts]


def encode(
    tokenizer: Any,
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    max_tokens: int,
    *,
    mask: str = "",
    pieces: WordPieces | None = None,
    progress: str = "",
    scratch: Scratch = TEMPORARY,
) -> Encoded:
    """Tokenise rows once, for every epoch.

    Args:
        tokenizer: A transformers tokenizer.
        texts: N texts.
        text_pairs: N second texts, or None.
        max_tokens: Longer rows are truncated; of a pair, the longer side first.
        mask: The transfer set's mask word, replaced by the tokenizer's own mask token; empty:
            nothing is replaced.
        pieces: What `word_pieces` made of the tokenizer, kept from call to call; None: made here
            where there are rows enough.
        progress: Name of the progress bar; empty: none.
        scratch: Where the rows are kept.
    """
    ids, types = scratch.column(np.int32), scratch.column(np.int32)
    offsets, counted = scratch.column(np.int64), scratch.column(np.int64)
    offsets.append(np.zeros(1, np.int64))
    end = 0
    has_types = "token_type_ids" in tokenizer.model_input_names
    if pieces is None and len(texts) > _CHUNK:
        pieces = word_pieces(tokenizer, max_tokens)
    with progress_bar(
        total=len(texts),
        desc=progress,
        unit="row",
        unit_scale=True,
        delay=1,  # most calls take less
        leave=False,
    ) as bar:
        for start in range(0, len(texts), _CHUNK):
            part = slice(start, start + _CHUNK)
            first = with_own_mask(texts[part], mask, tokenizer)
            second = (
                None if text_pairs is None else with_own_mask(text_pairs[part], mask, tokenizer)
            )
            ask = pieces.rows if pieces else partial(_asked, tokenizer)
            tokens, kinds, lengths = ask(first, second, max_tokens)
            ids.append(tokens)
            types.append(kinds)
            offsets.append(end + lengths.cumsum())
            counted.append(lengths)
            end += len(tokens)
            bar.update(len(first))
    return Encoded(
        torch.from_numpy(ids.whole()),
        torch.from_numpy(types.whole()) if has_types else None,
        torch.from_numpy(offsets.whole()),
        int(tokenizer.pad_token_id),
        counted=torch.from_numpy(counted.whole()),
    )


def word_pieces(tokenizer: Any, max_tokens: int) -> WordPieces | None:
    """Return a faster equivalent of this tokenizer, where there is one."""
    return WordPieces(tokenizer) if gathers(tokenizer, max_tokens) else None


def _asked(
    tokenizer: Any, texts: Sequence[str], text_pairs: Sequence[str] | None, max_tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ask the tokenizer itself; returns what `WordPieces.rows` does, or no token types."""
    has_types = "token_type_ids" in tokenizer.model_input_names
    # A fast one learns by its first call where to truncate; asked without what stands round its
    # backend, which threads share, it takes half the time.
    some = slice(1 if tokenizer.is_fast else len(texts))
    out = tokenizer(
        texts[some],
        None if text_pairs is None else text_pairs[some],
        truncation=True,
        max_length=max_tokens,
        return_attention_mask=False,
        return_token_type_ids=has_types,
    )
    ids, types = out["input_ids"], out["token_type_ids"] if has_types else []
    if tokenizer.is_fast:
        asked = texts if text_pairs is None else list(zip(texts, text_pairs, strict=True))
        rows = tokenizer.backend_tokenizer.encode_batch_fast(asked)
        ids, types = [row.ids for row in rows], [row.type_ids for row in rows if has_types]
    return _flat(ids), _flat(types), np.array([len(row) for row in ids], np.int64)


def _flat(rows: list[list[int]]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32)


def shuffled_batches(
    lengths: Tensor, batch_size: int, generator: torch.Generator, pool_batches: int = 50
) -> list[Tensor]:
    """Cut a fresh shuffle into batches of rows of like length; every row comes exactly once.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
        batch_size: Rows a batch.
        generator: Draws the order.
        pool_batches: Rows are sorted by length within pools of this many batches: padding stays
            low, order stays random.

    Returns:
        Row numbers of each batch, (B,) int64.
    """
    order = torch.randperm(len(lengths), generator=generator)
    for pool in order.split(batch_size * pool_batches):
        pool[:] = pool[lengths[pool].argsort(stable=True)]
    batches = order.split(batch_size)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def drawn_rows(
    weights: Tensor, generator: torch.Generator, before: Mapping[float, int] | None = None
) -> Tensor:
    """Draw the rows of an epoch by sampling weight.

    Args:
        weights: How often each row is wanted, (N,) float, 0 or more.
        generator: Draws which rows come once more, where a weight has a fraction.
        before: By fraction, how many such rows earlier parts of the same data have had.

    Returns:
        Row numbers, (M,) int64, ascending: row i `floor(weights[i])` times, and of the n rows with
        the same fraction f `round(f * n)` once more, over all parts. M depends on `weights` and
        `before` alone.
    """
    whole = weights.floor()
    found = [torch.arange(len(weights)).repeat_interleave(whole.long())]
    rest = weights - whole
    for fraction in rest[rest > 0].unique():
        (rows,) = torch.where(rest == fraction)
        f, past = float(fraction), (before or {}).get(float(fraction), 0)
        more = round(f * (past + len(rows))) - round(f * past)
        found.append(rows[torch.randperm(len(rows), generator=generator)[:more]])
    return torch.cat(found).sort().values


def budget_batches(
    lengths: Tensor, max_batch_tokens: int, *, even: bool = False
) -> Iterator[Tensor]:
    """Cut rows, longest first, into batches of at most `max_batch_tokens` padded tokens.

    Longest first: what does not fit in memory fails at once, and not after an hour.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
        max_batch_tokens: Tokens a batch.
        even: A batch that is half full ends where the length changes, so that most batches need
            neither padding nor a mask.
    """
    order = lengths.argsort(descending=True, stable=True)
    # for each place in `order`, where the rows of that length end
    ends = torch.searchsorted(-lengths[order], -lengths[order], right=True).tolist()
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        count = max(1, max_batch_tokens // longest)
        if even and 2 * (ends[start] - start) >= count:
            count = min(count, ends[start] - start)
        yield order[start : start + count]
        start += count
