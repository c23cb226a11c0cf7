"""New pairs: where their texts are from, how they are found, and the same again."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from distillkit import pipeline
from distillkit.augment import layout, pairing, transfer_set
from distillkit.augment.method import AugmentOptions, Models, RowsJob
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.data.content import texts_of
from distillkit.data.normal import normal_row
from distillkit.data.tables import read_table, write_table
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig, ColumnsConfig, MixConfig, PairsConfig, WaysConfig

COLUMNS = ColumnsConfig("text", "text_pair")
ONLY = MixConfig(rules=0.0, pairs=1.0)
TFIDF = PairsConfig(WaysConfig(tfidf=1.0, vectors=0.0, random=0.0), nearest=3)
RANDOM = PairsConfig(WaysConfig(tfidf=0.0, vectors=0.0, random=1.0))
ALL = PairsConfig(WaysConfig(tfidf=1.0, vectors=1.0, random=0.5), nearest=3)


def letters(model, texts):
    """Vectors that a reader can follow: how often each letter stands in a text."""
    assert model == "letters"
    return np.array([[t.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for t in texts], np.float32)


@pytest.fixture(scope="module")
def rows():
    table = read_table("embedded:questions/train", COLUMNS)
    return table.select(["text", "text_pair", "label"]).slice(0, 120)


def make(table, wanted, work, pairs=ALL, seed=1, workers=1):
    options = AugmentOptions(
        AugmentConfig(pairs=pairs, mix=ONLY),
        seed,
        models=Models({"pairs": "letters"}, None, letters),
        workers=workers,
    )
    work.mkdir(exist_ok=True)
    job = RowsJob(options, [table.select(["text", "text_pair"])], wanted, [], "digest", work)
    return pa.concat_tables(pairing.make_pairs(job)).to_pylist()


def test_the_texts_stand_in_the_rows_that_are_said(rows, tmp_path):
    made = make(rows, 500, tmp_path / "w")
    assert 480 < len(made) <= 500  # a text that shares no word with others has no partner
    source = [set(row.values()) for row in rows.select(["text", "text_pair"]).to_pylist()]
    for row in made:
        assert row["text"] in source[row["source_row"]]
        assert row["text_pair"] in source[row["source_row_pair"]]
        assert row["text"] != row["text_pair"]


def test_ways_share_a_file(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "BLOCK_ROWS", 10)

    def made(name):
        config = AugmentConfig(
            tagger="pattern", pairs=ALL, mix=MixConfig(rules=1, pairs=1), n_iter=2
        )
        models = Models({"pairs": "letters"}, None, letters)
        build_transfer_set(
            {"original": [rows]}, tmp_path / name, AugmentOptions(config, 1, models=models)
        )
        return (tmp_path / name).read_bytes()

    expected = made("many.parquet")
    monkeypatch.setattr(transfer_set, "_FILES", 1)
    assert made("one.parquet") == expected


def test_every_text_is_as_often_the_first_as_any_other(rows, tmp_path):
    pool = {text for column in texts_of(rows) for text in column}
    made = Counter(row["text"] for row in make(rows, 3 * len(pool), tmp_path / "w", RANDOM))
    assert set(made) == pool
    assert set(made.values()) == {3}


def test_ways_come_by_their_weights(rows, tmp_path):
    made = Counter(row["rules"] for row in make(rows, 5000, tmp_path / "w"))
    assert made["tfidf"] == pytest.approx(2000, abs=150)
    assert made["vectors"] == pytest.approx(2000, abs=150)
    assert made["random"] == pytest.approx(1000, abs=120)


@pytest.mark.parametrize("way", ["tfidf", "vectors"])
def test_partners_are_the_nearest(rows, way, monkeypatch):
    monkeypatch.setattr(pairing, "_BLOCK", 50)  # the texts are compared in several parts
    texts = sorted({text for column in texts_of(rows) for text in column})
    options = AugmentOptions(
        AugmentConfig(pairs=TFIDF), models=Models({"pairs": "letters"}, None, letters)
    )
    found = pairing.nearest_texts(way, texts, options)
    vectors = letters("letters", texts)
    if way == "tfidf":
        vectors = pairing._tfidf(texts).toarray()
    norms = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors.T / np.maximum(norms[:, None] * norms, 1e-9)
    np.fill_diagonal(cosines, -1)
    for i, near in enumerate(found):
        least = np.sort(cosines[i])[-3]
        assert i not in near
        assert (cosines[i, near[near >= 0]] >= least - 1e-5).all()
        assert (near >= 0).sum() == min(3, (cosines[i] > 1e-6).sum())


def test_a_text_that_shares_no_word_has_no_nearest(tmp_path):
    table = pa.table({"text": ["a b", "a c", "b c"], "text_pair": ["a d", "b d", "zzz"]})
    made = make(table, 200, tmp_path / "w", TFIDF)
    assert "zzz" not in {row["text"] for row in made}
    assert "zzz" not in {row["text_pair"] for row in made}


@pytest.mark.slow
def test_groups_and_workers_change_no_byte(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(pairing, "_GROUP", 50)
    alone, several = (make(rows, 400, tmp_path / f"w{n}", workers=n) for n in (1, 2))
    assert alone == several
    assert len(alone) == 400
    assert alone != make(rows, 400, tmp_path / "other", seed=2)


def test_a_finished_group_is_not_made_again(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(pairing, "_GROUP", 50)
    made = make(rows, 400, tmp_path / "w")
    monkeypatch.setattr(pairing, "nearest_texts", None)
    assert make(rows, 400, tmp_path / "w") == made


@pytest.fixture
def files(rows, tmp_path):
    """A task of pairs, its dev rows, and raw single texts."""
    write_table(rows.slice(0, 90), tmp_path / "train.parquet")
    write_table(rows.slice(90), tmp_path / "dev.parquet")
    raw = [f"raw text number {i} about {word}" for i, word in enumerate(["tea", "rain", "music"])]
    (tmp_path / "raw.txt").write_text("\n".join(raw) + "\n")
    return tmp_path


def build(files, pairs=TFIDF, mix=ONLY, unlabelled=(), held_out=("dev.parquet",), n_iter=10):
    target = files / "set.parquet"
    config = AugmentConfig(tagger="none", n_iter=n_iter, mix=mix, pairs=pairs)
    report = pipeline.augment(
        str(files / "train.parquet"),
        target,
        config,
        COLUMNS,
        [str(files / name) for name in held_out],
        [str(files / name) for name in unlabelled],
    )
    return report, pq.read_table(target)


def test_the_transfer_set_has_new_pairs_without_labels(files):
    report, table = build(files, mix=MixConfig(rules=1.0, pairs=1.0))
    new = table.filter(pc.equal(table["origin"], "generated"))
    assert report["generated"] == len(new) > 300
    assert new["label"].null_count == len(new)
    assert set(new["rules"].to_pylist()) == {"tfidf"}
    assert report["augmented"] > 300
    old = table.filter(pc.not_equal(table["origin"], "generated"))
    assert old["source_row_pair"].null_count == len(old)


def test_raw_single_texts_find_partners(files):
    _, table = build(files, RANDOM, unlabelled=["raw.txt"])
    raw = (files / "raw.txt").read_text().splitlines()
    found = [row for row in table.to_pylist() if row["text"] in raw or row["text_pair"] in raw]
    assert found
    for row in found:
        for text, place in (("text", "source_row"), ("text_pair", "source_row_pair")):
            if row[text] in raw:
                assert row[place] == 90 + raw.index(row[text])  # behind the 90 training rows


def test_no_dev_pair_passes_either_way_round(files, rows):
    """Every text of dev stands in train, too, so that its pairs could come about."""
    a, b = texts_of(rows.slice(90))
    first, second = texts_of(rows.slice(0, 90))
    train = pa.table({"text": [*first, *a], "text_pair": [*second, *b[1:], b[0]]})
    write_table(train.append_column("label", pa.array(["0"] * len(train))), files / "train.parquet")
    report, table = build(files, RANDOM, n_iter=300)
    dev = {normal_row(*row) for row in zip(a, b, strict=True)}
    dev |= {normal_row(*row) for row in zip(b, a, strict=True)}
    new = table.filter(pc.equal(table["origin"], "generated"))
    assert not dev & {normal_row(*row) for row in zip(*texts_of(new), strict=True)}
    assert report["leaks"] > 0


def test_single_texts_have_no_pairs(tmp_path):
    table = read_table("embedded:reviews/train", ColumnsConfig()).slice(0, 20)
    write_table(table, tmp_path / "train.parquet")
    with pytest.raises(InputError, match=r"augment.mix.pairs is set, but .* single texts"):
        pipeline.augment(
            str(tmp_path / "train.parquet"), tmp_path / "set.parquet", AugmentConfig(mix=ONLY)
        )


def test_raw_single_texts_of_a_pair_task_are_refused_without_the_method(files):
    with pytest.raises(InputError, match=r"--augment.mix.pairs 1"):
        build(files, mix=MixConfig(), unlabelled=["raw.txt"])


def test_sentence_vectors_need_a_model(files):
    with pytest.raises(InputError, match=r"augment.pairs.model is empty"):
        build(files, replace(TFIDF, ways=WaysConfig()))


def test_weights_of_nothing_are_refused():
    with pytest.raises(InputError, match=r"augment.pairs.ways: all weights are 0"):
        WaysConfig(0.0, 0.0, 0.0)
