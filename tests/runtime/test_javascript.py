"""The runtime in JavaScript answers as the one in Python does: tokens, logits, answers."""

import json
import os
import random
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from distillkit.cli import main
from distillkit.compress.run import compress
from distillkit.data.tables import read_table
from distillkit.pipeline import StudentJob, export, train_student
from distillkit.pipeline.export import change_manifest
from distillkit.pipeline.javascript import RUNTIME
from distillkit.recipe import (
    ColumnsConfig,
    CompressConfig,
    CompressJob,
    EmbeddingConfig,
    LossConfig,
    TrainingConfig,
    VocabularyConfig,
)
from distillkit.recipe.kinds import kind_of
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import described, read_bundle, write_bundle
from tests.student.tiny import tiny

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")

GOLDEN = Path(__file__).parent.parent / "golden" / "0.1" / "bundle"
ASK = """
import { load } from "%s";
import { readFileSync } from "node:fs";
const student = await load(readFileSync(process.argv[1]));
const rows = JSON.parse(readFileSync(process.argv[2]));
const answers = rows.map(([text, pair]) => ({
  ...student.tokenizer.encode(text, pair ?? undefined),
  ...student.predict(text, pair ?? undefined),
  refused: student.manifest.rejection && student.predict(text, pair ?? undefined, { reject: true, coverage: 0.8 }),
  logits: Array.from(student.logits(text, pair ?? undefined)),
}));
const explained = student.manifest.pairs ? null : student.explain(rows[0][0]);
console.log(JSON.stringify({ answers, explained }));
"""
TRY = """
import { load } from "%s";
import { readFileSync } from "node:fs";
for (const file of process.argv.slice(1)) {
  try { (await load(new Uint8Array(readFileSync(file)))).predict("a film"); }
  catch (error) { console.log(error.message); }
}
for (const text of [undefined, 42, ["a film"], null]) {
  try { (await load(new Uint8Array(readFileSync(process.argv[1])))).predict(text); }
  catch (error) { console.log(error.message); }
}
"""
FUZZ = """
import { load } from "%s";
import { readFileSync, readdirSync } from "node:fs";
for (const file of readdirSync(process.argv[1])) {
  const began = performance.now();
  const said = { file };
  try { said.logits = Array.from((await load(new Uint8Array(readFileSync(`${process.argv[1]}/${file}`)))).logits("the film was great .")); }
  catch (error) { said.error = `${error.constructor.name}: ${error.message}`; }
  said.seconds = (performance.now() - began) / 1000;
  console.log(JSON.stringify(said));
}
"""
GREEK = "ΣΊΣΥΦΟΣ ΟΔΟΣ İstanbul ẞ ǅ ﬁne Å ℃ ſ"
HARD = [
    "",
    "   ",
    "a",
    "Wonderful!!! 😀👍🏽 👩‍👩‍👧 🇩🇪 ❤️",
    "שלום עולם مرحبا بالعالم",
    "你好，世界。电影很好",
    "nul\0byte",
    "cafe\u0301 café CAFÉ e\u0301\u0302 \u0301alone",
    "\u200b\ufeff zero \u200djoin\u200der \x85\xa0\u2028\u3000.",
    "tab\tand\nline",
    GREEK,
    "don't can't it's 'tis 're they're we’ll ’s it's¹ don't½ we're²",
    "[UNK] [PAD] the [MASK] film [unk]",
    "a_b __ 1,000.5 x² Ⅷ ⅔ ٣ ʰ",
    "क्षि नमस्ते ก็ภาษาไทย",
    "x" * 300,
    "word " * 10_000,
]
VOCABULARIES = {
    "word": VocabularyConfig(),
    "subwords": VocabularyConfig(size=300, subwords=200),
    "character": VocabularyConfig(unit="character"),
    "word-piece": VocabularyConfig(unit="word-piece", size=200),
    "hashed": VocabularyConfig(unit="hashed", size=200),
}


@pytest.fixture(scope="module")
def reviews():
    found = read_table("embedded:reviews/train", ColumnsConfig()).slice(0, 300).to_pandas()
    found.loc[0, "text"] = GREEK  # its words are known, lower-cased letter by letter
    return found


def _student(folder, reviews, vocabulary="word", **student):
    """Train a tiny student for a step or two, and return its checkpoint."""
    pairs = kind_of(student.get("kind", "bilstm")).reads == "pairs"
    table = reviews.assign(text_pair=reviews["text"][::-1].to_numpy()) if pairs else reviews
    table.to_json(folder / "rows.jsonl", orient="records", lines=True, force_ascii=False)
    config = tiny(
        student.pop("kind", "bilstm"),
        EmbeddingConfig(source="random", dimension=8),
        head_size=5,
        vocabulary=VOCABULARIES[vocabulary],
        max_tokens=40,
        **student,
    )
    source, columns = str(folder / "rows.jsonl"), ColumnsConfig("text", "text_pair" * pairs)
    train_student(
        StudentJob(
            source,
            source,
            folder / "student",
            config,
            loss=LossConfig(alpha=1.0),
            training=TrainingConfig(epochs=1),
            columns=columns,
        )
    )
    return str(folder / "student")


