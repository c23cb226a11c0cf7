"""`distillkit ladder`: which rows there are, what each learns from, and that it grows."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit.cli import main
from distillkit.data.logits import stored_keys
from distillkit.data.tables import mask_of, read_table
from distillkit.errors import InputError
from distillkit.ladder import ladder
from distillkit.ladder import run as module
from distillkit.ladder.plan import ablations_of, pace, repeated, transfer_variants, weighted_steps
from distillkit.recipe import (
    SCORES,
    AugmentConfig,
    ColumnsConfig,
    DataConfig,
    EvaluationConfig,
    MixConfig,
    Recipe,
    TrainingConfig,
    dump,
)

STUDENTS = ["gold", "hard", "originals", "no-mask", "no-pos", "no-ngram", "full", "in-domain"]
ABLATIONS = ["majority", "tfidf", "frozen", *STUDENTS, "teacher"]


@pytest.fixture(scope="module")
def recipe(tiny_recipe, tmp_path_factory, write_tsv, train_table, dev_table):
    """The tiny recipe with a test split, unlabelled text and one epoch; its teacher is the same."""
    folder = tmp_path_factory.mktemp("data")
    texts = [f"{text[:-1]}indeed ." for text in train_table["text"].to_pylist()[:40]]
    (folder / "more.txt").write_text("".join(f"{text}\n" for text in texts))
    return replace(
        tiny_recipe,
        data=replace(
            tiny_recipe.data,
            test=write_tsv(folder / "test.tsv", dev_table.slice(24)),
            unlabelled=(str(folder / "more.txt"),),
        ),
        augment=AugmentConfig(n_iter=2, tagger="none"),
        training=replace(tiny_recipe.training, epochs=1),
        evaluation=EvaluationConfig(gold_epochs=2, latency_sentences=0),
    )


@pytest.fixture(scope="module")
def climbed(recipe, finished_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    shutil.copytree(finished_run / "teacher", folder / "teacher")
    return folder, ladder(recipe, folder, seeds=2)


@pytest.fixture
def taught(climbed, tmp_path):
    """A folder with data and teacher, where the ladder is still to be climbed."""
    for stage in ("data", "teacher"):
        shutil.copytree(climbed[0] / stage, tmp_path / "run" / stage)
    return tmp_path / "run"


def _stamps(folder):
    return {
        path.parent.name: path.stat().st_mtime_ns
        for path in (folder / "ladder").glob("*/stage.json")
    }


def _transfer(folder, name):
    return pq.read_table(folder / "ladder" / f"transfer-{name}" / "transfer.parquet")


@pytest.mark.slow
def test_every_row_is_measured_on_dev_and_test(climbed, recipe):
    _, result = climbed
    assert list(result["ablations"]) == ablations_of(recipe) == ABLATIONS
    for name, row in result["ablations"].items():
        assert row["seeds"] == ([1, 2] if name in STUDENTS else [])
        for split in ("dev", "test"):
            scores = row[split]
            assert scores["rows"] == {"dev": 48, "test": 24}[split]
            assert (scores["accuracy_sd"] is None) == (name not in STUDENTS)
            assert ("difference" in scores) == (name != "gold")
    assert result["ablations"]["teacher"]["dev"]["agreement"] == 1
    assert result["ablations"]["majority"]["dev"]["accuracy"] == pytest.approx(0.5)
    costs = {name: row["cost"] for name, row in result["ablations"].items()}
    assert costs["teacher"]["parameters"] > costs["full"]["parameters"]
    taught = {name for name, cost in costs.items() if "unexplained_dev" in cost}
    assert taught == set(STUDENTS) - {"gold"}
    assert 0 < costs["full"]["unexplained_variants"] < costs["originals"]["unexplained_variants"]


@pytest.mark.slow
def test_figures_are_those_of_the_cells_logits(climbed):
    folder, result = climbed
    gold = read_table(str(folder / "data" / "test.parquet"), ColumnsConfig())["label"].to_pylist()
    ids = np.array([["negative", "positive"].index(label) for label in gold])
    logits = {
        s: np.load(folder / "ladder" / f"full-seed-{s}" / "test.npy", allow_pickle=False)
        for s in (1, 2)
    }
    found = {str(seed): float((z.argmax(1) == ids).mean()) for seed, z in logits.items()}
    scores = result["ablations"]["full"]["test"]
    assert scores["accuracy_by_seed"] == found
    assert scores["accuracy"] == pytest.approx(np.mean(list(found.values())))
    assert (logits[1] != logits[2]).any()


@pytest.mark.slow
def test_a_removed_rule_has_no_row_in_its_transfer_set(climbed):
    folder, _ = climbed
    rules = {
        name: set("+".join(_transfer(folder, name)["rules"].to_pylist()).split("+")) - {""}
        for name in ("full", "no-mask", "no-pos", "no-ngram")
    }
    assert rules == {
        "full": {"mask", "pos", "ngram"},
        "no-mask": {"pos", "ngram"},
        "no-pos": {"mask", "ngram"},
        "no-ngram": {"mask", "pos"},
    }
    assert "unlabelled" not in _transfer(folder, "full")["origin"].to_pylist()
    assert _transfer(folder, "in-domain")["origin"].to_pylist().count("unlabelled") == 40


@pytest.mark.slow
def test_every_student_takes_about_the_same_number_of_steps(climbed):
    _, result = climbed
    costs = {name: result["ablations"][name]["cost"] for name in STUDENTS}
    own = -(-costs["in-domain"]["rows"] // 16)
    for name, cost in costs.items():
        assert own <= cost["steps"] <= own + cost["epochs"], name
    assert costs["gold"]["rows"] == costs["originals"]["rows"] == 96
    assert costs["gold"]["epochs"] == 2
    assert costs["in-domain"]["epochs"] == 1
    assert len({cost["parameters"] for name, cost in costs.items() if name != "in-domain"}) == 1


@pytest.mark.slow
def test_one_store_holds_every_row_once(climbed):
    folder, _ = climbed
    texts = set()
    for name in ("full", "no-mask", "no-pos", "no-ngram", "in-domain"):
        texts |= set(_transfer(folder, name)["text"].to_pylist())
    assert len(stored_keys(folder / "ladder" / "logits" / "store" / "teacher")) == len(texts)


@pytest.mark.slow
def test_reports_are_written_and_nothing_else_is_left(climbed):
    folder, result = climbed
    home = folder / "ladder"
    assert json.loads((home / "ladder.json").read_text()) == result
    report = (home / "ladder.md").read_text()
    assert "| student, gold labels " in report
    assert " missed: variants " in report
    files = {path.name for path in (home / "full-seed-1").iterdir()}
    assert files == {"stage.json", "dev.npy", "test.npy"}
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
    assert "student, gold labels" in (home / "ladder.svg").read_text()


@pytest.mark.slow
def test_a_ladder_grows_and_redoes_nothing(recipe, climbed, taught):
    _, whole = climbed
    part = ladder(recipe, taught, ablations=["gold", "full"], seeds=1)
    assert list(part["ablations"]) == ["gold", "full", "teacher"]
    before = _stamps(taught)
    grown = ladder(recipe, taught, ablations=["gold"], seeds=2)
    after = _stamps(taught)
    assert set(after) - set(before) == {"gold-seed-2"}
    assert {name: after[name] for name in before} == before
    assert (grown["ablations"]["gold"]["seeds"], grown["ablations"]["full"]["seeds"]) == (
        [1, 2],
        [1],
    )
    # What was trained alone is what was trained among others.
    assert grown["ablations"]["gold"] == whole["ablations"]["gold"]
    assert (
        part["ablations"]["full"]["dev"]["accuracy"]
        == whole["ablations"]["full"]["dev"]["accuracy_by_seed"]["1"]
    )


@pytest.mark.slow
def test_a_changed_recipe_redoes_only_what_it_changes(recipe, taught):
    ladder(recipe, taught, ablations=["majority", "gold", "hard", "full"], seeds=1)
    before = _stamps(taught)
    changed = replace(recipe, loss=replace(recipe.loss, kind="soft"))
    assert list(ladder(changed, taught, ablations=["majority"], seeds=1)["ablations"]) == [
        "majority",
        "gold",
        "hard",
        "teacher",
    ]
    assert _stamps(taught) == before
    ladder(changed, taught, ablations=["full"], seeds=1)
    assert [name for name, stamp in _stamps(taught).items() if stamp != before[name]] == [
        "full-seed-1"
    ]


@pytest.mark.slow
def test_a_run_and_its_ladder_share_data_teacher_and_logits(
    tiny_recipe, finished_run, tmp_path, monkeypatch
):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/stage.json")}
    labelled, label = [], module.pipeline.label

    def watched(*args, **named):
        labelled.append(label(*args, **named)["labelled_now"])

    monkeypatch.setattr(module.pipeline, "label", watched)
    ladder(tiny_recipe, folder, ablations=["full"], seeds=1)
    assert labelled == [0]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (folder / "recipe.yaml").read_bytes() == (finished_run / "recipe.yaml").read_bytes()


@pytest.mark.slow
def test_a_killed_ladder_goes_on(recipe, climbed, taught, tmp_path):
    _, whole = climbed
    taught.rename(tmp_path / "killed")
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    args = [sys.executable, "-m", "distillkit", "ladder", str(tmp_path / "recipe.yaml")]
    args += ["--output", str(tmp_path / "killed"), "--seeds", "2"]
    args += ["--ablations", "gold", "full"]
    home = tmp_path / "killed" / "ladder"
    process = subprocess.Popen(
        args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not (home / ".full-seed-1.partial").is_dir():
        assert process.poll() is None
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = _stamps(tmp_path / "killed")
    assert {"gold-seed-1", "gold-seed-2"} <= set(before)
    assert "full-seed-1" not in before
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after = _stamps(tmp_path / "killed")
    assert {name: after[name] for name in before} == before
    line = json.loads(done.stdout)
    assert line["output"] == str(home)
    for name in ("gold", "full"):
        assert (
            line["ablations"][name]["dev"]["accuracy"]
            == whole["ablations"][name]["dev"]["accuracy"]
        )
    assert "| student, gold labels " in done.stderr


@pytest.mark.slow
def test_each_student_is_shown_what_its_row_says(recipe, taught, monkeypatch):
    shown, patience, words = {}, {}, {}
    train_student = module.pipeline.train_student

    def watched(job):
        shown[job.progress] = (pq.read_table(job.transfer_set), job.loss, job.logits)
        patience[job.training.epochs] = job.training.patience
        words[job.progress.removesuffix("-seed-1")] = Path(job.vocabulary_from).parent.name
        return train_student(job)

    monkeypatch.setattr(module.pipeline, "train_student", watched)
    recipe = replace(
        recipe,
        loss=replace(recipe.loss, kind="soft", alpha=0.25),
        training=replace(recipe.training, patience=1),
    )
    ladder(recipe, taught, ["gold", "hard", "originals", "full", "no-ngram", "in-domain"], 1)
    assert words.pop("in-domain") == "transfer-in-domain"
    assert set(words.values()) == {"transfer-full"}
    shown = {name: shown[f"{name}-seed-1"] for name in ("gold", "hard", "originals", "full")}
    tables = {name: table for name, (table, _, _) in shown.items()}
    labelled = {name: set(table["label"].to_pylist()) for name, table in tables.items()}
    assert labelled == {
        "gold": {"negative", "positive"},
        "hard": {None},  # so that the loss takes the teacher's
        "originals": {"negative", "positive"},
        "full": {"negative", "positive", None},
    }
    assert set(tables["hard"]["text"].to_pylist()) == set(tables["full"]["text"].to_pylist())
    assert set(tables["originals"]["text"].to_pylist()) == set(tables["gold"]["text"].to_pylist())
    assert mask_of(tables["full"]) == mask_of(tables["hard"]) == "[MASK]"
    assert [loss.alpha for _, loss, _ in shown.values()] == [1, 1, 0.25, 0.25]
    assert [logits is None for _, _, logits in shown.values()] == [True, False, False, False]
    assert patience == {1: 1, 2: 2}  # as many steps, whatever an epoch is


def test_repeated_rows_come_equally_often_and_keep_the_mask_word(vast_table):
    table = pa.table({"text": list("abcde")}).replace_schema_metadata(
        {b"distillkit.mask": b"[MASK]"}
    )
    found = repeated(table, 12, seed=3)
    counts = {text: found["text"].to_pylist().count(text) for text in "abcde"}
    assert sorted(counts.values()) == [2, 2, 2, 3, 3]
    assert mask_of(found) == "[MASK]"
    assert repeated(table, 5, seed=3)["text"].to_pylist() == list("abcde")
    assert len(repeated(vast_table, 36, seed=3)) == 36
    sample = repeated(table, 3, seed=3)["text"].to_pylist()
    assert len(set(sample)) == 3


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (1000, (3, 1000)),  # the recipe's own
        (500, (6, 500)),
        (100, (10, 300)),  # 30 passes in as many epochs as gold_epochs allows
        (800, (3, 1000)),  # 3.75 passes: some rows come twice, and none is left out
        (2000, (3, 1000)),  # a sample
    ],
)
def test_pace_spreads_the_recipes_steps_over_any_number_of_rows(rows, expected):
    recipe = Recipe(training=TrainingConfig(epochs=3), evaluation=EvaluationConfig(gold_epochs=10))
    assert pace(recipe, 1000, rows) == expected


def test_steps_of_weighted_rows_are_those_of_the_recipes_own_student():
    weights = ("original=3", "augmented=0.5", "mask=2")
    training = TrainingConfig(epochs=3, batch_size=100, sampling_weights=weights)
    assert weighted_steps(Recipe(training=training), 11_000, 8_049.6) == 3 * 81
    assert weighted_steps(Recipe(training=replace(training, steps=7)), 11_000, 8_049.6) == 7


@pytest.mark.parametrize(
    ("augment", "expected"),
    [
        ({}, "originals no-mask no-pos no-ngram full"),
        ({"n_iter": 0}, "full"),
        ({"p_mask": 0.0}, "originals no-pos no-ngram full"),
        ({"p_mask": 0.0, "p_pos": 0.0}, "originals full"),
        (
            {"mix": MixConfig(neighbours=0.5), "p_pos": 0.0, "p_ng": 0.0},
            "originals no-rules no-neighbours full",
        ),
        ({"mix": MixConfig(rules=0.0, neighbours=1.0)}, "originals full"),
    ],
)
def test_only_rows_that_differ_are_on_the_ladder(augment, expected):
    found = ablations_of(Recipe(data=DataConfig(), augment=AugmentConfig(**augment)))
    assert found == ["majority", "tfidf", "frozen", "gold", "hard", *expected.split(), "teacher"]


def test_the_teachers_hard_answers_are_no_row_where_they_are_its_scores():
    ladders = {task: ablations_of(Recipe(data=DataConfig(task=task))) for task in SCORES}
    assert ladders["multi-label"] == ladders["classification"]
    assert ladders["regression"] == [name for name in ladders["classification"] if name != "hard"]


def test_without_unlabelled_text_nothing_is_cut_from_it():
    data = DataConfig(unlabelled=("more.txt",))
    mixed = AugmentConfig(mix=MixConfig(rules=0.5, sentences=0.5), vary_unlabelled=True)
    variants = transfer_variants(Recipe(data=data, augment=mixed))
    assert variants["full"].mix == MixConfig(rules=0.5)
    assert not variants["full"].vary_unlabelled
    assert variants["in-domain"] == mixed
    alone = AugmentConfig(mix=MixConfig(rules=0.0, sentences=1.0))
    variants = transfer_variants(Recipe(data=data, augment=alone))
    assert (list(variants), variants["full"].n_iter) == (["full", "in-domain"], 0)


def test_swapped_pairs_are_a_row_of_pair_tasks():
    data = DataConfig(columns=ColumnsConfig(text_pair="b"))
    variants = transfer_variants(Recipe(data=data, augment=AugmentConfig(swap=True)))
    assert (variants["full"].swap, variants["no-swap"].swap) == (True, False)


@pytest.mark.parametrize(
    ("change", "named", "said"),
    [
        (
            {},
            {"ablations": ["no-neighbours"]},
            "--ablations no-neighbours: this recipe's ladder has",
        ),
        ({}, {"seeds": 0}, "--seeds is 0"),
        ({"training": TrainingConfig(epochs=0)}, {}, "training.epochs is 0"),
    ],
)
def test_mistakes_are_said_before_anything_is_done(tiny_recipe, tmp_path, change, named, said):
    with pytest.raises(InputError, match=said):
        ladder(replace(tiny_recipe, **change), tmp_path / "run", **named)
    assert not (tmp_path / "run").exists()


def test_the_old_name_of_ablations_works_with_a_line(tmp_path, capsys):
    home = str(tmp_path / "runs" / "quickstart")
    args = ["ladder", "quickstart", "--output", home, "--rungs", "none"]
    assert main(args) == 1
    said = capsys.readouterr().err
    assert "--rungs is now --ablations" in said
    assert "--ablations none: this recipe's ladder has" in said
