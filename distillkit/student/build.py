"""Build an untrained student and its tokenizer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from distillkit.errors import InputError
from distillkit.recipe import StudentConfig
from distillkit.student.embeddings import VectorsOfWords, from_file, from_teacher
from distillkit.student.register import KINDS
from distillkit.student.vocabulary import build_tokenizer, words_of


def build_student(
    texts: Sequence[str],
    labels: Sequence[str],
    config: StudentConfig,
    seed: int,
    ask: VectorsOfWords | None = None,
    mask: str = "",
) -> tuple[Any, Any]:
    """Build an untrained student and its tokenizer.

    Args:
        texts: What its vocabulary is made of: training and transfer text only.
        labels: Class names in the order of the logits.
        config: Kind, sizes, vocabulary, embeddings.
        seed: Draws the weights.
        ask: The teacher's vectors of words, for `embeddings.source: teacher`.
        mask: The transfer set's mask word.

    Raises:
        InputError: The embeddings' source is not to be had.
    """
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(texts, config.vocabulary, config.max_tokens, mask)
    words, source, width = words_of(tokenizer), config.embeddings.source, config.embeddings.width
    vectors = None
    if source == "teacher":
        if ask is None:
            raise InputError(
                "student.embeddings.source is teacher, but no teacher was given: give --teacher, or choose random or a word-vector file"
            )
        vectors = from_teacher(words, width, ask)
    elif source != "random":
        vectors, _ = from_file(words, width, Path(source))
    config_class, model_class = KINDS[config.kind]
    model = model_class(
        config_class(
            vocab_size=len(words),
            embedding_size=width,
            channels=config.embeddings.channels,
            hidden_size=config.hidden_size,
            head_size=config.head_size,
            dropout=config.dropout,
            id2label=dict(enumerate(labels)),
            label2id={name: i for i, name in enumerate(labels)},
        )
    )
    if vectors is not None:
        model.set_word_vectors(vectors)
    return model.eval(), tokenizer
