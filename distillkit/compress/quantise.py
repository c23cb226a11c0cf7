"""Quantised weights (int8, int4, clusters, products), as stored and as training sees them."""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from distillkit.compress.product import FEWEST_ROWS, product_coded, product_values
from distillkit.recipe import CompressConfig, Storage, TableStorage

# Steps from 0 to a row's largest weight.
_STEPS = {"int8": 127, "int4": 7}
# Fractions of a row's largest weight at which int4 may be clipped, for finer steps below.
_CLIPS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_SAMPLE = 200_000  # weights that clusters are fitted on


class Codes(NamedTuple):
    """A matrix of few values: value (r, n) is codebook[codes[r, n]] * scale[r].

    Attributes:
        codes: (R, N) uint8.
        codebook: (K,) float32, K at most 256.
        scale: (R, 1) float32 of float16 numbers; None: 1.
    """

    codes: Tensor
    codebook: Tensor
    scale: Tensor | None

    def values(self) -> Tensor:
        """Return what is stored, (R, N) float32."""
        found = self.codebook[self.codes.long()]
        return found if self.scale is None else found * self.scale


def coded(rows: Tensor, storage: Storage, clusters: int = 16) -> Codes:
    """Store a matrix (R, N) float32 in few values.

    Stored values do not change when they are stored again.

    Args:
        rows: The matrix.
        storage: int8, int4 (a scale a row, symmetric), or kmeans.
        clusters: Values of kmeans.
    """
    if storage == "kmeans":
        codebook = codebook_of(rows, clusters)
        return Codes(_nearest(rows, codebook).to(torch.uint8), codebook, None)
    steps = _STEPS[storage]
    numbers, scale = _in_steps(rows, steps)
    codes = numbers + steps
    return Codes(codes.to(torch.uint8), torch.arange(-steps, steps + 1, dtype=torch.float32), scale)


def clipped(rows: Tensor, storage: Storage) -> Tensor:
    """Clip each row (R, N) where its int4 form is nearest to it; other storage clips nothing."""
    if storage != "int4":
        return rows
    largest = rows.abs().amax(1, keepdim=True)
    best, error = rows, torch.full_like(largest, torch.inf)
    for share in _CLIPS:
        cut = rows.clamp(-share * largest, share * largest)
        found = (coded(cut, storage).values() - rows).square().sum(1, keepdim=True)
        best, error = torch.where(found < error, cut, best), torch.minimum(found, error)
    return best


def codebook_of(rows: Tensor, clusters: int) -> Tensor:
    """Return the cluster centres of a matrix, (K,) float32, ascending; its values if they are few.

    The first guess is evenly spaced, which keeps the large weights (Han et al. 2016, arXiv
    1510.00149, section 3.2).
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    values = rows.detach().flatten().numpy()
    distinct = np.unique(values[:_SAMPLE])
    if len(distinct) <= clusters and len(distinct := np.unique(values)) <= clusters:
        return torch.from_numpy(distinct)
    if len(values) > _SAMPLE:
        values = np.random.default_rng(0).choice(values, _SAMPLE, replace=False)
    start = np.linspace(values.min(), values.max(), clusters)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of clusters that stay empty
        fitted = KMeans(len(start), init=start, n_init=1, max_iter=50).fit(values[:, None])
    return torch.from_numpy(np.unique(fitted.cluster_centers_[:, 0].astype(np.float32)))


class Stored(nn.Module):
    """A weight's stored form in training, with a straight-through gradient (Bengio et al. 2013).

    Args:
        weight: Before training.
        storage: As for `coded`, or pq; fp16 and fp32 are not rounded in training.
        clusters: Values of kmeans, which are trained too; so are the centres of pq, whose codes stay.
        counts: As for `product_coded`.
    """

    def __init__(
        self,
        weight: Tensor,
        storage: TableStorage,
        clusters: int = 16,
        counts: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.storage = storage
        self.codes: Tensor | None
        codes, codebook = None, None
        if storage == "kmeans":
            codebook = codebook_of(weight, clusters)
        elif storage == "pq":
            codes, codebook = product_coded(weight, counts)
        self.register_buffer("codes", codes)
        self.codebook = None if codebook is None else nn.Parameter(codebook)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight as it would be stored, in its own shape."""
        if self.codebook is not None:
            found = (
                self.codebook[_nearest(weight.detach(), self.codebook.detach())]
                if self.codes is None
                else product_values(self.codes, self.codebook)
            )
            return found + (weight - weight.detach())
        if self.storage not in _STEPS:
            return weight
        with torch.no_grad():
            numbers, scale = _in_steps(weight.flatten(1), _STEPS[self.storage])
            rounded = (numbers * scale).view_as(weight) - weight
        return weight + rounded


