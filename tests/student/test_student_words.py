import pytest
import torch

from distillkit.recipe import VocabularyConfig
from distillkit.student.config import WordConfig
from distillkit.student.vocabulary import build_tokenizer
from distillkit.student.words import Dropout, HashedEmbedding


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_a_share_of_p_anywhere_and_keeps_the_mean(p):
    torch.manual_seed(1)
    x = torch.full((50, 1001, 3), 2.0)
    found = Dropout(p)(x)
    kept = found > 0
    scaled = found[kept]
    assert torch.equal(scaled, scaled[:1].expand_as(scaled))
    assert scaled[0].item() == pytest.approx(2 / (1 - p), rel=1e-3)
    error = 5 * (p * (1 - p) / x.numel()) ** 0.5
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=error)
    flat = kept.flatten().float()
    for neighbour in (1, 2, 3, 4):  # four numbers share one draw
        together = (flat[neighbour:] * flat[:-neighbour]).mean().item()
        assert together == pytest.approx((1 - p) ** 2, abs=2 * error)


def test_dropout_gives_gradients_to_what_it_kept_alone():
    x = torch.ones(7, 3, requires_grad=True)
    found = Dropout(0.5)(x)
    found.sum().backward()
    assert 0 < (found > 0).sum() < 21
    torch.testing.assert_close(x.grad, found.detach())


def test_dropout_is_drawn_from_torchs_seed():
    def draw():
        torch.manual_seed(4)
        return [Dropout(0.5)(torch.ones(40)).tolist() for _ in range(2)]

    first, second = draw()
    assert draw() == [first, second]
    assert first != second


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_at_its_ends_keeps_all_or_nothing(p, expected):
    assert torch.equal(Dropout(p)(torch.ones(9)), torch.full((9,), expected))


@pytest.fixture(scope="module")
def hashed():
    torch.manual_seed(0)
    embedding = HashedEmbedding(WordConfig(vocab_size=5_000, embedding_size=4, hashed=True)).eval()
    tokenizer = build_tokenizer([], VocabularyConfig("hashed"), 99)

    def vectors(text):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        found, lengths = embedding(ids, torch.tensor([ids.shape[1]]))
        assert len(found) == max(int(lengths), 1)
        return found[: int(lengths), 0].detach()

    return vectors


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a film", 2),
        ("  a   film\n", 2),
        ("看电影", 3),
        ("é", 1),
        ("看 DVD", 2),
        ("한국어", 3),
        ("カナ", 2),
        ("\u2603!", 1),
        ("a[UNK]b", 1),
    ],
)
def test_words_end_at_spaces_and_ideographs_are_words(hashed, text, words):
    assert len(hashed(text)) == words


def test_a_words_vector_depends_on_nothing_but_the_word(hashed):
    alone, among = hashed("film"), hashed("the\tfilm  is")
    assert torch.equal(alone[0], among[1])
    assert not torch.equal(hashed("film")[0], hashed("filn")[0])


def test_like_words_have_like_vectors_and_an_anagram_another(hashed):
    word, like, other = (
        hashed(text)[0] for text in ("distillation", "distillations", "quarrelsome")
    )
    assert (word - like).norm() < (word - other).norm()
    assert not torch.equal(hashed("ab ba")[0], hashed("ab ba")[1])


def test_a_words_vector_is_the_mean_of_the_rows_of_the_word_and_of_its_ngrams():
    embedding = HashedEmbedding(WordConfig(vocab_size=50_000, embedding_size=1, hashed=True)).eval()
    tokenizer = build_tokenizer([], VocabularyConfig("hashed"), 99)
    ids = torch.tensor([tokenizer("abcd")["input_ids"]])
    embedding.table.weight.data.zero_()
    rows, words, count = embedding._rows(ids, torch.tensor([4]))
    used = rows[words == 0]
    # abcd; <ab bcd... : of 3 bytes (<ab> a bc d>): 4; of 4: 3; of 5: 2
    assert len(used) == len(used.unique()) == 1 + 4 + 3 + 2
    embedding.table.weight.data[used] = torch.arange(10.0)[:, None]
    assert embedding(ids, torch.tensor([4]))[0].item() == pytest.approx(4.5)
    assert count.item() == 1
