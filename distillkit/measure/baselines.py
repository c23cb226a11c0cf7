"""Baselines without a trained network: one answer to all, and linear models over features."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse
from scipy.special import log_expit, log_softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from distillkit.data.words import splitter
from distillkit.recipe import Task


def majority_logits(
    gold: np.ndarray, classes: int, rows: int, task: Task = "classification"
) -> np.ndarray:
    """Answer every row alike: the commonest training label, labels of most rows, or the mean score.

    Ours because scikit-learn's `DummyClassifier` has no column for a class without training rows.

    Args:
        gold: Training labels as `data.gold.gold_of` gives them, nothing missing.
        classes: C.
        rows: How many rows to answer.
        task: The kind of task.

    Returns:
        Log frequency of each class, log odds of each label, or the mean score, (rows, C) float.
    """
    if task == "regression":
        return np.full((rows, 1), gold.mean())
    if task == "multi-label":
        return np.tile(_log_odds(gold.mean(axis=0)), (rows, 1))
    share = np.bincount(gold, minlength=classes) / len(gold)
    return np.tile(np.log(np.maximum(share, 1e-9)), (rows, 1))


class FrozenBaseline:
    """A linear model over vectors of texts that nothing has trained for the task.

    Logistic regression (one a label), or ridge regression for scores. The features of a pair are
    both vectors, their product and their absolute difference, as in the siamese student.

    Args:
        vectors: N texts to vectors, (N, D), dense or sparse.
        texts: Training texts.
        text_pairs: Their second texts, or None.
        gold: Their labels as `data.gold.gold_of` gives them, nothing missing.
        classes: C.
        task: The kind of task.
        inverse_penalty: Of a classification: the larger, the closer the fit; scikit-learn's C.
    """

    def __init__(
        self,
        vectors: Callable[[Sequence[str]], Any],
        texts: Sequence[str],
        text_pairs: Sequence[str] | None,
        gold: np.ndarray,
        classes: int,
        task: Task = "classification",
        *,
        inverse_penalty: float = 1.0,
    ) -> None:
        self._vectors, self._task, self._classes = vectors, task, classes
        self._model = _MODELS[task]()
        if task == "classification":
            self._model.set_params(C=inverse_penalty)
        self._model.fit(self._features(texts, text_pairs), gold)

    def _features(self, texts: Sequence[str], text_pairs: Sequence[str] | None) -> Any:
        a = self._vectors(texts)
        if text_pairs is None:
            return a
        b = self._vectors(text_pairs)
        if issparse(a):
            return csr_matrix(hstack([a, b, a.multiply(b), abs(a - b)]))
        return np.hstack([a, b, a * b, abs(a - b)])

    def logits(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> np.ndarray:
        """Return log probabilities, the log odds of each label, or scores, (N, C) float."""
        features = self._features(texts, text_pairs)
        if self._task == "regression":
            return self._model.predict(features)[:, None]
        if self._task == "multi-label":
            # For a single label scikit-learn returns both answers, no and yes.
            return _log_odds(self._model.predict_proba(features)[:, -self._classes :])
        out = np.full((len(texts), self._classes), -1e9)
        odds = self._model.decision_function(features)
        # In float32 the smaller of two probabilities is soon 0, and its logarithm infinite.
        found = np.stack([-odds, odds], 1) if odds.ndim == 1 else odds
        found = log_expit(found) if odds.ndim == 1 else log_softmax(found, axis=1)
        out[:, self._model.classes_] = found
        return out


class TfidfBaseline(FrozenBaseline):
    """The same over TF-IDF of one and two words; arguments as for `FrozenBaseline`.

    Its inverse penalty is 10: with scikit-learn's 1 it scores up to 4 points less on dev
    (benchmarks/accuracies.md).
    """

    def __init__(
        self,
        texts: Sequence[str],
        text_pairs: Sequence[str] | None,
        *labelled: Any,
        inverse_penalty: float = 10.0,
    ) -> None:
        tfidf = TfidfVectorizer(
            ngram_range=(1, 2), tokenizer=splitter(texts), token_pattern=None
        ).fit([*texts, *(text_pairs or [])])
        super().__init__(
            tfidf.transform, texts, text_pairs, *labelled, inverse_penalty=inverse_penalty
        )


_MODELS: dict[Task, Callable[[], Any]] = {
    "classification": lambda: LogisticRegression(max_iter=1000),
    "multi-label": lambda: OneVsRestClassifier(LogisticRegression(max_iter=1000)),
    "regression": Ridge,
}


def _log_odds(share: np.ndarray) -> np.ndarray:
    share = np.clip(share.astype(np.float64), 1e-9, 1 - 1e-9)  # in float32 the last is 1
    return np.log(share) - np.log1p(-share)
