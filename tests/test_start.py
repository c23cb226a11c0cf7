"""`distillkit init`: what it finds in a file, and the recipe that it writes."""

import json
import sys

import pytest

from distillkit.cli import main, parse
from distillkit.doctor.start import init
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, load_recipe

CHINESE = ("这家酒店很好", "服务很差", "早餐不错", "房间太小")
ENGLISH = (
    "The room was clean",
    "It is not worth the money",
    "That was the best",
    "You and the sea",
)


def written(folder, name, header, rows, **options):
    """Write a file, make a recipe for it, and return what was found and the recipe."""
    lines = [",".join(header), *(",".join(row) for row in rows)]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = folder / "mine.yaml"
    found = init(str(folder / name), output, overwrite=True, **options)
    return found, load_recipe(str(output))


def rows_of(texts, labels, count=40):
    return [(f"{texts[i % len(texts)]} {i}", labels[i % len(labels)]) for i in range(count)]


def test_columns_labels_and_language_are_found_whatever_they_are_called(tmp_path):
    rows = [(str(i), *row) for i, row in enumerate(rows_of(ENGLISH, ("good", "bad")))]
    rows += [("40", "", "good"), ("41", "The text", "nan")]
    found, recipe = written(tmp_path, "train.csv", ("id", "Customer: remark", "it's #1"), rows)
    assert found["rows"] == 40
    assert (found["task"], found["labels"], found["language"]) == ("classification", 2, "English")
    assert recipe.data.columns == ColumnsConfig(text="Customer: remark", label="it's #1")
    assert (recipe.data.missing, recipe.data.dev) == ("drop", "")
    text = (tmp_path / "mine.yaml").read_text()
    assert "2 labels: good (20), bad (20)" in text
    assert "2 rows lack a text or a label" in text


def test_dev_and_test_beside_the_file_are_taken(tmp_path):
    for name in ("valid.csv", "test.csv"):
        (tmp_path / name).write_text("text,label\na,b\n")
    data = written(tmp_path, "train.csv", ("text", "label"), rows_of(ENGLISH, "ab"))[1].data
    assert (data.dev, data.test) == (str(tmp_path / "valid.csv"), str(tmp_path / "test.csv"))
    given = {"dev": "mine.csv"}
    data = written(tmp_path, "train.csv", ("text", "label"), rows_of(ENGLISH, "ab"), **given)[
        1
    ].data
    assert data.dev == "mine.csv"


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (("0.5", "1.25", "3"), "regression"),
        ([str(i) for i in range(30)], "regression"),
        (("1", "2", "3", "4", "5"), "classification"),
        (('"a,b"', '"a,c"', "b", "c"), "multi-label"),
        (('"Food, drink"', "Travel"), "classification"),
        (("a|b", "a|c", "b", ""), "multi-label"),
        (("早餐、房间", "早餐、服务", "早餐", "房间"), "multi-label"),
        (('"1,2"', '"1,3"', "2", "3"), "multi-label"),
    ],
)
def test_the_task_follows_from_the_labels(tmp_path, labels, task):
    found, recipe = written(tmp_path, "a.csv", ("text", "label"), rows_of(ENGLISH, labels, 60))
    assert found["task"] == recipe.data.task == task
    assert found["rows"] == 60  # that no tag fits is an answer
    separator = next((mark for mark in "|、" if mark in labels[0]), ",")
    assert recipe.data.columns.label_separator == separator
    text = (tmp_path / "mine.yaml").read_text()
    assert ("classification, if each number names a class" in text) == (task == "regression")
    said = "regression, if these numbers are grades" in text
    assert said == (labels == ("1", "2", "3", "4", "5"))


@pytest.mark.parametrize(
    ("texts", "language", "teacher"),
    [
        (CHINESE, "Chinese", "hfl/chinese-macbert-base"),
        (("Das Zimmer war sauber", "Nicht zu empfehlen"), "other", "FacebookAI/xlm-roberta-base"),
    ],
)
def test_the_teacher_reads_the_language(tmp_path, texts, language, teacher):
    found, recipe = written(tmp_path, "a.csv", ("text", "label"), rows_of(texts, "ab"))
    assert (found["language"], recipe.teacher.model) == (language, teacher)


