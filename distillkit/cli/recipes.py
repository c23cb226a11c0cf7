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
    """Show what is on the shelves, recipes, teachers, students, and the kinds of students.

    Example: distillkit list
    """


@dataclass
class Run:
    """Run a recipe from labelled text to a proven student; finished stages are kept, so the same command resumes.

    Example: distillkit run quickstart
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class Ladder:
    """Train a recipe's student on more and more, from gold labels to the full transfer set, and say what each step is worth.

    Finished students are kept, so the same command resumes, and more seeds or rungs are added to
    what is there.

    Example: distillkit ladder quickstart --seeds 3 --rungs gold originals full
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    rungs: tuple[str, ...] = ()
    """Which to train: majority, tfidf, gold, hard, originals, no-RULE, full, in-domain, teacher;
    none: all that the recipe has."""
    seeds: int = 3
    """Students of each rung, with the seeds --seed, --seed + 1, ...; the teacher is the one of
    --seed."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs; the ladder is in <runs>/<name>/ladder."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class Doctor:
    """Say what is wrong with a recipe's data and teacher, and which student they speak for, before hours are spent; writes nothing.

    Example: distillkit doctor quickstart --teacher runs/quickstart/teacher/model
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below."""
    teacher: str = ""
    """A fine-tuned checkpoint to examine; empty: that of the run's folder, if it is there."""
    logits: str = ""
    """A logit store to examine; empty: that of the run's folder, if it is there."""
    rows: int = 1000
    """Dev rows that the teacher is asked about, at most; about half of them it is asked ten times,
    their words in another order or masked."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


@dataclass
class Tune:
    """Search a student's settings over a run's logits: dev score against milliseconds and megabytes.

    Finished trials are kept, so the same command resumes, and a larger --trials adds to what is
    there.

    Example: distillkit tune quickstart --trials 40
    """

    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below, its student
    the first trial."""
    trials: int = 40
    """Students in all, those from before included."""
    tolerance: float = 0.5
    """How far below the best dev score best.yaml may be, in points (hundredths), to be faster and
    smaller."""
    study: str = ""
    """Name of one of several searches over the same logits; empty: the one without a name."""
    name: str = ""
    """Name of the run's folder; empty: the recipe's."""
    runs: Path = Path("runs")
    """Folder that holds runs; the search is in <runs>/<name>/tune, or
    <runs>/<name>/tune-<study>."""
    search: SearchConfig = field(default_factory=SearchConfig)
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Everything a recipe can say."""


def _list(_: List) -> Iterator[dict[str, str]]:
    for name in shelf.SHELVES:
        for entry, path in shelf.entries(name).items():
            yield {"shelf": name, "name": entry, "what": shelf.description(path)}
    for kind in load_kinds().values():
        yield {"shelf": "student.kind", "name": kind.name, "what": kind.summary}


def _run(command: Run) -> dict[str, Any]:
    from distillkit import runs

    _in_one_process("run")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    result = runs.run(command.settings, folder)
    score = SCORES[command.settings.data.task]
    scores = {
        name: {split: model[split][score] for split in ("dev", "test") if split in model}
        for name, model in result["models"].items()
    }
    return {"output": str(folder), score: scores}


def _ladder(command: Ladder) -> dict[str, Any]:
    from distillkit.ladder import ladder

    _in_one_process("ladder")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    result = ladder(command.settings, folder, command.rungs, command.seeds)
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
    return {"output": str(folder / "ladder"), "rungs": rungs}


def _doctor(command: Doctor) -> Iterator[dict[str, Any]]:
    from distillkit.doctor.examine import doctor
    from distillkit.doctor.findings import findings_table

    _in_one_process("doctor")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    report = doctor(command.settings, command.teacher, command.logits, folder, command.rows)
    sys.stderr.write(findings_table(report) + "\n")
    yield report
    if report["errors"]:
        raise InputError(
            f"{command.recipe}: errors found: {report['errors']}; what to do stands above"
        )


def _tune(command: Tune) -> dict[str, Any]:
    from distillkit.tune.study import tune

    _in_one_process("tune")
    folder = command.runs / (command.name or Path(command.recipe).stem)
    result = tune(
        command.settings, folder, command.search, command.trials, command.tolerance, command.study
    )
    shown = ("trial", "score", "milliseconds", "megabytes")
    recipes, best = (
        {key: result["trials"][number][key] for key in shown} for number in (0, result["best"])
    )
    output = str(folder / (f"tune-{command.study}" if command.study else "tune"))
    return {"output": output, "trials": len(result["trials"]), "recipe": recipes, "best": best}


def _in_one_process(command: str) -> None:
    if world() > 1:
        raise InputError(
            f"{command} works in one process, and torchrun has started {world()}: start {command} without it, or give it single stages, such as train-student"
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
