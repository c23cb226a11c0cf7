"""Another's student kind, loss and augmentation method go through every command."""

import json
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

import distillkit.student.kinds as package
from distillkit import cli, runs
from distillkit.augment.method import Method
from distillkit.augment.methods import METHODS
from distillkit.augment.rules import OTHER, Variants
from distillkit.compress.run import compress
from distillkit.errors import InputError
from distillkit.ladder import ladder
from distillkit.ladder.plan import ablations_of
from distillkit.pipeline import export
from distillkit.push import push
from distillkit.recipe import (
    AugmentConfig,
    CompressConfig,
    CompressJob,
    DataConfig,
    EmbeddingConfig,
    EvaluationConfig,
    LabelConfig,
    LossConfig,
    MixConfig,
    Recipe,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
    load_recipe,
)
from distillkit.recipe.kinds import KINDS, LOSSES, LossKind, StudentKind, kind_of
from distillkit.student.config import WordConfig
from distillkit.student.model import Encoder, SingleStudent
from distillkit.student.pooling import Pooling
from distillkit.student.units import best_units, keep_units, saliency
from distillkit.tune.space import SearchConfig, hyperparameters_of
from distillkit.tune.study import tune

pytestmark = pytest.mark.slow


class AveragingConfig(WordConfig):
    model_type = "tested-averaging"

    def __init__(self, hidden_size=100, **options):
        self.hidden_size = hidden_size
        super().__init__(**{"pooling": "mean"} | options)


class AveragingEncoder(Encoder):
    """A layer over each word, and their mean (Iyyer et al. 2015)."""

    def __init__(self, config):
        super().__init__(config)
        self.width = config.hidden_size
        self.layer = nn.Linear(self.embedding.width, self.width)
        self.pooling = Pooling(config.pooling, self.width)

    def encode(self, x, lengths):
        return self.pooling(torch.tanh(self.layer(x)), lengths)

    def first_layer(self):
        return [(self.layer, "weight")]

    def prune(self, share, into_head):
        units = best_units(saliency(self.layer.weight).sum(1) + into_head, share)
        keep_units(self.layer, "weight", units, 0)
        keep_units(self.layer, "bias", units, 0)
        return units, len(units)


class AveragingForSequenceClassification(SingleStudent):
    config_class = AveragingConfig
    encoder_class = AveragingEncoder


def shouting(lexicon, config, folder):
    """Every word in capitals."""

    def variation(block, rows, keys):
        spans = zip(block.offsets[rows], block.offsets[rows + 1], strict=True)
        words = [lexicon.strings.take(pa.array(block.words[a:b])).to_pylist() for a, b in spans]
        nothing = pa.array([[]] * len(rows), pa.list_(pa.int32()))
        length, fired = block.lengths[rows].astype(np.int32), np.full(len(rows), OTHER, np.uint8)
        texts = pa.array([" ".join(own).upper() for own in words])
        return Variants(texts, fired, nothing, np.zeros_like(length), length)

    return variation


def cosine_loss(student, teacher):
    return (1 - torch.cosine_similarity(student, teacher.detach(), dim=1)).mean()


KIND = StudentKind(
    "averaging",
    "a layer over each word, and their mean (Iyyer et al. 2015)",
    AveragingForSequenceClassification,
    settings=("hidden_size",),
    poolings=("max", "mean"),
    limits="It averages words.",
)
LOSS = LossKind(
    "cosine",
    "1 less the cosine of the logits",
    {"classification": cosine_loss},
    "cosine of the logits",
    "one logit has no angle",
)


METHOD = Method("shout", "Words in capitals.", shouting)


@pytest.fixture(scope="module", autouse=True)
def declared():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, KIND.name, KIND)
        patch.setitem(LOSSES, LOSS.name, LOSS)
        patch.setitem(METHODS, METHOD.name, METHOD)
        yield


@pytest.fixture(scope="module")
def recipe(declared, tmp_path_factory, classifier_folder, train_table, dev_table):
    folder = tmp_path_factory.mktemp("data")
    for name, table in (("train", train_table), ("dev", dev_table)):
        rows = "".join(f"{row['text']}\t{row['label']}\n" for row in table.to_pylist())
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + rows)
    how = TrainingConfig(epochs=1, batch_size=16, learning_rate=1e-2, precision="fp32")
    return Recipe(
        data=DataConfig(train=str(folder / "train.tsv"), dev=str(folder / "dev.tsv")),
        teacher=TeacherConfig(classifier_folder, 16, replace(how, learning_rate=1e-5)),
        augment=AugmentConfig(
            n_iter=2, tagger="none", mix=replace(MixConfig().with_methods(["shout"]), shout=1.0)
        ),
        label=LabelConfig(precision="fp32"),
        student=StudentConfig(
            "averaging", hidden_size=8, head_size=8, embeddings=EmbeddingConfig("random", 8)
        ),
        training=replace(how, epochs=15, learning_rate=3e-2),
        loss=LossConfig("cosine"),
        evaluation=EvaluationConfig(gold_epochs=0, latency_sentences=2),
    )


