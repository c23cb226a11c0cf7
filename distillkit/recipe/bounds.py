"""What a field of a section may hold, written beside its type: `Annotated[float, Range(0, 1)]`.

Ours in place of `annotated_types`, which would be one more package on every server: the four bounds
are a few lines, and the check and its message would be ours all the same.
"""

from dataclasses import dataclass, fields
from math import inf, isfinite
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin

from distillkit.errors import InputError


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; of a tuple, for each of its items. Never NaN or infinite.

    Attributes:
        low: Smallest number.
        high: Largest number.
        open_low: `low` itself is excluded.
        open_high: `high` itself is excluded.
    """

    low: float
    high: float = inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high or self.high == inf else value <= self.high
        return above and below

    def __str__(self) -> str:
        if self.high == inf:
            return f"more than {self.low}" if self.open_low else f"at least {self.low}"
        if not self.open_low and not self.open_high:
            return f"{self.low} to {self.high}"
        start = f"more than {self.low}" if self.open_low else f"{self.low} or more"
        return f"{start}, and {'less than' if self.open_high else 'at most'} {self.high}"


# What a number is that follows from the rows of the data.
BY_ROWS = -1

Count = Annotated[int, Range(1)]
CountOrZero = Annotated[int, Range(0)]
Seed = Annotated[int, Range(0, 2**32 - 1)]  # what numpy, scikit-learn and torch all take
Positive = Annotated[float, Range(0, open_low=True)]
NotNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]
FractionBelowOne = Annotated[float, Range(0, 1, open_high=True)]
FractionAboveZero = Annotated[float, Range(0, 1, open_low=True)]


def check(config: Any, section: str) -> None:
    """Refuse a value that its field's type does not allow.

    Args:
        config: A dataclass instance.
        section: Its dotted path in a recipe, for the error; empty: the recipe itself.

    Raises:
        InputError: A number is out of its range, or a name is none of those expected.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        expected = _expected(field.type, value)
        if expected:
            name = f"{section}.{field.name}".lstrip(".")
            raise InputError(f"{name} is {value!r}: expected {expected}")


def _expected(hint: Any, value: Any) -> str:
    """Return what a field's type expects where `value` is something else; empty: it is right."""
    if get_origin(hint) is Literal and value not in get_args(hint):
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple and isinstance(value, str):
        return "several, as a tuple or a list"
    allowed = next(
        (item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Range)), None
    )
    if allowed is None:
        return ""
    values = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, Real) for item in values):
        return f"a number, {allowed}"
    whole = int in (hint.__origin__, *get_args(hint.__origin__))
    if whole and not all(isinstance(item, Integral) for item in values):
        return f"a whole number, {allowed}"
    if not all(item in allowed for item in values):
        return f"a finite number, {allowed}" if inf in values else str(allowed)
    return ""


def number_in(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
