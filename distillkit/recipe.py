"""What a run is made of: frozen dataclasses, one a section, and the strict loader that fills them from YAML.

Field defaults < recipe YAML < command-line flags. The docstring under a field is its help on the command line.
"""

import dataclasses
import math
import re
import typing
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from distillkit import shelf
from distillkit.errors import InputError

T = TypeVar("T")
Precision = Literal["auto", "fp32", "bf16", "fp16"]
TEACHER_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"  # of a folder in a logit store
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class ColumnsConfig:
    """What a source calls its columns."""

    text: str = "text"
    """Name of the column with the (first) text."""
    text_pair: str = ""
    """Name of the column with the second text; empty: single texts."""
    label: str = "label"
    """Name of the column with the label: names or integers."""


@dataclass(frozen=True)
class DataConfig:
    """Where the labelled text is."""

    train: str = ""
    """Labelled training data: a .tsv, .csv, .jsonl or .parquet file, `embedded:NAME/SPLIT`, or `datasets:NAME[:CONFIG]:SPLIT` (a hub name or a folder)."""
    dev: str = ""
    """Labelled development data, same forms; empty: `dev_fraction` of train is set aside, label by label."""
    test: str = ""
    """Labelled test data, same forms; empty: the proof reports dev only."""
    unlabelled: tuple[str, ...] = ()
    """More text for the transfer set, labelled by the teacher alone: same forms, or .txt with one text a line."""
    dev_fraction: float = 0.1
    """Share of train set aside when `dev` is empty, 0 to 0.5."""
    columns: ColumnsConfig = field(default_factory=ColumnsConfig)
    """What the sources call their columns."""

    def __post_init__(self) -> None:
        if not 0 <= self.dev_fraction <= 0.5:
            raise InputError(f"data.dev_fraction is {self.dev_fraction}: expected 0 to 0.5")


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: the teacher's fine-tuning and the student's distillation share these."""

    epochs: int = 3
    """Passes over the training rows; 0 leaves the model as it is."""
    batch_size: int = 32
    """Rows a forward pass."""
    accumulation_steps: int = 1
    """Forward passes an optimizer step: the effective batch is batch_size times this."""
    optimizer: Literal["adamw", "adadelta"] = "adamw"
    """adamw, or the paper's adadelta (rho 0.95)."""
    learning_rate: float = 3e-5
    """Peak learning rate."""
    weight_decay: float = 0.01
    """Decoupled weight decay of matrices; biases and norms have none."""
    warmup_fraction: float = 0.1
    """Share of the steps over which the learning rate rises from 0, 0 to 1."""
    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate after the warm-up: linear to 0, or constant."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this global norm; 0: never."""
    precision: Precision = "auto"
    """Autocast of the forward pass; auto: bf16 where the processor or GPU computes in it, else fp32."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "accumulation_steps"):
            if getattr(self, name) < 1:
                raise InputError(f"training.{name} is {getattr(self, name)}: expected at least 1")
        for name in ("epochs", "learning_rate", "weight_decay", "max_grad_norm"):
            if not getattr(self, name) >= 0:
                raise InputError(f"training.{name} is {getattr(self, name)}: expected 0 or more")
        if not 0 <= self.warmup_fraction <= 1:
            raise InputError(f"training.warmup_fraction is {self.warmup_fraction}: expected 0 to 1")


@dataclass(frozen=True)
class TeacherConfig:
    """Who teaches: an encoder checkpoint and how it is fine-tuned."""

    model: str = "bert-base-uncased"
    """A hub name, a folder with config.json, or `package:NAME` (an installed package with a MODEL_DIR)."""
    max_tokens: int = 128
    """Longer texts are truncated, in word pieces, special tokens included."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Fine-tuning; Devlin et al. 2019 try learning rates 2e-5 to 5e-5, 3 epochs, batch 32."""


