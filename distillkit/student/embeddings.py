"""Where the student's word vectors start: an encoder, a vector file, or chance."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distillkit.data.vectors import read_vectors
from distillkit.errors import InputError
from distillkit.student.vocabulary import PAD, UNKNOWN, words_of

# n words in, their states after K layers out, (n, K, H): how an encoder is asked without the
# student's code knowing what one is.
StatesOfWords = Callable[[Sequence[str]], Tensor]

# Standard deviation of the numbers in the table: that of Kim's uniform [-0.25, 0.25] for unknown
# words.
_SCALE = 0.25 / 3**0.5


def from_encoder(tokenizer: Any, dimension: int, ask: StatesOfWords) -> Tensor:
    """Give each word an encoder's states for it, reduced by PCA.

    Each layer weighs the same. The last layer alone is not enough: fine-tuned for two classes, a
    third of its variance over words is in one direction.

    Args:
        tokenizer: The student's, of V words; its special tokens get zeros, which is the mean word.
        dimension: At most the encoder's hidden size. n words span n components; what `dimension`
            has beyond them starts as zeros.
        ask: The encoder's states for words. A subword is asked without the signs that mark it as
            one.

    Returns:
        (V, dimension) float32, mean 0, standard deviation over all components that of uniform
        [-0.25, 0.25].

    Raises:
        InputError: `dimension` is too large.
    """
    words = words_of(tokenizer)
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    known = [i for i, word in enumerate(words) if word not in special]
    if not known:
        raise InputError(
            "student.vocabulary: no word is left; lower student.vocabulary.min_count, or raise its size"
        )
    states = ask([_spelt(tokenizer, words[i]) for i in known]).numpy().astype(np.float64)
    if dimension > states.shape[2]:
        raise InputError(
            f"student.embeddings.dimension is {dimension}: expected at most {states.shape[2]}, the encoder's hidden size"
        )
    if not np.ptp(states, axis=0).any():
        raise InputError(
            "student.embeddings: the encoder has one and the same vector for all of the student's words; does it read this language?"
        )
    states -= states.mean(0)
    spread = states.std((0, 2), keepdims=True)  # (1, K, 1)
    states /= np.where(spread, spread, 1)
    table = np.zeros((len(words), dimension))
    width = min(dimension, len(known))
    table[known, :width] = _SCALE * principal_components(states.reshape(len(known), -1), width)
    return torch.from_numpy(table).float()


def _spelt(tokenizer: Any, word: str) -> str:
    """Return the text of a vocabulary entry: `ing` for `##ing`, `good` for a byte-level `Ġgood`."""
    return tokenizer.convert_tokens_to_string([word]).strip().removeprefix("##") or word


def principal_components(vectors: np.ndarray, width: int) -> np.ndarray:
    """Reduce vectors by PCA.

    Args:
        vectors: (n, H) float64.
        width: Components, at most n and H.

    Returns:
        (n, width) float64, the largest component first, mean 0, standard deviation over all
        numbers 1. The same bits every time.
    """
    centred = vectors - vectors.mean(0)
    axes = np.linalg.eigh(centred.T @ centred / len(vectors))[1][:, : -width - 1 : -1]  # (H, width)
    # An axis points either way: here, where its largest number is positive.
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(width)])
    reduced = centred @ axes
    return reduced / np.sqrt((reduced**2).mean())


def check_vector_file(path: Path) -> None:
    """Check that a word-vector file is there.

    Raises:
        InputError: It is not.
    """
    if not path.is_file():
        raise InputError(
            f"student.embeddings.source {str(path)!r}: no such file; expected teacher, an encoder, random, or a word-vector text file"
        )


def from_file(words: Sequence[str], width: int, path: Path) -> tuple[Tensor, float]:
    """Read word vectors in GloVe's or word2vec's text form.

    Args:
        words: V words in the order of their ids.
        width: Embedding dimension; that of the file must be the same.
        path: One word and its numbers a line, split at spaces; a first line of two numbers
            (word2vec's counts) is skipped.

    Returns:
        (V, width) float32: the file's numbers times one factor, which gives those of the words
        found the root mean square of the others, uniform in [-0.25, 0.25] (Kim 2014); and the share
        of words found, 0 to 1.

    Raises:
        InputError: No such file, a line that is no vector, or another width.
    """
    check_vector_file(path)
    numbers, found = read_vectors(
        path, words, width, "set --student.embeddings.dimension to the file's own"
    )
    table = (torch.rand(len(words), width) - 0.5) * 0.5
    # Kim's range is that of word2vec's numbers. GloVe's are five times wider: unscaled they drown
    # the words that the file lacks, and hardly move.
    known = numbers[found]
    spread = np.sqrt(np.mean(known**2)) if known.any() else 1.0
    table[torch.from_numpy(found)] = torch.from_numpy(known * np.float32(_SCALE / spread))
    for i, word in enumerate(words):
        if word in (PAD, UNKNOWN):
            table[i] = 0
    return table, float(found.mean())
