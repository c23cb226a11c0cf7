"""The augmenter: texts in, new texts out."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from tqdm import tqdm

from distillkit.augment.sampler import KEEP, MASK, Corpus, Edits, sample
from distillkit.augment.taggers import Tagger, load_tagger
from distillkit.data.tables import paired
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig

# Random numbers are drawn block by block from a generator of the block's own, so no block depends on another.
_BLOCK = 4096


class Augmenter:
    """Makes new texts from old ones by masking, part-of-speech-guided replacement and n-gram sampling.

    Args:
        config: Rates and number of iterations; the defaults are the paper's.
        seed: Draws everything; the same texts and seed give the same result.
        tagger: A callable from texts to lists of (word, tag), in place of `config.tagger`.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.2.

    >>> from distillkit.recipe import AugmentConfig
    >>> Augmenter(AugmentConfig(n_iter=2, tagger="none"), seed=3)(["not a dull minute", "a fine film"])
    ['not a dull film', 'a [MASK] film', 'a']
    """

    def __init__(self, config: AugmentConfig | None = None, seed: int = 1, tagger: Tagger | None = None) -> None:
        self.config = config or AugmentConfig()
        self.seed = seed
        self.tagger = tagger

    @overload
    def __call__(self, texts: Sequence[str]) -> list[str]: ...
    @overload
    def __call__(self, texts: Sequence[str], text_pairs: Sequence[str]) -> list[tuple[str, str]]: ...
    def __call__(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[str] | list[tuple[str, str]]:
        """Return the distinct new texts (or pairs), the given ones left out, iteration by iteration.

        Raises:
            InputError: A text holds the mask word, or the tagger is not to be had.
        """
        given = set(paired(texts, text_pairs))
        new = [row for row in dict.fromkeys(self.variants(texts, text_pairs)) if row not in given]
        return [text for text, _ in new] if text_pairs is None else [(a, b) for a, b in new if b is not None]

    def variants(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, progress: str = ""
    ) -> Iterator[tuple[str, str | None]]:
        """Yield every variant drawn, duplicates and all: n_iter times the number of texts, iteration by iteration.

        Of a pair the first text is changed in one iteration, the second in the next, both in the third, and so on.

        Args:
            texts: N texts.
            text_pairs: N second texts, or None.
            progress: Name of the progress bar; empty: none.
        """
        config, n = self.config, len(texts)
        everything = [*texts, *(text_pairs or [])]
        refuse_mask(everything, config.mask)
        if not n or not config.n_iter:
            return
        tagger = self.tagger or load_tagger(config.tagger, everything)
        shown = tqdm(
            everything, desc=f"{progress}: tag", unit="text", unit_scale=True, disable=None if progress else True
        )
        corpus = Corpus.build(everything, tagger(_Counted(everything, shown)))
        with tqdm(
            total=n * config.n_iter, desc=progress, unit="row", unit_scale=True, disable=None if progress else True
        ) as bar:
            for iteration in range(config.n_iter):
                changed = (
                    (True, False) if text_pairs is None else ((True, False), (False, True), (True, True))[iteration % 3]
                )
                for first in range(0, n, _BLOCK):
                    last = min(first + _BLOCK, n)
                    a = self._side(corpus, first, last, 0, iteration) if changed[0] else texts[first:last]
                    if text_pairs is None:
                        yield from ((text, None) for text in a)
                    else:
                        yield from zip(
                            a,
                            self._side(corpus, first, last, n, iteration) if changed[1] else text_pairs[first:last],
                            strict=True,
                        )
                    bar.update(last - first)

    def _side(self, corpus: Corpus, first: int, last: int, shift: int, iteration: int) -> list[str]:
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, iteration, first + shift])))
        return _apply(
            corpus,
            first + shift,
            last + shift,
            sample(corpus, first + shift, last + shift, self.config, rng),
            self.config.mask,
        )


def refuse_mask(texts: Iterable[str], mask: str) -> None:
    """Refuse texts in which the mask word stands already: later nobody could tell which are masks.

    Raises:
        InputError: There is one.
    """
    for text in texts:
        if mask in text:
            raise InputError(f"the text {text!r} holds the mask word {mask!r}; choose another with --augment.mask")


def _apply(corpus: Corpus, first: int, last: int, edits: Edits, mask: str) -> list[str]:
    """Write out the texts that a block's edits make."""
    begin = int(corpus.offsets[first])
    pieces = corpus.pieces[begin : int(corpus.offsets[last])]
    for i in np.flatnonzero(edits.replacement != KEEP).tolist():
        by, word = int(edits.replacement[i]), corpus.words[begin + i]
        pieces[i] = pieces[i][: len(pieces[i]) - len(word)] + (mask if by == MASK else corpus.words[by])
    out: list[str] = []
    spans = zip(
        corpus.offsets[first:last].tolist(),
        corpus.offsets[first + 1 : last + 1].tolist(),
        edits.start.tolist(),
        edits.stop.tolist(),
        corpus.tails[first:last],
        strict=True,
    )
    for offset, end, start, stop, tail in spans:
        if stop - start == end - offset:
            out.append("".join(pieces[offset - begin : end - begin]) + tail)
        else:
            kept = "".join(pieces[offset - begin + start : offset - begin + stop])
            # The spacing before an n-gram belongs to the words that went.
            out.append(kept[_gap(corpus, offset + start) :])
    return out


def _gap(corpus: Corpus, word: int) -> int:
    return len(corpus.pieces[word]) - len(corpus.words[word])


class _Counted(Sequence[str]):
    """Texts that move a bar as a tagger walks over them."""

    def __init__(self, texts: Sequence[str], bar: "tqdm[str]") -> None:
        self._texts, self._bar = texts, bar

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, i):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        return self._texts[i]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bar)
