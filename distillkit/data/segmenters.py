"""Word segmenters for scripts without spaces: any callable that turns a text into words."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import version

import numpy as np

from distillkit.data.functions import function_version, load_function
from distillkit.data.words import is_chinese
from distillkit.errors import InputError

# Words come in the order of the text and stand in it letter by letter; what lies between them is of
# no word.
Segmenter = Callable[[str], Sequence[str]]
_SETTING = "adapt.text.segmenter"


def resolve_segmenter(name: str, texts: Sequence[str]) -> str:
    """Say what `auto` means for these texts: jieba if they are Chinese, else none."""
    return name if name != "auto" else "jieba" if is_chinese(texts) else "none"


@lru_cache(maxsize=1)
def load_segmenter(name: str) -> Segmenter | None:
    """Find a segmenter by name.

    Args:
        name: `jieba`, `none` or MODULE:FUNCTION.

    Returns:
        None for `none`.

    Raises:
        InputError: There is no such segmenter, or it is not installed.
    """
    if name == "none":
        return None
    if name == "jieba":
        return _jieba()
    if ":" not in name:
        raise InputError(
            f"{_SETTING} {name!r} is not known; expected auto, jieba, none, or MODULE:FUNCTION"
        )
    return load_function(name, _SETTING)


def segmenter_version(name: str) -> str:
    """Name a segmenter so that another version of it has another name.

    Raises:
        InputError: There is no such segmenter, or it is not installed.
    """
    load_segmenter(name)
    if name == "jieba":
        return f"jieba {version('jieba')}"
    return name if name == "none" else function_version(name, _SETTING)


def own_segmenter(name: str) -> dict[str, str]:
    """Return the version of a segmenter that is the user's code, which can change; else nothing."""
    return {_SETTING: segmenter_version(name)} if ":" in name else {}


def word_numbers(segmenter: Segmenter, name: str, text: str) -> np.ndarray:
    """Say of each character which word it is of.

    Args:
        segmenter: Finds the words.
        name: Its name, for the error.
        text: T characters.

    Returns:
        The word's number, from 0, and -1 for a character of no word, (T,) int64.

    Raises:
        InputError: A word does not stand in the text, or not in its turn.
    """
    numbers = np.full(len(text), -1)
    end = 0
    for number, word in enumerate(segmenter(text)):
        if word.isspace():
            continue
        start = text.find(word, end)
        if start < 0:
            raise InputError(
                f"{_SETTING} {name!r}: found the word {word!r}, which the text has not after character {end}; expected the text's own words in its order"
            )
        end = start + len(word)
        numbers[start:end] = number
    return numbers


def _jieba() -> Segmenter:
    try:
        import jieba
    except ImportError:
        raise InputError(
            f"{_SETTING} jieba: pip install 'distillkit[zh]'; or choose none"
        ) from None
    jieba.setLogLevel("ERROR")
    cut: Segmenter = jieba.lcut
    return cut
