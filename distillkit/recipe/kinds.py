"""Kinds of students and of losses: what recipes, commands and the model card ask of one.

A file in `student/kinds` declares a kind. It is found by its name, as a shelf file is, so no
module lists the kinds. A declaration names its network as "module:name", so that reading a recipe
loads no torch. Code outside distillkit adds to `KINDS` or `LOSSES`, with classes and functions.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from distillkit.errors import InputError
from distillkit.recipe.data import Task

Reference = str | Callable[..., Any]
"""A class or function; or "module:name" of one, imported when it is needed."""

_PACKAGE = "distillkit.student.kinds"
_METHODS = "distillkit.augment.methods"


@dataclass(frozen=True)
class StudentKind:
    """One kind of student.

    Attributes:
        name: `student.kind`.
        summary: What it is, in one phrase.
        network: Its model class, a `SingleStudent` or `SiameseStudent` whose name ends in
            ForSequenceClassification; None: one of transformers'.
        reads: Single texts, pairs, or both.
        twin: The same network for pairs if this is for texts, for texts if this is for pairs.
        settings: Settings of `StudentConfig` that shape the network, besides those of all kinds;
            `tune` searches `hidden_size` and `layers` if they are among them.
        poolings: Values of `student.pooling` besides auto.
        from_teacher: Builds model and tokenizer from (labels, student configuration, teacher's
            model, teacher's tokenizer); None: the student has a vocabulary of its own.
        check_teacher: Refuses a teacher that it cannot be made from, before that one is trained: takes
            the student configuration and the configuration of the teacher's encoder.
        hidden_step: `student.hidden_size` is a multiple of it, in `tune`.
        compress: Settings of `CompressConfig` that reduce its number of weights.
        suits: What `doctor` measures that speaks for it: order, near order, no order or together.
        limits: What a model card says that it cannot do; {longest_kernel} is filled in.
    """

    name: str
    summary: str
    network: Reference | None
    reads: Literal["texts", "pairs", "both"] = "texts"
    twin: str = ""
    settings: tuple[str, ...] = ()
    poolings: tuple[str, ...] = ("max", "mean", "attention")
    from_teacher: Reference | None = None
    check_teacher: Reference | None = None
    hidden_step: int = 1
    compress: tuple[str, ...] = ("vocabulary_size", "embedding_size", "units")
    suits: Literal["", "order", "near order", "no order", "together"] = ""
    limits: str = ""

    def fits(self, *, pairs: bool) -> bool:
        """Return whether it reads pairs, or single texts."""
        return self.reads in ("both", "pairs" if pairs else "texts")

    def siamese(self, network: Reference, **changes: Any) -> "StudentKind":
        """Return the kind of the same encoder for pairs.

        Args:
            network: Its model class, a `SiameseStudent`.
            changes: What else differs.
        """
        name = f"siamese-{self.name}"
        apart = "It reads the two texts apart and compares only one vector of each."
        limits = f"{self.limits} {apart}".lstrip()
        summary = f"{self.summary}; the texts of a pair read apart"
        changes = {"summary": summary, "limits": limits} | changes
        return replace(self, name=name, network=network, reads="pairs", twin=self.name, **changes)


@dataclass(frozen=True)
class LossKind:
    """One way to match a teacher's logits.

    Attributes:
        name: `loss.kind`.
        summary: What it is, for help.
        functions: By task, a function of student and teacher logits, (B, C), and, if `softens`,
            the temperature; a task that is missing is refused.
        card: What a model card calls it; {temperature} is filled in.
        refusal: Why it has no meaning for the tasks that are missing.
        softens: Whether the functions take a temperature.
    """

    name: str
    summary: str
    functions: Mapping[Task, Reference]
    card: str
    refusal: str = ""
    softens: bool = False


KINDS: dict[str, StudentKind] = {}
LOSSES: dict[str, LossKind] = {}


def load_kinds() -> dict[str, StudentKind]:
    """Import all files of `student/kinds`, by name, and return `KINDS`."""
    files = pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__)
    for name in sorted(file.name for file in files):
        importlib.import_module(f"{_PACKAGE}.{name}")
    return KINDS


def load_methods() -> Mapping[str, Any]:
    """Return the augmentation methods by name, `METHODS` of `distillkit.augment.methods`."""
    return importlib.import_module(_METHODS).METHODS


def kind_of(name: str) -> StudentKind:
    """Return a kind of student by its name.

    Raises:
        InputError: There is none; the message lists all.
    """
    if name not in load_kinds():
        raise InputError(f"student.kind is {name!r}: {choose(name, KINDS)}")
    return KINDS[name]


def choose(name: str, known: Mapping[str, object]) -> str:
    """Return the mend of a wrong name: the close one, and all."""
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}expected one of {', '.join(known)}"


def resolve(reference: Reference) -> Any:
    """Return a class or function, imported if it is given by name."""
    return pkgutil.resolve_name(reference) if isinstance(reference, str) else reference