@dataclass(frozen=True)
class MixConfig:
    """How the variants are made: each way's weight; n_iter variants a text are shared out by them."""

    rules: float = 1.0
    """The three rules of the paper."""
    infill: float = 0.0
    """Words masked and filled in by a masked language model."""
    neighbours: float = 0.0
    """Words replaced by their nearest neighbours among word vectors."""
    sentences: float = 0.0
    """Sentences cut from the unlabelled texts, at most as many as there are; they then take the place of those texts."""
    generated: float = 0.0
    """Texts written by a causal language model fine-tuned on the training texts."""

    def __post_init__(self) -> None:
        weights = dataclasses.asdict(self)
        for name, weight in weights.items():
            if not weight >= 0:
                raise InputError(f"augment.mix.{name} is {weight}: expected a weight, 0 or more")
        if not sum(weights.values()):
            raise InputError(
                "augment.mix.rules and all other weights are 0; to make no variants set augment.n_iter to 0"
            )


@dataclass(frozen=True)
class InfillConfig:
    """Masked-language-model infilling (Jiao et al. 2020, TinyBERT, algorithm 1; sampled, not the best 15)."""

    model: str = ""
    """Checkpoint of an encoder; empty: the teacher's, before fine-tuning."""
    p: float = 0.15
    """Probability that a word is masked and filled in, 0 to 1; signs stay."""
    temperature: float = 1.0
    """Softens (above 1) or sharpens (below 1) the distribution that is drawn from, > 0."""
    head_steps: int = 300
    """Steps of 64 texts over which a checkpoint without a masked-language-model head learns one, the encoder with it, from the texts."""

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InputError(f"infill.p is {self.p}: expected a probability, 0 to 1")
        if not self.temperature > 0 or self.head_steps < 0:
            raise InputError("infill.temperature must be above 0 and infill.head_steps at least 0")


@dataclass(frozen=True)
class NeighboursConfig:
    """Nearest-neighbour word replacement (Jiao et al. 2020, TinyBERT)."""

    vectors: str = "teacher"
    """teacher (each word through the encoder), or a word-vector text file (GloVe or word2vec form)."""
    p: float = 0.4
    """Probability that a word is replaced, 0 to 1; signs and numbers stay."""
    k: int = 15
    """Neighbours by cosine that a word is drawn from, all alike."""

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise InputError(f"neighbours.p is {self.p}: expected a probability, 0 to 1")
        if self.k < 1:
            raise InputError(f"neighbours.k is {self.k}: expected at least 1")


@dataclass(frozen=True)
class SentencesConfig:
    """How in-domain text is cut into sentences."""

    min_words: int = 3
    """Shorter sentences are left out."""
    max_words: int = 40
    """Longer sentences are left out."""
    style: Literal["auto", "plain", "penn"] = "auto"
    """penn: lower case and Penn tokens, as SST-2 has them; plain: as they stand; auto: penn if the training texts look so."""

    def __post_init__(self) -> None:
        if not 0 < self.min_words <= self.max_words:
            raise InputError("sentences.min_words must be at least 1 and sentences.max_words no less than it")


@dataclass(frozen=True)
class GeneratedConfig:
    """Texts of a causal language model fine-tuned on the task's own (Tang et al. 2019b)."""

    model: str = "distilgpt2"
    """Checkpoint: a folder, package:NAME, or a hub name."""
    epochs: int = 1
    """Passes over the training texts before it writes."""
    learning_rate: float = 5e-5
    """Peak learning rate of those passes."""
    max_tokens: int = 48
    """Longest text written, in the model's own tokens."""
    temperature: float = 1.0
    """Softens (above 1) or sharpens (below 1) the distribution that is drawn from, > 0."""

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.max_tokens < 2 or not self.temperature > 0:
            raise InputError(
                "generated.epochs must be at least 0, generated.max_tokens 2, generated.temperature above 0"
            )


