"""The student's tokenizer, a fast one of transformers: words, characters, subwords or bytes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from distillkit.data.word_pieces import LONGEST_WORD, count_words, train_word_pieces
from distillkit.data.words import CHARACTER_PATTERN, WORD_PATTERN, is_unsegmented
from distillkit.errors import InputError
from distillkit.recipe import VocabularyConfig
from distillkit.student.words import FIRST_BYTE

PAD, UNKNOWN = "[PAD]", "[UNK]"
_BEGINS = (
    "\u0120",
    "\u2581",
)  # before what begins a word: byte-level BPE's sign of a space, and sentencepiece's


def build_tokenizer(
    texts: Sequence[str],
    config: VocabularyConfig,
    max_tokens: int,
    mask: str = "",
    teacher: Any = None,
) -> Any:
    """Build a student's tokenizer, its vocabulary what is most frequent in the texts.

    Args:
        texts: Training and transfer text; dev and test text must not be among it.
        config: Words, characters, subwords or bytes; how many, how frequent.
        max_tokens: Where the tokenizer truncates.
        mask: The transfer set's mask word. The student reads it as its unknown word, so masking
            trains that word's vector.
        teacher: The teacher's fast tokenizer, for unit teacher and for `teacher_words`.

    Returns:
        A transformers fast tokenizer, lower-casing (but for unit teacher); `[PAD]` is 0, `[UNK]`,
        also its mask token, is 1. The second text of a pair has token type
        1; nothing is added to a text.

    Raises:
        InputError: A teacher with a fast tokenizer is asked for, and there is none.
    """
    if (config.unit == "teacher" or config.teacher_words) and (
        teacher is None or not teacher.is_fast
    ):
        setting, way = (
            ("unit is teacher", "choose word")
            if config.unit == "teacher"
            else ("teacher_words is set", "leave it out")
        )
        raise InputError(
            f"student.vocabulary.{setting}, but no teacher with a fast tokenizer was given: give --teacher, or {way}"
        )
    if config.unit == "teacher":
        return _of_teacher(teacher, max_tokens)
    special = [PAD, UNKNOWN]
    if config.unit == "hashed":
        tokenizer = _of_bytes(special)
    else:
        characters = config.unit == "character" or (config.unit == "auto" and is_unsegmented(texts))
        pattern = Regex(CHARACTER_PATTERN if characters else WORD_PATTERN)
        tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    options: dict[str, Any] = {
        "min_frequency": config.min_count,
        "special_tokens": special,
        "show_progress": False,
    }
    if config.unit == "word-piece":
        words = count_words(_without(texts, mask), tokenizer.normalizer, tokenizer.pre_tokenizer)
        subwords = train_word_pieces(words, config.size - len(special), config.min_count)
        tokenizer.model = _word_piece([*special, *subwords])
        tokenizer.add_special_tokens(special)
    elif config.unit != "hashed":
        tokenizer.train_from_iterator(
            _without(texts, mask),
            trainers.WordLevelTrainer(vocab_size=config.size - config.subwords, **options),
        )
        subwords = (
            _subwords(tokenizer, _without(texts, mask), config.subwords) if config.subwords else []
        )
        theirs = _whole_words(teacher, tokenizer) if config.teacher_words else []
        entries = list(dict.fromkeys([*words_of(tokenizer), *subwords, *theirs]))[: config.size]
        tokenizer.model = _word_piece(entries) if subwords else _words(entries)
    return _wrapped(
        tokenizer, max_tokens, {"pad_token": PAD, "unk_token": UNKNOWN, "mask_token": UNKNOWN}
    )


def _word_piece(subwords: Sequence[str]) -> models.WordPiece:
    vocabulary = {subword: i for i, subword in enumerate(subwords)}
    return models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD)


def _words(words: Sequence[str]) -> models.WordLevel:
    return models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN)


def _subwords(tokenizer: Tokenizer, texts: Iterable[str], wanted: int) -> list[str]:
    """Train the subwords that out-of-vocabulary words are read as."""
    # Each word once, known or not: what a server meets for the first time is like the rare words,
    # and most distinct words are rare.
    distinct = dict.fromkeys(count_words(texts, tokenizer.normalizer, tokenizer.pre_tokenizer), 1)
    return train_word_pieces(distinct, wanted, least=1)


def _whole_words(teacher: Any, tokenizer: Tokenizer) -> list[str]:
    """List a teacher's entries that are whole words to the student, as it writes them, in order."""
    model = json.loads(teacher.backend_tokenizer.to_str())["model"]
    continues = model.get("continuing_subword_prefix") or ""
    found = []
    for entry in words_of(teacher):
        # WordPiece marks what continues a word; byte pairs and sentencepiece what begins one.
        if entry.startswith(continues) if continues else not entry.startswith(_BEGINS):
            continue
        word = tokenizer.normalizer.normalize_str(teacher.convert_tokens_to_string([entry]).strip())
        if [cut for cut, _ in tokenizer.pre_tokenizer.pre_tokenize_str(word)] == [word]:
            found.append(word)
    return found


def _of_bytes(special: list[str]) -> Tokenizer:
    """Return a tokenizer of UTF-8's bytes: byte b is FIRST_BYTE + b, whatever else is special."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters: dict[int, str] = {}  # a printable character for each byte that UTF-8 has
    for code in (*range(0x800), *range(0x800, 0xD800, 0x400), *range(0xE000, 0x110000, 0x400)):
        letters |= zip(chr(code).encode(), split.pre_tokenize_str(chr(code))[0][0], strict=True)
    vocabulary = {PAD: 0, UNKNOWN: 1} | {
        letter: FIRST_BYTE + byte for byte, letter in sorted(letters.items())
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    tokenizer.add_special_tokens(special)
    return tokenizer


def with_backend(tokenizer: Any, backend: Tokenizer) -> Any:
    """Return a fast tokenizer like another that reads text by its own backend, also when saved.

    Of its own class a BERT's would be read again with that class's defaults: lower-cased.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=list(tokenizer.model_input_names),
        **tokenizer.special_tokens_map,
    )


def _of_teacher(teacher: Any, max_tokens: int) -> Any:
    tokens = {
        name: teacher.special_tokens_map[name]
        for name in ("pad_token", "unk_token", "mask_token")
        if name in teacher.special_tokens_map
    }
    return _wrapped(Tokenizer.from_str(teacher.backend_tokenizer.to_str()), max_tokens, tokens)


def _wrapped(tokenizer: Tokenizer, max_tokens: int, tokens: dict[str, str]) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0", pair="$A:0 $B:1", special_tokens=[]
    )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_tokens,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **tokens,
    )


def _without(texts: Iterable[str], mask: str) -> Iterator[str]:
    return (text.replace(mask, " ") if mask else text for text in texts)


def words_of(tokenizer: Any) -> list[str]:
    """List a tokenizer's vocabulary in the order of its ids."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)
