import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from distillkit import LossConfig, pipeline
from distillkit.data.batches import encode
from distillkit.errors import InputError
from distillkit.recipe import (
    EmbeddingConfig,
    StudentConfig,
    TrainingConfig,
    VocabularyConfig,
    load_recipe,
)
from distillkit.student.vocabulary import build_tokenizer, words_of

TEXTS = ["The film, the FILM isn't good", "the plot"]


def build(texts=TEXTS, max_tokens=16, mask="", **options):
    return build_tokenizer(texts, VocabularyConfig(**{"unit": "word"} | options), max_tokens, mask)


def test_padding_is_0_unknown_and_mask_are_1_and_words_follow_by_frequency():
    tokenizer = build()
    assert words_of(tokenizer)[:4] == ["[PAD]", "[UNK]", "the", "film"]
    assert sorted(words_of(tokenizer)[4:]) == [",", "good", "isn't", "plot"]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id) == (0, 1, 1)


def test_words_are_lower_cased_composed_and_cut_as_the_augmenter_cuts_them():
    tokenizer = build(["café"])
    assert tokenizer("CAFE\u0301")["input_ids"] == [2]
    assert build().tokenize("The film, isn't") == ["the", "film", ",", "isn't"]


def test_unknown_words_are_1_and_an_empty_text_has_no_tokens():
    assert build()("plot zebra")["input_ids"][1] == 1
    assert build()(["", "  "])["input_ids"] == [[], []]


def test_the_second_text_of_a_pair_has_type_1_and_nothing_is_added():
    found = build()("the film", "plot")
    assert found["token_type_ids"] == [0, 0, 1]
    assert len(found["input_ids"]) == 3


@pytest.mark.parametrize("max_tokens", [1, 3])
def test_texts_are_truncated_at_max_tokens(max_tokens):
    tokenizer = build(max_tokens=max_tokens)
    whole = build()("the film isn't good")["input_ids"]
    assert tokenizer("the film isn't good", truncation=True)["input_ids"] == whole[:max_tokens]


def test_of_a_pair_the_longer_side_is_truncated_and_both_sides_stay():
    found = build(max_tokens=4)("the film the film the film", "plot good", truncation=True)
    assert found["token_type_ids"] == [0, 0, 1, 1]


def test_size_counts_the_special_tokens_and_rare_words_go_first():
    assert words_of(build(size=4)) == ["[PAD]", "[UNK]", "the", "film"]
    assert words_of(build(min_count=2)) == ["[PAD]", "[UNK]", "the", "film"]


WORDS = [f"{a}{b}" for a in ("film", "plot", "play", "work") for b in ("s", "ed", "ing", "er")]


def test_subwords_read_words_that_never_came_also_where_every_word_that_came_is_known():
    tokenizer = build(WORDS, size=200, subwords=60)
    assert [tokenizer.tokenize(word) for word in WORDS] == [[word] for word in WORDS]
    assert tokenizer.unk_token not in (new := tokenizer.tokenize("ploterings"))
    assert "".join(new).replace("##", "") == "ploterings"
    assert tokenizer.tokenize("zebra") == ["[UNK]"]  # a letter that no word had
    assert len(tokenizer) <= 200


def test_subwords_read_the_words_that_the_size_leaves_no_room_for():
    tokenizer = build(["the film the plot", *WORDS], size=54, subwords=50)
    assert words_of(tokenizer)[:4] == ["[PAD]", "[UNK]", "the", "film"]
    assert "[UNK]" not in tokenizer.tokenize(" ".join(WORDS))


def of_word_pieces():
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "[unused0]",
        "trauma",
        "##ing",
        "Plot",
        "film",
        "can't",
        "电",
        "!",
    ]
    return BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, do_lower_case=True)


def of_byte_pairs(mark):
    words = [
        "<s>",
        "</s>",
        mark,
        f"{mark}trauma",
        "ing",
        f"{mark}Plot",
        f"{mark}plot",
        f"{mark}film",
        f"{mark}电",
        f"{mark}!",
    ]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<s>")


