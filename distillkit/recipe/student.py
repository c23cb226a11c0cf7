"""Section `student`: who learns."""

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from typing_extensions import Doc

from distillkit.errors import InputError
from distillkit.recipe.bounds import Count, CountOrZero, FractionBelowOne, Range, check
from distillkit.recipe.kinds import StudentKind, kind_of, load_kinds
from distillkit.recipe.places import Vectors


@dataclass(frozen=True)
class VocabularyConfig:
    """The student's own words; a `transformer` reads its teacher's."""

    unit: Literal["auto", "word", "character", "word-piece", "teacher", "hashed"] = "auto"
    """word, or character for scripts written without spaces; auto looks at the training text.
    word-piece: words and parts of words, trained on that text; teacher: the teacher's own
    tokenizer; hashed: n-grams of each word's bytes, hashed, so that no word is unknown (max_tokens
    counts bytes)."""
    size: Annotated[int, Range(3)] = 30000
    """Most entries kept, special tokens included; of hashed, rows of the table."""
    min_count: Count = 1
    """Rarer words in the transfer text are unknown to the student."""
    subwords: CountOrZero = 0
    """Entries of `size` that are parts of words: an out-of-vocabulary word is read as some of them,
    not as unknown; for unit word."""
    teacher_words: bool = False
    """Fill the places that `size` leaves free with whole words of the teacher's tokenizer, in its
    order: words that the text lacks, with the teacher's vectors; for unit word or character."""

    def __post_init__(self) -> None:
        check(self, "student.vocabulary")
        if self.subwords >= self.size:
            raise InputError(
                f"vocabulary.subwords is {self.subwords}: expected less than vocabulary.size, {self.size}"
            )
        if self.subwords and self.unit not in ("auto", "word"):
            raise InputError(
                f"vocabulary.subwords is {self.subwords}, but vocabulary.unit is {self.unit}: expected word, or subwords 0"
            )
        if self.teacher_words and self.unit not in ("auto", "word", "character"):
            raise InputError(
                f"vocabulary.teacher_words is set, but vocabulary.unit is {self.unit}: expected word or character"
            )


@dataclass(frozen=True)
class EmbeddingConfig:
    """Where the student's word vectors start."""

    source: Vectors = "teacher"
    """teacher (each word through the teacher, then PCA to `dimension`); another encoder, named as
    in `teacher.model`; random; or a word-vector text file (GloVe or word2vec form), scaled to the
    spread of random ones."""
    dimension: Count = 300
    """Embedding dimension; that of a vector file must be the same."""
    channels: Literal["single", "frozen", "multi"] = "single"
    """single: one trainable table; frozen: one that is never trained, so that words outside the
    training text stay near similar words; multi: one of each side by side (Kim 2014)."""

    @property
    def asks_teacher(self) -> bool:
        """Whether the vectors are a teacher's."""
        return self.source == "teacher"

    @property
    def file(self) -> Path | None:
        """The word-vector file, if the vectors are one's."""
        path = Path(self.source)
        return path if path.suffix in (".txt", ".vec") or path.is_file() else None

    @property
    def encoder(self) -> str:
        """Name of the encoder whose vectors they are; empty: the teacher's, a file's, or random."""
        named = self.source not in ("teacher", "random") and not self.file
        return self.source if named else ""

    def __post_init__(self) -> None:
        check(self, "student.embeddings")


AUTO_STUDENT = "auto"
# Settings that not all kinds have.
_OF_SOME = {"hidden_size", "layers", "kernel_sizes", "head_size", "vocabulary", "embeddings"}
_KIND = f"""Network: {", ".join(load_kinds())}. `distillkit list` describes each. auto: the training
texts choose the whole student."""


