"""WordNet as raw text: its glosses and examples (Miller 1995, DOI 10.1145/219717.219748)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upath import UPath

from distillkit.errors import InputError

FILES = ("data.adj", "data.adv", "data.noun", "data.verb")
_DEBIAN = "/usr/share/wordnet"
_EXAMPLE = re.compile(r'"([^"]+)"')
_LEAST_WORDS = 3  # of an example; shorter ones are phrases


def wordnet_files(source: str) -> list[UPath]:
    """Return WordNet's data files.

    Args:
        source: `wordnet`, for where nltk or Debian's wordnet-base keeps them, or `wordnet:FOLDER`.

    Raises:
        InputError: They are not there.
    """
    folder = source.removeprefix("wordnet").removeprefix(":")
    places = [UPath(folder)] if folder else _usual_places()
    for place in places:
        files = [place / name for name in FILES]
        if all(file.is_file() for file in files):
            return files
    if folder:
        raise InputError(f"{source}: expected a folder with {', '.join(FILES)}")
    raise InputError(
        "wordnet: not installed; get it with python -m nltk.downloader wordnet (or, on Debian, apt install wordnet-base), "
        "or name a folder with its data files as wordnet:FOLDER"
    )


def _usual_places() -> Iterator[UPath]:
    import nltk.data

    for folder in nltk.data.path:
        corpora = Path(folder) / "corpora"
        yield UPath(corpora / "wordnet")
        if (corpora / "wordnet.zip").is_file():
            yield UPath(f"zip://wordnet::{corpora / 'wordnet.zip'}")
    yield UPath(_DEBIAN)


def glosses_of(lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Turn the lines of a data file, each with its place, into rows of one text.

    A synset's line ends in its gloss: a definition, then examples in quotation marks.

    >>> gloss = '... | coffee with cream; "he drank it black" ; "a black one, please"'
    >>> [row["text"] for _, row in glosses_of(iter([("data.adj:30", gloss)]))]
    ['coffee with cream', 'he drank it black', 'a black one, please']
    """
    for place, line in lines:
        # The licence's lines begin with spaces.
        gloss = "" if line.startswith("  ") else line.partition(" | ")[2]
        examples = [text.strip() for text in _EXAMPLE.findall(gloss)]
        definition = _EXAMPLE.sub("", gloss).partition('"')[0].strip(" ;:,")
        for text in (
            definition,
            *(text for text in examples if len(text.split()) >= _LEAST_WORDS),
        ):
            if text:
                yield place, {"text": text}
