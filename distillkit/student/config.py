"""What the configurations of all students of ours have in common."""

from typing import Any

from transformers import PretrainedConfig


class WordConfig(PretrainedConfig):
    """Shape of a student that reads words: its embedding, dropout and head.

    Args:
        vocab_size: V, special tokens included; with `hashed`, rows of the table.
        embedding_size: Embedding dimension of each channel.
        channels: "single": one trainable table; "frozen": one that is not trained; "multi": one of
            each side by side.
        hashed: Tokens are bytes, and words are made of their hashed n-grams.
        pooling: How a text's vector comes from its words': last, max, mean or attention.
        head_size: Units of the ReLU layer.
        dropout: On embeddings and on the ReLU layer's input, 0 to 1.
    """

    def __init__(
        self,
        vocab_size: int = 2,
        embedding_size: int = 300,
        channels: str = "single",
        hashed: bool = False,
        pooling: str = "last",
        head_size: int = 200,
        dropout: float = 0.1,
        pad_token_id: int = 0,
        unk_token_id: int = 1,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.channels = channels
        self.hashed = hashed
        self.pooling = pooling
        self.head_size = head_size
        self.dropout = dropout
        self.unk_token_id = unk_token_id
        super().__init__(pad_token_id=pad_token_id, **kwargs)
