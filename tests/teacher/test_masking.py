"""Every masking strategy against its definition: a contract, exact laws, golden sentences."""

import re
from collections import Counter
from functools import cached_property
from itertools import chain, combinations, islice, product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import BertTokenizerFast

from distillkit.data.readers import read_rows
from distillkit.data.rows import FIRST, LATER, SPECIAL, TextRows
from distillkit.errors import InputError
from distillkit.recipe import MaskingConfig, ScratchConfig
from distillkit.recipe.maskings import STRATEGIES as DECLARED
from distillkit.recipe.maskings import MaskingStrategy, load_strategies
from distillkit.teacher.masker import IGNORED, Masker, fresh_draw, keyed_draw, units
from distillkit.teacher.scratch import fresh_encoder
from distillkit.teacher.similar import SimilarWords

STRATEGIES = [*load_strategies()]
RUNS = ["n-gram", "macbert", "span"]  # what chooses several words together
SENTENCES, BATCH, MOST_WORDS = 100_000, 10_000, 24
NGRAMS = np.array([0.4, 0.3, 0.2, 0.1])
GEOMETRIC = 0.2 * 0.8 ** np.arange(10)
SHARES = {"n-gram": NGRAMS, "macbert": NGRAMS, "span": GEOMETRIC / GEOMETRIC.sum()}
LEAST_P, MOST_Z = 1e-4, 4.0


def masker_of(strategy, tokenizer, similar=None, **options):
    config = MaskingConfig(strategy=strategy, **options)
    return Masker(config, tokenizer, similar if strategy == "macbert" else None)


def chosen_of(masker, width, rows, seed=1, **options):
    """Return which words of rows of `width` equal words are chosen, (N, T) bool."""
    ids = torch.full((rows, width), 100)
    _, labels = masker(ids, torch.full_like(ids, FIRST), drawing(seed, rows), **options)
    return (labels != IGNORED).numpy()


def drawing(seed, rows):
    return fresh_draw(rows, torch.device("cpu"), torch.Generator().manual_seed(seed))


def assert_fits(observed, expected):
    """Compare counts with their means by chi-square; small cells are put together."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    assert observed[expected == 0].sum() == 0
    small = expected < 5
    observed = np.append(observed[~small], observed[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    assert observed.sum() == pytest.approx(expected.sum())
    if len(observed) > 1:
        assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > LEAST_P


def assert_mean_0(values):
    """Compare the mean of independent numbers with 0."""
    assert abs(values.sum()) <= MOST_Z * np.sqrt((values**2).sum()) + 1e-6 * len(values)


# ---- 100,000 sentences


@pytest.fixture(scope="module")
def tokenizer():
    """A WordPiece tokenizer of the embedded reviews, with places that no token uses, as BERT's."""
    texts = (row["text"] for _, row in read_rows("embedded:reviews/train"))
    vocabulary = fresh_encoder(texts, ScratchConfig(vocabulary_size=2000))[1].get_vocab()
    vocabulary |= {f"[unused{i}]": len(vocabulary) + i for i in range(3)}
    return BertTokenizerFast(vocab=vocabulary)


@pytest.fixture(scope="module")
def words_of_reviews(tokenizer):
    """Every word of the reviews, as often as it is there, as its subwords."""
    found = [word for _, row in read_rows("embedded:reviews/train") for word in row["text"].split()]
    encoded = {word: tokenizer(word, add_special_tokens=False)["input_ids"] for word in set(found)}
    assert not any(tokenizer.unk_token_id in ids for ids in encoded.values())
    return [tuple(encoded[word]) for word in found if encoded[word]]


def rows_of(words, counts, tokenizer, seed):
    """Draw rows of so many words each, between [CLS] and [SEP]."""
    size = int(np.sum(counts))
    drawn = iter(np.random.default_rng(seed).integers(len(words), size=size).tolist())
    begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids, kinds, ends = [], [], [0]
    for count in counts:
        chosen = [words[i] for i in islice(drawn, int(count))]
        own = [[FIRST, *[LATER] * (len(word) - 1)] for word in chosen]
        ids += [begin, *chain(*chosen), end]
        kinds += [SPECIAL, *chain(*own), SPECIAL]
        ends.append(len(ids))
    ids, kinds = torch.tensor(ids, dtype=torch.int32), torch.tensor(kinds, dtype=torch.int8)
    return TextRows(ids, None, torch.tensor(ends), tokenizer.pad_token_id, kinds)


