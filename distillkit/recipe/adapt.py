"""Section `adapt`: how pre-training continues on text of the domain, before fine-tuning."""

from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from typing_extensions import Doc

from distillkit.errors import InputError
from distillkit.recipe.bounds import (
    Count,
    CountOrZero,
    Fraction,
    FractionAboveZero,
    NotNegative,
    Positive,
    Range,
    check,
)
from distillkit.recipe.maskings import MaskingStrategy, load_strategies, strategy_of
from distillkit.recipe.places import File, Texts
from distillkit.recipe.training import TrainingConfig

_STRATEGY = "; ".join(f"{kind.name}: {kind.summary}" for kind in load_strategies().values()) + "."


@dataclass(frozen=True)
class TextConfig:
    """The text, and how it is cut into rows."""

    sources: Texts = ()
    """Text without labels: .txt (a text a line), .tsv, .csv, .jsonl or .parquet files, folders of
    them, or `datasets:NAME[:CONFIG]:SPLIT`."""
    column: str = "text"
    """Name of the column with the text, where there are columns."""
    documents: Literal["row", "blank-line"] = "row"
    """What a document is: a row (a line of .txt); or all lines of a .txt file up to a blank one,
    each of which is a sentence."""
    rows: Literal["packed", "sentences", "documents"] = "packed"
    """packed: documents end to end, cut into rows of max_tokens (Liu et al. 2019, FULL-SENTENCES);
    sentences: each one a row; documents: the start of each one."""
    max_tokens: Annotated[int, Range(8)] = 128
    """Tokens a row, special ones included."""
    segmenter: str = "auto"
    """What finds words where a script has no spaces: jieba, none, or MODULE:FUNCTION (a text in,
    its words out); auto: jieba for Chinese text, else none."""
    held_out_fraction: Annotated[float, Range(0, 0.5, open_low=True)] = 0.02
    """Fraction of the documents held out to measure on, 0 to 0.5; no text is on both sides."""
    workers: CountOrZero = 0
    """Processes that tokenise; 0: one per core, fewer for little text. It changes no row."""
    cache: str = ""
    """Folder for tokenised text, by its content; empty: distillkit in the user's cache folder."""

    def __post_init__(self) -> None:
        check(self, "adapt.text")


@dataclass(frozen=True)
class MaskingConfig:
    """Which tokens are hidden, and what stands in their place."""

    strategy: Annotated[str, Doc(_STRATEGY)] = "whole-word"
    rate: FractionAboveZero = 0.15
    """Share of the tokens that is chosen, 0 to 1; at most 0.5 where runs of words are masked."""
    mask_share: Fraction = 0.8
    """Share of the chosen tokens that becomes the mask token (macbert: a similar word), 0 to 1."""
    random_share: Fraction = 0.1
    """Share of the chosen tokens that becomes a random token; the others stay as they are."""
    ngram_shares: Annotated[tuple[float, ...], Range(0)] = (0.4, 0.3, 0.2, 0.1)
    """n-gram and macbert: how often 1, 2, 3, ... words are chosen together."""
    similar: File = ""
    """macbert: a word-vector text file, or a .tsv thesaurus (a word and its synonyms a line);
    empty: neighbours among the encoder's own embeddings."""

    def __post_init__(self) -> None:
        check(self, "adapt.masking")
        if self.mask_share + self.random_share > 1:
            raise InputError(
                f"masking.mask_share + masking.random_share is {self.mask_share + self.random_share}: expected at most 1"
            )
        if not sum(self.ngram_shares):
            raise InputError(
                f"masking.ngram_shares is {self.ngram_shares}: expected shares of 0 or more, not all 0"
            )
        self.of_strategy.check(self)

    @property
    def of_strategy(self) -> MaskingStrategy:
        """What is declared of its strategy."""
        return strategy_of(self.strategy)


@dataclass(frozen=True)
class ObjectivesConfig:
    """What the encoder learns, by weight; 0 switches an objective off."""

    mlm: NotNegative = 1.0
    """Masked language modelling: the hidden tokens (Devlin et al. 2019)."""
    rtd: NotNegative = 0.0
    """Replaced-token detection: which tokens a small generator has changed (Clark et al. 2020); the
    generator learns beside and is thrown away."""
    nsp: NotNegative = 0.0
    """Next-sentence prediction: whether a row's second half follows its first, or is from another
    document (Devlin et al. 2019)."""
    sop: NotNegative = 0.0
    """Sentence-order prediction: whether a row's two halves have changed places (Lan et al.
    2020)."""
    discriminator_weight: Positive = 50.0
    """rtd: weight of the detection beside the generator's own loss."""
    generator_size: FractionAboveZero = 0.25
    """rtd: the generator's width, as a share of the encoder's, 0 to 1."""

    def __post_init__(self) -> None:
        check(self, "adapt.objectives")
        if not self.mlm + self.rtd:
            raise InputError(
                "objectives.mlm and objectives.rtd are 0: expected one of them above 0"
            )

    @property
    def pairs(self) -> bool:
        """Whether a row is two pieces of text."""
        return bool(self.nsp or self.sop)


@dataclass(frozen=True)
class ScratchConfig:
    """The encoder of teacher.model `scratch`: random weights, its word pieces from the text."""

    layers: Count = 4
    """Layers."""
    hidden_size: Annotated[int, Range(64)] = 256
    """Width, a multiple of 64."""
    vocabulary_size: Annotated[int, Range(100)] = 8000
    """Word pieces, at most; Han characters each are one."""
    lower_case: bool = True
    """Text is read in lower case and without accents."""
    max_positions: int = 512
    """Tokens of the longest text that the encoder can read."""
    embeddings: Literal["co-occurrence", "random"] = "co-occurrence"
    """What the word pieces' vectors begin as: from which pieces stand near which in the text (Levy
    et al. 2015), or random."""

    def __post_init__(self) -> None:
        check(self, "adapt.scratch")
        if self.hidden_size % 64:
            raise InputError(
                f"scratch.hidden_size is {self.hidden_size}: expected a multiple of 64"
            )


@dataclass(frozen=True)
class AdaptConfig:
    """How the encoder learns the domain before fine-tuning; needs adapt.text.sources."""

    text: TextConfig = field(default_factory=TextConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    objectives: ObjectivesConfig = field(default_factory=ObjectivesConfig)
    scratch: ScratchConfig = field(default_factory=ScratchConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(
            epochs=1, batch_size=32, learning_rate=1e-4, warmup_fraction=0.06
        )
    )
    """Pre-training; the epoch with the lowest loss on the held-out rows is kept."""

    def settings(self) -> dict[str, Any]:
        """Return what the encoder depends on, by field."""
        text = replace(self.text, workers=TextConfig.workers, cache=TextConfig.cache)
        return asdict(replace(self, text=text)) | {"training": self.training.settings()}

    def __post_init__(self) -> None:
        check(self, "adapt")
        if self.training.sampling_weights:
            raise InputError(
                "adapt.training.sampling_weights is for students: adaptation has no transfer set; leave it out"
            )
        self.training.check_own_length("adapt.training")
