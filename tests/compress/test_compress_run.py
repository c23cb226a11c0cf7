"""`distillkit compress`: as small as asked, answers as they were, or a line that says why not."""

import contextlib
import copy
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from distillkit import pipeline
from distillkit.cli import main
from distillkit.compress.run import _Steps, compress
from distillkit.compress.steps import Model
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.pipeline.answers import Classifier
from distillkit.recipe import (
    ColumnsConfig,
    CompressConfig,
    CompressJob,
    EmbeddingConfig,
    LabelConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
    load_config,
)
from distillkit.runtime import Predictor
from distillkit.teacher.checkpoint import load_classifier

PAIRS = ColumnsConfig(text_pair="text_pair")
TRAINING = TrainingConfig(epochs=6, batch_size=16, learning_rate=2e-2, precision="fp32")


def written(folder, name, table):
    """Write a table as TSV."""
    names = table.column_names
    lines = ["\t".join(row[column] for column in names) for row in table.to_pylist()]
    (folder / name).write_text("\n".join(["\t".join(names), *lines]) + "\n")
    return str(folder / name)


@pytest.fixture(scope="module")
def work(tmp_path_factory, train_table, dev_table, classifier_folder):
    """A student right on nearly all of dev, its teacher's logits, and what both were made of."""
    folder = tmp_path_factory.mktemp("compress")
    train, dev = written(folder, "train.tsv", train_table), written(folder, "dev.tsv", dev_table)
    transfer, logits = str(folder / "transfer.parquet"), folder / "logits"
    pipeline.augment(train, folder / "transfer.parquet")
    pipeline.label(transfer, logits, classifier_folder, LabelConfig(precision="fp32"))
    vectors = EmbeddingConfig(source="random", dimension=48)
    student = StudentConfig(hidden_size=64, head_size=16, embeddings=vectors)
    pipeline.train_student(
        pipeline.StudentJob(
            transfer, dev, folder / "student", student, logits=logits, training=TRAINING
        )
    )
    return folder


def command(work, output, asked, taught=True, model=None, dev=None):
    """Return the arguments of a `compress` of the student, or of another model."""
    found = ["compress", model or work / "student", output, "--dev", dev or work / "dev.tsv"]
    if taught:
        found += ["--transfer-set", work / "transfer.parquet", "--logits", work / "logits"]
    training = "--training.epochs 4 --training.batch-size 16 --training.learning-rate 1e-2"
    more = f"{training} --training.precision fp32 {asked}".split()
    return [str(part) for part in (*found, *more)]


def steps_of(capsys):
    # deepspeed, which transformers loads where it is installed, may print a line before.
    return json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]


def accuracy(model, dev):
    return pipeline.evaluate(str(model), str(dev))["accuracy"]


@pytest.mark.slow
def test_each_step_is_measured_and_what_is_left_answers_so(work, tmp_path, capsys):
    output = tmp_path / "small"
    asked = """--compress.embedding-size 8 --compress.units 0.5 --compress.embeddings int4 --compress.weights int8"""
    assert main(command(work, output, asked)) == 0
    out, err = capsys.readouterr()
    steps = json.loads(out)["steps"]
    assert [step["step"] for step in steps] == [
        "as it was",
        "embedding dimension 8",
        "50 % of units gone",
        "embeddings int4, weights int8",
        "trained again",
    ]
    assert "| trained again" in err
    assert json.loads((output / "compress.json").read_text())["steps"] == steps
    last = steps[-1]
    assert last["accuracy"] == accuracy(output / "model", work / "dev.tsv") >= 0.9
    assert last["megabytes"] == (output / "bundle.zip").stat().st_size / 1e6 < steps[0]["megabytes"]
    assert last["parameters"] < steps[0]["parameters"]
    assert all(step["milliseconds"] > 0 and step["parity"] < 1e-4 for step in steps)
    texts = ["the film was great .", "this plot is never bad", ""]
    predictor, in_torch = Predictor(output / "bundle.zip"), Classifier(str(output / "model"))
    assert predictor.logits(texts) == pytest.approx(in_torch.logits(texts), abs=1e-4)
    labels = [answer["label"] for answer in in_torch.predict(texts)]
    assert [answer["label"] for answer in predictor.predict(texts)] == labels
    assert (predictor.manifest.temperature == 1) == (last["accuracy"] == 1)
    assert "0.95" in predictor.manifest.coverage
    assert load_config("students", str(output / "compress.yaml"), CompressConfig()).units == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small"]  # no checkpoints stay


