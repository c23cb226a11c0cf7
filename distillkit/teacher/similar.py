"""Similar words in token space: what MacBERT puts where BERT puts its mask."""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from upath import UPath

from distillkit.data.counter import GOLDEN, mix_tensor
from distillkit.data.readers import read_lines
from distillkit.data.rows import TextRows
from distillkit.data.vectors import read_vectors
from distillkit.errors import InputError
from distillkit.processes import progress_bar

# Words of more pieces are rare, and hardly have one of the same number that is like them.
_MAX_PIECES = 4
_MOST_WORDS = 50_000
# How many of its nearest stand in for a word, each as often.
_NEAREST = 5
_BLOCK = 1024


class SimilarWords:
    """Words, as runs of word pieces, and for each some others with as many pieces.

    Args:
        words: N words of 1 to 4 pieces each.
        similar: For each, numbers of words in `words`.
    """

    def __init__(self, words: Sequence[Sequence[int]], similar: Sequence[Sequence[int]]) -> None:
        most = max([1, *map(len, similar)])
        self._pieces = torch.zeros(len(words) + 1, _MAX_PIECES, dtype=torch.long)
        self._others = torch.zeros(len(words) + 1, most, dtype=torch.long)
        for i, (word, others) in enumerate(zip(words, similar, strict=True)):
            self._pieces[i, : len(word)] = torch.tensor(word)
            self._others[i, : len(others)] = torch.tensor(others, dtype=torch.long)
        self._counts = torch.tensor([*map(len, similar), 0])
        sizes = torch.tensor([*map(len, words), 0])
        columns = torch.arange(_MAX_PIECES)
        codes = _code(self._pieces, columns) * (columns < sizes[:, None])
        self._keys, self._order = codes.sum(1).sort()

    def __len__(self) -> int:
        return int((self._counts > 0).sum())

    def replace(self, ids: Tensor, unit: Tensor, uniform: Tensor, otherwise: Tensor) -> Tensor:
        """Return for every token the one that stands there in a similar word.

        Args:
            ids: Tokens, (B, T) int64.
            unit: Number of the word of each token, from 1; 0 where there is none, (B, T) int64.
            uniform: Chooses among a word's similar ones, (B, T + 1) float32, 0 to 1.
            otherwise: What stands where a word has none, (B, T) int64.
        """
        keys, order, counts, others, pieces = (
            tensor.to(ids.device)
            for tensor in (self._keys, self._order, self._counts, self._others, self._pieces)
        )
        columns = torch.arange(ids.shape[1], device=ids.device)
        before = torch.cat([torch.full_like(unit[:, :1], -1), unit[:, :-1]], 1)
        place = columns - torch.where(unit != before, columns, 0).cummax(1).values
        found = torch.zeros(len(ids), ids.shape[1] + 1, dtype=torch.long, device=ids.device)
        found.scatter_add_(1, unit, _code(ids, place))  # (B, units): the key of each word
        at = torch.searchsorted(keys, found).clamp(max=len(keys) - 1)
        word = order[at]
        known = (keys[at] == found) & (counts[word] > 0)
        other = others[word, (uniform * counts[word]).long().clamp(max=others.shape[1] - 1)]
        new = pieces[other.gather(1, unit), place.clamp(max=_MAX_PIECES - 1)]
        return torch.where(known.gather(1, unit) & (unit > 0), new, otherwise)


def similar_words(
    rows: TextRows, tokenizer: Any, embeddings: Tensor, source: str = ""
) -> SimilarWords:
    """Find the similar words of the frequent ones of a text.

    Args:
        rows: The text.
        tokenizer: What cut it into subwords.
        embeddings: The encoder's, (V, H): a word's vector is the mean of its subwords'.
        source: Empty; or a word-vector text file, which is used in their place; or a .tsv
            thesaurus, a word and its synonyms a line.

    Raises:
        InputError: There is no such file, it cannot be read, or it knows none of the text's words.
    """
    spelt: dict[str, tuple[int, ...]] = {}
    for word in _frequent_words(rows):
        if tokenizer.unk_token_id not in word:
            # Byte-level subwords spell a word in two ways, with a space before it and without: they
            # are one word, not similar ones.
            spelt.setdefault(_spelt(tokenizer, word), word)
    words = list(spelt.values())
    path = Path(source)
    if source and not path.is_file():
        raise InputError(
            f"adapt.masking.similar {source!r}: no such file; expected a word-vector text file or a .tsv thesaurus"
        )
    if source.endswith(".tsv"):
        found = _of_thesaurus(path, tokenizer, set(words))
    elif source:
        vectors, known = read_vectors(path, list(spelt))
        words = [word for word, has in zip(words, known, strict=True) if has]
        found = SimilarWords(words, _neighbours(words, vectors[known]))
    else:
        table = embeddings.detach().float().cpu().numpy()
        means = [table[list(word)].mean(0) for word in words]
        vectors = np.array(means, np.float32).reshape(-1, table.shape[1])
        found = SimilarWords(words, _neighbours(words, vectors))
    if not len(found):
        raise InputError(
            f"adapt.masking.similar {source!r}: has no two words of the text with as many word pieces; give a larger one"
        )
    return found


