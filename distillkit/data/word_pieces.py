"""Word pieces trained on text, the same ones each time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

CONTINUES = "##"
# Characters: BERT's tokenizer, and ours, do not look into a longer word.
LONGEST_WORD = 100

_TEXTS = 4096  # read together
_TIMES = 1000  # of a word, given to the trainer together
_PRIVATE = 0xF0000  # first of the characters that stand for no letter


def count_words(texts: Iterable[str], normalizer: Any, pre_tokenizer: Any) -> Counter[str]:
    """Count words as a tokenizer cuts and writes them.

    Args:
        texts: Read once; memory holds their distinct words.
        normalizer: One of `tokenizers` that looks at no character beyond a space.
        pre_tokenizer: Likewise.
    """
    words: Counter[str] = Counter()
    stream = iter(texts)
    while some := list(islice(stream, _TEXTS)):
        # What stands between two spaces is looked at once.
        chunks = Counter(chunk for text in some for chunk in text.split())
        for chunk, count in chunks.items():
            for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(chunk)):
                words[word] += count
    return words


def train_word_pieces(words: Mapping[str, int], wanted: int, least: int = 2) -> list[str]:
    """Train word pieces; characters come first, by code point, then what is merged of them.

    The library's trainer of word pieces numbers the characters that continue a word in an order
    that changes from process to process, and merges equally frequent pairs in that of their
    numbers. Its trainer of byte pairs sorts characters. So it gets the words with a character of
    its own for each that continues one.

    Args:
        words: How often each occurs; those longer than `LONGEST_WORD`, and with characters of
            Unicode's last private planes, are passed over.
        wanted: Pieces, at most.
        least: A pair that occurs less often is not merged.

    Returns:
        Pieces in the order of their ids; `##` stands before one that continues a word. They do not
        depend on the order of the words.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    usual = {
        w: n for w, n in words.items() if 0 < len(w) <= LONGEST_WORD and max(w) < chr(_PRIVATE)
    }
    counts: Counter[str] = Counter()
    for word, count in usual.items():
        for place, character in enumerate(word):
            counts[CONTINUES * (place > 0) + character] += count
    kept = sorted(counts, key=lambda piece: (-counts[piece], piece))[:wanted]
    later = {
        piece[-1]: chr(_PRIVATE + i)
        for i, piece in enumerate(sorted(p for p in kept if len(p) > 1))
    }
    first = {piece for piece in kept if len(piece) == 1}
    written = {
        word[0] + "".join(later[character] for character in word[1:]): count
        for word, count in usual.items()
        if word[0] in first and later.keys() >= set(word[1:])
    }
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator(
        _repeated(written),
        trainers.BpeTrainer(vocab_size=wanted, min_frequency=least, show_progress=False),
    )
    plain = {mark: character for character, mark in later.items()}
    vocabulary = trained.get_vocab()
    return [
        CONTINUES * (piece[0] in plain)
        + "".join(plain.get(character, character) for character in piece)
        for piece in sorted(vocabulary, key=vocabulary.__getitem__)
    ]


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yield every word as often as it was counted."""
    for word, count in words.items():
        for start in range(0, count, _TIMES):
            yield " ".join([word] * min(_TIMES, count - start))
