"""A run whose logits a service gives: nothing paid is lost, whatever is done again."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from distillkit import runs
from distillkit.data.logits import join_logits, read_store
from distillkit.errors import InputError
from distillkit.recipe import EndpointConfig
from distillkit.runs.asked import check_service


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
    for options, said in (
        ({"model": ""}, "no model is named"),
        ({"data": {"logits": "x.jsonl"}}, "drop one of the two"),
        ({"data": {"task": "regression"}}, "but data.task is regression"),
    ):
        with pytest.raises(InputError, match=said):
            check_service(asking(tiny_recipe, "http://there/v1", **options))
