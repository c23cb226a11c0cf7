"""`distillkit tune`: what is searched for whom, that it goes on and grows, and what it says in the end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import yaml

from distillkit import api, runs
from distillkit.cli import main
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    Recipe,
    StudentConfig,
    TrainingConfig,
    VocabularyConfig,
    dump,
    load_recipe,
)
from distillkit.student.train import sampling_weights
from distillkit.tune import study as module
from distillkit.tune.front import choose, front_table, pareto_front
from distillkit.tune.sampler import propose
from distillkit.tune.space import (
    RATE,
    Bounds,
    Hyperparameter,
    SearchConfig,
    check_search,
    hyperparameters_of,
    own_parameters,
    space_of,
    with_parameters,
)
from distillkit.tune.study import tune

SEARCH = SearchConfig(hidden_size=(4, 12), embedding_dimension=(4, 12), vocabulary_size=(10, 100))
BOUNDS = Bounds(states=384, teacher_layers=6, words=5000, rates=("mask", "ngram"))


@pytest.fixture(scope="module", autouse=True)
def short():
    """Trials are timed on few texts; no test looks at how fast one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROUND_ROWS", 5)
        yield


@pytest.fixture(scope="module")
def searched(tiny_recipe, finished_run, tmp_path_factory):
    """A finished run, and what twelve trials found there: more than the sampler draws blindly."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    shutil.copytree(finished_run, folder)
    return folder, tune(tiny_recipe, folder, SEARCH, trials=12)


@pytest.fixture
def copied(searched, tmp_path):
    """The same with its first ten trials alone: from the next on the sampler chooses."""
    shutil.copytree(searched[0], tmp_path / "run")
    for number in range(10, 12):
        shutil.rmtree(tmp_path / "run" / "tune" / f"trial-{number}")
    return tmp_path / "run"


def _stamps(folder):
    stages = folder.glob("**/stage.json")
    return {str(path.parent.relative_to(folder)): path.stat().st_mtime_ns for path in stages}


def _trial_recipe(folder, number):
    return load_recipe(str(folder / "tune" / f"trial-{number}" / "recipe.yaml"))


@pytest.mark.slow
def test_every_trial_is_of_the_space_and_none_comes_twice(searched, tiny_recipe):
    _, result = searched
    assert [trial["trial"] for trial in result["trials"]] == list(range(12))
    names = set(hyperparameters_of(tiny_recipe)) - {"sampling_weights"}
    names |= {f"{RATE}{rule}" for rule in ("mask", "pos", "ngram")}
    space = result["space"]
    assert set(space) == names
    for trial in result["trials"][1:]:
        assert set(trial["parameters"]) == names
        for name, value in trial["parameters"].items():
            assert space[name]["low"] <= value <= space[name]["high"]
    assert len({json.dumps(trial["parameters"]) for trial in result["trials"]}) == 12
    # No more entries than the transfer set has words, whatever the range.
    assert space["vocabulary_size"]["high"] == result["trials"][0]["vocabulary"] < 100
    assert (space["learning_rate"]["low"], space["learning_rate"]["high"]) == (2.5e-3, 4e-2)


@pytest.mark.slow
def test_the_first_trial_is_the_student_of_the_run(searched, tiny_recipe):
    folder, tuned = searched
    first, run = tuned["trials"][0], json.loads((folder / "result.json").read_text())
    student = run["models"]["student"]
    assert first["score"] == student["dev"]["accuracy"]
    assert first["model_parameters"] == student["parameters"]["total"]
    assert first["megabytes"] == student["megabytes"]
    weights = "model/model.safetensors"
    trained = (folder / "tune" / "trial-0" / weights).read_bytes()
    assert trained == (folder / "student" / weights).read_bytes()
    assert (first["parameters"]["hidden_size"], first["parameters"]["learning_rate"]) == (8, 1e-2)
    assert _trial_recipe(folder, 0) == tiny_recipe


@pytest.mark.slow
def test_a_trials_recipe_gives_its_results(searched, tmp_path):
    folder, result = searched
    number = max(range(1, 12), key=lambda n: result["trials"][n]["score"])
    trial, recipe = result["trials"][number], _trial_recipe(folder, number)
    student, settings = recipe.student, trial["parameters"]
    assert student.embeddings.dimension == settings["embedding_dimension"]
    assert student.vocabulary.size == settings["vocabulary_size"]
    assert recipe.training.learning_rate == settings["learning_rate"]
    for name in ("hidden_size", "layers"):
        assert getattr(student, name) == settings[name]
    # In the same folder data, teacher and logits are kept, and the student is the trial's.
    shutil.copytree(folder, tmp_path / "run")
    again = runs.run(recipe, tmp_path / "run")["models"]["student"]
    assert again["dev"]["accuracy"] == trial["score"]
    assert again["megabytes"] == pytest.approx(trial["megabytes"], rel=0.01)


@pytest.mark.slow
def test_best_yaml_is_a_recipe_that_run_takes(searched, monkeypatch, capsys):
    folder, result = searched
    taken = []
    finished = api.Run(
        folder, {"models": {"student": {"dev": {"accuracy": 1.0}}}, "collapsed": False}
    )
    monkeypatch.setattr(api, "run_recipe", lambda recipe, home: taken.append(recipe) or finished)
    assert main(["run", str(folder / "tune" / "best.yaml"), "--output", "again"]) == 0
    capsys.readouterr()
    assert taken[0] == _trial_recipe(folder, result["best"])
    best = yaml.safe_load((folder / "tune" / "best.yaml").read_text())
    assert best.keys() == yaml.safe_load(dump(Recipe())).keys()  # every setting


@pytest.mark.slow
def test_rates_reach_training_and_leave_an_epoch_as_long(searched):
    folder, result = searched
    table = read_table(
        str(folder / "transfer" / "transfer.parquet"), ColumnsConfig(), labels="optional"
    )
    rules, origins = table["rules"].to_pylist(), np.array(table["origin"].to_pylist())
    for number in (1, 11):
        settings = result["trials"][number]["parameters"]
        training = _trial_recipe(folder, number).training
        weights = sampling_weights(table, training.weight_of()).numpy()
        assert weights.sum() == pytest.approx(len(table), rel=1e-3)
        own = weights[origins == "original"]
        assert len(set(own)) == 1
        for rule in ("mask", "pos", "ngram"):
            mine = weights[[row == rule for row in rules]]
            assert mine / own[0] == pytest.approx(
                settings[f"sampling_weights.{rule}"], rel=2e-3, abs=1e-6
            )


@pytest.mark.slow
def test_rates_that_a_recipe_has_stay_where_they_are_not_searched(searched, tiny_recipe):
    folder, _ = searched
    training = replace(tiny_recipe.training, sampling_weights=("original=3", "mask=0.5"))
    skewed = replace(tiny_recipe, training=training)
    studied = module._Study.__new__(module._Study)
    studied.recipe, studied.transfer_set = skewed, str(folder / "transfer" / "transfer.parquet")
    own, found = (
        sampling_weights(studied.marks, r.training.weight_of()).numpy()
        for r in (skewed, studied._recipe({"sampling_weights.ngram": 0.5}))
    )
    rules, origins = studied.marks["rules"].to_pylist(), studied.marks["origin"].to_pylist()
    marks = [rules.index("mask"), rules.index("ngram"), origins.index("original")]
    assert found.sum() == pytest.approx(own.sum(), rel=1e-3)
    assert found[marks] / found[marks[2]] * 3 == pytest.approx([0.5, 0.5, 3], rel=1e-3)
    assert studied._recipe({"layers": 2}).training == skewed.training


@pytest.mark.slow
def test_a_search_grows_by_what_it_would_have_tried(copied, searched, tiny_recipe):
    _, whole = searched
    before = _stamps(copied)
    again = tune(tiny_recipe, copied, SEARCH, trials=2)
    assert _stamps(copied) == before
    assert [trial["score"] for trial in again["trials"]] == [
        trial["score"] for trial in whole["trials"][:10]
    ]
    grown = tune(tiny_recipe, copied, SEARCH, trials=11)
    after = _stamps(copied)
    assert set(after) - set(before) == {"tune/trial-10"}
    assert {name: after[name] for name in before} == before
    assert grown["trials"][10]["parameters"] == whole["trials"][10]["parameters"]
    assert grown["trials"][10]["score"] == whole["trials"][10]["score"]


@pytest.mark.slow
def test_a_killed_search_goes_on(copied, searched, tiny_recipe):
    (copied.parent / "recipe.yaml").write_text(dump(tiny_recipe))
    args = [sys.executable, "-m", "distillkit", "tune", str(copied.parent / "recipe.yaml")]
    args += ["--output", str(copied.parent / "run"), "--trials", "12"]
    # Names of an earlier version.
    args += [
        "--search.width",
        "4",
        "12",
        "--search.hidden-size",
        "4",
        "12",
        "--search.vocabulary-size",
        "10",
        "100",
    ]
    at_work = copied / "tune" / ".trial-11.partial"
    process = subprocess.Popen(
        args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not (at_work / "recipe.yaml").is_file():
        assert process.poll() is None
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = _stamps(copied)
    assert "tune/trial-10" in before
    assert "tune/trial-11" not in before
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after = _stamps(copied)
    assert {name: after[name] for name in before} == before
    line = json.loads(done.stdout)
    assert (line["trials"], line["output"]) == (12, str(copied / "tune"))
    assert line["recipe"]["score"] == searched[1]["trials"][0]["score"]
    assert "| 0 (the recipe's" in done.stderr
    assert "--search.width is now --search.embedding-dimension" in done.stderr
    found = json.loads((copied / "tune" / "tune.json").read_text())["trials"]
    assert found[11]["parameters"].keys() == found[10]["parameters"].keys()
    assert not [path for path in (copied / "tune").iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_trials_of_two_recipes_or_searches_are_not_mixed(copied, tiny_recipe):
    before = _stamps(copied)
    short = replace(tiny_recipe, training=replace(tiny_recipe.training, epochs=1))
    for changed, search, said in (
        (short, SEARCH, "training.epochs 3, not 1"),
        (replace(tiny_recipe, seed=2), SEARCH, "seed 1, not 2"),
        (tiny_recipe, replace(SEARCH, layers=(1, 3)), r"search.layers \[1, 2\], not \[1, 3\]"),
    ):
        with pytest.raises(InputError, match=f"tune: its trials have {said}; .* --study"):
            tune(changed, copied, search, trials=11)
    # The number of processes changes no result. Another study has its own folder, and the logits.
    assert len(tune(replace(tiny_recipe, workers=1), copied, SEARCH, trials=10)["trials"]) == 10
    assert len(tune(short, copied, SEARCH, trials=1, study="short")["trials"]) == 1
    after = _stamps(copied)
    assert {path: after[path] for path in before} == before
    assert (copied / "tune-short" / "tune.json").is_file()


@pytest.mark.slow
def test_trials_of_other_data_are_not_mixed(copied, tiny_recipe):
    stamp = copied / "tune" / "trial-0" / "stage.json"
    trial = json.loads(stamp.read_text()) | {"key": "of other logits"}
    stamp.write_text(json.dumps(trial))
    with pytest.raises(InputError, match="trial 0 was made with other data or logits"):
        tune(tiny_recipe, copied, SEARCH, trials=11)


@pytest.mark.slow
def test_a_study_with_the_names_of_an_earlier_version_resumes(copied, tiny_recipe):
    """Also its trials keep their keys."""
    files = [copied / "tune" / "study.json", *(copied / "tune").glob("trial-*/stage.json")]
    for path in files:
        text = path.read_text()
        for new, old in (
            ("hyperparameters", "knobs"),
            ("embedding_dimension", "width"),
            ("sampling_weights.", "origins."),
            ('"sampling_weights": [\n   0', '"origins": [\n   0'),
        ):
            text = text.replace(new, old)
        path.write_text(text)
    before = _stamps(copied)
    found = tune(tiny_recipe, copied, SEARCH, trials=10)["trials"]
    assert _stamps(copied) == before
    assert set(found[3]["parameters"]) == set(found[0]["parameters"])
    assert "embedding_dimension" in found[3]["parameters"]


@pytest.mark.slow
def test_trials_of_an_older_version_are_done_again(copied, tiny_recipe, monkeypatch, capsys):
    monkeypatch.setattr(module, "TRIAL_VERSION", module.TRIAL_VERSION + 1)
    assert len(tune(tiny_recipe, copied, SEARCH, trials=1)["trials"]) == 1
    assert "trial-0: done again, because version " in capsys.readouterr().err


@pytest.mark.slow
def test_a_diverged_trial_is_an_answer_and_other_mistakes_are_not(copied, tiny_recipe, monkeypatch):
    train_student = module.pipeline.train_student

    def diverges(job):
        training = replace(job.training, learning_rate=1e30, max_grad_norm=0)
        return train_student(replace(job, training=training))

    monkeypatch.setattr(module.pipeline, "train_student", diverges)
    found = tune(tiny_recipe, copied, SEARCH, trials=11)["trials"][10]
    assert found["failed"] == "a loss or gradient was no number"
    assert "front" not in found
    monkeypatch.setattr(module.pipeline, "train_student", train_student)
    assert "score" in tune(tiny_recipe, copied, SEARCH, trials=12)["trials"][11]

    def refuses(job):
        raise InputError("no space left")

    monkeypatch.setattr(module.pipeline, "train_student", refuses)
    with pytest.raises(InputError, match="no space left"):
        tune(tiny_recipe, copied, SEARCH, trials=13)
    assert not (copied / "tune" / "trial-12").exists()


@pytest.mark.slow
def test_reports_are_written_and_weights_are_not_kept(searched):
    folder, result = searched
    home = folder / "tune"
    assert json.loads((home / "tune.json").read_text()) == result
    assert (home / "tune.md").read_text() == front_table(result) + "\n"
    assert {path.name for path in (home / "trial-3").iterdir()} == {"stage.json", "recipe.yaml"}
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
    assert "milliseconds a text" in (home / "tune.svg").read_text()


@pytest.mark.slow
def test_a_small_space_ends_when_all_of_it_was_tried(copied, tiny_recipe):
    search = SearchConfig(hyperparameters=("layers",))
    found = tune(tiny_recipe, copied, search, trials=10, study="layers")["trials"]
    assert [trial["parameters"] for trial in found] == [{"layers": 1}, {"layers": 2}]


def _proposed(best, own=200, failed=()):
    """What trials 30 to 39 try after 30 whose score is best at a hidden size of `best`."""
    space = {"hidden_size": Hyperparameter(100, 300, whole=True)}
    trials = [{"trial": 0, "score": 0.0, "milliseconds": 1.0, "megabytes": 1.0}]
    tried = [{"hidden_size": own}]
    for size in np.linspace(100, 300, 29).astype(int).tolist():
        score = {"failed": ""} if size in failed else {"score": 1 - abs(size - best) / 200}
        trials.append({"milliseconds": 1.0, "megabytes": 1.0} | score)
        tried.append({"hidden_size": size})
    return [propose(space, trials, tried, seed)["hidden_size"] for seed in range(10)]


def test_what_is_tried_follows_what_did_well():
    low, high = _proposed(110), _proposed(290)
    assert np.mean(low) < 170 < 230 < np.mean(high)
    assert _proposed(110) == low
    # The recipe's own student is no point of this space, and nothing is known of a failed one.
    assert np.mean(_proposed(290, own=8, failed=(100, 107))) > 230


def test_the_front_is_what_nothing_beats():
    scores = [0.9, 0.9, 0.8, 0.8, 0.7, 0.95, 0.5]
    ms = [2.0, 2.0, 1.0, 2.0, 1.0, 9.0, 0.5]
    mb = [5.0, 5.0, 5.0, 5.0, 4.0, 9.0, 9.0]
    # 0 and 1 tie in all and both stay; 3 loses to 0 by its score alone and to 2 by its time; 4 is
    # the smallest; 6 the fastest.
    assert pareto_front(scores, ms, mb) == [True, True, True, False, True, True, True]
    assert pareto_front([0.5], [1.0]) == [True]
    assert pareto_front([0.5, 0.5], [1.0, 2.0]) == [True, False]


def _trials(*figures):
    names = ("score", "milliseconds", "megabytes")
    return [{"trial": i, **dict(zip(names, row, strict=True))} for i, row in enumerate(figures)]


def test_the_chosen_one_is_fast_and_small_within_the_tolerance():
    trials = _trials((0.9, 4, 4), (0.895, 1, 8), (0.895, 2, 2), (0.8949, 0.1, 0.1))
    assert choose(trials, 0)["trial"] == 0
    assert choose(trials, 0.5)["trial"] == 2
    assert choose(trials, 0.51)["trial"] == 3
    assert choose(_trials((0.8, 2, 2), (0.9, 2, 2)), 20)["trial"] == 1


_ALL = ["hidden_size", "layers", "embedding_dimension", "vocabulary_size"]


@pytest.mark.parametrize(
    ("student", "lacks"),
    [
        ({"kind": "bilstm"}, ""),
        ({"kind": "siamese-textcnn"}, "layers"),
        ({"kind": "static"}, "hidden_size layers"),
        (
            {"kind": "transformer", "hidden_size": 128},
            "embedding_dimension vocabulary_size",
        ),
        (
            {"kind": "transformer", "hidden_size": 0},
            "hidden_size embedding_dimension vocabulary_size",
        ),
        ({"vocabulary": VocabularyConfig(unit="teacher")}, "vocabulary_size"),
        ({"embeddings": EmbeddingConfig(source="glove.txt")}, "embedding_dimension"),
    ],
)
def test_only_what_means_something_is_searched(student, lacks):
    recipe = Recipe(student=StudentConfig(**student))
    expected = [name for name in _ALL if name not in lacks.split()]
    assert hyperparameters_of(recipe) == [*expected, "learning_rate", "sampling_weights"]
    space, _ = space_of(recipe, SearchConfig(), BOUNDS)
    # Every corner is a recipe.
    for end in ("low", "high"):
        corner = {name: getattr(found, end) for name, found in space.items()}
        found = with_parameters(recipe, corner, ("mask=0.5",))
        own = own_parameters(found, space, words=10**9)
        weights = {name: 1.0 for name in corner if name.startswith(RATE)}
        assert own == corner | weights | {f"{RATE}mask": 0.5}


def test_ranges_end_where_data_and_teacher_do():
    recipe = Recipe(training=TrainingConfig(learning_rate=1e-3))
    wide = SearchConfig(
        embedding_dimension=(50, 1000),
        layers=(1, 12),
        hidden_size=(100, 300),
        vocabulary_size=(1000, 30000),
    )
    space, _ = space_of(recipe, wide, BOUNDS)
    assert space["embedding_dimension"] == Hyperparameter(50, 384, whole=True, log=True)
    assert space["layers"] == Hyperparameter(1, 12, whole=True)
    assert space["vocabulary_size"] == Hyperparameter(1000, 5000, whole=True, log=True)
    assert {"sampling_weights.mask", "sampling_weights.ngram"} < set(space)
    few = replace(wide, vocabulary_size=(200, 30000))
    assert space_of(recipe, few, BOUNDS)[0]["embedding_dimension"].high == 197
    drawn = replace(recipe, student=StudentConfig(embeddings=EmbeddingConfig(source="random")))
    assert space_of(drawn, few, BOUNDS)[0]["embedding_dimension"].high == 1000
    # 5000 words were kept of more: the vocabulary may grow.
    kept = StudentConfig(vocabulary=VocabularyConfig(size=5000, subwords=900))
    sizes = space_of(replace(recipe, student=kept), wide, BOUNDS)[0]["vocabulary_size"]
    assert (sizes.low, sizes.high) == (1800, 30000)
    transformer = replace(recipe, student=StudentConfig(kind="transformer", hidden_size=128))
    space, _ = space_of(transformer, wide, BOUNDS)
    assert space["layers"].high == 6
    assert space["hidden_size"] == Hyperparameter(128, 256, whole=True, step=64)


def test_a_hyperparameter_with_one_value_is_left_out_or_refused():
    recipe = Recipe()
    space, why = space_of(
        recipe, SearchConfig(vocabulary_size=(6000, 30000), layers=(2, 2)), BOUNDS
    )
    assert not {"vocabulary_size", "layers"} & set(space)
    assert "search.layers is 2 2, which leaves 2 alone" in why[0]
    assert "the transfer set has 5000 words" in why[1]
    with pytest.raises(InputError, match=r"search\.layers is 2 2, which leaves 2 alone"):
        space_of(recipe, SearchConfig(hyperparameters=("layers",), layers=(2, 2)), BOUNDS)
    with pytest.raises(InputError, match="means nothing to this static"):
        check_search(
            Recipe(student=StudentConfig(kind="static")), SearchConfig(hyperparameters=("layers",))
        )
    with pytest.raises(InputError, match="no hyperparameter has more than one value"):
        space_of(
            recipe, SearchConfig(hyperparameters=("sampling_weights",)), replace(BOUNDS, rates=())
        )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--trials 0", "--trials is 0: expected at least 1"),
        ("--tolerance -1", "--tolerance is -1.0"),
        ("--study ../data", "--study '../data': expected letters"),
        ("--search.layers 3 1", "search.layers is 3 1: expected LOW HIGH"),
        ("--search.hidden-size 0 10", "search.hidden_size is 0 10"),
        ("--search.learning-rate 0 0.1", "search.learning_rate is 0.0 0.1: expected LOW above 0"),
        ("--search.sampling-weights -1 nan", "search.sampling_weights is -1.0 nan"),
        ("--search.hyperparameters widht", "widht, which is no hyperparameter: expected some of"),
        ("--search.hyperparameters layers --student static", "means nothing to this static"),
        ("--training.epochs 0", "training.epochs is 0"),
        ("--evaluation.latency-sentences 0", "evaluation.latency_sentences is 0"),
    ],
)
def test_mistakes_are_said_in_one_line_before_anything_is_done(args, said, tmp_path, capsys):
    home = str(tmp_path / "runs" / "quickstart")
    assert main(["tune", "quickstart", "--output", home, *args.split()]) == 1
    shown = capsys.readouterr()
    assert said in shown.err
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert not (tmp_path / "runs").exists()


def test_without_optuna_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", "quickstart", "--output", str(tmp_path / "runs" / "quickstart")]) == 1
    said = capsys.readouterr().err
    assert said == "distillkit: tune needs Optuna: pip install 'distillkit[tune]'\n"
    assert not (tmp_path / "runs").exists()
