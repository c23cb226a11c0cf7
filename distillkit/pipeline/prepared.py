"""What a student's training starts from, prepared once for all of its processes."""

import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distillkit.data.batches import Encoded
from distillkit.data.checked import save_array, save_pretrained
from distillkit.data.files import disk_errors, remove_folder, whole_file
from distillkit.errors import InputError
from distillkit.processes import rank
from distillkit.student.register import register
from distillkit.student.train import TrainingRows
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.strategies.base import Strategy

_LOOK_EVERY, _SEEN_WITHIN = 0.2, 120  # seconds; a network's file system shows new names late
_FACTS = "facts.json"


@dataclass(frozen=True)
class Prepared:
    """A student that has not learnt yet, and its rows.

    Attributes:
        model: The student.
        tokenizer: Its tokenizer.
        rows: What it learns from.
        teacher_shares: Of each teacher in the targets, by name; 1 in all.
        digest: Of targets and labels, which a resumed training must agree with.
    """

    model: Any
    tokenizer: Any
    rows: TrainingRows
    teacher_shares: dict[str, float]
    digest: str

    def save(self, folder: Path) -> None:
        """Write it for `load`, the arrays as files that can be mapped; _FACTS comes last."""
        save_pretrained(folder, self.model, self.tokenizer)
        for name, tensor in self._tensors().items():
            if tensor is not None:
                with (folder / f"{name}.npy").open("wb") as sink:
                    save_array(tensor.numpy(), sink)
        frozen = [name for name, p in self.model.named_parameters() if not p.requires_grad]
        facts = {
            "pad_id": self.rows.tokens.pad_id,
            "teacher_shares": self.teacher_shares,
            "digest": self.digest,
            "frozen": frozen,
        }
        with whole_file(folder / _FACTS) as partial:
            partial.write_text(json.dumps(facts), encoding="utf-8")

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
        register()  # a kind that was added since the Auto classes were loaded
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        ids, offsets = _mapped(folder, "ids"), _mapped(folder, "offsets")
        assert ids is not None
        assert offsets is not None
        types, counted = _mapped(folder, "types"), _mapped(folder, "counted")
        tokens = Encoded(ids, types, offsets, facts["pad_id"], counted=counted)
        rest = (_mapped(folder, name) for name in ("targets", "gold", "sampling_weights"))
        model, tokenizer = load_classifier(str(folder))
        for name in facts["frozen"]:
            model.get_parameter(name).requires_grad_(False)
        rows = TrainingRows(tokens, *rest)
        return Prepared(model, tokenizer, rows, facts["teacher_shares"], facts["digest"])


def _mapped(folder: Path, name: str) -> Tensor | None:
    path = folder / f"{name}.npy"
    if not path.is_file():
        return None
    # Shared, though nobody writes: private pages would count as memory, and torch warns of arrays
    # that cannot be written.
    return torch.from_numpy(np.load(path, mmap_mode="r+", allow_pickle=False))


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
    token = secrets.randbits(48)
    if strategy.rank == 0:
        _remove_old(output)
        with disk_errors(output):
            _place(output, token).mkdir(parents=True)
    place = _place(output, int(strategy.broadcast(float(token))))
    _see(place)
    strategy.wait()
    if strategy.rank:
        _wait_for(place)
        yield Prepared.load(place)
        return
    try:
        made = make()
        with disk_errors(output):
            made.save(place)
        # The student as it was built, which is saved in the end, but not the rows: they are there twice.
        model, tokenizer = made.model, made.tokenizer
        del made
        yield replace(Prepared.load(place), model=model, tokenizer=tokenizer)
    finally:
        remove_folder(place)


def _place(output: Path, token: int) -> Path:
    return output.with_name(f".{output.name}.rows-{token:012x}")


def _remove_old(output: Path) -> None:
    ours = re.compile(rf"\.{re.escape(output.name)}\.rows-[0-9a-f]{{12}}(\.removed\.partial)?")
    for old in output.parent.glob(".*.rows-*"):
        if ours.fullmatch(old.name):
            shutil.rmtree(old, ignore_errors=True)


def _see(place: Path) -> None:
    """Wait until process 0's folder is to be seen.

    Raises:
        InputError: It is not.
    """
    until = time.monotonic() + _SEEN_WITHIN
    while not place.is_dir():
        if time.monotonic() > until:
            raise InputError(
                f"{place.parent}: process {rank()} does not see what process 0 writes there; all processes must see the output's folder"
            )
        time.sleep(_LOOK_EVERY)


def _wait_for(place: Path) -> None:
    """Wait until process 0 has prepared the rows.

    Raises:
        InputError: It gave up.
    """
    while not (place / _FACTS).is_file():
        if not place.is_dir():
            raise InputError(f"process {rank()} ends, as process 0 could not prepare the rows")
        time.sleep(_LOOK_EVERY)
