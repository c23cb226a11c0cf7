"""What a command is to the command line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tyro.conf import arg

from distillkit.recipe import ColumnsConfig, Task

# The same flags, --data.columns.*, whether a command takes a whole task or one source.
Columns = Annotated[ColumnsConfig, arg(name="data.columns")]
TaskKind = Annotated[Task, arg(name="data.task")]


@dataclass(frozen=True)
class Command:
    """One command: what its arguments are parsed into; its docstring is the help.

    Calling it does the work. What the call returns, or yields, is printed, a JSON line each.

    Attributes:
        shelf_word: Field of the argument that names a shelf file; empty: none does.
        from_shelf: How that file's values become the defaults.
    """

    shelf_word: ClassVar[str] = ""
    from_shelf: ClassVar[Callable[[str], dict[str, Any]]] = lambda _: {}

    def __call__(self) -> Any:
        """Do the work, by one call of the library."""
        raise NotImplementedError
