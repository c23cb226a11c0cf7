"""`distillkit tune`: students of other settings, trained on the logits that a run has, each a stage of its own.

    data -> teacher -> transfer set -> logits -> trials, one after another -> front

The first four stages are those of `distillkit run`, in the same folder. What a trial tries follows
from the seed, its number, and the figures of the trials before it, all of which are in their
stages: a search that is killed goes on as if nothing had happened.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow.parquet as pq
from tqdm import tqdm

from distillkit import __version__, pipeline
from distillkit.data.files import whole_file
from distillkit.data.tables import paired, read_table, texts_of
from distillkit.errors import InputError
from distillkit.measure.cost import answer_one, megabytes, milliseconds, parameter_counts
from distillkit.measure.picture import write_picture
from distillkit.pipeline.student import STUDENT_VERSION
from distillkit.recipe import SCORES, Recipe, dump
from distillkit.runs import (
    RunFolder,
    Summary,
    Taught,
    at_work,
    label_transfer_set,
    log,
    look_ahead,
    teach,
    vectors_of,
)
from distillkit.student.train import sampling_weights
from distillkit.teacher.checkpoint import load_classifier, load_config_of
from distillkit.training.checkpoints import checkpoint_folder
from distillkit.training.inference import on_threads
from distillkit.tune.front import choose, draw_front, front_table, pareto_front
from distillkit.tune.space import (
    RATE,
    Bounds,
    Knob,
    SearchConfig,
    check_search,
    own_parameters,
    space_of,
    with_parameters,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_OBJECTIVES: dict[str, Literal["maximize", "minimize"]] = {
    "score": "maximize",
    "milliseconds": "minimize",
    "megabytes": "minimize",
}
_ROUNDS, _ROUND_ROWS = 3, 100  # of timing, and the fewest texts in each
_DRAWS = 20  # until a space is taken to have no settings left that were not tried
# Raise the 1 when a trial of the same settings, inputs and student gives another result.
TRIAL_VERSION = STUDENT_VERSION + 1
_ELSEWHERE = ("engine", "workers")  # what of a recipe no result depends on


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
        recipe: What to run; the first trial is its own student. Its seed is that of every student,
            and of the search.
        folder: A run's folder, as for `runs.run`.
        search: What is searched.
        trials: How many in all, those from before included.
        tolerance: How far the dev score of the student to choose may be below the best, in points:
            hundredths.
        study: The search is in `tune-<study>/` of the folder; empty: in `tune/`.

    Returns:
        What is written to `tune.json` there: the space, and of each trial its parameters, figures,
            and whether it is on the front.

    Raises:
        InputError: Something given is wrong, there are trials of another recipe or search, or
            another run is at work in the folder.
    """
    search = search or SearchConfig()
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
    check_search(recipe, search)
    _check_optuna()
    place = folder / (f"tune-{study}" if study else "tune")
    given = {"recipe": asdict(recipe), "search": asdict(search)}
    _check_same(place, given)
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


def _check_same(place: Path, given: Mapping[str, Any]) -> None:
    """Refuse to mix trials of two recipes or two spaces.

    Raises:
        InputError: There are trials of other settings; the message names one that differs.
    """
    if not (place / "trial-0" / "stage.json").is_file():
        return
    before = _flat(json.loads((place / "study.json").read_text(encoding="utf-8")))
    now = _flat(json.loads(json.dumps(given)))  # tuples as the lists that they are read back as
    for name in [*now, *before]:
        section, _, key = name.partition(".")
        if before.get(name) != now.get(name) and not (section == "recipe" and key in _ELSEWHERE):
            said = f"{name.removeprefix('recipe.')} {before.get(name)!r}, not {now.get(name)!r}"
            raise InputError(f"{place}: its trials have {said}; {_mend()}")


