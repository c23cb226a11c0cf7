"""What a service has been asked: a line before each call and a line after it, beside the shards.

STORE/<name>/answers.jsonl

A line is written and flushed at once, so that a killed run has lost none of what was answered, and
knows of every call that it began. A last line that is torn is ignored.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import compress, product
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from distillkit.data.content import KEY_BYTES
from distillkit.data.files import whole_file
from distillkit.data.keys import KeyIndex
from distillkit.errors import InputError

JOURNAL = "answers.jsonl"
Tokens = tuple[int, int]  # of the prompt, of the answer
NONE: Tokens = (0, 0)


@dataclass
class Spent:
    """What was spent and got on a teacher's folder in all."""

    calls: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    answers: int = 0
    """Labels got, hard ones included."""
    hard: int = 0
    """Answers without log-probabilities."""
    unanswered: int = 0
    """Prompts whose answer was no label."""

    def add(self, used: Tokens) -> None:
        """Count the tokens of a call."""
        self.prompt_tokens += used[0]
        self.answer_tokens += used[1]


@dataclass(frozen=True)
class Answer:
    """What a prompt about a row has brought.

    Attributes:
        key: The row's content key.
        prompt: The prompt's number.
        values: C log-probabilities; None: no label.
        hard: The service gave no log-probabilities.
    """

    key: bytes
    prompt: int
    values: list[float] | None
    hard: bool = False


@dataclass
class Record:
    """A journal as it is read: answers, totals, and calls that were begun and not ended."""

    answers: dict[tuple[bytes, int], Answer] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
    begun: dict[int, Tokens] = field(default_factory=dict)

    def take(self, line: dict[str, Any]) -> None:
        """Count a line."""
        if "spent" in line:
            self.spent = Spent(**line["spent"])
        elif "begun" in line:
            self.begun[line["call"]] = tuple(line["begun"])
            self.spent.calls += 1
        else:
            if "call" in line:
                self.begun.pop(line["call"])
                self.spent.add(line["used"])
            if "key" in line:
                self._keep(line)

    def _keep(self, line: dict[str, Any]) -> None:
        answer = Answer(
            bytes.fromhex(line["key"]), line["prompt"], line["logits"], line.get("hard", False)
        )
        self.answers[answer.key, answer.prompt] = answer
        if "call" in line:  # an older one is counted already
            self.spent.answers += answer.values is not None
            self.spent.hard += answer.hard
            self.spent.unanswered += answer.values is None

    def close(self) -> None:
        """Count the calls that a killed run did not end: they may have been answered."""
        for tokens in self.begun.values():
            self.spent.add(tokens)
        self.begun.clear()


def read_journal(folder: Path) -> Record:
    """Read the journal of a teacher's folder; an absent one is empty.

    Raises:
        InputError: A line in it is none of a journal.
    """
    record, path = Record(), folder / JOURNAL
    if not path.is_file():
        return record
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):  # torn
                break
            try:
                record.take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"{path}:{number}: damaged; delete this line and label again"
                ) from None
    record.close()
    return record


class Journal:
    """A journal that is written; one process at a time, by `data.files.hold`.

    Args:
        folder: A teacher's folder in a store.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        self._record = read_journal(folder)
        self.spent, self._file = self._record.spent, self._open()

    def _open(self) -> TextIO:
        if self._path.is_file():
            whole = self._path.read_bytes().rfind(b"\n") + 1
            os.truncate(self._path, whole)
        return self._path.open("a", encoding="utf-8")

    def find(self, key: bytes, prompt: int) -> Answer | None:
        """Return what a prompt about a row has brought; None: it was not asked."""
        return self._record.answers.get((key, prompt))

    def begin(self, tokens: Tokens) -> int:
        """Note a call before it is made, and the most tokens that it may take; return its number."""
        call = self.spent.calls
        self._write({"call": call, "begun": tokens})
        return call

    def end(self, call: int, used: Tokens, answer: Answer | None) -> None:
        """Note what a call took and brought; not every call brings an answer."""
        line: dict[str, Any] = {"call": call, "used": used}
        self._write(line | (_line(answer) if answer else {}))

    def forget(self, keys: Iterable[bytes], prompts: int) -> None:
        """Leave the answers to so many prompts about these rows to the file: a shard has them."""
        for asked in product(keys, range(prompts)):
            self._record.answers.pop(asked, None)

    def compact(self, stored: pa.Array) -> None:
        """Keep the totals, and the answers about rows that no shard has."""
        answers = list(self._record.answers.values())
        keys = pa.array([answer.key for answer in answers], pa.binary(KEY_BYTES))
        left = list(compress(answers, ~KeyIndex(stored).has(keys)))
        self._file.close()
        with whole_file(self._path) as partial:
            lines = [{"spent": asdict(self.spent)}, *map(_line, left)]
            partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        self._file = self._open()

    def close(self) -> None:
        """Close the file; one that tells of nothing spent is removed."""
        self._file.close()
        used = self.spent.prompt_tokens + self.spent.answer_tokens + self.spent.answers
        if not used and not self.spent.unanswered:
            self._path.unlink(missing_ok=True)

    def _write(self, line: dict[str, Any]) -> None:
        self._record.take(line)
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _line(answer: Answer) -> dict[str, Any]:
    line = {"key": answer.key.hex(), "prompt": answer.prompt, "logits": answer.values}
    return line | ({"hard": True} if answer.hard else {})
