"""What all students share: words in, an encoder of one text, a head for texts or pairs."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from distillkit.student.config import WordConfig
from distillkit.student.words import Dropout, HashedEmbedding, WordEmbedding


class ReLUHead(nn.Module):
    """Dropout, a ReLU layer, logits."""

    def __init__(self, width: int, config: WordConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.dense = nn.Linear(width, config.head_size)
        self.out = nn.Linear(config.head_size, config.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (B, width) to logits (B, C)."""
        return self.out(torch.relu(self.dense(self.dropout(x))))


class TextEncoder(nn.Module):
    """What makes one vector a text, and what compression and export can do with it.

    A subclass sets `width`, the vector's numbers, and overrides what is otherwise for its network.
    One with units to prune also has `pooling`, a `Pooling` or None.
    """

    width: int

    def first_layer(self) -> list[tuple[nn.Module, str]]:
        """List the weights that word vectors are multiplied with, as (module, parameter name).

        Empty: word vectors cannot be made narrower.
        """
        return []

    def prune(self, share: float, into_head: Tensor) -> tuple[list[int], int] | None:
        """Remove the units of least saliency, in place.

        Args:
            share: Of the units, 0 to 1.
            into_head: Saliency of what reads each of the vector's numbers, (width,).

        Returns:
            The numbers of the text's vector that stay, and the new `hidden_size`; None if the
            encoder has no units.
        """
        return None

    def for_onnx(self) -> nn.Module:
        """Return a module of the same answers that torch's ONNX exporter can read."""
        return self


class Encoder(TextEncoder):
    """One text's vector from its words: `embedding`, and whatever makes `width` numbers of a text.

    A subclass sets `width` and makes of word vectors (T, B, W) and words a text (B,) one vector a
    text, (B, width), in `encode`.
    """

    def __init__(self, config: WordConfig) -> None:
        super().__init__()
        self.embedding = HashedEmbedding(config) if config.hashed else WordEmbedding(config)

    def encode(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Make one vector a text of its word vectors."""
        raise NotImplementedError

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode texts.

        Args:
            input_ids: (B, T) int64, each row's own tokens first.
            lengths: Tokens a row, (B,) int64; what follows them has no influence.

        Returns:
            (B, width); for a text without tokens what `encode` makes of none.
        """
        return self.encode(*self.embedding(input_ids, lengths))


def pull_left(input_ids: Tensor, chosen: Tensor, *, cut: bool = True) -> tuple[Tensor, Tensor]:
    """Bring the chosen tokens of each row to its front, in their order.

    Args:
        input_ids: (B, T) int64.
        chosen: (B, T) bool.
        cut: Cut columns off that no row reaches. A GPU is waited for to learn how many these are.

    Returns:
        Token ids (B, T') with T' the longest row (1 at least), or T where nothing is cut; and
        lengths (B,). What follows a row's length is arbitrary.
    """
    if not input_ids.shape[1]:  # a batch of empty texts: one column of padding
        input_ids, chosen = pad(input_ids, (0, 1)), pad(chosen, (0, 1))
    lengths = chosen.sum(1)
    order = (~chosen).long().argsort(dim=1, stable=True)
    if cut:
        order = order[:, : max(int(lengths.max()), 1)]
    return input_ids.gather(1, order), lengths


class StudentModel(PreTrainedModel):
    """What students for single texts and for pairs share: initial weights and output."""

    config_class: Any = WordConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    encoder_class: Any  # a TextEncoder
    sides = 1
    _tied_weights_keys: dict[str, str] = {}  # noqa: RUF012 - transformers reads it from the class

    def __init__(self, config: WordConfig) -> None:
        super().__init__(config)
        self.encoder = self.encoder_class(config)
        self.head = ReLUHead(self.encoder.width * self.sides, config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            # Kim 2014 (arXiv 1408.5882), for words without a vector
            nn.init.uniform_(module.weight, -0.25, 0.25)
            if module.padding_idx is not None:
                with torch.no_grad():
                    module.weight[module.padding_idx].zero_()
        elif isinstance(module, nn.RNNBase | nn.Linear | nn.Conv1d):
            module.reset_parameters()

    def answer(self, logits: Tensor, labels: Tensor | None) -> SequenceClassifierOutput:
        """Return logits (B, C), and if there are labels the loss of the `problem_type`."""
        loss = (
            None
            if labels is None
            else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        )
        return SequenceClassifierOutput(loss=loss, logits=logits)


class _OneText:
    """What students whose encoder reads each text by itself have: a vector a text."""

    encoder: Any

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the vector of one text a row: what a search index of texts would keep.

        Args:
            input_ids: (B, T) int64.
            attention_mask: (B, T), 0 at padding, on either side; None: no padding.
            token_type_ids: Ignored.

        Returns:
            (B, D).
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        # One of the rows usually fills the batch: not worth waiting for a GPU.
        return self.encoder(*pull_left(input_ids, mask.bool(), cut=input_ids.device.type == "cpu"))


class SingleStudent(_OneText, StudentModel):
    """A student for single texts."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Classify texts.

        Args:
            input_ids: (B, T) int64.
            attention_mask: (B, T), 0 at padding, on either side; None: no padding.
            token_type_ids: Ignored.
            labels: As transformers takes them for the `problem_type`, (B,) int64 for classes; gives
                its `loss`.

        Returns:
            `logits`, (B, C), which depend on no other row and on no padding.
        """
        return self.answer(self.head(self.encode(input_ids, attention_mask)), labels)


class PairStudent(StudentModel):
    """A student for pairs: an encoder of both texts, and a head that compares their vectors.

    The encoder gets both texts of B pairs in one pass, (2B, T): the first texts, then the second
    ones. The head is a ReLU layer over f = [h1, h2, h1 * h2, |h1 - h2|].
    """

    sides = 4

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Classify pairs.

        Args:
            input_ids: (B, T) int64, both texts of a pair in one row, as `tokenizer(a, b)` makes
                them.
            attention_mask: (B, T), 0 at padding, on either side; None: no padding.
            token_type_ids: (B, T), 0 for the first text's tokens, 1 for the second's; None: there
                is no second text.
            labels: As transformers takes them for the `problem_type`, (B,) int64 for classes; gives
                its `loss`.

        Returns:
            `logits`, (B, C), which depend on no other row and on no padding.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        side = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        # (2B, T): both sides in one pass
        chosen = torch.cat([mask.bool() & (side == 0), mask.bool() & (side == 1)])
        h1, h2 = self.encoder(*pull_left(torch.cat([input_ids, input_ids]), chosen)).chunk(2)
        return self.answer(self.compare(h1, h2), labels)

    def compare(self, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (B, C) of the two texts' vectors, (B, D) each, as `encode` gives them."""
        # of (B, 4D)
        return self.head(torch.cat([first, second, first * second, (first - second).abs()], dim=1))


class SiameseStudent(_OneText, PairStudent):
    """A student for pairs whose encoder reads each text by itself, so that vectors can be kept.

    Source: Tang et al. 2019 (arXiv 1903.12136), section 3.
    """
