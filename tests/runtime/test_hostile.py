"""Damaged and hostile bundles: each is refused in one line, or answers as the whole one does."""

import json
import os
import re
import shutil
import time
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distillkit.errors import InputError
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import described, read_bundle, write_bundle

GOLDEN = Path(__file__).parent.parent / "golden" / "0.1" / "bundle"
TEXTS = ["the film was great .", "", "ünseen wörds"]
MANIFEST, FILES = read_bundle(GOLDEN)


def _written(place, files=FILES, *, one_file=False, **changes):
    """Write the bundle as who means harm would: every hash is right."""
    if not one_file:
        place.mkdir(exist_ok=True)
    manifest = replace(MANIFEST, files=described(files))
    write_bundle(place, replace(manifest, **changes), files, one_file=one_file)
    return place


@pytest.fixture(params=["folder", "zip"])
def bundle(request, tmp_path):
    return _written(tmp_path / f"bundle.{request.param}", one_file=request.param == "zip")


def _refused(place, reason):
    with pytest.raises(InputError, match=reason) as found:
        Predictor(place).logits(TEXTS)
    assert str(found.value).startswith(str(place))
    assert "\n" not in str(found.value)


def _changed_file(place, name, change):
    """Change a file as damage would: no hash follows."""
    if place.is_dir():
        (place / name).write_bytes(change((place / name).read_bytes()))
        return
    with zipfile.ZipFile(place) as old:
        files = {entry: old.read(entry) for entry in old.namelist()}
    with zipfile.ZipFile(place, "w") as new:
        for entry, data in files.items():
            new.writestr(entry, change(data) if entry == name else data)


def test_a_manifest_that_was_changed_is_refused(bundle):
    Predictor(bundle)

    def swap(data):
        said = json.loads(data)
        return json.dumps(said | {"labels": said["labels"][::-1]}).encode()

    _changed_file(bundle, "manifest.json", swap)
    _refused(bundle, r"manifest\.json: its SHA-256 is another: it was changed")
    _changed_file(bundle, "manifest.json", lambda data: data.replace(b'"sha256": "', b'"sha": "'))
    _refused(bundle, r"expected a manifest")


def _graph(change):
    graph = onnx.load_from_string(FILES["model.onnx"])
    change(graph.graph)
    return {**FILES, "model.onnx": graph.SerializeToString()}


def _outside(tensor, place):
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(place))


@pytest.mark.parametrize("where", ["secret.bin", "{}/secret.bin", "*/_ORT_MEM_ADDR_/*"])
@pytest.mark.parametrize("kind", ["initializer", "attribute"])
def test_weights_outside_of_the_bundle_are_refused(tmp_path, monkeypatch, where, kind):
    monkeypatch.chdir(tmp_path)

    def change(graph):
        tensor = max(graph.initializer, key=lambda tensor: len(tensor.raw_data))
        Path("secret.bin").write_bytes(tensor.raw_data)
        _outside(tensor, where.format(tmp_path))
        if kind == "attribute":
            graph.node.insert(0, onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
            graph.initializer.remove(tensor)

    files = _graph(change)
    _refused(
        _written(tmp_path / "bundle", files), r"model\.onnx: it reads weights from another file"
    )


def test_the_key_of_such_weights_may_be_written_in_another_way(tmp_path):
    tensors = []

    def change(graph):
        tensors.append(max(graph.initializer, key=lambda tensor: len(tensor.raw_data)))
        graph.initializer.remove(tensors[0])

    files = _graph(change)
    _outside(tensors[0], "")
    del tensors[0].external_data[:]
    # An entry whose key has its length, 8, in two bytes; protocol buffers merge graph with graph.
    part = b"\x0a\x88\0location\x12\x0asecret.bin"
    for field, before in ((0x6A, tensors[0].SerializeToString()), (0x2A, b""), (0x3A, b"")):
        part = before + bytes([field, len(part)]) + part
    files["model.onnx"] += part
    graph = onnx.load_from_string(files["model.onnx"]).graph
    assert graph.initializer[-1].external_data[0].key == "location"
    _refused(
        _written(tmp_path / "bundle", files), r"model\.onnx: it reads weights from another file"
    )


def test_what_the_manifest_does_not_list_is_not_read(bundle):
    if bundle.is_dir():
        os.mkfifo(bundle / "other.onnx")
        (bundle / "loop.json").symlink_to("loop.json")
        (bundle / "folder.json").mkdir()
    else:
        _grown(bundle, "other.onnx")
    tracemalloc.start()
    Predictor(bundle)
    assert tracemalloc.get_traced_memory()[1] < 35e6
    tracemalloc.stop()


def _grown(bundle, name):
    with zipfile.ZipFile(bundle, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(50_000_000))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_no_more_of_a_file_is_read_than_the_manifest_says(tmp_path):
    bundle = _written(tmp_path / "bundle.zip", one_file=True)
    _grown(bundle, "model.onnx")
    tracemalloc.start()
    _refused(bundle, r"model\.onnx: more bytes, and manifest\.json says 7783")
    assert tracemalloc.get_traced_memory()[1] < 35e6
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx"])
def test_what_is_no_ordinary_file_is_missing(tmp_path, name):
    for make in (Path.mkdir, os.mkfifo, lambda place: place.symlink_to("nowhere")):
        bundle = _written(tmp_path / "bundle")
        (bundle / name).unlink()
        make(bundle / name)
        _refused(bundle, f"no {name}|{name} is missing")
        shutil.rmtree(bundle)


@pytest.mark.parametrize(
    ("local", "central", "value", "reason"),
    [
        (6, 8, b"\1\0", "encrypted"),
        (8, 10, b"\x63\0", "compression method is not supported"),
        (8, 10, b"\x0e\0", "LZMA|CRC"),
    ],
)
def test_a_zip_that_cannot_be_unpacked_is_refused(tmp_path, local, central, value, reason):
    bundle = _written(tmp_path / "bundle.zip", one_file=True)
    data = bytearray(bundle.read_bytes())
    for head, place in ((b"PK\3\4", local), (b"PK\1\2", central)):
        for found in re.finditer(re.escape(head), data):
            data[found.start() + place : found.start() + place + 2] = value
    bundle.write_bytes(data)
    _refused(bundle, f"expected a whole bundle that distillkit export wrote.*({reason})")


FIELDS = {
    "task": ["x", 1, []],
    "labels": ["ab", [1, 2], None, ["a", "a"]],
    "max_tokens": ["x", 0, -1, 1.5, True, 10**30],
    "pairs": ["x", 1],
    "pad_id": ["x", -1, 1.5, 10**6, 10**30],
    "temperature": ["x", 0, -1, float("nan"), 1e-320],
    "cascade": [1, {}, {"temperature": 0, "threshold": 1}, {"temperature": 1, "threshold": "x"}],
    "coverage": [1, {"x": 1}, {"0.9": 0.5}, {"0.90": "x"}],
    "rejection": [1, {}, {"weights": [], "rare": 1, "threshold": 1}],
    "made_from": [3],
    "parity": [3],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in FIELDS.items() for value in values]
)
def test_a_manifest_of_wrong_values_is_refused(tmp_path, name, value):
    _refused(_written(tmp_path / "bundle", **{name: value}), "expected")


