"""What a command is to the command line."""

from collections.abc import Callable, Iterator
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

    Calling it does the work. What the call returns, or yields, is printed, a JSON line each; on a
    terminal as `readable` lays it out.

    Attributes:
        shelf_word: Field of the argument that names a shelf file; empty: none does.
        early: Options whose values `from_shelf` needs before the others are parsed.
        tells: Whether the work itself writes its results on stderr, for people.
        from_shelf: Makes the defaults of the shelf file and of those values.
    """

    shelf_word: ClassVar[str] = ""
    early: ClassVar[tuple[str, ...]] = ()
    tells: ClassVar[bool] = False
    from_shelf: ClassVar[Callable[[str, dict[str, str]], dict[str, Any]]] = lambda *_: {}

    def __call__(self) -> Any:
        """Do the work, by one call of the library."""
        raise NotImplementedError

    def readable(self, results: Iterator[Any]) -> Iterator[str]:
        """Lay results out for a terminal."""
        for result in results:
            if not self.tells:
                yield from _lines(result)


def _lines(value: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Lay nested values out one a line, those of a group below its name."""
    width = max((len(name) for name, of in value.items() if not isinstance(of, dict)), default=0)
    for name, of in value.items():
        if isinstance(of, dict):
            yield f"{indent}{name}"
            yield from _lines(of, indent + "  ")
        else:
            shown = f"{of:.4g}" if isinstance(of, float) else of
            yield f"{indent}{name:<{width}}  {shown}"
