"""The commands that take a recipe: show the shelves, run it, measure it, examine it, search it."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

from tyro.conf import Positional, arg

from distillkit import shelf
from distillkit.cli.command import Columns, Command
from distillkit.cli.places import TEACHER, model_in, with_files_beside
from distillkit.errors import InputError
from distillkit.processes import log, terminal_width, world
from distillkit.recipe import SCORES, ColumnsConfig, Recipe, load_config, load_recipe
from distillkit.recipe.kinds import load_kinds
from distillkit.tune.space import SearchConfig

_LABELLED = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
_COLUMNS = {"data.columns." + name.replace("_", "-"): name for name in vars(ColumnsConfig())}


def _recipe(name: str, given: dict[str, str]) -> dict[str, Any]:
    own = name.lower().endswith(_LABELLED)
    settings = _recipe_for(name, given) if own else with_files_beside(load_recipe(name), name)
    for section in ("student", "teacher"):
        if section in given:
            config = load_config(f"{section}s", given[section], getattr(Recipe(), section))
            settings = replace(settings, **{section: config})
    return {"recipe": name, "settings": settings}


def _recipe_for(source: str, given: dict[str, str]) -> Recipe:
    """Return the recipe that `init` would write for a file of labelled text."""
    from distillkit.doctor.start import init

    columns = {name: given[flag] for flag, name in _COLUMNS.items() if flag in given}
    with TemporaryDirectory() as folder:
        place = Path(folder) / "recipe.yaml"
        written = init(source, place, given.get("data.dev", ""), ColumnsConfig(**columns))
        settings = load_recipe(str(place))
    teacher = written["teacher"]
    if teacher != "minilm-l6" and not {"teacher", "teacher.model"} & given.keys():
        raise InputError(
            f"{source}: language {written['language']}, for which no teacher is installed; name one: --teacher.model {teacher} comes from the hub"
        )
    _say_unread(written, source)
    read = ", ".join(f"{what} is {name!r}" for what, name in written["columns"].items())
    who = given.get("teacher.model") or given.get("teacher") or teacher
    student = given.get("student") or written["student"]
    found = f"{written['rows']:,} rows, {written['task']}, {read}; teacher {who}, student {student}"
    found += "; dev " + (written["dev"] or "a tenth of the rows")
    found += f", test {written['test']}" if written["test"] else ""
    log(f"{source}: {found}; distillkit init {quote(source)} writes this as a recipe to change")
    return settings


def _say_unread(written: dict[str, Any], source: str) -> None:
    if other := written.get("other_text"):
        log(
            f"{source}: column {other!r} is not read; if each row is a pair, give --data.columns.text-pair {other!r}"
        )
    if others := written.get("other_labels"):
        log(
            f"{source}: {', '.join(map(repr, others))}: not read, though 0 and 1 like the label; for several labels a text, write their names into one column"
        )


@dataclass(frozen=True)
class List(Command):
    """List the recipes, teachers and students on the shelves, and the kinds of students.

    Example: distillkit list
    """

    def __call__(self) -> Iterator[dict[str, str]]:
        for name in shelf.SHELVES:
            for entry, path in shelf.entries(name).items():
                yield {"shelf": name, "name": entry, "what": shelf.description(path)}
        for kind in load_kinds().values():
            yield {"shelf": "student.kind", "name": kind.name, "what": kind.summary}

    def readable(self, results: Iterator[dict[str, str]]) -> Iterator[str]:
        """Lay the shelves out one below the other, each line as wide as the terminal."""
        width, rows = shutil.get_terminal_size().columns, list(results)
        names = max(len(row["name"]) for row in rows) + 4
        for name, shelf_rows in groupby(rows, itemgetter("shelf")):
            yield f"{name}:"
            for row in shelf_rows:
                lines = textwrap.wrap(row["what"], max(width - names, 20), break_on_hyphens=False)
                yield f"  {row['name']:<{names - 2}}" + f"\n{'':<{names}}".join(lines)


@dataclass(frozen=True)
class Init(Command):
    """Look at a file of labelled text, and write a commented recipe for it.

    Without SOURCE it asks three questions.

    Example: distillkit init train.csv --output mine.yaml
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")] = ""
    """Labelled text: a file, embedded:NAME/SPLIT or datasets:NAME[:CONFIG]:SPLIT."""
    output: Path = Path("mine.yaml")
    """The recipe to write."""
    dev: str = ""
    """Labelled dev rows; empty: a file such as dev.csv beside train.csv, or else a tenth of it."""
    labels: tuple[str, ...] = ()
    """Names of the classes, where SOURCE is text without labels."""
    overwrite: bool = False
    """Replace a recipe that is there."""
    columns: Columns = field(default_factory=ColumnsConfig)

    def __call__(self) -> dict[str, Any]:
        from distillkit.doctor.start import init

        asked = self if self.source else self._ask()
        written = init(**vars(asked))
        _say_unread(written, asked.source)
        recipe = quote(written["output"])
        log(f"next: distillkit doctor {recipe}, then distillkit run {recipe}")
        return written

    def _ask(self) -> "Init":
        if not sys.stdin.isatty():
            raise InputError("which file? give it: distillkit init train.csv")
        source = input("Which file has the labelled text? ").strip()
        if not source:
            raise InputError("no file was named; type its name, or distillkit init train.csv")
        dev = input("Which file has dev rows? (Enter: a tenth is set aside) ").strip()
        output = input(f"Write the recipe where? (Enter: {self.output}) ").strip()
        return replace(self, source=source, dev=dev, output=Path(output or self.output))


