"""WordNet as raw text, from a small folder of its form."""

import json
import zipfile
from dataclasses import replace

import nltk
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit import runs
from distillkit.cli import main
from distillkit.data.readers import read_rows
from distillkit.errors import InputError
from distillkit.pipeline import read_data
from distillkit.pipeline.raw_text import settle_raw_text
from distillkit.recipe import ColumnsConfig, DataConfig, Recipe, load_recipe

LICENCE = "  1 This software and database is being provided to you, the LICENSEE | all of it\n"
LINES = {
    "data.adj": '00 00 a 01 black 0 000 | (of coffee) without cream; "he drank it black" ; "a black one"\n',
    "data.adv": "01 02 r 01 well 0 000 | in a good manner; with skill\n",
    "data.noun": '02 03 n 01 plot 0 000 | the story that is told; "plot"\n',
    "data.verb": "03 04 v 01 end 0 000 | come to a close; \"the film 'ended' late\"\n",
}
TEXTS = [
    *("(of coffee) without cream", "he drank it black", "a black one"),
    *("in a good manner; with skill", "the story that is told"),
    *("come to a close", "the film 'ended' late"),
]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "wordnet"
    folder.mkdir()
    for name, line in LINES.items():
        (folder / name).write_text(LICENCE + line)
    return folder


@pytest.fixture
def installed(folder, tmp_path, monkeypatch):
    """WordNet where nltk looks for it, and nowhere else."""
    (tmp_path / "nltk" / "corpora").mkdir(parents=True)
    folder.rename(tmp_path / "nltk" / "corpora" / "wordnet")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
    monkeypatch.setattr("distillkit.data.wordnet._DEBIAN", str(tmp_path / "none"))


