"""Texts written by a causal language model: of the task's words, and the same again."""

import pyarrow as pa
import pytest
import torch

from distillkit.augment import generated
from distillkit.augment.generated import generate, load_language_model, write_texts
from distillkit.augment.method import AugmentOptions, Models, RowsJob
from distillkit.cli import main
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig, GeneratedConfig
from tests.training.launch import torchrun

CONFIG = GeneratedConfig(epochs=25, learning_rate=2e-2, max_tokens=12)


def texts_of(tables):
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def make(model, work, table, wanted=300, config=CONFIG, seed=1, mask="[MASK]", workers=1):
    config, models = AugmentConfig(generated=config, mask=mask), Models({"generated": model})
    options = AugmentOptions(config, seed, models=models, workers=workers)
    return texts_of(generate(RowsJob(options, [table], wanted, [], "", work)))


def folder_of(work):
    (folder,) = work.glob("generated-*")
    return folder


@pytest.fixture(scope="module")
def made(gpt_folder, train_table, tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    return work, make(gpt_folder, work, train_table)


def test_after_fine_tuning_the_texts_are_of_the_tasks_words(
    made, gpt_folder, train_table, tmp_path
):
    own = set(" ".join(train_table["text"].to_pylist()).split())
    config = GeneratedConfig(epochs=0, max_tokens=12)
    before = make(gpt_folder, tmp_path, train_table, config=config)

    def share(texts):
        words = [word for (text,) in texts for word in text.split()]
        return sum(word in own for word in words) / len(words)

    assert share(before) < 0.5
    assert share(made[1]) > 0.97
    texts = [text for (text,) in made[1]]
    assert len(set(texts)) > 30
    assert sum(text.endswith(" .") for text in texts) > 0.8 * len(texts)  # they come to an end
    assert not any("<" in text for text in texts)


@pytest.mark.slow
def test_the_same_seed_writes_the_same_and_another_does_not(
    made, gpt_folder, train_table, tmp_path
):
    assert make(gpt_folder, tmp_path / "a", train_table) == made[1]
    assert make(gpt_folder, tmp_path / "b", train_table, seed=2) != made[1]


def test_a_text_does_not_depend_on_those_it_is_written_with(gpt_folder):
    # Of a random model every word is about as likely, so texts are of all lengths.
    model, tokenizer, _ = load_language_model(gpt_folder)
    config = GeneratedConfig(max_tokens=30)
    many = write_texts(model, tokenizer, range(40), config, 1)
    alone = [write_texts(model, tokenizer, [number], config, 1)[0] for number in range(40)]
    # half precision may round a draw away
    assert sum(a == b for a, b in zip(many, alone, strict=True)) >= 30
    assert len({len(text.split()) for text in many}) > 5
    assert not any("<unk>" in text or "<|end|>" in text for text in many)


@pytest.mark.slow
def test_texts_are_the_same_in_shards_and_after_a_kill(
    gpt_folder, train_table, tmp_path, monkeypatch
):
    config = GeneratedConfig(epochs=0, max_tokens=5)
    whole = make(gpt_folder, tmp_path / "whole", train_table, config=config)
    monkeypatch.setattr(generated, "_SHARD", 64)
    work = tmp_path / "work"
    sharded = make(gpt_folder, work, train_table, config=config)
    # half precision may round a draw away
    assert len(set(whole) & set(sharded)) > 0.9 * len(set(whole)) > 200
    files = {path.name: path.read_bytes() for path in work.rglob("texts-*")}
    assert len(files) == 5
    for name in sorted(files)[2:4]:
        (folder_of(work) / name).unlink()
    monkeypatch.setattr(generated, "_fine_tune", lambda *_: pytest.fail("the model is there"))
    assert make(gpt_folder, work, train_table, config=config) == sharded
    assert {path.name: path.read_bytes() for path in work.rglob("texts-*")} == files


@pytest.mark.slow
def test_workers_change_nothing(gpt_folder, train_table, tmp_path):
    config = GeneratedConfig(epochs=1, learning_rate=2e-2, max_tokens=6)
    alone, shared = (
        make(gpt_folder, tmp_path / str(n), train_table, 1500, config, workers=n) for n in (1, 2)
    )
    assert alone == shared
    assert len(alone) > 1000


@pytest.mark.slow
def test_under_torchrun_one_process_fine_tunes_and_the_bytes_are_the_same(
    gpt_folder, train_table, write_tsv, tmp_path
):
    train = write_tsv(tmp_path / "train.tsv", train_table)
    mix = ["--augment.n-iter", "2", "--augment.mix.generated", "1", "--augment.tagger", "none"]
    more = [*mix, "--augment.generated.model", gpt_folder, "--augment.generated.max-tokens", "16"]
    assert main(["augment", train, str(tmp_path / "one.parquet"), *more]) == 0
    done = torchrun("-m", "distillkit", "augment", train, tmp_path / "two.parquet", *more)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "two.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


def test_pairs_are_written_as_pairs(gpt_folder, pair_table, tmp_path):
    config = GeneratedConfig(epochs=30, learning_rate=2e-2, max_tokens=16)
    pairs = pair_table.select(["text", "text_pair"])
    found = make(gpt_folder, tmp_path, pairs, config=config)
    assert len(found) > 150
    assert all(len(row) == 2 and row[0] and row[1] and "\t" not in row[0] + row[1] for row in found)
    assert sum(first.startswith("the film is") for first, _ in found) > 0.5 * len(found)
    assert sum(second.startswith("this story was") for _, second in found) > 0.5 * len(found)


def test_texts_that_are_empty_or_hold_the_mask_are_left_out(made, gpt_folder, train_table):
    with_film = sum("film" in text for (text,) in made[1])
    assert with_film > 10
    for path in made[0].rglob("texts-*"):
        path.unlink()
    kept = make(gpt_folder, made[0], train_table, mask="film")
    assert kept == [row for row in made[1] if "film" not in row[0]]
    assert all(text.strip() for (text,) in kept)


def test_no_text_is_longer_than_allowed(gpt_folder, train_table, tmp_path):
    found = make(gpt_folder, tmp_path, train_table, config=GeneratedConfig(epochs=0, max_tokens=3))
    assert max(len(text.split()) for (text,) in found) == 3


def test_when_cold_every_token_is_the_likeliest_after_all_before_it(made):
    model, tokenizer, _ = load_language_model(str(folder_of(made[0]) / "model"))
    for text in write_texts(
        model, tokenizer, range(20), GeneratedConfig(temperature=1e-4, max_tokens=12), 1
    ):
        ids = torch.tensor([0, *tokenizer(text).input_ids, 0])
        with torch.inference_mode():
            logits = model(ids[None, :-1]).logits[0]
        drawn = logits.gather(1, ids[1:, None]).ravel()
        assert (logits.amax(1) - drawn).max() < 0.2  # half precision decides near ties


def test_what_is_no_causal_language_model_is_refused_in_one_line(encoder_folder, tmp_path):
    with pytest.raises(
        InputError, match=r"has no causal language model's weights|no end-of-text token"
    ):
        make(encoder_folder, tmp_path / "a", pa.table({"text": ["a"]}))
    assert not list((tmp_path / "a").rglob("model"))
    with pytest.raises(InputError, match="nowhere: not a checkpoint"):
        make(str(tmp_path / "nowhere"), tmp_path / "b", pa.table({"text": ["a"]}))


def test_nothing_is_loaded_where_nothing_is_wanted(tmp_path):
    assert make("nowhere", tmp_path, pa.table({"text": ["a"]}), wanted=0) == []
