"""Section `augment`: how the transfer set is made."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from distillkit.errors import InputError
from distillkit.recipe.bounds import (
    BY_ROWS,
    Count,
    CountOrZero,
    Fraction,
    NotNegative,
    Positive,
    Range,
    check,
)
from distillkit.recipe.places import FileOrTeacher, Model

# Variants of a text where the rows say it: docs/transfer-set.md has the figures.
LEAST_VARIANTS, MOST_VARIANTS, VARIANTS = 20, 40, 200_000


@dataclass(frozen=True)
class MixConfig:
    """Sampling weight of each augmentation method; they share out the n_iter variants of a text."""

    rules: NotNegative = 1.0
    """The three rules of the paper."""
    neighbours: NotNegative = 0.0
    """Words replaced by their nearest neighbours among word vectors."""
    sentences: NotNegative = 0.0
    """Sentences cut from the unlabelled texts, at most as many as there are; they then take the
    place of those texts."""
    generated: NotNegative = 0.0
    """Texts written by a causal language model fine-tuned on the training texts."""
    markov: NotNegative = 0.0
    """Texts written by a Markov chain over the words of the training texts, for single texts only.
    For pairs a recipe gives its weight to `pairs` and `self_pairs`, and `distillkit augment` ignores
    it."""
    pairs: NotNegative = 0.0
    """New pairs of the task's texts, and of unlabelled single ones; for tasks of pairs."""
    self_pairs: NotNegative = 0.0
    """Texts of the pairs beside their own variants by the rules; for tasks of pairs."""

    def __post_init__(self) -> None:
        check(self, "augment.mix")
        if not sum(dataclasses.astuple(self)):
            raise InputError(
                "augment.mix.rules and all other weights are 0; to make no variants set augment.n_iter to 0"
            )

    def with_methods(self, names: Iterable[str]) -> "MixConfig":
        """Return a mix with a weight, 0, for each of these methods that is not distillkit's own."""
        known = [field.name for field in dataclasses.fields(self)]
        new = [name for name in names if name not in known]
        own = len(dataclasses.fields(MixConfig))
        return _mix_of((*known[own:], *new))(**dataclasses.asdict(self)) if new else self


@cache
def _mix_of(names: tuple[str, ...]) -> type[MixConfig]:
    weights = [(name, NotNegative, 0.0) for name in names]
    return dataclasses.make_dataclass("MixConfig", weights, bases=(MixConfig,), frozen=True)


@dataclass(frozen=True)
class NeighboursConfig:
    """Nearest-neighbour word replacement (Jiao et al. 2020, TinyBERT)."""

    vectors: FileOrTeacher = "teacher"
    """teacher (each word through the encoder), or a word-vector text file (GloVe or word2vec
    form)."""
    p: Fraction = 0.4
    """Probability that a word is replaced, 0 to 1; signs and numbers stay."""
    k: Count = 15
    """Neighbours by cosine that a word is drawn from, all alike."""

    def __post_init__(self) -> None:
        check(self, "augment.neighbours")


@dataclass(frozen=True)
class SentencesConfig:
    """How in-domain text is cut into sentences."""

    min_words: Count = 3
    """Shorter sentences are left out."""
    max_words: int = 40
    """Longer sentences are left out."""
    style: Literal["auto", "plain", "penn"] = "auto"
    """penn: lower case and Penn tokens, as SST-2 has them; plain: as they stand; auto: penn if the
    training texts look so."""

    def __post_init__(self) -> None:
        check(self, "augment.sentences")
        if self.max_words < self.min_words:
            raise InputError(
                f"sentences.max_words is {self.max_words}: expected at least sentences.min_words, {self.min_words}"
            )


@dataclass(frozen=True)
class GeneratedConfig:
    """Texts of a causal language model fine-tuned on the task's own (Tang et al. 2019b)."""

    model: Model = "distilgpt2"
    """Checkpoint: a folder, package:NAME, or a hub name."""
    epochs: CountOrZero = 1
    """Passes over the training texts before it writes."""
    learning_rate: NotNegative = 5e-5
    """Peak learning rate of those passes."""
    max_tokens: Annotated[int, Range(2)] = 48
    """Longest text written, in the model's own tokens."""
    temperature: Positive = 1.0
    """Softens (above 1) or sharpens (below 1) the distribution that is drawn from, > 0."""

    def __post_init__(self) -> None:
        check(self, "augment.generated")


@dataclass(frozen=True)
class MarkovConfig:
    """Texts of a Markov chain over the words of the training texts (Shannon 1948)."""

    p_backoff: Fraction = 0.2
    """Probability that a word is drawn from those that follow the one word before it, and not the
    two before it, 0 to 1: more makes texts that are newer and less fluent."""

    def __post_init__(self) -> None:
        check(self, "augment.markov")