def of_bytes():
    tokenizer = of_byte_pairs("\u0120")
    # As a byte-level vocabulary writes it: a letter a byte.
    written = pre_tokenizers.ByteLevel(add_prefix_space=True).pre_tokenize_str("电")[0][0]
    words = [word if word != "\u0120电" else written for word in words_of(tokenizer)]
    tokenizer.backend_tokenizer.model = models.BPE({word: i for i, word in enumerate(words)}, [])
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize(
    "teacher",
    [of_word_pieces(), of_byte_pairs("\u2581"), of_bytes()],
    ids=["wordpiece", "sentencepiece", "bytes"],
)
@pytest.mark.parametrize("subwords", [0, 20])
def test_the_teachers_words_follow_those_of_the_text(teacher, subwords):
    config = VocabularyConfig("word", 100, subwords=subwords, teacher_words=True)
    tokenizer = build_tokenizer(["the film", "film"], config, 16, teacher=teacher)
    words = words_of(tokenizer)
    assert words[:4] == ["[PAD]", "[UNK]", "film", "the"]
    assert words[words.index("trauma") :][:2] == ["trauma", "plot"]
    assert not {"ing", "[unused0]", "unused0", "Plot", ""} & set(words)
    assert (subwords > 0) == ("##e" in words)
    assert tokenizer.tokenize("Trauma plot 电!") == ["trauma", "plot", "电", "!"]


def test_the_teachers_words_have_the_room_that_the_size_leaves():
    def size(limit):
        config = VocabularyConfig("word", limit, teacher_words=True)
        return words_of(build_tokenizer(["the film"] * 2, config, 16, teacher=of_word_pieces()))[2:]

    assert sorted(size(5)) == ["film", "the", "trauma"]
    assert sorted(size(3)) in (["film"], ["the"])


def test_the_teachers_characters_are_known_to_a_student_of_characters():
    config = VocabularyConfig("character", 100, teacher_words=True)
    tokenizer = build_tokenizer(["很好看的影"], config, 16, teacher=of_word_pieces())
    assert tokenizer.tokenize("电影") == ["电", "影"]


def test_the_teachers_words_need_a_teacher():
    with pytest.raises(
        InputError,
        match=r"vocabulary.teacher_words is set, but no teacher with a fast tokenizer was given",
    ):
        build_tokenizer(["the film"], VocabularyConfig("word", teacher_words=True), 16)


@pytest.mark.parametrize("unit", ["character", "auto"])
def test_characters_are_single_but_latin_runs_stay_whole(unit):
    tokenizer = build(["很好看的电影", "不错 DVD"], unit=unit)
    assert tokenizer.tokenize("好电影dvd") == ["好", "电", "影", "dvd"]


def test_auto_takes_words_for_english():
    assert words_of(build(unit="auto")) == words_of(build(unit="word"))


def test_the_mask_is_no_word_and_reaches_the_student_as_its_own_mask():
    tokenizer = build(["the [MASK] film", "mask[MASK]"], mask="[MASK]")
    assert sorted(words_of(tokenizer)) == ["[PAD]", "[UNK]", "film", "mask", "the"]
    the, film = tokenizer("the film")["input_ids"]
    ids = encode(tokenizer, ["the [MASK] film", "the[MASK]"], None, 16, mask="[MASK]").ids.tolist()
    assert ids == [the, 1, film, the, 1]


def test_dev_words_are_unknown_to_a_trained_student(tmp_path):
    train = [
        {"text": f"{word} film", "label": label} for word, label in (("good", "1"), ("bad", "0"))
    ]
    dev = [{"text": "splendid film", "label": "1"}, {"text": "dreary film", "label": "0"}]
    for name, rows in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pipeline.train_student(
        pipeline.StudentJob(
            str(tmp_path / "train.jsonl"),
            str(tmp_path / "dev.jsonl"),
            tmp_path / "student",
            StudentConfig(hidden_size=2, head_size=2, embeddings=EmbeddingConfig("random", 3)),
            loss=LossConfig(alpha=1.0),
            training=TrainingConfig(epochs=1, precision="fp32"),
        )
    )
    saved = json.loads((tmp_path / "student" / "tokenizer.json").read_text())
    assert set(saved["model"]["vocab"]) == {"[PAD]", "[UNK]", "good", "bad", "film"}


def test_a_recipe_with_the_old_names_means_the_same_and_is_told_the_new_ones(tmp_path, capsys):
    (tmp_path / "r.yaml").write_text(
        "student: {use: bilstm-pieces, vocabulary: {pieces: 7}, embeddings: {width: 9}}"
    )
    student = load_recipe(str(tmp_path / "r.yaml")).student
    assert (student.vocabulary.subwords, student.embeddings.dimension) == (7, 9)
    assert student.embeddings.channels == "multi"
    told = capsys.readouterr().err
    assert all(name in told for name in ("bilstm-subwords", "subwords", "dimension"))
