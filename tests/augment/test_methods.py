"""Augmentation methods: what each declares, and another's, declared in this file alone."""

import subprocess
import sys
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit.augment.method import Method
from distillkit.augment.methods import METHODS
from distillkit.augment.rules import OTHER, Variants
from distillkit.data.tables import write_table
from distillkit.errors import InputError
from distillkit.pipeline import augment
from distillkit.recipe import AugmentConfig, MixConfig


def shouting(lexicon, config, folder):
    """Every word in capitals."""

    def variation(block, rows, keys):
        words = [
            lexicon.strings.take(block.words[block.offsets[row] : block.offsets[row + 1]])
            for row in rows
        ]
        texts = [" ".join(word.upper() for word in own.to_pylist()) for own in words]
        length = block.lengths[rows].astype(np.int32)
        nothing = pa.array([[]] * len(rows), pa.list_(pa.int32()))
        fired = np.full(len(rows), OTHER, np.uint8)
        return Variants(pa.array(texts), fired, nothing, np.zeros_like(length), length)

    return variation


def doubled(job):
    yield pa.table({"text": [f"{text} {text}" for text in job.sample[: job.wanted]]})


@dataclass(frozen=True)
class OwnMix(MixConfig):
    shout: float = 0.0
    double: float = 0.0


def made(tmp_path, table, mix):
    write_table(table, tmp_path / "train.parquet")
    config = AugmentConfig(tagger="none", n_iter=4, mix=mix)
    report = augment(str(tmp_path / "train.parquet"), tmp_path / "t.parquet", config)
    return pq.read_table(tmp_path / "t.parquet").to_pylist(), report


def test_another_s_methods_take_part_by_weight(tmp_path, monkeypatch, train_table):
    monkeypatch.setitem(METHODS, "shout", Method("shout", "Words in capitals.", shouting))
    monkeypatch.setitem(
        METHODS, "double", Method("double", "Texts twice.", rows=doubled, origin="generated")
    )
    rows, report = made(tmp_path, train_table, OwnMix(rules=1, shout=1, double=1))
    originals = [row["text"] for row in rows if row["origin"] == "original"]
    assert originals == train_table["text"].to_pylist()
    loud = {row["text"] for row in rows if row["rules"] == "other"}
    assert loud == {text.upper() for text in originals} & loud
    assert 40 < len(loud) <= 96  # of 96 texts, a third of 4 variants each, equal ones once
    assert report["rules"]["mask"]
    assert [row["text"] for row in rows if row["origin"] == "generated"] == [
        f"{text} {text}" for text in originals
    ]


def test_a_weight_without_a_method_is_refused(tmp_path, train_table):
    with pytest.raises(InputError, match=r"augment.mix.shout: no such augmentation method; there "):
        made(tmp_path, train_table, OwnMix(shout=1))


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
