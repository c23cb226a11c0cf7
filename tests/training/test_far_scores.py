"""Scores far from 0."""

import copy
import json
import re

import numpy as np
import pytest
import torch

from distillkit import pipeline
from distillkit.compress.run import compress
from distillkit.data.batches import encode
from distillkit.data.checked import save_pretrained
from distillkit.pipeline import Classifier
from distillkit.recipe import (
    CompressConfig,
    CompressJob,
    EmbeddingConfig,
    LabelConfig,
    LossConfig,
    StudentConfig,
    StudentJob,
    TrainingConfig,
)
from distillkit.runtime import Predictor
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.inference import predict_logits
from distillkit.training.scores import line_to, rescale, scale_of, standardise
from tests.student import conftest as students

bert = students.bert


def test_only_scores_beyond_reach_are_standardised():
    assert scale_of(torch.tensor([[-8.0], [3.0], [float("nan")]])) == (0.0, 1.0)
    assert scale_of(torch.tensor([1990.0, 2010.0, float("nan")])) == (2000.0, 10.0)
    assert scale_of(torch.tensor([[9.0], [9.0]])) == (9.0, 1.0)
    assert scale_of(torch.tensor([float("nan")])) == (0.0, 1.0)


def test_a_line_is_fitted_by_least_squares_where_it_says_something():
    found = np.arange(20, dtype=np.float32)
    assert line_to(5 + 3 * found, found) == pytest.approx((5.0, 3.0))
    assert line_to(5 + 3 * found[:19], found[:19]) is None
    assert line_to(5 - 3 * found, found) is None
    assert line_to(found, np.ones_like(found)) is None


def test_a_rescaled_model_answers_with_the_scores():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    x = torch.randn(5, 3)
    standardised = model(x)
    rescale(model, 2000.0, 10.0)
    torch.testing.assert_close(model(x), 2000 + 10 * standardised)


@pytest.mark.parametrize(("said", "kept"), [(2003.0, False), (0.5, True)])
def test_a_head_that_gives_such_scores_begins_standardised_and_another_as_it_is(bert, said, kept):
    network, tokenizer = copy.deepcopy(bert)
    network.classifier = torch.nn.Linear(8, 1)
    network.num_labels, network.config.num_labels = 1, 1
    torch.nn.init.constant_(network.classifier.bias, said)
    rows = encode(tokenizer, ["a b", "c"], None, 8)
    before = predict_logits(network, rows)
    standardise(network, rows, 2000.0, 10.0)
    expected = before if kept else (before - 2000) / 10
    torch.testing.assert_close(predict_logits(network, rows), expected, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    """A folder with 300 texts and their years, a student of them, and its teacher's logits."""
    folder = tmp_path_factory.mktemp("years")
    words, rng = ["late", "early", "old", "new", "plain"], np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, 5)) for _ in range(300)]
    years = [2000 + 5.0 * (t.split().count("late") - t.split().count("early")) for t in texts]
    rows = "".join(f"{text}\t{year}\n" for text, year in zip(texts, years, strict=True))
    (folder / "train.tsv").write_text("text\tlabel\n" + rows)
    table = [{"text": text, "logits": [year]} for text, year in zip(texts, years, strict=True)]
    (folder / "logits.jsonl").write_text("\n".join(map(json.dumps, table)))
    source, given = str(folder / "train.tsv"), str(folder / "logits.jsonl")
    how = LabelConfig(storage="fp32")
    pipeline.label(source, folder / "store", "", how, task="regression", logits=given)
    pipeline.train_student(
        StudentJob(
            source,
            source,
            folder / "student",
            StudentConfig("static", head_size=8, embeddings=EmbeddingConfig("random", 8)),
            loss=LossConfig(alpha=1.0),
            training=TrainingConfig(epochs=60, batch_size=32, learning_rate=1e-2, precision="fp32"),
            task="regression",
        )
    )
    return folder


def test_a_student_learns_years(years):
    found = pipeline.evaluate(years / "student", str(years / "train.tsv"))
    assert found.mae < 1.5  # of raw scores it would miss hundreds of years after as many steps


def test_years_are_compressed_where_bf16_has_no_digits_for_them(years, tmp_path, capsys):
    train = str(years / "train.tsv")
    job = CompressJob(
        str(years / "student"),
        tmp_path / "small",
        train,
        CompressConfig(embeddings="int8", weights="int8"),
        transfer_set=train,
        logits=years / "store",
        training=TrainingConfig(epochs=1, batch_size=32, learning_rate=1e-3, precision="bf16"),
    )
    compress(job)
    (loss,) = re.findall(r"epoch 1: loss ([\d.]+)", capsys.readouterr().err)
    assert float(loss) < 1  # next to 2000 bf16 knows steps of 8
    assert pipeline.evaluate(tmp_path / "small" / "model", train).mae < 1.5


def test_weights_of_scores_beyond_fp16_stay_in_fp32(years, tmp_path):
    network, tokenizer = load_classifier(str(years / "student"))
    rescale(network, 0.0, 1e6)
    save_pretrained(tmp_path / "far", network, tokenizer)
    train = str(years / "train.tsv")
    settings = CompressConfig(embeddings="fp16", weights="fp16")
    compress(CompressJob(str(tmp_path / "far"), tmp_path / "small", train, settings))
    texts = ["late early", "old late"]
    wanted = Classifier(str(tmp_path / "far")).logits(texts)
    found = Predictor(tmp_path / "small" / "bundle.zip").logits(texts)
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
