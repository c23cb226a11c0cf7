"""Every kind of student leaves torch and answers as before: alone and batched, empty, unknown, cut off."""

import numpy as np
import pytest
import torch
from test_contract import STUDENTS, TEXTS, is_pair

from distillkit.data.batches import encode
from distillkit.errors import InputError
from distillkit.pipeline import export
from distillkit.recipe import ColumnsConfig
from distillkit.runtime import Predictor
from distillkit.training.inference import predict_logits

# Each node of a graph that another student has not.
NAMES = [
    "bilstm",
    "bilstm, attention",
    "bilstm, two channels",
    "siamese-bilstm, two layers",
    "siamese-bilstm, hashed",
    "textcnn",
    "textcnn, mean",
    "siamese-textcnn, attention",
    "static",
    "static, hashed",
    "siamese-static, frozen",
    "siamese-transformer",
    "transformer",
    "transformer, fresh",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_answers_as_torch_does(student, name, tmp_path):
    model, tokenizer = student(**STUDENTS[name])
    model.eval().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    summary = export(str(tmp_path / "model"), tmp_path / "bundle")
    assert summary["parity"]["largest"] < 1e-4
    assert summary["parity"]["same_answer"] == 1
    predictor = Predictor(tmp_path / "bundle")
    rng = np.random.default_rng(0)
    texts = [
        *TEXTS,
        *(" ".join(rng.choice([*"abcdefgh", "z", "é"], size)) for size in (1, 2, 30, 63, 200)),
    ]
    pairs = texts[::-1] if is_pair(name) else None
    wanted = predict_logits(
        model, encode(tokenizer, texts, pairs, predictor.manifest.max_tokens)
    ).numpy()
    assert np.ptp(wanted, axis=0).min() > 1e-3  # texts do differ
    assert np.abs(predictor.logits(texts, pairs) - wanted).max() < 1e-4
    alone = [
        predictor.logits([text], None if pairs is None else [pairs[i]])
        for i, text in enumerate(texts)
    ]
    assert np.abs(np.concatenate(alone) - wanted).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("siamese-bilstm", "dev.tsv: single texts, but .*model answers pairs; name .*text-pair"),
        ("bilstm", "dev.tsv: pairs, but .*model answers single texts; give single texts"),
    ],
)
def test_a_source_of_the_other_kind_is_refused(student, name, message, tmp_path):
    model, tokenizer = student(name)
    model.eval().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    source = {False: tmp_path / "dev.tsv", True: tmp_path / "pair-dev.tsv"}
    source[False].write_text("text\na b\n")
    source[True].write_text("text\ttext_pair\na b\tc\n")
    columns = {False: ColumnsConfig(), True: ColumnsConfig(text_pair="text_pair")}
    given = {kind: (str(source[kind]), columns[kind]) for kind in (False, True)}
    with pytest.raises(InputError, match=message):
        export(str(tmp_path / "model"), tmp_path / "bundle", *given[not is_pair(name)])
    assert not (tmp_path / "bundle").exists()
    rows = [
        export(str(tmp_path / "model"), tmp_path / "bundle", *given)["parity"]["rows"]
        for given in (given[is_pair(name)], ())
    ]
    assert rows[0] == rows[1] + 1
    with pytest.raises(InputError, match=r"this model answers .*--data.columns.text-pair"):
        Predictor(tmp_path / "bundle").logits(["a"], None if is_pair(name) else ["b"])


def test_vectors_of_each_side_are_the_models_own(student, tmp_path):
    model, tokenizer = student("siamese-bilstm")
    model.eval().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    export(str(tmp_path / "model"), tmp_path / "bundle")
    predictor = Predictor(tmp_path / "bundle")
    kept = predictor.vectors(TEXTS)
    with torch.inference_mode():
        wanted = model.encode(**tokenizer(TEXTS, padding=True, return_tensors="pt")).numpy()
    assert np.abs(kept - wanted).max() < 1e-6
    asked = predictor.vectors(["c b"]).repeat(len(TEXTS), axis=0)
    assert (
        np.abs(predictor.compare(kept, asked) - predictor.logits(TEXTS, ["c b"] * len(TEXTS))).max()
        < 1e-6
    )
    assert predictor.vectors([]).shape == (0, 12)
