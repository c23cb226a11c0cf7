"""A bundle: a folder or file with `manifest.json`, a tokenizer and ONNX graphs, checked whole."""

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from distillkit.errors import InputError, library_errors

FORMAT = 1
_LEVEL, _WORTH = 9, 0.9  # of zlib; a file is deflated if that leaves less than this share
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
# One graph; or, of a siamese model, one for a text's vector and one for two vectors' logits.
MODEL, ENCODER, HEAD = "model.onnx", "encoder.onnx", "head.onnx"
_TASKS = ("classification", "multi-label", "regression")
# Bytes that a bundle's files have at most; no ONNX graph has more. Nothing else is read.
_MOST_BYTES = {MANIFEST: 1 << 24, TOKENIZER: 1 << 27} | dict.fromkeys(
    (MODEL, ENCODER, HEAD), 1 << 31
)


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
        format: Of the bundle; only `FORMAT` is read.
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
        """Return the manifest as JSON, with its own SHA-256."""
        said = asdict(self)
        # Earlier versions refuse fields that they do not know.
        for name, nothing in (("temperature", 1), ("coverage", None), ("rejection", None)):
            if said[name] == nothing:
                del said[name]
        said["sha256"] = _own_hash(said)
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
        InputError: A file is missing, cut short, too large, or not what the manifest says.
    """
    whole = library_errors(
        str(place), "expected a whole bundle that distillkit export wrote", "; export again"
    )
    with whole, _opened(place) as read:
        text = read(MANIFEST, _MOST_BYTES[MANIFEST])
        if text is None:
            raise InputError(
                f"{place}: no {MANIFEST}; expected a folder or file that distillkit export wrote"
            )
        manifest = _manifest(f"{place}/{MANIFEST}", text)
        found: dict[str, bytes] = {}
        for name, wanted in manifest.files.items():
            data = read(name, wanted["bytes"])
            if data is None:
                raise InputError(
                    f"{place}: {name} is missing, which {MANIFEST} lists; export again"
                )
            if len(data) != wanted["bytes"]:
                size = f"{len(data)} bytes" if len(data) < wanted["bytes"] else "more bytes"
                raise InputError(
                    f"{place}/{name}: {size}, and {MANIFEST} says {wanted['bytes']}: it was cut or replaced; export again"
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


@contextmanager
def _opened(place: Path) -> Iterator[Callable[[str, int], bytes | None]]:
    """Yield what reads a file by name: its bytes, one more than `most` at most, or None."""

    def read(stream: IO[bytes], most: int) -> bytes:
        with stream:
            return stream.read(most + 1)

    if place.is_dir():
        # A pipe, a device, a folder and a dangling link are no files.
        yield (
            lambda name, most: (
                read((place / name).open("rb"), most) if (place / name).is_file() else None
            )
        )
    elif place.is_file():
        with zipfile.ZipFile(place) as bundle:
            names = set(bundle.namelist())
            yield lambda name, most: read(bundle.open(name), most) if name in names else None
    else:
        raise InputError(f"{place}: no such folder or file; expected what distillkit export wrote")


def _own_hash(said: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's content, however it is indented."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _manifest(name: str, data: bytes) -> Manifest:
    with library_errors(name, "expected a manifest", "; export again"):
        said = json.loads(data)
        # Manifests of version 0.1 have none.
        if (own := said.pop("sha256", None)) is not None and own != _own_hash(said):
            raise InputError(f"{name}: its SHA-256 is another: it was changed; export again")
        manifest = Manifest(**said)
        if manifest.format != FORMAT:
            raise InputError(
                f"{name}: format {manifest.format}, and this version reads {FORMAT}; export again"
            )
        for key, (expected, fits) in _FIELDS.items():
            value = getattr(manifest, key)
            if not fits(value):
                found = f"{value!r:.60}"
                raise InputError(f"{name}: {key}: expected {expected}, found {found}; export again")
    return manifest


def _whole(value: Any, least: int, most: int = 1 << 31) -> bool:
    return type(value) is int and least <= value <= most


def _number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and least <= value <= most


def _temperature(value: Any) -> bool:
    return _number(value, 1e-6, 1e6)  # wider than any that is fitted; logits over it stay finite


# What each field is to be. A test may raise, too: `_manifest` makes one line of that.
_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "task": (", ".join(_TASKS), lambda v: v in _TASKS),
    "labels": (
        "a list of different names",
        lambda v: type(v) is list and all(type(name) is str for name in v) and len({*v}) == len(v),
    ),
    "max_tokens": ("a whole number above 0", lambda v: _whole(v, 1)),
    "pairs": ("true, false or null", lambda v: v is None or type(v) is bool),
    "pad_id": ("a whole number, 0 or more", lambda v: _whole(v, 0)),
    "files": (
        f"SHA-256 and bytes of {', '.join(_MOST_BYTES)}, none too large",
        lambda v: (
            type(v) is dict
            and all(_whole(v[name]["bytes"], 0, _MOST_BYTES.get(name, -1)) for name in v)
        ),
    ),
    "made_from": ("an object", lambda v: type(v) is dict),
    "parity": ("an object", lambda v: type(v) is dict),
    "temperature": ("a number from 0.000001 to 1000000", _temperature),
    "cascade": (
        "temperature and threshold",
        lambda v: v is None or (_temperature(v["temperature"]) and _number(v["threshold"])),
    ),
    "coverage": (
        "probabilities by coverage",
        lambda v: (
            v is None or all(f"{float(key):.2f}" == key and _number(v[key], 0, 1) for key in v)
        ),
    ),
    "rejection": (
        "weights of words, rare and threshold",
        lambda v: (
            v is None or all(map(_number, (*v["weights"].values(), v["rare"], v["threshold"])))
        ),
    ),
}
