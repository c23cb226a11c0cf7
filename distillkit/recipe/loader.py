"""The strict loader that fills the sections from YAML, and `dump`, its inverse."""

import dataclasses
import re
import typing
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from distillkit import shelf
from distillkit.errors import InputError, library_errors, say_renamed
from distillkit.recipe.augment import MixConfig
from distillkit.recipe.experiment import Recipe
from distillkit.recipe.kinds import load_methods
from distillkit.recipe.renamed import did_nothing, new_key, removed
from distillkit.recipe.ship import ShipConfig
from distillkit.recipe.student import AUTO_STUDENT, StudentConfig
from distillkit.recipe.teacher import TeacherConfig

T = TypeVar("T")

_NULL = "tag:yaml.org,2002:null"
_LARGEST = 1 << 17  # bytes of a file, which are read in seconds; all settings spelled out are 8,000
_DEEPEST = 8  # files that `use` one another

# Sections that may name a shelf file instead of being spelled out.
_ON_SHELF: dict[type, str] = {TeacherConfig: "teachers", StudentConfig: "students"}
# What the keys of a file of their own are below in a recipe.
_ABOVE: dict[type, str] = {TeacherConfig: "teacher.", StudentConfig: "student."}


def load_recipe(name: str) -> Recipe:
    """Load a recipe from the shelf or a path.

    Raises:
        InputError: No such recipe, or a key or value in it is wrong; the message says file and
            line.
    """
    return load_config("recipes", name, Recipe(student=StudentConfig(AUTO_STUDENT)))


def load_config(shelf_name: str, name: str, default: T) -> T:
    """Load a shelf YAML over `default`.

    Args:
        shelf_name: One of `shelf.SHELVES`.
        name: Shelf name or path; of a teacher also its checkpoint: a hub name, package:NAME or a
            folder.
        default: A frozen dataclass instance that fills what the YAML leaves out.

    Raises:
        InputError: No such file, not YAML, an unknown key, a value of the wrong type or out of
            range.
    """
    return _load(shelf_name, name, default, ())


def _load(shelf_name: str, name: str, default: T, above: tuple[Path, ...]) -> T:
    if isinstance(default, TeacherConfig) and _is_checkpoint(name):
        return dataclasses.replace(default, model=name)
    if isinstance(default, StudentConfig) and name == AUTO_STUDENT:
        return dataclasses.replace(default, kind=name)
    path = shelf.find(shelf_name, name)
    if path in above:
        raise InputError(f"{path} uses itself; name another file with `use`")
    if len(above) > _DEEPEST:
        raise InputError(
            f"{path}: the {len(above)}th file that `use` leads to; expected at most {_DEEPEST}"
        )
    return _Loader(path, above).load(_of_a_kind(default))


def _of_a_kind(default: T) -> T:
    """Return what settings are laid over: of the student auto, those of the default kind."""
    if isinstance(default, StudentConfig) and default.kind == AUTO_STUDENT:
        return dataclasses.replace(default, kind=StudentConfig().kind)
    return default


def _is_checkpoint(teacher: str) -> bool:
    """Say whether a teacher is named by its checkpoint; a mistyped shelf name is none."""
    there = [*shelf.entries("teachers"), *shelf.RENAMED["teachers"]]
    if teacher.endswith((".yaml", ".yml")) or teacher in there:
        return False
    return "/" in teacher or ":" in teacher or not get_close_matches(teacher, there, 1, 0.88)


