from functools import partial

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from distillkit.data.content import texts_of
from distillkit.errors import InputError
from distillkit.pipeline import StudentJob, train_student
from distillkit.recipe import (
    EmbeddingConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
    VocabularyConfig,
)
from distillkit.student.build import build_student
from distillkit.student.embeddings import from_encoder, from_file, principal_components
from distillkit.student.vocabulary import build_tokenizer, words_of
from distillkit.teacher.checkpoint import load_base_model, load_classifier
from distillkit.teacher.word_states import word_states

WORDS = ["[PAD]", "[UNK]", "good", "bad", "film", "plot", "dull"]
TEXTS = [
    "good good good good good film",
    "bad film film [M] dull",
    "good [M] plot bad bad bad",
    "dull film",
]


def ask(words):
    torch.manual_seed(0)
    return torch.randn(len(words), 1, 12) * torch.arange(1, 13)


def tokens(texts=TEXTS, mask="[M]", **options):
    return build_tokenizer(texts, VocabularyConfig(**{"unit": "word"} | options), 16, mask)


def start(width, answer=ask):
    return from_encoder(tokens(), width, answer)


def numbers(rows, columns, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, columns)) * np.arange(1, columns + 1) + generator.normal(
        size=columns
    )


def up_to_signs(found, expected):
    """Each column alike, or its opposite: an axis points either way."""
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-10)


