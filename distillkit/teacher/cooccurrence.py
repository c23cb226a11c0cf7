"""Vectors of subwords from what stands near them: what a fresh encoder begins with."""

from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from distillkit.data.rows import SPECIAL, TextRows
from distillkit.processes import progress_bar

_WINDOW = 5
# Of how often a piece is a neighbour at all: rare ones would look near to everything.
_SMOOTHING = 0.75
_MOST_TOKENS = 20_000_000
_BLOCK = 1 << 20


def cooccurrence_vectors(rows: TextRows, vocabulary: int, width: int, seed: int = 1) -> Tensor:
    """Factorise how much more often than by chance word pieces are neighbours.

    Args:
        rows: Text; of a very long one the first 20 million tokens are read.
        vocabulary: V, how many pieces there are.
        width: W, numbers a vector.
        seed: Of the randomised factorisation.

    Returns:
        (V, W) float32, zeros for pieces that the text lacks; those of small vocabularies have zeros
        at the end, too.

    Source: Levy, Goldberg and Dagan 2015 ("Improving distributional similarity with lessons learned
    from word embeddings"): positive pointwise mutual information in a window of 5 that weighs near
    neighbours more, smoothed contexts, and the square root of the singular values.
    """
    counts = _neighbours(rows, vocabulary).tocoo()
    total = np.asarray(counts.sum(1)).ravel()
    smoothed = total**_SMOOTHING / max((total**_SMOOTHING).sum(), 1)
    with np.errstate(divide="ignore"):
        information = np.log(counts.data / (total[counts.row] * smoothed[counts.col]))
    positive = information > 0
    matrix: Any = sparse.csr_matrix(
        (information[positive], (counts.row[positive], counts.col[positive])),
        counts.shape,
        np.float32,
    )
    left, values, _ = randomized_svd(matrix, min(width, vocabulary), random_state=seed)
    vectors = np.zeros((vocabulary, width), np.float32)
    vectors[:, : len(values)] = left * np.sqrt(values)
    vectors[np.diff(matrix.indptr) == 0] = 0  # but for rounding they are
    return torch.from_numpy(vectors)


def _neighbours(rows: TextRows, vocabulary: int) -> sparse.csr_matrix:
    """Count subwords near each other, (V, V) float32; special tokens part their two sides."""
    ids = rows.ids[:_MOST_TOKENS].numpy()
    special = rows.words[:_MOST_TOKENS].numpy() == SPECIAL
    part = special.cumsum()
    counts = sparse.csr_matrix((vocabulary, vocabulary), dtype=np.float32)
    with progress_bar(
        total=len(ids), desc="adapt: co-occurrence", unit="token", unit_scale=True
    ) as bar:
        for start in range(0, len(ids), _BLOCK):
            for distance in range(1, _WINDOW + 1):
                here = np.arange(start, min(start + _BLOCK, len(ids) - distance))
                here = here[(part[here] == part[here + distance]) & ~special[here]]
                near = np.full(len(here), (_WINDOW + 1 - distance) / _WINDOW, np.float32)
                counts += sparse.csr_matrix((near, (ids[here], ids[here + distance])), counts.shape)
            bar.update(min(_BLOCK, len(ids) - start))
    return counts + counts.T
