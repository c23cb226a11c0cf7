"""The prose of a model card, on a made-up run; tests/test_push.py has cards of real runs."""

from copy import deepcopy
from dataclasses import replace

import pytest

from distillkit.measure.card import About, model_card
from distillkit.recipe import (
    ColumnsConfig,
    DataConfig,
    LossConfig,
    Recipe,
    StudentConfig,
    TeacherConfig,
)

SCORES = {"rows": 1200, "accuracy": 0.9, "macro_f1": 0.8, "agreement": 0.95}
CLASSES = {"good": {"f1": 0.9, "rows": 800}, "bad": {"f1": 0.7, "rows": 400}}
MODEL = {"dev": SCORES | {"calibration_error": 0.031, "classes": CLASSES}, "megabytes": 1.25}
KEPT = {"best_epoch": 2, "dev_accuracy": 0.9, "dev_micro_f1": 0.9}
ABOUT = About(
    name="me/tiny",
    recipe=Recipe(
        data=DataConfig(train="embedded:reviews/train", dev="datasets:nyu-mll/glue:sst2:dev"),
        teacher=TeacherConfig("google-bert/bert-base-uncased"),
    ),
    result={
        "distillkit": "0.1.0",
        "seed": 7,
        "models": {
            "student": MODEL | {"parameters": {"total": 1000, "without_embeddings": 10}},
            "teacher": MODEL | {"parameters": {"total": 12_300, "without_embeddings": 10}},
        },
        "data": {"rows": {"train": 5000}, "labels": {"train": {"good": 3000, "bad": 2000}}},
        "transfer_set": {"rows": 9000, "original": 5000, "duplicates": 12, "leaks": 3},
        "training": {"student": KEPT, "teacher": KEPT},
    },
    latency={},
    labels=["good", "bad"],
    config={"model_type": "bert", "vocab_size": 30_522},
    teacher_config={"model_type": "bert"},
    max_tokens=64,
    truncated=0.021,
    unknown=None,
    hub_teacher="google-bert/bert-base-uncased",
    hub_data=["nyu-mll/glue"],
)


def _card(**changes):
    return str(model_card(replace(ABOUT, **changes)))


def _result(**changes):
    return deepcopy(dict(ABOUT.result)) | changes


def test_metadata_name_what_is_on_the_hub():
    data = model_card(ABOUT).data
    assert (data.base_model, data.datasets) == (ABOUT.hub_teacher, ABOUT.hub_data)
    assert (data.language, data.library_name) == ("en", "transformers")
    assert {one.dataset_type for one in data.eval_results} == {"nyu-mll/glue"}


def test_a_card_says_nothing_that_the_run_does_not_know():
    text = _card()
    assert text.endswith("\n```\n")
    for absent in ("import distillkit", "bundle", "Ladder", "Milliseconds", "gold labels", "None"):
        assert absent not in text
    for absent in ("pre-training", "variants", "out of its vocabulary", "It expects", "\n\n\n"):
        assert absent not in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "on dev: 90.0, level with its teacher."),
        ({}, "With that many rows, the accuracy lies between 88.2 and 91.6 (95 %)."),
        ({}, 'Its worst label is "bad": F1 70.0, 400 dev rows.'),
        ({}, "Its probabilities are 3.1 points off on average"),
        ({"labels": [f"l{i}" for i in range(25)]}, "one of 25 labels: `l0`, `l1`, "),
        ({"labels": ["<none>", "a `b`"]}, "one of 2 labels: `<none>`, `a \u02bcb\u02bc`."),
        ({"unknown": 0.04}, "4.0 % of dev's tokens are out of its vocabulary of 30,522."),
        ({"latency": {"student": 0.5}}, "Milliseconds are the median"),
        (
            {"recipe": replace(ABOUT.recipe, loss=LossConfig("soft", 0.5, 4.0))},
            "The loss is soft targets at temperature 4, alpha 0.5. The kept epoch is 2",
        ),
        ({"recipe": replace(ABOUT.recipe, student=StudentConfig(kind="textcnn"))}, "It sees"),
        (
            {"recipe": replace(ABOUT.recipe, data=DataConfig(train="a.tsv", unlabelled=("b",)))},
            "It expects `a.tsv`, `b` in the folder",
        ),
    ],
)
def test_what_the_run_knows_is_said(changes, said):
    assert said in _card(**changes)


