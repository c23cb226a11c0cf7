"""What a student's training starts from, prepared once for all of its processes."""

import glob
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from distillkit.data.batches import Encoded
from distillkit.data.files import remove_folder, whole_folder
from distillkit.processes import without_foreign_bars
from distillkit.student.train import TrainingRows
from distillkit.training.strategies.base import Strategy

_LOOK_EVERY = 0.2  # seconds


@dataclass(frozen=True)
class Prepared:
    """A student that has not learnt yet, and its rows.

    Attributes:
        model: The student.
        tokenizer: Its tokenizer.
        rows: What it learns from.
        weights: Of each teacher in the targets, by name.
        digest: Of targets and labels, which a resumed training must agree with.
    """

    model: Any
    tokenizer: Any
    rows: TrainingRows
    weights: dict[str, float]
    digest: str

    def save(self, folder: Path) -> None:
        """Write it for `load`, as files that can be mapped."""
        with without_foreign_bars():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        for name, tensor in self._tensors().items():
            if tensor is not None:
                np.save(folder / f"{name}.npy", tensor.numpy(), allow_pickle=False)
        facts = {
            "pad_id": self.rows.tokens.pad_id,
            "weights": self.weights,
            "digest": self.digest,
        }
        (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")

    def _tensors(self) -> dict[str, Tensor | None]:
        tokens = self.rows.tokens
        return {
            "ids": tokens.ids,
            "types": tokens.types,
            "offsets": tokens.offsets,
            "counted": tokens.counted,
            "targets": self.rows.targets,
            "gold": self.rows.gold,
            "sampling_weights": self.rows.sampling_weights,
        }

    @staticmethod
    def load(folder: Path) -> "Prepared":
        """Map what `save` wrote."""
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        ids, offsets = _mapped(folder, "ids"), _mapped(folder, "offsets")
        assert ids is not None
        assert offsets is not None
        types, counted = _mapped(folder, "types"), _mapped(folder, "counted")
        tokens = Encoded(ids, types, offsets, facts["pad_id"], counted=counted)
        rest = (_mapped(folder, name) for name in ("targets", "gold", "sampling_weights"))
        with without_foreign_bars(str(folder)):
            model = AutoModelForSequenceClassification.from_pretrained(folder)
            tokenizer = AutoTokenizer.from_pretrained(folder)
        rows = TrainingRows(tokens, *rest)
        return Prepared(model, tokenizer, rows, facts["weights"], facts["digest"])


def _mapped(folder: Path, name: str) -> Tensor | None:
    path = folder / f"{name}.npy"
    if not path.is_file():
        return None
    # Copied on writing, which nobody does: torch warns of arrays that cannot be written.
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


@contextmanager
def shared(strategy: Strategy, output: Path, make: Callable[[], Prepared]) -> Iterator[Prepared]:
    """Prepare in process 0 alone; the other processes map the files that it writes.

    The files stay until the block ends: on a network's file system a process of another machine
    loses what it has mapped when they are removed.

    Args:
        strategy: By which the processes have met.
        output: The files are in a hidden folder beside it, which all processes must see.
        make: Prepares.
    """
    if strategy.world == 1:
        yield make()
        return
    # A new name: what a killed training left is of other rows, perhaps.
    token = int(strategy.broadcast(float(secrets.randbits(48))))
    place = output.with_name(f".{output.name}.rows-{token:012x}")
    if strategy.rank == 0:
        for old in output.parent.glob(f".{glob.escape(output.name)}.rows-*"):
            remove_folder(old)
        with whole_folder(place) as partial:
            make().save(partial)
    while not place.is_dir():
        time.sleep(_LOOK_EVERY)
    try:
        yield Prepared.load(place)
    finally:
        if strategy.rank == 0:
            remove_folder(place)
