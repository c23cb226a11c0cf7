import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from distillkit import LossConfig
from distillkit.augment.rules import RULES
from distillkit.augment.variants import ORIGINS
from distillkit.data.batches import encode
from distillkit.data.content import texts_of
from distillkit.errors import InputError
from distillkit.recipe import (
    EmbeddingConfig,
    Recipe,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
    VocabularyConfig,
)
from distillkit.recipe.loader import load_recipe
from distillkit.student.build import build_student
from distillkit.student.train import fit_plan, sampling_weights, training_rows
from distillkit.student.transformer import few_layers
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_states import word_states
from distillkit.training.inference import predict_logits
from distillkit.training.loop import fit
from tests.conftest import NEGATIVE, POSITIVE
from tests.student.test_contract import WORDS
from tests.student.tiny import tiny

LABELS = ["negative", "positive"]
HOW = TrainingConfig(
    epochs=20,
    batch_size=8,
    learning_rate=0.02,
    weight_decay=0.0,
    schedule="constant",
    precision="fp32",
)

BRIEF = replace(HOW, epochs=2)


def build(
    table, labels=LABELS, kind="bilstm", source="random", channels="single", seed=1, **options
):
    texts, pairs = texts_of(table)
    config = tiny(kind, EmbeddingConfig(source, 6, channels), hidden_size=8, head_size=8)
    return build_student([*texts, *(pairs or [])], labels, config, seed, **options)


def logits_for(table, scale=2.0, labels=LABELS):
    gold = np.array([labels.index(label) for label in table["label"].to_pylist()])
    return (np.eye(2, dtype=np.float32)[gold] * 2 - 1) * scale


def distil(model, tokenizer, table, logits, dev, loss=None, how=HOW, seed=1, mask="", **options):
    loss = loss or LossConfig()
    rows = training_rows(model, tokenizer, table, logits, loss, how, mask=mask)
    return fit(model, fit_plan(model, tokenizer, rows, dev, loss, how, seed, **options))


def learn(table, dev, logits, alpha=0.0, how=HOW, seed=1, **options):
    model, tokenizer = build(table, **options)
    result = distil(model, tokenizer, table, logits, dev, LossConfig(alpha=alpha), how, seed)
    return model, result


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_student_learns_its_teachers_logits(train_table, dev_table):
    _, result = learn(train_table, dev_table, logits_for(train_table))
    assert result.best_score == 1
    assert result.history[-1]["loss"] < result.history[0]["loss"] / 4


def test_targets_that_do_not_fit_beside_the_model_teach_the_same(
    train_table, dev_table, monkeypatch
):
    logits = logits_for(train_table)
    one, _ = learn(train_table, dev_table, logits, alpha=0.5, how=BRIEF)
    monkeypatch.setattr("distillkit.student.train.fits_beside", lambda size, device: False)
    two, _ = learn(train_table, dev_table, logits, alpha=0.5, how=BRIEF)
    assert equal(state(one), state(two))


def test_a_siamese_student_learns_pairs(pair_table):
    logits = logits_for(pair_table, labels=["other", "same"])
    how = TrainingConfig(
        epochs=40, batch_size=8, learning_rate=0.02, weight_decay=0.0, precision="fp32"
    )
    _, result = learn(
        pair_table, pair_table, logits, how=how, labels=["other", "same"], kind="siamese-bilstm"
    )
    assert result.best_score > 0.95


def test_alpha_0_follows_the_teacher_against_every_gold_label(train_table, dev_table):
    _, result = learn(train_table, dev_table, -logits_for(train_table))
    assert result.history[-1]["dev"] == 0


def test_alpha_1_follows_the_gold_labels_against_the_teacher(train_table, dev_table):
    _, result = learn(train_table, dev_table, -logits_for(train_table), alpha=1.0)
    assert result.best_score == 1


def test_rows_without_a_label_take_the_teachers_answer(train_table, dev_table):
    bare = train_table.set_column(1, "label", pa.nulls(len(train_table), pa.string()))
    logits = logits_for(train_table)
    tables = train_table, bare, bare.drop_columns(["label"])
    gold, *without = (state(learn(t, dev_table, logits, 1.0, BRIEF)[0]) for t in tables)
    assert all(equal(found, gold) for found in without)