def quantise_in_training(
    model: nn.Module, compress: CompressConfig, counts: np.ndarray | None = None
) -> None:
    """Let training see tables and matrices as they will be stored, until `keep_quantised`.

    Args:
        model: Changed in place.
        compress: Says how they are stored.
        counts: How often each token is used, (V,); None: all alike.
    """
    for module, name, storage in stored_weights(model, compress):
        part = Stored(getattr(module, name).detach(), storage, compress.clusters, counts)
        parametrize.register_parametrization(module, name, part)


def keep_quantised(model: nn.Module) -> None:
    """Leave a model with what training saw of its weights."""
    for module in list(model.modules()):
        for name in list(getattr(module, "parametrizations", {})):
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def round_weights(
    model: nn.Module, compress: CompressConfig, counts: np.ndarray | None = None
) -> None:
    """Round a model's tables and matrices to what will be stored; `counts` as above."""
    with torch.no_grad():
        for module, name, storage in stored_weights(model, compress):
            weight = getattr(module, name)
            if storage == "fp16":
                half = weight.half()
                weight.copy_(half if half.isfinite().all() else weight)  # a head of scores
            elif storage == "pq":
                weight.copy_(product_coded(weight, counts).values())
            elif storage != "fp32":
                rows = clipped(weight.flatten(1), storage)
                weight.copy_(coded(rows, storage, compress.clusters).values().view_as(weight))


def stored_weights(
    model: nn.Module, compress: CompressConfig
) -> list[tuple[nn.Module, str, TableStorage]]:
    """List a model's tables and matrices, not its biases and norms: module, name, storage."""
    found: list[tuple[nn.Module, str, TableStorage]] = []
    for module in model.modules():
        table = isinstance(module, nn.Embedding)
        found += [
            (module, name, table_storage(len(weight), compress) if table else compress.weights)
            for name, weight in module.named_parameters(recurse=False)
            if weight.ndim > 1
        ]
    return found


def table_storage(rows: int, compress: CompressConfig) -> TableStorage:
    """Return how a table of so many rows is stored; pq costs a small one more than int8."""
    few = compress.embeddings == "pq" and rows < FEWEST_ROWS
    return "int8" if few else compress.embeddings


def stored_numbers(model: nn.Module, compress: CompressConfig) -> int:
    """Return how many numbers a model has as it is stored: of pq its codes and centres."""
    total = sum(weight.numel() for weight in model.parameters())
    for module, name, storage in stored_weights(model, compress):
        if storage == "pq":
            weight = getattr(module, name)
            codes, centres = product_coded(weight)
            total += codes.numel() + centres.numel() - weight.numel()
    return total


def _in_steps(rows: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return rows (R, N) in whole steps, -steps to steps, and the size of a row's step, (R, 1)."""
    found = rows.abs().amax(1, keepdim=True) / steps
    scale = _half(found.clamp(min=2.0**-24))  # float16's smallest
    return (rows / scale).round().clamp(-steps, steps), scale


def _half(scale: Tensor) -> Tensor:
    return scale.clamp(max=torch.finfo(torch.float16).max).half().float()


def _nearest(values: Tensor, codebook: Tensor) -> Tensor:
    """Return the index of the nearest code of each value, int64, in a codebook of any order."""
    order = codebook.argsort()
    ordered = codebook[order]
    return order[torch.bucketize(values, (ordered[1:] + ordered[:-1]) / 2)]