@dataclass(frozen=True)
class _RecipeCommand(Command):
    recipe: Annotated[str, Positional, arg(metavar="RECIPE")]
    """A recipe's name on the shelf, or a .yaml file; its values are the defaults below. Or a file of
    labelled text (.csv, .tsv, .jsonl, .parquet), for which init would write one."""
    output: Path | None = None
    """Folder of the run; empty: runs/NAME, with the recipe's name."""
    student: str = ""
    """A student of the shelf, or a .yaml file, in place of the recipe's."""
    teacher: str = ""
    """A teacher of the shelf, a .yaml file, or a checkpoint (hub name, folder), in place of the
    recipe's."""
    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    """Every setting of a recipe."""

    shelf_word = "recipe"
    early: ClassVar[tuple[str, ...]] = (
        *("student", "teacher", "teacher.model", "data.dev"),
        *_COLUMNS,
    )
    from_shelf = _recipe

    @property
    def folder(self) -> Path:
        return self.output or Path("runs", Path(self.recipe).stem)

    def check_start(self) -> None:
        """Refuse to run under torchrun, or to redo another file's run: many files are train.csv.

        Raises:
            InputError: There are several processes, or the folder holds such a run.
        """
        saved = self.folder / "recipe.yaml"
        if not self.output and self.recipe.lower().endswith(_LABELLED) and saved.is_file():
            before = load_recipe(str(saved)).data.train
            if Path(before).resolve() != Path(self.settings.data.train).resolve():
                raise InputError(
                    f"{self.folder}: holds a run of {before}; give --output another folder, or delete this one"
                )
        if world() > 1:
            name = type(self).__name__.lower()
            raise InputError(
                f"{name} works in one process, but torchrun started {world()}: run {name} without torchrun, or single stages with it, such as train-student"
            )


@dataclass(frozen=True)
class Run(_RecipeCommand):
    """Run a recipe from labelled text to a measured student.

    Finished stages are kept, so the same command resumes.

    Example: distillkit run quickstart
    """

    tells = True

    def __call__(self) -> dict[str, Any]:
        from distillkit.api import run_recipe
        from distillkit.measure.closing import COLLAPSE_CURE
        from distillkit.measure.report import not_gold

        self.check_start()
        result = run_recipe(self.settings, self.folder).result
        score = SCORES[self.settings.data.task]
        scores = {
            name: {split: model[split][score] for split in ("dev", "test") if split in model}
            for name, model in result["models"].items()
        }
        if result["collapsed"]:
            raise InputError(
                f"{self.folder}: the student has collapsed: it answers no better than one answer to all rows would; "
                f"{COLLAPSE_CURE}"
            )
        if self.settings.data.train.startswith("embedded:"):
            log("with your own text: distillkit init train.csv writes a recipe for it")
        return {"output": str(self.folder), "agreement" if not_gold(result) else score: scores}


