"""The siamese BiLSTM of Tang et al. 2019: one encoder for both texts of a pair."""

import torch
from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput

from distillkit.student.bilstm import BiLSTMConfig, BiLSTMEncoder, ReLUHead, StudentModel, pull_left


class SiameseBiLSTMConfig(BiLSTMConfig):
    """Shape of a siamese BiLSTM student; the arguments are those of `BiLSTMConfig`."""

    model_type = "distillkit-siamese-bilstm"
    # transformers makes a dataclass, with an __init__ of its own, of any configuration that does not bring one.
    __init__ = BiLSTMConfig.__init__


class SiameseBiLSTMForSequenceClassification(StudentModel):
    """The paper's student for pairs: f = [h1, h2, h1 * h2, |h1 - h2|], a ReLU layer, logits."""

    config_class = SiameseBiLSTMConfig

    def __init__(self, config: SiameseBiLSTMConfig) -> None:
        super().__init__(config)
        self.encoder = BiLSTMEncoder(config)
        self.head = ReLUHead(4 * 2 * config.hidden_size, config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Classify pairs.

        Args:
            input_ids: (B, T) int64, both texts of a pair in one row, as `tokenizer(a, b)` makes them.
            attention_mask: (B, T), 0 at padding, on either side; None: no padding.
            token_type_ids: (B, T), 0 for the first text's tokens, 1 for the second's; None: there is no second text.
            labels: (B,) int64; gives the cross-entropy as `loss`.

        Returns:
            `logits`, (B, C), which depend on no other row and on no padding.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        side = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        chosen = torch.cat([mask.bool() & (side == 0), mask.bool() & (side == 1)])  # (2B, T): both sides in one pass
        h1, h2 = self.encoder(*pull_left(torch.cat([input_ids, input_ids]), chosen)).chunk(2)
        features = torch.cat([h1, h2, h1 * h2, (h1 - h2).abs()], dim=1)  # (B, 8H)
        return self._answer(self.head(features), labels)