@pytest.mark.parametrize(
    "files",
    [{name: {"bytes": 1, "sha256": ""}} for name in ("../x", "/etc/passwd", "a\0")]
    + [{"model.onnx": {"bytes": 1 << 32, "sha256": ""}}, {"model.onnx": 1}, []],
)
def test_a_manifest_of_other_or_larger_files_is_refused(tmp_path, files):
    bundle = _written(tmp_path / "bundle")
    (bundle / "manifest.json").write_text(replace(MANIFEST, files=files).text())
    _refused(bundle, "expected|lists no")


def test_a_manifest_that_is_nested_too_deeply_is_refused(bundle):
    _changed_file(bundle, "manifest.json", lambda data: b'{"a":' * 100_000)
    _refused(bundle, "expected a manifest: nested too deeply")


TOKENIZER = json.loads(FILES["tokenizer.json"])
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"}
ASKS_FOR_TWO = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "B", "type_id": 0}}],
    "pair": [{"Sequence": {"id": id_, "type_id": 0}} for id_ in "AB"],
    "special_tokens": {},
}
FIRST, SECOND = ({"Sequence": {"id": id_, "type_id": type_}} for type_, id_ in enumerate("AB"))
REPEATS = {
    "type": "TemplateProcessing",
    "single": [FIRST] * 200,
    "pair": [FIRST, SECOND],
    "special_tokens": {},
}
TOKENIZERS = {
    "": "expected a tokenizer",
    "[]": "expected a tokenizer",
    '{"a":' * 100_000: "expected a tokenizer",
    **{
        json.dumps({key: value for key, value in TOKENIZER.items() if key != left_out}): "expected"
        for left_out in ("model", "normalizer", "post_processor", "added_tokens")
    },
    json.dumps(TOKENIZER).replace('"[UNK]": 1', '"[UNK]": 1000001'): "graphs that fit its tokeni",
    json.dumps(TOKENIZER).replace('"[UNK]": 1', '"other": 1'): "a tokenizer that cuts these texts",
    # for a single text a place of the second one: Rust code panics
    json.dumps(TOKENIZER | {"post_processor": ASKS_FOR_TWO}): "a tokenizer that cuts these texts",
    json.dumps(TOKENIZER | {"post_processor": REPEATS}): "more than 100 times longer",
    json.dumps(
        TOKENIZER | {"normalizer": {"type": "Sequence", "normalizers": [GROWING] * 12}}
    ): "more than 100 times longer",
    json.dumps(
        TOKENIZER | {"normalizer": {**GROWING, "pattern": {"Regex": ""}, "content": "a" * 999}}
    ): "more than 100 times longer",
}


