"""What the page shows beyond `result.json`: answers row by row, and what follows from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import regex

from distillkit import pipeline
from distillkit.data.checked import read_parquet
from distillkit.data.content import texts_of
from distillkit.data.gold import gold_of
from distillkit.data.logits import join_logits, joined_labels, read_store, stored_rows
from distillkit.data.scores import dev_score
from distillkit.data.tables import mask_of, read_table, spread_rows, take_rows
from distillkit.data.words import WORD_PATTERN, is_unsegmented, split_characters, split_words
from distillkit.measure.closing import interval
from distillkit.measure.statistics import cross_scaled
from distillkit.recipe import SCORES, ColumnsConfig, Task
from distillkit.runtime.answers import confidence, expit, softmax

_ROWS = 5000  # of a split that both models answer, at most
_DOUBTFUL = 50  # rows of a split whose label is most likely wrong
_BINS = 10
_GROUPS, _OF_A_GROUP = 8, 4  # of the transfer set's rows

AGREE = "all agree"
_KINDS = (AGREE, "student errs", "teacher errs", "both err alike", "all three differ")


@dataclass(frozen=True)
class Answered:
    """The rows of a split with gold labels and two models' logits.

    Attributes:
        split: dev or test.
        table: N rows.
        gold: As `data.gold.gold_of` gives it.
        student: Logits, (N, C), not divided by a temperature.
        teacher: Logits, (N, C).
    """

    split: str
    table: pa.Table
    gold: np.ndarray
    student: np.ndarray
    teacher: np.ndarray


@dataclass(frozen=True)
class Models:
    """The two models that the page compares.

    Attributes:
        run: The run's folder, with the tables and the teacher.
        student: The bundle, or else the checkpoint.
        task: What a label is.
        labels: C names, in the teacher's order.
        temperature: What the student's logits are divided by; 1: nothing was fitted.
    """

    run: Path
    student: Path
    task: Task
    labels: list[str]
    temperature: float

    def ask(self, model: Path, table: pa.Table) -> np.ndarray:
        """Return a model's logits, (N, C), as its graph gives them."""
        logits, _ = pipeline.classify(str(model), table, model.name, self.labels)
        return logits * self.temperature if model.is_file() else logits

    def answered(self, split: str) -> Answered:
        """Ask both models about a split, or evenly drawn rows of a long one."""
        table = spread_rows(self.table(split), _ROWS)
        gold = gold_of(table, self.labels, self.task)
        student, teacher = (
            self.ask(model, table) for model in (self.student, self.run / "teacher" / "model")
        )
        return Answered(split, table, gold, student, teacher)

    def table(self, split: str) -> pa.Table:
        """Read a split as the run's stage `data` left it."""
        path = self.run / "data" / f"{split}.parquet"
        return read_table(str(path), ColumnsConfig(), task=self.task)

    def decided(self, logits: np.ndarray) -> np.ndarray:
        """Return each row's answer in the form of gold labels."""
        if self.task == "classification":
            return logits.argmax(1)
        return logits[:, 0] if self.task == "regression" else logits > 0

    def written(self, answers: np.ndarray) -> list[str]:
        """Write answers or gold labels."""
        if self.task == "classification":
            return [self.labels[i] for i in answers]
        if self.task == "regression":
            return [f"{score:.4g}" for score in answers]
        return [", ".join(np.array(self.labels)[row > 0]) or "none" for row in answers]


def row_texts(table: pa.Table, rows: Sequence[int]) -> Iterator[dict[str, str]]:
    """Yield `text` and `text_pair`, "" where there is none, of some rows."""
    texts, pairs = texts_of(take_rows(table, np.array(rows)))
    for i, text in enumerate(texts):
        yield {"text": text, "text_pair": pairs[i] if pairs else ""}


def compared(models: Models, found: Answered) -> list[dict[str, Any]]:
    """Return a dict a row: texts, three answers, `confidence`, and `kind` of disagreement."""
    values = (found.gold, models.decided(found.student), models.decided(found.teacher))
    answers = zip(*map(models.written, values), strict=True)
    kinds = _kinds(models.task, *values)
    sure = [None] * len(kinds)
    if models.task == "classification":
        sure = confidence(found.student, models.temperature).tolist()
    texts = row_texts(found.table, range(len(kinds)))
    rows = [
        {"split": found.split, **text, "label": g, "student": s, "teacher": t, "confidence": p}
        | {"kind": kind}
        for text, (g, s, t), p, kind in zip(texts, answers, sure, kinds, strict=True)
    ]
    return sorted(rows, key=lambda row: -_KINDS.index(row["kind"]))


