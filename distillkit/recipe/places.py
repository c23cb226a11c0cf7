"""Settings that name a source, a model or a file: marked in the recipe, found here."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, Literal

Sort = Literal["source", "model", "file"]


@dataclass(frozen=True)
class Place:
    """Marks a setting, or a tuple of them, that names something outside the recipe.

    Attributes:
        sort: What it names.
        words: Values that name nothing outside.
    """

    sort: Sort
    words: tuple[str, ...] = ()


Source = Annotated[str, Place("source")]
Texts = Annotated[tuple[str, ...], Place("source", ("auto", "wordnet"))]
File = Annotated[str, Place("file")]
FileOrTeacher = Annotated[str, Place("file", ("teacher",))]
Model = Annotated[str, Place("model", ("scratch",))]
Vectors = Annotated[str, Place("model", ("teacher", "random"))]


def with_places(config: Any, change: Callable[[Sort, str, str], str]) -> Any:
    """Return a recipe, or a section of it, with every place that it names changed.

    Args:
        config: A dataclass of `distillkit.recipe`.
        change: Gets what a setting names, the setting's own name (`train`; `unlabelled-1` for the
            first of several) and its value, and returns another value.
    """
    found: dict[str, Any] = {}
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        marks = getattr(field.type, "__metadata__", ())
        place = next((mark for mark in marks if isinstance(mark, Place)), None)
        if is_dataclass(value):
            found[name] = with_places(value, change)
        elif place and isinstance(value, tuple):
            named = [(f"{name}-{i}", one) for i, one in enumerate(value, 1)]
            found[name] = tuple(_changed(place, *one, change) for one in named)
        elif place:
            found[name] = _changed(place, name, value, change)
    return replace(config, **found)


def _changed(place: Place, name: str, value: str, change: Callable[[Sort, str, str], str]) -> str:
    return change(place.sort, name, value) if value not in ("", *place.words) else value


def places_of(config: Any) -> list[tuple[Sort, str]]:
    """Return what a recipe, or a section of it, names: source, model or file, and its name."""
    found: list[tuple[Sort, str]] = []

    def keep(sort: Sort, _: str, value: str) -> str:
        found.append((sort, value))
        return value

    with_places(config, keep)
    return found