@pytest.mark.slow
def test_a_transfer_set_in_files_gives_what_one_in_memory_gives(work, tmp_path, monkeypatch):
    asked = "--compress.vocabulary-size 30 --training.epochs 1"
    assert main(command(work, tmp_path / "memory", asked)) == 0
    monkeypatch.setattr("distillkit.data.scratch.MAPPED_BYTES", 100)
    assert main(command(work, tmp_path / "files", asked)) == 0
    one, two = (
        (tmp_path / name / "model" / "model.safetensors").read_bytes()
        for name in ("memory", "files")
    )
    assert one == two
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files", "memory"]


@pytest.mark.slow
def test_a_training_that_does_harm_is_undone(work, tmp_path, capsys):
    arguments = command(work, tmp_path / "out", "--compress.embeddings int8")
    arguments += ["--training.learning-rate", "10"]
    assert main(arguments) == 0
    *_, rounded, trained, last = steps_of(capsys)
    assert (trained["step"], last["step"]) == ("trained again", "as before that training")
    assert trained["accuracy"] < rounded["accuracy"] == last["accuracy"]
    assert accuracy(tmp_path / "out" / "model", work / "dev.tsv") == last["accuracy"]
    again = Predictor(tmp_path / "out" / "bundle.zip").predict(["the film was great ."])
    assert again[0]["label"] == "positive"


@pytest.mark.slow
def test_training_again_gives_back_what_rounding_took(work, tmp_path, capsys):
    asked = "--compress.units 0.9 --compress.embeddings int4 --compress.weights int4"
    assert main(command(work, tmp_path / "out", asked)) == 0
    found = {step["step"]: step["accuracy"] for step in steps_of(capsys)}
    assert found["trained again"] > found["embeddings int4, weights int4"] + 0.1
    # It is stored in fifteen steps all the same.
    model, _ = load_classifier(str(tmp_path / "out" / "model"))
    assert all(len(row.unique()) <= 15 for row in model.head.dense.weight.detach())


@pytest.mark.slow
def test_without_logits_nothing_is_trained(work, tmp_path, capsys):
    asked = "--compress.embeddings fp16"
    assert main(command(work, tmp_path / "out", asked, taught=False)) == 0
    steps = steps_of(capsys)
    assert [step["step"] for step in steps] == ["as it was", "embeddings fp16, weights fp32"]
    assert steps[1]["agreement"] == 1


@pytest.mark.slow
def test_a_size_is_met_and_the_settings_are_said(work, tmp_path, capsys):
    whole = tmp_path / "whole.zip"
    pipeline.export(str(work / "student"), whole, one_file=True)
    wanted = whole.stat().st_size / 1e6 / 1.3
    assert main(command(work, tmp_path / "out", f"--max-mb {wanted:.4f} --max-drop 5")) == 0
    steps = steps_of(capsys)
    assert steps[-1]["megabytes"] <= wanted
    assert steps[0]["accuracy"] - steps[-1]["accuracy"] <= 0.05
    chosen = load_config("students", str(tmp_path / "out" / "compress.yaml"), CompressConfig())
    assert chosen.embeddings in ("int8", "int4")


@pytest.mark.slow
def test_the_plan_that_training_brings_nearest_comes_first(work, tmp_path):
    job = CompressJob(
        str(work / "student"),
        tmp_path / "out",
        str(work / "dev.tsv"),
        transfer_set=str(work / "transfer.parquet"),
        logits=work / "logits",
        training=replace(TRAINING, epochs=1),
        max_mb=1,
    )
    network, tokenizer = load_classifier(job.model)
    model, before = Model(network, tokenizer), copy.deepcopy(network.state_dict())
    # Without its words the student cannot learn, without half of its units it can.
    wordless = [CompressConfig(vocabulary_size=size, weights="int8") for size in (5, 4)]
    narrow = CompressConfig(units=0.5, weights="int8")
    steps = _Steps.of(job, model, tmp_path)
    assert steps.ranked(model, [*wordless, narrow]) == [narrow, *wordless]
    assert steps.ranked(model, wordless) == wordless
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    assert list(tmp_path.iterdir()) == []


