"""What a command is to the command line."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command.

    Attributes:
        kind: Dataclass that the arguments are parsed into; its docstring is the help.
        call: Does the work; what it returns, or yields, is printed, a JSON line each.
        from_shelf: Where the first word names a shelf file: how its values become the defaults.
    """

    kind: type[Any]
    call: Callable[[Any], Any]
    from_shelf: Callable[[str], dict[str, Any]] | None = None