@dataclass(frozen=True)
class StudentConfig:
    """Who learns: architecture, vocabulary, embeddings."""

    kind: Annotated[str, Doc(_KIND)] = "bilstm"
    max_tokens: Count = 128
    """Longer texts are truncated, in the student's own tokens, both sides of a pair together."""
    hidden_size: CountOrZero = 150
    """Units of the network: LSTM units a direction, filters of each size, width of a fresh
    transformer; 0 cuts a transformer from the teacher."""
    layers: Count = 1
    """Layers, for kinds that can have several."""
    kernel_sizes: Annotated[tuple[int, ...], Range(1)] = (3, 4, 5)
    """Words that a convolution's filters see, one number a kind of filter."""
    pooling: Literal["auto", "last", "max", "mean", "attention"] = "auto"
    """One vector a text from those of its words. auto: what is usual for the kind, such as the last
    states of a BiLSTM."""
    head_size: Count = 200
    """Units of the ReLU layer before the logits."""
    dropout: FractionBelowOne = 0.1
    """Dropout on embeddings and on the ReLU layer's input, 0 to 1."""
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    """The student's own words."""
    embeddings: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """Where the student's word vectors start."""

    @property
    def of_kind(self) -> StudentKind:
        """What is declared of its kind."""
        return kind_of(self.kind)

    def check_fits(self, *, pairs: bool, source: str) -> None:
        """Refuse pairs to a student for single texts, and single texts to one for pairs.

        Args:
            pairs: What the data has.
            source: Named in the error.

        Raises:
            InputError: They do not fit.
        """
        kind = self.of_kind
        if not kind.fits(pairs=pairs):
            what = "pairs" if pairs else "single texts"
            fitting = [name for name, other in load_kinds().items() if other.fits(pairs=pairs)]
            raise InputError(
                f"student.kind is {self.kind}, but {source} has {what}; expected {kind.twin or ', '.join(fitting)}"
            )

    def check_width(self, hidden_size: int) -> None:
        """Refuse an encoder's word vectors of a higher dimension than its hidden size.

        Raises:
            InputError: They are.
        """
        if self.reads_words and self.embeddings.dimension > hidden_size:
            raise InputError(
                f"student.embeddings.dimension is {self.embeddings.dimension}: expected at most {hidden_size}, the encoder's hidden size"
            )

    @property
    def asks_teacher(self) -> bool:
        """Whether it is made of its teacher's layers, tokenizer, or word vectors."""
        vocabulary = self.vocabulary
        return (
            not self.reads_words
            or vocabulary.unit == "teacher"
            or vocabulary.teacher_words
            or self.embeddings.asks_teacher
        )

    @property
    def reads_words(self) -> bool:
        """Whether it has word vectors of its own; else it has its teacher's tokenizer."""
        return self.of_kind.from_teacher is None

    def __post_init__(self) -> None:
        check(self, "student")
        if self.kind == AUTO_STUDENT:
            if vars(self) != vars(StudentConfig()) | {"kind": AUTO_STUDENT}:
                raise InputError(
                    "student.kind is auto, which chooses all of the student: name a kind, such as bilstm, to change its settings"
                )
            return
        if not self.kernel_sizes:
            raise InputError("student.kernel_sizes is empty: expected one number or more")
        self._check_kind()
        self._check_words()

    def _check_kind(self) -> None:
        kind = self.of_kind
        if self.reads_words and not self.hidden_size:
            raise InputError(
                "student.hidden_size is 0: expected at least 1, or 0 for a transformer cut from the teacher"
            )
        if self.pooling not in ("auto", *kind.poolings):
            raise InputError(
                f"student.pooling is {self.pooling}, but student.kind is {self.kind}: expected {', '.join(('auto', *kind.poolings))}"
            )
        has = set(kind.settings)
        has |= {"vocabulary", "embeddings"} if self.reads_words else set()
        has |= {"head_size"} if kind.network else set()
        for setting in fields(self):
            given, usual = getattr(self, setting.name), setting.default
            if setting.default_factory is not MISSING:
                usual = setting.default_factory()
            if setting.name in _OF_SOME - has and given != usual:
                raise InputError(
                    f"student.{setting.name} is set, but means nothing to kind {self.kind}: leave it out, or name another student (--student NAME)"
                )

    def _check_words(self) -> None:
        if self.vocabulary.teacher_words and self.embeddings.source == "random":
            raise InputError(
                "student.vocabulary.teacher_words is set, but embeddings.source is random: expected teacher"
            )
        if self.vocabulary.unit == "hashed" and (
            self.embeddings.source != "random" or self.embeddings.channels != "single"
        ):
            raise InputError(
                "student.vocabulary.unit is hashed, so there are no words to give vectors: expected embeddings.source random and embeddings.channels single"
            )