def _mend() -> str:
    return "give the same, choose another --study, or remove that folder"


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= (
            _flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
        )
    return found


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
        self.recipe, self.search, self.place, self.home, self.task = (
            recipe,
            search,
            place,
            home,
            task,
        )
        self.transfer_set, self.stages = transfer_set, RunFolder(place)
        self.trials: list[Summary] = []
        given = {
            "recipe": {k: v for k, v in asdict(recipe).items() if k not in _ELSEWHERE},
            "search": asdict(search),
        }
        self.base = given
        dev = {"dev": task.tables["dev"]}
        self.inputs = dev | home.keys("teacher", "logits") | vectors_of(recipe)

    def run(self, trials: int, tolerance: float) -> Summary:
        """Train what is missing, then report on all that is there."""
        self._take_up()
        if not self.trials:
            with whole_file(self.place / "study.json") as partial:
                text = json.dumps(
                    {"recipe": asdict(self.recipe), "search": asdict(self.search)}, indent=1
                )
                partial.write_text(text + "\n", encoding="utf-8")
        with tqdm(
            total=trials, initial=len(self.trials), desc="tune", unit="trial", disable=None
        ) as bar:
            while len(self.trials) < trials:
                parameters = self._propose(len(self.trials))
                if parameters is None:
                    log(
                        f"tune: no settings are left that were not tried: {len(self.trials)} trials"
                    )
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
        while (self.place / f"trial-{len(self.trials)}" / "stage.json").is_file():
            number = len(self.trials)
            name = f"trial-{number}"
            found = self.stages.kept(name, [self.base, number], self.inputs, version=TRIAL_VERSION)
            if found is None and not self.stages.is_of(name, TRIAL_VERSION):
                break  # it and those after it are done again
            if found is None:
                raise InputError(
                    f"{self.place}: trial {number} was made with other data or logits; {_mend()}"
                )
            self.trials.append({"trial": number, **found})
        if self.trials:
            log(f"{self.place}: {len(self.trials)} trials are finished, kept")

    @cached_property
    def marks(self) -> Any:
        """The transfer set's columns that say where a row is from, (N rows) Table."""
        return pq.read_table(self.transfer_set, columns=["origin", "rules"])

    @cached_property
    def bounds(self) -> Bounds:
        """What data and teacher leave of any range; known once the recipe's own student is trained."""
        teacher, rules = load_config_of(self.task.model), self.marks["rules"].unique().to_pylist()
        rates = {rule for joined in rules if joined for rule in joined.split("+")}
        origins = set(self.marks["origin"].unique().to_pylist()) - {"original"}
        rates |= (
            origins - {"augmented"} if rates else origins
        )  # variants are told apart by their rules, if they have any
        words = self.trials[0]["vocabulary"]
        return Bounds(teacher.hidden_size, teacher.num_hidden_layers, words, tuple(sorted(rates)))

    @cached_property
    def space(self) -> dict[str, Knob]:
        """What is searched."""
        space, why = space_of(self.recipe, self.search, self.bounds)
        for line in why:
            log(f"tune: {line}")
        return space

    def _propose(self, number: int) -> dict[str, float] | None:
        """Return what a trial is to try, none for the first; None where all there is was tried."""
        if not number:
            return {}
        import optuna
        from optuna.trial import TrialState, create_trial

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        ways = {name: _distribution(knob) for name, knob in self.space.items()}
        tried = [self._parameters(trial) for trial in self.trials]
        for draw in range(_DRAWS):
            # A sampler a trial, its state all in the seed: none has to outlive a kill.
            seed = int(
                np.random.SeedSequence([self.recipe.seed, number, draw]).generate_state(1)[0]
            )
            study = optuna.create_study(
                directions=list(_OBJECTIVES.values()), sampler=optuna.samplers.TPESampler(seed=seed)
            )
            for trial, parameters in zip(self.trials, tried, strict=True):
                if all(parameters[name] in knob for name, knob in self.space.items()):
                    failed = "failed" in trial
                    study.add_trial(
                        create_trial(
                            state=TrialState.FAIL if failed else TrialState.COMPLETE,
                            params=parameters,
                            distributions=ways,
                            values=None if failed else [trial[name] for name in _OBJECTIVES],
                        )
                    )
            found = {
                name: _rounded(value, self.space[name])
                for name, value in study.ask(ways).params.items()
            }
            if found not in tried:
                return found
        return None

    def _parameters(self, trial: Mapping[str, Any]) -> dict[str, float]:
        if trial["trial"]:
            return trial["parameters"]
        return own_parameters(self.recipe, self.space, self.bounds.words)

    def _recipe(self, parameters: Mapping[str, float]) -> Recipe:
        """Return the recipe of a trial."""
        rates = {
            name.removeprefix(RATE): value
            for name, value in parameters.items()
            if name.startswith(RATE)
        }
        origins = self.recipe.training.sampling_weights
        if rates:
            origins = self._steady(self.recipe.training.weight_of() | rates)
        return with_parameters(self.recipe, parameters, origins) if parameters else self.recipe

    def _steady(self, times: dict[str, float]) -> tuple[str, ...]:
        """Scale how often rows are seen so that an epoch has as many as the recipe's own: no trial wins by more steps."""
        scale = self._rows_an_epoch(self.recipe.training.weight_of()) / self._rows_an_epoch(times)
        # Every row has one origin.
        origins = sorted(self.marks["origin"].unique().to_pylist())
        times = times | {name: times.get(name, 1.0) * scale for name in origins}
        return tuple(f"{name}={value:.4g}" for name, value in times.items())

    def _rows_an_epoch(self, wanted: Mapping[str, float]) -> float:
        times = sampling_weights(self.marks, wanted)
        return len(self.marks) if times is None else float(times.sum())

    def _try(self, number: int, parameters: dict[str, float]) -> None:
        recipe = self._recipe(parameters)

        def trial(out: Path) -> Summary:
            text, saved = dump(recipe), out / "recipe.yaml"
            # Another release of Optuna may propose otherwise than the one that began this trial.
            resume = not saved.is_file() or saved.read_text(encoding="utf-8") == text
            saved.write_text(text, encoding="utf-8")
            try:
                summary = pipeline.train_student(
                    pipeline.StudentJob(
                        self.transfer_set,
                        self.task.path["dev"],
                        out / "model",
                        recipe.student,
                        logits=self.home.folder / "logits" / "store",
                        teacher=self.task.model,
                        loss=recipe.loss,
                        training=recipe.training,
                        columns=self.task.columns,
                        seed=recipe.seed,
                        progress=f"trial {number}",
                        resume=resume,
                    )
                )
            except InputError:
                # Too high a learning rate is an answer to the search; any other mistake is the
                # user's to mend.
                if not number or not any(checkpoint_folder(out / "model").glob("bad-batch-*.json")):
                    raise
                shutil.rmtree(checkpoint_folder(out / "model"))
                return {"parameters": parameters, "failed": "a loss or gradient was no number"}
            found = {
                "parameters": parameters,
                "score": summary[f"dev_{SCORES[recipe.data.task]}"],
                **self._timed(number, out / "model"),
                "megabytes": megabytes(out / "model"),
                "model_parameters": parameter_counts(load_classifier(str(out / "model"))[0])[
                    "total"
                ],
                **{name: summary[name] for name in ("vocabulary", "best_epoch")},
            }
            if number:  # the first one's student is what the others are timed beside
                shutil.rmtree(out / "model")
            return found

        found = self.stages.stage(
            f"trial-{number}", [self.base, number], self.inputs, trial, version=TRIAL_VERSION
        )
        self.trials.append({"trial": number, **found})

    def _timed(self, number: int, model: Path) -> Summary:
        """Time a saved student on dev, a text at a time, tokenising included, in turns with the recipe's own student.

        What is reported is how the two compare, in the milliseconds that the recipe's own took when
        it was first timed: trials are hours apart, and the machine may be busier in one of them.
        """
        dev = read_table(self.task.path["dev"], self.task.columns, labels="ignored")
        rows = paired(*texts_of(dev.slice(0, self.recipe.evaluation.latency_sentences)))
        rows = list(rows) * -(-_ROUND_ROWS // len(rows))
        answers = {"student": answer_one(*load_classifier(str(model)))}
        if number:
            answers["own"] = answer_one(*load_classifier(str(self.place / "trial-0" / "model")))
        with on_threads(1):
            rounds = [milliseconds(answers, rows) for _ in range(_ROUNDS)]
        found = [times["student"] for times in rounds]
        if number:
            found = [
                self.trials[0]["milliseconds"] * times["student"] / times["own"] for times in rounds
            ]
        return {"milliseconds": float(np.median(found)), "milliseconds_by_round": found}

    def _report(self, tolerance: float) -> Summary:
        done = [trial for trial in self.trials if "failed" not in trial]
        on_front = pareto_front(*([trial[name] for trial in done] for name in _OBJECTIVES))
        front = {trial["trial"] for trial, on in zip(done, on_front, strict=True) if on}
        best = choose(done, tolerance)["trial"]
        space = self.space if len(self.trials) > 1 else {}
        result = {
            "distillkit": __version__,
            "seed": self.recipe.seed,
            "score": SCORES[self.recipe.data.task],
            "tolerance": tolerance,
            "space": {name: asdict(knob) for name, knob in space.items()},
            "best": best,
            "trials": [
                trial
                | (
                    {}
                    if trial["trial"]
                    else {"parameters": own_parameters(self.recipe, space, trial["vocabulary"])}
                )
                | ({} if "failed" in trial else {"front": trial["trial"] in front})
                for trial in self.trials
            ],
        }
        shown = front_table(result)
        texts = {
            "tune.json": json.dumps(result, ensure_ascii=False, indent=1) + "\n",
            "tune.md": shown + "\n",
            "best.yaml": (self.place / f"trial-{best}" / "recipe.yaml").read_text(encoding="utf-8"),
        }
        for name, text in texts.items():
            with whole_file(self.place / name) as partial:
                partial.write_text(text, encoding="utf-8")
        log("\n" + shown + "\n")
        write_picture("tune", self.place / "tune.svg", lambda path: draw_front(result, path))
        log(str(self.place / "tune.json"))
        return result


def _distribution(knob: Knob) -> "BaseDistribution":
    from optuna.distributions import FloatDistribution, IntDistribution

    if knob.whole:
        return IntDistribution(int(knob.low), int(knob.high), log=knob.log, step=knob.step)
    return FloatDistribution(knob.low, knob.high, log=knob.log)


def _rounded(value: float, knob: Knob) -> float:
    """Leave three digits of a fraction: more mean nothing, and are hard to read in a recipe."""
    return value if knob.whole else min(knob.high, max(knob.low, float(f"{value:.3g}")))
