"""Augmentation methods: what each declares, and another's, declared in this file alone."""

import subprocess
import sys
from dataclasses import fields, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tyro
from test_extension import METHOD

from distillkit.augment import layout
from distillkit.augment.method import Method
from distillkit.augment.methods import METHODS, methods_of
from distillkit.data.tables import write_table
from distillkit.errors import InputError
from distillkit.pipeline import augment
from distillkit.recipe import AugmentConfig, MixConfig, Recipe, dump, load_recipe


def doubled(job):
    yield pa.table({"text": [f"{text} {text}" for text in job.sample[: job.wanted]]})


@pytest.fixture
def others(monkeypatch):
    """Two methods that are not distillkit's own."""
    double = Method("double", "Texts twice.", rows=doubled, origin="generated")
    for method in (METHOD, double):
        monkeypatch.setitem(METHODS, method.name, method)


def mix_of(folder, mix):
    (folder / "r.yaml").write_text(f"augment: {{mix: {mix}}}")
    return load_recipe(str(folder / "r.yaml")).augment.mix


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_another_s_methods_take_part_by_the_weights_of_a_recipe(
    others, tmp_path, train_table, workers, monkeypatch
):
    monkeypatch.setattr(layout, "BLOCK_ROWS", 48)  # two blocks
    write_table(train_table, tmp_path / "train.parquet")
    mix = mix_of(tmp_path, "{rules: 1, shout: 1, double: 1}")
    config = AugmentConfig(tagger="none", n_iter=4, mix=mix)
    source, target = str(tmp_path / "train.parquet"), tmp_path / "t.parquet"
    report = augment(source, target, config, workers=workers)
    rows = pq.read_table(target).to_pylist()
    originals = [row["text"] for row in rows if row["origin"] == "original"]
    assert originals == train_table["text"].to_pylist()
    loud = {row["text"] for row in rows if row["rules"] == "other"}
    assert loud == {text.upper() for text in originals} & loud
    assert 40 < len(loud) <= 96  # of 96 texts, a third of 4 variants each, equal ones once
    assert report["rules"]["mask"]
    twice = [row["text"] for row in rows if row["origin"] == "generated"]
    assert twice == [f"{text} {text}" for text in originals[:48]]


def test_a_mix_with_another_s_method_is_saved_and_read_again(others, tmp_path):
    mix = mix_of(tmp_path, "{rules: 0, shout: 2}")
    assert mix == replace(MixConfig().with_methods(["shout"]), rules=0.0, shout=2.0)
    recipe = Recipe(augment=AugmentConfig(mix=mix))
    (tmp_path / "saved.yaml").write_text(dump(recipe))
    assert load_recipe(str(tmp_path / "saved.yaml")) == recipe
    assert tyro.cli(AugmentConfig, default=recipe.augment, args=["--mix.shout", "3"]).mix.shout == 3


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (
            "{shuot: 1}",
            "r.yaml:1: unknown key 'augment.mix.shuot'; did you mean 'augment.mix.shout'",
        ),
        (
            "{whisper: 1}",
            "'augment.mix.whisper'; known here: rules, .*generated, markov, pairs, self_pairs, shout, double",
        ),
        ("{shout: -1}", "r.yaml:1: augment.mix.shout is -1.0: expected at least 0"),
    ],
)
def test_a_weight_of_the_recipe_without_a_method_is_refused(others, tmp_path, mix, message):
    with pytest.raises(InputError, match=message):
        mix_of(tmp_path, mix)


def test_a_weight_given_in_python_without_a_method_is_refused():
    mix = replace(MixConfig().with_methods(["shout"]), shout=1.0)
    with pytest.raises(InputError, match=r"augment.mix.shout: no such augmentation method; there "):
        methods_of(AugmentConfig(mix=mix))


def test_every_weight_of_the_recipe_has_its_method_and_file():
    assert [field.name for field in fields(MixConfig)] == list(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert method.sentence.endswith(".")
        assert (method.variation is None) != (method.rows is None)
        assert method.rows is None or method.origin in ("unlabelled", "generated")


def test_declaring_methods_loads_no_torch():
    code = "import sys, distillkit.augment.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