def test_gold_labels_alone_need_no_teacher(train_table, dev_table):
    alone, beside = (
        learn(train_table, dev_table, logits, 1.0, BRIEF)[0]
        for logits in (None, logits_for(train_table))
    )
    assert equal(state(alone), state(beside))


def test_the_same_seed_gives_the_same_student_and_another_another(train_table, dev_table):
    first, again, other = (
        state(learn(train_table, dev_table, logits_for(train_table), how=BRIEF, seed=s)[0])
        for s in (4, 4, 5)
    )
    assert equal(first, again)
    assert not equal(first, other)


def test_the_seed_draws_the_starting_weights(train_table):
    first, again, other = (state(build(train_table, seed=s)[0]) for s in (1, 1, 2))
    assert equal(first, again)
    assert not equal(first, other)


@pytest.mark.parametrize("kind", WORDS)
def test_training_moves_everything_but_the_frozen_channel(kind, train_table, dev_table, pair_table):
    pair = kind.startswith("siamese")
    table, dev, labels = (
        (pair_table, pair_table, ["other", "same"]) if pair else (train_table, dev_table, LABELS)
    )
    model, tokenizer = build(table, labels, kind, channels="multi")
    before = state(model)
    how = TrainingConfig(
        epochs=1, batch_size=16, learning_rate=0.02, weight_decay=0.1, precision="fp32"
    )
    logits = logits_for(table, labels=labels)
    distil(model, tokenizer, table, logits, dev, LossConfig(), how, 1)
    still = [name for name, value in model.state_dict().items() if torch.equal(value, before[name])]
    assert still == ["encoder.embedding.frozen_table.weight"]
    assert not model.encoder.embedding.table.weight[0].any()  # padding stays zero


def test_the_transfer_sets_mask_is_to_the_student_what_an_unknown_word_is(train_table, dev_table):
    def trained(word, mask):
        table = pa.table({"text": [f"the {word} is {word} .", "a mask was good ."]})
        model, tokenizer = build(train_table)
        how = TrainingConfig(epochs=2, learning_rate=0.1, weight_decay=0.0, precision="fp32")
        logits = np.array([[1, 2], [3, -1]], np.float32)
        distil(model, tokenizer, table, logits, dev_table, LossConfig(), how, 1, mask=mask)
        return state(model)

    assert equal(trained("[MASK]", "[MASK]"), trained("zebra", ""))
    assert not equal(trained("[MASK]", ""), trained("zebra", ""))


def test_the_teachers_words_are_understood_where_training_never_met_them(
    train_table, dev_table, classifier_folder
):
    new_words = [POSITIVE[0], NEGATIVE[0]]
    new = np.array(
        [
            any(word in text.split() for word in new_words)
            for text in train_table["text"].to_pylist()
        ]
    )
    assert 0 < new.sum() < len(new)
    met, held_out = train_table.filter(~new), train_table.filter(new)
    taught = load_classifier(classifier_folder, LABELS)

    def accuracy(teacher_words):
        vectors = EmbeddingConfig("teacher", 6, "multi")
        config = StudentConfig(
            hidden_size=8,
            head_size=8,
            vocabulary=VocabularyConfig("word", teacher_words=teacher_words),
            embeddings=vectors,
        )
        model, tokenizer = build_student(
            texts_of(met)[0], LABELS, config, 1, partial(word_states, *taught), teacher=taught
        )
        distil(model, tokenizer, met, logits_for(met), dev_table)
        if teacher_words:
            ids = tokenizer.convert_tokens_to_ids(new_words)
            tables = model.encoder.embedding
            assert torch.equal(tables.table.weight[ids], tables.frozen_table.weight[ids])
            assert not torch.equal(tables.table.weight, tables.frozen_table.weight)
        rows = encode(tokenizer, *texts_of(held_out), 16)
        return np.mean(
            predict_logits(model, rows).numpy().argmax(1) == logits_for(held_out).argmax(1)
        )

    assert accuracy(teacher_words=True) > 0.9
    assert accuracy(teacher_words=False) < 0.9


