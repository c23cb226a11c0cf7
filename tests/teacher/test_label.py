"""A store holds the teacher's own logits, each once, and refuses what does not belong in it."""

import json
import shutil
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from distillkit.data.content import content_keys, texts_of
from distillkit.data.logits import join_logits, read_store, shard_table, write_shard
from distillkit.errors import InputError
from distillkit.recipe import LabelConfig
from distillkit.teacher import label as module
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.label import Labeller, _write_on_ray, label_table
from distillkit.teacher.shards import Shard
from distillkit.teacher.store import write_here

CONFIG = LabelConfig(shard_rows=20, precision="fp32", max_batch_tokens=128, storage="fp32")


def label(table, store, teacher, config=CONFIG, mask="", name="teacher", **options):
    return label_table(table, store, teacher, replace(config, **options), mask, name)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "s"


def shards(store):
    paths = sorted(store.glob("*/shard-*.parquet"))
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


def stored_texts(path):
    return pq.read_table(path)["text"].to_pylist()


def by_hand(folder, texts, pairs=None):
    model, tokenizer = load_classifier(folder)
    rows = zip(texts, pairs or [None] * len(texts), strict=True)
    with torch.inference_mode():
        encoded = [tokenizer(*row, truncation=True, return_tensors="pt") for row in rows]
        return torch.cat([model(**inputs).logits for inputs in encoded]).numpy()


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
    expected = by_hand(classifier_folder, train_table["text"].to_pylist())
    np.testing.assert_allclose(one, expected, atol=1e-5)


def test_the_summary_counts_rows_and_says_how_good_the_teacher_is(
    train_table, classifier_folder, store, tmp_path
):
    table = pa.concat_tables([train_table, train_table.slice(0, 5)])
    assert label(table, store, classifier_folder) == {
        "rows": 101,
        "distinct": 96,
        "labelled_now": 96,
        "labels": ["negative", "positive"],
        "rounding_error": 0.0,
        "accuracy_on_labelled": 1.0,
    }
    assert "accuracy_on_labelled" not in label(bare(["good"]), tmp_path / "bare", classifier_folder)


def test_logits_follow_their_text_through_a_shuffle(train_table, classifier_folder, store):
    label(train_table, store, classifier_folder)
    order = np.random.default_rng(0).permutation(len(train_table))
    found = join_logits(train_table.take(order), store)
    assert np.array_equal(found, join_logits(train_table, store)[order])
    gold = np.array(train_table["label"].to_pylist())[order]
    assert (np.array(["negative", "positive"])[found.argmax(1)] == gold).all()


@pytest.mark.parametrize(("shard_rows", "sizes"), [(1, [1] * 10), (7, [3, 7]), (96, [10])])
def test_every_row_is_in_the_store_the_tail_included(
    train_table, classifier_folder, store, shard_rows, sizes
):
    table = train_table.slice(0, 10)
    label(table, store, classifier_folder, shard_rows=shard_rows)
    parts = [pq.read_table(path) for path in store.glob("*/shard-*.parquet")]
    assert sorted(map(len, parts)) == sizes
    assert len(list(store.glob("*/*"))) == 1 + len(sizes)  # the manifest, and nothing else
    stored = pa.concat_tables(parts)
    assert sorted(stored["key"].to_pylist()) == sorted(content_keys(*texts_of(table)))
    assert stored["key"].to_pylist() == content_keys(*texts_of(stored))
    assert stored["logits"].type == pa.list_(pa.float32(), 2)


def test_pairs_are_labelled_as_pairs(pair_table, classifier_folder, store):
    table = pair_table.drop_columns(["label"]).slice(0, 30)
    label(table, store, classifier_folder)
    texts, pairs = texts_of(table)
    expected = by_hand(classifier_folder, texts, pairs)
    # the order of the sides shows
    assert np.abs(expected - by_hand(classifier_folder, pairs, texts)).max() > 1e-3
    np.testing.assert_allclose(join_logits(table, store), expected, atol=1e-5)


def test_the_mask_reaches_the_teacher_as_its_own_mask_token(classifier_folder, store):
    texts = ["the [MASK] is good", "[MASK]"]
    label(bare(texts), store, classifier_folder, mask="[MASK]")
    found = join_logits(bare(texts), store)
    _, tokenizer = load_classifier(classifier_folder)
    assert tokenizer("<mask>")["input_ids"][1] == tokenizer.mask_token_id != tokenizer.unk_token_id
    expected = by_hand(classifier_folder, ["the <mask> is good", "<mask>"])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - by_hand(classifier_folder, texts)).max() > 1e-3  # as "[", "mask", "]"


def test_long_text_is_truncated_at_the_teachers_limit(classifier_folder, store):
    texts = ["good " * 200, "good " * 30]
    label(bare(texts), store, classifier_folder)
    first, second = join_logits(bare(texts), store)
    np.testing.assert_allclose(first, second, atol=1e-6)
    assert read_store(store)["teacher"]["max_tokens"] == 32


