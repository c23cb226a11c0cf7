"""Whether a run is finished: what its folder shows belongs together."""

from pathlib import Path

from distillkit.data.checked import read_json
from distillkit.errors import InputError
from distillkit.recipe import Recipe, StudentConfig, load_config, load_recipe
from distillkit.runs.evaluation import evaluation_folder
from distillkit.runs.folder import BUNDLE, Summary, stages_of


def finished(run: Path) -> tuple[Recipe, Summary]:
    """Return a run's recipe and result.

    Raises:
        InputError: They are not those of its stages: the run is not finished, or being done again.
    """
    recipe = load_recipe(str(run / "recipe.yaml"))
    mend = f"distillkit run {run / 'recipe.yaml'} --output {run} goes on from what is there"
    evaluation = evaluation_folder(run).name
    for stage in stages_of(recipe):
        if stage == "ship" and not (run / BUNDLE).exists():
            continue  # an earlier distillkit shipped nothing, whatever the recipe says today
        folder = (run / (evaluation if stage == "evaluation" else stage)).resolve()
        unfinished = folder.with_name(f".{folder.name}.partial").exists()
        if unfinished or not (folder / "stage.json").is_file():
            raise InputError(f"{run}: not finished: its stage {stage} is missing; {mend}")
    if not (run / "result.json").is_file():
        raise InputError(f"{run}: not finished: its result.json is missing; {mend}")
    result = read_json(run / "result.json")
    models, data = (
        read_json(run / name / "stage.json")["summary"] for name in (evaluation, "data")
    )
    saved = str(run / "student" / "model" / "student.yaml")
    found = result["models"], result["data"], load_config("students", saved, StudentConfig())
    if found != (models["models"], data, recipe.student):
        raise InputError(
            f"{run}: not finished: its recipe or stages are newer than its result.json; {mend}"
        )
    return recipe, result
