"""Product quantisation of a table of vectors: one byte for four numbers of a row.

Source: Jégou et al. 2011 (doi 10.1109/TPAMI.2010.57); of word vectors Joulin et al. 2016 (arXiv 1612.03651).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from distillkit.errors import InputError

PART = 4  # numbers of a row that have one code together
FEWEST_ROWS = 1024  # the centres of fewer are as large as the table
_CENTRES = 256  # at most, so that a code is a byte
_ROWS_EACH = 16  # rows a centre, at least


class ProductCodes(NamedTuple):
    """A table (V, W) whose rows are cut into M = W / 4 parts, each near one of K centres.

    Part m of a row has its numbers m, M + m, 2 M + m and 3 M + m: where the first numbers matter most, as
    after `narrow_embedding`, every part has some of them.

    Attributes:
        codes: (V, M) uint8.
        centres: (M, K, 4) float32 of float16 numbers.
    """

    codes: Tensor
    centres: Tensor

    def values(self) -> Tensor:
        """Return the table, (V, W) float32."""
        return product_values(self.codes, self.centres)


def product_values(codes: Tensor, centres: Tensor) -> Tensor:
    """Return the table (V, W) of codes (V, M) and centres (M, K, 4); gradients reach the centres."""
    parts, most, size = centres.shape
    places = codes.long() + most * torch.arange(parts, device=codes.device)
    found = centres.reshape(-1, size)[places]  # (V, M, 4)
    return found.transpose(1, 2).reshape(len(codes), -1)


def product_coded(rows: Tensor, counts: np.ndarray | None = None) -> ProductCodes:
    """Find the centres of a table's parts, and each row's codes.

    A table of product codes gets the same values again.

    Args:
        rows: The table, (V, W) float32.
        counts: How often each token is used, (V,); 0 counts as 1. None, or of another length, as
            for a table of positions: all rows alike.

    Raises:
        InputError: W is no multiple of 4.
    """
    from sklearn.cluster import KMeans

    if rows.shape[1] % PART:
        raise InputError(
            f"compress.embeddings is pq, but the embedding dimension is {rows.shape[1]}: expected a multiple of {PART}; give compress.embedding_size"
        )
    table = rows.detach().cpu().numpy()
    zero = ~table.any(axis=1)  # of padding, which must stay so
    most = min(_CENTRES, -(-len(table) // _ROWS_EACH))
    if counts is not None and len(counts) != len(table):
        counts = None
    weights = None if counts is None else np.maximum(counts, 1)[~zero]
    centres = np.zeros((table.shape[1] // PART, most, PART), np.float32)
    codes = np.zeros((len(table), len(centres)), np.uint8)
    for number, of_part in enumerate(centres):
        part = table[:, number :: len(centres)]
        found, places = np.unique(part, axis=0, return_inverse=True)
        if len(found) <= most:
            of_part[: len(found)], codes[:, number] = found, places.reshape(-1)
            continue
        first = int(zero.any())  # centre 0 is zero
        fitted = KMeans(most - first, n_init=1, max_iter=25, random_state=0)
        codes[~zero, number] = first + fitted.fit_predict(part[~zero], None, weights)
        of_part[first:] = fitted.cluster_centers_
    return ProductCodes(torch.from_numpy(codes), torch.from_numpy(centres).half().float())
