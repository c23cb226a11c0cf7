"""Damaged and hostile files: each is a table, a recipe or logits, or one line that names the file.

Small valid files are cut, copied about, overwritten, and have hostile values written into them.
"""

import csv
import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distillkit import pipeline
from distillkit.data.logits import join_logits
from distillkit.data.tables import read_table, write_table
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, Recipe, dump, load_recipe
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.logits_file import LogitsFile

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("DISTILLKIT_EXAMPLES", 100))  # a test
# The limit of 10 seconds an example is Hypothesis' own.
OFTEN = settings(max_examples=EXAMPLES, deadline=10_000, suppress_health_check=list(HealthCheck))
GOLDEN = Path(__file__).parent.parent / "golden" / "0.1"

ROWS = [
    {"text": f"a film of {n} acts", "label": "ab"[n % 2], "logits": [n, -1.5]} for n in range(9)
]
TABLE = pa.Table.from_pylist(ROWS)
HOSTILE = [
    *(
        b"",
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\n",
        b"\r",
        b"\t",
        b",",
        b'"',
        b"'",
        b"\\",
        b"nan",
    ),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"9" * 5_000, b"9" * 400, b"-", b"0x" + b"f" * 9_000),
    *(b"Infinity", b"1e999", b"NaN", b"null", b"true", b'"\\ud800"', b'"text": "a", "text": "b"'),
    *(b"x" * 5_000, b"&a [*a, *a]", b"*a", b"!!bool x", b"!!int ''", b"!!timestamp a", b"<<: *a"),
    *(
        b"!!python/name:os.system",
        b"use: bilstm\n",
        b"? ",
        b"---\n",
        b"...\n",
        b"- ",
        b"{a: ",
        b"|",
    ),
    *("\u2028".encode(), "é".encode(), b"\xef\xbb\xbf", b"1:2:3", b"0.5", b"text", b"\x80" * 40),
]


def as_parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def delimited(mark):
    lines = [("text", "label"), *((row["text"], row["label"]) for row in ROWS)]
    return "".join(f"{a}{mark}{b}\n" for a, b in lines).encode()


def own_table(path):
    write_table(TABLE.select(["text", "label"]), path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@st.composite
def mutated(draw, start):
    """Return a valid file's bytes after one to four accidents."""
    data = start
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 12)))
        with_ = draw(st.sampled_from(HOSTILE) | st.binary(max_size=4))
        data = draw(
            st.sampled_from(
                [
                    data[:at] + with_ + data[at:],
                    data[:at] + with_ + data[until:],
                    data[:at] + data[until:],
                    data[:until] + data[at:],
                    data[:at],
                ]
            )
        )
    return data


def attempt(read, path):
    """Return what is read, or None after an error of one line that names the file."""
    try:
        return read(str(path))
    except InputError as error:
        said = str(error)
    assert path.name in said
    assert "\n" not in said
    assert len(said) <= 2_000
    return None


def rows_in(path):
    """Count a readable file's rows by another way than the readers'."""
    if path.suffix == ".parquet":
        return pq.read_metadata(path).num_rows
    text = path.read_bytes().decode("utf-8-sig")
    if path.suffix == ".csv":
        mark = next((mark for mark in ",;\t" if mark in text.split("\n")[0]), ",")
        return sum(map(bool, csv.reader(io.StringIO(text, newline=""), delimiter=mark))) - 1
    lines = [line.rstrip("\r") for line in text.split("\n")]
    blank = (lambda line: not line) if path.suffix == ".tsv" else (lambda line: not line.strip())
    return sum(not blank(line) for line in lines) - (path.suffix == ".tsv")


FILES = {
    "a.tsv": lambda _: delimited("\t"),
    "a.csv": lambda _: delimited(","),
    "a.jsonl": lambda _: "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "a.json": lambda _: "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "a.parquet": lambda _: as_parquet(TABLE),
    "plain.parquet": lambda _: as_parquet(TABLE, use_dictionary=False, compression="none"),
    "own.parquet": own_table,
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_table_is_read_or_refused_and_no_row_is_lost_in_silence(name, place, capsys):
    path = Path(place / name)

    @OFTEN
    @given(data=mutated(FILES[name](path)), task=st.sampled_from(["classification", "multi-label"]))
    def check(data, task):
        path.write_bytes(data)
        capsys.readouterr()
        table = attempt(
            lambda source: read_table(source, ColumnsConfig(), task=task, missing="drop"), path
        )
        said = re.search(r"([\d,]+) rows lack a value", capsys.readouterr().err)
        if table is not None:
            table.validate(full=True)
            dropped = int(said[1].replace(",", "")) if said else 0
            assert len(table) + dropped == rows_in(path)

    check()


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "plain.parquet"])
def test_damaged_logits_are_read_or_refused(name, place):
    path = Path(place / f"logits-{name}")

    def read(source):
        file = LogitsFile(source, ColumnsConfig())
        return file.name_labels(["a", "b", "c"][: file.classes], [])

    @OFTEN
    @given(data=mutated(FILES[name](path)))
    def check(data):
        path.write_bytes(data)
        attempt(read, path)

    check()


def test_a_damaged_recipe_is_loaded_or_refused(place):
    path = place / "fuzzed.yaml"

    @OFTEN
    @given(data=mutated(dump(Recipe()).encode()))
    def check(data):
        path.write_bytes(data)
        recipe = attempt(load_recipe, path)
        if recipe is not None:
            path.write_text(dump(recipe), encoding="utf-8")
            assert load_recipe(str(path)) == recipe

    check()


@pytest.mark.parametrize("name", ["manifest.json", "shard"])
def test_a_damaged_store_is_joined_or_refused(name, place):
    store = place / f"store-{name}"
    texts = TABLE.select(["text"])
    pipeline.label(texts, store, logits=TABLE.select(["text", "logits"]), labels=("a", "b"))
    (file,) = store.rglob(name if name != "shard" else "*.parquet")
    whole = file.read_bytes()
    right = join_logits(texts, store)

    @OFTEN
    @given(data=mutated(whole))
    def check(data):
        file.write_bytes(data)
        found = attempt(lambda source: join_logits(texts, Path(source)), store)
        assert found is None or np.array_equal(found, right)

    check()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_checkpoint_is_loaded_or_refused(name, place):
    folder = shutil.copytree(GOLDEN / "students" / "static", place / f"checkpoint-{name}")

    @OFTEN
    @given(data=mutated((folder / name).read_bytes()))
    def check(data):
        (folder / name).write_bytes(data)
        attempt(load_classifier, folder)

    check()