def test_teacher_vectors_start_both_channels(train_table, encoder_folder):
    ask = partial(word_states, *load_classifier(encoder_folder, LABELS))
    model, _ = build(train_table, source="teacher", channels="multi", ask=ask)
    assert torch.equal(
        model.encoder.embedding.table.weight, model.encoder.embedding.frozen_table.weight
    )
    assert float(model.encoder.embedding.table.weight[2:].detach().std()) == pytest.approx(
        0.25 / 3**0.5, rel=0.02
    )


def test_a_vector_file_starts_the_table(train_table, tmp_path):
    (tmp_path / "v.txt").write_text("good 1 2 3 4 5 6\n")
    model, tokenizer = build(train_table, source=str(tmp_path / "v.txt"))
    vector = model.encoder.embedding.table.weight[tokenizer.get_vocab()["good"]].detach()
    assert (vector / vector[0]).tolist() == pytest.approx([1, 2, 3, 4, 5, 6])


def test_teacher_vectors_without_a_teacher_are_refused(train_table):
    with pytest.raises(InputError, match="no teacher was given: give --teacher"):
        build(train_table, source="teacher")


def test_a_dev_label_that_training_never_saw_is_refused(train_table):
    dev = pa.table({"text": ["a"], "label": ["neutral"]})
    with pytest.raises(InputError, match="dev row 1: label 'neutral'"):
        learn(train_table, dev, logits_for(train_table))


MIXED = pa.table(
    {
        "text": ["a", "b", "c", "d"],
        "origin": ["original", "augmented", "augmented", "unlabelled"],
        "rules": ["", "mask", "mask+pos", ""],
    }
)


@pytest.mark.parametrize(
    ("wanted", "times"),
    [
        ({"original": 3}, [3, 1, 1, 1]),
        ({"augmented": 0.5, "pos": 4}, [1, 0.5, 2, 1]),
        ({"mask": 0}, [1, 0, 0, 1]),
    ],
)
def test_sampling_weights_say_how_often_a_row_comes(wanted, times):
    assert sampling_weights(MIXED, wanted).tolist() == times


def test_rows_of_every_origin_and_rule_can_be_weighted():
    names = {*ORIGINS, *RULES.values(), "tfidf", "vectors", "random"}
    weighted = TrainingConfig(sampling_weights=tuple(f"{name}=0.5" for name in names))
    assert weighted.weight_of() == dict.fromkeys(names, 0.5)


def test_the_old_name_of_sampling_weights_still_works(tmp_path, capsys):
    (tmp_path / "old.yaml").write_text(
        "teacher: minilm-l6\nstudent: bilstm\ntraining: {origins: [mask=2]}\n"
    )
    assert load_recipe(str(tmp_path / "old.yaml")).training.sampling_weights == ("mask=2",)
    assert "training.origins is now training.sampling_weights" in capsys.readouterr().err


def test_a_name_of_sampling_weights_is_given_once():
    with pytest.raises(InputError, match=r"is mask=3, mask=0: expected each name once"):
        TrainingConfig(sampling_weights=("mask=3", "mask=0"))


def test_a_table_that_is_no_transfer_set_has_every_row_once():
    assert sampling_weights(MIXED.select(["text"]), {"augmented": 0.0, "original": 3.0}) is None


def test_a_teacher_has_no_sampling_weights():
    with pytest.raises(InputError, match=r"is for students: .*leave it out"):
        TeacherConfig(training=TrainingConfig(sampling_weights=("mask=2",)))


def test_without_a_mix_every_row_comes_once():
    assert sampling_weights(MIXED, TrainingConfig().weight_of()) is None


@pytest.mark.parametrize("item", ["original", "original=", "original=-1", "original=nan"])
def test_a_mix_is_names_and_times(item):
    with pytest.raises(InputError, match="expected NAME=WEIGHT"):
        TrainingConfig(sampling_weights=(item,))


def test_a_name_that_no_row_can_have_is_refused_before_anything_is_read():
    with pytest.raises(InputError, match="'masked=2': expected one of original, "):
        TrainingConfig(sampling_weights=("masked=2",))


