"""Find a shipped YAML on one of the three shelves: recipes, teachers, students."""

import os
from difflib import get_close_matches
from pathlib import Path

from distillkit.errors import InputError, say_renamed

SHELVES = ("recipes", "teachers", "students")

# Old names of shelf files and today's, for one release: {"students": {"old": "new"}}.
RENAMED: dict[str, dict[str, str]] = {
    "recipes": {
        "mrpc-siamese": "mrpc",
        "mrpc-transformer": "mrpc",
        "qqp-siamese": "qqp",
        "sick-transformer": "sick",
        "stsb-siamese": "stsb",
    },
    "teachers": {},
    "students": {
        "bilstm-pieces": "bilstm-subwords",
        "siamese-bilstm-pieces": "siamese-bilstm-subwords",
    },
}

_PACKAGE = Path(__file__).parent
# A wheel carries the shelves inside the package; a checkout reads them beside it.
_ROOT = _PACKAGE / "shelves" if (_PACKAGE / "shelves").is_dir() else _PACKAGE.parent


def entries(shelf: str) -> dict[str, Path]:
    """List a shelf.

    Args:
        shelf: One of `SHELVES`.

    Returns:
        Path of each YAML by its name (the file name without `.yaml`), sorted by name.
    """
    return {
        path.stem: path
        for path in sorted((_ROOT / shelf).glob("*.yaml"), key=lambda path: path.stem)
    }


def find(shelf: str, name: str) -> Path:
    """Find a YAML by its name on the shelf or by its path.

    Args:
        shelf: One of `SHELVES`.
        name: A shelf name such as `sst2-bilstm`, or a path that ends in `.yaml` or `.yml`.

    Raises:
        InputError: Nothing is there; the message lists what is.
    """
    if name.endswith((".yaml", ".yml")):
        if not os.path.isfile(name):
            raise InputError(f"{name}: no such file")
        return Path(name)
    there = entries(shelf)
    if name not in there and name in RENAMED[shelf]:
        new = RENAMED[shelf][name]
        say_renamed("", f"{shelf}/{name}", f"{shelf}/{new}")
        name = new
    if name not in there:
        if os.path.isfile(own := os.path.join(name, "recipe.yaml")) and shelf == "recipes":
            raise InputError(f"{name}: a run's folder; its recipe is {own}")
        if os.path.isdir(name) and shelf == "recipes":
            raise InputError(f"{name}: a folder; expected a recipe, or a file of labelled text")
        close = get_close_matches(name, there, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        also = ", and so does OWNER/NAME or a folder" if shelf == "teachers" else ""
        raise InputError(
            f"{name!r} is not on the shelf {shelf}/: {hint}it holds {', '.join(there)}; a path to a .yaml file works too{also}"
        )
    return there[name]


def description(path: Path) -> str:
    """Return the first comment line of a shelf file: what it is, in one line."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip()
