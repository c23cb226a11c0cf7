"""What a command finds by itself: the model in a run's folder, the columns that the run had."""

from pathlib import Path

from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, load_recipe

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
        return name
    log(f"{name}: {found} is taken")
    return str(found)


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
    if columns != ColumnsConfig() or not source or not (run / "data").is_dir():
        return columns
    own = load_recipe(str(recipe)).data.columns if recipe.is_file() else columns
    if own == columns or own.text not in _first_row(source):
        return columns
    log(f"{source}: its columns are those of {recipe}")
    return own


def _first_row(source: str) -> list[str]:
    from distillkit.data.readers import read_rows

    return next(([*row] for _, row in read_rows(source)), [])
