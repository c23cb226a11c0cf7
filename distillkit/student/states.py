"""Match a teacher's hidden states and attention, layer by layer, besides its logits."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from distillkit.errors import InputError
from distillkit.recipe import LossConfig
from distillkit.student.transformer import layer_map
from distillkit.training.layers import encoder_layers, encoder_parts


class StatesLoss(nn.Module):
    """Squared distance of hidden states and attention scores from a teacher's paired layers.

    Args:
        student: A transformer for sequence classification, with the teacher's tokenizer.
        teacher: A fine-tuned one of the same kind; receives no gradient, and is no part of this
            module's parameters.
        hidden: Weight of the hidden states: the embeddings' and each layer's, mean over tokens and
            units.
        attention: Weight of the attention scores before their softmax: each layer's, mean over
            heads and pairs of tokens.

    Raises:
        InputError: Attention is asked for and the two have another number of heads.

    Source: Jiao et al. 2020 (TinyBERT, arXiv 1909.10351), equations 7 to 9; layers are paired
    evenly, the last with the last.
    """

    def __init__(self, student: Any, teacher: Any, hidden: float, attention: float) -> None:
        super().__init__()
        self.weights = {"hidden": hidden, "attention": attention}
        self._networks = (student, teacher.eval())  # a tuple: no submodules of this one
        layers = [encoder_layers(network, "loss.hidden", "0") for network in self._networks]
        place = layer_map(len(layers[0]), len(layers[1]))
        self.pairs = [
            (0, 0),
            *((i + 1, j + 1) for i, j in enumerate(place)),
        ]  # of hidden states: the embeddings' come first
        self.heads = [network.config.num_attention_heads for network in self._networks]
        if attention and self.heads[0] != self.heads[1]:
            mine, theirs = self.heads
            raise InputError(
                f"loss.attention is {attention}, but the student has {mine} attention heads and the teacher {theirs}: expected as many, or 0"
            )
        widths = [network.config.hidden_size for network in self._networks]
        self.projection = (
            nn.Linear(widths[0], widths[1], bias=False) if widths[0] != widths[1] else nn.Identity()
        )
        parts = encoder_parts(teacher)
        names = (parts.query, parts.key) if attention else ()
        self._attends = tuple(
            [own[i].get_submodule(name) for i in chosen for name in names]
            for own, chosen in zip(layers, (range(len(place)), place), strict=True)
        )

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Run both networks.

        Args:
            inputs: Token ids and masks, (B, T), as both take them.

        Returns:
            The student's logits (B, C), and what it has yet to learn of its teacher's states,
            weighted, (B,).
        """
        student, teacher = self._networks
        teacher.to(inputs["input_ids"].device)
        own = inputs["attention_mask"].float()  # (B, T)
        seen: tuple[list[Tensor], list[Tensor]] = ([], [])
        with _outputs(zip(self._attends, seen, strict=True)):
            found = student(**inputs, output_hidden_states=True)
            with torch.no_grad():
                wanted = teacher(**inputs, output_hidden_states=True)
        loss = own.new_zeros(len(own))
        if self.weights["hidden"]:
            for i, j in self.pairs:
                distance = (
                    (
                        self.projection(found.hidden_states[i]).float()
                        - wanted.hidden_states[j].float()
                    )
                    .square()
                    .mean(2)
                )
                loss = loss + self.weights["hidden"] * (distance * own).sum(1) / own.sum(1)
        if self.weights["attention"]:
            both = own[:, :, None] * own[:, None, :]  # (B, T, T)
            for mine, theirs in zip(*map(self._scores, seen), strict=True):
                distance = (mine - theirs).square().mean(1)
                loss = loss + self.weights["attention"] * (distance * both).sum((1, 2)) / both.sum(
                    (1, 2)
                )
        return found.logits, loss

    def _scores(self, seen: list[Tensor]) -> Iterator[Tensor]:
        """Yield layers' attention scores, (B, heads, T, T), from queries and keys (B, T, H)."""
        for query, key in zip(seen[::2], seen[1::2], strict=True):
            q, k = (
                x.float().unflatten(2, (self.heads[0], -1)).transpose(1, 2) for x in (query, key)
            )
            yield q @ k.transpose(2, 3) / q.shape[-1] ** 0.5


@contextmanager
def _outputs(kept: Iterable[tuple[list[nn.Module], list[Tensor]]]) -> Iterator[None]:
    """Append what modules give to lists, until the end; a copy of the modules keeps nothing."""
    hooks = [
        module.register_forward_hook(lambda _, inputs, out, seen=seen: seen.append(out))
        for modules, seen in kept
        for module in modules
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class LearnsStates(nn.Module):
    """A student whose output in training has one more column: the loss of its states."""

    def __init__(self, student: Any, states: StatesLoss) -> None:
        super().__init__()
        self.student, self.states = student, states
        self.config = student.config

    def forward(self, **inputs: Tensor) -> SequenceClassifierOutput:
        """Return logits (B, C); while training (B, C + 1)."""
        if not self.training:
            return self.student(**inputs)
        logits, extra = self.states(inputs)
        return SequenceClassifierOutput(
            logits=torch.cat([logits, extra[:, None].to(logits.dtype)], dim=1)
        )


def with_states(student: Any, teacher: Any, loss: LossConfig) -> LearnsStates:
    """Have a student learn its teacher's states as well.

    Raises:
        InputError: It is no transformer with its teacher's tokenizer, or there is no teacher.
    """
    if teacher is None:
        raise InputError("loss.hidden and loss.attention need the teacher itself: give --teacher")
    if student.config.model_type != teacher.config.model_type:
        raise InputError(
            f"loss.hidden and loss.attention are for student.kind transformer, and this student is a {student.config.model_type}: set both to 0"
        )
    return LearnsStates(student, StatesLoss(student, teacher, loss.hidden, loss.attention))