def test_pairs_and_long_texts_and_new_words_choose_the_student(tmp_path):
    rows = [(f"what is {i}", f"what was {i}", "yn"[i % 2]) for i in range(40)]
    header = ("question1", "question2", "is_duplicate")
    data, student = (lambda r: (r.data, r.student))(written(tmp_path, "a.csv", header, rows)[1])
    assert data.columns == ColumnsConfig("question1", "question2", "is_duplicate")
    assert student.kind == "interaction-bilstm"
    mix = load_recipe(str(tmp_path / "mine.yaml")).augment.mix
    assert (mix.rules, mix.pairs, mix.self_pairs) == (4, 10, 12)
    long = [(f"the of and {'word ' * 200}", "ab"[i % 2]) for i in range(40)]
    found, recipe = written(tmp_path, "a.csv", ("text", "label"), long)
    assert found["student"] == "bilstm"
    assert recipe.student.max_tokens == recipe.teacher.max_tokens == 288
    new = [(f"the of and word{i}", "ab"[i % 2]) for i in range(40)]
    assert written(tmp_path, "a.csv", ("text", "label"), new)[0]["student"] == "bilstm-subwords"


@pytest.mark.parametrize(
    ("header", "given"),
    [
        (("sentence1", "sentence2", "label"), "sentence2"),
        (("问题1", "问题2", "标签"), ""),
        (("问句1", "问句2", "类别"), ""),
    ],
)
def test_no_column_is_both_texts_of_a_pair(tmp_path, header, given):
    rows = [(f"是什么{i}", f"是什么东西呢{i}", "01"[i % 2]) for i in range(40)]
    options = {"columns": ColumnsConfig(text_pair=given)} if given else {}
    columns = written(tmp_path, "a.csv", header, rows, **options)[1].data.columns
    assert (columns.text, columns.text_pair, columns.label) == header
    single = [(f"r{i}", f"what was number {i} before", "01"[i % 2]) for i in range(40)]
    columns = written(tmp_path, "a.csv", ("id", "question_b", "label"), single)[1].data.columns
    assert (columns.text, columns.text_pair) == ("question_b", "")
    with pytest.raises(InputError, match="text and text_pair are both 'x': expected two columns"):
        ColumnsConfig(text="x", text_pair="x")


PAIRS = [(f"what is {i}", f"and what was {i}", "yn"[i % 2]) for i in range(40)]


def test_a_column_that_may_be_the_other_half_of_pairs_is_named(tmp_path, capsys):
    found, recipe = written(tmp_path, "a.csv", ("left", "right", "same"), PAIRS)
    assert (found["other_text"], recipe.data.columns.text) == ("left", "right")
    assert "    # text_pair: left  # not read" in (tmp_path / "mine.yaml").read_text()
    assert main(["init", str(tmp_path / "a.csv"), "--output", str(tmp_path / "b.yaml")]) == 0
    said = ".csv: column 'left' is not read; if each row is a pair, give --data.columns.text-pair 'left'"
    assert said in capsys.readouterr().err
    rows = [(f"{i:08x}-0000-4000", f"what was number {i} before", "yn"[i % 2]) for i in range(40)]
    assert "other_text" not in written(tmp_path, "a.csv", ("id", "right", "same"), rows)[0]


def test_a_file_stands_for_the_recipe_that_init_would_write(tmp_path, capsys):
    _, recipe = written(tmp_path, "a.csv", ("left", "right", "same"), PAIRS)
    source = str(tmp_path / "a.csv")
    assert parse("run", [source]).settings == recipe
    assert (
        "a.csv: 40 rows, classification, text is 'right', label is 'same'; teacher"
        in capsys.readouterr().err
    )
    assert str(parse("run", [source]).folder) == "runs/a"
    asked = ["--data.columns.text-pair", "left", "--student", "decomposable", "--seed", "4"]
    settings = parse("run", [source, *asked]).settings
    assert settings.data.columns == ColumnsConfig("right", "left", "same")
    assert (settings.student.kind, settings.augment.mix.pairs) == ("decomposable", 10)
    assert settings.seed == 4
    assert parse("doctor", [source]).settings == recipe