def _kinds(task: Task, gold: np.ndarray, student: np.ndarray, teacher: np.ndarray) -> list[str]:
    """Return who errs in each row; scores differ that are a standard deviation apart."""

    def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        near = np.abs(a - b) <= gold.std() if task == "regression" else a == b
        return near.reshape(len(gold), -1).all(axis=1)

    right, theirs = same(student, gold), same(teacher, gold)
    either = np.where(same(student, teacher), 3, 4)
    kinds = np.select([right & theirs, theirs, right], [0, 1, 2], either)
    return [_KINDS[kind] for kind in kinds]


def doubtful(models: Models, found: Answered) -> list[dict[str, Any]]:
    """Rank a split's rows by how little both models believe their label.

    Source: Northcutt et al. 2021 (arXiv 1911.00068), section 3 (self-confidence); here the mean of
    two models, of which the student has not seen the labels.
    """
    doubt = (
        _doubt(models, found.student, found.gold) + _doubt(models, found.teacher, found.gold)
    ) / 2
    return _ranked(models, found.split, found.table, found.gold, found.teacher, doubt)


def doubtful_training(models: Models) -> list[dict[str, Any]]:
    """Rank the training rows by how little the stored logits of the teacher believe their label."""
    store, table = models.run / "logits" / "store", models.table("train")
    if not store.is_dir():
        return []
    for teacher in read_store(store):
        table = table.filter(pa.array(stored_rows(table, store / teacher)))
    if not len(table):
        return []
    names = joined_labels(store)
    logits = join_logits(table, store)[:, [names.index(name) for name in models.labels]]
    gold = gold_of(table, models.labels, models.task)
    return _ranked(models, "train", table, gold, logits, _doubt(models, logits, gold))