@dataclass(frozen=True)
class AugmentConfig:
    """The three rules of Tang et al. 2019, section 3.2, and more ways; the defaults are the paper's."""

    tagger: str = "auto"
    """pattern (English, needs no download), spacy[:PIPELINE], nltk, jieba (Chinese), none (one tag for all), MODULE:FUNCTION;
    auto: jieba for Chinese text, else pattern."""
    p_mask: float = 0.1
    """Probability that a word is masked, 0 to 1."""
    p_pos: float = 0.1
    """Probability that a word is replaced by another of its part of speech, 0 to 1."""
    p_ng: float = 0.25
    """Probability that a sentence is cut to one random n-gram of it, 0 to 1."""
    max_ngram: int = 5
    """Longest n-gram kept; n is uniform over 1 to this."""
    n_iter: int = 20
    """Variants drawn from each text before duplicates are dropped; 0: no augmentation."""
    pair_sides: Literal["turn", "first", "second", "both"] = "turn"
    """Which texts of a pair are changed: first, second, both; turn: the first, the second, then both, iteration by iteration."""
    swap: bool = False
    """For symmetric tasks: each pair stands in the transfer set the other way round as well, and half of the variants are turned."""
    vary_unlabelled: bool = False
    """Draw variants from the unlabelled texts as well, not only from the training texts."""
    mask: str = "[MASK]"
    """Stands for the mask in the transfer set; every model reads it as its own mask token."""
    memory_mb: int = 50
    """Megabytes for finding duplicates; what does not fit is sorted from disk, piece by piece."""
    mix: MixConfig = field(default_factory=MixConfig)
    """How the variants are made, by weight."""
    infill: InfillConfig = field(default_factory=InfillConfig)
    neighbours: NeighboursConfig = field(default_factory=NeighboursConfig)
    sentences: SentencesConfig = field(default_factory=SentencesConfig)
    generated: GeneratedConfig = field(default_factory=GeneratedConfig)

    def __post_init__(self) -> None:
        for name in ("p_mask", "p_pos", "p_ng"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"augment.{name} is {getattr(self, name)}: expected a probability, 0 to 1")
        if self.p_mask + self.p_pos > 1:
            raise InputError(f"augment.p_mask + augment.p_pos is {self.p_mask + self.p_pos}: expected at most 1")
        if self.max_ngram < 1 or self.n_iter < 0:
            raise InputError("augment.max_ngram must be at least 1 and augment.n_iter at least 0")
        if not self.mask or self.mask.strip() != self.mask:
            raise InputError("augment.mask must be a word that neither starts nor ends with a space")
        if self.memory_mb < 1:
            raise InputError(f"augment.memory_mb is {self.memory_mb}: expected at least 1")


@dataclass(frozen=True)
class LabelConfig:
    """How the teacher labels the transfer set."""

    max_batch_tokens: int = 2048
    """Tokens a forward pass, padding included; on a GPU 65536 is a good start."""
    precision: Precision = "auto"
    """What the teacher computes in; auto: bf16 where the processor or GPU computes in it, else fp32."""
    shard_rows: int = 16384
    """Rows a shard: what a killed run may lose."""
    storage: Literal["fp16", "fp32"] = "fp16"
    """How logits are kept on disk; fp16 halves them, and the store says by how much it rounded."""

    def __post_init__(self) -> None:
        if self.max_batch_tokens < 1 or self.shard_rows < 1:
            raise InputError("label.max_batch_tokens and label.shard_rows must be at least 1")


@dataclass(frozen=True)
class VocabularyConfig:
    """The student's own words."""

    unit: Literal["auto", "word", "character"] = "auto"
    """word, or character for scripts written without spaces; auto looks at the training text."""
    size: int = 30000
    """Most entries kept, special tokens included."""
    min_count: int = 1
    """Rarer words in the transfer text are unknown to the student."""


@dataclass(frozen=True)
class EmbeddingConfig:
    """Where the student's word vectors start."""

    source: str = "teacher"
    """teacher (each word through the teacher, PCA to `width`), random, or a word-vector text file (GloVe or word2vec form)."""
    width: int = 300
    """Numbers a word; a vector file's own width wins only if equal."""
    channels: Literal["single", "multi"] = "single"
    """single: one trainable table; multi: a frozen and a trainable copy side by side (Kim 2014)."""