def _frequent_words(rows: TextRows) -> list[tuple[int, ...]]:
    """Return the words of at most `_MAX_PIECES` subwords, as these, the most frequent first."""
    ids, flags = rows.ids.numpy(), rows.words.numpy()
    starts = np.flatnonzero(flags == 1)
    # Of every run of later tokens, and of every token without any.
    ends = np.flatnonzero(np.append(flags[1:] != 2, True)) + 1
    sizes = ends[np.searchsorted(ends, starts, "right")] - starts
    starts, sizes = starts[sizes <= _MAX_PIECES], sizes[sizes <= _MAX_PIECES]
    columns = np.arange(_MAX_PIECES)
    inside = columns < sizes[:, None]
    pieces = np.where(inside, ids[np.minimum(starts[:, None] + columns, len(ids) - 1)], -1)
    found, counts = np.unique(pieces, axis=0, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_MOST_WORDS]
    return [tuple(int(piece) for piece in row if piece >= 0) for row in found[most]]


def _neighbours(words: Sequence[tuple[int, ...]], vectors: np.ndarray) -> list[list[int]]:
    """Return each word's nearest by cosine among those with as many subwords, as numbers."""
    similar: list[list[int]] = [[] for _ in words]
    norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    unit, sizes = torch.from_numpy(vectors / norms).float(), torch.tensor([*map(len, words)])
    what = "adapt: similar words"
    with progress_bar(total=len(words), desc=what, unit="word", unit_scale=True) as bar:
        for size in range(1, _MAX_PIECES + 1):
            members = (sizes == size).nonzero()[:, 0]
            near = min(_NEAREST, len(members) - 1)
            if near < 1:
                continue
            for block in torch.arange(len(members)).split(_BLOCK):
                closeness = unit[members[block]] @ unit[members].T
                closeness[torch.arange(len(block)), block] = -2.0  # itself
                nearest = members[closeness.topk(near, dim=1).indices]
                for i, row in zip(members[block].tolist(), nearest.tolist(), strict=True):
                    similar[i] = row
                bar.update(len(block))
    return similar


def _of_thesaurus(path: Path, tokenizer: Any, known: Set[tuple[int, ...]]) -> SimilarWords:
    number: dict[tuple[int, ...], int] = {}
    similar: list[list[int]] = []
    for place, line in read_lines(UPath(path)):
        # With the space that stands before a word in a text: byte-level subwords begin with it.
        names = [f" {name.strip()}" for name in line.split("\t") if name.strip()]
        if not names:
            continue
        if len(names) == 1:
            raise InputError(
                f"{place}: a word without a synonym; expected a word and its synonyms, tabs between"
            )
        cut = [tuple(row) for row in tokenizer(names, add_special_tokens=False)["input_ids"]]
        size = len(cut[0])
        alike = [row for row in cut if len(row) == size and tokenizer.unk_token_id not in row]
        if not 0 < size <= _MAX_PIECES:
            continue
        for row in alike:
            if row not in number:
                number[row] = len(similar)
                similar.append([])
        if alike and alike[0] == cut[0]:
            word = similar[number[alike[0]]]
            others = dict.fromkeys(number[row] for row in alike[1:])
            word += [i for i in others if i != number[alike[0]] and i not in word]
    if not any(similar[i] for word, i in number.items() if word in known):
        return SimilarWords([], [])
    return SimilarWords(list(number), similar)


def _spelt(tokenizer: Any, word: Sequence[int]) -> str:
    # One word, even where BERT's tokenizer would set its characters apart, as it does Chinese ones.
    said = tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(list(word)))
    return "".join(said.split())


def _code(ids: Tensor, place: Tensor) -> Tensor:
    """Return a number for a subword at a place in its word; a word's key is their sum."""
    return mix_tensor(mix_tensor(ids + GOLDEN) + place * GOLDEN)
