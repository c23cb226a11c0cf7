"""A command that a fault has hit, repeated: the bytes of an undisturbed one, or a refusal that names the file."""

import os
import shutil

import pytest

from distillkit.cli import main
from distillkit.data.checked import seal
from distillkit.data.content import texts_of
from distillkit.data.tables import read_table
from distillkit.recipe import ColumnsConfig
from tests.faults.harness import COMMANDS, Harness, draw_faults

pytestmark = pytest.mark.slow
COUNT, SEED = (
    int(os.environ.get(f"DISTILLKIT_{name}", number))
    for name, number in (("FAULTS", 20), ("SEED", 1))
)

RECIPE = """\
data: {unlabelled: []}
teacher: {training: {epochs: 10, batch_size: 16, learning_rate: 3.0e-3, precision: fp32}}
augment: {n_iter: 1, mix: {markov: 0}}
label: {precision: fp32}
student: {hidden_size: 8, head_size: 8, embeddings: {source: random, dimension: 8}}
training: {epochs: 5, batch_size: 16, learning_rate: 1.0e-2, precision: fp32}
evaluation: {gold_epochs: 0, latency_sentences: 0}
ship: {form: none}
"""


@pytest.fixture(scope="module")
def harness(tmp_path_factory, classifier_folder, encoder_folder, write_tsv, train_table, dev_table):
    """What the commands read: embedded reviews, a tiny teacher, its logits and a student."""
    base = tmp_path_factory.mktemp("base")
    for folder, name in ((classifier_folder, "teacher"), (encoder_folder, "encoder")):
        seal(shutil.copytree(folder, base / name))  # without checksums nothing finds a flipped bit
    reviews = texts_of(read_table("embedded:reviews/train", ColumnsConfig()).slice(0, 40))[0]
    (base / "texts.txt").write_text("\n".join(" ".join(text.split()) for text in reviews) + "\n")
    (base / "recipe.yaml").write_text(RECIPE)
    write_tsv(base / "train.tsv", train_table)
    write_tsv(base / "dev.tsv", dev_table)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        for name, made, kept in (
            ("augment", "transfer.parquet", "set.parquet"),
            ("label", "logits", "store"),
            ("train-student", "student", "trained"),
        ):
            assert main(COMMANDS[name].words.split()) == 0
            os.rename(made, kept)
    return Harness(base, tmp_path_factory.mktemp("work"))


@pytest.mark.parametrize(
    "fault", draw_faults(COUNT, SEED), ids=lambda f: f"{f.command}, {f.kind}, {f.seed}"
)
def test_a_fault_leaves_nothing_wrong(harness, fault):
    assert harness.check(fault) == ""
