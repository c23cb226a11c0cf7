"""How often a forward pass in training waits for a GPU: on the meta device, whose tensors have no values to wait for."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distillkit.data.batches import encode
from distillkit.loss import DistillationLoss
from tests.student.conftest import LABELS, PAIRS, TEXTS
from tests.student.test_contract import READS_PAIRS, STUDENTS


class Waits(TorchDispatchMode):
    """Answers whoever asks for a value with `value`, and counts; what else needs values fails."""

    def __init__(self, value):
        super().__init__()
        self.value, self.count = value, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            self.count += 1
            return self.value
        return function(*args, **(kwargs or {}))


def expected(name):
    """Return how often a student has to wait."""
    kind = name.partition(",")[0]
    waits = 0
    if kind in READS_PAIRS:
        waits += 1  # for the longer side of the pairs: all columns would be twice the work
    if "hashed" in name:
        waits += 1  # for the words a row: there are five times as many bytes
    if kind.endswith("transformer"):
        waits += 1  # transformers asks whether the attention mask is needed
    return waits


@pytest.mark.parametrize("name", STUDENTS)
def test_a_forward_pass_in_training_waits_for_a_gpu_as_seldom_as_it_can(student, name):
    model, tokenizer = student(**STUDENTS[name], dropout=0.1)
    pairs = PAIRS if STUDENTS[name]["kind"] in READS_PAIRS else None
    batch = encode(tokenizer, TEXTS, pairs, 20).batch(torch.arange(len(TEXTS)))
    inputs = {key: value.to("meta") for key, value in batch.items()}
    model = model.to("meta").train()
    teacher = torch.empty(len(TEXTS), len(LABELS), device="meta")
    with Waits(3) as waits:
        loss = DistillationLoss()(model(**inputs).logits, teacher)
        loss.backward()
    assert waits.count == expected(name)
    assert any(p.grad is not None for p in model.parameters())