@dataclass(frozen=True)
class StudentConfig:
    """Who learns: architecture, vocabulary, embeddings."""

    kind: Literal["bilstm", "siamese-bilstm"] = "bilstm"
    """bilstm for single texts, siamese-bilstm for pairs."""
    max_tokens: int = 128
    """Longer texts are truncated, in the student's own tokens, both sides of a pair together."""
    hidden_size: int = 150
    """LSTM units a direction."""
    head_size: int = 200
    """Units of the ReLU layer before the logits."""
    dropout: float = 0.1
    """Dropout on embeddings and on the ReLU layer's input, 0 to 1."""
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    """The student's own words."""
    embeddings: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """Where the student's word vectors start."""


@dataclass(frozen=True)
class LossConfig:
    """What the student is asked to match."""

    kind: Literal["mse", "soft"] = "mse"
    """mse: squared distance of the logits (Tang et al. 2019); soft: KL divergence of softened distributions (Hinton et al. 2015)."""
    alpha: float = 0.0
    """Weight of the hard-label cross-entropy, 0 to 1; 1 ignores the teacher's logits."""
    temperature: float = 1.0
    """Softens both distributions of `soft`, > 0; the loss is multiplied by its square."""
    teachers: tuple[str, ...] = ()
    """Teachers of the logit store whose logits are averaged: NAME, or NAME=WEIGHT (1 where none is given); empty: all, alike."""

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"loss.alpha is {self.alpha}: expected 0 to 1")
        if not self.temperature > 0:
            raise InputError(f"loss.temperature is {self.temperature}: expected more than 0")
        for item in self.teachers:
            if not re.fullmatch(rf"{TEACHER_NAME}(=.+)?", item) or not _is_weight(item.partition("=")[2] or "1"):
                raise InputError(
                    f"loss.teachers has {item!r}: expected NAME or NAME=WEIGHT, the weight a number above 0"
                )
        if len(self.teacher_weights()) < len(self.teachers):
            raise InputError(f"loss.teachers is {', '.join(self.teachers)}: expected each teacher once")

    def teacher_weights(self) -> dict[str, float]:
        """Return the weight of each teacher that is named."""
        pairs = (item.partition("=") for item in self.teachers)
        return {name: float(weight or 1) for name, _, weight in pairs}


@dataclass(frozen=True)
class ProofConfig:
    """What the distilled student is held against."""

    gold_epochs: int = 20
    """Epochs of the same student on the gold labels alone (fewer rows, so more passes); the best on dev is kept. 0: leave it out."""
    latency_sentences: int = 200
    """Sentences timed one by one, tokenising included; 0: no timing."""