def dump(config: object) -> str:
    """Return a configuration as YAML that `load_config` reads back to an equal object."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


def _known_keys(default: object, node: yaml.MappingNode) -> list[str]:
    """Return the keys of a section; of `augment.mix` also other methods, if one may be meant."""
    known = list(typing.get_type_hints(type(default)))
    if type(default) in _ON_SHELF:
        known.append("use")
    if isinstance(default, MixConfig) and any(key.value not in known for key, _ in node.value):
        known += [name for name in load_methods() if name not in known]
    return known


def _nearest(key: str, known: list[str], prefix: str, default: object) -> str:
    """Say which key was meant: one of a section below with just this name, or the nearest here."""
    below = [
        f"{name}.{key}"
        for name in known
        if key in getattr(getattr(default, name, None), "__dataclass_fields__", ())
    ]
    close = below[:1] or get_close_matches(key, known, 1)
    return f"did you mean '{prefix}{close[0]}'?" if close else f"known here: {', '.join(known)}"


class _Loader:
    """Fills dataclasses from the nodes of one YAML file; errors name file and line."""

    def __init__(self, path: Path, above: tuple[Path, ...] = ()) -> None:
        self.path = path
        self.above = above  # the files that named this one

    def load(self, default: T) -> T:
        with library_errors(str(self.path), "not YAML"):
            if (size := self.path.stat().st_size) > _LARGEST:
                raise InputError(f"{self.path}: {size:,} bytes; a recipe has {_LARGEST:,} at most")
            text = self.path.read_text(encoding="utf-8")
            if re.search(r"([\[{]\s*){16}", text):  # its scanner takes seconds over a thousand
                raise RecursionError
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        self.root = _ABOVE.get(type(default), "")
        return default if node is None else self._section(node, default, "")

    def _place(self, node: yaml.Node) -> str:
        return f"{self.path}:{node.start_mark.line + 1}"

    def _fail(self, node: yaml.Node, message: str) -> InputError:
        return InputError(f"{self._place(node)}: {message}")

    def _section(self, node: yaml.Node, default: T, prefix: str) -> T:
        if isinstance(node, yaml.ScalarNode) and type(default) in _ON_SHELF:
            return self._from_shelf(node, default)
        if isinstance(node, yaml.ScalarNode) and isinstance(default, ShipConfig):
            return self._form(node, default)  # type: ignore[return-value]
        if not isinstance(node, yaml.MappingNode):
            raise self._fail(
                node, f"{prefix.rstrip('.') or 'a recipe'} must be a mapping of keys to values"
            )
        nodes = self._nodes(node, default, prefix)
        default = _of_a_kind(default)
        if "use" in nodes:
            default = self._from_shelf(nodes.pop("use"), default)
        if isinstance(default, MixConfig):  # a mix that is given is the whole mix
            default = MixConfig().with_methods(nodes)  # type: ignore[assignment]
        hints = typing.get_type_hints(type(default))
        values: dict[str, Any] = {}
        for key, value in nodes.items():
            old = getattr(default, key)
            if dataclasses.is_dataclass(old):
                values[key] = self._section(value, old, f"{prefix}{key}.")
            else:
                values[key] = self._value(value, hints[key], prefix + key)
        try:
            return dataclasses.replace(default, **values)  # type: ignore[type-var]
        except InputError as error:
            # The dataclass knows neither the line nor the sections above its own.
            said = str(error)
            if prefix not in said:
                said = said.replace(prefix.split(".")[-2] + ".", prefix, 1)
            raise self._fail(
                next((n for key, n in nodes.items() if f".{key} " in f".{said}"), node), said
            ) from None

    def _form(self, node: yaml.ScalarNode, default: ShipConfig) -> ShipConfig:
        """Return the section that `ship: none` means."""
        try:
            return dataclasses.replace(default, form=node.value)
        except InputError as error:
            raise self._fail(node, str(error)) from None

    def _nodes(self, node: yaml.MappingNode, default: object, prefix: str) -> dict[str, yaml.Node]:
        nodes: dict[str, yaml.Node] = {}
        known = _known_keys(default, node)
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._fail(
                    key_node, f"a key below '{prefix}' is a {key_node.id}; expected a word"
                )
            old = key_node.value
            key = self._today(key_node, known, prefix)
            value = value_node.value if isinstance(value_node, yaml.ScalarNode) else None
            if did_nothing(f"{self.root}{prefix}{key}", value):
                continue
            if key not in known:
                gone = removed(f"{self.root}{prefix}{key}") is not None
                mend = (
                    "distillkit no longer has it: leave it out"
                    if gone
                    else _nearest(key, known, prefix, default)
                )
                raise self._fail(key_node, f"unknown key '{prefix}{key}'; {mend}")
            if key in nodes:
                also = "" if key == old else f", once by its old name '{prefix}{old}'"
                raise self._fail(key_node, f"'{prefix}{key}' is given twice{also}; keep one")
            nodes[key] = value_node
        sections = {key for key in nodes if dataclasses.is_dataclass(getattr(default, key, None))}
        # A section may have all its keys commented out.
        return {k: v for k, v in nodes.items() if k not in sections or v.tag != _NULL}

    def _today(self, node: yaml.Node, known: list[str], prefix: str) -> str:
        """Return the name that a key has today."""
        key = str(node.value)
        new = new_key(f"{self.root}{prefix}{key}")
        if key in known or new not in known:
            return key
        say_renamed(self._place(node), prefix + key, prefix + new)
        return new

    def _from_shelf(self, node: yaml.Node, default: T) -> T:
        name, files = self._value(node, str, "use"), (self.path, *self.above)
        try:
            return _load(_ON_SHELF[type(default)], name, default, files)
        except InputError as error:
            raise self._fail(node, str(error)) from None

    def _plain_value(self, node: yaml.Node, key: str) -> Any:
        """Return one value, or a list of values, that can be shown and written again."""
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        # Checked before anything is built or shown: aliases make a few lines nest without end.
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise self._fail(node, f"{key}: expected one value, or a list of values")
        with library_errors(self._place(node), f"{key} cannot be read"):
            value = yaml.SafeLoader("").construct_object(node, deep=True)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str):
                    item.encode()  # half of a surrogate pair, "\ud800", cannot be written again
                elif type(item) is int and abs(item) >= 2**63:
                    raise ValueError("expected a number below 2^63")
        return value

    def _value(self, node: yaml.Node, hint: Any, key: str) -> Any:
        value = self._plain_value(node, key)
        if typing.get_origin(hint) is Literal:
            return value  # the dataclass checks it
        if typing.get_origin(hint) is tuple:
            kind = typing.get_args(hint)[0]
            value = value if isinstance(value, list) else [value]
            if kind is float:
                value = [float(item) if type(item) is int else item for item in value]
            if not all(type(item) is kind for item in value):
                what = {str: "texts", int: "whole numbers", float: "numbers"}[kind]
                raise self._fail(node, f"{key} is {value!r}: expected a list of {what}")
            return tuple(value)
        if hint is float and type(value) is int:
            return float(value)
        if type(value) is not hint:
            as_text = hint is float and isinstance(value, str)
            mend = ": YAML reads it as text, write it with a point, as in 1.0e-3" if as_text else ""
            raise self._fail(node, f"{key} is {value!r}: expected {hint.__name__}{mend}")
        return value
