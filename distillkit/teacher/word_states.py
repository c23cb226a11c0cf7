"""What an encoder makes of words, each read alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from distillkit.data.batches import budget_batches, encode
from distillkit.processes import progress_bar
from distillkit.training.precision import pick_device

_BATCH_TOKENS = 4096  # padding included


def word_states(model: Any, tokenizer: Any, words: Sequence[str], *, progress: str = "") -> Tensor:
    """Ask an encoder for the states of words, in float32.

    Args:
        model: An encoder, or a classifier with one.
        tokenizer: Its tokenizer.
        words: V words.
        progress: Name of the progress bar; empty: none.

    Returns:
        What its embeddings, its middle layer and its last one leave of each word: means over the
        word's own subwords, special tokens left out, (V, 3, H) float32 on the CPU.
    """
    rows = encode(tokenizer, words, None, 32)
    special = torch.tensor(sorted(tokenizer.all_special_ids))
    found = torch.empty(len(words), 3, model.base_model.config.hidden_size)
    with (
        _placed(model.base_model) as (encoder, device),
        progress_bar(total=len(words), desc=progress, unit="word") as bar,
    ):
        for batch in budget_batches(rows.lengths, _BATCH_TOKENS):
            inputs = rows.batch(batch)
            asked = {name: value.to(device) for name, value in inputs.items()}
            answer = encoder(**asked, output_hidden_states=True)
            layers = answer.hidden_states
            # Some models normalise their last layer's states once more.
            three = (layers[0], layers[len(layers) // 2], answer.last_hidden_state)
            states = torch.stack(three, 1).float().cpu()  # (B, 3, T, H)
            own = inputs["attention_mask"].bool() & ~torch.isin(inputs["input_ids"], special)
            weights = own.float()[:, None, :, None]  # (B, 1, T, 1)
            found[batch] = (states * weights).sum(2) / weights.sum(2).clamp(min=1)
            bar.update(len(batch))
    return found


@contextmanager
def _placed(encoder: Any) -> Iterator[tuple[Any, torch.device]]:
    """Lend an encoder to the accelerator, where it must not stay: the student trains there."""
    home, device = next(encoder.parameters()).device, pick_device()
    try:
        with torch.no_grad():
            yield encoder.to(device).eval(), device
    finally:
        encoder.to(home)