def test_a_deleted_shard_alone_is_labelled_again_to_the_same_bytes(
    train_table, classifier_folder, store
):
    label(train_table, store, classifier_folder)
    before = shards(store)
    assert len(before) == 5  # four of 20 rows and one of 16
    of_size = {len(stored_texts(path)): path for path in store.glob("*/shard-*")}
    for rows in (20, 16):
        of_size[rows].unlink()
        assert label(train_table, store, classifier_folder)["labelled_now"] == rows
        after = shards(store)
        assert {n: c for n, (_, c) in after.items()} == {n: c for n, (_, c) in before.items()}
        lost = {of_size[20].name, of_size[16].name}
        assert {name for name in after if after[name] == before[name]} >= before.keys() - lost


def test_a_larger_table_adds_what_is_new_and_a_finished_one_nothing(
    train_table, classifier_folder, store
):
    label(train_table.slice(0, 50), store, classifier_folder)
    before = shards(store)
    assert label(train_table.slice(10), store, classifier_folder)["labelled_now"] == 46
    middle = shards(store)
    assert {name: middle[name] for name in before} == before
    added = [stored_texts(store / "teacher" / name) for name in middle.keys() - before.keys()]
    assert sorted(chain(*added)) == sorted(train_table["text"].to_pylist()[50:])
    assert label(train_table, store, classifier_folder)["labelled_now"] == 0
    assert shards(store) == middle


def test_other_settings_are_refused_for_an_old_teacher(train_table, classifier_folder, store):
    label(train_table, store, classifier_folder)
    before = shards(store)
    for change in ({"mask": "[MASK]"}, {"precision": "bf16"}, {"storage": "fp16"}):
        said = rf"teacher/manifest.json: made with {next(iter(change))} .*choose another --name"
        with pytest.raises(InputError, match=said):
            label(train_table, store, classifier_folder, **change)
    assert shards(store) == before


def test_another_teacher_is_refused_by_its_weights_or_its_tokenizer_and_not_by_other_files(
    train_table, classifier_folder, tmp_path, store
):
    teacher = shutil.copytree(classifier_folder, tmp_path / "teacher")
    model, tokenizer = load_classifier(classifier_folder)
    label(train_table, store, str(teacher))
    (teacher / "README.md").write_text("more about it")
    assert label(train_table, store, str(teacher))["labelled_now"] == 0
    saved = (teacher / "tokenizer.json").read_text()
    tokenizer.add_tokens(["plotter"])
    tokenizer.save_pretrained(teacher)
    with pytest.raises(InputError, match="made with tokenizer"):
        label(train_table, store, str(teacher))
    with torch.no_grad():
        model.classifier.bias += 0.01
    model.save_pretrained(teacher)
    (teacher / "tokenizer.json").write_text(saved)
    with pytest.raises(InputError, match="made with weights"):
        label(train_table, store, str(teacher))


def test_a_manifest_is_valid_json_with_the_labels_and_the_precision_that_auto_came_to(
    build_classifier, store
):
    label(bare(["good"]), store, build_classifier(["schön", "nicht"]), precision="auto")
    text = (store / "teacher" / "manifest.json").read_text(encoding="utf-8")
    assert "schön" in text
    manifest = json.loads(text)
    assert manifest["labels"] == ["schön", "nicht"]
    assert manifest["precision"] in ("fp32", "bf16")
    keys = "format weights tokenizer labels max_tokens precision head mask storage"
    assert " ".join(manifest) == keys


@pytest.mark.parametrize("driver", ["fp32", "bf16"])
def test_actors_compute_at_the_precision_that_the_manifest_names(
    driver, train_table, classifier_folder, store, tmp_path, monkeypatch
):
    def machine(precision):
        for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
            monkeypatch.setattr(torch.cpu, name, lambda: precision == "bf16")
        module._loaded.cache_clear()

    def each(step, parts, **_):
        machine("fp32" if driver == "bf16" else "bf16")  # an actor's
        return map(step, parts)

    monkeypatch.setattr(module, "each", each)
    machine(driver)
    auto = replace(CONFIG, precision="auto")
    label_table(train_table, store, classifier_folder, auto, engine="ray")
    manifest = json.loads((store / "teacher" / "manifest.json").read_text())
    assert manifest["precision"] == driver
    label(train_table, tmp_path / "here", classifier_folder, precision=driver)
    found, expected = (join_logits(train_table, where) for where in (store, tmp_path / "here"))
    assert np.array_equal(found, expected)


def test_teachers_stand_side_by_side(train_table, classifier_folder, store):
    label(train_table, store, classifier_folder, name="one")
    label(train_table, store, classifier_folder, precision="bf16", name="two")
    assert list(read_store(store)) == ["one", "two"]
    weights = ({"one": 1}, {"two": 1}, None)
    one, two, both = (join_logits(train_table, store, weight) for weight in weights)
    assert not np.array_equal(one, two)
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)


