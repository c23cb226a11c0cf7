"""ONNX graphs with quantised weights, which standard operators decode when the graph is loaded."""

from typing import Any

import numpy as np
import torch

from distillkit.compress.product import product_coded
from distillkit.compress.quantise import Codes, coded, table_storage
from distillkit.recipe import CompressConfig, Storage

# Both directions of an LSTM are one matrix here, with the kmeans clusters of both.
_VALUES = 256
_SMALLEST = 64  # weights; the codes of fewer would be no smaller


def stored_graph(graph: bytes, compress: CompressConfig) -> bytes:
    """Store the tables and matrices of an ONNX graph as a configuration says.

    The graph stays an ordinary one. The operators that decode weights have only constants as
    inputs, so a runtime decodes once, at load.

    Args:
        graph: Weights in fp32, rounded already.
        compress: `embeddings`, `weights`.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(graph)
    readers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    decode: list[Any] = []
    for weight in list(model.graph.initializer):
        small = len(weight.dims) < 2 or np.prod(weight.dims) < _SMALLEST
        if weight.data_type != onnx.TensorProto.FLOAT or small:
            continue
        users = readers[weight.name]
        kinds = {node.op_type for node in users}
        table = "Gather" in kinds
        storage = table_storage(weight.dims[0], compress) if table else compress.weights
        bias = any(node.op_type == "LSTM" and node.input[3] == weight.name for node in users)
        values = numpy_helper.to_array(weight)
        far = storage == "fp16" and np.abs(values).max() > np.finfo(np.float16).max  # of scores
        if storage == "fp32" or far or bias:  # an LSTM's biases are two rows here
            continue
        across = "MatMul" in kinds  # (in, out), where torch has (out, in)
        model.graph.initializer.remove(weight)
        if storage == "fp16":
            parts, nodes = _half(weight.name, values)
        elif storage == "pq":
            parts, nodes = _products(weight.name, values)
        else:
            parts, nodes = _decoded(weight.name, values, across, "Conv" in kinds, storage)
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in parts.items()
        )
        decode += nodes
    body = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*decode, *body])
    return model.SerializeToString()


def _half(name: str, values: np.ndarray) -> tuple[dict[str, np.ndarray], list[Any]]:
    from onnx import TensorProto, helper

    cast = helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT)
    return {f"{name}.half": values.astype(np.float16)}, [cast]


def _products(name: str, values: np.ndarray) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Return the codes and centres of a table (V, W), and the operators that make it of them."""
    from onnx import TensorProto, helper

    codes, centres = product_coded(torch.from_numpy(values.copy()))
    most = centres.shape[1]
    stored, cast = _half(f"{name}.centres", centres.flatten(0, 1).numpy())
    parts = {
        f"{name}.codes": codes.numpy(),
        f"{name}.first": most * np.arange(len(centres), dtype=np.int32),
        f"{name}.shape": np.array(values.shape),
        **stored,
    }
    nodes = [
        *cast,
        helper.make_node("Cast", [f"{name}.codes"], [f"{name}.0"], to=TensorProto.INT32),
        helper.make_node("Add", [f"{name}.0", f"{name}.first"], [f"{name}.1"]),
        helper.make_node("Gather", [f"{name}.centres", f"{name}.1"], [f"{name}.2"]),
        helper.make_node("Transpose", [f"{name}.2"], [f"{name}.3"], perm=[0, 2, 1]),
        helper.make_node("Reshape", [f"{name}.3", f"{name}.shape"], [name]),
    ]
    return parts, nodes


def _decoded(
    name: str, values: np.ndarray, across: bool, filters: bool, storage: Storage
) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Return what to store of a weight, by name, and the operators that make the weight of it."""
    from onnx import TensorProto, helper

    matrix = torch.from_numpy(values.T.copy() if across else values.copy())
    rows = matrix.flatten(1) if filters else matrix.flatten(0, -2)
    found = coded(rows, storage, _VALUES)
    packed, bits = packed_codes(found)
    parts = {f"{name}.codes": packed, f"{name}.codebook": found.codebook.numpy()}
    nodes: list[Any] = []
    last = f"{name}.codes"

    def then(kind: str, *inputs: str, **attributes: Any) -> None:
        nonlocal last
        output = f"{name}.{len(nodes)}"
        nodes.append(helper.make_node(kind, [last, *inputs], [output], **attributes))
        last = output

    def constant(key: str, array: np.ndarray) -> str:
        parts[f"{name}.{key}"] = array
        return f"{name}.{key}"

    if bits < 8:
        then("Unsqueeze", constant("axis", np.array([1])))
        shifts = constant("shifts", np.arange(0, 8, bits, dtype=np.uint8))
        then("BitShift", shifts, direction="RIGHT")
        then("BitwiseAnd", constant("mask", np.array(2**bits - 1, np.uint8)))
        then("Reshape", constant("flat", np.array([-1])))
        then("Slice", constant("start", np.array([0])), constant("stop", np.array([rows.numel()])))
    then("Cast", to=TensorProto.INT32)
    nodes.append(helper.make_node("Gather", [f"{name}.codebook", last], [f"{name}.values"]))
    last = f"{name}.values"
    if found.scale is not None:
        then("Reshape", constant("rows", np.array(rows.shape)))
        stored, cast = _half(f"{name}.scale", found.scale.numpy())
        parts |= stored
        nodes += cast
        then("Mul", f"{name}.scale")
    then("Reshape", constant("shape", np.array(matrix.shape)))
    if across:
        then("Transpose", perm=[1, 0])
    nodes[-1].output[0] = name
    return parts, nodes


def packed_codes(found: Codes) -> tuple[np.ndarray, int]:
    """Return codes as bytes, lowest bits first, and the bits of a code: 1, 2, 4 or 8."""
    bits = next(bits for bits in (1, 2, 4, 8) if len(found.codebook) <= 2**bits)
    codes = found.codes.flatten().numpy()
    each = 8 // bits
    codes = np.pad(codes, (0, -len(codes) % each)).reshape(-1, each)
    return (codes << np.arange(0, 8, bits, dtype=np.uint8)).sum(1, dtype=np.uint8), bits
