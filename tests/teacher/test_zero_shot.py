"""Zero-shot teachers: entailment and sentence vectors, by hand-made checkpoints."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from distillkit import pipeline
from distillkit.data.logits import join_logits, joined_labels
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, LabelConfig
from distillkit.teacher.text_vectors import TextVectors
from distillkit.teacher.zero_shot import HYPOTHESIS, zero_shot

LABELS = ("kind", "unkind")
TEXTS = ["the film is good .", "the film is bad .", "a dull plot"]


@pytest.fixture(scope="module")
def entailment(tmp_path_factory, encoder_folder):
    """A classifier of entailment with drawn weights."""
    folder = tmp_path_factory.mktemp("entailment")
    torch.manual_seed(3)
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = BertConfig.from_pretrained(encoder_folder, id2label=names, num_labels=3)
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.bias.copy_(torch.arange(3.0))  # so that the answers differ
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_entailment_is_asked_about_each_label(entailment):
    meanings = {"kind": "The writer likes it."}
    found = zero_shot(entailment, LABELS, meanings)(TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(entailment)
    model = BertForSequenceClassification.from_pretrained(entailment).eval()
    hypotheses = ["The writer likes it.", HYPOTHESIS.format("unkind")]
    for text, row in zip(TEXTS, found, strict=True):
        rows = tokenizer([text] * 2, hypotheses, padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = model(**rows).logits[:, 2].numpy()
        np.testing.assert_allclose(row, expected, atol=0.05)  # bf16 where the processor has it


def test_sentence_vectors_are_compared_with_each_labels_meaning(encoder_folder):
    meanings = {"kind": TEXTS[0], "unkind": TEXTS[1]}
    found = zero_shot(encoder_folder, LABELS, meanings)(TEXTS)
    vectors = TextVectors(encoder_folder, 64)(TEXTS)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(found, 20 * unit @ unit[:2].T, atol=0.3)
    assert found[:2].argmax(1).tolist() == [0, 1]


def test_label_keeps_the_answers_in_a_store(encoder_folder, tmp_path):
    config = LabelConfig(descriptions=(f"kind={TEXTS[0]}", f"unkind={TEXTS[1]}"))
    table = pa.table({"text": TEXTS})
    store = tmp_path / "store"
    summary = pipeline.label(table, store, encoder_folder, config, labels=LABELS)
    assert (summary["rows"], summary["labels"]) == (3, list(LABELS))
    assert joined_labels(store) == list(LABELS)
    expected = zero_shot(encoder_folder, LABELS, config.meanings(LABELS))(TEXTS)
    np.testing.assert_allclose(join_logits(table, store), expected, atol=0.05)
    with pytest.raises(InputError, match="made with descriptions"):
        pipeline.label(table, store, encoder_folder, labels=LABELS)


def test_what_does_not_fit_is_refused_in_one_line(
    classifier_folder, encoder_folder, pair_table, tmp_path
):
    table = pa.table({"text": TEXTS})
    with pytest.raises(InputError, match="a classifier of negative, positive: expected entailment"):
        pipeline.label(table, tmp_path / "a", classifier_folder, labels=LABELS)
    columns = ColumnsConfig(text_pair="text_pair")
    with pytest.raises(
        InputError, match="reads single texts, but the rows are pairs; leave out --data"
    ):
        pipeline.label(pair_table, tmp_path / "b", encoder_folder, columns=columns, labels=LABELS)
    with pytest.raises(InputError, match="two or more different --labels"):
        pipeline.label(table, tmp_path / "c", encoder_folder, labels=("kind",))
    config = LabelConfig(descriptions=("good=It is.",))
    with pytest.raises(InputError, match="'good': the labels are kind, unkind"):
        pipeline.label(table, tmp_path / "d", encoder_folder, config, labels=LABELS)
