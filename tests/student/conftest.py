"""Tiny students of every kind, for the contract that all of them keep."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from distillkit.recipe import EmbeddingConfig, VocabularyConfig
from distillkit.student.build import build_student
from tests.student.tiny import tiny

LABELS = ["bad", "so-so", "good"]
TEXTS = ["a b c d e f g h", "a", "", "c b a", "h g f e d c b a a a a"]
PAIRS = ["b", "", "c d e f", "a b c", ""]


@pytest.fixture(scope="session")
def bert():
    """A teacher of four layers, 8 wide, that knows these words."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghx"]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        id2label=dict(enumerate(LABELS)),
        label2id={name: i for i, name in enumerate(LABELS)},
        initializer_range=0.5,
    )
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(words)})
    assert tokenizer("a x")["input_ids"] == [2, 5, 13, 3]
    return BertForSequenceClassification(config).eval(), tokenizer


@pytest.fixture(scope="session")
def student(bert):
    """Return a function that builds a tiny student."""

    def build(kind, channels="single", seed=3, unit="word", texts=(*TEXTS, *PAIRS), **options):
        random = EmbeddingConfig(source="random", dimension=5, channels=channels)
        embeddings = options.pop("embeddings", random)
        vocabulary = options.pop("vocabulary", None) or VocabularyConfig(unit=unit, size=500)
        config = tiny(kind, embeddings, vocabulary=vocabulary, **options)
        return build_student(list(texts), LABELS, config, seed, teacher=bert)

    return build