def test_teacher_vectors_are_scaled_like_kims_and_special_tokens_are_zero():
    table = start(4)
    assert table.shape == (7, 4)
    assert table.dtype == torch.float32
    assert not table[:2].any()
    torch.testing.assert_close(table[2:].mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    assert float(table[2:].std(correction=0)) == pytest.approx(0.25 / 3**0.5, rel=1e-5)


def test_pca_to_full_rank_keeps_the_distances_between_words():
    table, vectors = start(5)[2:], ask(WORDS[2:])[:, 0]
    torch.testing.assert_close(
        torch.pdist(table) / torch.pdist(table).max(),
        torch.pdist(vectors) / torch.pdist(vectors).max(),
    )


def test_every_layer_weighs_the_same():
    def answer(words, scale):
        other = torch.randn(len(words), 1, 12, generator=torch.Generator().manual_seed(5))
        return torch.cat([ask(words), scale * other + scale], 1)

    table = start(4, lambda words: answer(words, 1.0))
    torch.testing.assert_close(start(4, lambda words: answer(words, 100.0)), table)
    assert not torch.allclose(table, start(4))
    # A layer that says the same of every word says nothing.
    torch.testing.assert_close(start(4, lambda words: answer(words, 0.0)), start(4))


@pytest.mark.parametrize(("words", "below", "width"), [(40, 9, 4), (6, 20, 5)])
def test_the_reduction_is_pca_also_of_few_words(words, below, width):
    vectors = numbers(words, below)
    expected = PCA(width, svd_solver="full").fit_transform(vectors)
    up_to_signs(principal_components(vectors, width), expected / expected.std())


def test_components_are_the_same_to_the_last_bit_and_point_one_way():
    vectors = numbers(200, 30)
    first = principal_components(vectors, 10)
    assert np.array_equal(first, principal_components(vectors.copy(), 10))
    axes = np.linalg.lstsq(vectors - vectors.mean(0), first, rcond=None)[0]  # (H, width)
    assert (axes[np.abs(axes).argmax(0), np.arange(10)] > 0).all()


def test_the_teacher_is_asked_for_words_only_and_each_gets_its_own_row():
    asked = []
    tokenizer = tokens(["good bad bad"], mask="")
    from_encoder(tokenizer, 1, lambda words: asked.extend(words) or ask(words))
    assert asked == ["bad", "good"]
    table = from_encoder(tokenizer, 1, lambda _: torch.tensor([[[1.0, 0]], [[3.0, 0]]]))
    assert float(table[2]) == pytest.approx(-float(table[3]))
    assert float(table[2]) != 0


def test_a_piece_is_asked_for_by_the_letters_that_it_stands_for():
    asked = []
    texts = ["goodness badness", "sadness gladness"]
    tokenizer = tokens(texts, unit="word-piece", size=60, mask="")
    from_encoder(tokenizer, 2, lambda words: asked.extend(words) or ask(words))
    pieces = words_of(tokenizer)[2:]
    assert any(piece.startswith("##") for piece in pieces)
    assert asked == [piece.removeprefix("##") for piece in pieces]


def test_special_tokens_of_the_teachers_own_tokenizer_are_zero(encoder_folder):
    model, teacher = load_classifier(encoder_folder, ["a", "b"])
    tokenizer = build_tokenizer([], VocabularyConfig(unit="teacher"), 16, "", teacher)
    table = from_encoder(tokenizer, 4, partial(word_states, model, teacher))
    zero = {
        word for word, vector in zip(words_of(tokenizer), table, strict=True) if not vector.any()
    }
    assert zero == {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "<mask>"}


def test_fewer_words_than_dimensions_leave_zeros():
    table = start(9)
    torch.testing.assert_close(table[:, :5], start(5))
    assert not table[:, 5:].any()
    with pytest.raises(InputError, match=r"dimension is 13: expected at most 12, the encoder's"):
        start(13)


def test_a_teacher_that_knows_none_of_the_words_is_refused():
    empty = build_tokenizer(["a b"], VocabularyConfig(min_count=9), 16)
    with pytest.raises(InputError, match="no word is left; lower student"):
        from_encoder(empty, 4, lambda words: torch.zeros(len(words), 1, 8))
    with pytest.raises(InputError, match="one and the same vector for all of the student's words"):
        start(2, lambda words: torch.ones(len(words), 1, 3))


def test_a_dimension_below_one_is_refused():
    with pytest.raises(InputError, match="is 0: expected at least 1"):
        EmbeddingConfig(dimension=0)


def test_a_student_starts_from_a_real_teachers_vectors_the_same_every_time(
    encoder_folder, train_table
):
    teacher = partial(word_states, *load_classifier(encoder_folder, ["a", "b"]))
    texts = texts_of(train_table)[0]
    config = StudentConfig(hidden_size=4, head_size=4, embeddings=EmbeddingConfig("teacher", 6))

    def table():
        model, tokenizer = build_student(texts, ["a", "b"], config, 3, teacher)
        found = next(
            value for value in model.state_dict().values() if value.shape == (len(tokenizer), 6)
        )
        assert torch.equal(found, from_encoder(tokenizer, 6, teacher))
        return found

    assert torch.equal(table(), table())


def test_vectors_may_be_those_of_an_encoder_that_is_not_the_teacher(
    encoder_folder, classifier_folder, train_table, dev_table, tmp_path
):
    vectors = EmbeddingConfig(str(encoder_folder), 6, "frozen")
    job = StudentJob(
        train_table,
        dev_table,
        tmp_path / "student",
        StudentConfig(hidden_size=4, head_size=4, embeddings=vectors),
        teacher=str(classifier_folder),
        loss=LossConfig(alpha=1),
        training=TrainingConfig(steps=1),
    )
    train_student(job)
    model, tokenizer = load_classifier(str(job.output))
    ask = partial(word_states, *load_base_model(str(encoder_folder)))
    teachers = partial(word_states, *load_classifier(str(classifier_folder)))
    table = model.encoder.embedding.frozen_table.weight
    torch.testing.assert_close(table, from_encoder(tokenizer, 6, ask))
    assert not torch.allclose(table, from_encoder(tokenizer, 6, teachers))


def test_a_teachers_vectors_without_a_teacher_are_refused(train_table):
    config = StudentConfig(embeddings=EmbeddingConfig("teacher", 6))
    with pytest.raises(InputError, match="source is teacher, but no teacher was given"):
        build_student(texts_of(train_table)[0], ["a", "b"], config, 1)


@pytest.mark.parametrize("head", ["", "3 2\n"], ids=["glove", "word2vec"])
def test_a_vector_file_gives_its_words_their_numbers_at_one_scale_and_the_rest_chance(
    tmp_path, head
):
    (tmp_path / "v.txt").write_text(f"{head}good 1 2\nzebra 50 60\nfilm -3 4.5e-1\n")
    table, found = from_file(WORDS, 2, tmp_path / "v.txt")
    factor = float(table[2, 0])
    assert table[[2, 4]].flatten().tolist() == pytest.approx(
        [factor, 2 * factor, -3 * factor, 0.45 * factor]
    )
    # that of uniform [-0.25, 0.25]
    assert table[[2, 4]].square().mean().item() == pytest.approx(0.25**2 / 3)
    assert not table[:2].any()
    rest = table[[3, 5, 6]]
    assert rest.abs().max() <= 0.25
    assert rest.std() > 0
    assert found == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good 1 2\nbad 1\n", r"v.txt:2: 1 numbers after the word, expected 2"),
        ("good 1 x\n", "v.txt:1: .*'x'"),
    ],
)
def test_a_line_that_is_no_vector_is_refused_with_its_number(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        from_file(WORDS, 2, tmp_path / "v.txt")


def test_a_glove_token_with_spaces_in_it_is_read_and_not_refused(tmp_path):
    # glove.840B.300d has lines such as ". . . 0.1 ..." and "at name@domain.com 0.1 ...".
    (tmp_path / "v.txt").write_text("good 1 2\n. . . 0.5 0.5\nat name@domain.com 1 1\nbad 3 4\n")
    table, _ = from_file(WORDS, 2, tmp_path / "v.txt")
    factor = float(table[2, 0])
    assert table[3].tolist() == pytest.approx([3 * factor, 4 * factor])


@pytest.mark.parametrize(
    "text", ["zebra 1 2\n", "good 0 0\n"], ids=["no word of ours", "nothing but zeros"]
)
def test_a_file_without_any_number_for_our_words_has_no_scale_and_is_read(tmp_path, text):
    (tmp_path / "v.txt").write_text(text)
    table, _ = from_file(WORDS, 2, tmp_path / "v.txt")
    assert table.isfinite().all()
    assert table[3].any()


def test_a_file_without_any_word_of_the_student_is_refused(tmp_path):
    (tmp_path / "v.txt").write_text("zebra 1 2\n")
    vectors = EmbeddingConfig(source=str(tmp_path / "v.txt"), dimension=2)
    with pytest.raises(InputError, match=r"v.txt: has none of the student's words"):
        build_student(["a good film"], ["bad", "good"], StudentConfig(embeddings=vectors), 1)


def test_a_missing_file_is_refused_with_what_else_is_known(tmp_path):
    with pytest.raises(
        InputError,
        match="no such file; expected teacher, an encoder, random, or a word-vector text file",
    ):
        from_file(WORDS, 2, tmp_path / "none.txt")