def _doubt(models: Models, logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return how far a model is from each row's label, (N,); 0 to 1 except for scores."""
    if models.task == "classification":
        return 1 - softmax(logits)[np.arange(len(gold)), gold]
    if models.task == "multi-label":
        return np.abs(expit(logits) - gold).max(axis=1)
    return np.abs(logits[:, 0] - gold)


def _ranked(
    models: Models,
    split: str,
    table: pa.Table,
    gold: np.ndarray,
    teacher: np.ndarray,
    doubt: np.ndarray,
) -> list[dict[str, Any]]:
    labels, said = models.written(gold), models.written(models.decided(teacher))
    order = [i for i in np.argsort(-doubt, kind="stable") if labels[i] != said[i]][:_DOUBTFUL]
    if not order:
        return []
    student = models.written(
        models.decided(models.ask(models.student, take_rows(table, np.array(order))))
    )
    return [
        {"split": split, **text, "label": labels[i], "teacher": said[i], "student": s}
        | {"doubt": float(doubt[i])}
        for i, text, s in zip(order, row_texts(table, order), student, strict=True)
    ]


def calibration(models: Models, found: Answered) -> dict[str, list[tuple[float, float, int]]]:
    """Return the bins of a reliability diagram before and after the temperature.

    Where dev is all there is, each half of it is scaled by the temperature of the other half.
    """
    after = found.student / models.temperature
    if found.split == "dev":
        after = cross_scaled(found.student, found.gold)
    return {
        "before": _bins(found.student, found.gold),
        "after": _bins(after, found.gold),
    }


def _bins(logits: np.ndarray, gold: np.ndarray) -> list[tuple[float, float, int]]:
    sure, right = confidence(logits), logits.argmax(1) == gold
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    return [
        (float(sure[mine].mean()), float(right[mine].mean()), int(mine.sum()))
        for mine in (place == number for number in range(_BINS))
        if mine.any()
    ]


def coverage(models: Models, found: Answered) -> list[dict[str, float]]:
    """Return what the student answers and gets right at 101 thresholds of its confidence.

    Returns:
        A dict a threshold, 0 to 1: `coverage` (share of rows it answers), `accuracy` (of these; 0
            without any), `cascade` (of all, the teacher answering the rest).
    """
    sure = confidence(found.student, models.temperature)
    right, theirs = (x.argmax(1) == found.gold for x in (found.student, found.teacher))
    curve = []
    for threshold in np.arange(101) / 100:
        own = sure >= threshold
        curve.append(
            {
                "threshold": float(threshold),
                "coverage": float(own.mean()),
                "accuracy": float(right[own].mean()) if own.any() else 0.0,
                "cascade": float(np.where(own, right, theirs).mean()),
            }
        )
    return curve


def slices(models: Models, found: Answered, tokenizer: Any) -> list[dict[str, Any]]:
    """Return the scores of parts of a split that have rows: by length, unknown words and label."""
    score, out = SCORES[models.task], []
    for group, name, mine in _parts(models, found, tokenizer):
        if not mine.any():
            continue
        gold = found.gold[mine]
        values = {
            who: dev_score(models.task, logits[mine], gold)
            for who, logits in (("student", found.student), ("teacher", found.teacher))
        }
        bounds = interval(score, {score: values["student"], "rows": len(gold)})
        out.append({"group": group, "part": name, "rows": len(gold), **values, "interval": bounds})
    return out


def _parts(
    models: Models, found: Answered, tokenizer: Any
) -> Iterator[tuple[str, str, np.ndarray]]:
    texts, pairs = texts_of(found.table)
    whole = [f"{a} {b}" for a, b in zip(texts, pairs, strict=True)] if pairs else texts
    split, unit = (
        (split_characters, "characters") if is_unsegmented(whole) else (split_words, "words")
    )
    lengths = np.array([len(split(text)) for text in whole])
    edges = sorted({*np.quantile(lengths, [0, 0.25, 0.5, 0.75]).astype(int).tolist()})
    ends = [*(edge - 1 for edge in edges[1:]), int(lengths.max())]
    for low, high in zip(edges, ends, strict=True):
        yield "length", f"{low} to {high} {unit}", (lengths >= low) & (lengths <= high)
    if tokenizer.unk_token_id is not None:
        rows = tokenizer(whole, truncation=False).input_ids
        unknown = np.array([row.count(tokenizer.unk_token_id) for row in rows])
        for name, mine in (("none", unknown == 0), ("1", unknown == 1), ("2 or more", unknown > 1)):
            yield "unknown to the student", name, mine
    if models.task != "regression":
        for number, label in enumerate(models.labels):
            one = models.task == "classification"
            mine = found.gold == number if one else found.gold[:, number] > 0
            yield "label", label, mine


def transfer_rows(path: Path) -> list[dict[str, Any]]:
    """Return a few rows of each of the transfer set's commonest kinds, changed words marked.

    Returns:
        Dicts of `origin`, `rules`, `share` of all rows, and of each text `pieces`: (text, changed).
    """
    kinds = read_parquet(path, ["origin", "rules"])
    counts = kinds.group_by(["origin", "rules"]).aggregate([([], "count_all")])
    common = sorted(counts.to_pylist(), key=lambda row: -row["count_all"])[:_GROUPS]
    table, out = read_parquet(path), []
    # as the augmenter counts them
    word = regex.compile(rf"{regex.escape(mask_of(table) or '[MASK]')}|{WORD_PATTERN}")
    for kind in common:
        mine = pc.and_(
            pc.equal(kinds["origin"], kind["origin"]), pc.equal(kinds["rules"], kind["rules"])
        )
        rows = np.flatnonzero(mine.to_numpy())
        few = rows[np.linspace(0, len(rows) - 1, min(_OF_A_GROUP, len(rows))).astype(int)]
        for row in take_rows(table, few).to_pylist():
            sides = [side for side in ("", "_pair") if row.get(f"text{side}") is not None]
            out.append(
                {"origin": kind["origin"], "rules": kind["rules"].replace("+", ", ")}
                | {"share": kind["count_all"] / len(kinds)}
                | {"texts": [_pieces(row, side, word) for side in sides]}
            )
    return out


SHOWN = 400  # characters of a text


def _pieces(row: dict[str, Any], side: str, word: regex.Pattern[str]) -> list[tuple[str, bool]]:
    """Cut a text into pieces that were changed and pieces that were not."""
    text, changed = row[f"text{side}"], row.get(f"changed{side}")
    first, last = row.get(f"start{side}"), row.get(f"stop{side}")
    words = list(word.finditer(text))
    if not changed or first is None or len(words) != last - first:
        return [(text, False)]
    pieces: list[tuple[str, bool]] = []
    at = 0
    for number, found in enumerate(words, first):
        if found.end() > SHOWN:
            return [*pieces, (text[at : found.start()] + "…", False)]
        if number in changed:
            pieces += [(text[at : found.start()], False), (found.group(), True)]
            at = found.end()
    return [*pieces, (text[at:], False)]
