import time

import pytest
import torch
from torch import nn

from distillkit.measure.cost import answer_one, megabytes, milliseconds, parameter_counts
from distillkit.recipe.kinds import load_kinds
from distillkit.student.register import network_of
from distillkit.teacher.checkpoint import load_classifier


def test_parameters_are_counted_with_and_without_every_table_frozen_or_not():
    model = nn.ModuleDict(
        {"a": nn.Embedding(7, 3), "b": nn.Sequential(nn.Embedding(5, 2)), "c": nn.Linear(3, 2)}
    )
    model["c"].requires_grad_(False)
    assert parameter_counts(model) == {"total": 21 + 10 + 8, "without_embeddings": 8}


@pytest.mark.parametrize("kind", [name for name, kind in load_kinds().items() if kind.own_words])
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
    answer = answer_one(model, tokenizer)
    assert [answer(f"the film is {word} .", None) for word in ("bad", "good", "dull")] == [0, 1, 0]
    with torch.inference_mode():
        expected = model(**tokenizer("good", "bad", return_tensors="pt")).logits.argmax(1).item()
    assert answer("good", "bad") == expected
    assert answer("good " * 300, None) in (0, 1)  # truncated


def test_the_answerers_take_turns_row_by_row_in_either_order():
    calls = []
    answers = {
        name: lambda text, pair, name=name: calls.append((name, text, pair)) for name in ("a", "b")
    }
    rows = [(str(i), None if i % 2 else "pair") for i in range(8)]
    found = milliseconds(answers, rows)
    assert list(found) == ["a", "b"]
    turns = [calls[-16:][i : i + 2] for i in range(0, 16, 2)]
    assert [{row[1:] for row in turn} for turn in turns] == [{row} for row in rows]
    assert {tuple(row[0] for row in turn) for turn in turns} == {("a", "b"), ("b", "a")}


def test_the_median_is_in_milliseconds_and_slow_calls_at_the_start_do_not_count():
    count = iter(range(100))

    def slow_at_first(text, pair):
        call = next(count)
        time.sleep(0.05 if call < 5 else 0.4 if call == 7 else 0.002)

    found = milliseconds({"slow": slow_at_first}, [("a", None)] * 9)
    assert 2 <= found["slow"] < 40
