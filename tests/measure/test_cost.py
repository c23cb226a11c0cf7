import time

import numpy as np
import pytest
import torch
from torch import nn

from distillkit.measure.cost import answer_of, megabytes, milliseconds, parameter_counts
from distillkit.recipe.kinds import load_kinds
from distillkit.student.register import network_of
from distillkit.teacher.checkpoint import load_classifier


def test_parameters_are_counted_with_and_without_every_table_frozen_or_not():
    model = nn.ModuleDict(
        {"a": nn.Embedding(7, 3), "b": nn.Sequential(nn.Embedding(5, 2)), "c": nn.Linear(3, 2)}
    )
    model["c"].requires_grad_(False)
    assert parameter_counts(model) == {"total": 21 + 10 + 8, "without_embeddings": 8}


@pytest.mark.parametrize(
    "kind", [name for name, kind in load_kinds().items() if kind.from_teacher is None]
)
def test_a_students_count_without_tables_does_not_depend_on_its_vocabulary(kind):
    model = network_of(load_kinds()[kind])
    counts = [
        parameter_counts(model(model.config_class(vocab_size=v, embedding_size=4, hidden_size=3)))
        for v in (5, 50)
    ]
    assert counts[0]["without_embeddings"] == counts[1]["without_embeddings"]
    assert counts[1]["total"] - counts[0]["total"] == 45 * 4


def test_a_berts_three_tables_are_left_out(classifier_folder):
    model, tokenizer = load_classifier(classifier_folder)
    counts = parameter_counts(model)
    assert counts["total"] - counts["without_embeddings"] == (len(tokenizer) + 32 + 2) * 16


def test_megabytes_are_those_of_all_files_below(tmp_path):
    (tmp_path / "in" / "side").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"x" * 1_500_000)
    (tmp_path / "in" / "side" / "b").write_bytes(b"x" * 500_000)
    assert megabytes(tmp_path) == 2.0


def test_one_text_and_one_pair_are_answered_from_their_strings(classifier_folder):
    model, tokenizer = load_classifier(classifier_folder)
    answer = answer_of(model, tokenizer)
    found = answer([f"the film is {word} ." for word in ("bad", "good", "dull")], None)
    assert found.argmax(1).tolist() == [0, 1, 0]
    with torch.inference_mode():
        expected = model(**tokenizer("good", "bad", return_tensors="pt")).logits
    assert np.allclose(answer(["good"], ["bad"]), expected, atol=1e-6)
    assert answer(["good " * 300], None).shape == (1, 2)  # truncated


def test_the_median_is_in_milliseconds_and_slow_calls_at_the_start_do_not_count():
    count = iter(range(1000))

    def slow_at_first(texts, pairs):
        call = next(count)
        time.sleep(0.05 if call < 2 else 0.4 if call == 30 else 0.002)

    found = milliseconds({"slow": slow_at_first}, [("a", None)] * 60)
    assert 2 <= found["slow"] < 40
