"""Text without labels read, cut into rows in every way there is, and kept for another time."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import datasets
import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import BertTokenizerFast, RobertaTokenizerFast

from distillkit.data.rows import ELSEWHERE, FIRST, FOLLOWS, LATER, SPECIAL, SWAPPED
from distillkit.errors import InputError
from distillkit.recipe import TextConfig
from distillkit.teacher.documents import documents_of, read_corpus

PAD, _, CLS, SEP, _ = range(5)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
HAN = "这部电影很好看不差"


@pytest.fixture(scope="module")
def tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS)]
    words += [*HAN, ".", "'"]
    built = BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, model_max_length=512)
    assert built.tokenize("abc. 好") == ["a", "##b", "##c", ".", "好"]
    return built


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    trained = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(
        ["one two three four. so it is"] * 9, 300, 2, special_tokens=special, show_progress=False
    )
    folder = tmp_path_factory.mktemp("roberta")
    trained.save_model(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text())
    merges = (folder / "merges.txt").read_text().splitlines()[1:]
    built = RobertaTokenizerFast(vocab=vocabulary, merges=[tuple(m.split(" ")) for m in merges])
    assert built.decode(built("one two").input_ids) == "<s>one two</s>"
    return built


@pytest.fixture
def read(tmp_path, tokenizer):
    """Write documents, a line each, and read them into rows."""

    def to_corpus(documents, *, tokenizer=tokenizer, pairs=(0, 0), seed=1, **config):
        path = tmp_path / "text.txt"
        path.write_text("".join(f"{text}\n" for text in documents), encoding="utf-8")
        options = {"sources": (str(path),), "cache": str(tmp_path / "cache")} | config
        config = TextConfig(**{"max_tokens": 8, "workers": 1} | options)
        return read_corpus(config, tokenizer, pairs=pairs, seed=seed)

    return to_corpus


def sides(corpus):
    return corpus.train, corpus.held_out


def parts(tokenizer, rows):
    """Return each row as its tokens, one space between two, and its `words`, a digit each."""
    return [
        (
            " ".join(tokenizer.convert_ids_to_tokens(rows.ids[i:j].tolist())),
            "".join(map(str, rows.words[i:j].tolist())),
        )
        for i, j in pairwise(rows.offsets)
    ]


def written(tokenizer, rows):
    return sorted(row for row, _ in parts(tokenizer, rows))


def marked(tokenizer, corpus):
    """Return `words` of each row of either side, by the row."""
    return dict(pair for rows in sides(corpus) for pair in parts(tokenizer, rows))


# ---- rows of one part


def test_documents_are_rows_cut_at_the_end(read, tokenizer):
    corpus = read(["abc. d", "a b c d e f g h", "Don't"], rows="documents")
    assert marked(tokenizer, corpus) == {
        "[CLS] a ##b ##c . d [SEP]": "0122110",
        "[CLS] a b c d e f [SEP]": "01111110",
        "[CLS] d ##o ##n ' t [SEP]": "0122110",
    }
    assert corpus.train.types is corpus.train.order is None
    assert corpus.train.pad_id == PAD


def test_sentences_are_rows(read, tokenizer):
    corpus = read(["A b. Cd! E", "f. g."], rows="sentences")
    expected = {"a b .", "c ##d [UNK]", "e", "f .", "g ."}
    assert marked(tokenizer, corpus).keys() == {f"[CLS] {row} [SEP]" for row in expected}
    assert corpus.summary["train"]["rows"] + corpus.summary["held_out"]["rows"] == 5
    assert corpus.summary["train"]["documents"] == corpus.summary["held_out"]["documents"] == 1


def packed(read, tokenizer, documents):
    """Return the packed rows of documents, in order, beside one more document that is held out."""
    for number in range(200):  # until chance holds out the further document
        corpus = read([*documents, "z" * (number + 3)], rows="packed", held_out_fraction=0.001)
        held_out = written(tokenizer, corpus.held_out)
        if corpus.summary["held_out"]["documents"] == 1 and "z" in held_out[0]:
            return parts(tokenizer, corpus.train)
    raise AssertionError


@pytest.mark.parametrize(
    ("documents", "rows"),
    [
        (["a b c d e f g", "h i"], ["a b c d e f", "g [SEP] h i"]),  # room for 6
        (["a b c d efg h"], ["a b c d", "e ##f ##g h"]),  # a word is not cut
        (["a b c d ef g"], ["a b c d e ##f", "g"]),
        # unless it is longer than a row; what is left begins as a word does
        (["a bcdefghijkl m"], ["a", "b ##c ##d ##e ##f ##g", "##h ##i ##j ##k ##l m"]),
        # a document that ends where a row does, or a token earlier, has one separator
        (["a b c d e f", "g"], ["a b c d e f", "g"]),
        (["a b c d e", "f g"], ["a b c d e", "f g"]),
        (["a b c d", "e f g"], ["a b c d [SEP] e", "f g"]),
        (["a", "\u200b", "b"], ["a [SEP] b"]),  # a document without a token
    ],
)
def test_packed_documents_stand_end_to_end_with_a_separator_between(
    read, tokenizer, documents, rows
):
    found = packed(read, tokenizer, documents)
    assert [row for row, _ in found] == [f"[CLS] {row} [SEP]" for row in rows]
    for row, mark in found:
        for place, (token, kind) in enumerate(zip(row.split(), map(int, mark), strict=True)):
            later = token.startswith("##") and int(mark[place - 1])
            special = token in ("[CLS]", "[SEP]")
            assert kind == (SPECIAL if special else LATER if later else FIRST)


def test_no_token_is_lost_or_doubled_when_documents_are_packed_over_many_blocks(
    read, tokenizer, monkeypatch
):
    monkeypatch.setattr("distillkit.teacher.documents._BLOCK_CHARACTERS", 200)
    monkeypatch.setattr("distillkit.teacher.cuts._ROWS", 7)
    random = np.random.default_rng(0)
    texts = ["".join(random.choice([*LETTERS, " "], random.integers(3, 90))) for _ in range(300)]
    corpus = read(texts, rows="packed", max_tokens=16, held_out_fraction=0.3)
    expected = Counter(
        token for text in texts for token in tokenizer(text, add_special_tokens=False).input_ids
    )
    got = Counter(
        token for rows in sides(corpus) for token in rows.ids.tolist() if token not in (CLS, SEP)
    )
    assert got == expected
    for rows in sides(corpus):
        assert rows.lengths.max() == 16
        assert rows.lengths[:-1].float().mean() > 13
        assert (rows.ids[rows.offsets[:-1]] == CLS).all()
        assert (rows.ids[rows.offsets[1:] - 1] == SEP).all()
        assert not ((rows.ids[1:] == SEP) & (rows.ids[:-1] == SEP)).any()


def test_special_tokens_in_the_text_are_special(read, tokenizer):
    found = marked(tokenizer, read(["a [MASK] ☂", "b"], rows="documents"))
    assert found["[CLS] a [MASK] [UNK] [SEP]"] == "01010"


def test_words_of_byte_pairs_are_what_the_tokenizer_says(read, roberta):
    texts = ["one two threes.", "so it isnt"]
    found = marked(roberta, read(texts, tokenizer=roberta, rows="documents", max_tokens=32))
    for row, mark in found.items():
        text = roberta.convert_tokens_to_string(row.split()[1:-1])
        ids = roberta.backend_tokenizer.encode(text, add_special_tokens=False).word_ids
        inner = [LATER if word == before else FIRST for before, word in pairwise([None, *ids])]
        assert mark == f"0{''.join(map(str, inner))}0"
    assert any("2" in mark for mark in found.values())


# ---- Chinese


def test_chinese_words_are_the_segmenters(read, tokenizer):
    texts = ["这部电影很好看", "不差。 ab"]
    corpus = read(texts, rows="documents", max_tokens=16)
    found = marked(tokenizer, corpus)
    assert corpus.summary["segmenter"] == "jieba"
    assert found["[CLS] 这 部 电 影 很 好 看 [SEP]"][3:5] == "12"
    assert found["[CLS] 不 差 [UNK] a ##b [SEP]"][-3:] == "120"
    without = marked(tokenizer, read(texts, rows="documents", segmenter="none"))
    assert without["[CLS] 这 部 电 影 很 好 [SEP]"] == "01111110"


def test_a_function_of_the_users_own_finds_words_and_another_version_of_it_others(
    read, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "threes.py"
    module.write_text(
        "def words(text):\n    return [text[i:i + 3] for i in range(0, len(text), 3)]\n"
    )
    options = {"rows": "documents", "segmenter": "threes:words", "max_tokens": 16}
    first = read(["这部电影很好看", "a bc d"], **options)
    assert marked(tokenizer, first) == {
        "[CLS] 这 部 电 影 很 好 看 [SEP]": "012212210",
        "[CLS] a b ##c d [SEP]": "012120",
    }
    module.write_text(module.read_text() + "# changed\n")
    assert read(["这部电影很好看", "a bc d"], **options).summary["key"] != first.summary["key"]


# ---- rows of two parts

# Document n has sentences of its letter and the letters after it, so that every token says where it
# is from: "nxa." is n's sentence a.
DOCUMENTS = [
    ". ".join(f"{LETTERS[n]}{LETTERS[s]} x" for s in range(3 + n % 7)) + "." for n in range(26)
] * 12


def sentence_numbers(tokens):
    """Return (document, sentence) of each word of two letters in one part of a row."""
    words = "".join(tokens).replace("##", "").split(".")
    return [(LETTERS.index(word[0]), LETTERS.index(word[1])) for word in words if word]


@pytest.mark.parametrize(
    ("weights", "kinds"),
    [
        ((1, 0), {FOLLOWS, ELSEWHERE}),
        ((0, 1), {FOLLOWS, SWAPPED}),
        ((0.5, 2), {FOLLOWS, SWAPPED, ELSEWHERE}),
    ],
)
def test_pairs_are_what_their_order_says(read, tokenizer, weights, kinds):
    corpus = read(DOCUMENTS, pairs=weights, max_tokens=24, held_out_fraction=0.3)
    for rows in sides(corpus):
        assert set(rows.order.tolist()) == kinds
        assert rows.order.dtype == torch.int8
        before = None  # the first half of the row before, where its second is from elsewhere
        for number in range(len(rows)):
            batch = rows.batch(torch.tensor([number]))
            types, tokens = (
                batch["token_type_ids"][0],
                tokenizer.convert_ids_to_tokens(batch["input_ids"][0]),
            )
            assert len(tokens) <= 24
            middle = tokens.index("[SEP]")
            assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
            assert types.tolist() == [0] * (middle + 1) + [1] * (len(tokens) - middle - 1)
            a, b = sentence_numbers(tokens[1:middle]), sentence_numbers(tokens[middle + 1 : -1])
            kind = int(rows.order[number])
            assert len({document for document, _ in a}) == len({document for document, _ in b}) == 1
            assert (a[0][0] != b[0][0]) == (kind == ELSEWHERE)
            run = b + a if kind == SWAPPED else a + b
            # What a row from elsewhere has left unread is read next; at its document's start
            # another one begins.
            assert before is None or run[0][1] == 0 or run[0] == (before[-1][0], before[-1][1] + 1)
            before = a if kind == ELSEWHERE else None
            if kind != ELSEWHERE:
                assert [s for _, s in run] == list(range(run[0][1], run[0][1] + len(run)))
            for half in (a, b):
                assert [s for _, s in half] == list(range(half[0][1], half[0][1] + len(half)))
    shares = torch.bincount(corpus.train.order.long(), minlength=3) / len(corpus.train)
    for kind in kinds:
        assert abs(float(shares[kind]) - 1 / len(kinds)) < 0.1


def test_rows_of_pairs_are_filled_and_every_sentence_is_read(read, tokenizer):
    corpus = read(DOCUMENTS, pairs=(0, 1), max_tokens=24, held_out_fraction=0.3)
    # A sentence has 4 tokens: 2 to 5 fit beside the special ones, and of 6 one would be alone.
    full = sum(len(text.split(".")) - 1 in (5, 7, 8, 9) for text in DOCUMENTS)
    assert Counter(n for rows in sides(corpus) for n in rows.lengths.tolist())[23] == full
    found = sum((rows.ids != CLS).logical_and(rows.ids != SEP).sum() for rows in sides(corpus))
    texts = tokenizer(DOCUMENTS, add_special_tokens=False).input_ids
    assert found == sum(map(len, texts))


def test_sentences_too_long_for_a_row_are_cut_where_the_halves_do_not_meet(read, tokenizer):
    long = "a b c d e f g h i j. k l m n o p q r s t."
    corpus = read([long, long.replace(".", " u.")], pairs=(0, 1), max_tokens=13)
    for rows in sides(corpus):
        (row,) = written(tokenizer, rows)
        halves = row.removeprefix("[CLS] ").removesuffix(" [SEP]").split(" [SEP] ")
        first, second = halves[::-1] if int(rows.order[0]) else halves
        assert first.endswith(".")
        assert second.startswith("k l m n o")
        assert rows.lengths.tolist() == [13]


def test_pairs_of_roberta_are_joined_as_it_joins_them(read, roberta):
    texts = ["one two. three four. so it is. four.", "so it is. one. two three."]
    texts = [*texts, "two. two. so.", "it is. two."] * 4
    corpus = read(texts, tokenizer=roberta, pairs=(1, 0), max_tokens=48, held_out_fraction=0.5)
    for rows in sides(corpus):
        assert rows.types is None
        for row in written(roberta, rows):
            assert row.startswith("<s> ")
            assert row.endswith(" </s>")
            assert row.count(" </s> </s> ") == 1
            assert row.count("</s>") == 3
            # A sentence after another one has its space.
            assert all(after.startswith(("Ġ", "</s>")) for after in row.split(" . ")[1:])


def test_documents_of_one_sentence_are_left_out_of_pairs_and_counted(read):
    corpus = read([*DOCUMENTS, "one sentence.", "another"], pairs=(1, 1), held_out_fraction=0.3)
    assert corpus.summary["left_out"] == 2
    documents = [corpus.summary[side]["documents"] for side in ("train", "held_out")]
    assert sum(documents) == len(DOCUMENTS)
    for texts, pairs, said in (
        (["one sentence.", "another"], (0, 1), "0 different documents of two sentences or more"),
        (["One. Two.", "Three. Four."], (1, 0), "expected at least 4, 2 of which to hold out"),
    ):
        with pytest.raises(InputError, match=said):
            read(texts, pairs=pairs)


def test_another_seed_draws_other_pairs_and_other_rows_have_no_seed(read):
    drawn = [read(DOCUMENTS, pairs=(1, 1), seed=seed).train.order.tolist() for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert read(DOCUMENTS, seed=1).summary["key"] == read(DOCUMENTS, seed=2).summary["key"]


# ---- sources


@pytest.fixture
def config_of(tmp_path):
    def build(*sources, **options):
        return TextConfig(sources=sources, cache=str(tmp_path / "cache"), **options)

    return build


def test_a_blank_line_ends_a_document_whose_lines_are_sentences(config_of, tmp_path, tokenizer):
    (tmp_path / "one.txt").write_text("\n\na b. c\nd\n \n\ne\nf\n")
    (tmp_path / "two.txt").write_text("g\n")
    config = config_of(str(tmp_path), documents="blank-line", rows="sentences")
    assert list(documents_of(config)) == ["a b. c\nd", "e\nf", "g"]
    rows = marked(tokenizer, read_corpus(config, tokenizer))
    assert rows.keys() == {f"[CLS] {row} [SEP]" for row in ("a b . c", "d", "e", "f", "g")}


def test_columns_and_datasets_are_read_and_what_is_empty_is_left_out(
    config_of, tmp_path, tokenizer
):
    (tmp_path / "a.tsv").write_text("review\tx\na b\t1\n \t2\n")
    datasets.Dataset.from_dict({"review": ["c", None, "d"]}).save_to_disk(tmp_path / "saved")
    sources = (str(tmp_path / "a.tsv"), f"datasets:{tmp_path / 'saved'}:train")
    config = config_of(*sources, column="review", rows="documents")
    assert list(documents_of(config)) == ["a b", "c", "d"]
    rows = marked(tokenizer, read_corpus(config, tokenizer))
    assert rows.keys() == {"[CLS] a b [SEP]", "[CLS] c [SEP]", "[CLS] d [SEP]"}


def test_a_column_of_a_usual_name_is_found(config_of, tmp_path):
    (tmp_path / "a.tsv").write_text("label\tSentence\n1\ta b\n0\tc\n")
    assert list(documents_of(config_of(str(tmp_path / "a.tsv"), rows="documents"))) == ["a b", "c"]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.txt", "\n \n", {}, "no text in .*a.txt"),
        ("a.txt", "same\nsame \n", {}, "too few .*a.txt; expected at least 2, 1 of which"),
        ("a.tsv", "sentence1\tsentence2\nx\ty\n", {}, "a.tsv:2: no column 'text'; there is"),
        ("a.tsv", "label\nx\n", {}, "a.tsv:2: no column 'text'; there is 'label': name yours with"),
        ("a.jsonl", '{"text": 3}\n', {}, "a.jsonl:1: column 'text' is 3; expected text"),
        ("a.jsonl", '{"text": "\\ud83d"}\n', {}, "a.jsonl:1: .* surrogate pair is no text"),
        ("a.tsv", "text\nx\n", {"documents": "blank-line"}, "is blank-line, expected .txt files"),
        ("b.txt", "", {}, "a.txt: no such file"),
        ("a.txt", "a\nb\n", {"segmenter": "stanza"}, "segmenter 'stanza' is not known"),
        ("a.txt", "a\nb\n", {"sources": ()}, r"adapt\.text\.sources is empty"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    config_of, tmp_path, tokenizer, name, content, options, message
):
    (tmp_path / name).write_text(content)
    config = config_of(str(tmp_path / name.replace("b.txt", "a.txt")))
    with pytest.raises(InputError, match=message) as caught:
        read_corpus(replace(config, **options), tokenizer)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("cache/*"))


# ---- held out


def test_the_same_text_is_never_on_both_sides(read, tokenizer):
    texts = [" ".join(letters) for letters in product("abcdefgh", repeat=3)]
    twice = [*texts, *(f" {text} " for text in texts)]
    corpus = read(twice, rows="documents", held_out_fraction=0.2)
    train, held_out = (Counter(written(tokenizer, rows)) for rows in sides(corpus))
    assert not train.keys() & held_out.keys()
    assert {*train.values(), *held_out.values()} == {2}
    assert 0.15 < len(held_out) / len(texts) < 0.25


@pytest.mark.parametrize("fraction", [0.001, 0.5])
@pytest.mark.parametrize("count", [2, 3])
def test_of_two_documents_either_side_has_one(read, fraction, count):
    for letter in LETTERS[:8]:
        corpus = read([letter * (n + 1) for n in range(count)], held_out_fraction=fraction)
        assert min(corpus.summary[side]["documents"] for side in ("train", "held_out")) >= 1


# ---- kept for another time


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("pairs", [(0, 0), (1, 1)])
def test_the_files_are_the_same_for_any_number_of_workers(read, tmp_path, monkeypatch, pairs):
    monkeypatch.setattr("distillkit.teacher.documents._BLOCK_CHARACTERS", 500)
    found = []
    for workers in (1, 2):
        cache = tmp_path / f"cache-{workers}"
        key = read(DOCUMENTS, pairs=pairs, workers=workers, cache=str(cache)).summary["key"]
        found.append(contents(cache / key))
    assert found[0] == found[1]
    assert ("train-order.npy" in found[0]) == any(pairs)


def test_the_same_text_is_tokenised_once_and_writing_to_rows_leaves_the_cache(read, tmp_path):
    first = read(DOCUMENTS)
    folder = tmp_path / "cache" / first.summary["key"]
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    names = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert names == {"train", "held_out", "summary.json", "checksums.json"}
    ids = first.train.ids.clone()
    first.train.ids.fill_(7)
    again = read(DOCUMENTS, workers=2)
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == before
    assert again.summary == first.summary
    assert torch.equal(again.train.ids, ids)


def test_other_settings_another_text_or_tokenizer_make_other_rows(read, tokenizer, tmp_path):
    other = BertTokenizerFast(vocab=tokenizer.get_vocab() | {"aa": len(tokenizer)})
    changes = [{}, {"max_tokens": 9}, {"rows": "documents"}, {"rows": "sentences"}]
    changes += [{"held_out_fraction": 0.4}, {"pairs": (0, 1)}, {"pairs": (1, 0)}]
    keys = [read(DOCUMENTS, **change).summary["key"] for change in [*changes, {"tokenizer": other}]]
    keys.append(read(DOCUMENTS[1:]).summary["key"])
    assert len(set(keys)) == 9
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 9


@pytest.mark.parametrize("damage", ["gone", "empty", "half", "other"])
def test_damaged_files_are_made_again(read, tmp_path, damage):
    first = read(DOCUMENTS)
    folder = tmp_path / "cache" / first.summary["key"]
    for name in ("train-ids.npy", "held_out-words.npy", "train-offsets.npy", "summary.json"):
        path = folder / name
        whole = path.read_bytes()
        # "other": whole, and of another length, or of another kind
        other = b"[1]" if name == "summary.json" else (folder / "held_out-offsets.npy").read_bytes()
        content = {"empty": b"", "half": whole[: len(whole) // 2], "other": other}
        path.unlink()
        if damage != "gone":
            path.write_bytes(content[damage])
        assert read(DOCUMENTS).train.ids.tolist() == first.train.ids.tolist()
        assert path.read_bytes() == whole


KILLED = """
import os, signal, sys
from transformers import AutoTokenizer
from distillkit.recipe import TextConfig
from distillkit.teacher import documents
write = documents._write_side
def killed(folder, side, *rest):
    if side == "held_out":
        os.kill(os.getpid(), signal.SIGKILL)
    return write(folder, side, *rest)
documents._write_side = killed
config = TextConfig(sources=(sys.argv[1],), cache=sys.argv[2], max_tokens=8)
documents.read_corpus(config, AutoTokenizer.from_pretrained(sys.argv[3]))
"""


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_that_counts(read, tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in DOCUMENTS))
    arguments = [str(tmp_path / name) for name in ("text.txt", "cache", "tokenizer")]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [path.suffix for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [".partial"]
    key = read(DOCUMENTS).summary["key"]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()) == [key]


def test_the_users_cache_folder_is_the_default(read, cache_folder):
    key = read(["a b", "c d"], cache="").summary["key"]
    assert (cache_folder / "text" / key / "summary.json").is_file()


def test_a_slow_tokenizer_is_refused(read):
    from transformers import ByT5Tokenizer

    with pytest.raises(InputError, match="not a fast one"):
        read(["a", "b"], tokenizer=ByT5Tokenizer())
