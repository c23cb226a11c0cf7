"""The three rules on flat arrays: what to do at each word, for a block of texts at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distillkit.augment.taggers import TaggedText
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig

KEEP, MASK = -1, -2  # other values of `Edits.replacement` are the word that takes the place


@dataclass(frozen=True)
class Corpus:
    """N tagged texts as flat arrays over their W words, with what is needed to draw a word of a tag.

    `pieces[w]` is word w with the spacing before it, `words[w]` without; text i is
    `"".join(pieces[offsets[i]:offsets[i + 1]]) + tails[i]`, byte for byte.
    """

    words: list[str]
    pieces: list[str]
    tails: list[str]
    offsets: np.ndarray  # (N + 1,) int64
    tags: np.ndarray  # (W,) int32
    by_tag: np.ndarray  # (W,) int64: the words' numbers, tag by tag
    tag_start: np.ndarray  # (tags,) int64: where a tag begins in by_tag
    tag_count: np.ndarray  # (tags,) int64

    @classmethod
    def build(cls, texts: Sequence[str], tagged: Iterable[TaggedText]) -> "Corpus":
        """Lay tagged texts out flat.

        Raises:
            InputError: A tagger's word does not stand in its text.
        """
        words: list[str] = []
        pieces: list[str] = []
        tails: list[str] = []
        offsets = [0]
        names: dict[str, int] = {}
        tags: list[int] = []
        for text, pairs in zip(texts, tagged, strict=True):
            end = 0
            for word, tag in pairs:
                start = text.find(word, end)
                if start < 0 or not word:
                    raise InputError(
                        f"the tagger's word {word!r} does not stand in {text!r}; a tagger must return the words of the text, in order and unchanged"
                    )
                words.append(word)
                pieces.append(text[end : start + len(word)])
                tags.append(names.setdefault(tag, len(names)))
                end = start + len(word)
            tails.append(text[end:])
            offsets.append(len(words))
        tag_ids = np.array(tags, dtype=np.int32)
        count = np.bincount(tag_ids, minlength=len(names))
        start_of = np.concatenate([[0], np.cumsum(count)[:-1]]) if len(count) else count
        return cls(
            words, pieces, tails, np.array(offsets), tag_ids, np.argsort(tag_ids, kind="stable"), start_of, count
        )


@dataclass(frozen=True)
class Edits:
    """What one iteration does to a block of texts.

    `replacement` has, for each word of the block, KEEP, MASK, or the number of the word that takes its place;
    `start` and `stop` bound the n-gram kept, in words of the text (0 and its length where the text stays whole).
    """

    replacement: np.ndarray  # (words of the block,) int64
    start: np.ndarray  # (texts of the block,) int64
    stop: np.ndarray  # (texts of the block,) int64


def sample(corpus: Corpus, first: int, last: int, config: AugmentConfig, rng: np.random.Generator) -> Edits:
    """Draw one variant of each of the texts `first` to `last - 1`.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.2: X below p_mask masks the word, X in the next p_pos replaces it by one of its
    tag, drawn from the unigram distribution within the tag; then, with p_ng, one n-gram is kept, n uniform over 1 to 5, its start over all.
    """
    begin, end = corpus.offsets[first], corpus.offsets[last]
    x = rng.random(end - begin)
    replacement = np.full(end - begin, KEEP, dtype=np.int64)
    replacement[x < config.p_mask] = MASK
    swapped = np.flatnonzero((x >= config.p_mask) & (x < config.p_mask + config.p_pos))
    tags = corpus.tags[begin + swapped]
    # A uniform draw over a tag's occurrences is a draw from its words by frequency, in constant time.
    drawn = (rng.random(len(swapped)) * corpus.tag_count[tags]).astype(np.int64)
    replacement[swapped] = corpus.by_tag[corpus.tag_start[tags] + drawn]
    length = np.diff(corpus.offsets[first : last + 1])
    cut = rng.random(last - first) < config.p_ng
    n = np.where(cut, np.minimum(rng.integers(1, config.max_ngram + 1, last - first), length), length)
    start = (rng.random(last - first) * (length - n + 1)).astype(np.int64)
    return Edits(replacement, start, start + n)
