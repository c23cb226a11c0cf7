"""Product quantisation: few values a part, the same when stored again, trained and shipped as stored."""

import json

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from distillkit.cli import main
from distillkit.compress.product import product_coded
from distillkit.compress.quantise import Stored, round_weights, stored_numbers, table_storage
from distillkit.compress.storage import stored_graph
from distillkit.errors import InputError
from distillkit.pipeline.export import export_model
from distillkit.recipe import CompressConfig, EmbeddingConfig
from distillkit.runtime import Predictor
from tests.compress.test_compress_run import command, work
from tests.compress.test_compress_steps import logits_of
from tests.student import conftest as students

__all__ = ["command", "work"]
TEXTS, bert, student = students.TEXTS, students.bert, students.student


def rows(seed=0, shape=(320, 16)):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


@pytest.fixture
def small_tables(monkeypatch):
    """Let the tables of small test models be stored so."""
    monkeypatch.setattr("distillkit.compress.quantise.FEWEST_ROWS", 8)
    monkeypatch.setattr("distillkit.compress.product._ROWS_EACH", 2)


def test_each_part_of_a_row_is_its_nearest_centre():
    table = rows()
    found = product_coded(table)
    assert found.codes.shape == (320, 4)
    assert found.centres.shape == (4, 20, 4)  # 16 rows a centre
    assert torch.equal(found.centres.half().float(), found.centres)
    values = found.values()
    for part in range(4):
        own = table[:, part::4]  # numbers 0, 4, 8 and 12 for the first
        distances = torch.cdist(own, found.centres[part])
        chosen = distances.gather(1, found.codes[:, part, None].long())
        assert (chosen <= distances.amin(1, keepdim=True) + 1e-3).all()
        torch.testing.assert_close(
            values[:, part::4], found.centres[part][found.codes[:, part].long()]
        )
        peer = KMeans(20, n_init=1, random_state=0).fit(own.numpy())
        assert (own - values[:, part::4]).square().sum() < 1.1 * peer.inertia_


def test_what_is_stored_once_is_stored_again_without_a_change():
    once = product_coded(rows()).values()
    assert torch.equal(product_coded(once).values(), once)
    assert torch.equal(product_coded(once, np.arange(320)).values(), once)


def test_the_row_of_padding_stays_zero():
    table = rows()
    table[7] = 0
    for given in (table, product_coded(table).values()):
        found = product_coded(given, np.arange(320)).values()
        assert not found[7].any()
        assert found.any(1).sum() == 319


def test_rows_in_use_are_nearer():
    table, counts = rows(shape=(640, 16)), np.zeros(640, int)
    counts[:40] = 1000
    used, alike = (product_coded(table, given).values() - table for given in (counts, None))
    assert used[:40].square().sum() < 0.3 * alike[:40].square().sum()
    assert used[40:].square().sum() > alike[40:].square().sum()
    positions = product_coded(table, counts[:100]).values()  # not the tokens' table
    assert torch.equal(positions, product_coded(table).values())


def test_training_sees_the_stored_form_and_moves_the_centres():
    table = rows()
    part = Stored(table, "pq")
    behind = table.clone().requires_grad_()
    seen = part(behind)
    torch.testing.assert_close(seen, product_coded(table).values())
    seen.sum().backward()
    counts = torch.stack([column.bincount(minlength=20) for column in part.codes.long().T])
    torch.testing.assert_close(part.codebook.grad, counts[..., None].expand(4, 20, 4).float())


def test_pq_is_for_tables_alone():
    with pytest.raises(InputError, match="weights is 'pq': expected one of fp32"):
        CompressConfig(weights="pq")


def test_a_dimension_that_no_parts_fill_is_refused():
    with pytest.raises(InputError, match="the embedding dimension is 6: expected a multiple of 4"):
        product_coded(rows(shape=(320, 6)))


def test_a_small_table_is_stored_in_int8():
    compress = CompressConfig(embeddings="pq")
    assert [table_storage(count, compress) for count in (1023, 1024)] == ["int8", "pq"]


def test_a_graph_of_product_codes_answers_as_torch_does(student, tmp_path, small_tables):
    eight = EmbeddingConfig(source="random", dimension=8)
    model, tokenizer = student("bilstm", embeddings=eight)
    before, table = logits_of(model, tokenizer), model.encoder.embedding.table.weight
    compress = CompressConfig(embeddings="pq", weights="int8")
    numbers = sum(weight.numel() for weight in model.parameters())
    round_weights(model, compress)
    after = logits_of(model, tokenizer)
    assert not torch.equal(before, after)
    place = tmp_path / "bundle.zip"
    export_model(
        model,
        tokenizer,
        place,
        [],
        one_file=True,
        rewrite=lambda graph: stored_graph(graph, compress),
    )
    assert np.abs(Predictor(place).logits(TEXTS) - after.numpy()).max() < 1e-4
    found = product_coded(table.detach())
    kept = found.codes.numel() + found.centres.numel()
    assert stored_numbers(model, compress) == numbers - table.numel() + kept


@pytest.mark.slow
def test_a_student_is_compressed_so(work, tmp_path, capsys, small_tables):
    output = tmp_path / "small"
    asked = "--compress.embedding-size 16 --compress.embeddings pq --compress.weights int8"
    assert main(command(work, output, asked)) == 0
    steps = json.loads(capsys.readouterr().out.splitlines()[-1])["steps"]
    _, narrow, stored, trained, *_ = steps
    assert stored["step"] == "embeddings pq, weights int8"
    assert trained["step"] == "trained again"
    assert stored["parameters"] < narrow["parameters"]
    assert stored["megabytes"] < narrow["megabytes"]
    assert all(step["parity"] < 1e-4 for step in steps)
    assert steps[-1]["accuracy"] >= 0.9
