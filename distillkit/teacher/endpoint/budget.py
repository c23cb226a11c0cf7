"""What may be spent: calls, tokens, money. It is never passed, however many calls run at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from distillkit.errors import InputError
from distillkit.recipe import EndpointConfig
from distillkit.teacher.endpoint.journal import Answer, Journal, Spent, Tokens

_BYTES = 4  # a token, where nobody says; a Chinese character has three
_AROUND = 64  # tokens that a service may set around a prompt


class SpentUp(InputError):
    """The budget does not suffice for one more call."""


@dataclass
class Call:
    """A call under way.

    Attributes:
        number: Its number in the journal.
        used: Tokens; until it is known, the most that they may be.
        answer: What it brought; None: nothing.
    """

    number: int
    used: Tokens
    answer: Answer | None = None


class Budget:
    """Lets calls begin as long as the most that they may take is left, and notes each.

    Args:
        config: The limits and prices.
        journal: What is spent, and where it is noted.
    """

    def __init__(self, config: EndpointConfig, journal: Journal) -> None:
        self._config, self._journal = config, journal
        self._change = threading.Condition()
        self._under_way: dict[int, Tokens] = {}
        self._extra: Tokens = (0, 0)  # that the dearest call took beyond what was thought the most

    @contextmanager
    def call(self, prompt: str) -> Iterator[Call]:
        """Begin a call, and note at its end what it took; wait while calls under way may leave enough.

        Raises:
            SpentUp: They cannot.
        """
        known = most_tokens(prompt, self._config)
        with self._change:
            while name := self._lacking(_sum(known, self._extra)):
                if not self._under_way:
                    limit = getattr(self._config, name)
                    raise SpentUp(f"label.endpoint.{name} {limit:,} is reached")
                self._change.wait()
            most = _sum(known, self._extra)
            call = Call(self._journal.begin(most), most)
            self._under_way[call.number] = most
        try:
            yield call
        finally:
            with self._change:
                del self._under_way[call.number]
                over = [max(used - one, 0) for used, one in zip(call.used, known, strict=True)]
                self._extra = max(self._extra[0], over[0]), max(self._extra[1], over[1])
                self._change.notify_all()  # before the line is written: the disk may be full
                self._journal.end(call.number, call.used, call.answer)

    def _lacking(self, most: Tokens) -> str:
        """Return the limit that one more call might pass; empty: none."""
        config, spent = self._config, self._journal.spent
        done = (spent.prompt_tokens, spent.answer_tokens)
        tokens = _sum(done, most, *self._under_way.values())
        amounts = {
            "max_calls": spent.calls + 1,
            "max_tokens": sum(tokens),
            "max_cost": cost_of(tokens, config) or 0.0,
        }
        over = (name for name, amount in amounts.items() if 0 < getattr(config, name) < amount)
        return next(over, "")


def _sum(*tokens: Tokens) -> Tokens:
    return sum(one[0] for one in tokens), sum(one[1] for one in tokens)


def most_tokens(prompt: str, config: EndpointConfig) -> Tokens:
    """Return the most tokens that a call may take: no tokenizer makes two of a byte."""
    return len(prompt.encode()) + _AROUND, config.answer_tokens


def likely_tokens(prompt: str, answer: str) -> Tokens:
    """Estimate the tokens of a call."""
    sizes = (-(-len(text.encode()) // _BYTES) for text in (prompt, answer))
    return next(sizes), max(1, next(sizes))


def cost_of(tokens: Tokens, config: EndpointConfig) -> float | None:
    """Return the price of tokens; None: the recipe has no prices."""
    if not config.price_per_million:
        return None
    pairs = zip(tokens, config.price_per_million, strict=True)
    return sum(count * price for count, price in pairs) / 1e6


def spending(spent: Spent, config: EndpointConfig) -> dict[str, float]:
    """Return totals as the summary has them."""
    tokens = (spent.prompt_tokens, spent.answer_tokens)
    cost = cost_of(tokens, config)
    found = {"calls": spent.calls, "tokens": sum(tokens)}
    found |= {"answers": spent.answers, "hard": spent.hard, "unanswered": spent.unanswered}
    return found | ({} if cost is None else {"cost": cost})
