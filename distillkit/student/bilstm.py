"""The BiLSTM of Tang et al. 2019: last states of both directions, a ReLU layer, logits."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding  # gathers rows, and its backward pass is the fastest of those that do
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class BiLSTMConfig(PretrainedConfig):
    """Shape of a BiLSTM student.

    Args:
        vocab_size: V, special tokens included.
        embedding_size: Numbers a word and channel.
        channels: "single": one trainable table; "multi": a frozen and a trainable one side by side.
        hidden_size: H, LSTM units a direction.
        head_size: Units of the ReLU layer.
        dropout: On embeddings and on the ReLU layer's input, 0 to 1.
    """

    model_type = "distillkit-bilstm"

    def __init__(
        self,
        vocab_size: int = 2,
        embedding_size: int = 300,
        channels: str = "single",
        hidden_size: int = 150,
        head_size: int = 200,
        dropout: float = 0.1,
        pad_token_id: int = 0,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.embedding_size = embedding_size
        self.channels = channels
        self.hidden_size = hidden_size
        self.head_size = head_size
        self.dropout = dropout
        super().__init__(pad_token_id=pad_token_id, **kwargs)


class Dropout(nn.Dropout):
    """Dropout whose noise costs a CPU a fifth: each 64-bit draw decides on four numbers.

    There the rate is rounded to the nearest 1/65536, and what is kept is scaled by that rate.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop numbers of a tensor of any shape while training, scale the others up."""
        dropped = round(self.p * 2**16)  # of 2 ** 16 equally likely draws
        if not self.training or x.device.type != "cpu" or not 0 < dropped < 2**16:
            return super().forward(x)
        noise = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = noise.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))


class BiLSTMEncoder(nn.Module):
    """Embeddings and one BiLSTM layer: token ids to one vector a text."""

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.frozen_embedding = None
        if config.channels == "multi":
            self.frozen_embedding = nn.Embedding(
                config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id
            )
            self.frozen_embedding.weight.requires_grad_(False)
        width = config.embedding_size * (1 if self.frozen_embedding is None else 2)
        # Two one-way LSTMs over padded rows are twice as fast here as one packed two-way LSTM: oneDNN takes no packed rows.
        self.forward_lstm = nn.LSTM(width, config.hidden_size)
        self.backward_lstm = nn.LSTM(width, config.hidden_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode texts.

        Args:
            input_ids: (B, T) int64, each row's own tokens first.
            lengths: Tokens a row, (B,) int64; what follows them has no influence.

        Returns:
            Last state of the forward direction and of the backward direction, (B, 2H); zeros for a text without tokens.
        """
        ids = input_ids.t()  # time first, as the LSTM's kernels work: else they copy
        (steps, size), device = ids.shape, ids.device
        x = self.embedding(ids)  # (T, B, E)
        if self.frozen_embedding is not None:
            # Detached as well: from_pretrained gives every parameter its gradient back.
            x = torch.cat([self.frozen_embedding(ids).detach(), x], dim=2)  # (T, B, 2E)
        x = self.dropout(x)
        row, step = torch.arange(size, device=device), torch.arange(steps, device=device)[:, None]
        # Each row reversed within its own length, so that padding still comes last.
        back = torch.where(step < lengths, lengths - 1 - step, step) * size + row  # (T, B)
        reversed_x = embedding(back, x.flatten(0, 1))
        last = (lengths - 1).clamp(min=0) * size + row  # (B,)
        states = [
            embedding(last, lstm(sequence)[0].flatten(0, 1))
            for lstm, sequence in ((self.forward_lstm, x), (self.backward_lstm, reversed_x))
        ]
        return torch.cat(states, dim=1) * (lengths > 0)[:, None]  # (B, 2H)


class ReLUHead(nn.Module):
    """Dropout, a ReLU layer, logits."""

    def __init__(self, width: int, config: BiLSTMConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.dense = nn.Linear(width, config.head_size)
        self.out = nn.Linear(config.head_size, config.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (B, width) to logits (B, C)."""
        return self.out(torch.relu(self.dense(self.dropout(x))))


def pull_left(input_ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Bring the chosen tokens of each row to its front, in their order.

    Args:
        input_ids: (B, T) int64.
        chosen: (B, T) bool.

    Returns:
        Token ids (B, T') with T' the longest row (1 at least), and lengths (B,). What follows a row's length is arbitrary.
    """
    lengths = chosen.sum(1)
    longest = max(int(lengths.max()), 1)
    order = (~chosen).long().argsort(dim=1, stable=True)[:, :longest]
    return input_ids.gather(1, order), lengths


class StudentModel(PreTrainedModel):
    """What both students share: starting weights, and the shape of an answer."""

    config_class = BiLSTMConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    _tied_weights_keys: dict[str, str] = {}  # noqa: RUF012 - transformers reads it from the class

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -0.25, 0.25)  # Kim 2014 (arXiv 1408.5882), for words without a vector
            if module.padding_idx is not None:
                with torch.no_grad():
                    module.weight[module.padding_idx].zero_()
        elif isinstance(module, nn.LSTM | nn.Linear):
            module.reset_parameters()

    def set_word_vectors(self, vectors: Tensor) -> None:
        """Start every channel from these vectors.

        Args:
            vectors: (V, embedding_size) float.
        """
        with torch.no_grad():
            for table in (self.encoder.embedding, self.encoder.frozen_embedding):
                if table is not None:
                    table.weight.copy_(vectors)
                    table.weight[self.config.pad_token_id].zero_()

    def encode(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return the vector of one text a row: what a search index of texts would keep.

        Args:
            input_ids: (B, T) int64.
            attention_mask: (B, T), 0 at padding, on either side; None: no padding.
            token_type_ids: Ignored.

        Returns:
            Last states of both directions, (B, 2H).
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.encoder(*pull_left(input_ids, mask.bool()))

    def _answer(self, logits: Tensor, labels: Tensor | None) -> SequenceClassifierOutput:
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class BiLSTMForSequenceClassification(StudentModel):
    """The paper's student for single texts."""

    config_class = BiLSTMConfig

    def __init__(self, config: BiLSTMConfig) -> None:
        super().__init__(config)
        self.encoder = BiLSTMEncoder(config)
        self.head = ReLUHead(2 * config.hidden_size, config)
        self.post_init()

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
            labels: (B,) int64; gives the cross-entropy as `loss`.

        Returns:
            `logits`, (B, C), which depend on no other row and on no padding.
        """
        return self._answer(self.head(self.encode(input_ids, attention_mask)), labels)