def _asked(bundle, rows, folder):
    """Ask the runtime in JavaScript in one process."""
    script, given = folder / "ask.mjs", folder / "rows.json"
    script.write_text(ASK % (RUNTIME / "distillkit.js").as_uri())
    given.write_text(json.dumps(rows))
    command = ["node", "--input-type=module", "-e", script.read_text(), str(bundle), str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _assert_same(bundle, texts, folder):
    predictor = Predictor(bundle)
    rows = [(text, None) for text in texts]
    if predictor.manifest.pairs:
        rows = list(zip(texts, [*texts[1:], texts[0]], strict=True))
    answers = _asked(bundle, rows, folder)["answers"]
    for (text, pair), ours in zip(rows, answers, strict=True):
        seconds = None if pair is None else [pair]
        tokens = predictor._texts.rows([text], seconds)
        assert (ours["ids"], ours["types"]) == (tokens.ids[0], tokens.types[0]), text[:40]
        assert np.allclose(ours["logits"], predictor.logits([text], seconds)[0], atol=1e-4)
        wanted = predictor.predict([text], seconds)[0]
        assert ours["label"] == wanted["label"]
        assert ours["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)


def _assert_refused_alike(bundle, texts, folder):
    wanted = Predictor(bundle).predict(texts, reject=True, coverage=0.75)
    found = [
        row["refused"] for row in _asked(bundle, [[t, None] for t in texts], folder)["answers"]
    ]
    assert {answer["rejected"] for answer in wanted} == {True, False}
    for ours, theirs in zip(found, wanted, strict=True):
        for name in ("rejected", "label", "labels"):
            assert ours[name] == theirs[name]


def test_a_run_is_exported_as_a_package_that_answers_and_explains(reviews, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    export(_student(tmp_path, reviews), run / "bundle.zip", one_file=True)
    weights = {"the": 1.0, "电": 2.0, "wonderful": 3.0, "σίσυφοσ": 4.0}
    rule = {"weights": weights, "rare": -1.0, "threshold": -1.5}
    floors = {"0.50": 0.9, "0.80": 0.3}
    change_manifest(run / "bundle.zip", temperature=2.0, rejection=rule, coverage=floors)
    for _ in range(2):  # once more over its own files
        assert main(["export", str(run), str(tmp_path / "web"), "--js"]) == 0
        assert "megabytes" in capsys.readouterr().out
    web = tmp_path / "web"
    assert {file.name for file in web.iterdir()} == {
        "bundle.zip",
        "distillkit.d.ts",
        "distillkit.js",
        "index.html",
        "package.json",
    }
    texts = [reviews["text"][1], *HARD]
    _assert_same(web / "bundle.zip", texts, tmp_path)
    _assert_refused_alike(web / "bundle.zip", texts, tmp_path)
    predictor, text = Predictor(web / "bundle.zip"), texts[0]
    explained = _asked(web / "bundle.zip", [[text, None]], tmp_path)["explained"]
    first = explained[0]
    assert text[first["start"] : first["end"]] == first["word"]
    whole = predictor.predict([text])[0]
    without = predictor.predict([text[first["end"] :]])[0]["probabilities"][whole["label"]]
    weight = whole["probabilities"][whole["label"]] - without
    assert first["weight"] == pytest.approx(weight, abs=1e-5)


def test_int8_arithmetic_and_what_a_bundle_cannot_be_given_are_refused(tmp_path, capsys):
    manifest, files = read_bundle(GOLDEN)
    made_from = manifest.made_from | {"arithmetic": "int8"}
    texts = tmp_path / "x.txt"
    texts.write_text("a film\n")
    write_bundle(tmp_path / "int8", replace(manifest, made_from=made_from), files, one_file=True)
    for model, *options, said in (
        (tmp_path / "int8", "computes in int8 (--int8), and JavaScript in fp32"),
        (GOLDEN, "--int8", "--int8: --js writes a folder"),
        (GOLDEN, "--one-file", "--one-file: --js writes a folder"),
        (GOLDEN, "--source", str(texts), "--source:"),
    ):
        target = tmp_path / "web"
        assert main(["export", str(model), str(target), "--js", *options]) == 1
        assert said in capsys.readouterr().err
        assert not target.exists()


@pytest.mark.slow
def test_what_javascript_cannot_answer_from_is_refused_in_a_line(
    reviews, classifier_folder, tmp_path, capsys
):
    hashed = _student(tmp_path, reviews, "hashed", kind="static")
    for model, said in ((hashed, "a student of hashed bytes"), (classifier_folder, "a bert")):
        assert main(["export", model, str(tmp_path / "web"), "--js"]) == 1
        assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "web").exists()


@pytest.mark.parametrize(
    ("student", "vocabulary"),
    [
        ({"kind": "textcnn"}, "word"),
        *(
            pytest.param(student, vocabulary, marks=pytest.mark.slow)
            for student, vocabulary in [
                ({"kind": "static"}, "word"),
                ({"kind": "siamese-bilstm"}, "word"),
                ({"kind": "bilstm", "pooling": "max"}, "subwords"),
                ({"kind": "bilstm", "pooling": "mean"}, "character"),
                ({"kind": "bilstm", "pooling": "attention"}, "word-piece"),
                ({"kind": "bilstm", "layers": 2}, "word"),
                ({"kind": "interaction-bilstm"}, "word"),
                ({"kind": "decomposable"}, "word"),
            ]
        ),
    ],
)
def test_every_kind_and_vocabulary_answers_the_same(student, vocabulary, reviews, tmp_path):
    model = _student(tmp_path, reviews, vocabulary, **student)
    pairs = kind_of(student["kind"]).reads == "pairs"
    columns = ColumnsConfig("text", "text_pair" * pairs)
    source = str(tmp_path / "rows.jsonl")
    export(model, tmp_path / "b.zip", source, columns, one_file=True)
    _assert_same(tmp_path / "b.zip", [*reviews["text"][:60], *HARD], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("stored", ["fp16", "int8", "int4", "kmeans", "pq"])
def test_every_form_of_weights_answers_the_same(stored, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("distillkit.compress.quantise.FEWEST_ROWS", 16)
    model = _student(tmp_path, reviews, kind="textcnn")
    settings = CompressConfig(embeddings=stored, weights="int8" if stored == "pq" else stored)
    source = str(tmp_path / "rows.jsonl")
    compress(CompressJob(model, tmp_path / "small", source, settings=settings))
    bundle = tmp_path / "small" / "bundle.zip"
    _assert_same(bundle, [*reviews["text"][:50], *HARD], tmp_path)


def test_a_damaged_bundle_and_a_damaged_model_are_refused_in_a_line(tmp_path):
    with zipfile.ZipFile(tmp_path / "whole", "w") as bundle:  # not packed
        for file in GOLDEN.iterdir():
            bundle.write(file, file.name)
    good = (tmp_path / "whole").read_bytes()
    manifest, files = read_bundle(GOLDEN)
    vectors = max(
        onnx.load_from_string(files["model.onnx"]).graph.initializer, key=onnx.TensorProto.ByteSize
    )
    nans = b"\0\0\xc0\x7f" * (len(vectors.raw_data) // 4)
    files["model.onnx"] = files["model.onnx"].replace(vectors.raw_data, nans)
    write_bundle(tmp_path / "nan", replace(manifest, files=described(files)), files, one_file=True)
    (tmp_path / "flipped").write_bytes(good.replace(b"positive", b"pOsitive"))
    places = [str(tmp_path / name) for name in ("whole", "flipped", "nan")]
    command = [
        "node",
        "--input-type=module",
        "-e",
        TRY % (RUNTIME / "distillkit.js").as_uri(),
        *places,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, *no_texts = done.stdout.splitlines()
    found = ("undefined", "number", "object", "object")
    assert no_texts == [f"expected a text, found {what}" for what in found]
    assert first == "manifest.json: changed or cut short since distillkit export wrote it"
    assert second.startswith("logits NaN,NaN: expected 2 finite numbers")


def _spoilt(data, chance):
    """Flip some bits, or put other bytes in place of some."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(data))
        if chance.random() < 0.5:
            data[place] ^= 1 << chance.randrange(8)
        else:
            new = chance.randbytes(chance.randrange(12))
            data[place : place + chance.randrange(20)] = new
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["bundle.zip", "manifest.json", "tokenizer.json", "model.onnx"])
def test_a_spoilt_bundle_answers_or_is_one_line(file, tmp_path):
    """Of bundle.zip the bytes are spoilt; the others are, and have a checksum that fits."""
    count, chance = int(os.environ.get("DISTILLKIT_EXAMPLES", 200)), random.Random(file)
    files = {path.name: path.read_bytes() for path in GOLDEN.iterdir()}
    (tmp_path / "spoilt").mkdir()
    for number in range(count):
        place = tmp_path / "spoilt" / f"{number}"
        with zipfile.ZipFile(place, "w") as bundle:
            for name, data in files.items():
                bundle.writestr(name, _spoilt(data, chance) if name == file else data)
        if file == "bundle.zip":
            place.write_bytes(_spoilt(place.read_bytes(), chance))
    script = FUZZ % (RUNTIME / "distillkit.js").as_uri()
    command = ["node", "--input-type=module", "-e", script, str(tmp_path / "spoilt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == count
    whole = Predictor(GOLDEN).logits(["the film was great ."])[0]
    for found in said:
        assert found["seconds"] < 10, found
        if "error" in found:
            assert found["error"].startswith("Error: "), found
            assert "\n" not in found["error"], found
            assert len(found["error"]) < 2_000, found
        elif file == "bundle.zip":
            assert np.allclose(found["logits"], whole, atol=1e-4), found
        else:
            assert np.isfinite(np.array(found["logits"], float)).all(), found


def test_the_script_stays_small():
    assert (Path(RUNTIME) / "distillkit.js").stat().st_size < 28_000
