"""All methods together: the same bytes however the work is done, and each method's share."""

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distillkit.augment import layout, neighbours, transfer_set
from distillkit.augment.method import AugmentOptions, Models, share_of
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.augment.variants import ORIGINS
from distillkit.errors import InputError
from distillkit.pipeline import models_of
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    GeneratedConfig,
    MixConfig,
    NeighboursConfig,
)
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_states import word_states

PAIRS = {"unlabelled": ["more.txt"], "columns": ColumnsConfig(text_pair="b")}
NEAREST = AugmentConfig(
    tagger="none",
    n_iter=10,
    mix=MixConfig(rules=0.0, neighbours=1.0),
    neighbours=NeighboursConfig(k=1, p=1.0),
)
CONFIG = AugmentConfig(
    tagger="none",
    n_iter=12,
    mix=MixConfig(rules=1.0, neighbours=1.0, sentences=0.5, generated=0.5),
    neighbours=NeighboursConfig(k=4),
    generated=GeneratedConfig(epochs=2, learning_rate=2e-2, max_tokens=8),
)


@pytest.fixture(scope="module")
def models(encoder_folder, gpt_folder):
    def ask(model, words):
        return word_states(*load_classifier(model, ["a", "b"]), words)[:, -1]

    return Models({"generated": gpt_folder, "neighbours": encoder_folder}, ask)


@pytest.fixture(scope="module")
def build(models, train_table):
    text = "This is the {0}th. It was shown in {0} places, then? {0} more of it!"
    more = pa.table({"text": [text.format(i) for i in range(400)]})

    def build(target, config=CONFIG, workers=1, **options):
        sources = {"original": [train_table], "unlabelled": [more]}
        options = AugmentOptions(config, 1, workers=workers, **{"models": models} | options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layout, "BLOCK_ROWS", 40)  # several blocks of originals
            return build_transfer_set(sources, target, options)

    return build


def augmented(target):
    rows = pq.read_table(target).to_pylist()
    return {row["text"] for row in rows if row["origin"] == "augmented"}


def killed_at(module, step, function):
    """Run a function that a kill ends at a step of a module."""

    def kill(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, step, kill)
        with pytest.raises(KeyboardInterrupt):
            function()


@pytest.fixture(scope="module")
def made(build, tmp_path_factory):
    target = tmp_path_factory.mktemp("made") / "t.parquet"
    return target, build(target)


def test_each_method_has_its_share(made):
    rows = pq.read_table(made[0]).to_pylist()
    made_of = {name: [row for row in rows if row["origin"] == name] for name in ORIGINS}
    assert len(made_of["unlabelled"]) == share_of(CONFIG, "sentences", 96) == 192
    assert all(row["text"].endswith((".", "?", "!")) for row in made_of["unlabelled"])
    assert 50 < len(made_of["generated"]) <= share_of(CONFIG, "generated", 96)
    rules = [row["rules"] for row in made_of["augmented"]]
    # Of 96 * 12 slots the rules and the neighbours have a third each; some come out unchanged or
    # twice.
    assert 80 < rules.count("neighbour") < 384 + 60
    assert not any("neighbour" in rule and rule != "neighbour" for rule in rules)
    assert made[1]["generated"] == len(made_of["generated"])


@pytest.mark.slow
def test_the_bytes_are_the_same_at_any_number_of_workers(made, build, tmp_path):
    build(tmp_path / "t.parquet", workers=2)
    assert (tmp_path / "t.parquet").read_bytes() == made[0].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "step"),
    [(neighbours, "prepare_neighbours"), (transfer_set, "_compare")],
)
def test_the_bytes_are_the_same_after_a_kill(made, build, tmp_path, monkeypatch, module, step):
    target = tmp_path / "t.parquet"
    killed_at(module, step, lambda: build(target))
    assert not target.exists()
    if module is not neighbours:  # what was prepared once is not prepared again
        again = partial(pytest.fail, "prepared before")
        monkeypatch.setattr(neighbours, "prepare_neighbours", again)
    build(target)
    assert target.read_bytes() == made[0].read_bytes()


