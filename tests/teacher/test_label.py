"""A store holds the teacher's own logits, each once, and refuses what does not belong in it."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from distillkit.data.logits import join_logits, read_store, write_shard
from distillkit.data.tables import content_keys, texts_of
from distillkit.errors import InputError
from distillkit.recipe import LabelConfig
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.label import Labeller, label_table

CONFIG = LabelConfig(shard_rows=20, precision="fp32", max_batch_tokens=128, storage="fp32")


def label(table, store, teacher, config=CONFIG, mask="", name="teacher"):
    return label_table(table, store, teacher, config, mask, name)


def shards(store):
    paths = sorted(store.glob("*/shard-*.parquet"))
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def stored_texts(path):
    return pq.read_table(path)["text"].to_pylist()


def by_hand(folder, texts, pairs=None):
    model, tokenizer = load_classifier(folder)
    with torch.inference_mode():
        rows = [
            tokenizer(
                text, None if pairs is None else pairs[i], truncation=True, return_tensors="pt"
            )
            for i, text in enumerate(texts)
        ]
        return torch.cat([model.eval()(**row).logits for row in rows]).numpy()


def bare(texts):
    return pa.table({"text": texts})


def test_logits_are_the_teachers_with_dropout_off_and_the_same_twice(
    train_table, classifier_folder, tmp_path
):
    for name in ("one", "two"):
        label(train_table, tmp_path / name, classifier_folder)
    one, two = (join_logits(train_table, tmp_path / name) for name in ("one", "two"))
    assert np.array_equal(one, two)
    assert one.dtype == np.float32
    np.testing.assert_allclose(
        one, by_hand(classifier_folder, train_table["text"].to_pylist()), atol=1e-5
    )


def test_the_summary_counts_rows_and_says_how_good_the_teacher_is(
    train_table, classifier_folder, tmp_path
):
    table = pa.concat_tables([train_table, train_table.slice(0, 5)])
    assert label(table, tmp_path / "s", classifier_folder) == {
        "rows": 101,
        "distinct": 96,
        "labelled_now": 96,
        "labels": ["negative", "positive"],
        "rounding_error": 0.0,
        "accuracy_on_labelled": 1.0,
    }
    assert "accuracy_on_labelled" not in label(bare(["good"]), tmp_path / "bare", classifier_folder)


def test_logits_follow_their_text_through_a_shuffle(train_table, classifier_folder, tmp_path):
    label(train_table, tmp_path / "s", classifier_folder)
    order = np.random.default_rng(0).permutation(len(train_table))
    found = join_logits(train_table.take(order), tmp_path / "s")
    assert np.array_equal(found, join_logits(train_table, tmp_path / "s")[order])
    gold = np.array(train_table["label"].to_pylist())[order]
    assert (np.array(["negative", "positive"])[found.argmax(1)] == gold).all()


@pytest.mark.parametrize("shard_rows", [1, 7, 96, 1000])
def test_every_row_is_in_the_store_the_tail_included(
    train_table, classifier_folder, tmp_path, shard_rows
):
    table = train_table.slice(0, 10)
    label(table, tmp_path / "s", classifier_folder, replace(CONFIG, shard_rows=shard_rows))
    parts = [pq.read_table(path) for path in (tmp_path / "s" / "teacher").glob("shard-*.parquet")]
    assert sorted(map(len, parts)) == sorted(
        [shard_rows] * (10 // shard_rows) + [10 % shard_rows] * (10 % shard_rows > 0)
    )
    stored = pa.concat_tables(parts)
    assert sorted(stored["key"].to_pylist()) == sorted(content_keys(*texts_of(table)))
    assert stored["key"].to_pylist() == content_keys(*texts_of(stored))
    assert stored["logits"].type == pa.list_(pa.float32(), 2)


def test_pairs_are_labelled_as_pairs(pair_table, classifier_folder, tmp_path):
    table = pair_table.drop_columns(["label"]).slice(0, 30)
    label(table, tmp_path / "s", classifier_folder)
    texts, pairs = texts_of(table)
    expected = by_hand(classifier_folder, texts, pairs)
    # the order of the sides shows
    assert np.abs(expected - by_hand(classifier_folder, pairs, texts)).max() > 1e-3
    np.testing.assert_allclose(join_logits(table, tmp_path / "s"), expected, atol=1e-5)


def test_the_mask_reaches_the_teacher_as_its_own_mask_token(classifier_folder, tmp_path):
    texts = ["the [MASK] is good", "[MASK]"]
    label(bare(texts), tmp_path / "s", classifier_folder, mask="[MASK]")
    found = join_logits(bare(texts), tmp_path / "s")
    _, tokenizer = load_classifier(classifier_folder)
    assert tokenizer("<mask>")["input_ids"][1] == tokenizer.mask_token_id != tokenizer.unk_token_id
    np.testing.assert_allclose(
        found, by_hand(classifier_folder, ["the <mask> is good", "<mask>"]), atol=1e-5
    )
    assert np.abs(found - by_hand(classifier_folder, texts)).max() > 1e-3  # as "[", "mask", "]"


def test_long_text_is_truncated_at_the_teachers_limit(classifier_folder, tmp_path):
    texts = ["good " * 200, "good " * 30]
    label(bare(texts), tmp_path / "s", classifier_folder)
    first, second = join_logits(bare(texts), tmp_path / "s")
    np.testing.assert_allclose(first, second, atol=1e-6)
    assert read_store(tmp_path / "s")["teacher"]["max_tokens"] == 32


def test_a_deleted_shard_alone_is_labelled_again_to_the_same_bytes(
    train_table, classifier_folder, tmp_path
):
    store = tmp_path / "s"
    label(train_table, store, classifier_folder)
    before = shards(store)
    assert len(before) == 5  # four of 20 rows and one of 16
    full, short = (
        next(path for path in store.glob("*/shard-*") if len(stored_texts(path)) == n)
        for n in (20, 16)
    )
    for lost, rows in ((full, 20), (short, 16)):
        lost.unlink()
        assert label(train_table, store, classifier_folder)["labelled_now"] == rows
        after = shards(store)
        assert {name: content for name, (_, content) in after.items()} == {
            n: c for n, (_, c) in before.items()
        }
        assert {name for name in after if after[name] == before[name]} >= before.keys() - {
            full.name,
            short.name,
        }


def test_a_larger_table_adds_what_is_new_and_a_finished_one_nothing(
    train_table, classifier_folder, tmp_path
):
    store = tmp_path / "s"
    label(train_table.slice(0, 50), store, classifier_folder)
    before = shards(store)
    assert label(train_table.slice(10), store, classifier_folder)["labelled_now"] == 46
    middle = shards(store)
    assert {name: middle[name] for name in before} == before
    added = [
        text
        for name in middle.keys() - before.keys()
        for text in stored_texts(store / "teacher" / name)
    ]
    assert sorted(added) == sorted(train_table["text"].to_pylist()[50:])
    assert label(train_table, store, classifier_folder)["labelled_now"] == 0
    assert shards(store) == middle


def test_nothing_but_shards_and_manifest_is_left(train_table, classifier_folder, tmp_path):
    label(train_table, tmp_path / "s", classifier_folder)
    assert {path.name.split("-")[0] for path in (tmp_path / "s" / "teacher").iterdir()} == {
        "manifest.json",
        "shard",
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mask": "[MASK]"}, "mask"),
        ({"config": replace(CONFIG, precision="bf16")}, "precision"),
        ({"config": replace(CONFIG, storage="fp16")}, "storage"),
    ],
)
def test_other_settings_are_refused_for_an_old_teacher(
    train_table, classifier_folder, tmp_path, change, field
):
    label(train_table, tmp_path / "s", classifier_folder)
    before = shards(tmp_path / "s")
    with pytest.raises(
        InputError, match=rf"teacher/manifest.json: made with {field} .*choose another --name"
    ):
        label(train_table, tmp_path / "s", classifier_folder, **change)
    assert shards(tmp_path / "s") == before


def test_another_teacher_is_refused_by_its_weights_or_its_tokenizer_and_not_by_other_files(
    train_table, classifier_folder, tmp_path
):
    model, tokenizer = load_classifier(classifier_folder)
    teacher = tmp_path / "teacher"

    def save():
        model.save_pretrained(teacher)
        tokenizer.save_pretrained(teacher)

    save()
    label(train_table, tmp_path / "s", str(teacher))
    (teacher / "README.md").write_text("more about it")
    assert label(train_table, tmp_path / "s", str(teacher))["labelled_now"] == 0
    saved = (teacher / "tokenizer.json").read_text()
    tokenizer.add_tokens(["plotter"])
    save()
    with pytest.raises(InputError, match="made with tokenizer"):
        label(train_table, tmp_path / "s", str(teacher))
    with torch.no_grad():
        model.classifier.bias += 0.01
    save()
    (teacher / "tokenizer.json").write_text(saved)
    with pytest.raises(InputError, match="made with weights"):
        label(train_table, tmp_path / "s", str(teacher))


def test_manifest_has_the_precision_that_auto_came_to(classifier_folder, tmp_path):
    label(bare(["good"]), tmp_path / "s", classifier_folder, replace(CONFIG, precision="auto"))
    manifest = read_store(tmp_path / "s")["teacher"]
    assert manifest["precision"] in ("fp32", "bf16")
    assert manifest.keys() == {
        "format",
        "weights",
        "tokenizer",
        "labels",
        "max_tokens",
        "precision",
        "head",
        "mask",
        "storage",
    }


def test_teachers_stand_side_by_side(train_table, classifier_folder, tmp_path):
    label(train_table, tmp_path / "s", classifier_folder, name="one")
    label(
        train_table,
        tmp_path / "s",
        classifier_folder,
        replace(CONFIG, precision="bf16"),
        name="two",
    )
    assert list(read_store(tmp_path / "s")) == ["one", "two"]
    one, two, both = (
        join_logits(train_table, tmp_path / "s", w) for w in ({"one": 1}, {"two": 1}, None)
    )
    assert not np.array_equal(one, two)
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_folder_is_refused(classifier_folder, tmp_path, name):
    with pytest.raises(InputError, match=r"--name .* expected letters, digits"):
        label(bare(["good"]), tmp_path / "s", classifier_folder, name=name)


def test_fp16_is_the_default_and_its_rounding_error_is_said(
    train_table, classifier_folder, tmp_path
):
    summary = label(
        train_table,
        tmp_path / "half",
        classifier_folder,
        LabelConfig(shard_rows=20, precision="fp32"),
    )
    label(train_table, tmp_path / "full", classifier_folder)
    half, full = (join_logits(train_table, tmp_path / name) for name in ("half", "full"))
    assert half.dtype == np.float32
    paths = list((tmp_path / "half" / "teacher").glob("shard-*"))
    assert all(
        pq.read_schema(path).field("logits").type == pa.list_(pa.float16(), 2) for path in paths
    )
    errors = [float(pq.read_schema(path).metadata[b"distillkit.rounding_error"]) for path in paths]
    assert summary["rounding_error"] == max(errors) > 0
    # full has batches of other rows
    assert np.abs(half - full).max() == pytest.approx(max(errors), abs=1e-5)


def test_bf16_is_near_and_a_row_has_the_same_logits_in_every_process(
    train_table, classifier_folder, tmp_path
):
    config = replace(CONFIG, precision="bf16")
    label(train_table, tmp_path / "low", classifier_folder, config)
    label(train_table, tmp_path / "s", classifier_folder)
    low, full = (join_logits(train_table, tmp_path / name) for name in ("low", "s"))
    assert 0 < np.abs(low - full).max() < 0.3
    # What a worker elsewhere makes from plain values is the very file.
    part = pa.concat_tables(
        [pq.read_table(path) for path in [next((tmp_path / "low").glob("*/shard-*"))]]
    ).select(["text"])
    labeller = Labeller(classifier_folder, config, "", ["negative", "positive"])
    path = write_shard(tmp_path / "elsewhere", labeller(part))
    assert path.read_bytes() == (tmp_path / "low" / "teacher" / path.name).read_bytes()


def test_an_encoder_without_a_head_is_refused(train_table, encoder_folder, tmp_path):
    with pytest.raises(InputError, match="not a fine-tuned classifier"):
        label(train_table, tmp_path / "s", encoder_folder)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("negatives", [48, 12], ids=["balanced", "one class in five"])
def test_a_teacher_at_chance_is_refused_with_the_figure(
    train_table, build_classifier, tmp_path, negatives
):
    labels = train_table["label"].to_pylist()
    first = [i for i, name in enumerate(labels) if name == "negative"][:negatives]
    table = train_table.take(first + [i for i, name in enumerate(labels) if name == "positive"])
    teacher = build_classifier(
        ["positive", "negative"], constant=True
    )  # right on 4 of 5 rows of the second table
    with pytest.raises(
        InputError, match=rf"at chance .* balanced accuracy 0.500 over {len(table)} rows, 0.500 is"
    ):
        label(table, tmp_path / "s", teacher)
    assert not shards(tmp_path / "s")


def test_a_refused_teacher_leaves_no_store_that_keeps_its_successor_out(
    train_table, build_classifier, classifier_folder, tmp_path
):
    with pytest.raises(InputError, match="at chance"):
        label(
            train_table, tmp_path / "s", build_classifier(["negative", "positive"], constant=True)
        )
    assert label(train_table, tmp_path / "s", classifier_folder)["labelled_now"] == 96


def test_a_wrong_number_of_labels_is_refused(train_table, build_classifier, tmp_path):
    with pytest.raises(InputError, match=r"the teacher has 3 labels .* the data 2"):
        label(train_table, tmp_path / "s", build_classifier(["a", "b", "c"]))


def test_a_teacher_with_other_names_is_refused(train_table, build_classifier, tmp_path):
    with pytest.raises(InputError, match=r"rename them in its config\.json"):
        label(train_table, tmp_path / "s", build_classifier(["bad", "good"]))


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (float("inf"), "not finite for 'good'; label with --label.precision fp32"),
        (1e5, "too large for fp16 .*--label.storage fp32"),
    ],
)
def test_logits_that_cannot_be_stored_are_refused(classifier_folder, tmp_path, bias, message):
    model, tokenizer = load_classifier(classifier_folder)
    torch.nn.init.constant_(model.classifier.bias, bias)
    model.save_pretrained(tmp_path / "broken")
    tokenizer.save_pretrained(tmp_path / "broken")
    with pytest.raises(InputError, match=message):
        label(
            bare(["good"]), tmp_path / "s", str(tmp_path / "broken"), LabelConfig(precision="fp32")
        )
    assert not shards(tmp_path / "s")


def test_a_manifest_is_valid_json_with_labels_as_they_are(build_classifier, tmp_path):
    label(bare(["good"]), tmp_path / "s", build_classifier(["schön", "nicht"]))
    text = (tmp_path / "s" / "teacher" / "manifest.json").read_text(encoding="utf-8")
    assert "schön" in text
    assert json.loads(text)["labels"] == ["schön", "nicht"]
