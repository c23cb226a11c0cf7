"""A run's folder: a folder a stage, each made once, whole or not at all."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from distillkit.data.checked import read_json
from distillkit.data.files import (
    check_foreign,
    disk_errors,
    hold,
    recover_folder,
    replace_folder,
    whole_file,
)
from distillkit.errors import InputError, Unfinished
from distillkit.processes import log
from distillkit.recipe import Recipe

Summary = dict[str, Any]
BUNDLE = "bundle.zip"  # what a run ends with
# What a run's folder holds; the stages in their order.
_HELD = {
    BUNDLE: "**ship this**: the student, compressed; `distillkit predict`, `serve` and `runtime.Predictor` take it",
    "report.html": "the evidence on one page; open it in a browser",
    "result.json": "every model's scores; the same run gives the same bytes",
    "recipe.yaml": "every setting, with the reasons for those that nobody gave; running it repeats the run",
    "first-labels": "the texts that a service or a zero-shot encoder labelled (`train.parquet`)",
    "data": "train, dev, test and unlabelled text as they were read",
    "adapted": "the encoder after more pre-training (`model/`)",
    "teacher": "the fine-tuned teacher (`model/`)",
    "transfer": "the transfer set (`transfer.parquet`)",
    "logits": "the teacher's logits for it (`store/`)",
    "asked": "what the model service was asked and has answered; a changed run asks nothing twice",
    "student-gold": "the same student trained on the labels alone (`model/`), to compare with",
    "student": "the distilled student (`model/`): a transformers checkpoint, before it was compressed",
    "ship": "the compressed student (`compressed/`), and its bundle",
    "evaluation": "tables of all scores and times",
    "ladder": "what each step towards the transfer set adds (`distillkit ladder`)",
}


@dataclass
class RunFolder:
    """`runs/<name>/`: a folder a stage, each with a stage.json that says what it was made from."""

    folder: Path
    stages: tuple[str, ...] = ()
    """Names of all stages, in their order; the log then counts them, as in (3 of 7). None: it does not."""

    def stage(
        self,
        name: str,
        settings: object,
        inputs: Mapping[str, str],
        build: Callable[[Path], Mapping[str, Any]],
        *,
        version: int,
    ) -> Summary:
        """Return a stage's summary, building the stage only if something it depends on has changed.

        Args:
            name: Folder of the stage.
            settings: Everything of the recipe that the result depends on.
            inputs: What the stage reads, by name: fingerprints of files, keys of other stages.
            build: Fills the folder it is given. The folder gets the stage's name only when it is
                whole. One left by a killed run is handed back if nothing has changed since. A
                stage of which someone has removed a file is built again.
            version: Of the code. It is raised by hand when the same settings and inputs give
                another result.
        """
        final = (self.folder / name).resolve()  # a stage may be a link to another disk
        partial = final.with_name(f".{final.name}.partial")
        before = self._stamp(name)
        if final.exists() and not before:
            raise InputError(
                f"{final}: not a stage of a run, and would be replaced; choose another --output"
            )
        made_from = _made_from(settings, inputs, version)
        key = _key(name, made_from)
        gone = _gone(final, before)
        if before.get("key") == key and not gone:
            log(f"{name}: nothing has changed, kept")
            return before["summary"]
        if before:
            check_foreign(final)
            why = f"{gone} is gone" if gone else _why(before, made_from)
            log(f"{name}: done again, because {why}")
        began = time.monotonic()
        with disk_errors(final):
            # A kill may fall between a stage's last byte and its renaming.
            if _stamp(partial).get("key") != key:
                _fill(partial, key, made_from, build)
            (partial / "key").unlink(missing_ok=True)
            replace_folder(partial, final)
        took = timedelta(seconds=round(time.monotonic() - began))
        counted = (
            f" ({self.stages.index(name) + 1} of {len(self.stages)})" if name in self.stages else ""
        )
        log(f"{name}: done in {took}{counted}")
        return self._stamp(name)["summary"]

    def kept(
        self, name: str, settings: object, inputs: Mapping[str, str], *, version: int
    ) -> Summary | None:
        """Return a stage's summary if `stage` would keep it, or None: nothing is built."""
        stamp = self._stamp(name)
        key = _key(name, _made_from(settings, inputs, version))
        whole = stamp.get("key") == key and not _gone((self.folder / name).resolve(), stamp)
        return stamp["summary"] if whole else None

    def is_of(self, name: str, version: int) -> bool:
        """Say whether a stage is there and was made by this version of its code."""
        return self._stamp(name).get("made_from", {}).get("version") == version

    def keys(self, *names: str) -> dict[str, str]:
        """Return the keys of stages, for those that read them; "" where one is absent."""
        return {name: self._stamp(name).get("key", "") for name in names}

    def _stamp(self, name: str) -> Summary:
        final = (self.folder / name).resolve()
        recover_folder(final)
        return _stamp(final)