def test_no_teacher_is_fetched_for_a_file_unless_it_is_named(tmp_path):
    written(tmp_path, "a.csv", ("text", "label"), rows_of(CHINESE, "ab"))
    source = str(tmp_path / "a.csv")
    with pytest.raises(
        InputError, match=r"Chinese.*--teacher\.model macbert-base comes from the hub"
    ):
        parse("run", [source])
    named = parse("run", [source, "--teacher.model", "macbert-base"]).settings
    assert named.teacher.model == "macbert-base"


def test_what_is_no_labelled_text_or_would_be_lost_is_refused(tmp_path):
    with pytest.raises(InputError, match="no column looks like a label; there is 'a'"):
        written(tmp_path, "a.csv", ("a",), [("x",), ("y",)])
    with pytest.raises(InputError, match="column 'label' has one label only, 'x'"):
        written(tmp_path, "a.csv", ("text", "label"), rows_of(ENGLISH, "x"))
    with pytest.raises(InputError, match="--labels spam: one label only; name two or more"):
        init(str(tmp_path / "a.csv"), tmp_path / "mine.yaml", labels=["spam"])
    assert not (tmp_path / "mine.yaml").exists()
    (tmp_path / "mine.yaml").write_text("seed: 3\n")
    with pytest.raises(InputError, match=r"mine\.yaml: is there already"):
        init(str(tmp_path / "a.csv"), tmp_path / "mine.yaml")
    assert (tmp_path / "mine.yaml").read_text() == "seed: 3\n"


