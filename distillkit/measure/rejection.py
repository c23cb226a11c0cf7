"""A rule that refuses text unlike the training text, from words alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression

from distillkit.runtime.answers import own_scores

# Share of own rows that may be refused.
REFUSED = 0.01
# A word below this count in the training text is as good as unseen: names, misspellings.
_LEAST_COUNT = 3
# Words with a weight of their own, which cost about 5 bytes each in a bundle of one file.
_MOST_WORDS = 2000
# Foreign rows that the rule is not fitted on but measured on: one in so many.
_HELD_OUT = 5
# Inverse of the penalty, of scikit-learn's `LogisticRegression`.
_STRENGTH = 3.0
_DECIMALS = 1

Rows = Sequence[Sequence[str]]


def fit_rejection(own: Rows, foreign: Mapping[str, Rows], dev: Rows) -> dict[str, Any] | None:
    """Fit a rule that tells own text from foreign text, and refuses at most 1 % of own rows.

    A logistic regression on a row's words, each divided by the root of their number. Words that are
    rare in `own` share one weight, so that text with many unknown words is refused whatever they
    are. The threshold is the conformal quantile of dev's scores.

    Args:
        own: Words of training rows.
        foreign: Words of other text, by kind.
        dev: Words of rows that training has not seen.

    Returns:
        `weights`, `rare` and `threshold` as `runtime.answers.own_scores` takes them; `own_refused`,
        the share of dev's rows refused; `foreign_refused`, by kind, the share of its held-out rows.
        None if dev has fewer than 99 rows with words, or own text repeats no word.

    Source: the quantile, Angelopoulos & Bates 2021 (arXiv 2107.07511), section 4.4.
    """
    rank = int(REFUSED * (len(dev) + 1) + 1e-9)
    counts = Counter(chain.from_iterable(own))
    known = [word for word, n in counts.most_common(_MOST_WORDS) if n >= _LEAST_COUNT]
    if not rank or not known:
        return None
    column = {word: i for i, word in enumerate(known)}
    held_out = {kind: rows[::_HELD_OUT] for kind, rows in foreign.items()}
    fitted = [[row for i, row in enumerate(rows) if i % _HELD_OUT] for rows in foreign.values()]
    # Own text counts as much as all foreign text, of which every kind counts the same.
    parts = [own, *fitted]
    weights = [len(own) / len(part) / (len(fitted) if i else 1) for i, part in enumerate(parts)]
    sizes = [len(part) for part in parts]
    model = LogisticRegression(C=_STRENGTH, max_iter=500).fit(
        vstack([_shares(part, column) for part in parts]),
        np.repeat([1] + [0] * len(fitted), sizes),
        np.repeat(weights, sizes),
    )
    *weights, rare = model.coef_[0].round(_DECIMALS).tolist()
    rule: dict[str, Any] = {"weights": dict(zip(known, weights, strict=True)), "rare": rare}
    scores = own_scores(dev, rule)
    # Rounded down: other machines compute other last digits.
    lowest = float(np.sort(scores)[rank - 1])
    if not np.isfinite(lowest):  # so many rows without a word
        return None
    threshold = float(np.floor(lowest * 1e4) / 1e4)
    return {
        "threshold": threshold,
        "own_refused": float((scores < threshold).mean()),
        "foreign_refused": {
            kind: float((own_scores(rows, rule) < threshold).mean())
            for kind, rows in held_out.items()
        },
        **rule,
    }


def _shares(rows: Rows, column: Mapping[str, int]) -> csr_matrix:
    """Return each row's words over the root of their number, (N, K + 1); the last column is rare."""
    lengths = [len(row) for row in rows]
    places = [column.get(word, len(column)) for row in rows for word in row]
    values = np.repeat(np.maximum(lengths, 1) ** -0.5, lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return csr_matrix((values, places, starts), shape=(len(rows), len(column) + 1))
