import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from distillkit.data.logits import join_logits, read_store
from distillkit.data.tables import content_keys, texts_of
from distillkit.errors import InputError
from distillkit.recipe import LabelConfig
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.label import label_table

CONFIG = LabelConfig(shard_rows=20, precision="fp32", max_batch_tokens=128)


def label(table, store, teacher, fingerprint="t1", config=CONFIG, mask=""):
    return label_table(table, store, teacher, fingerprint, config, mask)


def shards(store):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(store.glob("shard-*.parquet"))}


def by_hand(folder, texts, pairs=None):
    model, tokenizer = load_classifier(folder)
    with torch.inference_mode():
        rows = [
            tokenizer(text, None if pairs is None else pairs[i], truncation=True, return_tensors="pt")
            for i, text in enumerate(texts)
        ]
        return torch.cat([model.eval()(**row).logits for row in rows]).numpy()


def bare(texts):
    return pa.table({"text": texts})


def test_logits_are_the_teachers_with_dropout_off_and_the_same_twice(train_table, classifier_folder, tmp_path):
    for name in ("one", "two"):
        label(train_table, tmp_path / name, classifier_folder)
    one, two = (join_logits(train_table, tmp_path / name) for name in ("one", "two"))
    assert np.array_equal(one, two)
    assert one.dtype == np.float32
    np.testing.assert_allclose(one, by_hand(classifier_folder, train_table["text"].to_pylist()), atol=1e-5)


def test_the_summary_counts_rows_and_says_how_good_the_teacher_is(train_table, classifier_folder, tmp_path):
    table = pa.concat_tables([train_table, train_table.slice(0, 5)])
    assert label(table, tmp_path / "s", classifier_folder) == {
        "rows": 101,
        "distinct": 96,
        "labelled_now": 96,
        "labels": ["negative", "positive"],
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
def test_every_row_is_in_the_store_the_tail_included(train_table, classifier_folder, tmp_path, shard_rows):
    table = train_table.slice(0, 10)
    label(table, tmp_path / "s", classifier_folder, config=LabelConfig(shard_rows=shard_rows, precision="fp32"))
    stored = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "s").glob("shard-*.parquet"))])
    assert stored["text"].to_pylist() == table["text"].to_pylist()
    assert stored["key"].to_pylist() == content_keys(*texts_of(table))
    assert stored["logits"].type == pa.list_(pa.float32(), 2)


def test_pairs_are_labelled_as_pairs(pair_table, classifier_folder, tmp_path):
    table = pair_table.drop_columns(["label"]).slice(0, 30)
    label(table, tmp_path / "s", classifier_folder)
    texts, pairs = texts_of(table)
    expected = by_hand(classifier_folder, texts, pairs)
    assert np.abs(expected - by_hand(classifier_folder, pairs, texts)).max() > 1e-3  # the order of the sides shows
    np.testing.assert_allclose(join_logits(table, tmp_path / "s"), expected, atol=1e-5)


def test_the_mask_reaches_the_teacher_as_its_own_mask_token(classifier_folder, tmp_path):
    texts = ["the [MASK] is good", "[MASK]"]
    label(bare(texts), tmp_path / "s", classifier_folder, mask="[MASK]")
    found = join_logits(bare(texts), tmp_path / "s")
    _, tokenizer = load_classifier(classifier_folder)
    assert tokenizer("<mask>")["input_ids"][1] == tokenizer.mask_token_id != tokenizer.unk_token_id
    np.testing.assert_allclose(found, by_hand(classifier_folder, ["the <mask> is good", "<mask>"]), atol=1e-5)
    assert np.abs(found - by_hand(classifier_folder, texts)).max() > 1e-3  # as "[", "mask", "]"


def test_long_text_is_truncated_at_the_teachers_limit(classifier_folder, tmp_path):
    texts = ["good " * 200, "good " * 30]
    label(bare(texts), tmp_path / "s", classifier_folder)
    first, second = join_logits(bare(texts), tmp_path / "s")
    np.testing.assert_allclose(first, second, atol=1e-6)
    assert read_store(tmp_path / "s")["max_tokens"] == 32


