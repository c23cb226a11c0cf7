"""What a word is, said once: the augmenter's taggers and the student's tokenizer cut text alike."""

from collections.abc import Sequence
from itertools import islice

import regex

# A run of letters and digits with inner apostrophes (isn't), an English clitic that stands alone as
# in Penn tokens ('s, n't), or one other sign. Combining marks (\p{M}) belong to the word; both
# regular-expression engines that read this pattern agree on it.
WORD_PATTERN = r"[\w\p{M}]+(?:['’][\w\p{M}]+)*|['’](?:s|re|ve|ll|d|m|t)\b|[^\w\s\p{M}]"
# A run of Latin letters and digits, or one character of anything else: for scripts written without
# spaces.
CHARACTER_PATTERN = r"[A-Za-z0-9]+|[^\s]"

_CHARACTER = regex.compile(CHARACTER_PATTERN)
_WORD = regex.compile(WORD_PATTERN)
# Thai, Lao, Myanmar and Khmer; kana; Han.
_UNSEGMENTED = regex.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
_HAN = regex.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")

# Common words of English that are rare in its neighbours, and the least share of a text's words
# that they make up: a fifth of most English, less than 1 % of German, French, Dutch or Spanish.
_ENGLISH = frozenset(
    ["the", "of", "and", "to", "that", "it", "for", "with", "you", "this", "are", "what"]
)
_LEAST = 0.05


def split_words(text: str) -> list[str]:
    """Cut a text into words and signs; what lies between them is white space.

    >>> split_words("It isn't bad, does n't drag.")
    ['It', "isn't", 'bad', ',', 'does', "n't", 'drag', '.']
    """
    return _WORD.findall(text)


def split_characters(text: str) -> list[str]:
    """Cut a text into characters, runs of Latin letters and digits kept whole.

    >>> split_characters("买了iPhone，很好")
    ['买', '了', 'iPhone', '，', '很', '好']
    """
    return _CHARACTER.findall(text)


def is_unsegmented(texts: Sequence[str]) -> bool:
    """Say whether most letters of the first 1,000 texts are of a script without spaces."""
    return _share(_UNSEGMENTED, texts) > 0.5


def is_chinese(texts: Sequence[str]) -> bool:
    """Say whether most letters of the first 1,000 texts are Han characters."""
    return _share(_HAN, texts) > 0.5


def is_english(texts: Sequence[str]) -> bool:
    """Say whether some texts are in English, by its commonest words.

    >>> is_english(["What is the capital of Chile?"]), is_english(["Was ist die Hauptstadt?"])
    (True, False)
    """
    words = [word.lower() for text in texts for word in split_words(text)]
    return sum(word in _ENGLISH for word in words) > _LEAST * len(words)


def _share(pattern: regex.Pattern[str], texts: Sequence[str]) -> float:
    sample = "".join(islice(texts, 1000))
    letters = sum(character.isalpha() for character in sample)
    return len(pattern.findall(sample)) / max(letters, 1)
