"""`distillkit tune`: students of other settings, trained on a run's logits, each a stage.

    data -> teacher -> transfer set -> logits -> trials, one after another -> front

The first four stages are those of `distillkit run`, in the same folder. What a trial tries follows
from the seed, its number and the results of the trials before it. All of these are in their stages,
so a killed search resumes with the proposals that it would have made.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from distillkit import __version__, pipeline
from distillkit.data.checked import read_json, read_parquet
from distillkit.data.content import paired, texts_of
from distillkit.data.files import whole_file
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.measure.cost import answer_of, megabytes, milliseconds, parameter_counts
from distillkit.measure.results import write_results
from distillkit.pipeline.student import STUDENT_VERSION
from distillkit.processes import log, progress_bar
from distillkit.recipe import Recipe, dump, load_recipe
from distillkit.runs import (
    RunFolder,
    Summary,
    Taught,
    at_work,
    label_transfer_set,
    look_ahead,
    student_job,
    teach,
    vectors_of,
    with_data,
)
from distillkit.student.train import rows_an_epoch
from distillkit.teacher.checkpoint import load_classifier, load_config_of
from distillkit.training.checkpoints import by_path, checkpoint_folder
from distillkit.training.inference import on_threads
from distillkit.tune.front import choose, draw_front, front_table, pareto_front
from distillkit.tune.sampler import OBJECTIVES, propose
from distillkit.tune.space import (
    RATE,
    Bounds,
    Hyperparameter,
    Parameters,
    SearchConfig,
    check_search,
    new_name,
    own_parameters,
    space_of,
    with_parameters,
)

_ROUNDS, _ROUND_ROWS = 3, 100  # of timing, and the fewest texts in each
# Raise the 1 when a trial of the same settings, inputs and student gives another result.
TRIAL_VERSION = STUDENT_VERSION + 1
_ELSEWHERE = ("engine", "workers")  # settings that change no result
_MEND = "give the same, choose another --study, or remove that folder"


def tune(
    recipe: Recipe,
    folder: Path,
    search: SearchConfig | None = None,
    trials: int = 40,
    tolerance: float = 0.5,
    study: str = "",
) -> Summary:
    """Search a student's settings over the logits of a run.

    Args:
        recipe: What to run; the first trial is its own student. Its seed is that of every student
            and of the search.
        folder: A run's folder, as for `runs.run`.
        search: What is searched.
        trials: How many in all, earlier ones included.
        tolerance: How far the chosen student's dev score may be below the best, in points
            (hundredths).
        study: The search is in `tune-<study>/` of the folder; empty: in `tune/`.

    Returns:
        What is written to `tune.json` there: the space, and of each trial its parameters, its
            measurements, and whether it is on the front.

    Raises:
        InputError: Something given is wrong, there are trials of another recipe or search, or
            another run is at work in the folder.
    """
    search = (search or SearchConfig()).with_new_names()
    if trials < 1:
        raise InputError(f"--trials is {trials}: expected at least 1")
    if not tolerance >= 0:
        raise InputError(f"--tolerance is {tolerance}: expected 0 or more points")
    if study and not study.replace("-", "").replace("_", "").isalnum():
        raise InputError(f"--study {study!r}: expected letters, digits, - and _")
    if not recipe.training.epochs or not recipe.evaluation.latency_sentences:
        name = "evaluation.latency_sentences" if recipe.training.epochs else "training.epochs"
        raise InputError(
            f"{name} is 0: a search trains its students and times them; give at least 1"
        )
    recipe = with_data(recipe)
    check_search(recipe, search)
    _check_optuna()
    place = folder / (f"tune-{study}" if study else "tune")
    _check_same(place, recipe, search)
    with at_work(folder) as home:
        models = look_ahead(recipe)
        task = teach(recipe, home, place / "recipe.yaml")
        _, transfer_set = label_transfer_set(recipe, home, task, models)
        return _Study(recipe, search, place, home, task, transfer_set).run(trials, tolerance)


def _check_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tune needs Optuna: pip install 'distillkit[tune]'") from None


def _check_same(place: Path, recipe: Recipe, search: SearchConfig) -> None:
    """Refuse to mix trials of two recipes or two spaces.

    Raises:
        InputError: There are trials of other settings; the message names one that differs.
    """
    first = place / "trial-0"
    if not (first / "stage.json").is_file():
        return
    given = read_json(place / "study.json", f"delete {place} to search anew")["search"]
    searched = {new_name(name): ends for name, ends in given.items()}
    searched["hyperparameters"] = [new_name(name) for name in searched["hyperparameters"]]
    trained = asdict(load_recipe(str(first / "recipe.yaml")))  # which knows old names
    before = by_path({**trained, "search": searched})
    now = by_path({**asdict(recipe), "search": asdict(search)})
    for name, value in now.items():
        if before.get(name) != value and name not in _ELSEWHERE:
            said = f"{name} {before.get(name)!r}, not {value!r}"
            raise InputError(f"{place}: its trials have {said}; {_MEND}")


class _Study:
    """One call of `tune`.

    Args:
        recipe: The first trial's.
        search: What is searched.
        place: The search's folder.
        home: The run's.
        task: What `runs.teach` left there.
        transfer_set: Path of the table whose logits the run has.
    """

    def __init__(
        self,
        recipe: Recipe,
        search: SearchConfig,
        place: Path,
        home: RunFolder,
        task: Taught,
        transfer_set: str,
    ) -> None:
        self.recipe, self.search, self.place = recipe, search, place
        self.home, self.task, self.transfer_set = home, task, transfer_set
        self.stages = RunFolder(place)
        self.trials: list[Summary] = []
        settings = {name: v for name, v in asdict(recipe).items() if name not in _ELSEWHERE}
        self.base = {"recipe": settings, "search": search.as_before()}
        dev = {"dev": task.tables["dev"]}
        self.inputs = dev | home.keys("teacher", "logits") | vectors_of(recipe)

    def run(self, trials: int, tolerance: float) -> Summary:
        """Train what is missing, then report on all that is there."""
        self._take_up()
        if not self.trials:
            given = {"recipe": asdict(self.recipe), "search": asdict(self.search)}
            with whole_file(self.place / "study.json") as unfinished:
                unfinished.write_text(json.dumps(given, indent=1) + "\n", encoding="utf-8")
        with progress_bar(total=trials, initial=len(self.trials), desc="tune", unit="trial") as bar:
            while len(self.trials) < trials:
                parameters = self._proposed()
                if parameters is None:
                    log(f"tune: all settings were tried: {len(self.trials)} trials")
                    break
                self._try(len(self.trials), parameters)
                bar.update()
                bar.set_postfix(best=f"{max(trial.get('score', 0) for trial in self.trials):.4f}")
        return self._report(tolerance)

    def _take_up(self) -> None:
        """Find the trials that are finished.

        Raises:
            InputError: They are of other data or logits than there are now.
        """
        while (self.place / (name := f"trial-{len(self.trials)}") / "stage.json").is_file():
            number = len(self.trials)
            found = self.stages.kept(name, [self.base, number], self.inputs, version=TRIAL_VERSION)
            if found is None and not self.stages.is_of(name, TRIAL_VERSION):
                break  # it and those after it are done again
            if found is None:
                raise InputError(
                    f"{self.place}: trial {number} was made with other data or logits; {_MEND}"
                )
            self._add(found)
        if self.trials:
            log(f"{self.place}: {len(self.trials)} trials are finished, kept")

    def _add(self, found: Summary) -> None:
        parameters = {new_name(name): value for name, value in found["parameters"].items()}
        self.trials.append({"trial": len(self.trials), **found, "parameters": parameters})

    @cached_property
    def marks(self) -> Any:
        """The transfer set's columns that say where a row is from, (N rows) Table."""
        return read_parquet(self.transfer_set, ["origin", "rules"])

    @cached_property
    def bounds(self) -> Bounds:
        """What data and teacher allow of any range, once the recipe's own student is trained."""
        teacher, rules = load_config_of(self.task.model), self.marks["rules"].unique().to_pylist()
        rates = {rule for joined in rules if joined for rule in joined.split("+")}
        origins = set(self.marks["origin"].unique().to_pylist()) - {"original"}
        # Variants are told apart by their rules, if they have any.
        rates |= origins - {"augmented"} if rates else origins
        words = self.trials[0]["vocabulary"]
        named = self.recipe.student.embeddings.encoder
        encoder = load_config_of(named) if named else teacher
        return Bounds(encoder.hidden_size, teacher.num_hidden_layers, words, tuple(sorted(rates)))

    @cached_property
    def space(self) -> dict[str, Hyperparameter]:
        """What is searched."""
        space, why = space_of(self.recipe, self.search, self.bounds)
        for line in why:
            log(f"tune: {line}")
        return space

    def _proposed(self) -> dict[str, float] | None:
        """Return what the next trial is to try: the recipe's own student first; None at the end."""
        if not self.trials:
            return {}
        own = own_parameters(self.recipe, self.space, self.bounds.words)
        tried = [own, *(trial["parameters"] for trial in self.trials[1:])]
        return propose(self.space, self.trials, tried, self.recipe.seed)

    def _recipe(self, parameters: Parameters) -> Recipe:
        """Return the recipe of a trial."""
        if not parameters:
            return self.recipe
        rates = {
            name.removeprefix(RATE): value
            for name, value in parameters.items()
            if name.startswith(RATE)
        }
        weights = self.recipe.training.sampling_weights
        if rates:
            weights = self._steady(self.recipe.training.weight_of() | rates)
        return with_parameters(self.recipe, parameters, weights)

    def _steady(self, weights: dict[str, float]) -> tuple[str, ...]:
        """Scale sampling weights to the recipe's rows per epoch: no trial wins by more steps."""
        own = self.recipe.training.weight_of()
        scale = rows_an_epoch(self.marks, own) / rows_an_epoch(self.marks, weights)
        # Every row has one origin.
        origins = sorted(self.marks["origin"].unique().to_pylist())
        scaled = weights | {name: weights.get(name, 1.0) * scale for name in origins}
        return tuple(f"{name}={value:.4g}" for name, value in scaled.items())

    def _try(self, number: int, parameters: dict[str, float]) -> None:
        recipe = self._recipe(parameters)

        def trial(out: Path) -> Summary:
            model, saved, text = out / "model", out / "recipe.yaml", dump(recipe)
            # Another release of Optuna may propose otherwise than the one that began this trial.
            resume = not saved.is_file() or saved.read_text(encoding="utf-8") == text
            saved.write_text(text, encoding="utf-8")
            try:
                summary = self._train(number, recipe, model, resume)
            except InputError:
                # Divergence is an answer to the search; any other mistake is the user's to mend.
                if not number or not any(checkpoint_folder(model).glob("bad-batch-*.json")):
                    raise
                shutil.rmtree(checkpoint_folder(model))
                return {"parameters": parameters, "failed": "a loss or gradient was no number"}
            found = {
                "parameters": parameters,
                "score": summary[f"dev_{recipe.training.score_of(recipe.data.task)}"],
                **self._timed(number, model),
                "megabytes": megabytes(model),
                "model_parameters": parameter_counts(load_classifier(str(model))[0])["total"],
                **{name: summary[name] for name in ("vocabulary", "best_epoch")},
            }
            if number:  # the others are timed beside the first one's student
                shutil.rmtree(model)
            return found

        settings = [self.base, number]
        self._add(
            self.stages.stage(
                f"trial-{number}", settings, self.inputs, trial, version=TRIAL_VERSION
            )
        )

    def _train(self, number: int, recipe: Recipe, model: Path, resume: bool) -> Mapping[str, Any]:
        logits = self.home.folder / "logits" / "store"
        job = student_job(recipe, self.task, self.transfer_set, model, logits)
        return pipeline.train_student(replace(job, progress=f"trial {number}", resume=resume))

    def _timed(self, number: int, model: Path) -> Summary:
        """Time a saved student on dev, a text at a time, in turns with the recipe's own student.

        The result is the ratio of the two, times the milliseconds of the recipe's own student in
        the first trial. Trials are hours apart, and the machine may be busier in one of them.
        """
        dev = read_table(self.task.path["dev"], self.task.columns, labels="ignored")
        rows = list(paired(*texts_of(dev.slice(0, self.recipe.evaluation.latency_sentences))))
        rows *= -(-_ROUND_ROWS // len(rows))
        answers = {"student": answer_of(*load_classifier(str(model)))}
        if number:
            answers["own"] = answer_of(*load_classifier(str(self.place / "trial-0" / "model")))
        with on_threads(1):
            rounds = [milliseconds(answers, rows) for _ in range(_ROUNDS)]
        found = [times["student"] for times in rounds]
        if number:
            first = self.trials[0]["milliseconds"]
            found = [first * times["student"] / times["own"] for times in rounds]
        return {"milliseconds": float(np.median(found)), "milliseconds_by_round": found}

    def _report(self, tolerance: float) -> Summary:
        done = [trial for trial in self.trials if "failed" not in trial]
        on_front = pareto_front(*([trial[name] for trial in done] for name in OBJECTIVES))
        for trial, on in zip(done, on_front, strict=True):
            trial["front"] = on
        best = choose(done, tolerance)["trial"]
        space = self.space if len(self.trials) > 1 else {}
        first = self.trials[0]
        first["parameters"] = own_parameters(self.recipe, space, first["vocabulary"])
        result = {
            "distillkit": __version__,
            "seed": self.recipe.seed,
            "score": self.recipe.training.score_of(self.recipe.data.task),
            "tolerance": tolerance,
            "space": {name: asdict(found) for name, found in space.items()},
            "best": best,
            "trials": self.trials,
        }
        with whole_file(self.place / "best.yaml") as unfinished:
            shutil.copyfile(self.place / f"trial-{best}" / "recipe.yaml", unfinished)
        shown, draw = front_table(result), partial(draw_front, result)
        write_results("tune", self.place, result, shown, (9, 4), draw)
        return result