@pytest.fixture(scope="module")
def home(recipe, tmp_path_factory):
    """A finished run of all three."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    runs.run(recipe, folder)
    return folder


def test_run_distils_the_kind_with_loss_and_method_and_repeats_from_its_recipe(recipe, home):
    model = AutoModelForSequenceClassification.from_pretrained(home / "student" / "model")
    assert (type(model), model.config.hidden_size) == (AveragingForSequenceClassification, 8)
    assert load_recipe(str(home / "recipe.yaml")) == recipe
    rows = pq.read_table(home / "transfer" / "transfer.parquet").to_pylist()
    assert sum(row["text"].isupper() for row in rows if row["rules"] == "other") > 40
    scores = json.loads((home / "result.json").read_text())["models"]
    assert scores["student"]["dev"]["accuracy"] > 0.7


def test_ladder_has_a_row_without_the_method(recipe, home):
    rows = ladder(recipe, home, ["no-shout"], seeds=1)["ablations"]
    assert rows["no-shout"]["title"] == "full without shout"
    assert "no-shout" not in ablations_of(replace(recipe, augment=AugmentConfig()))


def test_tune_searches_what_the_kind_has(recipe, home):
    assert {"hidden_size", "embedding_dimension", "vocabulary_size"} <= set(
        hyperparameters_of(recipe)
    )
    assert "layers" not in hyperparameters_of(recipe)
    search = SearchConfig(hyperparameters=("hidden_size",), hidden_size=(4, 12))
    found = tune(recipe, home, search, trials=2)["trials"]
    assert found[0]["parameters"] == {"hidden_size": 8}
    assert 4 <= found[1]["parameters"]["hidden_size"] <= 12


def test_compress_takes_units_and_narrows_vectors(recipe, home, tmp_path):
    settings = CompressConfig(units=0.5, embedding_size=4)
    model = str(home / "student" / "model")
    compress(CompressJob(model, tmp_path / "small", recipe.data.dev, settings))
    config = json.loads((tmp_path / "small" / "model" / "config.json").read_text())
    assert (config["hidden_size"], config["head_size"], config["embedding_size"]) == (4, 4, 4)
    steps = json.loads((tmp_path / "small" / "compress.json").read_text())["steps"]
    assert max(step["parity"] for step in steps) < 1e-4


def test_export_answers_as_torch_and_push_says_what_was_declared(home, tmp_path):
    export(str(home / "student" / "model"), home / "bundle")
    push(home, "me/mine", to=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for words in (
        "kind `averaging`",
        "It averages words.",
        "The loss is cosine of the logits, alpha 0",
        "\n* Words in capitals.\n",
        "changed by a method that is not distillkit's own",
    ):
        assert words in card
    assert (tmp_path / "out" / "bundle" / "model.onnx").is_file()


def test_the_kind_of_the_docs_goes_through_the_commands_as_it_stands(
    home, recipe, tmp_path, monkeypatch, capsys
):
    page = (Path(__file__).parent.parent / "docs" / "students.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(# mine\.py\n.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(code)
    monkeypatch.setitem(KINDS, KIND.name, KIND)  # is put back afterwards
    monkeypatch.setattr(sys, "argv", ["mine.py", "list"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path("mine.py", run_name="__main__")
    assert KINDS["averaging"] is not KIND
    assert '"averaging", "what": "a layer over each word' in capsys.readouterr().out
    size = "hidden_size: 8, head_size: 8, embeddings: {source: random, dimension: 8}"
    Path("student.yaml").write_text(f"{{kind: averaging, {size}}}")
    learn = [
        "--transfer-set",
        f"{home}/transfer/transfer.parquet",
        "--logits",
        f"{home}/logits/store",
    ]
    how = [
        "--training.steps",
        "100",
        "--training.batch-size",
        "16",
        "--training.learning-rate",
        ".03",
    ]
    dev = ["--dev", recipe.data.dev]
    assert not cli.main(["train-student", "student.yaml", *learn, *dev, "--output", "mine", *how])
    assert json.loads(Path("mine/config.json").read_text())["model_type"] == "mine-averaging"
    assert not cli.main(["compress", "mine", "small", *dev, "--compress.units", "0.5"])
    assert not cli.main(["export", "small/model", "bundle"])
    Path("texts.txt").write_text("the film was great .\n")
    capsys.readouterr()
    assert not cli.main(["predict", "bundle", "texts.txt"])
    assert json.loads(capsys.readouterr().out)["label"] == "positive"
    assert cli.main(["export", "bundle", "web", "--js"]) == 1
    assert "a mine-averaging; in JavaScript static, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("student: {kind: averagin}", "student.kind is 'averagin': did you mean 'averaging'"),
        (
            "student:\n  kind: averaging\n  layers: 2",
            "student.layers is set, but means nothing to kind averaging",
        ),
        ("student: {kind: averaging, pooling: last}", "expected auto, max, mean"),
        ("loss: {kind: cosin}", "loss.kind is 'cosin': did you mean 'cosine'"),
        ("augment: {mix: {shuot: 1}}", "'augment.mix.shuot'; did you mean 'augment.mix.shout'"),
    ],
)
def test_a_recipe_is_checked_against_what_was_declared(text, line, tmp_path):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"r.yaml:\d: .*{line}"):
        load_recipe(str(tmp_path / "r.yaml"))


def test_what_the_kind_or_loss_cannot_do_is_refused():
    with pytest.raises(InputError, match=r"has pairs; expected siamese-bilstm, .*transformer"):
        StudentConfig("averaging").check_fits(pairs=True, source="x")
    with pytest.raises(InputError, match="regression, and one logit has no angle: expected mse"):
        LossConfig("cosine").check_task("regression")


def test_a_file_dropped_into_the_folder_is_found_by_its_name_and_imported_when_asked(
    tmp_path, monkeypatch
):
    (tmp_path / "dropped.py").write_text(
        "import torch\nfrom distillkit.recipe.kinds import KINDS, StudentKind\n"
        "KINDS['dropped'] = StudentKind('dropped', 'dropped', None)\n"
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert "distillkit.student.kinds.dropped" not in sys.modules
    assert StudentConfig("dropped").of_kind is kind_of("dropped") is KINDS.pop("dropped")
    monkeypatch.delitem(sys.modules, "distillkit.student.kinds.dropped")
