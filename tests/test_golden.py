"""What earlier versions wrote still opens, and answers as it did then."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import distillkit  # noqa: F401  (registers the students)
from distillkit.cli import main
from distillkit.recipe import MixConfig, load_recipe
from distillkit.runtime import Predictor

HERE = Path(__file__).parent / "golden" / "0.1"
ANSWERS = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
BUNDLES = [name for name in ANSWERS["logits"] if "bundle" in name]
FOLDERS = [name for name in ANSWERS["logits"] if name not in BUNDLES]


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of everything, as the folder where commands are started."""
    shutil.copytree(HERE, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


@pytest.mark.parametrize("name", FOLDERS)
def test_a_checkpoint_answers_as_it_did(name):
    texts = [ANSWERS["texts"]] + ([ANSWERS["text_pairs"]] if "siamese" in name else [])
    model = AutoModelForSequenceClassification.from_pretrained(HERE / name).eval()
    tokenizer = AutoTokenizer.from_pretrained(HERE / name)
    with torch.inference_mode():
        found = model(**tokenizer(*texts, padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(found, ANSWERS["logits"][name], atol=1e-4)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_answers_as_it_did(name):
    found = Predictor(HERE / name).logits(ANSWERS["texts"])
    np.testing.assert_allclose(found, ANSWERS["logits"][name], atol=1e-4)


def test_a_logit_store_grows_by_nothing(old, capsys):
    command = ["label", "run/transfer/transfer.parquet", "run/logits/store"]
    assert main([*command, "--teacher", "run/teacher/model", "--label.precision", "fp32"]) == 0
    assert json.loads(capsys.readouterr().out)["labelled_now"] == 0


def test_a_killed_training_goes_on(old):
    shutil.move("interrupted.training", ".interrupted.training")
    settings = json.loads((HERE / "interrupted.training" / "command.json").read_text())
    assert main([*settings, "--output", "interrupted"]) == 0
    log = Path("interrupted/training/log.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(log[0])["written_by"] == "0.1"  # kept, so the training did not start over
    model = AutoModelForSequenceClassification.from_pretrained("interrupted").eval()
    tokenizer = AutoTokenizer.from_pretrained("interrupted")
    with torch.inference_mode():
        found = model(**tokenizer(ANSWERS["texts"], padding=True, return_tensors="pt")).logits
    np.testing.assert_allclose(found, ANSWERS["logits"]["whole"], atol=1e-3)


def test_a_recipe_means_what_it_meant():
    recipe, saved = (load_recipe(str(HERE / name)) for name in ("recipe.yaml", "run/recipe.yaml"))
    # What a run has saved means the same for ever; what a recipe leaves out follows the defaults.
    assert (saved.data.unlabelled, saved.augment.mix) == ((), MixConfig())
    data, augment = (
        replace(recipe.data, unlabelled=()),
        replace(recipe.augment, mix=MixConfig()),
    )
    assert replace(recipe, data=data, augment=augment) == saved
    assert (recipe.student.kind, recipe.student.hidden_size) == ("bilstm", 8)
    assert recipe.teacher.training.epochs == 20


@pytest.mark.slow
def test_a_run_is_pushed_and_run_again(old, capsys):
    assert main(["push", "run", "OWNER/NAME", "--to", "pushed"]) == 0
    assert "model-index" in (old / "pushed" / "README.md").read_text(encoding="utf-8")
    before = json.loads((old / "run" / "result.json").read_text(encoding="utf-8"))
    capsys.readouterr()
    again = ["run", "recipe.yaml", "--output", "run", "--ship.form", "none"]
    again += ["--data.unlabelled"]  # whether WordNet is installed or not
    assert main(again) == 1  # a student of so few rows learns nothing, and that is said
    assert "run: the student has collapsed" in capsys.readouterr().err
    after = json.loads((old / "run" / "result.json").read_text(encoding="utf-8"))
    for split, found in before["models"]["majority"].items():  # later versions measure more
        assert found.items() <= after["models"]["majority"][split].items()
    assert set(after["models"]) == {*before["models"], "frozen"}