def test_another_model_under_the_same_name_does_not_go_on_with_the_first_ones_training(
    work, tmp_path
):
    job = CompressJob(
        str(work / "student"),
        tmp_path / "out",
        str(work / "dev.tsv"),
        CompressConfig(embedding_size=8),
        transfer_set=str(work / "transfer.parquet"),
        logits=work / "logits",
        training=replace(TRAINING, epochs=1, learning_rate=0.0),
    )
    for _ in range(2):  # a first one that is killed after its training, then another student
        network, tokenizer = load_classifier(job.model)
        torch.nn.init.normal_(network.encoder.embedding.table.weight)
        before = copy.deepcopy(network.state_dict())
        _Steps.of(job, Model(network, tokenizer), tmp_path).retrain(
            Model(network, tokenizer), CompressConfig()
        )
        assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_what_cannot_be_met_is_refused_and_nothing_is_written(work, tmp_path, capsys):
    assert main(command(work, tmp_path / "out", "--max-mb 0.001")) == 1
    assert "--max-mb 0.001: the smallest that these steps come to is 0.0" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_size_at_too_high_a_price_is_refused_with_the_nearest(
    work, tmp_path, capsys, train_table
):
    words = sorted({word for text in train_table["text"].to_pylist() for word in text.split()})
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 12)) for _ in range(400)]
    rows = [(text, None) for text in texts]
    own = [answer["label"] for answer in pipeline.predict(str(work / "student"), rows)]
    assert len(set(own)) == 2
    # The model is right on all of its own answers. Rounding changes the closest of them.
    dev = written(tmp_path, "own.tsv", pa.table({"text": texts, "label": own}))
    asked = "--max-mb 0.02 --max-drop 0.01"
    assert main(command(work, tmp_path / "out", asked, taught=False, dev=dev)) == 1
    err = capsys.readouterr().err
    nearest = r"the nearest: 0.0\d MB with \d+.\d\d points lost; "
    assert re.search(rf"{asked}: not met, {nearest}", err)
    assert "--transfer-set and --logits would train it again" in err
    assert not (tmp_path / "out").exists()


OF_A_BERT = "not this bert; expected compress.feed_forward or layers"
NOTHING_TO_LOSE = "nothing that the model is to lose"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("--max-mb 1 --compress.units 0.5", "--max-mb chooses the settings"),
        ("--max-mb -1", "expected 0 or more"),
        ("", f"{NOTHING_TO_LOSE}: give --max-mb, or settings such as --compress.weights int8"),
        ("--compress.units 1", "compress.units is 1.0: expected 0 or more, and less than 1"),
        ("--compress.feed-forward 1", "compress.feed_forward is 1.0: expected 0 or more, and less"),
        ("--compress.layers 1", "this model is a distillkit-bilstm; choose compress.units"),
        ("--compress.units 0.5", OF_A_BERT),
        ("--logits nowhere", "expected --transfer-set with it"),
    ],
)
def test_bad_settings_are_refused_in_a_line(
    work, tmp_path, capsys, classifier_folder, asked, reason
):
    model = classifier_folder if reason == OF_A_BERT else None
    args = command(work, tmp_path / "out", asked, taught="--logits" not in asked, model=model)
    with contextlib.suppress(SystemExit):  # of a value out of its range
        assert main(args) == 1
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert reason in said
    assert "as it was" not in said  # before anything is measured
    assert not (tmp_path / "out").exists()


def test_logits_of_another_task_are_refused_and_the_fields_may_still_be_given_one_by_one(
    work, tmp_path, build_classifier, capsys
):
    other = build_classifier(["negative", "other"])
    transfer = read_table(str(work / "transfer.parquet"), ColumnsConfig(), labels="ignored")
    texts = written(tmp_path, "texts.tsv", transfer.select(["text"]))
    pipeline.label(texts, tmp_path / "logits", other, LabelConfig(precision="fp32"))
    with pytest.raises(InputError, match="its labels"):
        compress(
            str(work / "student"),
            tmp_path / "out",
            str(work / "dev.tsv"),
            CompressConfig(units=0.5),
            transfer_set=texts,
            logits=tmp_path / "logits",
            loss=None,
            training=TRAINING,
            columns=ColumnsConfig(),
        )
    said = capsys.readouterr().err
    assert "compress(MODEL, ...) is now compress(CompressJob(MODEL, ...))" in said


