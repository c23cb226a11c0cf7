"""Forms of a model: torch in two precisions, ONNX Runtime in two, or a bundle as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from distillkit.measure.cost import Answer, answer_of
from distillkit.runtime.bundle import described, is_bundle, read_bundle, write_bundle

FORMS = ("torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8")
BUNDLE = "bundle"


@dataclass(frozen=True)
class Form:
    """One thing to measure: its name and kind (one of `FORMS`, or `BUNDLE`), and where it lies.

    `model` is the checkpoint that it was made of, empty for a bundle.
    """

    name: str
    kind: str
    path: str
    model: str = ""


def prepare(name: str, model: str, kinds: Sequence[str], work: Path) -> list[Form]:
    """Write what the forms of a model are loaded from.

    Args:
        name: Of the model, in tables.
        model: Folder, package or hub name of a classifier; or a bundle, which has the one form.
        kinds: Of `FORMS`.
        work: Folder for the graphs of this model.
    """
    if is_bundle(Path(model)):
        read_bundle(Path(model))
        return [Form(name, BUNDLE, model)]
    forms = [
        Form(f"{name}, {kind}", kind, model, model) for kind in kinds if kind.startswith("torch")
    ]
    asked = [kind for kind in kinds if kind.startswith("onnx")]
    if asked:
        from distillkit import pipeline

        whole = work / "onnx-fp32"
        pipeline.export(model, whole)
        for kind in asked:
            if kind == "onnx-int8":
                _quantised(whole, work / kind)
            forms.append(Form(f"{name}, {kind}", kind, str(work / kind), model))
    return sorted(forms, key=lambda form: kinds.index(form.kind))


def _quantised(whole: Path, target: Path) -> None:
    """Write a bundle whose graphs compute in int8."""
    from distillkit.pipeline.graphs import int8_graph

    manifest, files = read_bundle(whole)
    for name, data in files.items():
        files[name] = int8_graph(data) if name.endswith(".onnx") else data
    manifest = replace(manifest, files=described(files), parity={})
    target.mkdir()
    write_bundle(target, manifest, files, one_file=False)


def load(form: Form, threads: int) -> Answer:
    """Load a form to answer on so many threads."""
    if not form.kind.startswith("torch"):
        from distillkit.runtime import Predictor

        return Predictor(form.path, threads=threads).logits
    return _torch(form.path, threads, half=form.kind == "torch-bf16")


def _torch(path: str, threads: int, *, half: bool) -> Answer:
    import torch

    from distillkit.teacher.checkpoint import load_classifier, max_tokens_of
    from distillkit.training.inference import on_threads

    model, tokenizer = load_classifier(path)
    tokenizer.model_max_length = max_tokens_of(model, tokenizer)
    ask = answer_of(model, tokenizer)

    def answer(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        with on_threads(threads), torch.autocast("cpu", torch.bfloat16, enabled=half):
            return ask(texts, pairs)

    return answer