def test_another_model_under_the_same_name_is_asked_anew(models, tmp_path):
    before = models.fingerprints()
    assert before == Models(models.of).fingerprints()
    (tmp_path / "v.txt").write_text("a 1\n")
    first = Models({"neighbours": str(tmp_path / "v.txt")}).fingerprints()
    (tmp_path / "v.txt").write_text("a 2\n")
    assert first != Models({"neighbours": str(tmp_path / "v.txt")}).fingerprints()
    assert Models({"generated": "some/hub-name"}).fingerprints() == {"generated": "some/hub-name"}


def test_vectors_may_come_from_a_file(build, tmp_path):
    (tmp_path / "v.txt").write_text("good 1 0\nbad 0.9 0.1\nfilm 0 1\nstory 0.1 0.9\n")
    build(tmp_path / "t.parquet", NEAREST, models=Models({"neighbours": str(tmp_path / "v.txt")}))
    new = augmented(tmp_path / "t.parquet")
    assert {"the story is bad .", "this film was good ."} <= new
    assert not any({"good", "bad"} <= set(text.split()) for text in new)


def test_what_was_made_with_another_model_is_not_gone_on_with(build, tmp_path):
    vectors, target = tmp_path / "v.txt", tmp_path / "t.parquet"
    models = Models({"neighbours": str(vectors)})
    vectors.write_text("film 1 0\nstory 0.9 0.1\n")
    killed_at(transfer_set, "_compare", lambda: build(target, NEAREST, models=models))
    vectors.write_text("film 1 0\nplot 0.9 0.1\n")
    build(target, NEAREST, models=models)
    assert {"a film is good .", "the plot is good ."} <= augmented(target)
    assert "this film is good ." not in augmented(target)


def test_sentences_count_the_variants_that_follow_from_the_rows(build, tmp_path):
    config = AugmentConfig(tagger="none", n_iter=-1, mix=MixConfig(sentences=0.1))
    build(tmp_path / "t.parquet", config)
    origins = pq.read_table(tmp_path / "t.parquet")["origin"].to_pylist()
    assert origins.count("unlabelled") == share_of(config.for_rows(96), "sentences", 96) > 300


def test_shares_are_by_weight():
    config = AugmentConfig(n_iter=20, mix=MixConfig(rules=3.0, sentences=1.0))
    assert share_of(config, "sentences", 1000) == 5000
    assert share_of(config, "generated", 1000) == 0


@pytest.mark.parametrize(
    ("method", "settings", "given", "message"),
    [
        ("generated", {"generated": GeneratedConfig("")}, {}, "augment.generated.model is empty"),
        ("neighbours", {}, {"teacher": "./nowhere"}, r"./nowhere: no such folder"),
        ("neighbours", {}, {}, r"augment.neighbours.vectors 'teacher': no teacher is given"),
        ("neighbours", {"neighbours": NeighboursConfig("v.txt")}, {}, "'v.txt': no such file"),
        ("generated", {"generated": GeneratedConfig("./gpt")}, {}, "./gpt: no such folder"),
        ("sentences", {}, {}, "augment.mix.sentences is 1.0, but there is no unlabelled text"),
        ("sentences", {}, PAIRS, "but the task is of pairs"),
        ("self_pairs", {}, {}, "augment.mix.self_pairs is set, but the task is of single texts"),
    ],
)
def test_what_the_mix_lacks_is_said_before_anything_is_done(method, settings, given, message):
    config = AugmentConfig(mix=MixConfig(**{method: 1.0}), **settings)
    with pytest.raises(InputError, match=message):
        models_of(config, **given)


def test_models_are_asked_for_only_where_the_mix_uses_them(encoder_folder, classifier_folder):
    assert models_of(AugmentConfig(generated=GeneratedConfig("./nowhere"))) == Models()
    config = AugmentConfig(
        mix=MixConfig(generated=1.0, neighbours=1.0), generated=GeneratedConfig(encoder_folder)
    )
    found = models_of(config, classifier_folder)
    assert found.of == {"generated": encoder_folder, "neighbours": classifier_folder}
    assert found.vectors_of(encoder_folder, ["good", "bad"]).shape == (2, 16)
