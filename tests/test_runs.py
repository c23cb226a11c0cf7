"""`distillkit run`: done once, resumed after any kill, the same bytes each time."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit import pipeline, runs
from distillkit.api import Run
from distillkit.cli import COMMANDS, main
from distillkit.data.labels import LABEL_TYPES
from distillkit.data.tables import read_table
from distillkit.errors import InputError, Preempted
from distillkit.recipe import (
    AdaptConfig,
    ColumnsConfig,
    DataConfig,
    EmbeddingConfig,
    LoaderConfig,
    MaskingConfig,
    Recipe,
    StudentConfig,
    TextConfig,
    TrainingConfig,
    dump,
    load_recipe,
)
from distillkit.runs import Taught, stages, students
from distillkit.runs.given import logit_labels, refuse_wrong_order

STAGES = ["data", "teacher", "transfer", "logits", "student-gold", "student", "evaluation"]


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe


@pytest.fixture
def copied(finished_run, tmp_path):
    """A finished run that a test may change."""
    return Path(shutil.copytree(finished_run, tmp_path / "runs" / "copied"))


def _stamps(folder):
    return {
        stage: (folder / stage / "stage.json").stat().st_mtime_ns
        for stage in STAGES
        if (folder / stage / "stage.json").is_file()
    }


def test_result_holds_every_model_on_the_same_dev_rows(finished_run, dev_table):
    models = json.loads((finished_run / "result.json").read_text())["models"]
    assert list(models) == ["majority", "tfidf", "frozen", "student_gold", "student", "teacher"]
    assert {model["dev"]["rows"] for model in models.values()} == {len(dev_table)}
    assert models["teacher"]["dev"]["agreement"] == 1
    assert models["majority"]["dev"]["accuracy"] == pytest.approx(0.5)
    assert models["student"]["parameters"]["total"] < models["teacher"]["parameters"]["total"]
    assert set(json.loads((finished_run / "evaluation" / "latency.json").read_text())) == {
        "tfidf",
        "frozen",
        "student_gold",
        "student",
        "teacher",
    }


@pytest.mark.slow
def test_saved_recipe_repeats_the_run(recipe, finished_run, tmp_path):
    again = load_recipe(str(finished_run / "recipe.yaml"))
    assert again == recipe
    runs.run(again, tmp_path / "again")
    assert (tmp_path / "again" / "result.json").read_bytes() == (
        finished_run / "result.json"
    ).read_bytes()


def test_what_follows_from_the_rows_stands_in_the_runs_recipe_with_its_reason(
    recipe, copied, monkeypatch
):
    monkeypatch.setattr("distillkit.recipe.training.STUDENT_STEPS", 40)
    monkeypatch.setattr("distillkit.recipe.augment.VARIANTS", 2100)
    by_rows = replace(
        recipe,
        training=replace(recipe.training, epochs=-1),
        augment=replace(recipe.augment, n_iter=-1),
    )
    result = runs.run(by_rows, copied)
    saved = copied / "recipe.yaml"
    rows = result["transfer_set"]["rows"]
    steps = max(40, -(-3 * rows // 16))
    assert "# augment.n_iter: 22, from 96 training texts" in saved.read_text()
    assert f"# training.steps: {steps:,}, from {rows:,} rows" in saved.read_text()
    settled = load_recipe(str(saved))
    assert (settled.training.steps, settled.augment.n_iter) == (steps, 22)
    log = (copied / "student" / "model" / "training" / "log.jsonl").read_text().splitlines()
    assert max(json.loads(line)["step"] for line in log) == steps
    # The saved recipe is the same run: nothing is done again.
    assert _redone(settled, copied) == []
    assert _redone(by_rows, copied) == []


def _redone(recipe, folder):
    before = _stamps(folder)
    runs.run(recipe, folder)
    return [stage for stage, stamp in _stamps(folder).items() if stamp != before.get(stage)]


@pytest.mark.parametrize("place", ["teacher", "student/model"])
def test_a_flipped_bit_of_a_runs_weights_is_one_line(copied, place, capsys):
    weights = next((copied / place).rglob("model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-100] ^= 1
    weights.write_bytes(content)
    assert main(["evaluate", str(weights.parent), "embedded:reviews/dev"]) == 1
    said = r"model\.safetensors: cannot be read: its content does not fit its checksum; make it anew.*\n$"
    assert re.search(said, capsys.readouterr().err)


def test_second_run_redoes_nothing(recipe, copied):
    assert sorted(_stamps(copied)) == sorted(STAGES)
    assert _redone(recipe, copied) == []


@pytest.mark.parametrize(
    ("change", "redone"),
    [
        ({"loss": {"alpha": 0.5}}, ["student", "evaluation"]),
        (
            {"augment": {"n_iter": 2}},
            ["transfer", "logits", "student-gold", "student", "evaluation"],
        ),
        ({"evaluation": {"gold_epochs": 2}}, ["student-gold", "evaluation"]),
        ({"label": {"shard_rows": 60}}, ["logits", "student", "evaluation"]),
    ],
)
def test_a_changed_setting_redoes_only_what_depends_on_it(recipe, copied, change, redone, capsys):
    (section, values), *_ = change.items()
    changed = replace(recipe, **{section: replace(getattr(recipe, section), **values)})
    assert _redone(changed, copied) == redone
    said = capsys.readouterr().err
    assert f"{redone[0]}: done again, because its settings have changed\n" in said
    assert said.count(": done again, because ") == len(redone)
    assert ("logits: the teacher reads " in said) == ("logits" in redone)


@pytest.mark.parametrize(
    "change",
    [
        {"augment": {"memory_mb": 7}},
        {"training": {"checkpoint_steps": 3, "keep_checkpoints": 1}},
        {"training": {"loader": LoaderConfig(rows="host")}},
    ],
)
def test_what_changes_no_result_redoes_nothing(recipe, copied, change):
    ((section, values),) = change.items()
    changed = replace(recipe, **{section: replace(getattr(recipe, section), **values)})
    assert _redone(changed, copied) == []


def test_a_raised_version_redoes_the_stage_and_what_follows(recipe, copied, monkeypatch, capsys):
    monkeypatch.setattr(stages, "LABEL_VERSION", 2)
    assert _redone(recipe, copied) == ["logits", "student", "evaluation"]
    said = capsys.readouterr().err
    assert "logits: done again, because version 1 of this stage made it, and this is 2\n" in said
    assert "student: done again, because what it reads has changed: logits\n" in said


def test_a_stage_without_a_version_is_done_again(recipe, copied, capsys):
    stamp = copied / "student" / "stage.json"
    old = json.loads(stamp.read_text())
    stamp.write_text(json.dumps({"key": "0" * 64, "summary": old["summary"]}))
    assert _redone(recipe, copied) == ["student"]  # to the same result, so what follows holds
    assert "student: done again, because an earlier distillkit made it" in capsys.readouterr().err


def test_a_damaged_stamp_is_said_in_one_line(recipe, copied):
    (copied / "student" / "stage.json").write_text('{"key": "')
    with pytest.raises(
        InputError, match=r"student/stage\.json: cannot be read: .*; delete .*student"
    ):
        _redone(recipe, copied)


@pytest.mark.parametrize("lost", ["transfer/transfer.parquet", "student/model/model.safetensors"])
def test_a_stage_of_which_a_file_is_gone_is_done_again(recipe, copied, lost, capsys):
    content = (copied / lost).read_bytes()
    (copied / lost).unlink()
    stage, file = lost.split("/", 1)
    assert _redone(recipe, copied) == [stage]
    assert f"{stage}: done again, because {file} is gone\n" in capsys.readouterr().err
    assert (copied / lost).read_bytes() == content


def test_changed_data_redoes_what_reads_it(recipe, copied, tmp_path, write_tsv, train_table):
    same = replace(recipe.data, train=write_tsv(tmp_path / "same.tsv", train_table))
    assert _redone(replace(recipe, data=same), copied) == ["data"]
    text = tmp_path / "text.txt"
    text.write_text("the cast was fine indeed .\n")
    more = replace(recipe.data, unlabelled=(str(text),))
    redone = _redone(replace(recipe, data=more), copied)
    assert redone == [stage for stage in STAGES if stage != "teacher"]


def test_a_data_set_that_is_saved_again_is_another_source(tmp_path):
    def known(text):
        datasets.Dataset.from_dict({"text": [text]}).save_to_disk(tmp_path / "saved")
        return stages._fingerprints([f"datasets:{tmp_path / 'saved'}:train"])

    assert known("a") != known("b")
    assert stages._fingerprints(["datasets:nyu-mll/glue:sst2:train"]).endswith("sst2:train")


def test_another_training_set_trains_the_teacher_again(
    recipe, copied, tmp_path, write_tsv, train_table, monkeypatch
):
    monkeypatch.setattr(stages.pipeline, "train_teacher", _stop)
    less = replace(recipe.data, train=write_tsv(tmp_path / "less.tsv", train_table.slice(2)))
    with pytest.raises(Stopped):
        runs.run(replace(recipe, data=less), copied)


def test_a_transfer_set_out_of_proportion_is_refused_before_the_teacher_reads_it(recipe, copied):
    few = replace(recipe, label=replace(recipe.label, max_rows=100))
    with pytest.raises(
        InputError,
        match=r"has \d+ rows for the teacher to read, more than label\.max_rows, 100: give",
    ):
        runs.run(few, copied)
    assert _redone(replace(recipe, label=replace(recipe.label, max_rows=5000)), copied) == []


class Stopped(Exception):
    """Where a test needs no more of a run."""


def _stop(*_, **__):
    raise Stopped


def test_the_gold_student_takes_small_batches(recipe, tmp_path, monkeypatch):
    jobs = []

    def train(job):
        jobs.append(job)
        raise Stopped

    home = runs.RunFolder(tmp_path)
    task = Taught(
        recipe.data.columns, {"train": "", "dev": ""}, {"train": "", "dev": ""}, {}, {}, "", None
    )
    monkeypatch.setattr(students.pipeline, "train_student", train)
    for size in (16, 2048):
        wide = replace(recipe, training=replace(recipe.training, batch_size=size))
        with pytest.raises(Stopped):
            students.gold_student(wide, home, task, "")
        with pytest.raises(Stopped):
            students.distilled_student(wide, home, task, "")
    assert [job.training.batch_size for job in jobs] == [16, 16, 64, 2048]


@pytest.mark.slow
def test_a_run_killed_in_each_stage_ends_with_the_same_result(recipe, finished_run, tmp_path):
    folder = tmp_path / "runs" / "killed"
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    args = [
        sys.executable,
        "-m",
        "distillkit",
        "run",
        str(tmp_path / "recipe.yaml"),
        "--output",
        str(folder),
    ]
    for stage in STAGES:
        before = _stamps(folder)
        process = subprocess.Popen(
            args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        partial = folder / f".{stage}.partial"
        deadline = time.monotonic() + 120
        while not partial.is_dir() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert process.poll() is None, f"the run ended before its stage {stage} could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not (folder / "result.json").exists()
        assert {name: stamp for name, stamp in _stamps(folder).items() if name in before} == before
    before = _stamps(folder)
    assert subprocess.run(args, capture_output=True, check=False).returncode == 0
    assert {name: stamp for name, stamp in _stamps(folder).items() if name in before} == before
    assert (folder / "result.json").read_bytes() == (finished_run / "result.json").read_bytes()
    assert not list(folder.glob(".*.partial"))


@pytest.mark.slow
def test_a_run_told_to_end_while_the_student_learns_goes_on_from_there(recipe, tmp_path):
    recipe = replace(recipe, training=replace(recipe.training, epochs=15, checkpoint_steps=1))
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    runs.run(recipe, tmp_path / "runs" / "whole")
    args = [
        sys.executable,
        "-m",
        "distillkit",
        "run",
        str(tmp_path / "recipe.yaml"),
        "--output",
        str(tmp_path / "runs" / "told"),
    ]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    partial = tmp_path / "runs" / "told" / ".student.partial"
    deadline = time.monotonic() + 120
    while not list(partial.glob(".model.training/checkpoint-*")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.001)
    process.terminate()
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "student: interrupted, saved at step" in error.splitlines()[-1]
    (step,) = (
        int(path.name[-9:]) for path in sorted(partial.glob(".model.training/checkpoint-*"))[-1:]
    )
    assert step > 0
    again = subprocess.run(args, capture_output=True, text=True, check=False)
    assert again.returncode == 0
    # No terminal, so no bar: what is done, how long it took and how a training goes stands in
    # lines.
    done = [
        re.findall(r"^(\S+): done in 0:\d\d:\d\d \((\d) of 7\)$", said, re.MULTILINE)
        for said in (error, again.stderr)
    ]
    counted = [(name, str(number)) for number, name in enumerate(STAGES, 1)]
    assert done == [counted[:5], counted[5:]]
    assert re.search(r"^teacher: epoch 30: loss 0\.\d{4}, dev [01]\.\d{4}$", error, re.MULTILINE)
    assert re.search(r"^student: epoch 15: loss ", again.stderr, re.MULTILINE)
    result, whole = (tmp_path / "runs" / name / "result.json" for name in ("told", "whole"))
    assert result.read_bytes() == whole.read_bytes()
    assert not partial.exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_an_interrupted_training_ends_with_the_status_of_its_signal(
    monkeypatch, capsys, number, status
):
    def train(*_):
        raise Preempted("student: interrupted, saved at step 3", number)

    monkeypatch.setattr(COMMANDS["list"], "__call__", train)
    assert main(["list"]) == status
    assert capsys.readouterr().err.endswith("saved at step 3; the same command resumes\n")


def test_two_runs_in_one_folder_are_refused(recipe, tmp_path):
    with (
        runs.at_work(tmp_path / "busy"),
        pytest.raises(InputError, match=r"busy: process \d+ on .* is writing it"),
    ):
        runs.run(recipe, tmp_path / "busy")


def test_a_folder_that_no_run_made_is_never_replaced(recipe, tmp_path):
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "answers.csv").write_text("42")
    with pytest.raises(InputError, match="not a stage of a run, and would be replaced"):
        runs.run(recipe, tmp_path / "mine")
    assert (tmp_path / "mine" / "data" / "answers.csv").read_text() == "42"


def test_dev_and_test_text_reaches_neither_the_transfer_set_nor_the_vocabulary(
    recipe, tmp_path, write_tsv, dev_table
):
    odd = pa.table({"text": ["Zyzzyva is good ."], "label": ["positive"]})
    data = replace(
        recipe.data,
        dev=write_tsv(tmp_path / "dev.tsv", pa.concat_tables([dev_table, odd])),
        test=write_tsv(tmp_path / "test.tsv", dev_table),
    )
    runs.run(replace(recipe, data=data), tmp_path / "run")
    transfer = read_table(
        str(tmp_path / "run" / "transfer" / "transfer.parquet"), ColumnsConfig(), labels="optional"
    )
    added = transfer.filter(pa.compute.not_equal(transfer["origin"], "original"))
    held_out = {
        " ".join(text.lower().split())
        for text in [*dev_table["text"].to_pylist(), *odd["text"].to_pylist()]
    }
    assert not held_out & {" ".join(text.lower().split()) for text in added["text"].to_pylist()}
    vocabulary = json.loads(
        (tmp_path / "run" / "student" / "model" / "tokenizer.json").read_text()
    )["model"]["vocab"]
    assert "zyzzyva" not in vocabulary
    assert "good" in vocabulary


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--student transformer-fresh --student.hidden-size 200",
            "student.hidden_size is 200: expected a multiple of 64",
        ),
        ("--loss.teachers bert", "loss.teachers has bert, but a run has one, teacher"),
    ],
)
def test_what_the_student_cannot_be_is_said_before_its_teacher_is_trained(
    tiny_recipe, tmp_path, capsys, options, said
):
    (tmp_path / "mine.yaml").write_text(dump(tiny_recipe))
    command = [
        "run",
        str(tmp_path / "mine.yaml"),
        "--output",
        str(tmp_path / "run"),
        *options.split(),
    ]
    assert main(command) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run" / "teacher").exists()


def test_a_tagger_that_is_missing_is_missed_before_the_teacher_is_trained(
    tiny_recipe, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "jieba", None)
    rows = "".join(f"这部电影很{'好' if i % 2 else '差'}看第{i}次,{i % 2}\n" for i in range(60))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    data = DataConfig(train=str(tmp_path / "train.csv"))
    with pytest.raises(InputError, match=r"jieba: pip install 'distillkit\[zh\]'"):
        runs.run(replace(tiny_recipe, data=data), tmp_path / "run")
    assert not (tmp_path / "run" / "teacher").exists()


def test_given_logits_are_of_what_is_said_or_of_the_file_or_of_trains_labels(tiny_recipe, tmp_path):
    train = read_table(tiny_recipe.data.train, ColumnsConfig())
    plain = pa.table({"text": ["a"], "logits": [[1.0, 2.0]]})
    for name, labels in (("plain", "[]"), ("shard", '["positive", "negative"]')):
        known = plain.replace_schema_metadata({"distillkit.labels": labels})
        pq.write_table(known, tmp_path / f"{name}.parquet")

    def meant(name, *given):
        data = DataConfig(logits=str(tmp_path / f"{name}.parquet"), logit_labels=given)
        return logit_labels(replace(tiny_recipe, data=data), train)

    assert meant("plain") == ("negative", "positive")
    assert meant("shard") == ("positive", "negative")
    assert meant("plain", "a", "b") == ("a", "b")


MARKS = np.random.default_rng(0).random((60, 3)) < [0.5, 0.3, 0.1]


@pytest.mark.parametrize(
    ("task", "labels", "logits", "rather"),
    [
        ("classification", ["x", "y"] * 20, [[2, 0], [0, 2]] * 20, ""),
        ("classification", ["x", "y"] * 20, [[0, 2], [2, 0]] * 20, "y, x"),
        ("classification", ["x", "y", "y", "x"], [[2, 0], [0, 2], [2, 0], [2, 0]], ""),  # too few
        (
            "multi-label",
            [[name for name, on in zip("xyz", row, strict=True) if on] for row in MARKS],
            np.where(MARKS, 2, -2)[:, [1, 2, 0]].tolist(),
            "y, z, x",
        ),
        ("regression", [1.0, 2.0, 3.0], [[3], [1], [2]], ""),
        ("classification", [], [], ""),  # the logits are of other texts
    ],
)
def test_given_logits_in_another_order_than_is_said_are_refused(
    tmp_path, task, labels, logits, rather
):
    texts = [f"text {i}" for i in range(len(labels) or 2)]
    table = pa.table({"text": texts, "label": pa.array(labels or ["x", "y"], LABEL_TYPES[task])})
    own = table.select(["text"]) if labels else pa.table({"text": ["another"]})
    given = own.append_column("logits", [logits or [[2.0, 0.0]]])
    pq.write_table(given, tmp_path / "given.parquet")
    pq.write_table(own, tmp_path / "own.parquet")
    names = ["x", "y", "z"][: len(logits[0])] if labels else ["x", "y"]
    pipeline.label(
        str(tmp_path / "own.parquet"),
        tmp_path / "store",
        logits=str(tmp_path / "given.parquet"),
        labels=["score"] if task == "regression" else names,
        task=task,
    )
    recipe = Recipe(data=DataConfig(task=task, logits="given.parquet"))
    said = pytest.raises(InputError, match=f"rather of {rather}; name their labels")
    with said if rather else nullcontext():
        refuse_wrong_order(recipe, table, tmp_path / "store")


def test_pairs_run_from_end_to_end(recipe, train_table, tmp_path):
    path = tmp_path / "pairs.jsonl"
    # The second text alone decides: what is shown is that every stage takes pairs.
    pairs = [
        {"text": "this score is dull .", "text_pair": row["text"], "label": row["label"]}
        for row in train_table.to_pylist()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in pairs))
    data = DataConfig(
        train=str(path), dev_fraction=0.2, columns=ColumnsConfig(text_pair="text_pair")
    )
    student, training = (
        replace(recipe.student, kind="siamese-bilstm"),
        replace(recipe.training, epochs=10),
    )
    result = runs.run(
        replace(recipe, data=data, student=student, training=training), tmp_path / "pairs"
    )
    assert result["data"]["rows"]["dev"] + result["data"]["rows"]["train"] == len(pairs)
    assert result["transfer_set"]["original"] == result["data"]["rows"]["train"]
    assert result["models"]["student"]["dev"]["accuracy"] > 0.9
    advice = repr(Run(tmp_path / "pairs", result)).splitlines()[-1]
    assert advice.startswith(r"next: printf 'a text\tanother\n' | distillkit predict ")


@pytest.mark.slow
def test_a_teacher_adapts_to_text_before_it_is_fine_tuned(recipe, tmp_path, train_table):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in train_table["text"].to_pylist()))
    thesaurus = tmp_path / "thesaurus.tsv"
    thesaurus.write_text("good\tgreat\n")
    adapt = AdaptConfig(
        text=TextConfig(
            sources=(str(text),), rows="sentences", max_tokens=16, held_out_fraction=0.2
        ),
        masking=MaskingConfig(strategy="macbert", similar=str(thesaurus)),
        training=TrainingConfig(epochs=2, batch_size=16, learning_rate=3e-3, precision="fp32"),
    )
    folder = tmp_path / "runs" / "adapted"
    result = runs.run(replace(recipe, adapt=adapt), folder)
    held_out = result["adapted"]["held_out"]
    assert held_out["after"]["mlm_loss"] < held_out["before"]["mlm_loss"]
    assert load_recipe(str(folder / "recipe.yaml")).adapt == adapt
    before = _stamps(folder)
    assert runs.run(replace(recipe, adapt=adapt), folder) == result
    assert _stamps(folder) == before
    for path, more in ((text, "and one line more\n"), (thesaurus, "bad\tdull\n")):
        path.write_text(path.read_text() + more)
        before = _stamps(folder)
        runs.run(replace(recipe, adapt=adapt), folder)
        assert {stage for stage, stamp in _stamps(folder).items() if stamp != before[stage]} >= {
            "teacher"
        }


def test_a_transfer_set_is_made_anew_when_the_users_own_tagger_has_changed(
    recipe, copied, tmp_path, monkeypatch
):
    def stop(*_: object, **__: object) -> None:
        raise InputError("far enough")

    monkeypatch.setattr("distillkit.pipeline.label", stop)
    monkeypatch.syspath_prepend(tmp_path)
    recipe = replace(recipe, augment=replace(recipe.augment, tagger="stage_tags:tag"))
    made = []
    for tag in "XXY":
        (tmp_path / "stage_tags.py").write_text(
            f"def tag(texts):\n    return [[(word, '{tag}') for word in text.split()] for text in texts]\n"
        )
        with pytest.raises(InputError, match="far enough"):
            runs.run(recipe, copied)
        made.append(_stamps(copied)["transfer"])
    assert made[0] == made[1] != made[2]


def test_scratch_is_no_checkpoint_without_text_to_learn_from(recipe, tmp_path):
    with pytest.raises(InputError, match=r"scratch is no checkpoint: .*adapt\.text\.sources"):
        runs.run(
            replace(recipe, teacher=replace(recipe.teacher, model="scratch")),
            tmp_path / "runs" / "scratch",
        )


def test_word_vectors_wider_than_the_teachers_are_refused_before_any_work(recipe, tmp_path):
    student = replace(recipe.student, embeddings=EmbeddingConfig(dimension=700))
    for model, adapt, most in (
        (recipe.teacher.model, AdaptConfig(), "16"),
        ("scratch", AdaptConfig(text=TextConfig(sources=("text.txt",))), "256"),
    ):
        folder, teacher = tmp_path / "runs" / most, replace(recipe.teacher, model=model)
        with pytest.raises(
            InputError,
            match=rf"embeddings\.dimension is 700: expected at most {most}, the encoder's",
        ):
            runs.run(replace(recipe, student=student, teacher=teacher, adapt=adapt), folder)
        assert not (folder / "data").exists()


def test_a_transformer_that_its_teacher_cannot_give_is_refused_before_any_work(recipe, tmp_path):
    student, folder = StudentConfig(kind="transformer", hidden_size=0, layers=9), tmp_path / "runs"
    with pytest.raises(
        InputError, match=r"student\.layers is 9: expected at most \d, which the tea"
    ):
        runs.run(replace(recipe, student=student), folder / "many")
    assert not (folder / "many" / "data").exists()


def test_dev_and_test_rows_that_training_has_are_counted(recipe, tmp_path, monkeypatch, capsys):
    rows = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(40)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"text": f"TEXT  {i}", "label": "ab"[i % 2]} for i in range(37, 45)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = DataConfig(train=str(tmp_path / "train.jsonl"), dev=str(tmp_path / "dev.jsonl"))

    def stop(*_: object, **__: object) -> None:
        raise InputError("far enough")

    monkeypatch.setattr("distillkit.pipeline.train_teacher", stop)
    with pytest.raises(InputError, match="far enough"):
        runs.run(replace(recipe, data=data), tmp_path / "run")
    assert "data: 3 of 8 dev rows are also in train: the dev scores" in capsys.readouterr().err