@dataclass(frozen=True)
class Ladder(_RecipeCommand):
    """Train a recipe's student on more and more data, and measure what each step adds.

    The steps lead from gold labels to the full transfer set. Finished students are kept, so the
    same command resumes, and more seeds or ablation rows are added to what is there. Results are in
    the folder ladder/ of the run's.

    Example: distillkit ladder quickstart --seeds 3 --ablations gold originals full
    """

    ablations: tuple[str, ...] = ()
    """Which rows to train: majority, tfidf, frozen, gold, hard, originals, no-RULE, full, in-domain,
    teacher; none: all that the recipe has."""
    seeds: int = 3
    """Students of each row, with the seeds --seed, --seed + 1, ...; the teacher has --seed."""

    tells = True

    def __call__(self) -> dict[str, Any]:
        from distillkit.ladder import ladder

        self.check_start()
        result = ladder(self.settings, self.folder, self.ablations, self.seeds)
        score = SCORES[self.settings.data.task]
        shown = (score, f"{score}_sd", "difference", "mcnemar_p")
        ablations = {
            name: {
                split: {key: row[split][key] for key in shown if key in row[split]}
                for split in ("dev", "test")
                if split in row
            }
            for name, row in result["ablations"].items()
        }
        return {"output": str(self.folder / "ladder"), "ablations": ablations}


@dataclass(frozen=True)
class Doctor(_RecipeCommand):
    """Check a recipe's data and teacher, and suggest a student, before hours are spent.

    Writes nothing but the file of --labels.

    Example: distillkit doctor quickstart --teacher runs/quickstart/teacher/model
    """

    teacher: str = ""
    """A fine-tuned checkpoint to examine; empty: that of the run's folder, if it is there."""
    logits: str = ""
    """A logit store to examine; empty: that of the run's folder, if it is there."""
    early: ClassVar[tuple[str, ...]] = ("student", "teacher.model", "data.dev", *_COLUMNS)
    rows: int = 1000
    """Dev rows that the teacher answers, at most; half of them it answers ten times more, with words
    shuffled or masked."""
    labels: Path | None = None
    """A .csv file to write: rows of train and dev whose labels look wrong, to be corrected there and
    given back as data.corrections."""

    tells = True

    def __call__(self) -> Iterator[dict[str, Any]]:
        from distillkit.doctor.examine import doctor
        from distillkit.doctor.findings import findings_table

        self.check_start()
        teacher = model_in(self.teacher, TEACHER)
        report = doctor(self.settings, teacher, self.logits, self.folder, self.rows, self.labels)
        sys.stderr.write(findings_table(report, terminal_width()) + "\n")
        if not report["errors"]:
            output = f" --output {quote(str(self.output))}" if self.output else ""
            log(f"next: distillkit run {quote(self.recipe)}{output}")
        yield report
        if report["errors"]:
            raise InputError(
                f"{self.recipe}: errors found: {report['errors']}; the table above says what to do"
            )


@dataclass(frozen=True)
class Tune(_RecipeCommand):
    """Search a student's settings over a run's logits: dev score against speed and size.

    Finished trials are kept, so the same command resumes, and a larger --trials adds to what is
    there. The recipe's own student is the first trial. Results are in the folder tune/, or
    tune-STUDY/, of the run's.

    Example: distillkit tune quickstart --trials 40
    """

    trials: int = 40
    """Students in all, earlier ones included."""
    tolerance: float = 0.5
    """Points (hundredths) of dev score that best.yaml may lose to be faster and smaller."""
    study: str = ""
    """Name of one of several searches over the same logits; empty: the one without a name."""
    search: SearchConfig = field(default_factory=SearchConfig)

    tells = True

    def __call__(self) -> dict[str, Any]:
        from distillkit.tune.study import tune

        self.check_start()
        result = tune(
            self.settings, self.folder, self.search, self.trials, self.tolerance, self.study
        )
        shown = ("trial", "score", "milliseconds", "megabytes")
        recipes, best = (
            {key: result["trials"][number][key] for key in shown} for number in (0, result["best"])
        )
        output = str(self.folder / (f"tune-{self.study}" if self.study else "tune"))
        return {"output": output, "trials": len(result["trials"]), "recipe": recipes, "best": best}
