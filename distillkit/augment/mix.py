"""The ways beside the rules: what models they use, what is prepared for them once, and the variations themselves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distillkit.augment.corpus import Lexicon
from distillkit.augment.rules import Rules, Variation
from distillkit.data.files import fingerprint
from distillkit.data.vectors import read_vectors
from distillkit.recipe import AugmentConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Models:
    """What the ways of the mix ask; empty for a way that is not in use."""

    infill: str = ""
    """Encoder checkpoint: a folder or a hub name."""
    generated: str = ""
    """Causal language model, likewise."""
    vectors: str = ""
    """Where word vectors come from: an encoder checkpoint, or a word-vector text file."""
    ask: Callable[[str, Sequence[str]], "Tensor"] | None = None
    """Checkpoint and V words in, their vectors (V, H) out; None: `vectors` is a file."""

    def fingerprints(self) -> list[str]:
        """Say what they hold: the contents of files and folders, the name of what is on a hub."""
        names = [self.infill, self.generated, self.vectors]
        return [fingerprint(Path(name)) if name and Path(name).exists() else name for name in names]


def share_of(config: AugmentConfig, way: str, rows: int) -> int:
    """Return how many of the variants of some rows a way of the mix makes."""
    weights = asdict(config.mix)
    return round(config.n_iter * rows * weights[way] / sum(weights.values()))


def prepare(
    lexicon: Lexicon,
    config: AugmentConfig,
    models: Models,
    texts: Callable[[int], Sequence[str]],
    seed: int,
    folder: Path,
) -> None:
    """Do once what every worker needs; what is in the folder already stays.

    Args:
        lexicon: Of the corpus.
        config: The mix, and each way's settings.
        models: Those that the mix uses.
        texts: Draws that many of the task's texts.
        seed: Draws everything.
        folder: Where `variations` looks.
    """
    # Here and below: torch is imported by those who use it, and not by every worker.
    if config.mix.infill and not (folder / "infill").is_dir():
        from distillkit.augment.infill import prepare_infill

        prepare_infill(models.infill, texts, config.infill, seed, folder / "infill")
    if config.mix.neighbours and not (folder / "neighbours.npy").is_file():
        from distillkit.augment.neighbours import prepare_neighbours

        vectors = (
            partial(_from_file, Path(models.vectors))
            if models.ask is None
            else partial(models.ask, models.vectors)
        )
        prepare_neighbours(lexicon, vectors, config.neighbours.k, folder / "neighbours.npy")


def variations(lexicon: Lexicon, config: AugmentConfig, folder: Path) -> Mapping[str, Variation]:
    """Return the variations of the mix, from what `prepare` left in the folder."""
    ways: dict[str, Variation] = {"rules": Rules(lexicon, config)}
    if config.mix.infill:
        from distillkit.augment.infill import Infill

        ways["infill"] = Infill(lexicon, config.infill, folder / "infill")
    if config.mix.neighbours:
        from distillkit.augment.neighbours import Neighbours

        ways["neighbours"] = Neighbours(lexicon, config.neighbours, folder / "neighbours.npy")
    return ways


def _from_file(path: Path, words: Sequence[str]) -> "Tensor":
    import torch

    return torch.from_numpy(read_vectors(path, words)[0])