@pytest.fixture(scope="module")
def sentences(words_of_reviews, tokenizer):
    counts = np.random.default_rng(0).integers(1, MOST_WORDS + 1, SENTENCES)
    return rows_of(words_of_reviews, counts, tokenizer, 1)


@pytest.fixture(scope="module")
def stand_ins(words_of_reviews):
    """For each word of at most four subwords another of as many."""
    found, words = {}, dict.fromkeys(words_of_reviews)
    for size in range(1, 5):
        group = [word for word in words if len(word) == size]
        found |= dict(zip(group, group[1:] + group[:1], strict=True))
    return found


@pytest.fixture(scope="module")
def similar(stand_ins):
    words = list(stand_ins)
    number = {word: i for i, word in enumerate(words)}
    return SimilarWords(words, [[number[stand_ins[word]]] for word in words])


class Masked:
    """Rows before and after, padded alike, (N, T); `unit` numbers tokens or words from 1."""

    def __init__(self, rows, masker, strategy, seed):
        longest = int(rows.lengths.max())
        parts = []
        generator = torch.Generator().manual_seed(seed)
        for numbers in torch.arange(len(rows)).split(BATCH):
            batch = rows.batch(numbers, longest)
            draw = fresh_draw(len(numbers), torch.device("cpu"), generator)
            ids, words = batch["input_ids"], batch["words"]
            parts.append((ids, *masker(ids, words, draw), words))
        self.before, self.after, self.labels, self.words = (
            torch.cat(part).numpy() for part in zip(*parts, strict=True)
        )
        self.chosen = self.labels != IGNORED
        begins = self.words > 0 if strategy == "token" else self.words == FIRST
        self.unit = begins.cumsum(1) * (self.words > 0)
        self.counts = self.unit.max(1)

    @cached_property
    def chosen_units(self):
        """Return whether each unit is chosen, (N, W) bool, from its first token."""
        rows, tokens = np.nonzero((self.unit > 0) & (self.unit != np.roll(self.unit, 1, 1)))
        found = np.zeros((len(self.unit), self.counts.max()), bool)
        found[rows, self.unit[rows, tokens] - 1] = self.chosen[rows, tokens]
        return found

    def groups(self, strategy):
        """Return what is replaced together, a number for each chosen token, and where those are."""
        rows, tokens = np.nonzero(self.chosen)
        if strategy == "macbert":
            keys = rows * 1000 + self.unit[rows, tokens]
        elif strategy == "span":
            chosen = self.chosen_units
            begins = chosen & ~np.pad(chosen, ((0, 0), (1, 0)))[:, :-1]
            keys = rows * 1000 + begins.cumsum(1)[rows, self.unit[rows, tokens] - 1]
        else:
            keys = np.arange(len(rows))
        return np.unique(keys, return_inverse=True)[1], rows, tokens


def runs_of(chosen):
    """Return the row and the length of every run of chosen units."""
    padded = np.pad(chosen, ((0, 0), (1, 1))).astype(int)
    steps = np.diff(padded, axis=1)
    rows, starts = np.nonzero(steps == 1)
    return rows, np.nonzero(steps == -1)[1] - starts


@pytest.fixture(scope="module", params=STRATEGIES)
def masked(request, sentences, tokenizer, similar):
    masker = masker_of(request.param, tokenizer, similar)
    return request.param, Masked(sentences, masker, request.param, 2)


def test_only_whole_words_are_touched_and_labels_are_what_was_there(masked):
    strategy, found = masked
    assert not found.chosen[found.words == SPECIAL].any()
    assert np.array_equal(found.labels[found.chosen], found.before[found.chosen])
    assert np.array_equal(found.after[~found.chosen], found.before[~found.chosen])
    assert found.chosen.any()
    split = (found.words == LATER) & (found.chosen != np.roll(found.chosen, 1, 1))
    assert split.any() == (strategy == "token")


def test_the_share_of_chosen_tokens_and_units_is_the_rate(masked):
    _, found = masked
    assert_mean_0(found.chosen.sum(1) - 0.15 * (found.words > 0).sum(1))
    over = found.chosen_units.sum(1) - 0.15 * found.counts
    assert_mean_0(over)
    for count in (1, 2, 5, 11, MOST_WORDS):  # the same in short rows and in long ones
        assert_mean_0(over[found.counts == count])


