"""Text of other kinds than a task's, to fit and measure a rule that refuses it."""

import importlib.resources
import string

import numpy as np

from distillkit.data.readers import EMBEDDED, read_rows
from distillkit.data.wordnet import wordnet_files
from distillkit.errors import InputError

_WORDNET_ROWS = 3000
_RANDOM_ROWS = 100


def foreign_texts(*sources: str, seed: int = 1) -> dict[str, list[str]]:
    """Return texts by kind, at least 100 of each.

    They are the other embedded corpora, single sentences (half of them in 17 languages, half in
    English of many registers), random characters, and WordNet where it is installed.

    Args:
        sources: The task's: embedded corpora among them are left out.
        seed: Draws WordNet's rows and the random characters.
    """
    rng = np.random.default_rng(seed)
    found = {
        name: [row["text"] for _, row in read_rows(f"embedded:{name}/unlabelled")]
        for name in EMBEDDED
        if not any(source.startswith(f"embedded:{name}/") for source in sources)
    }
    place = importlib.resources.files("distillkit") / "data" / "embedded" / "foreign.txt"
    found["sentences"] = place.read_text(encoding="utf-8").splitlines()
    characters = np.array(list(string.ascii_lowercase + string.digits + ".,;:!?-_#@%" + " " * 6))
    lengths = rng.integers(5, 80, _RANDOM_ROWS)
    found["random characters"] = ["".join(rng.choice(characters, size)) for size in lengths]
    try:
        wordnet_files("wordnet")
    except InputError:
        return found
    rows = [row["text"] for _, row in read_rows("wordnet")]
    drawn = rng.choice(len(rows), min(_WORDNET_ROWS, len(rows)), replace=False)
    return found | {"wordnet": [rows[i] for i in drawn]}
