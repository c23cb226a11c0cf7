"""Text cut into words, as `runtime.words` says what a word is, and the languages told apart."""

import re
from collections.abc import Callable, Sequence

import regex

from distillkit.runtime.words import CHARACTER_PATTERN as CHARACTER_PATTERN
from distillkit.runtime.words import WORD_PATTERN as WORD_PATTERN
from distillkit.runtime.words import is_unsegmented as is_unsegmented
from distillkit.runtime.words import share_of

_CHARACTER = regex.compile(CHARACTER_PATTERN)
_WORD = regex.compile(WORD_PATTERN)
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")

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


def splitter(texts: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what cuts such texts: `split_characters` for unsegmented scripts, or `split_words`."""
    return split_characters if is_unsegmented(texts) else split_words


def split_characters(text: str) -> list[str]:
    """Cut a text into characters, runs of Latin letters and digits kept whole.

    >>> split_characters("买了iPhone，很好")
    ['买', '了', 'iPhone', '，', '很', '好']
    """
    return _CHARACTER.findall(text)


def is_chinese(texts: Sequence[str]) -> bool:
    """Say whether most letters of some texts, evenly spaced, are Han characters."""
    return share_of(_HAN, texts) > 0.5


def is_english(texts: Sequence[str]) -> bool:
    """Say whether some texts are in English, by its commonest words.

    >>> is_english(["What is the capital of Chile?"]), is_english(["Was ist die Hauptstadt?"])
    (True, False)
    """
    words = [word.lower() for text in texts for word in split_words(text)]
    return sum(word in _ENGLISH for word in words) > _LEAST * len(words)
