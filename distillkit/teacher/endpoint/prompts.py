"""What a service is asked about a row: templates filled in, labels as letters, labelled examples."""

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from distillkit.data.content import paired, texts_of
from distillkit.data.logits import keys_of
from distillkit.errors import InputError
from distillkit.recipe import EndpointConfig
from distillkit.recipe.endpoint import MOST_LABELS, check_sides

LETTERS = string.ascii_uppercase
_ASKED = {
    False: "Text: {text}\nLabel:",
    True: "First text: {text}\nSecond text: {text_pair}\nLabel:",
}
_DEFAULT = {
    False: "Choose the label that fits the text. Answer with its letter alone.\n\n{labels}\n\n{examples}"
    + _ASKED[False],
    True: "Choose the label that fits the two texts together. Answer with its letter alone.\n\n{labels}\n\n{examples}"
    + _ASKED[True],
}


@dataclass(frozen=True)
class Example:
    """A labelled row that prompts show."""

    key: bytes
    text: str
    text_pair: str | None
    label: str


class Prompts:
    """The prompts of a task, to be filled in row by row.

    Args:
        config: Templates, number of examples.
        labels: C labels in the order of the logits; label i is the letter i.
        pairs: Whether rows have two texts.
        examples: From `draw_examples`: those that are shown, and spare ones behind them.
        meanings: Descriptions of labels.

    Raises:
        InputError: A template is not for such rows, or there are too many labels.
    """

    def __init__(
        self,
        config: EndpointConfig,
        labels: Sequence[str],
        examples: Sequence[Example] = (),
        meanings: Mapping[str, str] | None = None,
        *,
        pairs: bool,
    ) -> None:
        self.templates = config.prompt or (_DEFAULT[pairs],)
        self.examples, self._shown, self._pairs = list(examples), config.examples, pairs
        self._labels = list(labels)
        self._listed = _listed(labels, meanings or {})
        check_sides(self.templates, pairs=pairs)

    def fill(self, number: int, key: bytes, text: str, text_pair: str | None) -> str:
        """Return prompt `number` about a row; texts are put in as they are, braces included."""
        values = {
            "text": text,
            "text_pair": text_pair or "",
            "labels": self._listed,
            "examples": "".join(map(self._example, self._others(key))),
        }
        return _filled(self.templates[number], values)

    def digest(self) -> str:
        """Return a SHA-256 over the examples, spare ones included."""
        rows = [[one.text, one.text_pair, one.label] for one in self.examples]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def _others(self, key: bytes) -> list[Example]:
        """Return the examples for a row; where it is one itself, a spare one takes its place."""
        shown, spare = self.examples[: self._shown], self.examples[self._shown :]
        own = next((one for one in shown if one.key == key), None)
        if own is None:
            return shown
        instead = [one for one in spare if one.label == own.label][:1]
        place = shown.index(own)
        return [*shown[:place], *instead, *shown[place + 1 :]]

    def _example(self, one: Example) -> str:
        values = {"text": one.text, "text_pair": one.text_pair or ""}
        letter = LETTERS[self._labels.index(one.label)]
        return f"{_filled(_ASKED[self._pairs], values)} {letter}\n\n"


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Put values in their places; a value is text, whatever braces it has."""
    parts = string.Formatter().parse(template)
    return "".join(before + (values[name] if name else "") for before, name, *_ in parts)


def _listed(labels: Sequence[str], meanings: Mapping[str, str]) -> str:
    """Write the options one a line, each with its letter."""
    if len(labels) > MOST_LABELS:
        raise InputError(
            f"{len(labels)} labels: a service is asked for one of {MOST_LABELS} letters at most; expected fewer labels"
        )
    return "\n".join(
        f"{letter}. {label}" + (f": {meanings[label]}" if label in meanings else "")
        for letter, label in zip(LETTERS, labels, strict=False)
    )


def draw_examples(
    table: pa.Table, labels: Sequence[str], config: EndpointConfig, source: str
) -> list[Example]:
    """Draw labelled rows by a hash of their content, so that rows added elsewhere change nothing.

    Args:
        table: Canonical table.
        labels: Labels in the order of the logits; each has its turn.
        config: How many, and the seed.
        source: For the error.

    Returns:
        The examples, and behind them spare ones: another of each label, where there is one.

    Raises:
        InputError: There are fewer labelled rows.
    """
    if not config.examples:
        return []
    queues: dict[str, list[Example]] = {label: [] for label in labels}
    labelled = (
        table.filter(table["label"].is_valid()) if "label" in table.column_names else table[:0]
    )
    given = labelled["label"].to_pylist() if "label" in labelled.column_names else []
    rows: dict[bytes, Example] = {}
    texts = paired(*texts_of(labelled))
    for key, both, label in zip(keys_of(labelled).to_pylist(), texts, given, strict=True):
        rows.setdefault(key, Example(key, *both, label))

    def drawn(one: Example) -> bytes:
        return hashlib.blake2b(f"{config.seed} ".encode() + one.key).digest()

    for one in sorted(rows.values(), key=drawn):
        if one.label in queues:
            queues[one.label].append(one)
    rounds = range(max(map(len, queues.values()), default=0))
    in_turn = [queue[i] for i in rounds for queue in queues.values() if i < len(queue)]
    shown, left = in_turn[: config.examples], in_turn[config.examples :]
    if len(shown) < config.examples:
        raise InputError(
            f"{source}: label.endpoint.examples is {config.examples}, but {len(shown)} different rows have a label; expected at most so many"
        )
    spare = {one.label: one for one in reversed(left)}
    return [*sorted(shown, key=drawn), *(spare[label] for label in labels if label in spare)]
