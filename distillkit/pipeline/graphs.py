"""ONNX graphs of models, by torch's exporter; LSTMs are ours, as it would unroll them."""

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from distillkit.runtime.bundle import ENCODER, HEAD, MODEL
from distillkit.student.model import PairStudent, SiameseStudent, StudentModel

_OPSET = 20  # understood by onnxruntime since 1.17


class _Words(nn.Module):
    """A student of single texts, or one side of a siamese one; padding is on the right."""

    def __init__(self, model: StudentModel, head: nn.Module | None) -> None:
        super().__init__()
        encoder: Any = model.encoder
        self.encoder = encoder.for_onnx()
        self.head = head

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        vectors = self.encoder(input_ids, lengths)
        return vectors if self.head is None else self.head(vectors)


class _Together(nn.Module):
    """A student that reads both texts of a pair together; padding is on the right."""

    def __init__(self, model: PairStudent) -> None:
        super().__init__()
        encoder: Any = model.encoder
        self.encoder, self.model = encoder.for_onnx(), model

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        first, second = self.encoder(input_ids, lengths).unflatten(0, (2, -1))
        return self.model.compare(first, second)


class _Compared(nn.Module):
    """What a siamese student makes of two vectors."""

    def __init__(self, model: SiameseStudent) -> None:
        super().__init__()
        self.model = model

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.model.compare(first, second)


class _Masked(nn.Module):
    """A transformer, teacher or student, as transformers calls it."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def onnx_graphs(model: Any, tokenizer: Any) -> dict[str, bytes]:
    """Return a model's ONNX graphs.

    Args:
        model: A sequence classifier, of distillkit or of transformers, on the CPU; it is left as it
            is.
        tokenizer: Its tokenizer.

    Returns:
        Graphs by file name; B and T may be any number. `model.onnx` gives `logits` (B, C). A student
        takes `input_ids` (B, T) int64 and `lengths` (B,) int64; one that reads both texts of a pair
        together takes 2B rows, first texts then second ones. A model of transformers takes
        `input_ids`, and `attention_mask` and `token_type_ids` where its tokenizer makes them. A
        siamese student has two graphs: `encoder.onnx` gives `vectors` (B, D), and `head.onnx` takes
        `first` and `second` (B, D) and gives `logits`.
    """
    ids, lengths = torch.full((3, 11), int(tokenizer.unk_token_id)), torch.tensor([11, 7, 2])
    words = {"input_ids": ids, "lengths": lengths}
    if isinstance(model, SiameseStudent):
        # Two tensors: of one given twice the exporter would make one input.
        first, second = torch.zeros(2, 3, model.head.dense.in_features // model.sides).unbind()
        return {
            ENCODER: _onnx(_Words(model, None), words, "vectors"),
            HEAD: _onnx(_Compared(model), {"first": first, "second": second}, "logits"),
        }
    if isinstance(model, PairStudent):
        # two pairs: the first texts, then the second ones
        both = {"input_ids": ids[:2].repeat(2, 1), "lengths": torch.tensor([11, 7, 2, 5])}
        return {MODEL: _onnx(_Together(model), both, "logits")}
    if isinstance(model, StudentModel):
        return {MODEL: _onnx(_Words(model, model.head), words, "logits")}
    taken = [
        name
        for name in ("input_ids", "attention_mask", "token_type_ids")
        if name in tokenizer.model_input_names
    ]
    samples = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }
    return {MODEL: _onnx(_Masked(model, taken), {name: samples[name] for name in taken}, "logits")}


def _onnx(module: nn.Module, inputs: dict[str, Tensor], output: str) -> bytes:
    """Return a module's ONNX graph, for any number of rows and tokens."""
    rows: Any = Dim("rows", min=1)
    tokens = Dim("tokens", min=1)
    if isinstance(module, _Together):
        rows = 2 * rows
    sizes: Any = {
        "input_ids": {0: rows, 1: tokens},
        "attention_mask": {0: rows, 1: tokens},
        "token_type_ids": {0: rows, 1: tokens},
    }
    shapes: Any = tuple(sizes.get(name, {0: rows}) for name in inputs)
    if isinstance(module, _Masked):
        shapes = (shapes,)  # its inputs are one tuple to the exporter
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            dynamo=True,
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes=shapes,
            opset_version=_OPSET,
            verbose=False,
        )
    assert program is not None  # as it is with dynamo
    return _without_traces(program.model_proto)


def int8_graph(graph: bytes) -> bytes:
    """Return a graph that computes in int8, by ONNX Runtime's dynamic quantisation.

    Args:
        graph: ONNX, in fp32.
    """
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    model = onnx.load_from_string(graph)
    del model.graph.value_info[:]  # torch's exporter leaves shapes of before its own rewriting
    with tempfile.TemporaryDirectory() as work, _quiet():
        target = Path(work, MODEL)
        quantize_dynamic(model, target)
        return target.read_bytes()


def _without_traces(graph: Any) -> bytes:
    """Remove what torch's exporter writes of source lines and of paths on this machine."""
    from google.protobuf.message import Message

    stack: list[Any] = [graph.graph, *graph.functions]
    while stack:
        part = stack.pop()
        for field in {"doc_string", "metadata_props"} & set(part.DESCRIPTOR.fields_by_name):
            part.ClearField(field)
        for field, value in part.ListFields():
            if field.message_type is not None:
                stack += [value] if isinstance(value, Message) else value
    found: bytes = graph.SerializeToString(deterministic=True)
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter on stdout, in warnings and in logging."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