def test_a_name_that_is_no_folder_is_refused(classifier_folder, store):
    for name in ("", ".", "..", "a/b", ".hidden", "a b"):
        with pytest.raises(InputError, match=r"--name .* expected letters, digits"):
            label(bare(["good"]), store, classifier_folder, name=name)


def test_fp16_is_the_default_and_its_rounding_error_is_said(
    train_table, classifier_folder, tmp_path
):
    config = LabelConfig(shard_rows=20, precision="fp32")
    summary = label(train_table, tmp_path / "half", classifier_folder, config)
    label(train_table, tmp_path / "full", classifier_folder)
    half, full = (join_logits(train_table, tmp_path / name) for name in ("half", "full"))
    assert half.dtype == np.float32
    schemas = [pq.read_schema(path) for path in (tmp_path / "half" / "teacher").glob("shard-*")]
    assert all(schema.field("logits").type == pa.list_(pa.float16(), 2) for schema in schemas)
    errors = [float(schema.metadata[b"distillkit.rounding_error"]) for schema in schemas]
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
    shard = next((tmp_path / "low").glob("*/shard-*"))
    labeller = Labeller(classifier_folder, config, "", ["negative", "positive"])
    path = write_shard(tmp_path / "elsewhere", labeller(pq.read_table(shard).select(["text"])))
    assert (path.name, path.read_bytes()) == (shard.name, shard.read_bytes())


def test_a_teacher_without_the_datas_labels_is_refused(
    train_table, encoder_folder, build_classifier, store
):
    for teacher, said in (
        (encoder_folder, "not a fine-tuned classifier"),
        (build_classifier(["a", "b", "c"]), r"the teacher has 3 labels .* the data 2"),
        (build_classifier(["bad", "good"]), r"rename them in its config\.json"),
    ):
        with pytest.raises(InputError, match=said):
            label(train_table, store, teacher)
        assert not store.exists()


@pytest.mark.parametrize("negatives", [48, 12], ids=["balanced", "one class in five"])
def test_a_teacher_at_chance_is_refused_with_the_metric_and_leaves_no_store(
    train_table, build_classifier, classifier_folder, store, negatives
):
    labels = train_table["label"].to_pylist()
    first = [i for i, name in enumerate(labels) if name == "negative"][:negatives]
    table = train_table.take(first + [i for i, name in enumerate(labels) if name == "positive"])
    # right on 4 of 5 rows of the second table
    teacher = build_classifier(["positive", "negative"], constant=True)
    said = rf"at chance .* balanced accuracy 0.500 over {len(table)} rows, 0.500 is"
    with pytest.raises(InputError, match=said):
        label(table, store, teacher)
    assert not shards(store)
    assert label(table, store, classifier_folder)["labelled_now"] == len(table)


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (float("inf"), "not finite for 'good'; label with --label.precision fp32"),
        (1e5, "too large for fp16 .*--label.storage fp32"),
    ],
)
def test_logits_that_cannot_be_stored_are_refused(
    classifier_folder, tmp_path, store, bias, message
):
    model, _ = load_classifier(classifier_folder)
    torch.nn.init.constant_(model.classifier.bias, bias)
    broken = shutil.copytree(classifier_folder, tmp_path / "broken")
    model.save_pretrained(broken)
    with pytest.raises(InputError, match=message):
        label(bare(["good"]), store, str(broken), LabelConfig(precision="fp32"))
    assert not shards(store)


def lengths_of(table):
    return np.array([[2**26 - len(text)] for text in table["text"].to_pylist()], np.float32)


def shard_of(name, *rows):
    return Shard(name, np.isin(np.arange(34), rows), rows[0], rows[-1] + 1)


def test_more_text_than_one_array_can_hold_is_labelled(vast_table, tmp_path):
    def shard(part, logits):
        assert lengths_of(part).tolist() == logits.tolist()
        return shard_table(pa.table({"text": ["short"]}), logits, "fp32", "lengths", ["score"])

    plan = [shard_of("a", 0), shard_of("b", 33)]
    write_here(lengths_of, lambda found, _: found, shard, tmp_path, vast_table, plan, print)
    (path,) = tmp_path.iterdir()
    assert pq.read_table(path)["logits"].to_pylist() == [[33]]  # the later of the two


def test_ray_is_given_rows_of_more_text_than_one_array_can_hold(vast_table, monkeypatch):
    def each(step, parts, **_):
        return map(step, parts)

    monkeypatch.setattr("distillkit.teacher.label.each", each)
    seen, plan = [], [shard_of("a", 0), shard_of("b", 32, 33)]
    _write_on_ray(lambda part: lengths_of(part).tolist(), 1, None, vast_table, plan, seen.append)
    assert seen == [[[0]], [[32], [33]]]
