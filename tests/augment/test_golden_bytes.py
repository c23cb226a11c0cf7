"""A small transfer set of every augmentation method, row for row as it was first made."""

import hashlib
import json

import pyarrow.parquet as pq
import pytest

from distillkit.data.tables import write_table
from distillkit.pipeline import augment
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    GeneratedConfig,
    MixConfig,
    NeighboursConfig,
)

RULES = dict.fromkeys(("p_mask", "p_pos", "p_ng"), 0.0)
SETTINGS = {
    "masking": RULES | {"p_mask": 0.3},
    "pos": RULES | {"p_pos": 0.3},
    "ngram": RULES | {"p_ng": 1.0},
    "paper": {},
    "neighbours": {"mix": MixConfig(rules=0, neighbours=1), "neighbours": NeighboursConfig(k=4)},
    "sentences": {"mix": MixConfig(sentences=1)},
    "generated": {
        "mix": MixConfig(rules=0.5, generated=0.5),
        "generated": GeneratedConfig(epochs=0, max_tokens=8),
    },
    "pairs": {"pair_sides": "turn", "swap": True},
    "self_pairs": {"mix": MixConfig(rules=1, self_pairs=2)},
}
OF_PAIRS = ("pairs", "self_pairs")
# First 16 digits of the SHA-256 of the rows as JSON, taken before methods had modules of their own.
GOLDEN = {
    "masking": "2c75156edb19c7d0",
    "pos": "c86cb0bcc2658876",
    "ngram": "0e2545fd8e2559df",
    "paper": "abf2e72622f3582e",
    "neighbours": "cbe37178e0a3e975",
    "sentences": "b825742ab215e810",
    "generated": "80bcde7b648a43b0",
    "pairs": "c3392c8d1567e095",
    "self_pairs": "a66cb404e0aa5039",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_transfer_set_is_as_it_was(
    name,
    train_table,
    pair_table,
    dev_table,
    encoder_folder,
    gpt_folder,
    tmp_path,
):
    settings = dict(SETTINGS[name])
    if "generated" in settings:
        settings["generated"] = GeneratedConfig(model=gpt_folder, epochs=0, max_tokens=8)
    source, more = tmp_path / "train.parquet", tmp_path / "more.txt"
    write_table((pair_table if name in OF_PAIRS else train_table).slice(0, 40), source)
    write_table(pair_table if name in OF_PAIRS else dev_table, tmp_path / "dev.parquet")
    more.write_text(
        "It was shown twice. Nobody came, and yet it ran on!\nThe end is near. Is it?\n"
    )
    target = tmp_path / "transfer.parquet"
    augment(
        str(source),
        target,
        AugmentConfig(tagger="none", n_iter=6, **settings),
        ColumnsConfig(text_pair="text_pair" if name in OF_PAIRS else ""),
        [str(tmp_path / "dev.parquet")],
        () if name in OF_PAIRS else [str(more)],
        teacher=encoder_folder,
    )
    rows = pq.read_table(target).to_pylist()
    found = hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
    assert found[:16] == GOLDEN[name]