@dataclass(frozen=True)
class Recipe:
    """One experiment: teacher + student + data + how."""

    seed: int = 1
    """Seeds everything that is drawn."""
    engine: Engine = "local"
    """Where augment and label do their work. local: processes of this machine; ray: a Ray cluster (pip install 'distillkit[ray]')."""
    workers: int = 0
    """Processes that augment; 0: one a core where there is work enough. What is written does not depend on it."""
    data: DataConfig = field(default_factory=DataConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    label: LabelConfig = field(default_factory=LabelConfig)
    student: StudentConfig = field(default_factory=StudentConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(batch_size=256, learning_rate=1e-3, weight_decay=0.0, precision="fp32")
    )
    """How the student is trained."""
    loss: LossConfig = field(default_factory=LossConfig)
    proof: ProofConfig = field(default_factory=ProofConfig)


# Sections that may name a shelf file instead of being spelled out.
_ON_SHELF: dict[type, str] = {TeacherConfig: "teachers", StudentConfig: "students"}


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def load_recipe(name: str) -> Recipe:
    """Load a recipe from the shelf or a path.

    Raises:
        InputError: No such recipe, or a key or value in it is wrong; the message says file and line.
    """
    return load_config("recipes", name, Recipe())


def load_config(shelf_name: str, name: str, default: T) -> T:
    """Load a shelf YAML over `default`.

    Args:
        shelf_name: One of `shelf.SHELVES`.
        name: Shelf name or path.
        default: A frozen dataclass instance that fills what the YAML leaves out.

    Raises:
        InputError: No such file, not YAML, an unknown key, a value of the wrong type or out of range.
    """
    return _Loader(shelf.find(shelf_name, name)).load(default)


def dump(config: object) -> str:
    """Return a configuration as YAML that `load_config` reads back to an equal object."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value


class _Loader:
    """Fills dataclasses from the nodes of one YAML file, so that a mistake can be said with its line."""

    def __init__(self, path: Path, above: tuple[Path, ...] = ()) -> None:
        self.path = path
        self.above = above  # the files that named this one

    def load(self, default: T) -> T:
        try:
            node = yaml.compose(self.path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: not YAML: {' '.join(str(error).split())}") from None
        return default if node is None else self._section(node, default, "")

    def _fail(self, node: yaml.Node, message: str) -> InputError:
        return InputError(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def _section(self, node: yaml.Node, default: T, prefix: str) -> T:
        if isinstance(node, yaml.ScalarNode) and type(default) in _ON_SHELF:
            return self._from_shelf(node, default)
        if not isinstance(node, yaml.MappingNode):
            raise self._fail(node, f"{prefix.rstrip('.') or 'a recipe'} must be a mapping of keys to values")
        hints = typing.get_type_hints(type(default))
        nodes = self._nodes(node, [*hints, "use"] if type(default) in _ON_SHELF else list(hints), prefix)
        if "use" in nodes:
            default = self._from_shelf(nodes.pop("use"), default)
        values: dict[str, Any] = {}
        for key, value in nodes.items():
            old = getattr(default, key)
            if dataclasses.is_dataclass(old):
                values[key] = self._section(value, old, f"{prefix}{key}.")
            else:
                values[key] = self._value(value, hints[key], prefix + key)
        try:
            return dataclasses.replace(default, **values)  # type: ignore[type-var]
        except InputError as error:
            # The dataclass knows its own section's name, not what that is nested in, nor the line.
            said = str(error).replace(prefix.split(".")[-2] + "." if prefix else "", prefix, 1)
            raise self._fail(next((n for key, n in nodes.items() if f".{key} " in said), node), said) from None

    def _nodes(self, node: yaml.MappingNode, known: list[str], prefix: str) -> dict[str, yaml.Node]:
        nodes: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key not in known:
                close = get_close_matches(key, known, 1)
                mend = f"did you mean '{prefix}{close[0]}'?" if close else f"known here: {', '.join(known)}"
                raise self._fail(key_node, f"unknown key '{prefix}{key}'; {mend}")
            if key in nodes:
                raise self._fail(key_node, f"'{prefix}{key}' is given twice")
            nodes[key] = value_node
        return nodes

    def _from_shelf(self, node: yaml.Node, default: T) -> T:
        try:
            path = shelf.find(_ON_SHELF[type(default)], str(node.value))
            if path in (self.path, *self.above):
                raise InputError(f"{path} uses itself")
            return _Loader(path, (self.path, *self.above)).load(default)
        except InputError as error:
            raise self._fail(node, str(error)) from None

    def _value(self, node: yaml.Node, hint: Any, key: str) -> Any:
        try:
            value = yaml.SafeLoader("").construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise self._fail(node, f"{key} cannot be read: {' '.join(str(error).split())}") from None
        if typing.get_origin(hint) is Literal:
            if value not in typing.get_args(hint):
                raise self._fail(node, f"{key} is {value!r}: expected one of {', '.join(typing.get_args(hint))}")
            return value
        if typing.get_origin(hint) is tuple:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise self._fail(node, f"{key} is {value!r}: expected a list of texts")
            return tuple(value)
        if hint is float and type(value) is int:
            return float(value)
        if type(value) is not hint:
            as_text = hint is float and isinstance(value, str)
            mend = ": YAML reads it as text, write it with a point, as in 1.0e-3" if as_text else ""
            raise self._fail(node, f"{key} is {value!r}: expected {hint.__name__}{mend}")
        return value
