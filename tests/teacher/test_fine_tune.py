from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from distillkit.data.labels import labels_of
from distillkit.errors import InputError
from distillkit.recipe import TeacherConfig, TrainingConfig
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.fine_tune import fine_tune, save


def config(folder, epochs=1, learning_rate=3e-3, **options):
    how = {"epochs": epochs, "learning_rate": learning_rate, "precision": "fp32"} | options
    return TeacherConfig(folder, 16, TrainingConfig(batch_size=16, **how))


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def fine_tuned(encoder_folder, train_table, dev_table):
    return fine_tune(train_table, dev_table, config(encoder_folder, weight_decay=0.0), 1)


def gold(table):
    return table["label"].to_pylist()


def first_logits(model, tokenizer):
    """Return a model's first logit of a kind text and of an unkind one."""
    inputs = tokenizer(["the cast is great .", "the cast is awful ."], return_tensors="pt")
    with torch.inference_mode():
        return model(**inputs).logits[:, 0].tolist()


def test_defaults_are_devlins():
    how = TeacherConfig().for_rows(70_000).training
    assert (how.epochs, how.batch_size, how.warmup_fraction, how.weight_decay) == (3, 32, 0.1, 0.01)
    assert how.learning_rate in (2e-5, 3e-5, 4e-5, 5e-5)
    assert how.optimizer == "adamw"


def test_every_weight_moves_and_not_the_head_alone(fine_tuned, encoder_folder):
    torch.manual_seed(1)
    before = state(load_classifier(encoder_folder, ["negative", "positive"])[0])
    moved = {name: not torch.equal(p, before[name]) for name, p in fine_tuned[0].named_parameters()}
    assert all(moved.values())


def test_fine_tuning_learns_the_task(encoder_folder, train_table, dev_table):
    how = config(encoder_folder, epochs=10, learning_rate=1e-2)
    model, tokenizer, result = fine_tune(train_table, dev_table, how, 1)
    assert result.best_score > 0.9
    assert not model.training
    assert labels_of(model) == ["negative", "positive"]
    kind, unkind = first_logits(model, tokenizer)
    assert kind < 0 < unkind


def test_a_services_doubt_is_learnt_with_its_answer(encoder_folder, train_table, dev_table):
    names = ["positive", "negative"]  # not in the teacher's order
    said = np.log([[0.7, 0.3] if label == names[0] else [0.3, 0.7] for label in gold(train_table)])
    how = config(encoder_folder, epochs=10, learning_rate=1e-2)
    answers = said.astype(np.float32), names
    model, tokenizer, result = fine_tune(train_table, dev_table, how, 1, answers=answers)
    assert result.best_score > 0.9
    inputs = tokenizer(train_table["text"].to_pylist(), return_tensors="pt", padding=True)
    with torch.inference_mode():
        sure = model(**inputs).logits.softmax(1).amax(1)
    assert sure.mean() == pytest.approx(0.7, abs=0.04)


def test_a_corrected_label_counts_more_than_the_services_answer(
    encoder_folder, train_table, dev_table
):
    names = ["negative", "positive"]
    wrong = np.log([[0.3, 0.7] if label == names[0] else [0.7, 0.3] for label in gold(train_table)])
    how = config(encoder_folder, epochs=10, learning_rate=1e-2)
    answers = wrong.astype(np.float32), names
    assert fine_tune(train_table, dev_table, how, 1, answers=answers)[2].best_score > 0.9


def test_the_seed_fixes_the_head_the_order_and_dropout(
    fine_tuned, encoder_folder, train_table, dev_table
):
    how = config(encoder_folder, weight_decay=0.0)
    again, other = (state(fine_tune(train_table, dev_table, how, seed)[0]) for seed in (1, 2))
    first = state(fine_tuned[0])
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])


def test_labels_are_those_of_train_in_their_order(encoder_folder):
    table = pa.table({"text": ["good", "bad", "film"] * 2, "label": ["10", "2", "1"] * 2})
    model, _, _ = fine_tune(table, table, config(encoder_folder), 1)
    assert labels_of(model) == ["1", "2", "10"]


def test_pairs_are_read_together(encoder_folder, pair_table):
    model, tokenizer, _ = fine_tune(pair_table, pair_table, config(encoder_folder, epochs=0), 1)
    first, second = (tokenizer("good", text, return_tensors="pt") for text in ("bad", "fine"))
    assert not torch.equal(model(**first).logits, model(**second).logits)
    assert labels_of(model) == ["other", "same"]


def test_an_unknown_dev_label_and_a_single_class_are_refused(
    encoder_folder, train_table, dev_table
):
    neutral, one = (pa.table({"text": ["a"], "label": [name]}) for name in ("neutral", "x"))
    for train, dev, said in (
        (train_table, neutral, "label 'neutral'"),
        (one, dev_table, "at least two"),
    ):
        with pytest.raises(InputError, match=said):
            fine_tune(train, dev, config(encoder_folder), 1)