@pytest.mark.parametrize(("text", "reason"), TOKENIZERS.items(), ids=range(len(TOKENIZERS)))
def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path, text, reason):
    began = time.monotonic()
    files = {**FILES, "tokenizer.json": text.encode()}
    _refused(_written(tmp_path / "bundle", files), reason)
    assert time.monotonic() - began < 10


def test_a_graph_that_cannot_be_read_is_one_line_and_nothing_on_stdout(tmp_path, capfd):
    files = {**FILES, "model.onnx": FILES["model.onnx"].replace(b"lengths", b"\xff" * 7)}
    _refused(_written(tmp_path / "bundle", files), "expected graphs with names in UTF-8")
    assert capfd.readouterr() == ("", "")


def _renamed(graph):
    for node in graph.node:
        node.input[:] = ["other" if name == "input_ids" else name for name in node.input]
    graph.input[0].name = "other"


def _cast(graph):
    answer = graph.output[0]
    graph.node.append(onnx.helper.make_node("Cast", [answer.name], ["whole"], to=7))
    answer.name, answer.type.tensor_type.elem_type = "whole", 7


@pytest.mark.parametrize(
    ("change", "reason"),
    [(_renamed, "Required inputs"), (_cast, r"answers tensor\(int64\)")],
)
def test_a_graph_of_other_inputs_or_answers_is_refused(tmp_path, change, reason):
    _refused(_written(tmp_path / "bundle", _graph(change)), reason)


def test_the_hash_is_of_what_the_manifest_says_and_not_of_its_layout(bundle):
    _changed_file(bundle, "manifest.json", lambda data: json.dumps(json.loads(data)).encode())
    Predictor(bundle)


# ---- fuzz ----

WHOLE = Predictor(GOLDEN).logits(TEXTS)
CHANGES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 20), st.binary(max_size=20)),
    min_size=1,
    max_size=4,
)
FUZZED = settings(
    max_examples=int(os.environ.get("DISTILLKIT_EXAMPLES", 300)),  # a test
    deadline=10_000,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def _spoilt(data, changes, bit):
    """Flip a bit, or cut parts out and put others in their place."""
    data = bytearray(data)
    for share, cut, new in changes:
        place = int(share * len(data))
        if bit is not None and place < len(data):
            data[place] ^= 1 << bit
        else:
            data[place : place + cut] = new
    return bytes(data)


def _outcome(place):
    try:
        predictor = Predictor(place)
        return predictor, predictor.logits(TEXTS)
    except InputError as error:
        return None, str(error)


@pytest.mark.slow
@FUZZED
@given(
    name=st.sampled_from(["bundle.zip", "manifest.json", "tokenizer.json", "model.onnx"]),
    changes=CHANGES,
    bit=st.none() | st.integers(0, 7),
    cut=st.none() | st.floats(0, 1),
)
def test_damage_is_found_or_does_no_harm(tmp_path_factory, name, changes, bit, cut):
    folder = tmp_path_factory.mktemp("damaged")
    place = _written(folder / "bundle.zip", one_file=True)
    if name != "bundle.zip":
        place = _written(folder / "bundle")
    file = place if place.is_file() else place / name
    data = _spoilt(file.read_bytes(), changes, bit)
    file.write_bytes(data if cut is None else data[: int(cut * len(data))])
    predictor, found = _outcome(place)
    if predictor is None:
        assert "\n" not in found
    else:
        assert np.array_equal(found, WHOLE)
        assert predictor.labels == MANIFEST.labels
    shutil.rmtree(folder)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def _places(value, found=()):
    """Return the paths of all values within a JSON value."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [found, *(path for key, part in inner for path in _places(part, (*found, key)))]


@pytest.mark.slow
@FUZZED
@given(file=st.sampled_from(["manifest.json", "tokenizer.json"]), data=st.data())
def test_a_bundle_made_to_do_harm_answers_or_is_refused(tmp_path_factory, file, data):
    folder = tmp_path_factory.mktemp("hostile")
    said = json.loads(MANIFEST.text() if file == "manifest.json" else FILES[file])
    said.pop("sha256", None)
    *path, last = data.draw(st.sampled_from(_places(said)[1:]))
    part = said
    for key in path:
        part = part[key]
    if data.draw(st.booleans()):
        part[last] = data.draw(VALUES)
    else:
        del part[last]
    if file == "manifest.json":
        place = _written(folder / "bundle")
        (place / file).write_text(json.dumps(said))
    else:
        place = _written(folder / "bundle", {**FILES, file: json.dumps(said).encode()})
    predictor, found = _outcome(place)
    if predictor is None:
        assert "\n" not in found
    else:
        assert np.isfinite(found).all()
        json.dumps(predictor.predict(TEXTS), allow_nan=False)
    shutil.rmtree(folder)
