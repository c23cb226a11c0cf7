"""What anyone could do without a neural network: the commonest class, and TF-IDF with logistic regression."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from distillkit.data.words import is_unsegmented, split_characters, split_words


def majority_logits(gold: np.ndarray, classes: int, rows: int) -> np.ndarray:
    """Answer every row with the commonest training label.

    Args:
        gold: Training labels, (N,) int.
        classes: C.
        rows: How many rows to answer.

    Returns:
        Log frequency of each class, the same for every row, (rows, C) float.
    """
    share = np.bincount(gold, minlength=classes) / len(gold)
    return np.tile(np.log(np.maximum(share, 1e-9)), (rows, 1))


class TfidfBaseline:
    """TF-IDF over one and two words (one and two characters for unsegmented scripts) and logistic regression.

    Of a pair, both texts' vectors, their product and their absolute difference are the features, as in the siamese student.
    """

    def __init__(self, texts: Sequence[str], text_pairs: Sequence[str] | None, gold: np.ndarray, classes: int) -> None:
        split = split_characters if is_unsegmented(texts) else split_words
        self._tfidf = TfidfVectorizer(ngram_range=(1, 2), tokenizer=split, token_pattern=None)
        self._tfidf.fit([*texts, *(text_pairs or [])])
        self._model = LogisticRegression(max_iter=1000)
        self._model.fit(self._features(texts, text_pairs), gold)
        self._classes = classes

    def _features(self, texts: Sequence[str], text_pairs: Sequence[str] | None) -> Any:
        a = self._tfidf.transform(texts)
        if text_pairs is None:
            return a
        b = self._tfidf.transform(text_pairs)
        return csr_matrix(hstack([a, b, a.multiply(b), abs(a - b)]))

    def logits(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> np.ndarray:
        """Return log probabilities, (N, C) float."""
        known = self._model.predict_log_proba(self._features(texts, text_pairs))
        out = np.full((len(texts), self._classes), -1e9)
        out[:, self._model.classes_] = known
        return out