def test_every_position_is_as_likely_or_as_its_mirror_image(masked):
    strategy, found = masked
    chosen = found.chosen_units
    for count in (2, 7, MOST_WORDS):
        of_count = chosen[found.counts == count][:, :count].sum(0)
        if strategy not in RUNS:
            assert_fits(of_count, np.full(count, of_count.mean()))
            continue
        for i in range(count // 2):
            pair = of_count[[i, count - 1 - i]]
            assert_fits(pair, np.full(2, pair.mean()))


@pytest.mark.parametrize(
    ("strategy", "share"),
    [("token", 0.15), ("whole-word", 0.15), ("n-gram", 0.09), ("span", 0.046)],
)
def test_the_first_and_last_words_of_a_row_are_chosen_as_often_as_the_docs_say(
    strategy, share, tokenizer
):
    chosen = chosen_of(masker_of(strategy, tokenizer), 60, 20_000)
    assert chosen.mean() == pytest.approx(0.15, abs=0.002)
    assert chosen[:, [0, -1]].mean(0) == pytest.approx([share, share], abs=0.01)


def test_runs_have_their_lengths_whatever_the_length_of_the_row(masked):
    strategy, found = masked
    rows, lengths = runs_of(found.chosen_units)
    if strategy not in RUNS:
        # Single words are independent: two side by side are as likely as any two.
        of_count = found.chosen_units[found.counts == MOST_WORDS]
        both, pairs = (of_count[:, 1:] & of_count[:, :-1]).sum(1), of_count.sum(1)
        assert_mean_0(both - pairs * (pairs - 1) / MOST_WORDS)
        return
    for count in range(1, MOST_WORDS + 1):
        fit = SHARES[strategy][:count] / SHARES[strategy][:count].sum()
        observed = np.bincount(lengths[found.counts[rows] == count], minlength=len(fit) + 1)[1:]
        assert len(observed) == len(fit)
        assert_fits(observed, fit * observed.sum())


def test_of_the_chosen_8_in_10_are_hidden_1_random_and_1_kept(masked, tokenizer, stand_ins):
    strategy, found = masked
    group, rows, tokens = found.groups(strategy)
    before, after = found.before[rows, tokens], found.after[rows, tokens]
    hidden = np.full_like(before, tokenizer.mask_token_id)
    known = np.ones(len(before), bool)
    if strategy == "macbert":
        words = {}
        for place, number in enumerate(group.tolist()):
            words.setdefault(number, []).append(place)
        for places in words.values():
            other = stand_ins.get(tuple(before[places].tolist()))
            known[places] = other is not None
            hidden[places] = -1 if other is None else other
        assert not (after == tokenizer.mask_token_id).any()
    # 0 hidden, 1 kept, 2 random; of what is decided together every token has the same fate, but a
    # random token that is the one that was there.
    fate = np.where(after == hidden, 0, np.where(after == before, 1, 2))
    least, most = (np.full(group.max() + 1, start) for start in (2, 0))
    telling = hidden != before  # a word and its stand-in may end alike
    np.minimum.at(least, group[telling], fate[telling])
    np.maximum.at(most, group[telling], fate[telling])
    assert (least != most).mean() < 0.001
    of_group = most[np.unique(group[known])]
    assert_fits(np.bincount(of_group, minlength=3), np.array([0.8, 0.1, 0.1]) * len(of_group))


def test_random_tokens_are_any_subword_and_never_a_special_one(masked, tokenizer):
    strategy, found = masked
    random = found.chosen & (found.after != found.before) & (found.after != tokenizer.mask_token_id)
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    special = tokenizer.all_special_ids
    ordinary = [i for i, name in enumerate(names) if i not in special and "unused" not in name]
    assert len(ordinary) == len(tokenizer) - 8
    assert set(found.after[random]) <= set(ordinary)
    if strategy == "macbert":  # only a word of more than four subwords has no similar one
        keys = np.where(found.unit > 0, np.arange(len(found.unit))[:, None] * 100 + found.unit, 0)
        random &= (np.bincount(keys.ravel())[keys] > 4) & (found.unit > 0)
    tokens = found.before[found.words > 0]
    share = np.bincount(tokens, minlength=len(names))[ordinary] / len(tokens)
    # a random token equal to the one before it does not show
    expected = (1 - share) / (1 - share).sum() * random.sum()
    assert_fits(np.bincount(found.after[random], minlength=len(names))[ordinary], expected)


# ---- the laws


def law(strategy, count, rate):
    """Return the probability of every choice of units of a row, from the definition."""
    shares = np.array(SHARES.get(strategy, [1.0]))
    gap = int(len(shares) > 1)
    shares = shares[:count] / shares[:count].sum()
    wanted = rate * count / (shares * np.arange(1, len(shares) + 1)).sum()
    least = int(wanted)
    found = Counter()
    for number, weight in ((least, 1 - wanted + least), (least + 1, wanted - least)):
        for lengths in product(range(1, len(shares) + 1), repeat=number):
            chance = weight * np.prod([shares[length - 1] for length in lengths])
            fitting = list(lengths)
            while sum(fitting) + gap * (len(fitting) - 1) > count:
                fitting.pop()
            layouts = list(_layouts(count, fitting, gap))
            for layout in layouts:
                found[layout] += chance / len(layouts)
    return found


def _layouts(count, lengths, gap):
    if not gap:
        yield from combinations(range(count), len(lengths))
        return
    free = count - sum(lengths)
    for slots in combinations(range(free + 1), len(lengths)):
        before = np.cumsum([0, *lengths])
        yield tuple(slot + before[i] + k for i, slot in enumerate(slots) for k in range(lengths[i]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("count", "rate"), [(1, 0.15), (2, 0.5), (3, 0.15), (7, 0.15), (7, 0.4), (9, 0.5)]
)
def test_short_rows_are_masked_with_just_the_chances_of_the_definition(
    strategy, count, rate, tokenizer, similar
):
    rows = 40_000
    chosen = chosen_of(masker_of(strategy, tokenizer, similar, rate=rate), count, rows, seed=3)
    found = Counter(tuple(np.flatnonzero(row).tolist()) for row in chosen)
    expected = law(strategy, count, rate)
    assert set(found) <= set(expected)
    assert_fits([found[c] for c in expected], [chance * rows for chance in expected.values()])


@pytest.mark.parametrize("strategy", RUNS)
def test_in_long_rows_runs_have_just_their_shares(strategy, words_of_reviews, tokenizer, similar):
    rows = rows_of(words_of_reviews, [120] * 3000, tokenizer, 2)
    found = Masked(rows, masker_of(strategy, tokenizer, similar), strategy, 2)
    _, lengths = runs_of(found.chosen_units)
    shares = SHARES[strategy]
    assert_fits(np.bincount(lengths, minlength=len(shares) + 1)[1:], shares * len(lengths))
    mean = (shares * np.arange(1, len(shares) + 1)).sum()
    # Joshi et al. 2020: 3.8
    assert mean == pytest.approx(3.797 if strategy == "span" else 2.0, abs=1e-3)
    assert_mean_0(lengths - mean)


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ((0.0, 1.0), {2: 1.0}),
        ((0.0, 0.5, 0.0, 0.5, 0.0), {2: 0.5, 4: 0.5}),
        ((3.0, 1.0), {1: 0.75, 2: 0.25}),
        ((1.0, 0.0), {1: 1.0}),
    ],
)
def test_shares_of_0_never_come_and_the_rate_is_kept(given, shares, tokenizer):
    masker = masker_of("n-gram", tokenizer, ngram_shares=given)
    chosen = chosen_of(masker, 30, rows=4000)
    lengths = Counter(runs_of(chosen)[1].tolist())
    assert set(lengths) == set(shares)
    assert_mean_0(chosen.sum(1) - 4.5)
    total = sum(lengths.values())
    assert_fits([lengths[n] for n in shares], [share * total for share in shares.values()])


