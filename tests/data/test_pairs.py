"""Pairs are never read as single texts: they are found, or refused with the flag that names them."""

import pyarrow as pa
import pytest

from distillkit.cli import main
from distillkit.data.tables import is_second_name, read_table, write_table
from distillkit.pipeline import train_teacher
from distillkit.recipe import ColumnsConfig, DataConfig, TeacherConfig, TrainingConfig

PAIRS = pa.table(
    {
        "text": ["is it open", "is it open", "who won"],
        "text_pair": ["when does it open", "who won", "the winner"],
        "label": ["yes", "no", "yes"],
    }
)
FLAG = "--data.columns.text-pair text_pair"


@pytest.fixture
def own(tmp_path):
    write_table(PAIRS, tmp_path / "pairs.parquet")
    return str(tmp_path / "pairs.parquet")


def refused(capsys, *command):
    assert main(list(map(str, command))) == 1
    return capsys.readouterr().err.splitlines()[-1]


def test_an_own_table_with_second_texts_is_a_table_of_pairs(own):
    assert read_table(own, ColumnsConfig()).equals(PAIRS)
    assert read_table(own, ColumnsConfig(), labels="ignored")["text_pair"].to_pylist()[0] == (
        "when does it open"
    )


def test_augment_keeps_the_pairs_of_an_own_table(own, tmp_path, capsys):
    target = tmp_path / "transfer.parquet"
    assert main(["augment", own, str(target), "--augment.n-iter", "2"]) == 0
    made = read_table(str(target), ColumnsConfig(), labels="optional")
    assert made.filter(pa.compute.equal(made["origin"], "original"))["text_pair"].to_pylist() == (
        PAIRS["text_pair"].to_pylist()
    )
    capsys.readouterr()


@pytest.mark.parametrize(
    "command",
    [
        ("augment", "SOURCE", "out.parquet"),
        ("label", "SOURCE", "store", "--teacher", "TEACHER"),
        (
            "train-student",
            "bilstm",
            "--transfer-set",
            "SOURCE",
            "--dev",
            "SOURCE",
            "--output",
            "s",
            "--loss.alpha",
            "1",
        ),
        ("evaluate", "TEACHER", "SOURCE"),
        ("predict", "TEACHER", "SOURCE"),
        ("train-teacher", "minilm-l6", "--data.train", "SOURCE", "--output", "t"),
        ("run", "quickstart", "--data.train", "SOURCE"),
    ],
    ids=lambda command: command[0],
)
def test_an_unused_second_text_is_refused_with_the_flag(
    command, classifier_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    given = {"SOURCE": "embedded:questions/train", "TEACHER": classifier_folder}
    line = refused(capsys, *(given.get(part, part) for part in command))
    assert "train.tsv:2: column 'text_pair' looks like the second text" in line
    assert FLAG in line
    assert not list(tmp_path.glob("*.parquet"))


def test_run_asks_for_the_column_in_the_recipe(pair_table, encoder_folder, tmp_path, capsys):
    """What a recipe does not say, its card, doctor and student would not know."""
    write_table(pair_table, tmp_path / "pairs.parquet")
    data = [f"--data.{split}={tmp_path / 'pairs.parquet'}" for split in ("train", "dev", "test")]
    line = refused(
        capsys,
        *("run", "quickstart", *data, "--data.unlabelled", "--output", tmp_path / "run"),
        *("--teacher.model", encoder_folder, "--student.embeddings.source", "random"),
    )
    assert "a table of pairs; set data.columns.text_pair to text_pair" in line


def test_a_teacher_of_pairs_answers_no_single_texts(pair_table, encoder_folder, tmp_path, capsys):
    write_table(pair_table, tmp_path / "pairs.parquet")
    write_table(pair_table.drop(["text_pair"]), tmp_path / "single.parquet")
    config = TeacherConfig(model=encoder_folder, training=TrainingConfig(epochs=1))
    data = DataConfig(train=str(tmp_path / "pairs.parquet"), dev=str(tmp_path / "pairs.parquet"))
    teacher = tmp_path / "teacher"
    train_teacher(data, config, teacher)
    single = tmp_path / "single.parquet"
    for command in (
        ["label", single, tmp_path / "store", "--teacher", teacher],
        ["evaluate", teacher, single],
        ["predict", teacher, single],
    ):
        line = refused(capsys, *command)
        assert "single texts" in line
        assert "--data.columns.text-pair" in line
    assert not (tmp_path / "store").exists()
    assert main(["predict", str(teacher), str(tmp_path / "pairs.parquet")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(pair_table)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("text", "text_pair"),
        ("sentence1", "sentence2"),
        ("sentence_A", "sentence_B"),
        ("question1", "question2"),
        ("premise", "hypothesis"),
        ("#1 String", "#2 String"),
    ],
)
def test_names_of_second_texts(first, second):
    assert is_second_name(second, first)
    assert not is_second_name(first, second)


@pytest.mark.parametrize("other", ["title", "comment", "id", "text", "source", "label2"])
def test_other_columns_are_nobody_s_second_text(other):
    assert not is_second_name(other, "text")


def test_numbers_in_such_a_column_are_no_text(tmp_path):
    (tmp_path / "a.tsv").write_text("text\ttext_2\tlabel\ngood\t0.5\tyes\nbad\t0.1\tno\n")
    assert read_table(str(tmp_path / "a.tsv"), ColumnsConfig()).num_rows == 2
