"""What is the BiLSTM's alone; the contract of every student is in test_contract.py."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from distillkit.measure.cost import parameter_counts
from distillkit.student.bilstm import BiLSTMConfig, BiLSTMEncoder, BiLSTMForSequenceClassification
from tests.student.conftest import TEXTS

channels = pytest.mark.parametrize("channels", ["single", "multi"])


def test_the_papers_student_has_963002_parameters_without_its_tables():
    model = BiLSTMForSequenceClassification(BiLSTMConfig(vocab_size=11, channels="multi"))
    assert parameter_counts(model) == {
        "total": 963_002 + 2 * 11 * 300,
        "without_embeddings": 963_002,
    }


@channels
def test_vectors_and_gradients_are_those_of_torchs_own_packed_bidirectional_lstm(channels):
    torch.manual_seed(0)
    encoder = BiLSTMEncoder(
        BiLSTMConfig(6, vocab_size=13, embedding_size=5, channels=channels, dropout=0.0)
    ).train()
    both = torch.nn.LSTM(5 if channels == "single" else 10, 6, batch_first=True, bidirectional=True)
    ours = {}  # by the packed LSTM's names
    (layer,) = encoder.layers
    for lstm, suffix in ((layer.forward_lstm, ""), (layer.backward_lstm, "_reverse")):
        ours |= {name + suffix: parameter for name, parameter in lstm.named_parameters()}
    with torch.no_grad():
        for name, parameter in both.named_parameters():
            parameter.copy_(ours[name])
    lengths = torch.tensor([4, 7, 1, 0, 4, 6])
    ids = torch.randint(1, 13, (6, 7))  # what follows a row's length is any word
    wanted = torch.randn(6, 12)
    tables = [
        table
        for table in (encoder.embedding.frozen_table, encoder.embedding.table)
        if table is not None
    ]
    copies = [table.weight.detach().clone().requires_grad_() for table in tables]
    some = lengths > 0  # a packed row has one token at least
    x = torch.cat([copy[ids[some]] for copy in copies], dim=2)
    packed = pack_padded_sequence(x, lengths[some], batch_first=True, enforce_sorted=False)
    expected = torch.zeros(6, 12)
    expected[some] = both(packed)[1][0].transpose(0, 1).flatten(1)
    found = encoder(ids, lengths)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    ((found - wanted) ** 2).sum().backward()
    ((expected - wanted) ** 2).sum().backward()
    for name, parameter in both.named_parameters():
        torch.testing.assert_close(ours[name].grad, parameter.grad, atol=1e-5, rtol=1e-5, msg=name)
    torch.testing.assert_close(
        encoder.embedding.table.weight.grad, copies[-1].grad, atol=1e-5, rtol=1e-5
    )
    assert (
        encoder.embedding.frozen_table is None or encoder.embedding.frozen_table.weight.grad is None
    )


@pytest.mark.parametrize("avx512", [False, True])
def test_bf16_gives_nearly_the_same_vectors_and_gradients(student, avx512, monkeypatch):
    if avx512 and not torch.cpu._is_avx512_supported():
        pytest.skip("needs AVX-512")
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: avx512)
    model, tokenizer = student("bilstm", dropout=0.0)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    found = {}
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model.train()(**inputs).logits
        logits.float().square().sum().backward()
        found[enabled] = [logits.float(), *(parameter.grad for parameter in model.parameters())]
    for full, low in zip(found[False], found[True], strict=True):
        assert (full - low).norm() < 0.05 * full.norm()


def test_two_layers_are_those_of_torchs_own_packed_bidirectional_lstm():
    torch.manual_seed(0)
    encoder = BiLSTMEncoder(
        BiLSTMConfig(6, 2, vocab_size=13, embedding_size=5, pooling="max", dropout=0.0)
    ).eval()
    both = torch.nn.LSTM(5, 6, num_layers=2, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for number, layer in enumerate(encoder.layers):
            for lstm, suffix in ((layer.forward_lstm, ""), (layer.backward_lstm, "_reverse")):
                for name, parameter in lstm.named_parameters():
                    getattr(both, name.replace("l0", f"l{number}") + suffix).copy_(parameter)
    lengths = torch.tensor([4, 7, 1])
    ids = torch.randint(1, 13, (3, 7))
    packed = pack_padded_sequence(
        encoder.embedding.table(ids), lengths, batch_first=True, enforce_sorted=False
    )
    states = pad_packed_sequence(both(packed)[0], batch_first=True, padding_value=-9.0)[0]
    torch.testing.assert_close(encoder(ids, lengths), states.amax(1), atol=1e-6, rtol=0)