def test_a_row_too_short_for_any_run_is_masked_at_the_rate_all_the_same(tokenizer):
    masker = masker_of("n-gram", tokenizer, ngram_shares=(0.0, 0.0, 1.0))
    assert_mean_0(chosen_of(masker, 2, rows=8000).sum(1) - 0.3)


# ---- chance


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_masks_are_dynamic_but_with_the_same_generator_the_same(
    strategy, sentences, tokenizer, similar
):
    batch = sentences.batch(torch.arange(50))
    masker = masker_of(strategy, tokenizer, similar)
    torch.manual_seed(1)
    free = [
        masker(batch["input_ids"], batch["words"], fresh_draw(50, torch.device("cpu")))[1]
        for _ in range(2)
    ]
    assert not torch.equal(*free)
    drawn = [masker(batch["input_ids"], batch["words"], drawing(5, 50)) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*drawn, strict=True))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_static_masks_do_not_depend_on_the_batch_or_the_padding(
    strategy, sentences, tokenizer, similar
):
    masker = masker_of(strategy, tokenizer, similar)
    rows = sentences

    def mask(numbers, keys, longest=None):
        batch = rows.batch(numbers, longest)
        found = masker(batch["input_ids"], batch["words"], keyed_draw(keys))
        inside = batch["attention_mask"].bool()
        return [[part[i, inside[i]].tolist() for part in found] for i in range(len(numbers))]

    numbers = torch.arange(64)
    together = mask(numbers, numbers)
    assert together == [mask(numbers[i : i + 1], numbers[i : i + 1])[0] for i in range(64)]
    assert together[::-1] == mask(numbers.flip(0), numbers.flip(0), longest=512)
    assert together != mask(numbers, numbers + 64)


