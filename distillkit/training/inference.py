"""Logits of rows, in eval mode, in batches of like length, back in the rows' own order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from distillkit.data.batches import Encoded, budget_batches
from distillkit.recipe import Precision
from distillkit.training.precision import autocast, pick_device, resolve


def predict_logits(
    model: nn.Module,
    rows: Encoded,
    *,
    max_batch_tokens: int = 4096,
    precision: Precision = "fp32",
    even: bool = False,
    shard: tuple[int, int] = (0, 1),
    on_rows: Callable[[int], object] | None = None,
) -> Tensor:
    """Run a classifier over tokenised rows.

    Args:
        model: Takes `rows.batch(...)` and answers with `.logits`. Left in the mode (train or eval)
            it came in.
        rows: N rows.
        max_batch_tokens: Tokens a forward pass, padding included.
        precision: Autocast of the forward pass.
        even: Batch rows of equal length where there are enough of them: transformers needs no
            attention mask for such a batch.
        shard: (i, n): run every nth batch, from the ith; the other rows' logits are 0.
        on_rows: Called with the number of rows after each forward pass.

    Returns:
        Logits, (N, C) float32 on the CPU, row by row in the order of `rows`.
    """
    device = pick_device()
    precision = resolve(precision, device)
    was_training = model.training
    model = model.to(device).eval()
    out: Tensor | None = None
    lengths = rows.lengths
    rows = rows.to(device)
    with torch.inference_mode(), autocast(precision, device):
        batches = list(budget_batches(lengths, max_batch_tokens, even=even))
        own = batches[shard[0] :: shard[1]]
        # With no batch of its own, a shard still has to know how many classes there are.
        for batch in own or batches[:1]:
            longest, here = int(lengths[batch].max()), batch.to(device, non_blocking=True)
            logits = model(**rows.batch(here, longest)).logits.float()
            if out is None:
                out = logits.new_zeros(len(rows), logits.shape[1])
            out[here] = logits
            if on_rows is not None:
                on_rows(len(batch))
    model.train(was_training)
    if out is None:
        return torch.empty(0, 0)
    # One copy to the CPU, and out of inference mode, so that it may be used in training.
    return out.to("cpu", copy=True) if own else torch.zeros_like(out, device="cpu")


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Compute on so many threads, then restore: their number changes the last digits of sums."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
