"""Every kind of student leaves torch and answers as before: alone and batched, empty, unknown, cut off."""

from functools import cache

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

# Each node of a graph that another student has not; what differs in little is in the slow tier.
NAMES = [
    "bilstm",
    "siamese-bilstm, two layers",
    "textcnn, mean",
    "static, hashed",
    "transformer",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in (
            "bilstm, attention",
            "bilstm, two channels",
            "siamese-bilstm, hashed",
            "textcnn",
            "siamese-textcnn, attention",
            "static",
            "siamese-static, frozen",
            "siamese-transformer",
        )
    ),
]


@pytest.fixture(scope="module")
def exported(student, tmp_path_factory):
    """Return a function that gives a student, its folder, its bundle and what export said."""

    @cache
    def make(name):
        folder = tmp_path_factory.mktemp("exported")
        model, tokenizer = student(**STUDENTS[name])
        model.eval().save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        summary = export(str(folder / "model"), folder / "bundle")
        return model, tokenizer, folder, summary

    return make


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_answers_as_torch_does(exported, name):
    model, tokenizer, folder, summary = exported(name)
    assert summary["parity"]["largest"] < 1e-4
    assert summary["parity"]["same_answer"] == 1
    predictor = Predictor(folder / "bundle")
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
        (
            "siamese-bilstm, two layers",
            "dev.tsv: single texts, but .*model answers pairs; name .*text-pair",
        ),
        ("bilstm", "dev.tsv: pairs, but .*model answers single texts; give single texts"),
    ],
)
def test_a_source_of_the_other_kind_is_refused(exported, name, message, tmp_path):
    _, _, folder, summary = exported(name)
    single, pairs = tmp_path / "dev.tsv", tmp_path / "pair-dev.tsv"
    single.write_text("text\na b\n")
    pairs.write_text("text\ttext_pair\na b\tc\n")
    given = [(str(single), ColumnsConfig()), (str(pairs), ColumnsConfig(text_pair="text_pair"))]
    wrong, right = given if is_pair(name) else given[::-1]
    with pytest.raises(InputError, match=message):
        export(str(folder / "model"), tmp_path / "bundle", *wrong)
    assert not (tmp_path / "bundle").exists()
    rows = export(str(folder / "model"), tmp_path / "bundle", *right)["parity"]["rows"]
    assert rows == summary["parity"]["rows"] + 1
    with pytest.raises(InputError, match=r"this model answers .*--data.columns.text-pair"):
        Predictor(folder / "bundle").logits(["a"], None if is_pair(name) else ["b"])


@pytest.mark.parametrize(
    "name",
    ["siamese-bilstm, two layers", pytest.param("siamese-transformer", marks=pytest.mark.slow)],
)
def test_vectors_of_each_side_are_the_models_own(exported, name):
    model, tokenizer, folder, _ = exported(name)
    predictor = Predictor(folder / "bundle")
    kept = predictor.vectors(TEXTS)
    with torch.inference_mode():
        wanted = model.encode(**tokenizer(TEXTS, padding=True, return_tensors="pt")).numpy()
    assert np.abs(kept - wanted).max() < 1e-6
    asked = predictor.vectors(["c b"]).repeat(len(TEXTS), axis=0)
    assert (
        np.abs(predictor.compare(kept, asked) - predictor.logits(TEXTS, ["c b"] * len(TEXTS))).max()
        < 1e-6
    )
    assert np.array_equal(
        predictor.compare(kept.astype(float), asked), predictor.compare(kept, asked)
    )
    with pytest.raises(InputError, match=r"compare: vectors of shape \(2, .*expected \(N, D\)"):
        predictor.compare(kept[:2], kept[:3])
    assert predictor.vectors([]).shape == (0, wanted.shape[1])