def test_a_deleted_shard_alone_is_labelled_again(train_table, classifier_folder, tmp_path):
    store = tmp_path / "s"
    label(train_table, store, classifier_folder)
    before, logits = shards(store), join_logits(train_table, store)
    assert len(before) == 5
    lost = pq.read_table(store / "shard-00002.parquet")["text"].to_pylist()
    (store / "shard-00002.parquet").unlink()
    assert label(train_table, store, classifier_folder)["labelled_now"] == 20
    after = shards(store)
    kept = before.keys() - {"shard-00002.parquet"}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    (new,) = after.keys() - kept
    assert pq.read_table(store / new)["text"].to_pylist() == lost
    np.testing.assert_allclose(join_logits(train_table, store), logits, atol=1e-5)


def test_a_larger_table_adds_what_is_new_and_a_finished_one_nothing(train_table, classifier_folder, tmp_path):
    store = tmp_path / "s"
    label(train_table.slice(0, 50), store, classifier_folder)
    before = shards(store)
    assert label(train_table.slice(10), store, classifier_folder)["labelled_now"] == 46
    middle = shards(store)
    assert {name: middle[name] for name in before} == before
    added = [text for name in sorted(middle.keys() - before.keys()) for text in pq.read_table(store / name)["text"]]
    assert [text.as_py() for text in added] == train_table["text"].to_pylist()[50:]
    assert label(train_table, store, classifier_folder)["labelled_now"] == 0
    assert shards(store) == middle


@pytest.mark.parametrize(
    "change", [{"fingerprint": "t2"}, {"mask": "[MASK]"}, {"config": LabelConfig(precision="bf16")}], ids=str
)
def test_another_teacher_mask_or_precision_is_refused_for_an_old_store(
    train_table, classifier_folder, tmp_path, change
):
    label(train_table, tmp_path / "s", classifier_folder)
    before = shards(tmp_path / "s")
    with pytest.raises(InputError, match=r"manifest.json: made with .*choose another folder"):
        label(train_table, tmp_path / "s", classifier_folder, **change)
    assert shards(tmp_path / "s") == before


def test_an_encoder_without_a_head_is_refused(train_table, encoder_folder, tmp_path):
    with pytest.raises(InputError, match="not a fine-tuned classifier"):
        label(train_table, tmp_path / "s", encoder_folder)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("negatives", [48, 12], ids=["balanced", "one class in five"])
def test_a_teacher_at_chance_is_refused_with_the_figure(train_table, build_classifier, tmp_path, negatives):
    labels = train_table["label"].to_pylist()
    first = [i for i, name in enumerate(labels) if name == "negative"][:negatives]
    table = train_table.take(first + [i for i, name in enumerate(labels) if name == "positive"])
    teacher = build_classifier(["positive", "negative"], constant=True)  # right on 4 of 5 rows of the second table
    with pytest.raises(InputError, match=rf"at chance .* balanced accuracy 0.500 over {len(table)} rows, 0.500 is"):
        label(table, tmp_path / "s", teacher)
    assert not list((tmp_path / "s").glob("shard-*"))


def test_a_refused_teacher_leaves_no_store_that_keeps_its_successor_out(
    train_table, build_classifier, classifier_folder, tmp_path
):
    with pytest.raises(InputError, match="at chance"):
        label(train_table, tmp_path / "s", build_classifier(["negative", "positive"], constant=True), "bad")
    assert label(train_table, tmp_path / "s", classifier_folder, "good")["labelled_now"] == 96


def test_a_wrong_number_of_labels_is_refused(train_table, build_classifier, tmp_path):
    with pytest.raises(InputError, match=r"the teacher has 3 labels .* the data 2"):
        label(train_table, tmp_path / "s", build_classifier(["a", "b", "c"]))


def test_a_teacher_with_other_names_is_refused(train_table, build_classifier, tmp_path):
    with pytest.raises(InputError, match=r"rename them in its config\.json"):
        label(train_table, tmp_path / "s", build_classifier(["bad", "good"]))


def test_a_teacher_whose_logits_are_no_numbers_is_refused(classifier_folder, tmp_path):
    model, tokenizer = load_classifier(classifier_folder)
    torch.nn.init.constant_(model.classifier.bias, float("inf"))
    model.save_pretrained(tmp_path / "broken")
    tokenizer.save_pretrained(tmp_path / "broken")
    with pytest.raises(InputError, match="not finite for 'good'"):
        label(bare(["good"]), tmp_path / "s", str(tmp_path / "broken"))
    assert not list((tmp_path / "s").glob("shard-*"))