@pytest.mark.slow
def test_a_teacher_that_loses_rows_is_trained_again_and_serves_everywhere(
    work, tmp_path, capsys, classifier_folder
):
    asked = "--compress.feed-forward 0.5"
    assert main(command(work, tmp_path / "out", asked, model=classifier_folder)) == 0
    steps = steps_of(capsys)
    assert steps[1]["step"] == "50 % of feed-forward rows gone"
    # Of each row and layer 2 * 16 weights and a bias.
    assert steps[0]["parameters"] - steps[1]["parameters"] == 2 * 16 * (2 * 16 + 1)
    assert steps[1]["megabytes"] < steps[0]["megabytes"]
    assert steps[-1]["step"] == "trained again"
    assert all(step["parity"] < 1e-4 for step in steps)
    model, dev = str(tmp_path / "out" / "model"), str(work / "dev.tsv")
    assert accuracy(model, dev) == steps[-1]["accuracy"] >= 0.9
    # As any checkpoint: exported, its texts labelled, measured, compressed once more.
    pipeline.export(model, tmp_path / "bundle")
    texts = ["the film was great .", "this plot is never bad", ""]
    bundle = Predictor(tmp_path / "bundle")
    wanted = pipeline.predict(model, [(text, None) for text in texts])
    found = bundle.predict(texts)
    assert [answer["label"] for answer in found] == [answer["label"] for answer in wanted]
    whole = Predictor(tmp_path / "out" / "bundle.zip").logits(texts)
    assert np.abs(whole - bundle.logits(texts)).max() < 1e-5
    pipeline.label(dev, tmp_path / "logits", model, LabelConfig(precision="fp32"))
    asked = "--compress.layers 1 --compress.embeddings int8"
    again = tmp_path / "again"
    asked += " --compress.weights int8"
    assert main(command(work, again, asked, taught=False, model=model)) == 0
    steps = steps_of(capsys)
    assert [step["step"] for step in steps][1:] == [
        "1 layer",
        "embeddings int8, weights int8",
    ]
    assert accuracy(again / "model", dev) == steps[-1]["accuracy"]


@pytest.mark.slow
def test_pairs_are_compressed_too(tmp_path, pair_table, capsys):
    dev = written(tmp_path, "dev.tsv", pair_table)
    vectors = EmbeddingConfig(source="random", dimension=8)
    student = StudentConfig(kind="siamese-bilstm", hidden_size=8, head_size=8, embeddings=vectors)
    job = pipeline.StudentJob(dev, dev, tmp_path / "student", student, loss=LossConfig(alpha=1))
    training = TrainingConfig(epochs=1, precision="fp32")
    pipeline.train_student(replace(job, training=training, columns=PAIRS))
    asked = """--data.columns.text-pair text_pair --compress.units 0.25
        --compress.embeddings int8 --compress.weights int8"""
    assert main(command(tmp_path, tmp_path / "out", asked, taught=False, dev=dev)) == 0
    predictor = Predictor(tmp_path / "out" / "bundle.zip")
    assert predictor.logits(["the film is good ."], ["this story was bad ."]).shape == (1, 2)
    assert steps_of(capsys)[-1]["agreement"] > 0.5


@pytest.mark.slow
def test_a_finished_result_is_replaced_only_by_the_same_settings_or_when_told(
    work, tmp_path, capsys
):
    output = tmp_path / "small"
    int8, int4 = (
        command(work, output, f"--compress.embeddings {form}", taught=False)
        for form in ("int8", "int4")
    )
    assert main(int8) == 0
    assert main(int8) == 0
    before = (output / "bundle.zip").read_bytes()
    capsys.readouterr()
    assert main(int4) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert (output / "bundle.zip").read_bytes() == before
    (output / "compress.json").write_text("{")  # damaged: nobody knows what it was made from
    assert main(int8) == 1
    assert main([*int4, "--overwrite"]) == 0
    assert (output / "bundle.zip").read_bytes() != before
