import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from distillkit.errors import InputError
from distillkit.recipe import TeacherConfig, TrainingConfig
from distillkit.teacher.checkpoint import labels_of, load_classifier
from distillkit.teacher.fine_tune import fine_tune, save


def config(folder, epochs=1, learning_rate=3e-3, **options):
    how = TrainingConfig(
        epochs=epochs, batch_size=16, learning_rate=learning_rate, precision="fp32", **options
    )
    return TeacherConfig(folder, 16, how)


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def fine_tuned(encoder_folder, train_table, dev_table):
    return fine_tune(train_table, dev_table, config(encoder_folder, weight_decay=0.0), 1)


def test_defaults_are_devlins():
    how = TeacherConfig().training
    assert (how.epochs, how.batch_size, how.warmup_fraction, how.weight_decay) == (3, 32, 0.1, 0.01)
    assert how.learning_rate in (2e-5, 3e-5, 4e-5, 5e-5)
    assert how.optimizer == "adamw"


def test_every_weight_moves_and_not_the_head_alone(fine_tuned, encoder_folder):
    model, _, _ = fine_tuned
    torch.manual_seed(1)
    before = state(load_classifier(encoder_folder, ["negative", "positive"])[0])
    still = [
        name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])
    ]
    assert still == []


def test_fine_tuning_learns_the_task(encoder_folder, train_table, dev_table):
    how = config(encoder_folder, epochs=10, learning_rate=1e-2)
    model, tokenizer, result = fine_tune(train_table, dev_table, how, 1)
    assert result.best_score > 0.9
    assert not model.training
    with torch.inference_mode():
        found = model(
            **tokenizer(
                ["the cast is great .", "the cast is awful ."], padding=True, return_tensors="pt"
            )
        )
    assert [labels_of(model)[i] for i in found.logits.argmax(1)] == ["positive", "negative"]


def test_the_seed_fixes_the_head_the_order_and_dropout(
    fine_tuned, encoder_folder, train_table, dev_table
):
    again, _, _ = fine_tune(train_table, dev_table, config(encoder_folder, weight_decay=0.0), 1)
    other, _, _ = fine_tune(train_table, dev_table, config(encoder_folder, weight_decay=0.0), 2)
    first, again, other = state(fine_tuned[0]), state(again), state(other)
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
    with pytest.raises(InputError, match="label 'neutral'"):
        fine_tune(
            train_table, pa.table({"text": ["a"], "label": ["neutral"]}), config(encoder_folder), 1
        )
    with pytest.raises(InputError, match="at least two"):
        fine_tune(pa.table({"text": ["a"], "label": ["x"]}), dev_table, config(encoder_folder), 1)


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


def test_a_classifier_that_knows_the_labels_keeps_the_order_its_head_was_trained_in(
    build_classifier, train_table, dev_table
):
    folder = build_classifier(
        ["positive", "negative"], constant=True
    )  # it always says its first label
    kind = dev_table.filter(pa.compute.equal(dev_table["label"], "positive"))
    model, _, result = fine_tune(
        train_table, kind, TeacherConfig(folder, 16, TrainingConfig(epochs=0)), seed=1
    )
    assert [model.config.id2label[i] for i in range(2)] == ["positive", "negative"]
    assert result.best_score == 1


def test_scores_and_several_labels_are_fine_tuned_and_said_in_the_checkpoint(
    encoder_folder, train_table, dev_table, tmp_path
):
    def with_labels(table, kind):
        good = [label == "positive" for label in table["label"].to_pylist()]
        labels = (
            [3.0 if g else -1.0 for g in good]
            if kind == pa.float64()
            else [["kind"] if g else [] for g in good]
        )
        return table.set_column(1, "label", pa.array(labels, kind))

    how = config(encoder_folder, epochs=15, learning_rate=5e-3)
    for kind, task, names in (
        (pa.float64(), "regression", ["score"]),
        (pa.list_(pa.string()), "multi_label_classification", ["kind"]),
    ):
        model, tokenizer, result = fine_tune(
            with_labels(train_table, kind), with_labels(dev_table, kind), how, 1
        )
        assert result.best_score > 0.9
        save(model, tokenizer, tmp_path / task, 16)
        again, _ = load_classifier(str(tmp_path / task))
        assert (again.config.problem_type, labels_of(again)) == (task, names)
        with torch.inference_mode():
            found = again(
                **tokenizer(["the cast is great .", "the cast is awful ."], return_tensors="pt")
            ).logits[:, 0]
        assert found[0] > 0.5
        assert found[1] < (0 if names == ["kind"] else 0.5)
