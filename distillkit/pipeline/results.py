"""What the stages return: typed fields, which are printed as JSON."""

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring = 2, 100


@dataclass(frozen=True, eq=False, repr=False)
class Result(Mapping[str, Any]):
    """Fields that are also the items of a mapping; those that are None are left out of it."""

    def __iter__(self) -> Iterator[str]:
        return (one.name for one in fields(self) if getattr(self, one.name) is not None)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, name: str) -> Any:
        if name not in list(self):
            raise KeyError(name)
        return getattr(self, name)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in self.items())
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, eq=False, repr=False)
class Trained(Result):
    """A fine-tuned teacher, or a student."""

    output: str
    """Its folder."""
    labels: list[str]
    """The names of the C labels, in the order of the logits."""
    vocabulary: int | None = None
    """Words, or pieces, of a student's vocabulary."""
    dev_accuracy: float | None = None
    """The best epoch's, 0 to 1; or of another task one of the next three."""
    dev_micro_f1: float | None = None
    dev_pearson: float | None = None
    dev_spearman: float | None = None
    best_epoch: int = 0
    """From 1."""
    history: list[dict[str, float]] | None = None
    """What was measured after each epoch."""
    teacher_weights: dict[str, float] | None = None
    """Of several teachers, unless the weights differ from row to row."""

    @property
    def dev_score(self) -> float:
        """The best epoch's score on dev: accuracy, micro-F1 or a correlation."""
        scores = (self.dev_accuracy, self.dev_micro_f1, self.dev_pearson, self.dev_spearman)
        return next(score for score in scores if score is not None)


@dataclass(frozen=True, eq=False, repr=False)
class Adapted(Result):
    """An encoder whose pre-training was continued."""

    output: str
    """Its folder."""
    text: dict[str, int]
    """Documents, rows, tokens."""
    held_out: dict[str, Any]
    """`before` and `after`, as `teacher.pretraining.measures` has them."""
    best_epoch: int
    """From 1; 0: the encoder as it was."""
    history: list[dict[str, float]]
    """What was measured after each epoch."""


@dataclass(frozen=True, eq=False, repr=False)
class TransferSet(Result):
    """A transfer set, counted in rows."""

    output: str
    """Its file; in a process of torchrun that did not write it, nothing else is set."""
    rows: int | None = None
    original: int | None = None
    """Training texts."""
    unlabelled: int | None = None
    generated: int | None = None
    """Made by the methods of `augment.mix` that vary no text."""
    augmented: int | None = None
    """Variants."""
    duplicates: int | None = None
    """Left out."""
    leaks: int | None = None
    """Left out, since dev or test has them."""
    rules: dict[str, int] | None = None
    """Rows that each rule had a part in."""


@dataclass(frozen=True, eq=False, repr=False)
class Labelled(Result):
    """A logit store."""

    output: str
    """Its folder."""
    rows: int
    """Of the source."""
    distinct: int
    """Of them, with different texts."""
    labelled_now: int
    labels: list[str]
    """The names of the C labels, in the order of the logits."""
    rounding_error: float
    """The largest in the store."""
    accuracy_on_labelled: float | None = None
    """Of the rows that have a label, 0 to 1; or of another task the next two."""
    micro_f1_on_labelled: float | None = None
    pearson_on_labelled: float | None = None
    calls: int | None = None
    """Of a service, over all of the store; as the next five."""
    tokens: int | None = None
    answers: int | None = None
    hard: int | None = None
    """Answers without log-probabilities."""
    unanswered: int | None = None
    """Prompts whose answer was no label."""
    cost: float | None = None
    planned: dict[str, float] | None = None
    """Of a dry run: rows, calls, tokens and cost that are still to be spent."""


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Result):
    """How good a model is; `measure.metrics` says what each score is."""

    rows: int
    accuracy: float | None = None
    micro_f1: float | None = None
    macro_f1: float | None = None
    exact_match: float | None = None
    f1: float | None = None
    matthews: float | None = None
    pearson: float | None = None
    spearman: float | None = None
    mse: float | None = None
    mae: float | None = None
    calibration_error: float | None = None
    calibration_error_scaled: float | None = None
    """Of a classification: each half of the rows scaled by the temperature that fits the other."""
    agreement: float | None = None
    """With the teacher, as the next."""
    logit_correlation: float | None = None
    classes: dict[str, dict[str, float]] | None = None
    """Precision, recall, F1 and rows of each label."""
    confusion: list[list[int]] | None = None
    """Rows gold, columns found."""


@dataclass(frozen=True, eq=False, repr=False)
class Exported(Result):
    """A bundle."""

    output: str
    """Its folder or file."""
    parity: dict[str, float]
    """`rows`, `largest` and `mean` difference of a logit from torch's, `same_answer`, the share of
    equal answers."""
    megabytes: float


@dataclass(frozen=True, eq=False, repr=False)
class Compressed(Result):
    """What is written to `compress.json`."""

    distillkit: str
    """The version."""
    model: str
    dev: str
    asked: dict[str, Any]
    """The job."""
    rows: int
    """Of dev."""
    compress: dict[str, Any]
    """The settings that were taken."""
    steps: list[dict[str, Any]]
    """Of each step the score, agreement with the model as it was, MB, milliseconds a row."""

    @property
    def megabytes(self) -> float:
        """Size of the bundle, in MB of 10^6 bytes."""
        return float(self.steps[-1]["megabytes"])