def test_keyed_numbers_are_uniform_and_independent_of_each_other():
    draw = keyed_draw(torch.arange(400) - 7)
    first, second = draw(500), draw(500)
    assert torch.equal(first[:, :20], keyed_draw(torch.arange(400) - 7)(20))
    assert 0 <= float(first.min()) < float(first.max()) < 1
    for one, other in ((first, second), (first[:, 1:], first[:, :-1]), (first[1:], first[:-1])):
        cells = (one * 16).long() * 16 + (other * 16).long()
        observed = torch.bincount(cells.flatten(), minlength=256).numpy()
        assert_fits(observed, np.full(256, cells.numel() / 256))


# ---- odd rows


ODD = [
    [[SPECIAL]],
    [[SPECIAL] * 6, [SPECIAL, FIRST, SPECIAL, SPECIAL, SPECIAL, SPECIAL]],
    [[LATER, LATER, FIRST, LATER, SPECIAL, LATER]],  # begins within a cut word
    [[FIRST] + [LATER] * 5],  # one word is all
    [[SPECIAL] + [FIRST] * 510 + [SPECIAL]],
    [[FIRST, LATER, LATER, LATER] * 128] * 3,
    [[FIRST, SPECIAL]] * 700,
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rate", [1e-6, 0.15, 0.5])
def test_odd_rows_are_masked_as_well_as_can_be(strategy, rate, tokenizer, similar):
    masker = masker_of(strategy, tokenizer, similar, rate=rate)
    for words in map(torch.tensor, ODD):
        ids = torch.randint(5, 1000, words.shape, generator=torch.Generator().manual_seed(0))
        for seed in range(20):
            after, labels = masker(ids, words, drawing(seed, len(ids)))
            chosen = labels != IGNORED
            assert after.shape == labels.shape == ids.shape
            assert not chosen[words == SPECIAL].any()
            assert torch.equal(labels[chosen], ids[chosen])
            assert torch.equal(after[~chosen], ids[~chosen])
            if strategy != "token":  # words are chosen whole
                unit = units(words, whole=True)
                same = (unit[:, 1:] == unit[:, :-1]) & (unit[:, 1:] > 0)
                assert not (chosen[:, 1:] != chosen[:, :-1])[same].any()


def test_the_rest_of_a_cut_word_is_a_word():
    words = torch.tensor([[LATER, LATER, FIRST, LATER, SPECIAL, LATER, LATER, SPECIAL]])
    assert units(words, whole=True).tolist() == [[1, 1, 2, 2, 0, 3, 3, 0]]
    assert units(words, whole=False).tolist() == [[1, 2, 3, 4, 0, 5, 6, 0]]


def test_a_row_is_chosen_whole_at_a_rate_of_1(tokenizer):
    words = torch.tensor([[SPECIAL, FIRST, LATER, FIRST, FIRST, LATER, LATER, FIRST, SPECIAL]] * 5)
    for strategy in ("token", "whole-word"):
        masker = masker_of(strategy, tokenizer, rate=1.0, mask_share=1.0, random_share=0.0)
        after, labels = masker(torch.full((5, 9), 100), words, drawing(0, 5))
        assert torch.equal(labels != IGNORED, words > 0)
        assert torch.equal(after == tokenizer.mask_token_id, words > 0)


def test_what_a_strategy_needs_is_asked_for(tokenizer, similar):
    bare = BertTokenizerFast(vocab={"[UNK]": 0, "a": 1})
    bare.mask_token = None
    for arguments, said in (
        ((MaskingConfig(strategy="macbert"), tokenizer), "macbert, and it alone"),
        ((MaskingConfig(strategy="span"), tokenizer, similar), "macbert, and it alone"),
        ((MaskingConfig(strategy="token"), bare), "has no mask token; expected that of an encoder"),
    ):
        with pytest.raises(InputError, match=said):
            Masker(*arguments)


def test_a_strategy_is_one_declaration(tokenizer, monkeypatch):
    pairs = MaskingStrategy("pairs", "two words at a time", runs=lambda config: (0.0, 1.0))
    monkeypatch.setitem(DECLARED, "pairs", pairs)
    chosen = chosen_of(masker_of("pairs", tokenizer, rate=0.4), 9, rows=200)
    assert set(runs_of(chosen)[1]) == {2}
    with pytest.raises(InputError, match="pairs leaves a word between any two runs"):
        masker_of("pairs", tokenizer, rate=0.6)
    with pytest.raises(InputError, match="'pear': did you mean 'pairs'"):
        MaskingConfig(strategy="pear")


# ---- golden sentences

ENGLISH = (
    "a thought ##ful ##ly made film , qui ##et and very mov ##ing , with a cast that shin ##es"
)
# as jieba has its words; the tokenizer knows characters
CHINESE = "这 ##部 电 ##影 的 演 ##员 非 ##常 出 ##色 ， 故 ##事 也 很 感 ##人"
SIMILAR = """
thought ful ly = sens ible s | film = movie | qui et = sil ent | mov ing = touch ed | very = quite
cast = crew | 电 影 = 影 片 | 演 员 = 主 角 | 非 常 = 十 分 | 出 色 = 精 彩 | 故 事 = 情 节
感 人 = 动 人 | 很 = 真
"""
KEY = 12
# Chosen tokens stand in brackets, _ for the mask.
GOLDEN = {
    "token": (
        "_ thought _ ly made film , _ _ and very _ ing , with a cast that _ es",
        "_ _ _ 影 的 演 员 _ _ 出 色 _ 故 事 也 很 感 人",
    ),
    "whole-word": (
        "_ thought ful ly <，> film , qui et and _ _ _ , with _ cast that shin es",
        "_ _ 电 影 <，> 演 员 非 常 出 色 ， _ _ <也> 很 感 人",
    ),
    "n-gram": (
        "_ _ _ _ _ film , qui et and _ _ <ing> , with <a> <cast> _ shin es",
        "_ _ _ _ _ 演 员 非 常 出 色 ， 故 事 也 <很> <感> _",
    ),
    "macbert": (
        "<that> <sens> <ible> <s> <thought> film , qui et and <色> <touch> <ed>"
        " , with <非> <crew> <that> shin es",
        "<that> <常> <影> <片> <thought> 演 员 非 常 出 色 ， 故 事 也 <真> <动> <人>",
    ),
    "span": (
        "a thought ful ly made film , qui et _ _ _ _ _ _ _ cast that shin es",
        "_ _ _ _ _ _ _ _ _ _ _ ， 故 事 也 很 感 人",
    ),
}


def golden(strategy, sentence):
    pairs = re.split(r"[|\n]", SIMILAR.strip())
    similar = [side.split() for pair in pairs for side in pair.split("=")]
    texts = f"[PAD] [UNK] [CLS] [SEP] [MASK] {ENGLISH} {CHINESE} {SIMILAR}".replace("##", "")
    names = dict.fromkeys(re.findall(r"[^\s=|]+", texts))
    tokenizer = BertTokenizerFast(vocab={name: i for i, name in enumerate(names)})
    number = tokenizer.convert_tokens_to_ids
    words = SimilarWords([number(word) for word in similar], [[i ^ 1] for i in range(len(similar))])
    subwords = sentence.replace("##", "").split()
    ids = torch.tensor([number(["[CLS]", *subwords, "[SEP]"])])
    kinds = [LATER if name.startswith("##") else FIRST for name in sentence.split()]
    after, labels = masker_of(strategy, tokenizer, words, rate=0.3)(
        ids,
        torch.tensor([[SPECIAL, *kinds, SPECIAL]]),
        keyed_draw(torch.tensor([KEY])),
    )
    assert torch.equal(torch.where(labels == IGNORED, after, labels), ids)
    found = tokenizer.convert_ids_to_tokens(after[0, 1:-1].tolist())
    marked = zip(found, (labels[0, 1:-1] != IGNORED).tolist(), strict=True)
    return " ".join(f"<{name}>" if chosen else name for name, chosen in marked)


@pytest.mark.parametrize("strategy", GOLDEN)
def test_golden_sentences(strategy):
    found = tuple(golden(strategy, sentence) for sentence in (ENGLISH, CHINESE))
    assert tuple(text.replace("<[MASK]>", "_") for text in found) == GOLDEN[strategy]
