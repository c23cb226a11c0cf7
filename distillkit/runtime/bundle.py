"""A bundle: a folder or file with `manifest.json`, a tokenizer and ONNX graphs, checked whole."""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from distillkit.errors import InputError

FORMAT = 1
_LEVEL, _WORTH = 9, 0.9  # of zlib; a file is deflated if that leaves less than this share
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
# One graph; or, of a siamese model, one for a text's vector and one for two vectors' logits.
MODEL, ENCODER, HEAD = "model.onnx", "encoder.onnx", "head.onnx"


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself.

    Attributes:
        task: classification, multi-label or regression.
        labels: C names, in the order of the logits.
        max_tokens: Longer rows are truncated; of a pair, the longer side first.
        pairs: True where rows are pairs, False for single texts alone, None for either. A siamese
            model has `encoder.onnx` and `head.onnx`, every other one `model.onnx`.
        pad_id: Of padding.
        files: SHA-256 and bytes of every other file, by name.
        made_from: What was exported, and how.
        parity: How far the graph's answers were from torch's.
        cascade: What `distillkit cascade` chose; None: nothing.
        temperature: What `Predictor.predict` divides the logits by, fitted on labelled rows.
        coverage: By coverage, as in "0.95", the probability from which a label is in the set; None:
            nothing.
        rejection: The rule of `runtime.answers.own_scores`, and what it was measured to do; None:
            nothing.
    """

    task: str
    labels: list[str]
    max_tokens: int
    pairs: bool | None
    pad_id: int
    files: dict[str, dict[str, Any]]
    made_from: dict[str, Any] = field(default_factory=dict)
    parity: dict[str, Any] = field(default_factory=dict)
    cascade: dict[str, Any] | None = None
    format: int = FORMAT
    temperature: float = 1.0
    coverage: dict[str, float] | None = None
    rejection: dict[str, Any] | None = None

    def text(self) -> str:
        """Return the manifest as JSON."""
        said = asdict(self)
        # Earlier versions refuse fields that they do not know.
        for name, nothing in (("temperature", 1), ("coverage", None), ("rejection", None)):
            if said[name] == nothing:
                del said[name]
        return json.dumps(said, ensure_ascii=False, indent=1) + "\n"


def described(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return what a manifest says of files: their SHA-256 and bytes."""
    return {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in files.items()
    }


def read_bundle(place: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read a folder or one-file bundle, and check every file against the manifest.

    Returns:
        The manifest, and the other files' bytes by name.

    Raises:
        InputError: A file is missing, cut short, or not what the manifest says.
    """
    stored = _stored(place)
    if MANIFEST not in stored:
        raise InputError(
            f"{place}: no {MANIFEST}; expected a folder or file that distillkit export wrote"
        )
    manifest = _manifest(f"{place}/{MANIFEST}", stored[MANIFEST])
    found: dict[str, bytes] = {}
    for name, wanted in manifest.files.items():
        if name not in stored:
            raise InputError(f"{place}: {name} is missing, which {MANIFEST} lists; export again")
        data = stored[name]
        if len(data) != wanted["bytes"]:
            raise InputError(
                f"{place}/{name}: {len(data)} bytes, and {MANIFEST} says {wanted['bytes']}: it was cut or replaced; export again"
            )
        if hashlib.sha256(data).hexdigest() != wanted["sha256"]:
            raise InputError(
                f"{place}/{name}: its SHA-256 is not what {MANIFEST} says: it was changed; export again"
            )
        found[name] = data
    return manifest, found


def write_bundle(
    place: Path, manifest: Manifest, files: Mapping[str, bytes], *, one_file: bool
) -> None:
    """Write a bundle's files into an empty folder, or all of them into one file.

    The same manifest and files give the same bytes.
    """
    contents = {MANIFEST: manifest.text().encode(), **files}
    if not one_file:
        for name, data in contents.items():
            (place / name).write_bytes(data)
        return
    with zipfile.ZipFile(place, "w") as bundle:
        for name, data in contents.items():
            # Weights in fp32 hardly shrink, and load more slowly.
            deflated = len(zlib.compress(data, _LEVEL)) < _WORTH * len(data)
            entry = zipfile.ZipInfo(name)  # without the time of day
            entry.compress_type = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
            bundle.writestr(entry, data, compresslevel=_LEVEL if deflated else None)


def is_bundle(place: Path) -> bool:
    """Say whether a path is a bundle, whole or not; no checkpoint is one file."""
    return place.is_file() or (place / MANIFEST).is_file()


def _stored(place: Path) -> dict[str, bytes]:
    if place.is_dir():
        files = (file for file in place.iterdir() if file.suffix in (".json", ".onnx"))
        return {file.name: file.read_bytes() for file in files}
    if not place.is_file():
        raise InputError(f"{place}: no such folder or file; expected what distillkit export wrote")
    try:
        with zipfile.ZipFile(place) as bundle:
            return {name: bundle.read(name) for name in bundle.namelist()}
    except (zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        raise InputError(
            f"{place}: no bundle, or one that was cut short ({error}); export again"
        ) from None


def _manifest(name: str, data: bytes) -> Manifest:
    try:
        manifest = Manifest(**json.loads(data))
        files = {
            name: {key: of[key] for key in ("sha256", "bytes")}
            for name, of in manifest.files.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{name}: not a manifest ({error}); export again") from None
    if manifest.format != FORMAT:
        raise InputError(
            f"{name}: format {manifest.format}, and this version reads {FORMAT}; export again"
        )
    return replace(manifest, files=files)