@pytest.mark.slow
def test_rows_that_never_come_teach_nothing(train_table, dev_table):
    wrong = -logits_for(train_table)
    origin = ["original"] * len(train_table) + ["augmented"] * len(train_table)
    both = pa.concat_tables([train_table, train_table]).append_column("origin", pa.array(origin))
    logits = np.concatenate([logits_for(train_table), 3 * wrong])
    for origins, least, most in (((), 0.0, 0.6), (("augmented=0",), 1.0, 1.0)):
        model, tokenizer = build(both)
        how = replace(HOW, sampling_weights=origins)
        result = distil(model, tokenizer, both, logits, dev_table, LossConfig(), how, 1)
        assert least <= result.best_score <= most


@pytest.mark.slow
def test_scores_of_augmented_rows_are_the_teachers_and_never_gold(train_table, dev_table):
    scores = pa.array(
        [4.0 if label == "positive" else -4.0 for label in train_table["label"].to_pylist()]
    )
    dev_scores = pa.array(
        [1.0 if label == "positive" else 0.0 for label in dev_table["label"].to_pylist()]
    )
    dev = dev_table.set_column(1, "label", dev_scores)
    teacher = np.zeros((len(train_table), 1), np.float32)
    made = pa.array(["original", "original", "augmented"] * (len(train_table) // 3))

    def learnt(labels, origin=made):
        table = train_table.set_column(1, "label", labels).append_column("origin", origin)
        model, tokenizer = build(table, ["score"])
        result = distil(model, tokenizer, table, teacher, dev, LossConfig(alpha=1.0), HOW, 1)
        return state(model), result

    without = pc.if_else(pc.equal(made, "original"), scores, None)
    found, result = learnt(scores)
    assert equal(found, learnt(without)[0])
    assert not equal(found, learnt(scores, pa.array(["original"] * len(scores)))[0])
    # the originals' own scores were learnt: the teacher's say nothing
    assert result.best_score > 0.9


@pytest.mark.parametrize("by", ["score", "spearman"])
def test_a_regression_keeps_the_epoch_that_is_best_by_the_score_that_is_asked(by, train_table):
    # The largest scores say most in Pearson's correlation, nothing more than others in Spearman's.
    gold = np.random.default_rng(0).standard_normal(len(train_table)) ** 5
    table = train_table.set_column(1, "label", pa.array(gold))
    model, tokenizer = build(table, ["score"])
    how = replace(HOW, epochs=6, best_by=by)
    result = distil(model, tokenizer, table, None, table, LossConfig(alpha=1), how, 1)
    found = predict_logits(model, encode(tokenizer, *texts_of(table), 24))[:, 0].numpy()
    correlation = spearmanr if by == "spearman" else pearsonr
    assert result.best_score == pytest.approx(correlation(found, gold).statistic, abs=1e-5)
    name = f"dev_{'spearman' if by == 'spearman' else 'pearson'}"
    assert result.summary(how.score_of("regression"))[name] == result.best_score


def test_spearman_is_refused_of_a_task_without_scores():
    with pytest.raises(InputError, match=r"training\.best_by is spearman, but the task is class"):
        Recipe(training=TrainingConfig(best_by="spearman"))


def test_a_loss_that_the_task_has_no_meaning_for_is_refused(train_table):
    table = train_table.set_column(
        1, "label", pa.array(np.arange(len(train_table), dtype=np.float64))
    )
    model, tokenizer = build(table, ["score"])
    with pytest.raises(InputError, match=r"loss\.kind is soft, but the task is regression"):
        distil(model, tokenizer, table, None, table, LossConfig("soft"), HOW, 1)


def test_a_label_of_the_transfer_set_that_the_logits_do_not_know_is_one_line(student):
    model, tokenizer = student("bilstm")
    table = pa.table({"text": ["a", "b"], "label": ["good", "grand"]})
    with pytest.raises(InputError, match="the transfer set row 2: label 'grand'"):
        training_rows(model, tokenizer, table, np.zeros((2, 3)), LossConfig(alpha=0.5), HOW)


def test_a_student_cut_from_an_unnamed_classifier_keeps_its_head(bert):
    network = copy.deepcopy(bert[0])
    network.config.id2label = {i: f"LABEL_{i}" for i in range(3)}
    for labels, same in ((["bad", "so-so", "good"], True), (["bad", "good"], False)):
        cut = few_layers(network, 2, 0, labels, 0.1)
        assert torch.equal(cut.classifier.weight, network.classifier.weight) == same