@dataclass(frozen=True)
class WaysConfig:
    """How the second text of a new pair is found, by weight."""

    tfidf: NotNegative = 1.0
    """One of the nearest by TF-IDF."""
    vectors: NotNegative = 1.0
    """One of the nearest by sentence vectors."""
    random: NotNegative = 0.25
    """Any other text."""

    def __post_init__(self) -> None:
        check(self, "augment.pairs.ways")
        if not sum(dataclasses.astuple(self)):
            raise InputError("augment.pairs.ways: all weights are 0: expected one above 0")


@dataclass(frozen=True)
class PairsConfig:
    """New pairs, which the teacher then labels (Thakur et al. 2021, Augmented SBERT)."""

    ways: WaysConfig = field(default_factory=WaysConfig)
    """How partners are found."""
    nearest: Count = 10
    """A partner is drawn from so many nearest, all alike."""
    model: Model = ""
    """Checkpoint of the encoder whose sentence vectors are compared; empty: the teacher's, before
    fine-tuning."""

    def __post_init__(self) -> None:
        check(self, "augment.pairs")


@dataclass(frozen=True)
class AugmentConfig:
    """The three rules of Tang et al. 2019, section 3.2, by the paper's values, and more methods."""

    tagger: str = "auto"
    """pattern (English, needs no download), spacy[:PIPELINE], nltk, jieba (Chinese), none (one tag
    for all), MODULE:FUNCTION; auto: jieba for Chinese text, else pattern."""
    p_mask: Fraction = 0.1
    """Probability that a word is masked, 0 to 1."""
    p_pos: Fraction = 0.1
    """Probability that a word is replaced by another of its part of speech, 0 to 1."""
    p_ng: Fraction = 0.25
    """Probability that a sentence is cut to one random n-gram of it, 0 to 1."""
    max_ngram: Count = 5
    """Longest n-gram kept; n is uniform over 1 to this."""
    n_iter: Annotated[int, Range(-1)] = 20
    """Variants drawn from each text before duplicates are dropped; 0: no augmentation. -1: 20, and
    up to 40 where these would be fewer than 200,000 variants."""
    pair_sides: Literal["turn", "first", "second", "both"] = "turn"
    """Which texts of a pair are changed: first, second, both; turn: the first, the second, then
    both, iteration by iteration."""
    swap: bool = False
    """For symmetric tasks: adds every pair in reverse order, and reverses half of the variants."""
    vary_unlabelled: bool = False
    """Draw variants from the unlabelled texts as well, not only from the training texts, and model
    new texts on both."""
    mask: str = "[MASK]"
    """Stands for the mask in the transfer set; every model reads it as its own mask token."""
    memory_mb: Count = 50
    """Megabytes for finding duplicates; what does not fit is sorted from disk, piece by piece."""
    mix: MixConfig = field(default_factory=MixConfig)
    """How the variants are made, by weight."""
    neighbours: NeighboursConfig = field(default_factory=NeighboursConfig)
    sentences: SentencesConfig = field(default_factory=SentencesConfig)
    generated: GeneratedConfig = field(default_factory=GeneratedConfig)
    markov: MarkovConfig = field(default_factory=MarkovConfig)
    pairs: PairsConfig = field(default_factory=PairsConfig)

    def __post_init__(self) -> None:
        check(self, "augment")
        if self.p_mask + self.p_pos > 1:
            raise InputError(
                f"augment.p_mask + augment.p_pos is {self.p_mask + self.p_pos}: expected at most 1"
            )
        if not self.mask or self.mask.strip() != self.mask:
            raise InputError(
                "augment.mask must be a word that neither starts nor ends with a space"
            )

    def settings(self) -> dict[str, Any]:
        """Return what the transfer set depends on, by field."""
        return dataclasses.asdict(dataclasses.replace(self, memory_mb=AugmentConfig.memory_mb))

    def for_rows(self, rows: int) -> "AugmentConfig":
        """Return the same with the variants that so many texts ask for, if they say it."""
        if self.n_iter != BY_ROWS:
            return self
        n_iter = min(MOST_VARIANTS, max(LEAST_VARIANTS, math.ceil(VARIANTS / max(rows, 1))))
        return dataclasses.replace(self, n_iter=n_iter)

    def for_pairs(self) -> "AugmentConfig":
        """Return the same without what makes single texts alone.

        Raises:
            InputError: Nothing is left.
        """
        mix = {**vars(self.mix), "markov": 0.0}
        if not sum(mix.values()):
            raise InputError(
                "augment.mix: markov writes single texts only; pairs need a weight above 0 for rules, pairs or self_pairs"
            )
        return dataclasses.replace(self, mix=type(self.mix)(**mix))