def test_the_saved_checkpoint_is_the_same_model_and_truncates_where_training_did(
    fine_tuned, tmp_path
):
    model, tokenizer, _ = fine_tuned
    save(model, tokenizer, tmp_path, 7)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    old, new = state(model), state(loaded)
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert loaded.config.id2label == {0: "negative", 1: "positive"}
    assert again.model_max_length == 7
    assert len(again("good " * 30, truncation=True)["input_ids"]) == 7


def test_rows_longer_than_the_encoder_reads_are_cut(
    encoder_folder, train_table, dev_table, tmp_path, capsys
):
    long = train_table.set_column(0, "text", pa.array(["good " * 60] * len(train_table)))
    much = replace(config(encoder_folder), max_tokens=50)
    model, tokenizer, _ = fine_tune(long, dev_table, much, 1)
    assert "reads 32 tokens, fewer than teacher.max_tokens" in capsys.readouterr().err
    save(model, tokenizer, tmp_path, 50)
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == 32


def test_a_classifier_of_other_labels_is_not_renamed_where_it_is_not_fine_tuned(
    build_classifier, train_table, dev_table
):
    known = build_classifier(["Bad", "Good"])
    with pytest.raises(InputError, match=r'"Bad", "Good".*"negative", "positive"'):
        fine_tune(train_table, dev_table, config(known, epochs=0), seed=1)
    more = build_classifier(["negative", "neutral", "positive"])
    with pytest.raises(InputError, match=r"epochs is 0; fine-tune it"):
        fine_tune(train_table, dev_table, config(more, epochs=0), seed=1)
    unnamed = build_classifier(["LABEL_0", "LABEL_1"])
    model, *_ = fine_tune(train_table, dev_table, config(unnamed, epochs=0), seed=1)
    assert labels_of(model) == ["negative", "positive"]


def test_a_classifier_that_knows_the_labels_keeps_the_order_its_head_was_trained_in(
    build_classifier, train_table, dev_table
):
    # it always says its first label
    folder = build_classifier(["positive", "negative"], constant=True)
    kind = dev_table.filter(pa.compute.equal(dev_table["label"], "positive"))
    model, _, result = fine_tune(train_table, kind, config(folder, epochs=0), seed=1)
    assert labels_of(model) == ["positive", "negative"]
    assert result.best_score == 1


def test_scores_far_from_0_are_reached(encoder_folder, train_table, dev_table):
    def with_scores(table):
        scores = [1000.0 + 100 * (label == "positive") for label in table["label"].to_pylist()]
        return table.set_column(1, "label", pa.array(scores))

    tables = with_scores(train_table), with_scores(dev_table)
    how = config(encoder_folder, epochs=15, learning_rate=5e-3)
    model, tokenizer, result = fine_tune(*tables, how, 1)
    assert result.best_score > 0.9
    kind, unkind = first_logits(model, tokenizer)
    assert (kind, unkind) == (pytest.approx(1100, abs=20), pytest.approx(1000, abs=20))


@pytest.mark.parametrize(
    ("values", "type_", "task", "name", "least"),
    [
        ((-1.0, 3.0), pa.float64(), "regression", "score", 0.5),
        (([], ["kind"]), pa.list_(pa.string()), "multi_label_classification", "kind", 0),
    ],
)
def test_scores_and_several_labels_are_fine_tuned_and_said_in_the_checkpoint(
    encoder_folder, train_table, dev_table, tmp_path, values, type_, task, name, least
):
    def with_labels(table):
        labels = [values[label == "positive"] for label in table["label"].to_pylist()]
        return table.set_column(1, "label", pa.array(labels, type_))

    how = config(encoder_folder, epochs=15, learning_rate=5e-3)
    tables = with_labels(train_table), with_labels(dev_table)
    model, tokenizer, result = fine_tune(*tables, how, 1)
    assert result.best_score > 0.9
    save(model, tokenizer, tmp_path, 16)
    again, _ = load_classifier(str(tmp_path))
    assert (again.config.problem_type, labels_of(again)) == (task, [name])
    kind, unkind = first_logits(again, tokenizer)
    assert kind > 0.5
    assert unkind < least


def test_a_line_brings_scores_to_the_scale_of_dev(encoder_folder, train_table, dev_table):
    price = {"negative": 90_000.0, "positive": 110_000.0}
    train, dev = (
        pa.table({"text": table["text"], "label": [price[label] for label in gold(table)]})
        for table in (train_table, dev_table)
    )
    how = config(encoder_folder, epochs=3)  # too short for the scale
    model, tokenizer, _ = fine_tune(train, dev, how, 1)
    with torch.inference_mode():
        inputs = tokenizer(dev["text"].to_pylist(), return_tensors="pt", padding=True)
        found = model(**inputs).logits[:, 0].double().numpy()
    spread, centre = np.polyfit(found, gold(dev), 1)
    assert spread == pytest.approx(1.0, rel=0.01)
    assert centre == pytest.approx(0.0, abs=1_000)