def test_rows_without_a_list_of_labels_are_dropped(tmp_path):
    rows = [{"text": f"a b {i}", "label": [["x"], ["x", "y"], [], None][i % 4]} for i in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = init(str(tmp_path / "a.jsonl"), tmp_path / "mine.yaml")
    assert (found["task"], found["rows"]) == ("multi-label", 30)
    assert load_recipe(str(tmp_path / "mine.yaml")).data.missing == "drop"


def test_labels_and_texts_that_would_be_read_wrong_are_refused_or_named(tmp_path, capsys):
    german = [f'"{number / 7:.2f}"'.replace(".", ",") for number in range(30)]
    with pytest.raises(InputError, match="decimal comma, such as '0,00': write them with a point"):
        written(tmp_path, "a.csv", ("text", "label"), rows_of(ENGLISH, german))
    with pytest.raises(InputError, match="has lists written as text, such as \"\\['a'\\]\""):
        written(tmp_path, "a.csv", ("text", "label"), rows_of(ENGLISH, ("['a']", "['b']")))
    first = ("The only time that I have been there was in spring", "bad")
    with pytest.raises(InputError, match="the first line looks like a row: its label, 'bad'"):
        written(tmp_path, "a.csv", first, rows_of(ENGLISH, ("good", "bad")))
    with pytest.raises(InputError, match="the first line looks like a row: its label, '1'"):
        written(tmp_path, "a.csv", ("手机很好用", "1"), rows_of(CHINESE, "01"))
    rows = [{"body": {"text": f"a b {i}"}, "label": "xy"[i % 2]} for i in range(40)]
    nested = tmp_path / "a.jsonl"
    nested.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"column 'body' has .*; expected text"):
        init(str(nested), tmp_path / "mine.yaml")
    rows = [(f"it was {i}", str(i % 2), str(i % 3 // 2)) for i in range(40)]
    found, _ = written(tmp_path, "a.csv", ("text", "toxic", "rude"), rows)
    assert found["other_labels"] == ["rude"]
    assert "# not read: rude; if a text may" in (tmp_path / "mine.yaml").read_text()


def test_three_questions_are_asked_on_a_terminal_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 1
    assert "distillkit init train.csv" in capsys.readouterr().err
    answers = iter(["embedded:questions/train", "", "here.yaml"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    assert main(["init"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["output"] == "here.yaml"
    assert shown.err.endswith("next: distillkit doctor here.yaml, then distillkit run here.yaml\n")
    data = load_recipe("here.yaml").data
    assert (data.dev, data.columns.text_pair) == ("embedded:questions/dev", "text_pair")


@pytest.mark.parametrize(
    ("texts", "who"), [(ENGLISH, "zero_shot: package:"), (CHINESE, "endpoint: {url:")]
)
def test_names_of_classes_are_enough_for_a_recipe(tmp_path, texts, who):
    rows = [(str(i), f"{texts[i % 4]} {i}") for i in range(40)]
    found, recipe = written(tmp_path, "mail.csv", ("id", "body"), rows, labels=("spam", "it's ok"))
    assert (found["task"], found["labels"], found["rows"]) == ("classification", 2, 40)
    data = recipe.data
    assert (data.train, data.unlabelled, data.labels) == (
        "",
        (str(tmp_path / "mail.csv"),),
        ("spam", "it's ok"),
    )
    assert (data.columns.text, recipe.label.budget) == ("body", 2000)
    assert recipe.label.meanings(data.labels)["spam"] == "This is spam."
    text = (tmp_path / "mine.yaml").read_text()
    assert f"label:  # who labels the first texts\n  {who}" in text
    assert "without, no accuracy is known" in text


@pytest.mark.parametrize(
    ("header", "row", "text", "label"),
    [
        (
            ("id", "时间", "反馈", "好坏"),
            lambda i, t, k: (str(i), f"2026-01-02 10:00:{i:02}", t, k),
            2,
            3,
        ),
        (
            ("link", "note", "kind"),
            lambda i, t, k: (f"https://shop.example/product-{i}-review", t, k),
            1,
            2,
        ),
        (
            ("remark", "kind", "split"),
            lambda i, t, k: (t, k, "dev" if i % 9 == 0 else "train"),
            0,
            1,
        ),
        (("remark", "intent", "channel"), lambda i, t, k: (t, k, "ab"[i % 2]), 0, 1),
    ],
)
def test_dates_addresses_and_splits_are_neither_text_nor_label(tmp_path, header, row, text, label):
    texts, labels = ("房间小", "不错", "很差"), ("x", "y", "z")
    rows = [row(i, texts[i % 3], labels[i % 3]) for i in range(40)]
    columns = written(tmp_path, "a.csv", header, rows)[1].data.columns
    assert (columns.text, columns.label) == (header[text], header[label])


def test_a_file_beside_that_has_no_labels_is_not_used(tmp_path, capsys):
    (tmp_path / "test.csv").write_text("id,text\n1,a\n")
    data = written(tmp_path, "train.csv", ("text", "label"), rows_of(ENGLISH, "ab"))[1].data
    assert data.test == ""
    assert (
        f"{tmp_path / 'test.csv'}: not used, as it has no column 'label'" in capsys.readouterr().err
    )


def test_a_file_beside_that_cannot_be_read_is_no_absent_one(tmp_path):
    (tmp_path / "dev.csv").write_bytes("text,label\na,b\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"dev\.csv: is UTF-16"):
        written(tmp_path, "train.csv", ("text", "label"), rows_of(ENGLISH, "ab"))
    given = written(tmp_path, "train.csv", ("text", "label"), rows_of(ENGLISH, "ab"), dev="my.csv")
    assert given[1].data.dev == "my.csv"


def test_the_line_of_a_file_says_what_is_read_and_used(tmp_path, capsys):
    written(tmp_path, "train.csv", ("remark", "kind"), rows_of(ENGLISH, "xy"))
    parse("run", [str(tmp_path / "train.csv"), "--teacher.model", "tiny", "--student", "static"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        "classification, text is 'remark', label is 'kind'; teacher tiny, student static;" in said
    )


def test_what_to_do_next_can_be_pasted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data").mkdir()
    written(tmp_path, "my data/train.csv", ("text", "label"), rows_of(ENGLISH, "ab"))
    assert main(["init", "my data/train.csv", "--output", "my data/new.yaml"]) == 0
    assert "next: distillkit doctor 'my data/new.yaml', then" in capsys.readouterr().err


def test_a_file_named_in_capitals_is_read(tmp_path):
    found, recipe = written(tmp_path, "TRAIN.CSV", ("text", "label"), rows_of(ENGLISH, "ab"))
    assert found["rows"] == 40
    settings = parse("run", [recipe.data.train, "--teacher.model", "tiny"]).settings
    assert settings.data.train == recipe.data.train
