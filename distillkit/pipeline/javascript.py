"""`export --js`: a bundle with what answers from it in a browser or in Node."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distillkit import __version__
from distillkit.data.files import replaceable, whole_folder
from distillkit.errors import InputError
from distillkit.runtime.bundle import TOKENIZER, read_bundle, write_bundle

RUNTIME = Path(__file__).parents[1] / "runtime" / "js"
_KINDS = ("static", "textcnn", "bilstm", "interaction-bilstm", "decomposable")


def check_javascript(place: str, made_from: Mapping[str, str], tokenizer: bytes) -> None:
    """Refuse a bundle that the runtime in JavaScript has no operators or no tokenizer for.

    Args:
        place: Named in the message.
        made_from: As the manifest has it.
        tokenizer: tokenizer.json.

    Raises:
        InputError: It is such a bundle.
    """
    if made_from.get("arithmetic") == "int8":
        raise InputError(
            f"{place}: it computes in int8 (--int8), and JavaScript in fp32; leave --int8 out, or store it in int8 by distillkit compress"
        )
    kind = str(made_from.get("model_type")).removeprefix("distillkit-").removeprefix("siamese-")
    split = (json.loads(tokenizer)["pre_tokenizer"] or {}).get("type")
    if kind not in _KINDS or split != "Split":
        what = (
            f"a {kind}" if kind not in _KINDS else "a student of hashed bytes or a teacher's tokens"
        )
        raise InputError(
            f"{place}: {what}; in JavaScript {', '.join(_KINDS)} students of words, characters or subwords answer"
        )


def write_javascript(bundle: Path, target: Path) -> dict[str, Any]:
    """Write a package for web pages and Node: runtime, types, bundle, an example page.

    Args:
        bundle: Folder or file that `export` or a run wrote.
        target: Folder to write.

    Returns:
        `output`, and `megabytes` of all files.

    Raises:
        InputError: The bundle is not whole, or is none that JavaScript can answer from.
    """
    manifest, files = read_bundle(bundle)
    check_javascript(str(bundle), manifest.made_from, files[TOKENIZER])
    package = {
        "name": "distilled-student",
        "version": __version__,
        "type": "module",
        "main": "distillkit.js",
        "types": "distillkit.d.ts",
        "private": True,
    }
    with replaceable(target, "distillkit.js"), whole_folder(target) as folder:
        for name in ("distillkit.js", "distillkit.d.ts", "index.html"):
            (folder / name).write_bytes((RUNTIME / name).read_bytes())
        (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
        write_bundle(folder / "bundle.zip", manifest, files, one_file=True)
    size = sum(file.stat().st_size for file in target.iterdir())
    return {"output": str(target), "megabytes": size / 1e6}