@pytest.fixture
def task(tmp_path):
    """A function that writes texts as training data, and returns the section that names them."""

    def write(*texts, pairs=False, **settings):
        table = {"text": texts, "label": ["no", "yes"] * (len(texts) // 2)}
        if pairs:
            table["text_pair"] = texts
        pq.write_table(pa.table(table), tmp_path / "train.parquet")
        columns = ColumnsConfig(text_pair="text_pair" if pairs else "")
        train = str(tmp_path / "train.parquet")
        return DataConfig(train=train, dev=train, columns=columns, **settings)

    return write


ENGLISH = ("what is the end of it ?", "the plot is thin and so is this coffee .")


def test_nobody_who_has_wordnet_need_name_it(installed, task):
    settled, why = settle_raw_text(task(*ENGLISH, unlabelled=("auto",)))
    assert (settled.unlabelled, settled.unlabelled_rows) == (("wordnet",), 30_000)
    assert (
        why
        == "WordNet is installed: 30,000 of its texts are the raw text; --data.unlabelled with no value leaves them out"
    )
    few = task(*ENGLISH, unlabelled=("auto",), unlabelled_rows=2)
    assert settle_raw_text(few)[0].unlabelled_rows == 2
    assert len(read_data(few)["unlabelled"]) == 2
    assert settle_raw_text(settled) == (settled, "")  # what is said is left alone


@pytest.mark.parametrize(
    ("texts", "pairs", "why"),
    [
        (
            ("was ist das hier ?", "der Film ist gut , und er ist lang ."),
            False,
            "WordNet is English",
        ),
        (("这部电影很好看", "电影院的座位很好"), False, "WordNet is English"),
        (("good", "bad"), False, "WordNet is English"),
        (ENGLISH, True, "the rows are pairs"),
    ],
)
def test_auto_takes_no_raw_text_that_is_unlike_the_task(installed, task, texts, pairs, why):
    settled, said = settle_raw_text(task(*texts, pairs=pairs, unlabelled=("auto",)))
    assert settled.unlabelled == ()
    assert said.startswith("no raw text: ")
    assert why in said


def test_where_wordnet_is_absent_auto_says_the_command_and_goes_on(task, monkeypatch, tmp_path):
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr("distillkit.data.wordnet._DEBIAN", str(tmp_path / "none"))
    data = task(*ENGLISH, unlabelled=("auto",))
    settled, why = settle_raw_text(data)
    assert settled.unlabelled == ()
    assert "python -m nltk.downloader wordnet" in why
    assert "unlabelled" not in read_data(data)


def test_auto_stands_alone():
    with pytest.raises(
        InputError, match=r"data\.unlabelled is auto, more\.txt: expected auto alone"
    ):
        DataConfig(unlabelled=("auto", "more.txt"))


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_run_takes_wordnet_unasked_and_its_recipe_says_so(tiny_recipe, tmp_path, capsys):
    data = replace(tiny_recipe.data, unlabelled=Recipe().data.unlabelled)
    result = runs.run(replace(tiny_recipe, data=data), tmp_path / "run")
    assert result["transfer_set"]["unlabelled"] == len(TEXTS)
    saved = load_recipe(str(tmp_path / "run" / "recipe.yaml"))
    assert (saved.data.unlabelled, saved.data.unlabelled_rows) == (("wordnet",), 30_000)
    assert (
        "data: WordNet is installed: 30,000 of its texts are the raw text; --data.unlabelled with no value leaves them out"
        in capsys.readouterr().err
    )


def texts(source):
    return [row["text"] for _, row in read_rows(source)]


def test_definitions_and_examples_are_the_texts(folder):
    assert texts(f"wordnet:{folder}") == TEXTS
    assert next(read_rows(f"wordnet:{folder}"))[0] == f"{folder}/data.adj:2"


def test_nltks_own_corpus_is_found_unpacked_or_not(folder, tmp_path, monkeypatch):
    corpora = tmp_path / "nltk" / "corpora"
    corpora.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
    with zipfile.ZipFile(corpora / "wordnet.zip", "w") as archive:
        for name in LINES:
            archive.write(folder / name, f"wordnet/{name}")
    assert texts("wordnet") == TEXTS
    (corpora / "wordnet.zip").unlink()
    folder.rename(corpora / "wordnet")
    assert texts("wordnet") == TEXTS


def test_what_is_not_there_is_said_with_the_command_that_gets_it(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr("distillkit.data.wordnet._DEBIAN", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"python -m nltk\.downloader wordnet"):
        texts("wordnet")
    (folder / "data.verb").unlink()
    with pytest.raises(InputError, match=r"expected a folder with data\.adj, data\.adv"):
        texts(f"wordnet:{folder}")


def test_a_transfer_set_takes_it_as_unlabelled_text(folder, tmp_path, capsys):
    source, target = tmp_path / "train.tsv", tmp_path / "transfer.parquet"
    source.write_text(
        "sentence\tlabel\nthe film is good .\tkind\nin a good manner; with skill\tkind\n"
    )
    options = ["--data.columns.text", "sentence", "--augment.n-iter", "0"]
    unlabelled = ["--unlabelled", f"wordnet:{folder}"]
    assert main(["augment", str(source), str(target), *options, *unlabelled]) == 0
    rows = pq.read_table(target)
    assert rows["text"].to_pylist()[2:] == [text for text in TEXTS if "skill" not in text]
    assert set(rows["origin"].to_pylist()[2:]) == {"unlabelled"}


def test_a_task_takes_so_many_raw_texts_and_cuts_what_is_longer_than_its_own(tmp_path, train_table):
    train, raw = tmp_path / "train.jsonl", tmp_path / "raw.txt"
    train.write_text("".join(json.dumps(row) + "\n" for row in train_table.to_pylist()))
    short = [f"a plot of {number} parts" for number in range(50)]
    cut = ["One long text has two sentences in it.", "They are cut apart, as nobody wrote so much."]
    raw.write_text("".join(f"{line}\n" for line in [*short, *short, " ".join(cut)]))
    data = DataConfig(train=str(train), dev_fraction=0.2, unlabelled=(str(raw),))
    found = {
        rows: read_data(replace(data, unlabelled_rows=rows), seed)["unlabelled"]["text"].to_pylist()
        for rows, seed in ((0, 1), (1000, 1), (20, 1), (20, 2), (21, 2))
    }
    assert found[0] == [*short, *short, " ".join(cut)]  # as they are
    assert found[1000] == [*short, *cut]
    assert len(set(found[20])) == 20
    again = read_data(replace(data, unlabelled_rows=20), 1)["unlabelled"]["text"].to_pylist()
    assert again != found[20]  # the last of the two seeds
    assert [text for text in found[1000] if text in again] == again
    with pytest.raises(InputError, match=r"unlabelled_rows is 5, but data\.unlabelled is empty"):
        DataConfig(unlabelled_rows=5)
