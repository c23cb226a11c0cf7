"""Adaptation learns the same whatever shares out an optimizer step: passes or processes."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from distillkit.cli import main
from distillkit.data.readers import read_rows
from distillkit.recipe import ScratchConfig
from distillkit.teacher.scratch import fresh_encoder
from tests.training.launch import torchrun

# All rows in one optimizer step, every token masked, so that nothing is drawn. SGD, as Adam's first steps have
# one length whatever the gradient's.
SETTINGS = {
    "adapt.text.max-tokens": 32,
    "adapt.text.rows": "documents",
    "adapt.text.held-out-fraction": 0.2,
    "adapt.masking.strategy": "token",
    "adapt.masking.rate": 1,
    "adapt.masking.mask-share": 1,
    "adapt.masking.random-share": 0,
    "adapt.training.epochs": 5,
    "adapt.training.optimizer": "sgd",
    "adapt.training.learning-rate": 0.1,
    "adapt.training.max-grad-norm": 0,
    "adapt.training.precision": "fp32",
}
OBJECTIVES = {
    "mlm": {},
    "pairs": {
        "adapt.text.rows": "packed",
        "adapt.text.documents": "blank-line",
        "adapt.objectives.nsp": 1,
        "adapt.objectives.sop": 1,
    },
}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A tiny encoder without dropout."""
    folder = tmp_path_factory.mktemp("encoder")
    texts = [row["text"] for _, row in read_rows("embedded:reviews/train")]
    _, tokenizer = fresh_encoder(texts, ScratchConfig(vocabulary_size=300))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Rows of very different numbers of tokens."""
    path = tmp_path_factory.mktemp("text") / "reviews.txt"
    texts = [row["text"] for _, row in read_rows("embedded:reviews/train")][:72]
    texts = [
        text if number % 3 else " ".join(text.split()[:3]) for number, text in enumerate(texts)
    ]
    pairs = (f"{a}\n{b}\n" for a, b in zip(texts[::2], texts[1::2], strict=True))
    path.write_text("\n".join(pairs), encoding="utf-8")
    return path


def command(start, text, output, objectives, batch, accumulation):
    settings = SETTINGS | objectives | {"adapt.text.sources": text, "output": output}
    settings |= {
        "adapt.training.batch-size": batch,
        "adapt.training.accumulation-steps": accumulation,
    }
    words = (word for name, value in settings.items() for word in (f"--{name}", value))
    return ["adapt-teacher", str(start), *map(str, words)]


def distance(a, b):
    return sum(float((a[name] - b[name]).square().sum()) for name in a) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("objectives", OBJECTIVES)
def test_one_pass_accumulated_ones_and_two_processes_learn_the_same(
    objectives, start, text, tmp_path, capsys
):
    more = OBJECTIVES[objectives]
    ways = {"one": (128, 1), "accumulated": (8, 16)}
    for name, (batch, accumulation) in ways.items():
        assert main(command(start, text, tmp_path / name, more, batch, accumulation)) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[0])["text"]["train"]["rows"]
    assert 16 < rows <= 128
    done = torchrun("-m", "distillkit", *command(start, text, tmp_path / "two", more, 128, 1))
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: load_file(tmp_path / name / "model.safetensors") for name in (*ways, "two")}
    before = load_file(start / "model.safetensors")
    names = [name for name in before if f"bert.{name}" in found["one"]]
    moved = distance(
        {name: found["one"][f"bert.{name}"] for name in names},
        {name: before[name] for name in names},
    )
    assert moved > 0.01
    for name in ("accumulated", "two"):
        assert distance(found[name], found["one"]) < 1e-4 * moved, name
