"""Replies of a service, and the log-probability that they give each label."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from distillkit.teacher.endpoint.prompts import LETTERS

LEAST = math.log(1e-12)  # no label is less probable
# How logits are made of answers, as the manifest states it: other rules are another teacher.
RULES = {
    "options": "label i is the letter i of the alphabet; a label's own name counts as its letter does",
    "log-probabilities": "of the first token of the answer that is not blank: the tokens of a label are summed up; "
    "labels that are not listed share alike what the listed tokens leave, each at most the least listed probability; "
    "where no label is listed, the answer's text counts as one without log-probabilities",
    "without log-probabilities": "hard_probability for the label that is answered, the others share the rest alike",
    "several prompts": "the mean of the log-probabilities",
    "no label": "asked once more, then all labels alike",
}
_BARE = re.compile(r"[\W_]+")


class Unreadable(ValueError):
    """A reply that is not what such a service sends."""


Token = tuple[str, float]  # with its log-probability


@dataclass(frozen=True)
class Reply:
    """What a service has answered.

    Attributes:
        text: The answer.
        tokens: At each place of the answer the token that stands there, and then the likeliest;
            empty: the service gives no log-probabilities.
        used: Tokens of prompt and answer; None: the service does not say.
    """

    text: str
    tokens: tuple[tuple[Token, ...], ...]
    used: tuple[int, int] | None


def read_reply(body: Any) -> Reply:
    """Read the body of a reply, of either api.

    Raises:
        Unreadable: There is no answer in it.
    """
    try:
        choice = body["choices"][0]
        chat = "message" in choice
        if chat and choice.get("finish_reason"):  # thinking may have used all of the answer up
            choice["message"].setdefault("content", None)
        text = choice["message"]["content"] if chat else choice["text"]
        if text is not None and not isinstance(text, str):
            raise Unreadable("the answer is no text")
        found = choice.get("logprobs") or {}
        # By their form: some services give completions those of chats.
        tokens = tuple(_chat_tokens(found) if "content" in found else _completion_tokens(found))
        return Reply(text or "", tokens, _used(body.get("usage")))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unreadable(f"no answer in it ({type(error).__name__} {error})") from None


def _chat_tokens(found: dict[str, Any]) -> Iterable[tuple[Token, ...]]:
    for place in found.get("content") or ():
        listed = [(one["token"], _number(one["logprob"])) for one in place["top_logprobs"] or ()]
        yield _at(place["token"], place["logprob"], listed)


def _completion_tokens(found: dict[str, Any]) -> Iterable[tuple[Token, ...]]:
    names = found.get("tokens") or ()
    tops = found.get("top_logprobs") or [None] * len(names)
    values = found["token_logprobs"] if names else ()
    for token, value, top in zip(names, values, tops, strict=False):
        yield _at(token, value, [(name, _number(one)) for name, one in (top or {}).items()])


def _at(token: str, value: Any, listed: list[Token]) -> tuple[Token, ...]:
    own = next((one for one in listed if one[0] == token), (token, _number(value)))
    return own, *(one for one in listed if one[0] != token)


def _number(value: Any) -> float:
    if value is None:
        return LEAST
    number = float(value)
    if math.isnan(number):
        raise Unreadable("a log-probability is NaN")
    return min(max(number, LEAST), 0.0)


def _used(usage: Any) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    both = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
    return both if all(type(count) is int for count in both) else None  # type: ignore[return-value]


class Options:
    """The words of an answer that stand for a label.

    Args:
        labels: C labels in the order of the logits.
        hard_probability: Of the label of an answer without log-probabilities.
    """

    def __init__(self, labels: Sequence[str], hard_probability: float) -> None:
        letters = [letter.casefold() for letter, _ in zip(LETTERS, labels, strict=False)]
        names = [label.strip().casefold() for label in labels]
        both = [_words(f"{letter} {name}") for letter, name in zip(letters, names, strict=True)]
        self._classes, self._hard = len(labels), hard_probability
        self._place: dict[str, int] = {}
        # Letters first: where a label is called as another one's letter, the letter counts.
        for words in (letters, names, both, map(_words, names)):
            for i, word in enumerate(words):
                self._place.setdefault(word, i)
        self._place.pop("", None)  # a name of signs alone

    def soft(self, reply: Reply) -> list[float] | None:
        """Return log-probabilities of the C labels by the answer's first token that is not blank.

        Returns:
            None: no label is among the tokens that are listed there.
        """
        listed = next((place for place in reply.tokens if _words(place[0][0])), ())
        shares = [0.0] * self._classes
        for token, value in listed:
            place = self._find(token)
            if place is not None:
                shares[place] += math.exp(value)
        missing = shares.count(0.0)
        if missing == self._classes:
            return None
        rest = max(1 - sum(math.exp(value) for _, value in listed), 0.0)
        share = min(rest / max(missing, 1), *(math.exp(value) for _, value in listed), 1.0)
        return [max(math.log(one or share or 1e-99), LEAST) for one in shares]

    def hard(self, reply: Reply) -> list[float] | None:
        """Return log-probabilities of the C labels by the answer's text; None: it is no label."""
        place = self._find(reply.text)
        if place is None:
            return None
        rest = math.log((1 - self._hard) / (self._classes - 1))
        return [math.log(self._hard) if i == place else rest for i in range(self._classes)]

    def _find(self, text: str) -> int | None:
        as_it_is = self._place.get(text.strip().casefold())
        return self._place.get(_words(text)) if as_it_is is None else as_it_is


def _words(text: str) -> str:
    """Return a text without case and signs."""
    return _BARE.sub(" ", text.casefold()).strip()
