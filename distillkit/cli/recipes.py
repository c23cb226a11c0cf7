"""The commands that take a recipe: show the shelves, run it, measure it, examine it, search it."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from distillkit import shelf
from distillkit.cli.command import Command
from distillkit.errors import InputError
from distillkit.processes import world
from distillkit.recipe import SCORES, Recipe, load_recipe
from distillkit.recipe.kinds import load_kinds
from distillkit.tune.space import SearchConfig


@dataclass
class List:
    """List the recipes, teachers and students on the shelves, and the kinds of students.

    Example: distillkit list
    """


@dataclass
class _RecipeCommand:
    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds the folders of runs."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Every setting of a recipe."""

    @property
    def folder(self) -> Path:
        return self.runs / (self.name or Path(self.recipe).stem)


@dataclass
class Run(_RecipeCommand):
    """Run a recipe from labelled text to a measured student.

    Finished stages are kept, so the same command resumes.

    Example: distillkit run quickstart
    """


@dataclass
class Ladder(_RecipeCommand):
    """Train a recipe's student on more and more data, and measure what each step adds.

    The steps lead from gold labels to the full transfer set. Finished students are kept, so the
    same command resumes, and more seeds or rungs are added to what is there. Results are in
    RUNS/NAME/ladder.

    Example: distillkit ladder quickstart --seeds 3 --rungs gold originals full
    """

    rungs: tuple[str, ...] = ()
    """Which to train: majority, tfidf, gold, hard, originals, no-RULE, full, in-domain, teacher;
    none: all that the recipe has."""
    seeds: int = 3
    """Students of each rung, with the seeds --seed, --seed + 1, ...; the teacher has --seed."""


@dataclass
class Doctor(_RecipeCommand):
    """Check a recipe's data and teacher, and suggest a student, before hours are spent.

    Writes nothing.

    Example: distillkit doctor quickstart --teacher runs/quickstart/teacher/model
    """

    teacher: str = ""
    """A fine-tuned checkpoint to examine; empty: that of the run's folder, if it is there."""
    logits: str = ""
    """A logit store to examine; empty: that of the run's folder, if it is there."""
    rows: int = 1000
    """Dev rows to give to the teacher, at most; about half of them ten times more, with words
    masked or in another order."""


@dataclass
class Tune(_RecipeCommand):
    """Search a student's settings over a run's logits: dev score against speed and size.

    Finished trials are kept, so the same command resumes, and a larger --trials adds to what is
    there. The recipe's own student is the first trial. Results are in RUNS/NAME/tune, or
    RUNS/NAME/tune-STUDY.

    Example: distillkit tune quickstart --trials 40
    """

    trials: int = 40
    """Students in all, earlier ones included."""
    tolerance: float = 0.5
    """Points (hundredths) of dev score that best.yaml may lose to be faster and smaller."""
    study: str = ""
    """Name of one of several searches over the same logits; empty: the one without a name."""
    search: SearchConfig = field(default_factory=SearchConfig)


def _list(_: List) -> Iterator[dict[str, str]]:
    for name in shelf.SHELVES:
        for entry, path in shelf.entries(name).items():
            yield {"shelf": name, "name": entry, "what": shelf.description(path)}
    for kind in load_kinds().values():
        yield {"shelf": "student.kind", "name": kind.name, "what": kind.summary}


def _run(command: Run) -> dict[str, Any]:
    from distillkit import runs

    _in_one_process("run")
    result = runs.run(command.settings, command.folder)
    score = SCORES[command.settings.data.task]
    scores = {
        name: {split: model[split][score] for split in ("dev", "test") if split in model}
        for name, model in result["models"].items()
    }
    return {"output": str(command.folder), score: scores}


def _ladder(command: Ladder) -> dict[str, Any]:
    from distillkit.ladder import ladder

    _in_one_process("ladder")
    result = ladder(command.settings, command.folder, command.rungs, command.seeds)
    score = SCORES[command.settings.data.task]
    shown = (score, f"{score}_sd", "difference", "mcnemar_p")
    rungs = {
        name: {
            split: {key: rung[split][key] for key in shown if key in rung[split]}
            for split in ("dev", "test")
            if split in rung
        }
        for name, rung in result["rungs"].items()
    }
    return {"output": str(command.folder / "ladder"), "rungs": rungs}


def _doctor(command: Doctor) -> Iterator[dict[str, Any]]:
    from distillkit.doctor.examine import doctor
    from distillkit.doctor.findings import findings_table

    _in_one_process("doctor")
    report = doctor(command.settings, command.teacher, command.logits, command.folder, command.rows)
    sys.stderr.write(findings_table(report) + "\n")
    yield report
    if report["errors"]:
        raise InputError(
            f"{command.recipe}: errors found: {report['errors']}; the table above says what to do"
        )


def _tune(command: Tune) -> dict[str, Any]:
    from distillkit.tune.study import tune

    _in_one_process("tune")
    result = tune(
        command.settings,
        command.folder,
        command.search,
        command.trials,
        command.tolerance,
        command.study,
    )
    shown = ("trial", "score", "milliseconds", "megabytes")
    recipes, best = (
        {key: result["trials"][number][key] for key in shown} for number in (0, result["best"])
    )
    output = str(command.folder / (f"tune-{command.study}" if command.study else "tune"))
    return {"output": output, "trials": len(result["trials"]), "recipe": recipes, "best": best}


def _in_one_process(command: str) -> None:
    if world() > 1:
        raise InputError(
            f"{command} works in one process, but torchrun started {world()}: run {command} without torchrun, or single stages with it, such as train-student"
        )


def _recipe(name: str) -> dict[str, Any]:
    return {"recipe": name, "settings": load_recipe(name)}


COMMANDS: dict[str, Command] = {
    "list": Command(List, _list),
    "run": Command(Run, _run, _recipe),
    "ladder": Command(Ladder, _ladder, _recipe),
    "doctor": Command(Doctor, _doctor, _recipe),
    "tune": Command(Tune, _tune, _recipe),
}
