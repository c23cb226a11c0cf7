"""The augmenter for a program of your own: texts in, new texts out, in memory."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import pyarrow as pa

from distillkit.augment.corpus import Lexicon, tagged_batch
from distillkit.augment.methods import methods_of
from distillkit.augment.rules import Rules
from distillkit.augment.taggers import Tagger, load_tagger
from distillkit.augment.variants import VariantMaker
from distillkit.data.content import paired, texts_of
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig
from distillkit.runtime.tokens import listed


class Augmenter:
    """Makes new texts by masking, part-of-speech-guided replacement and n-gram sampling.

    Args:
        config: Rates and number of iterations; the defaults are the paper's. Of `mix`, only the
            rules are made here.
        seed: Draws everything; the same texts and seed give the same result.
        tagger: A callable from texts to lists of (word, tag), in place of `config.tagger`.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.2.

    >>> from distillkit.recipe import AugmentConfig
    >>> augmenter = Augmenter(AugmentConfig(n_iter=2, tagger="none"), seed=3)
    >>> augmenter(["not a dull minute", "a fine film"])
    ['[MASK] a dull minute', 'a fine dull']
    """

    def __init__(
        self, config: AugmentConfig | None = None, seed: int = 1, tagger: Tagger | None = None
    ) -> None:
        self.config = config or AugmentConfig()
        self.seed = seed
        self.tagger = tagger
        if any(method.name != "rules" for method in methods_of(self.config)):
            raise InputError(
                "augment.mix: only the rules are made in memory; distillkit augment makes the rest"
            )

    @overload
    def __call__(self, texts: Sequence[str]) -> list[str]: ...
    @overload
    def __call__(
        self, texts: Sequence[str], text_pairs: Sequence[str]
    ) -> list[tuple[str, str]]: ...
    def __call__(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> list[str] | list[tuple[str, str]]:
        """Return the distinct new texts (or pairs), without the given ones, in their order.

        Raises:
            InputError: A text holds the mask word, or there is no such tagger, or `texts` is one
                text.
        """
        texts, text_pairs = listed(texts, text_pairs)
        given, tables = set(paired(texts, text_pairs)), self.variants(texts, text_pairs)
        made = (row for table in tables for row in paired(*texts_of(table)))
        new = [row for row in dict.fromkeys(made) if row not in given]
        if text_pairs is None:
            return [text for text, _ in new]
        return [(a, b) for a, b in new if b is not None]

    def variants(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield every variant drawn, with duplicates, as tables with a transfer set's columns."""
        texts, text_pairs = listed(texts, text_pairs)
        everything = [*texts, *(text_pairs or [])]
        refuse_mask(everything, self.config.mask)
        if not texts or not self.config.n_iter:
            return
        tagger = self.tagger or load_tagger(self.config.tagger, everything)
        sides = [texts] if text_pairs is None else [texts, text_pairs]
        batches = [tagged_batch(side, tagger(side)) for side in sides]
        lexicon = Lexicon.build(batches, self.config.mask)
        blocks = [lexicon.block(batch) for batch in batches]
        config = self.config.for_rows(len(texts))
        maker = VariantMaker(config, self.seed, {"rules": Rules(lexicon, config)})
        columns = [pa.array(side, pa.string()) for side in sides]
        table = pa.table(columns, ["text", "text_pair"][: len(sides)])
        yield from maker(blocks[0], blocks[1] if len(sides) > 1 else None, table, 0)


def refuse_mask(texts: Iterable[str], mask: str) -> None:
    """Refuse texts that hold the mask word: later nobody could tell which are masks.

    Raises:
        InputError: There is one.
    """
    for text in texts:
        if mask in text:
            raise InputError(
                f"the text {text!r} holds the mask word {mask!r}; choose another with --augment.mask"
            )
