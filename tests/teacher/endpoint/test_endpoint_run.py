"""A run whose logits a service gives: nothing paid is lost, whatever is done again."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from distillkit import pipeline, runs
from distillkit.api import Run
from distillkit.data.logits import join_logits, read_store
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, EndpointConfig, load_recipe
from distillkit.report import write_report
from distillkit.runs.asked import check_service
from distillkit.runtime.answers import confidence


def asking(recipe, url, model="tiny", data=None, **options):
    endpoint = EndpointConfig(url, model, **options)
    label = replace(recipe.label, endpoint=endpoint, storage="fp32")
    return replace(recipe, label=label, data=replace(recipe.data, **data or {}))


@pytest.fixture
def recipe(tiny_recipe, build_classifier):
    """One whose teacher needs no training, and knows nothing."""
    teacher = replace(tiny_recipe.teacher, model=build_classifier(["negative", "positive"]))
    teacher = replace(teacher, training=replace(teacher.training, epochs=0))
    return replace(tiny_recipe, teacher=teacher, augment=replace(tiny_recipe.augment, n_iter=1))


def label(recipe, folder):
    """Do the stages of a run as far as the logits; return the transfer set."""
    with runs.at_work(folder) as home:
        models = runs.look_ahead(recipe)
        task = runs.teach(recipe, home, folder / "recipe.yaml")
        _, transfer_set = runs.label_transfer_set(recipe, home, task, models)
    return pq.read_table(transfer_set)


def test_a_run_asks_the_service_in_place_of_its_teacher(server, recipe, tmp_path):
    by_words = server.distribution
    server.distribution = lambda text, classes: by_words(text, classes)[::-1]  # A is negative
    with pytest.raises(InputError, match=r"max_calls 70 is reached.*--label\.endpoint\.max-calls"):
        label(asking(recipe, server.url, max_calls=70), tmp_path)
    assert server.calls == 70
    table = label(asking(recipe, server.url), tmp_path)
    assert server.calls == len(table) > 96
    store = tmp_path / "logits" / "store"
    expected = [server.distribution(text, 2) for text in table["text"].to_pylist()]
    np.testing.assert_allclose(join_logits(table, store), expected, atol=1e-5)
    assert read_store(store)["teacher"]["model"] == "tiny"
    assert not list(store.rglob("answers.jsonl"))
    # Another transfer set is another stage, and asks about its new texts alone.
    fewer = label(replace(asking(recipe, server.url), seed=2), tmp_path)
    assert server.calls == len({*table["text"].to_pylist(), *fewer["text"].to_pylist()})
    assert max(server.asked.values()) == 1


def test_a_recipe_that_cannot_ask_is_refused_before_anything_is_trained(tiny_recipe):
    pairs = {"columns": ColumnsConfig(text_pair="b")}
    for options, said in (
        ({"model": ""}, "no model is named"),
        ({"data": {"logits": "x.jsonl"}}, "drop one of the two"),
        ({"data": {"task": "regression"}}, "but data.task is regression"),
        ({"prompt": ("{text} or {text_pair}? {labels}",)}, "the rows have no {text_pair}"),
        ({"prompt": ("{text}? {labels}",), "data": pairs}, "expected {text_pair} in it"),
    ):
        with pytest.raises(InputError, match=said):
            check_service(asking(tiny_recipe, "http://there/v1", **options))


def test_descriptions_of_other_labels_are_refused_before_the_teacher(tiny_recipe, tmp_path):
    recipe = asking(tiny_recipe, "http://there/v1")
    label = replace(recipe.label, descriptions=("joyfull=glad",))
    with pytest.raises(InputError, match="joyfull"):
        runs.run(replace(recipe, label=label), tmp_path / "run")
    assert not (tmp_path / "run" / "teacher").exists()


def without_labels(recipe, url, texts, dev, **options):
    """The same recipe for texts without labels, of which a service labels some."""
    data = replace(
        recipe.data,
        train="",
        dev=dev,
        unlabelled=(texts,),
        labels=("negative", "positive"),
        unlabelled_rows=0,
    )
    label = replace(recipe.label, endpoint=EndpointConfig(url, "tiny"), **options)
    return replace(recipe, data=data, label=label)


@pytest.fixture
def texts(train_table, dev_table, tmp_path):
    """All training texts and some of dev, none with a label."""
    held_out = dev_table["text"].to_pylist()
    rows = [*train_table["text"].to_pylist(), *held_out[:5], *map(str.upper, held_out[5:9])]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_a_service_labels_the_first_texts_of_a_run_without_labels(
    server, tiny_recipe, texts, train_table, dev_table, tmp_path
):
    by_words = server.distribution
    server.distribution = lambda text, classes: by_words(text, classes)[::-1]  # A is negative
    recipe = without_labels(tiny_recipe, server.url, texts, tiny_recipe.data.dev, budget=80)
    result = runs.run(recipe, tmp_path / "run")
    said = result["data"]["first_labels"]
    assert said == {
        "by": f"{server.url} (tiny)",
        "texts": 96,
        "rows": 80,
        "log_probabilities": True,
        "dev_by": "",
    }
    assert sum(server.asked.values()) == server.calls == 80
    asked = {text.lower() for text in server.asked}
    assert not asked & {text.lower() for text in dev_table["text"].to_pylist()}
    gold = dict(zip(*(train_table[name].to_pylist() for name in ("text", "label")), strict=True))
    train = pq.read_table(tmp_path / "run" / "data" / "train.parquet").to_pylist()
    assert len(train) == 80
    assert all(gold[row["text"]] == row["label"] for row in train)
    assert result["models"]["teacher"]["dev"]["rows"] == len(dev_table)
    # The teacher, and not the service, reads the transfer set; the saved recipe repeats the run.
    again = load_recipe(str(tmp_path / "run" / "recipe.yaml"))
    assert runs.run(again, tmp_path / "run") == result
    assert server.calls == 80
    assert "how often the student is right is unknown" not in str(Run(tmp_path / "run", result))


@pytest.mark.slow
def test_the_teacher_learns_how_sure_the_service_is(
    server, tiny_recipe, texts, train_table, tmp_path
):
    gold = dict(zip(*(train_table[name].to_pylist() for name in ("text", "label")), strict=True))
    confident = []
    for share, top in ((0.99, 20), (0.6, 20), (0.6, 0)):

        def distribution(text, _classes, share=share):
            shares = [share, 1 - share]
            return np.log(shares if gold.get(text) == "negative" else shares[::-1]).tolist()

        folder = tmp_path / f"{share}-{top}"
        server.distribution, server.most_top = distribution, top
        recipe = without_labels(tiny_recipe, server.url, texts, tiny_recipe.data.dev)
        with runs.at_work(folder) as home:
            task = runs.teach(recipe, home, folder / "recipe.yaml")
        logits, _ = pipeline.classify(task.model, train_table, "train")
        confident.append(confidence(logits).mean())
    assert confident[0] > 0.8
    assert confident[1] == pytest.approx(0.6, abs=0.08)
    assert confident[2] > 0.95  # no log-probabilities, no doubt


@pytest.mark.slow
def test_without_held_out_labels_no_accuracy_is_said(server, tiny_recipe, texts, tmp_path):
    by_words = server.distribution
    server.distribution = lambda text, classes: by_words(text, classes)[::-1]
    recipe = without_labels(tiny_recipe, server.url, texts, "")
    result = runs.run(recipe, tmp_path / "run")
    assert result["data"]["first_labels"]["dev_by"] == f"{server.url} (tiny)"
    shown = str(Run(tmp_path / "run", result))
    assert "how often the student is right is unknown" in shown
    assert "agreement with first labels" in shown
    assert "accuracy" not in shown
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "dev agreement with first labels" in page
    assert "dev accuracy" not in page


def test_a_recipe_without_labels_says_who_gives_some(server, tiny_recipe, texts, tmp_path):
    recipe = without_labels(tiny_recipe, "", texts, "")
    with pytest.raises(InputError, match="say who labels the first texts"):
        runs.look_ahead(recipe)
    with pytest.raises(InputError, match="is NLI, which is for texts without labels"):
        runs.look_ahead(replace(tiny_recipe, label=replace(tiny_recipe.label, zero_shot="NLI")))
    for wrong, said in (
        ({"train": "train.tsv"}, "data.train has labels of its own"),
        ({"labels": ("negative",)}, "two or more different names"),
        ({"unlabelled": ("auto",)}, "name the texts to label with data.unlabelled"),
        ({"task": "regression"}, "expected classification"),
    ):
        with pytest.raises(InputError, match=said):
            replace(recipe.data, **wrong)
    with pytest.raises(InputError, match=r"texts\.txt: every text is also in dev or test"):
        runs.run(without_labels(tiny_recipe, server.url, texts, texts), tmp_path / "run")
    server.distribution = lambda text, classes: [0.0, -9.0]
    with pytest.raises(InputError, match="none of 105 texts is called positive; say what"):
        runs.run(without_labels(tiny_recipe, server.url, texts, ""), tmp_path / "run")
