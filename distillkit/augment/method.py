"""What an augmentation method declares, and what it is given; `methods.METHODS` has them all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from distillkit.augment.corpus import Lexicon
from distillkit.augment.rules import Variation
from distillkit.augment.taggers import Tagger
from distillkit.data.checked import fingerprint_or_name
from distillkit.recipe import AugmentConfig, Engine
from distillkit.recipe.kinds import Reference

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Models:
    """The models that the methods of a mix use."""

    of: Mapping[str, str] = field(default_factory=dict)
    """Model by method: a checkpoint's folder or hub name, or a file."""
    vectors_of: "Callable[[str, Sequence[str]], Tensor] | None" = None
    """Checkpoint and V words in, their vectors (V, H) out."""
    vectors_of_texts: "Callable[[str, Sequence[str]], np.ndarray] | None" = None
    """Checkpoint and N texts in, their vectors (N, H) float32 out."""

    def fingerprints(self) -> dict[str, str]:
        """Return by method the hash of its model's files, or its name if it is on a hub."""
        return {method: fingerprint_or_name(name) for method, name in self.of.items()}


@dataclass(frozen=True)
class AugmentOptions:
    """All that a transfer set depends on beside its sources, and where the work is done."""

    config: AugmentConfig
    """How variants are made."""
    seed: int = 1
    """Draws everything."""
    held_out: Sequence[pa.Table] = ()
    """Dev and test tables; an added row equal to one of theirs, by `normal_row`, is left out."""
    tagger: Tagger | None = None
    """In place of `config.tagger`; its tags are not kept for another time."""
    models: Models = field(default_factory=Models)
    """Those that `config.mix` uses."""
    engine: Engine = "local"
    """Where the work is done; the bytes written do not depend on it."""
    workers: int = 0
    """Processes; 0: one a core where there is work enough. The bytes do not depend on them."""


@dataclass(frozen=True)
class Preparation:
    """What a method has when it prepares, once, what every worker will read."""

    options: AugmentOptions
    lexicon: Lexicon
    folder: Path  # where the method writes


@dataclass(frozen=True)
class RowsJob:
    """What a method has that brings whole rows, and not variants of rows."""

    options: AugmentOptions
    # Methods of origin `unlabelled` get the unlabelled texts; those of `generated` the originals and,
    # with `vary_unlabelled`, the unlabelled texts. `takes_singles` adds the single unlabelled texts.
    tables: Iterable[pa.Table]
    wanted: int  # rows
    sample: Sequence[str]  # some originals
    digest: str  # hash of all originals, and of what else `tables` has
    work: Path  # folder for files that a killed run goes on from


@dataclass(frozen=True)
class Method:
    """An augmentation method; it has either `variation` or `rows`."""

    name: str
    """Of its sampling weight in `augment.mix`."""
    sentence: str
    """What it does, for docs and model cards."""
    variation: Callable[[Lexicon, AugmentConfig, Path], Variation] | None = None
    """Makes variants of texts, from the lexicon, the settings and what `prepare` wrote."""
    self_pairs: bool = False
    """A variant of a pair's text stands beside that text, and not beside the pair's other text."""
    rows: Reference | None = None
    """From a `RowsJob`, tables of `origin`; given by name, it is loaded when used."""
    takes_singles: bool = False
    """`rows` makes pairs of single texts; where the task is of pairs, unlabelled ones are for it."""
    origin: str = ""
    """`unlabelled`: its rows take the place of those texts; `generated`: they are new."""
    model: Callable[[AugmentConfig, str], tuple[str, str] | None] | None = None
    """From settings and teacher to the setting that names its model, and the model; None: the
    settings need none."""
    prepare: Callable[[Preparation], None] | None = None
    """Done once, before `variation`; what the folder holds already stays."""
    check: Callable[[AugmentConfig, bool, bool], None] | None = None
    """From settings, whether rows are pairs, and whether there is raw text; raises InputError."""


def share_of(config: AugmentConfig, method: str, rows: int) -> int:
    """Return how many of the variants of some rows a method of the mix makes."""
    weights = asdict(config.mix)
    return round(config.n_iter * rows * weights[method] / sum(weights.values()))
