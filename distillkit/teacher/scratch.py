"""An encoder without a checkpoint: subwords of the text, a BERT for them, their first vectors."""

from collections.abc import Iterable
from typing import Any

import torch

from distillkit.data.rows import TextRows
from distillkit.data.word_pieces import count_words, train_word_pieces
from distillkit.errors import InputError
from distillkit.recipe import ScratchConfig
from distillkit.teacher.cooccurrence import cooccurrence_vectors

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
# Standard deviation of the first vectors, about a trained BERT's. With the 0.02 of random ones the
# masked tokens' loss on a million Chinese characters was 0.25 nats higher after 1,000 steps; with
# 0.1 it was the same.
_SPREAD = 0.05
_LEAST = 100  # word pieces: a text that gives fewer is hardly any


def fresh_encoder(texts: Iterable[str], config: ScratchConfig) -> tuple[Any, Any]:
    """Train word pieces on text, and shape a BERT for them.

    Args:
        texts: Read once; memory holds their distinct words.
        config: How large.

    Returns:
        A transformers `BertConfig`, and a fast BERT tokenizer, its special tokens the ids 0 to 4.
        The same texts, in any order, give the same ids.

    Raises:
        InputError: The text is too little for a vocabulary.
    """
    from transformers import BertConfig, BertTokenizerFast

    # The tokenizer that the pieces are for says what a word is.
    backend = _tokenizer({}, config).backend_tokenizer
    words = count_words(texts, backend.normalizer, backend.pre_tokenizer)
    pieces = train_word_pieces(words, config.vocabulary_size - len(_SPECIAL))
    vocabulary = {piece: number for number, piece in enumerate([*_SPECIAL, *pieces])}
    if len(vocabulary) < _LEAST:
        raise InputError(
            f"adapt.scratch: the text gives {len(vocabulary)} word pieces, special tokens included, expected at least {_LEAST}: give more text"
        )
    tokenizer: BertTokenizerFast = _tokenizer(vocabulary, config)
    shape = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.hidden_size // 64,
        intermediate_size=4 * config.hidden_size,
        max_position_embeddings=config.max_positions,
        pad_token_id=0,
    )
    return shape, tokenizer


def start_embeddings(network: Any, rows: TextRows, seed: int) -> None:
    """Give a fresh encoder's subwords vectors of the text that it is about to read, in place.

    What the text lacks keeps its random vector.
    """
    weight = network.get_input_embeddings().weight
    vocabulary, width = weight.shape
    vectors = cooccurrence_vectors(rows, vocabulary, width, seed)
    known = vectors.any(1)
    with torch.no_grad():
        weight[known] = vectors[known] * (_SPREAD / vectors[known].std())


def _tokenizer(vocabulary: dict[str, int], config: ScratchConfig) -> Any:
    from transformers import BertTokenizerFast

    vocabulary = vocabulary or {token: number for number, token in enumerate(_SPECIAL)}
    # `vocab_file=` would yield a tokenizer that knows no word.
    tokenizer = BertTokenizerFast(
        vocab=vocabulary, do_lower_case=config.lower_case, model_max_length=config.max_positions
    )
    assert tokenizer.get_vocab() == vocabulary
    return tokenizer
