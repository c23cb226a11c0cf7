"""Section `label.endpoint`: a model service that labels in place of a fine-tuned teacher."""

import re
import string
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from distillkit.errors import InputError
from distillkit.recipe.bounds import (
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Range,
    Seed,
    check,
)

PLACES = ("text", "text_pair", "labels", "examples")  # what may stand in a prompt's braces
MOST_LABELS = 26  # single letters
# Fields that change how the service is asked, and no answer.
_HOW = (
    *("concurrency", "requests_per_minute", "timeout", "retries", "key_variable"),
    *("max_calls", "max_tokens", "price_per_million", "max_cost"),
)


@dataclass(frozen=True)
class EndpointConfig:
    """Which OpenAI-compatible service labels in place of a teacher, how, and for how much."""

    url: str = ""
    """Address of the service, as in http://localhost:8000/v1; empty: none is asked."""
    model: str = ""
    """Name of the model, as the service has it."""
    api: Literal["chat", "completions"] = "chat"
    """What is asked: URL/chat/completions, or URL/completions."""
    prompt: tuple[str, ...] = ()
    """Prompts with {text}, {text_pair}, {labels} and {examples}; the log-probabilities of several
    are averaged. None: a short one in English. Braces that are meant are doubled."""
    examples: CountOrZero = 0
    """Labelled rows of the source that every prompt shows, balanced over the labels; never the row
    that is asked about."""
    seed: Seed = 1
    """Seed that draws the example rows."""
    logprobs: bool = True
    """Ask for log-probabilities; a service without them gives hard labels."""
    top_logprobs: Annotated[int, Range(1, 20)] = 20
    """Tokens whose log-probability is asked for; fewer where the service refuses so many."""
    hard_probability: Annotated[float, Range(0, 1, open_low=True, open_high=True)] = 0.9
    """Probability of the label of an answer without log-probabilities, 0 to 1."""
    answer_tokens: Count = 4
    """Most tokens of an answer; a model that thinks first needs more."""
    concurrency: Annotated[int, Range(1, 256)] = 8
    """Calls at the same time."""
    requests_per_minute: CountOrZero = 0
    """Most calls a minute; 0: no limit."""
    timeout: Positive = 60.0
    """Seconds until a call without an answer is given up."""
    retries: CountOrZero = 6
    """How often a call is repeated that failed for a time: 429, 5xx, no connection, a cut answer."""
    max_calls: CountOrZero = 0
    """Most calls in all, earlier runs on the same folder included; 0: no limit."""
    max_tokens: CountOrZero = 0
    """Most tokens in all, prompts and answers; 0: no limit."""
    price_per_million: Annotated[tuple[float, ...], Range(0)] = ()
    """Price of a million tokens: of prompts, and of answers."""
    max_cost: NotNegative = 0.0
    """Most money in all, in the currency of the prices; 0: no limit."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the service's key; without it no key is sent."""

    def __post_init__(self) -> None:
        check(self, "label.endpoint")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key_variable):  # not quoted: it may be a key
            raise InputError(
                "label.endpoint.key_variable is no name of an environment variable: expected one as OPENAI_API_KEY, and the key in it"
            )
        self._check_url()
        for template in self.prompt:
            check_template(template, examples=self.examples > 0)
        if len(self.price_per_million) not in (0, 2):
            raise InputError(
                f"label.endpoint.price_per_million has {len(self.price_per_million)} numbers: expected 2, of prompts and of answers"
            )
        if self.max_cost and not self.price_per_million:
            raise InputError(
                f"label.endpoint.max_cost is {self.max_cost:g}, but price_per_million is empty: expected the price of prompts and of answers"
            )

    def _check_url(self) -> None:
        if not self.url:
            return
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        # Nothing of the address is quoted: it may hold a password.
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise InputError(
                f"label.endpoint.url has a user, a password, ? or #: expected the bare address; put the key in the variable {self.key_variable}"
            )
        if parts.scheme not in ("http", "https") or not host or port == 0:
            raise InputError(
                "label.endpoint.url is no address of a service: expected one as http://localhost:8000/v1"
            )

    def check_complete(self) -> None:
        """Refuse a service without a model's name.

        Raises:
            InputError: `model` is empty.
        """
        if not self.model:
            raise InputError(
                f"{self.url}: no model is named; give --model (in a recipe label.endpoint.model), as the service has it"
            )

    def settings(self) -> dict[str, Any]:
        """Return what the answers depend on, by field."""
        return {name: value for name, value in asdict(self).items() if name not in _HOW}


def check_sides(templates: Iterable[str], *, pairs: bool) -> None:
    """Refuse a prompt that lacks the second text of pairs, or asks for one of single texts.

    Raises:
        InputError: There is one.
    """
    for template in templates:
        if ("text_pair" in names_in(template)) != pairs:
            raise InputError(
                f"label.endpoint.prompt {template[:60]!r}: "
                + ("expected {text_pair} in it" if pairs else "the rows have no {text_pair}")
            )


def check_template(template: str, *, examples: bool) -> None:
    """Refuse a prompt that cannot be filled in.

    Args:
        template: With names in braces.
        examples: Whether there are any to show.

    Raises:
        InputError: A brace is left open, a name in braces is none of `PLACES`, {text} is not among
            them, or {examples} is not where there are some.
    """
    shown = repr(template if len(template) <= 60 else template[:60] + "...")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InputError(
            f"label.endpoint.prompt {shown}: {error}; a brace that is meant is doubled"
        ) from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in PLACES or form or conversion):
            written = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise InputError(
                f"label.endpoint.prompt {shown} has {{{written}}}: expected {', '.join(f'{{{place}}}' for place in PLACES)}; a brace that is meant is doubled"
            )
    for name in ("text", *(["examples"] if examples else [])):
        if name not in names_in(template):
            raise InputError(f"label.endpoint.prompt {shown}: expected {{{name}}} in it")


def names_in(template: str) -> list[str]:
    """Return the names that a prompt has in braces.

    >>> names_in("{text} {{no}} {labels}")
    ['text', 'labels']
    """
    return [name for _, name, *_ in string.Formatter().parse(template) if name is not None]
