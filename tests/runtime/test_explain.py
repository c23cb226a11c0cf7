"""Which words decided: the shares are those of leaving each word out, whatever answers."""

import json
import subprocess
import sys

import numpy as np
import pytest

from distillkit import pipeline
from distillkit.cli import main
from distillkit.cli.stages import Predict
from distillkit.errors import InputError
from distillkit.pipeline import Classifier
from distillkit.runtime import Predictor
from distillkit.runtime.explain import explain

TEXTS = ["the film was great .", "a plot is weak , the cast was good", "great"]
# What each word adds to the logits of two labels, by a model that adds words up.
ADDS = {"good": (0.0, 3.0), "not": (2.0, 0.0), "很": (0.0, 1.0), "差": (3.0, 0.0)}


def _sums(texts, pairs):
    sides = [texts] if pairs is None else [texts, pairs]
    rows = zip(*sides, strict=True)
    found = [sum(np.array(ADDS[w]) * " ".join(row).count(w) for w in ADDS) for row in rows]
    return np.array(found, np.float32)


def _shares(words):
    return [(one["word"], one["share"]) for one in words]


@pytest.fixture(scope="module")
def folder(classifier_folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("bundles") / "teacher"
    pipeline.export(classifier_folder, target)
    return target


def test_a_share_is_what_the_answer_loses_without_the_word():
    (found,) = explain(_sums, "classification", ["no", "yes"], ["Not good, not: good!"], None)
    # "Not" is no word of the model; without either "good" the lead of yes falls by 3, halved.
    assert _shares(found["words"]) == [
        ("Not", 0.0),
        ("good", 0.375),
        (",", 0.0),
        ("not", -0.25),
        (":", 0.0),
        ("good", 0.375),
        ("!", 0.0),
    ]


def test_without_a_hyphen_its_words_stay_two():
    ask = []

    def said(texts, pairs):
        ask.extend(texts)
        return _sums(texts, pairs)

    explain(said, "classification", ["no", "yes"], ["not-good 3.5 (good) 5月1"], None)
    assert ask[2] == "not good 3.5 (good) 5月1"
    assert ask[5] == "not-good 3 5 (good) 5月1"
    assert ask[7] == "not-good 3.5 good) 5月1"
    assert ask[11] == "not-good 3.5 (good) 5 1"


def test_a_script_without_spaces_has_characters_and_a_text_without_words_has_none():
    found = explain(_sums, "classification", ["no", "yes"], ["很差", "", " "], None)
    assert _shares(found[0]["words"]) == [("很", -0.25), ("差", 0.75)]
    assert [one["words"] for one in found[1:]] == [[], []]
    (mixed,) = explain(
        _sums, "classification", ["no", "yes"], ["iPhone's screen很差, not good"], None
    )
    words = [word for word, _ in _shares(mixed["words"])]
    assert words == ["iPhone's", "screen", "很", "差", ",", "not", "good"]
    assert explain(_sums, "classification", ["no", "yes"], [], None) == []


def test_of_several_labels_the_likeliest_is_explained_and_of_a_score_the_score():
    (found,) = explain(_sums, "multi-label", ["no", "yes"], ["not good good"], None)
    assert found["explained"] == "yes"
    assert _shares(found["words"]) == [("not", 0.0), ("good", 0.5), ("good", 0.5)]

    def score(texts, pairs):
        return _sums(texts, pairs)[:, 1:] - _sums(texts, pairs)[:, :1]

    (found,) = explain(score, "regression", ["score"], ["not good"], None)
    assert _shares(found["words"]) == [("not", -0.4), ("good", 0.6)]


def test_of_a_pair_both_texts_share():
    (found,) = explain(_sums, "classification", ["no", "yes"], ["so good"], ["not so"])
    assert _shares(found["words"]) == [("so", 0.0), ("good", 0.6)]
    assert _shares(found["words_pair"]) == [("not", -0.4), ("so", 0.0)]


def test_many_words_are_asked_in_parts(monkeypatch):
    asked = []

    def ask(texts, pairs):
        asked.append(len(texts))
        return _sums(texts, pairs)

    text = "not not good good x"
    monkeypatch.setattr("distillkit.runtime.explain._CHARACTERS_AT_ONCE", 3 * len(text))
    (found,) = explain(ask, "classification", ["no", "yes"], [text], None)
    assert asked == [3, 3]
    assert _shares(found["words"]) == [
        *[("not", -0.2)] * 2,
        *[("good", 0.3)] * 2,
        ("x", 0.0),
    ]


def test_a_bundle_explains_by_its_own_logits_and_as_the_model_in_torch(folder, classifier_folder):
    predictor = Predictor(folder)
    found = predictor.explain(TEXTS)
    assert [answer["label"] for answer in found] == [a["label"] for a in predictor.predict(TEXTS)]
    without = ["film was great .", "the was great .", "the film great .", "the film was ."]
    logits = predictor.logits([TEXTS[0], *without, "the film was great"])
    lead = (logits[:, 1] - logits[:, 0]) * (1 if found[0]["label"] == "positive" else -1)
    lost = lead[0] - lead[1:]
    lost = lost / np.abs(lost).sum()
    shares = [one["share"] for one in found[0]["words"]]
    assert shares == pytest.approx([*lost[:3], lost[3], lost[4]], abs=1e-3)
    assert max(found[0]["words"], key=lambda one: abs(one["share"]))["word"] == "great"
    for ours, theirs in zip(found, Classifier(classifier_folder).explain(TEXTS), strict=True):
        assert [one["word"] for one in ours["words"]] == [one["word"] for one in theirs["words"]]
        assert [one["share"] for one in ours["words"]] == pytest.approx(
            [one["share"] for one in theirs["words"]], abs=1e-3
        )
        assert sum(abs(one["share"]) for one in ours["words"]) == pytest.approx(1, abs=1e-3)
    pair = predictor.explain(["the film was great ."], ["a plot is weak ."])[0]
    assert [len(pair[name]) for name in ("words", "words_pair")] == [5, 5]


def test_the_command_explains_without_torch(folder):
    code = (
        "import sys; from distillkit.cli import main; main(sys.argv[1:]);"
        "print(sorted({'torch', 'transformers', 'regex', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "predict", str(folder), "--explain"],
        input="".join(f"{text}\n" for text in TEXTS),
        capture_output=True,
        text=True,
        check=True,
    )
    *rows, loaded = done.stdout.splitlines()
    answers = zip(TEXTS, Predictor(folder).explain(TEXTS), strict=True)
    own = [{"text": text} | answer for text, answer in answers]
    for row, wanted in zip(map(json.loads, rows), own, strict=True):
        assert row["words"] == wanted["words"]
        assert row.keys() == wanted.keys()
    assert loaded == "[]"


def test_a_terminal_shows_the_heaviest_words_below_the_answer(folder):
    command = Predict(str(folder), explain=True)
    shown = list(command.readable(Predictor(folder).stream([(TEXTS[0], None)], explained=True)))
    assert shown[0].endswith("the film was great .")
    assert shown[1].startswith("    great ")
    assert len(shown[1].split(", ")) == 5


def test_a_checkpoint_explains_too(classifier_folder, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("the cast was bad .\n", encoding="utf-8")
    assert main(["predict", classifier_folder, str(tmp_path / "texts.txt"), "--explain"]) == 0
    words = json.loads(capsys.readouterr().out)["words"]
    assert words == Classifier(classifier_folder).explain(["the cast was bad ."])[0]["words"]


def test_a_cascade_is_not_explained(folder):
    predictor = Predictor(folder)
    predictor._teacher = predictor  # as one that cascade gave a threshold
    with pytest.raises(InputError, match="explain the student's answers; leave the teacher out"):
        predictor.explain(TEXTS)
