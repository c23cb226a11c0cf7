"""What a command finds by itself: a run's model and columns, files beside a recipe."""

from pathlib import Path
from shlex import quote
from typing import Any

from distillkit import shelf
from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, DataConfig, Recipe, load_recipe
from distillkit.recipe.places import Sort, places_of, with_places

BUNDLE, STUDENT, TEACHER = "bundle.zip", "student/model", "teacher/model"


def model_in(name: str, *places: str) -> str:
    """Return what a run's folder holds at the first of `places` that is there.

    Args:
        name: A model as a user named it. What is no run's folder is returned as it is.
        places: `BUNDLE`, `STUDENT` or `TEACHER`.
    """
    folder = Path(name)
    if not name or any((folder / own).exists() for own in ("config.json", "manifest.json")):
        return name
    found = next((folder / place for place in places if (folder / place).exists()), None)
    if found is None:
        recipe = folder / "recipe.yaml"
        if recipe.is_file() and (folder / "data").is_dir():
            raise InputError(
                f"{name}: the run has no {' or '.join(places)} yet; finish it: distillkit run {quote(str(recipe))} --output {quote(name)}"
            )
        return name
    at_work = any(folder.glob(".*.partial"))
    log(f"{name}: a run's folder{', not finished' if at_work else ''}; using {found}")
    return str(found)


def with_files_beside(recipe: Recipe, name: str) -> Recipe:
    """Take a recipe's relative paths from its own folder where the working folder lacks them."""
    folder = shelf.find("recipes", name).parent

    def found(sort: Sort, setting: str, path: str) -> str:
        beside = folder / path
        if Path(path).exists() or not beside.exists():
            return path
        log(f"{name}: using {beside} for {path}, from the recipe's folder")
        return str(beside)

    return with_places(recipe, found)


def columns_of(model: str, source: str, columns: ColumnsConfig) -> ColumnsConfig:
    """Return the columns of the run that made a model, where a source has them and none are given.

    Args:
        model: A folder or file in a run's folder, or any other model.
        source: What is to be read.
        columns: As the user gave them.
    """
    place = Path(model)
    run = place.parent.parent if place.name == "model" else place.parent
    recipe = run / "recipe.yaml"
    if columns != ColumnsConfig() or not (
        model and source and place.exists() and (run / "data").is_dir()
    ):
        return columns
    own = load_recipe(str(recipe)).data.columns if recipe.is_file() else columns
    if own == columns or own.text not in _first_row(source):
        return columns
    log(f"{source}: using the columns of {recipe}")
    return own


def _first_row(source: str) -> list[str]:
    from distillkit.data.readers import read_rows

    return next(([*row] for _, row in read_rows(source)), [])


def check_sources(arguments: dict[str, Any]) -> None:
    """Refuse a file that is not there, before imports that take seconds.

    Args:
        arguments: A command's, by name.

    Raises:
        InputError: A source is absent.
    """
    settings = arguments.get("settings")
    config = settings if isinstance(settings, Recipe) else arguments.get("data")
    sources = [arguments.get(name, "") for name in ("source", "dev", "transfer_set")]
    sources += [*arguments.get("held_out", ()), *arguments.get("unlabelled", ())]
    if isinstance(config, Recipe | DataConfig):
        sources += [place for sort, place in places_of(config) if sort == "source"]
    named = ("", "-", "auto", "wordnet")
    try:
        from distillkit.data.readers import source_path
    except ModuleNotFoundError:  # a server has no package that reads files; the command says so
        return
    for source in sources:
        if source not in named and ":" not in source and not Path(source).exists():
            source_path(source)
