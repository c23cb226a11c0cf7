"""Read word vectors in GloVe's or word2vec's text form."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from distillkit.errors import InputError


def read_vectors(
    path: Path, words: Sequence[str], width: int = 0, mend: str = "is the file whole?"
) -> tuple[np.ndarray, np.ndarray]:
    """Read the vectors of some words.

    Args:
        path: One word and its numbers a line, split at spaces; a first line of two numbers
            (word2vec's counts) is skipped.
        words: V words.
        width: Numbers a word that the file must have; 0: those of its first word.
        mend: What to do where a line has another width, for the error.

    Returns:
        (V, width) float32, zeros for words that are not in the file; and which are, (V,) bool.

    Raises:
        InputError: A line is no vector, or has another width.
    """
    place = {word: i for i, word in enumerate(words)}
    table, found = np.zeros((len(words), width), np.float32), np.zeros(len(words), bool)
    first = True
    with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        for number, line in enumerate(stream, start=1):
            fields = line.rstrip().split(" ")
            if number == 1 and len(fields) == 2:
                continue
            if first and not width:
                width = max(len(fields) - 1, 1)
                table = np.zeros((len(words), width), np.float32)
            # Some of GloVe's words hold spaces, but not its first: there a wrong width shows.
            if len(fields) - 1 < width or (first and len(fields) - 1 != width):
                raise InputError(
                    f"{path}:{number}: {len(fields) - 1} numbers after the word, expected {width}: {mend}"
                )
            first = False
            i = place.get(" ".join(fields[:-width]))
            if i is not None:
                try:
                    table[i] = [float(n) for n in fields[-width:]]
                except ValueError as error:
                    raise InputError(
                        f"{path}:{number}: {error}; expected a word and {width} numbers"
                    ) from None
                found[i] = True
    return table, found