def test_limits_are_those_of_test_with_the_gap_of_each_split():
    models = deepcopy(ABOUT.result["models"])
    for model in models.values():
        model["test"] = model["dev"] | {"rows": 700}
    models["teacher"]["test"]["accuracy"] = 0.95
    text = _card(result=_result(models=models))
    assert "on test: 90.0, 5.0 points below its teacher; on dev: 90.0, level with" in text
    assert "differs from its teacher's on 5.0 % of the test rows." in text
    assert "These numbers rest on 700 test rows" in text
    assert "There was no test set" not in text


def test_a_label_without_dev_rows_is_not_the_worst():
    models = deepcopy(ABOUT.result["models"])
    models["student"]["dev"]["classes"]["rare"] = {"f1": 0.0, "rows": 0}
    assert 'Its worst label is "bad"' in _card(result=_result(models=models))


def test_several_labels_are_asked_for_all_at_once():
    recipe = replace(ABOUT.recipe, data=replace(ABOUT.recipe.data, task="multi-label"))
    scores = {"rows": 1200, "micro_f1": 0.9, "macro_f1": 0.8, "exact_match": 0.7, "agreement": 0.95}
    model = ABOUT.result["models"]["student"] | {"dev": scores}
    text = _card(recipe=recipe, result=_result(models=dict.fromkeys(("student", "teacher"), model)))
    assert "any number of 2 labels: `good`, `bad`." in text
    assert ", top_k=None)" in text
    assert "Micro-F1 on dev: 90.0" in text


def test_what_made_the_rows_and_the_teacher_is_said():
    losses = {"before": {"loss": 3.456}, "after": {"loss": 2.1}}
    adapted = {"text": {"train": {"documents": 12_345, "tokens": 999_999}}, "held_out": losses}
    transfer = ABOUT.result["transfer_set"] | {"generated": 7, "rules": {"mask": 1500, "swap": 20}}
    text = _card(result=_result(adapted=adapted, transfer_set=transfer))
    assert "12,345 documents without labels\n(999,999 tokens, whole-word masks)." in text
    assert "its loss went from 3.46 to 2.10." in text
    assert "The loss is the squared distance of the logits, alpha 0." in text
    assert "9,000 rows: 5,000 original, 7 generated." in text
    assert "12 duplicates, and 3 rows that equal a dev or test row." in text
    rows = [line.split("|")[1:-1] for line in text.splitlines() if "words masked" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [["words masked", "0.1", "1,500"]]
    assert "sides of a pair exchanged" in text


def test_only_students_that_read_the_texts_of_a_pair_apart_are_said_to():
    pairs = replace(ABOUT.recipe.data, columns=ColumnsConfig(text_pair="b"))
    cards = {
        kind: _card(recipe=replace(ABOUT.recipe, data=pairs, student=StudentConfig(kind)))
        for kind in ("siamese-static", "siamese-bilstm", "decomposable", "interaction-bilstm")
    }
    apart = "reads the two texts apart"
    assert [apart in " ".join(text.split()) for text in cards.values()] == [
        True,
        True,
        False,
        False,
    ]
    order = "the order of words means nothing to it. It reads the two texts apart"
    assert order in " ".join(cards["siamese-static"].split())


def test_self_pairs_are_named_among_the_methods():
    transfer = ABOUT.result["transfer_set"] | {"rules": {"self": 20}}
    assert "a text beside its own variant" in _card(result=_result(transfer_set=transfer))
