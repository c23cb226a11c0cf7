"""Tokenised rows as flat tensors, and batches of rows of like length gathered from them by index."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

_CHUNK = 8192


@dataclass(frozen=True)
class Encoded:
    """N tokenised rows without padding.

    `ids` and `types` are flat (all tokens of all rows, in order), int32; row i is `ids[offsets[i]:offsets[i + 1]]`.
    `types` is None where the model has no token types.
    """

    ids: Tensor
    types: Tensor | None
    offsets: Tensor
    pad_id: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens a row, (N,) int64."""
        return self.offsets[1:] - self.offsets[:-1]

    def batch(self, rows: Tensor) -> dict[str, Tensor]:
        """Gather rows into padded tensors.

        Args:
            rows: Row numbers, (B,) int64.

        Returns:
            `input_ids`, `attention_mask` and, where the model has them, `token_type_ids`, each (B, T) int64, padded on the right to the longest row.
        """
        start, length = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        steps = torch.arange(max(int(length.max()), 1), device=rows.device)
        mask = steps < length[:, None]  # (B, T)
        if not len(self.ids):  # every row is empty: nothing to gather
            return {"input_ids": torch.full(mask.shape, self.pad_id), "attention_mask": mask.long()} | (
                {} if self.types is None else {"token_type_ids": torch.zeros(mask.shape, dtype=torch.long)}
            )
        flat = (start[:, None] + steps).clamp_(max=len(self.ids) - 1)
        batch = {"input_ids": self.ids[flat].long().masked_fill_(~mask, self.pad_id), "attention_mask": mask.long()}
        if self.types is not None:
            batch["token_type_ids"] = self.types[flat].long().masked_fill_(~mask, 0)
        return batch

    def to(self, device: torch.device) -> "Encoded":
        """Return the same rows on another device."""
        types = None if self.types is None else self.types.to(device)
        return Encoded(self.ids.to(device), types, self.offsets.to(device), self.pad_id)


def with_own_mask(texts: Sequence[str], mask: str, tokenizer: Any) -> Sequence[str]:
    """Replace the transfer set's mask word by the token that this tokenizer knows as its mask (or, having none, as unknown)."""
    own = tokenizer.mask_token or tokenizer.unk_token
    return texts if not mask or own == mask else [text.replace(mask, own) for text in texts]


def encode(
    tokenizer: Any,
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    max_tokens: int,
    *,
    mask: str = "",
    progress: str = "",
) -> Encoded:
    """Tokenise rows once, for every epoch.

    Args:
        tokenizer: A transformers tokenizer.
        texts: N texts.
        text_pairs: N second texts, or None.
        max_tokens: Longer rows are truncated; of a pair, the longer side first.
        mask: The transfer set's mask word, replaced by the tokenizer's own mask token; empty: nothing is replaced.
        progress: Name of the progress bar; empty: none.
    """
    ids: list[np.ndarray] = []
    types: list[np.ndarray] = []
    lengths: list[int] = []
    has_types = "token_type_ids" in tokenizer.model_input_names
    with tqdm(total=len(texts), desc=progress, unit="row", unit_scale=True, disable=None if progress else True) as bar:
        for start in range(0, len(texts), _CHUNK):
            part = slice(start, start + _CHUNK)
            first = with_own_mask(texts[part], mask, tokenizer)
            second = None if text_pairs is None else with_own_mask(text_pairs[part], mask, tokenizer)
            out = tokenizer(
                first, second, truncation=True, max_length=max_tokens, return_attention_mask=False, return_token_type_ids=has_types
            )  # fmt: skip
            lengths.extend(map(len, out["input_ids"]))
            ids.append(_flat(out["input_ids"]))
            if has_types:
                types.append(_flat(out["token_type_ids"]))
            bar.update(len(first))
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64))
    return Encoded(
        torch.from_numpy(np.concatenate(ids)),
        torch.from_numpy(np.concatenate(types)) if has_types else None,
        offsets,
        int(tokenizer.pad_token_id),
    )


def _flat(rows: list[list[int]]) -> np.ndarray:
    return np.fromiter((token for row in rows for token in row), dtype=np.int32)


def shuffled_batches(
    lengths: Tensor, batch_size: int, generator: torch.Generator, pool_batches: int = 50
) -> list[Tensor]:
    """Cut a fresh shuffle into batches of rows of like length; every row comes exactly once, the tail included.

    Args:
        lengths: Tokens a row, (N,) int64, on the CPU.
        batch_size: Rows a batch.
        generator: Draws the order.
        pool_batches: Rows are sorted by length within pools of this many batches: padding stays low, order stays random.

    Returns:
        Row numbers of each batch, (B,) int64.
    """
    order = torch.randperm(len(lengths), generator=generator)
    batches: list[Tensor] = []
    for pool in order.split(batch_size * pool_batches):
        batches.extend(pool[lengths[pool].argsort(stable=True)].split(batch_size))
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def budget_batches(lengths: Tensor, max_batch_tokens: int) -> Iterator[Tensor]:
    """Cut rows, longest first, into batches of at most `max_batch_tokens` tokens, padding included (one row at least).

    Longest first: what does not fit in memory fails at once, and not after an hour.
    """
    order = lengths.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        count = max(1, max_batch_tokens // longest)
        yield order[start : start + count]
        start += count