def _made_from(settings: object, inputs: Mapping[str, str], version: int) -> Summary:
    return {"version": version, "settings": _hash(settings), "inputs": dict(inputs)}


def _key(name: str, made_from: Summary) -> str:
    return _hash([name, made_from])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str, sort_keys=True).encode()).hexdigest()


def _why(before: Summary, now: Summary) -> str:
    """Say what differs between what a stage was made from and what it would be made from now."""
    old = before.get("made_from")
    if old is None:
        return "an earlier distillkit made it and noted no version"
    if old["version"] != now["version"]:
        return f"version {old['version']} of this stage made it, and this is {now['version']}"
    if old["settings"] != now["settings"]:
        return "its settings have changed"
    names = sorted({*old["inputs"], *now["inputs"]})
    changed = [name for name in names if old["inputs"].get(name) != now["inputs"].get(name)]
    return f"what it reads has changed: {', '.join(changed)}"


def _gone(stage: Path, stamp: Summary) -> str:
    """Return the first file that a stage had when it was whole and has no longer, or ""."""
    return next((name for name in stamp.get("files", ()) if not (stage / name).exists()), "")


def _stamp(stage: Path) -> Summary:
    path = stage / "stage.json"
    return read_json(path, f"delete {stage} to make it anew") if path.is_file() else {}


def _fill(
    partial: Path, key: str, made_from: Summary, build: Callable[[Path], Mapping[str, Any]]
) -> None:
    if not (partial / "key").is_file() or (partial / "key").read_text(encoding="utf-8") != key:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "key").write_text(key, encoding="utf-8")
    began = time.monotonic()
    try:
        stamp: Summary = {"key": key, "made_from": made_from, "summary": dict(build(partial))}
        stamp["seconds"] = round(time.monotonic() - began, 1)
        files = (path for path in partial.rglob("*") if path.is_file() and path.name != "key")
        stamp["files"] = sorted(path.relative_to(partial).as_posix() for path in files)
        with whole_file(partial / "stage.json") as unfinished:
            unfinished.write_text(json.dumps(stamp, ensure_ascii=False, indent=1), encoding="utf-8")
    except Unfinished:
        raise
    except InputError:  # a bug, or want of memory, loses nothing that is done
        # A training that was told to end, or that hit a NaN, has left checkpoints or the bad batch.
        if not any(partial.glob(".*.training")):
            shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def at_work(folder: Path, stages: tuple[str, ...] = ()) -> Iterator[RunFolder]:
    """Hold a run's folder for one process; leave nothing behind if no stage was finished.

    Args:
        folder: The run's.
        stages: As `RunFolder`'s.

    Raises:
        InputError: Another process holds it.
    """
    with hold(folder):
        fresh = not folder.exists()
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
        try:
            yield RunFolder(folder, stages)
        except InputError:
            if fresh and not any(folder.glob("*/stage.json")):
                shutil.rmtree(folder, ignore_errors=True)
            raise


def stages_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of a run's stages, in their order."""
    asked = {
        "first-labels": bool(recipe.data.labels),
        "adapted": bool(recipe.adapt.text.sources),
        "student-gold": recipe.evaluation.gold_epochs > 0,
        "ship": recipe.ship.form == "bundle",
        "asked": False,
        "ladder": False,
    }
    return tuple(name for name in _HELD if asked.get(name, "." not in name))


def write_index(folder: Path) -> None:
    """Write a run's README.md: what each of its files and folders is, and which to ship."""
    there = [f"* `{name}`: {what}" for name, what in _HELD.items() if (folder / name).exists()]
    lines = [f"# {folder.resolve().name}", "", "Made by `distillkit run`.", "", *there]
    with whole_file(folder / "README.md") as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")


def relative(summary: Mapping[str, Any]) -> Summary:
    """Leave out where a stage was built: a temporary folder that is gone."""
    return {key: value for key, value in summary.items() if key != "output"}
