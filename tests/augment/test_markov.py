"""Texts of a Markov chain: each word where it could stand, new texts, and the same again."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from distillkit import pipeline
from distillkit.augment.markov import write_chains
from distillkit.augment.method import AugmentOptions, RowsJob
from distillkit.data.tables import read_table, write_table
from distillkit.data.words import split_characters, split_words
from distillkit.errors import InputError
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    DataConfig,
    MarkovConfig,
    MixConfig,
    Recipe,
)

TEXTS = [
    "The plot is  thin, but it isn't bad.",
    "A thin plot: it is not bad.",
    "Is it bad? The plot is not a plot.",
]


def write(texts, wanted, p_backoff=0.2, seed=1, mask="[MASK]"):
    config = AugmentConfig(markov=MarkovConfig(p_backoff), mask=mask)
    tables = [pa.table({"text": texts})]
    job = RowsJob(AugmentOptions(config, seed), tables, wanted, texts, "", None)
    return [text for table in write_chains(job) for text in table["text"].to_pylist()]


def runs_of(texts, n, cut=split_words):
    """Every run of n words, the two ends of a text included."""
    found = set()
    for text in texts:
        words = ["<", *cut(text), ">"]
        found |= set(zip(*(words[k:] for k in range(n)), strict=False))
    return found


def test_where_no_text_is_wanted_none_is_read():
    def tables():
        raise AssertionError("read")
        yield

    job = RowsJob(AugmentOptions(AugmentConfig(), 1), tables(), 0, ["a"], "", None)
    assert list(write_chains(job)) == []


@pytest.mark.parametrize(("p_backoff", "n"), [(1.0, 2), (0.0, 3)])
def test_every_word_follows_one_word_or_two_as_in_the_originals(p_backoff, n):
    made = write(TEXTS, 400, p_backoff)
    assert runs_of(made, n) <= runs_of(TEXTS, n)
    assert set(made) - set(TEXTS)


def test_backing_off_makes_newer_texts_and_both_ways_come_about():
    texts = [f"w{i % 7} w{i % 5} w{i % 3} w{i % 4} w{i % 6}" for i in range(60)]
    new = [len(set(write(texts, 500, p)) - set(texts)) for p in (0.0, 0.2, 1.0)]
    assert new[0] < min(new[1:])
    made = write(texts, 500, 0.2)
    of_two = [run for text in made for run in runs_of([text], 3)]
    seen = sum(run in runs_of(texts, 3) for run in of_two) / len(of_two)
    assert 0.75 < seen < 1


def test_spaces_stand_where_they_stood():
    made = " ".join(write(TEXTS, 400))
    assert "is  thin," in made
    assert " ." not in made
    assert "isn't" in made


def test_no_text_is_empty_longer_than_the_longest_or_holds_the_mask():
    longest = max(len(split_words(text)) for text in TEXTS)
    made = write(TEXTS, 500)
    assert all(0 < len(split_words(text)) <= longest for text in made)
    assert any("thin" in text for text in made)
    assert not any("thin" in text for text in write(TEXTS, 500, mask="thin"))


def test_scripts_without_spaces_are_chains_of_characters():
    texts = ["这部电影很好看", "电影院的座位很好", "这本书不好看"]
    made = write(texts, 200, 1.0)
    assert runs_of(made, 2, split_characters) <= runs_of(texts, 2, split_characters)
    assert set(made) - set(texts)
    assert not any(" " in text for text in made)


def test_a_text_depends_on_its_number_and_the_seed_alone():
    few, many = write(TEXTS, 50), write(TEXTS, 20_000)
    assert many[: len(few)] == few
    assert write(TEXTS, 50, seed=2) != few


def test_empty_texts_and_a_single_one_bring_nothing_new():
    assert set(write(["", "   "], 20)) <= {""}
    assert set(write(["One sentence."], 20)) <= {"One sentence."}


def test_a_transfer_set_has_chains_beside_variants_and_none_that_is_held_out(tmp_path):
    source = "embedded:reviews/train"
    config = AugmentConfig(n_iter=2, mix=MixConfig(rules=1, markov=1))

    def made(name, held_out=(), workers=1):
        target = tmp_path / f"{name}.parquet"
        counts = pipeline.augment(source, target, config, held_out=held_out, workers=workers)
        return (
            counts,
            read_table(str(target), ColumnsConfig(), labels="ignored"),
            target.read_bytes(),
        )

    counts, table, content = made("one")
    assert made("two", workers=2)[2] == content
    texts = table.filter(pc.equal(table["origin"], "generated"))["text"].to_pylist()
    assert counts["generated"] == len(texts) > 0.8 * 2600
    assert counts["augmented"] > 0.8 * 2600
    (tmp_path / "dev.tsv").write_text(f"text\tlabel\n{texts[7]}\tgood\n", encoding="utf-8")
    counts, table, _ = made("three", [str(tmp_path / "dev.tsv")])
    assert counts["leaks"] == 1
    assert texts[7] not in table["text"].to_pylist()


def test_of_pairs_there_are_no_chains_and_the_rules_make_all_variants(
    train_table, tmp_path, write_tsv
):
    pairs = pa.table({"text": train_table["text"], "text_pair": train_table["text"]})
    write_table(pairs, tmp_path / "pairs.parquet")
    source, columns = str(tmp_path / "pairs.parquet"), ColumnsConfig("text", "text_pair")
    made = []
    for number, mix in enumerate((MixConfig(rules=1, markov=1), MixConfig())):
        target = tmp_path / f"{number}.parquet"
        pipeline.augment(source, target, AugmentConfig(n_iter=3, mix=mix), columns)
        made.append(target.read_bytes())
    assert made[0] == made[1]
    config = AugmentConfig(mix=MixConfig(rules=0, markov=1))
    with pytest.raises(InputError, match="markov writes single texts only; pairs need a weight"):
        pipeline.augment(source, tmp_path / "t.parquet", config, columns)
    of_pairs = Recipe(data=DataConfig(columns=columns))
    assert (Recipe().augment.mix.markov, of_pairs.augment.mix.markov) == (1, 0)
    assert of_pairs.augment.mix == MixConfig(rules=1, pairs=1, self_pairs=1)  # instead


def test_with_varied_unlabelled_texts_chains_are_of_their_words_too(tmp_path):
    (tmp_path / "more.txt").write_text("zebras graze\nzebras graze here\nzebras here graze too\n")

    def made(**settings):
        config = AugmentConfig(n_iter=40, mix=MixConfig(rules=1, markov=1), **settings)
        target = tmp_path / "transfer.parquet"
        source, more = "embedded:reviews/dev", [str(tmp_path / "more.txt")]
        pipeline.augment(source, target, config, unlabelled=more)
        table = read_table(str(target), ColumnsConfig(), labels="ignored")
        return " ".join(table.filter(pc.equal(table["origin"], "generated"))["text"].to_pylist())

    assert "zebras" not in made()
    assert "zebras" in made(vary_unlabelled=True)
