"""`evaluate` and `predict`: what a model, student or teacher, answers."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from scipy.special import softmax

from distillkit.data.batches import encode, word_pieces
from distillkit.data.content import texts_of
from distillkit.data.gold import check_labels_known, check_task, gold_of, label_names
from distillkit.data.labels import labels_of, task_of_model, unnamed
from distillkit.data.memory import source_of
from distillkit.data.scratch import TEMPORARY
from distillkit.data.tables import BLOCK_ROWS, blocks_of, mask_of, read_table
from distillkit.errors import InputError
from distillkit.measure.metrics import expected_calibration_error, metrics
from distillkit.measure.statistics import cross_scaled
from distillkit.pipeline.results import Scores
from distillkit.pipeline.task import COLUMNS, check_pairs, check_reads
from distillkit.recipe import ColumnsConfig, Task
from distillkit.runtime.answers import answered, answers, check_finite
from distillkit.runtime.bundle import is_bundle, read_bundle
from distillkit.runtime.explain import explain
from distillkit.runtime.tokens import listed
from distillkit.teacher.checkpoint import load_classifier, match_labels, max_tokens_of, task_of
from distillkit.training.inference import predict_logits

if TYPE_CHECKING:
    from distillkit.data.memory import Rows


def evaluate(
    model: str, source: "Rows", columns: ColumnsConfig = COLUMNS, teacher: str = ""
) -> Scores:
    """Measure a model, student or teacher, on labelled text.

    Args:
        model: Folder, package or hub name of a fine-tuned model, or a bundle; it says itself what a
            label is.
        source: Labelled rows, also in memory as `data.memory.source_of` takes them.
        columns: Names of its columns.
        teacher: Another model of the same task, to report agreement with.
    """
    model, source = str(model), source_of(source, "source")
    own = Path(model)
    task = cast(Task, read_bundle(own)[0].task) if is_bundle(own) else task_of(model)
    table = read_table(source, columns, task=task, scratch=TEMPORARY)
    logits, names = classify(model, table, source)
    other = classify(teacher, table, source, names)[0] if teacher else None
    gold = TEMPORARY.stacked(gold_of(block, names, task) for block in blocks_of(table))
    found = metrics(task, logits, gold, names, other)
    if task == "classification":
        scaled = softmax(cross_scaled(logits, gold), axis=1)
        found["calibration_error_scaled"] = expected_calibration_error(scaled, gold)
    return Scores(**found)


def classify(
    model: str, table: pa.Table, source: str, order: Sequence[str] | None = None
) -> tuple[np.ndarray, list[str]]:
    """Return a model's logits for a canonical table, (N, C) float32, and the C labels they are for.

    Args:
        model: Folder, package or hub name of a fine-tuned model, or a bundle, whose logits are
            divided by its temperature.
        table: N rows.
        source: Named in errors.
        order: Labels in the order wanted; None: the model's own.

    Raises:
        InputError: The table has a label that the model has not, or of another task, or the model's
            labels are not those of `order`, or a logit is NaN or infinite.
    """
    pairs = "text_pair" in table.column_names
    if is_bundle(Path(model)):
        from distillkit.runtime import Predictor

        bundle = Predictor(model, threads=0)
        check_pairs(model, bundle.manifest.pairs, pairs=pairs, source=source)
        task = cast(Task, bundle.manifest.task)
        names = _fitting(model, bundle.manifest.labels, table, task, source)

        def ask(texts: list[str], text_pairs: list[str] | None) -> np.ndarray:
            return bundle.logits(texts, text_pairs) / bundle.manifest.temperature
    else:
        network, tokenizer = load_classifier(model)
        check_reads(model, network, pairs=pairs, source=source)
        names = _fitting(model, labels_of(network), table, task_of_model(network.config), source)
        limit = max_tokens_of(network, tokenizer)
        mask, pieces = mask_of(table), None
        if len(table) > BLOCK_ROWS:
            pieces = word_pieces(tokenizer, limit)

        def ask(texts: list[str], text_pairs: list[str] | None) -> np.ndarray:
            rows = encode(tokenizer, texts, text_pairs, limit, mask=mask, pieces=pieces)
            return predict_logits(network, rows).numpy()

    def checked(block: pa.Table) -> np.ndarray:
        texts = texts_of(block)
        found = ask(*texts)
        check_finite(model, found, texts[0])
        return found

    logits = TEMPORARY.stacked(map(checked, blocks_of(table)))
    if order is None:
        return logits, names
    if set(names) != set(order):
        raise InputError(
            f"{model}: its labels ({', '.join(names)}) are not those it is compared with ({', '.join(order)}); give models of the same labels"
        )
    return logits[:, [names.index(name) for name in order]], list(order)


def _fitting(model: str, names: list[str], table: pa.Table, task: Task, source: str) -> list[str]:
    """Check that a table's labels are a model's, and return what its logits are for."""
    if "label" not in table.column_names:
        return names
    check_task(table, task, source)
    if unnamed(names):
        names = match_labels(names, label_names(table, source), model)
    check_labels_known(table, names, source)
    return names


class Classifier:
    """A fine-tuned model in torch that answers as a bundle's `Predictor` does.

    Args:
        model: Folder, package or hub name of a fine-tuned model.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._network, self._tokenizer = load_classifier(model)
        self.labels = labels_of(self._network)
        self.task = task_of_model(self._network.config)

    def logits(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> np.ndarray:
        """Return the logits of N texts or pairs, (N, C) float32.

        Raises:
            InputError: A logit is NaN or infinite, or the model takes the other of pairs and texts.
        """
        texts, text_pairs = listed(texts, text_pairs)
        if not texts:
            return np.empty((0, len(self.labels)), np.float32)
        source = f"{texts[0][:40]!r}"
        check_reads(self._model, self._network, pairs=text_pairs is not None, source=source)
        limit = max_tokens_of(self._network, self._tokenizer)
        encoded = encode(self._tokenizer, texts, text_pairs, limit)
        logits = predict_logits(self._network, encoded).numpy()
        check_finite(self._model, logits, texts)
        return logits

    def predict(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the answers of N texts or pairs, as `runtime.answers.answers` gives them."""
        logits = self.logits(texts, text_pairs).astype(np.float64)
        return list(answers(self.task, logits, self.labels))

    def explain(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the answers of N texts or pairs, with each word's share; see `runtime.explain`."""
        texts, text_pairs = listed(texts, text_pairs)
        found = self.predict(texts, text_pairs)
        why = explain(self.logits, self.task, self.labels, texts, text_pairs)
        return [answer | words for answer, words in zip(found, why, strict=True)]


def predict(
    model: str,
    rows: Iterable[tuple[str, str | None]],
    batch_rows: int = 64,
    *,
    explained: bool = False,
) -> Iterator[dict[str, Any]]:
    """Answer texts or pairs as they come.

    Args:
        model: Folder, package or hub name of a fine-tuned model.
        rows: (text, None) or (text, second text).
        batch_rows: Rows a forward pass; 1 answers each row at once.
        explained: Add each word's share, as `runtime.explain` does.

    Yields:
        For each row, in order, `text`, `text_pair` (pairs only) and the answer, as
        `runtime.answers.answers` has it.

    Raises:
        InputError: A logit is NaN or infinite.
    """
    classifier = Classifier(model)
    ask = classifier.explain if explained else classifier.predict
    yield from answered(rows, batch_rows, ask)
