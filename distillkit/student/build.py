"""Build an untrained student and its tokenizer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distillkit.data.labels import named
from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import EmbeddingConfig, StudentConfig
from distillkit.recipe.kinds import Reference, resolve
from distillkit.student.embeddings import StatesOfWords, from_encoder, from_file
from distillkit.student.register import network_of, register
from distillkit.student.vocabulary import build_tokenizer, words_of


def build_student(
    texts: Sequence[str],
    labels: Sequence[str],
    config: StudentConfig,
    seed: int,
    ask: StatesOfWords | None = None,
    mask: str = "",
    teacher: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """Build an untrained student and its tokenizer.

    Args:
        texts: What its vocabulary is made of: training and transfer text only.
        labels: Class names in the order of the logits.
        config: Kind, sizes, vocabulary, embeddings.
        seed: Draws the weights.
        ask: An encoder's states for words, where `embeddings.source` asks for them.
        mask: The transfer set's mask word.
        teacher: The teacher's model and tokenizer, for kinds and vocabularies that are made of
            them.

    Raises:
        InputError: The embeddings' source, or the teacher, is not to be had, or not fit for this
            student.
    """
    register()  # a kind that was added since the Auto classes were loaded
    torch.manual_seed(seed)
    if (build := config.of_kind.from_teacher) is not None:
        return _from_teacher(build, labels, config, teacher)
    tokenizer = build_tokenizer(
        texts, config.vocabulary, config.max_tokens, mask, teacher[1] if teacher else None
    )
    model = _word_student(tokenizer, labels, config)
    vectors = _vectors(tokenizer, config.embeddings, ask)
    if vectors is not None:
        model.encoder.embedding.set_vectors(vectors)
    return model.eval(), tokenizer


def _word_student(tokenizer: Any, labels: Sequence[str], config: StudentConfig) -> Any:
    kind = config.of_kind
    network = network_of(kind)
    hashed = config.vocabulary.unit == "hashed"
    shape: dict[str, Any] = {
        "vocab_size": config.vocabulary.size if hashed else len(tokenizer),
        "embedding_size": config.embeddings.dimension,
        "channels": config.embeddings.channels,
        "hashed": hashed,
        "head_size": config.head_size,
        "dropout": config.dropout,
        "pad_token_id": tokenizer.pad_token_id,
        "unk_token_id": tokenizer.unk_token_id,
    }
    if config.pooling != "auto":
        shape["pooling"] = config.pooling
    shape |= {name: getattr(config, name) for name in kind.settings}
    return network(network.config_class(**shape, **named(labels)))


def _from_teacher(
    build: Reference,
    labels: Sequence[str],
    config: StudentConfig,
    teacher: tuple[Any, Any] | None,
) -> tuple[Any, Any]:
    if teacher is None:
        raise InputError(
            f"student.kind is {config.kind}, which is made of a teacher's layers or tokenizer, but no teacher was given: give --teacher"
        )
    model, tokenizer = resolve(build)(labels, config, *teacher)
    return model.eval(), tokenizer


def _vectors(tokenizer: Any, config: EmbeddingConfig, ask: StatesOfWords | None) -> Tensor | None:
    if config.source == "random":
        return None
    if config.file:
        table, found = from_file(words_of(tokenizer), config.dimension, config.file)
        if not found:
            raise InputError(
                f"student.embeddings.source {config.source}: has none of the student's words; expected vectors of the text's language"
            )
        log(f"student: {100 * found:.0f} % of the words have a vector in {config.source}")
        return table
    if ask is None:
        raise InputError(
            f"student.embeddings.source is {config.source}, but no teacher was given: give --teacher, or choose an encoder, random or a word-vector file"
        )
    return from_encoder(tokenizer, config.dimension, ask)
