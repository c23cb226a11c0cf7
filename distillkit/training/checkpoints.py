"""Checkpoints from which a training continues exactly; each is whole or absent.

FOLDER/checkpoint-000000500/state.json       where training stood, and what it was started with
                           /rank-0.safetensors   weights, optimizer, random states
                           (one file a process)
      /best/                                 the weights with the best dev score
      /log.jsonl, tensorboard/               how it went
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from distillkit.data.checked import check_sealed, readable, seal
from distillkit.data.files import disk_errors, recover_folders, remove_folder, replace_folder
from distillkit.errors import InputError
from distillkit.recipe.renamed import did_nothing, new_key
from distillkit.training.strategies.base import Strategy

_BLOCK = 2**18  # of an array or a column, hashed together
_BEFORE = "remove that folder to go on from the one before it"
_ANEW = "--no-resume starts over"


@dataclass
class Position:
    """Where a training stands, from which it can go on.

    Attributes:
        epoch: The epoch at work, from 1.
        in_epoch: Optimizer steps done in it.
        step: Optimizer steps done in all.
        loss: Sum over the epoch's rows so far.
        skipped: Steps that an overflow of fp16 cost.
        left_out: Those of them that the schedule does not count. It learns of them at looks, so
            this is part of what a resumed training repeats.
        stale: Epochs since the best one.
        best_score: Best dev score so far; None: none yet.
        best_epoch: Its epoch.
        history: Of each finished epoch, loss and dev score.
    """

    epoch: int = 1
    in_epoch: int = 0
    step: int = 0
    loss: float = 0.0
    skipped: int = 0
    left_out: int = 0
    stale: int = 0
    best_score: float | None = None
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one training, in a folder of its own.

    Args:
        folder: Made when the first one is written; every process must see it.
        made_from: What the training is started with and its result depends on, sections of it in
            mappings of their own: a resumed training must agree.
        resume: Go on from what is there; False: what is there is removed.
    """

    def __init__(
        self, folder: Path, made_from: Mapping[str, Any] | None = None, *, resume: bool = True
    ) -> None:
        self.folder, self.resume = folder, resume
        self._made_from = by_path(made_from or {})

    def begin(self, strategy: Strategy, made_from: Mapping[str, Any]) -> Position:
        """Restore a prepared strategy and every random state from the last whole checkpoint.

        Args:
            strategy: Prepared.
            made_from: What else the result depends on.

        Returns:
            Where training stands.

        Raises:
            InputError: That checkpoint is of other settings, or cannot be read.
        """
        self._made_from |= by_path(made_from)
        if strategy.rank == 0 and not self.resume:
            self.discard()
        if strategy.rank == 0:
            recover_folders(self.folder)
            for partial in self.folder.glob(".*partial"):
                shutil.rmtree(partial, ignore_errors=True)
        found = self.all()
        number = int(
            strategy.broadcast(
                float(found[-1].name.rpartition("-")[2]) if found and self.resume else -1
            )
        )
        if number < 0:
            return Position()
        path = self._path(number)
        own = f"rank-{strategy.rank if strategy.separate else 0}.safetensors"
        with readable(path, _BEFORE):
            check_sealed(path, _BEFORE)
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        self._check(path, state["made_from"])
        here = [strategy.config.strategy, strategy.world]
        if strategy.separate and not state["separate"]:
            raise InputError(
                f"{path}: {state['strategy']} wrote it whole, {strategy.config.strategy} keeps a part a process; go on with the same, or --no-resume"
            )
        if state["separate"] and [state["strategy"], state["world"]] != here:
            raise InputError(
                f"{path}: each of {state['world']} processes of {state['strategy']} has kept its own part; go on with the same, or --no-resume to start over"
            )
        with readable(path, _BEFORE):
            tensors = load_file(path / own)
        strategy.load_weights(tensors)
        strategy.load_state(tensors)
        # With other processes than before what is drawn from here on differs; the order of the rows
        # does not.
        if state["world"] == strategy.world:
            with readable(path, _BEFORE):
                _set_random_state(load_file(path / f"rank-{strategy.rank}.safetensors"))
        return Position(**state["position"])

    def save(self, strategy: Strategy, position: Position, keep: int) -> None:
        """Write a checkpoint, then remove the oldest; every process calls this.

        Args:
            strategy: Whose weights and state are kept.
            position: Where training stands.
            keep: How many stay.
        """
        tensors = {**strategy.weights(), **strategy.state()}
        if strategy.rank and not strategy.separate:
            tensors = {}
        about = {
            "position": asdict(position),
            "made_from": self._made_from,
            "world": strategy.world,
            "strategy": strategy.config.strategy,
            "separate": strategy.separate,
        }
        self._write(self._path(position.step), strategy, {**tensors, **_random_state()}, about)
        if strategy.rank == 0:
            for old in self.all()[:-keep]:
                remove_folder(old)

    def save_best(self, strategy: Strategy, about: Mapping[str, Any]) -> None:
        """Keep the weights as they are now as the best."""
        weights = strategy.weights()
        self._write(
            self.folder / "best",
            strategy,
            {} if strategy.rank and not strategy.separate else weights,
            about,
        )

    def load_best(self, strategy: Strategy) -> dict[str, Any]:
        """Give the model the best weights; return what `save_best` was told about them."""
        path = self.folder / "best"
        with readable(path, _ANEW):
            check_sealed(path, _ANEW)
            strategy.load_weights(
                load_file(path / f"rank-{strategy.rank if strategy.separate else 0}.safetensors")
            )
            return json.loads((path / "state.json").read_text(encoding="utf-8"))

    def all(self) -> list[Path]:
        """List the whole checkpoints, oldest first."""
        return sorted(
            path for path in self.folder.glob("checkpoint-*") if (path / "state.json").is_file()
        )

    def hand_over(self, folder: Path) -> None:
        """Leave in the finished model's folder, under `training`, how its training went."""
        log, events = self.folder / "log.jsonl", self.folder / "tensorboard"
        if log.is_file():
            (folder / "training").mkdir()
            shutil.copy(log, folder / "training" / "log.jsonl")
        if events.is_dir():
            shutil.copytree(events, folder / "training" / "tensorboard")

    def discard(self) -> None:
        """Remove them all, the log too."""
        if self.folder.is_dir():
            remove_folder(self.folder)

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step:09d}"

    def _write(
        self, path: Path, strategy: Strategy, tensors: dict[str, Tensor], about: Mapping[str, Any]
    ) -> None:
        # One name for all processes, each of which puts its file there.
        partial = path.with_name(f".{path.name}.partial")
        with disk_errors(path):
            if strategy.rank == 0:
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
            strategy.wait()
            save_file(tensors, partial / f"rank-{strategy.rank}.safetensors")
            strategy.wait()
            if strategy.rank == 0:
                (partial / "state.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
                seal(partial)
                for file in partial.iterdir():
                    _flush(file)
                replace_folder(partial, path)
        strategy.wait()

    def _check(self, path: Path, before: Mapping[str, Any]) -> None:
        before = {_today(n): value for n, value in before.items() if not did_nothing(n, value)}
        for name in [*self._made_from, *before]:
            old, new = before.get(name), self._made_from.get(name)
            if old != new:
                raise InputError(
                    f"{path}: its training was started with {name} {old!r}, this one with {new!r}; give the same to go on, or --no-resume to start over"
                )


def _today(name: str) -> str:
    """Return a setting's name of today; a checkpoint may have an old one."""
    section, _, _ = name.rpartition(".")
    new = new_key(name)
    return f"{section}.{new}" if new else name


def checkpoint_folder(output: Path) -> Path:
    """Return the hidden folder beside `output` where its training keeps checkpoints."""
    return output.with_name(f".{output.name}.training")


def digest(*values: Any) -> str:
    """Return a SHA-256 over arrays, columns of a table as lists, and what else JSON can say."""
    found = hashlib.sha256()
    for value in values:
        for part in _bytes_of(value):
            found.update(part)
    return found.hexdigest()


def _bytes_of(value: Any) -> Iterator[bytes]:
    """Yield an array's or a column's bytes a block at a time: it may be larger than memory."""
    blocks = range(0, len(value) if isinstance(value, np.ndarray | pa.ChunkedArray) else 0, _BLOCK)
    if isinstance(value, np.ndarray):
        yield from (value[start : start + _BLOCK].tobytes() for start in blocks)
    elif isinstance(value, pa.ChunkedArray):
        lists = (json.dumps(value.slice(start, _BLOCK).to_pylist())[1:-1] for start in blocks)
        yield b"["
        yield from (b", " * bool(number) + text.encode() for number, text in enumerate(lists))
        yield b"]"
    else:
        yield json.dumps(value).encode()


def by_path(sections: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name every setting by its path, in what JSON has, so that two of them can be compared."""
    found: dict[str, Any] = {}
    for name, value in sections.items():
        section = isinstance(value, Mapping)
        found |= by_path(value, f"{prefix}{name}.") if section else {prefix + name: value}
    return found if prefix else json.loads(json.dumps(found))


def _flush(file: Path) -> None:
    # Renamed before its bytes are on the disk, a file could be empty after a crash of the machine.
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _random_state() -> dict[str, Tensor]:
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - theirs, not ours
    state = {
        "random.torch": torch.get_rng_state(),
        "random.python": torch.tensor([version, *words], dtype=torch.int64),
        "random.python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "random.numpy": torch.from_numpy(np.asarray(keys, np.int64)),
        "random.numpy_rest": torch.tensor([position, has_gauss, cached], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(state["random.torch"])
    version, *words = state["random.python"].tolist()
    gauss = state["random.python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    position, has_gauss, cached = state["random.numpy_rest"].tolist()
    keys = state["random.numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, int(position), int(has_gauss), cached))  # noqa: NPY002
    if "random.cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["random.cuda"])


def training_log(model: Path) -> list[dict[str, Any]]:
    """Return the lines of a finished model's log, as `training.reports` wrote them; [] without one."""
    log = model / "training" / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    return [json.loads(line) for line in lines]
