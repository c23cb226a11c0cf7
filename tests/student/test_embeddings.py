from functools import partial

import pytest
import torch

from distillkit.errors import InputError
from distillkit.student.embeddings import from_file, from_teacher
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.fine_tune import word_vectors

WORDS = ["[PAD]", "[UNK]", "good", "bad", "film", "plot", "dull"]


def ask(words):
    torch.manual_seed(0)
    return torch.randn(len(words), 12) * torch.arange(1, 13)


def test_teacher_vectors_are_scaled_like_kims_and_special_tokens_are_zero():
    table = from_teacher(WORDS, 4, ask)
    assert table.shape == (7, 4)
    assert table.dtype == torch.float32
    assert not table[:2].any()
    torch.testing.assert_close(table[2:].mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    assert float(table[2:].std(correction=0)) == pytest.approx(0.25 / 3**0.5, rel=1e-5)


def test_pca_to_full_rank_keeps_the_distances_between_words():
    table, vectors = from_teacher(WORDS, 5, ask)[2:], ask(WORDS[2:])
    torch.testing.assert_close(
        torch.pdist(table) / torch.pdist(table).max(), torch.pdist(vectors) / torch.pdist(vectors).max()
    )


def test_the_teacher_is_asked_for_words_only_and_each_gets_its_own_row():
    asked = []
    from_teacher(["good", "[PAD]", "bad", "[UNK]", "film"], 1, lambda words: asked.extend(words) or ask(words))
    assert asked == ["good", "bad", "film"]
    table = from_teacher(["good", "[PAD]", "bad"], 1, lambda words: torch.tensor([[1.0, 0], [3.0, 0]]))
    assert not table[1].any()
    assert float(table[0]) == pytest.approx(-float(table[2]))
    assert float(table[0]) != 0


@pytest.mark.parametrize("width", [6, 13])
def test_a_width_beyond_the_teachers_or_the_vocabulary_is_refused(width):
    with pytest.raises(InputError, match=f"student.embeddings.width is {width}: expected at most 5"):
        from_teacher(WORDS, width, ask)


def test_a_real_teacher_gives_equal_vectors_twice(encoder_folder):
    real = partial(word_vectors, *load_classifier(encoder_folder, ["a", "b"]))
    assert torch.equal(from_teacher(WORDS, 3, real), from_teacher(WORDS, 3, real))


@pytest.mark.parametrize("head", ["", "3 2\n"], ids=["glove", "word2vec"])
def test_a_vector_file_gives_its_words_their_numbers_and_the_rest_chance(tmp_path, head):
    (tmp_path / "v.txt").write_text(f"{head}good 1 2\nzebra 5 6\nfilm -3 4.5e-1\n")
    table, found = from_file(WORDS, 2, tmp_path / "v.txt")
    assert table[2].tolist() == [1, 2]
    assert table[4].tolist() == pytest.approx([-3, 0.45])
    assert not table[:2].any()
    rest = table[[3, 5, 6]]
    assert rest.abs().max() <= 0.25
    assert rest.std() > 0
    assert found == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [("good 1 2\nbad 1\n", r"v.txt:2: 1 numbers after the word, expected 2"), ("good 1 x\n", "v.txt:1: .*'x'")],
)
def test_a_line_that_is_no_vector_is_refused_with_its_number(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        from_file(WORDS, 2, tmp_path / "v.txt")


def test_a_glove_token_with_spaces_in_it_is_read_and_not_refused(tmp_path):
    # glove.840B.300d has lines such as ". . . 0.1 ..." and "at name@domain.com 0.1 ...".
    (tmp_path / "v.txt").write_text("good 1 2\n. . . 0.5 0.5\nat name@domain.com 1 1\nbad 3 4\n")
    table, _ = from_file(WORDS, 2, tmp_path / "v.txt")
    assert table[3].tolist() == [3, 4]


def test_a_missing_file_is_refused_with_what_else_is_known(tmp_path):
    with pytest.raises(InputError, match="no such file; expected teacher, random, or a word-vector text file"):
        from_file(WORDS, 2, tmp_path / "none.txt")
