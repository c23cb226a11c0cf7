"""Weights of few values: near what they were, the same when stored again, trained as stored."""

import numpy as np
import pytest
import torch
from torch import nn

from distillkit.compress.quantise import (
    Stored,
    clipped,
    codebook_of,
    coded,
    keep_quantised,
    quantise_in_training,
    round_weights,
    stored_weights,
)
from distillkit.compress.storage import packed_codes
from distillkit.recipe import CompressConfig

STORED = ["int8", "int4", "kmeans"]


def rows(seed=0, shape=(40, 32)):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("storage", STORED)
def test_what_is_stored_once_is_stored_again_without_a_change(storage):
    once = coded(clipped(rows(), storage), storage, 16).values()
    again = coded(once, storage, 16)
    torch.testing.assert_close(again.values(), once, atol=1e-6, rtol=0)


def test_a_rounded_number_is_at_most_half_a_step_away():
    for storage, steps in (("int8", 127), ("int4", 7)):
        found = coded(rows(), storage)
        step = rows().abs().amax(1, keepdim=True) / steps
        assert ((found.values() - rows()).abs() <= found.scale / 2 + 1e-6).all()
        # Each row's largest weight has the outermost step: no range is wasted.
        assert (found.codes.int() - steps).abs().amax(1).tolist() == [steps] * 40
        torch.testing.assert_close(found.scale, step.half().float())
        assert packed_codes(found)[1] == {127: 8, 7: 4}[steps]


def test_int4_cut_off_is_nearer_than_with_all_of_the_range():
    weight = rows(shape=(40, 512))  # of which few are far from 0
    cut = (coded(clipped(weight, "int4"), "int4").values() - weight).square().sum(1)
    whole = (coded(weight, "int4").values() - weight).square().sum(1)
    assert (cut <= whole).all()
    assert cut.sum() < 0.9 * whole.sum()
    assert clipped(weight, "int8") is weight


def test_a_row_of_zeros_stays_zero():
    for storage in STORED:
        assert coded(torch.zeros(2, 3), storage).values().tolist() == [[0.0] * 3] * 2


def test_clusters_are_few_and_are_trained():
    assert len(coded(rows(), "kmeans", 8).codebook) == 8
    assert codebook_of(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 8).tolist() == [1.0, 2.0]
    part = Stored(rows(), "kmeans", 4)
    part(rows()).sum().backward()
    counts = coded(rows(), "kmeans", 4).codes.flatten().bincount(minlength=4)
    assert part.codebook.grad.tolist() == counts.tolist()


@pytest.mark.parametrize("size", [2, 3, 4, 5, 15, 16, 17, 256])
def test_packed_codes_are_found_again(size):
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, size, (7, 5)).astype(np.uint8))
    found = coded(rows(), "int8")._replace(codes=codes, codebook=torch.zeros(size))
    packed, bits = packed_codes(found)
    assert bits == next(bits for bits in (1, 2, 4, 8) if size <= 2**bits)
    assert len(packed) == -(-codes.numel() * bits // 8)
    shifts = np.arange(0, 8, bits)
    unpacked = ((packed[:, None] >> shifts) & (2**bits - 1)).ravel()[: codes.numel()]
    assert unpacked.tolist() == codes.flatten().tolist()


@pytest.mark.parametrize("storage", STORED)
def test_training_sees_the_stored_form_and_moves_what_is_behind_it(storage):
    weight = rows()
    part = Stored(weight, storage, 8)
    behind = weight.clone().requires_grad_()
    seen = part(behind)
    torch.testing.assert_close(seen, coded(weight, storage, 8).values(), atol=1e-6, rtol=0)
    (seen * rows(1)).sum().backward()
    torch.testing.assert_close(behind.grad, rows(1))  # as if it were not rounded


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.lstm, self.out = nn.Embedding(9, 6), nn.LSTM(6, 4), nn.Linear(4, 2)

    def forward(self, ids):
        return self.out(self.lstm(self.table(ids))[0][-1])


def test_a_trained_model_is_left_with_stored_weights_under_their_own_names():
    torch.manual_seed(0)
    model, compress = Words(), CompressConfig(embeddings="int4", weights="int8")
    names = list(model.state_dict())
    before = model.lstm.weight_hh_l0.detach().clone()
    ids = torch.arange(9)[None].repeat(3, 1)
    quantise_in_training(model, compress)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(ids).square().sum().backward()
        optimizer.step()
    seen = model(ids)
    keep_quantised(model)
    assert sorted(model.state_dict()) == sorted(names)
    torch.testing.assert_close(model(ids), seen)
    assert not torch.equal(model.lstm.weight_hh_l0, before)
    for module, name, storage in stored_weights(model, compress):
        weight = getattr(module, name).detach()
        torch.testing.assert_close(coded(weight, storage).values(), weight, atol=1e-6, rtol=0)


def test_biases_stay_as_they_are():
    torch.manual_seed(0)
    model = Words()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    round_weights(model, CompressConfig(embeddings="fp16", weights="int4"))
    changed = {
        name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])
    }
    assert changed == {"table.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "out.weight"}
    assert torch.equal(model.table.weight, before["table.weight"].half().float())
