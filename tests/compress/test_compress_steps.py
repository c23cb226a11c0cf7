"""What each step takes away, and that what is left answers as it must."""

import copy
import re
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from distillkit.compress.low_rank import narrow_embedding
from distillkit.compress.pruned import attentions
from distillkit.compress.quantise import round_weights
from distillkit.compress.saliency import curvatures, saliencies, zero_weights
from distillkit.compress.steps import Model, Reading, make_zeros, shrink
from distillkit.compress.storage import stored_graph
from distillkit.compress.units import prune_feed_forward, prune_heads, prune_layers, prune_units
from distillkit.compress.vocabulary import prune_vocabulary
from distillkit.data.batches import encode
from distillkit.errors import InputError
from distillkit.pipeline.export import export_model
from distillkit.pipeline.graphs import onnx_graphs
from distillkit.recipe import CompressConfig, VocabularyConfig
from distillkit.runtime import Predictor
from distillkit.teacher.checkpoint import load_classifier
from distillkit.training.inference import predict_logits
from tests.student import conftest as students

PAIRS, TEXTS, bert, student = students.PAIRS, students.TEXTS, students.bert, students.student


def logits_of(model, tokenizer, texts=TEXTS, pairs=PAIRS):
    pairs = pairs if model.config.model_type.startswith("distillkit-siamese") else None
    return predict_logits(model, encode(tokenizer, texts, pairs, 64))


def stored_bundle(model, tokenizer, place, stored):
    rewrite = partial(stored_graph, compress=stored)
    return export_model(model, tokenizer, place, [], one_file=True, rewrite=rewrite)


def saved_and_loaded(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_classifier(str(folder))


# Each storage once, and int4 once for each operator that reads weights: LSTM, Conv, MatMul, and
# two graphs.
@pytest.mark.parametrize(
    ("kind", "storage"),
    [("bilstm", storage) for storage in ("fp16", "int8", "int4", "kmeans", "binary")]
    + [(kind, "int4") for kind in ("textcnn", "transformer", "siamese-bilstm")],
)
def test_stored_graphs_answer_as_torch_does(student, kind, storage, tmp_path):
    model, tokenizer = student(kind)
    before = logits_of(model, tokenizer)
    stored = CompressConfig(embeddings=storage, weights=storage, clusters=5)
    round_weights(model, stored)
    after = logits_of(model, tokenizer)
    assert not torch.equal(before, after)
    # Refuses another answer than torch's.
    summary = stored_bundle(model, tokenizer, tmp_path / "bundle.zip", stored)
    assert summary["parity"]["largest"] < 1e-4
    pairs = PAIRS if kind.startswith("siamese") else None
    found = Predictor(tmp_path / "bundle.zip").logits(TEXTS, pairs)
    assert np.abs(found - after.numpy()).max() < 1e-4


def test_storage_is_what_the_file_shrinks_by(student):
    graph = onnx_graphs(*student("bilstm", hidden_size=64))["model.onnx"]
    # Of fp32, with what is not weights.
    limits = {"fp16": 0.53, "int8": 0.35, "int4": 0.23, "binary": 0.14}
    for storage, limit in limits.items():
        stored = stored_graph(graph, CompressConfig(embeddings=storage, weights=storage))
        assert len(stored) < limit * len(graph), storage


def test_a_smaller_vocabulary_answers_as_before_where_its_words_are_known(student, tmp_path):
    model, tokenizer = student("bilstm", unit="word")
    wide = Model(model, tokenizer)
    counts = Reading(["a b c d a b c a"], None).counts(wide)
    texts = ["a b c d", "d c b a a", ""]
    before = logits_of(model, tokenizer, texts)
    smaller = prune_vocabulary(model, tokenizer, counts, len(tokenizer))  # single letters all stay
    assert torch.equal(logits_of(model, smaller, texts), before)
    longer, tokens = student(
        "siamese-bilstm", texts=["alpha beta gamma delta alpha beta gamma alpha beta a"]
    )
    counts = Reading(["alpha beta gamma delta alpha beta gamma alpha beta"], None).counts(
        Model(longer, tokens)
    )
    texts, pairs = ["alpha beta", "gamma a"], ["gamma gamma", "beta"]
    before = logits_of(longer, tokens, texts, pairs)
    unknown = logits_of(longer, tokens, ["zeta"], ["alpha"])
    fewer = prune_vocabulary(longer, tokens, counts, 6)
    assert sorted(fewer.get_vocab()) == ["[PAD]", "[UNK]", "a", "alpha", "beta", "gamma"]
    assert longer.config.vocab_size == len(longer.encoder.embedding.table.weight) == 6
    again, tokens = saved_and_loaded(longer, fewer, tmp_path)
    assert torch.equal(logits_of(again, tokens, texts, pairs), before)
    assert torch.equal(
        logits_of(again, tokens, ["delta"], ["alpha"]), unknown
    )  # as a word it never knew


def test_words_that_go_are_read_by_their_pieces(student):
    text = ["unhappy unlucky happy lucky happily luckily un happy"] * 3
    model, tokenizer = student(
        "bilstm", texts=text, vocabulary=VocabularyConfig(unit="word", size=60, subwords=30)
    )
    assert "unlucky" in tokenizer.get_vocab()
    counts = Reading(["happy happy"], None).counts(Model(model, tokenizer))
    fewer = prune_vocabulary(model, tokenizer, counts, 1)
    assert "unlucky" not in fewer.get_vocab()
    assert fewer.unk_token_id not in fewer("unlucky")["input_ids"]


def test_a_transformers_special_tokens_keep_their_meaning_under_new_numbers(bert, tmp_path):
    network, tokenizer = copy.deepcopy(bert[0]), bert[1]
    words = [f"word{i}" for i in range(4)]
    tokenizer = type(tokenizer)(
        vocab={
            token: i
            for i, token in enumerate(
                ["x", *words, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]
            )
        }
    )
    network.resize_token_embeddings(len(tokenizer))
    network.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.model_max_length = 64
    counts = Reading(["a b c x word1 word1"], None).counts(Model(network, tokenizer))
    before = logits_of(network, tokenizer, ["a word1 c", "b"])
    fewer = prune_vocabulary(network, tokenizer, counts, 10)
    assert len(fewer) == 10
    assert fewer("a word1").tokens() == ["[CLS]", "a", "word1", "[SEP]"]
    again, tokens = saved_and_loaded(network, fewer, tmp_path)
    assert torch.equal(logits_of(again, tokens, ["a word1 c", "b"]), before)


def test_a_vocabulary_of_bytes_is_refused(student):
    model, tokenizer = student("bilstm", unit="hashed")
    with pytest.raises(InputError, match="expected words or word pieces"):
        prune_vocabulary(model, tokenizer, np.ones(len(tokenizer)), 10)


@pytest.mark.parametrize("channels", ["single", "multi", "frozen"])
@pytest.mark.parametrize("kind", ["bilstm", "textcnn", "siamese-bilstm"])
def test_as_many_numbers_as_the_first_layer_can_tell_apart_lose_nothing(
    student, kind, channels, tmp_path
):
    model, tokenizer = student(kind, channels=channels, layers=2 if kind == "bilstm" else 1)
    words = model.encoder.embedding
    for table in (words.table, words.frozen_table):  # of rank 3, in 5 or 10 columns
        if table is not None:
            with torch.no_grad():
                table.weight[:, 2:] = table.weight[:, :2].sum(1, keepdim=True)
    before = logits_of(model, tokenizer)
    rank = 2 if channels != "multi" else 4
    narrow_embedding(model, np.ones(len(tokenizer)), rank)
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    assert again.encoder.embedding.table.weight.shape[1] == again.config.embedding_size == rank
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-5, rtol=0)


def test_frequent_words_keep_their_vectors_best(student):
    model, tokenizer = student("bilstm", hidden_size=16)
    often = np.ones(len(tokenizer))
    often[tokenizer.convert_tokens_to_ids("a")] = 1e6
    before, texts = model.encoder, ["a"]
    for counts in (often, np.ones(len(tokenizer))):
        small = copy.deepcopy(model)
        narrow_embedding(small, counts, 1)
        error = (
            (logits_of(small, tokenizer, texts) - logits_of(model, tokenizer, texts))
            .abs()
            .max()
            .item()
        )
        assert (error < 1e-5) == (counts is often)
    assert model.encoder is before


def test_narrower_vectors_are_refused_where_they_cannot_be(student):
    for kind in ("static", "transformer"):
        with pytest.raises(InputError, match="only students with a table of words"):
            narrow_embedding(student(kind)[0], np.ones(100), 2)
    with pytest.raises(InputError, match="expected less than the 5"):
        narrow_embedding(student("bilstm")[0], np.ones(100), 5)


def dead(model, name, units, axis):
    """Make units say nothing: what reads them is 0."""
    with torch.no_grad():
        model.get_parameter(name).index_fill_(axis, torch.tensor(units), 0)


@pytest.mark.parametrize("pooling", ["last", "max", "attention"])
@pytest.mark.parametrize("kind", ["bilstm", "siamese-bilstm"])
def test_lstm_units_that_nobody_reads_go_without_a_trace(student, kind, pooling, tmp_path):
    model, tokenizer = student(kind, pooling=pooling, layers=2, hidden_size=6)
    with torch.no_grad():
        for weight in model.parameters():  # so that texts differ by more than a hair
            weight.mul_(3)
    live = {name: torch.ones_like(weight) for name, weight in model.named_parameters()}
    # Of each layer and direction other two units, so that a mixed-up order shows.
    gone = {
        (0, "forward"): [0, 3],
        (0, "backward"): [1, 5],
        (1, "forward"): [2, 4],
        (1, "backward"): [0, 5],
    }
    for (number, way), units in gone.items():
        prefix = f"encoder.layers.{number}.{way}_lstm"
        dead(model, f"{prefix}.weight_hh_l0", units, 1)
        rows = torch.tensor([6 * gate + unit for gate in range(4) for unit in units])
        for name in ("weight_ih_l0", "weight_hh_l0"):
            live[f"{prefix}.{name}"].index_fill_(0, rows, 0)
        columns = [unit + 6 * (way == "backward") for unit in units]
        if number == 0:
            for above in ("forward", "backward"):
                dead(model, f"encoder.layers.1.{above}_lstm.weight_ih_l0", columns, 1)
        else:
            dead(
                model,
                "head.dense.weight",
                [12 * side + c for side in range(model.sides) for c in columns],
                1,
            )
            if pooling == "attention":
                dead(model, "encoder.pooling.score.0.weight", columns, 1)
                dead(model, "encoder.pooling.score.2.weight", columns, 1)
    dead(model, "head.out.weight", [0, 6], 1)
    live["head.dense.weight"].index_fill_(0, torch.tensor([0, 6]), 0)
    before = logits_of(model, tokenizer)
    assert before.std(0).min() > 1e-3
    prune_units(model, 1 / 3, live)
    assert model.config.hidden_size == model.encoder.layers[0].forward_lstm.hidden_size == 4
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "kind", ["bilstm", "siamese-bilstm", "textcnn", "siamese-textcnn", "static"]
)
def test_units_of_no_worth_go_and_the_answers_stay(student, kind, tmp_path):
    model, tokenizer = student(kind, hidden_size=6)
    live = {name: torch.ones_like(weight) for name, weight in model.named_parameters()}
    kept = round(7 * 2 / 3)
    relu = [0, 6]  # of seven ReLU units
    dead(model, "head.out.weight", relu, 1)
    live["head.dense.weight"].index_fill_(0, torch.tensor(relu), 0)
    if kind.endswith("textcnn"):
        for number in range(3):
            dead(
                model,
                "head.dense.weight",
                [
                    6 * (3 * side + number) + unit
                    for side in range(model.sides)
                    for unit in (number, 5)
                ],
                1,
            )
            live[f"encoder.convolutions.{number}.weight"].index_fill_(
                0, torch.tensor([number, 5]), 0
            )
    if kind.endswith("bilstm"):
        for d, way in enumerate(("forward", "backward")):
            units = [d, 4]
            dead(model, f"encoder.layers.0.{way}_lstm.weight_hh_l0", units, 1)
            dead(
                model,
                "head.dense.weight",
                [12 * side + 6 * d + u for side in range(model.sides) for u in units],
                1,
            )
            for name in ("weight_ih_l0", "weight_hh_l0"):
                rows = torch.tensor([6 * gate + unit for gate in range(4) for unit in units])
                live[f"encoder.layers.0.{way}_lstm.{name}"].index_fill_(0, rows, 0)
    before = logits_of(model, tokenizer)
    prune_units(model, 1 / 3, live)
    assert model.head.dense.out_features == kept
    assert kind == "static" or model.config.hidden_size == 4
    again, tokens = saved_and_loaded(model, tokenizer, tmp_path)
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-6, rtol=0)


def test_feed_forward_rows_and_layers_of_a_transformer_go(bert, tmp_path):
    network, tokenizer = copy.deepcopy(bert[0]), bert[1]
    live = {name: torch.ones_like(weight) for name, weight in network.named_parameters()}
    for number in range(4):
        prefix = f"bert.encoder.layer.{number}"
        dead(network, f"{prefix}.output.dense.weight", [number, 9], 1)
        live[f"{prefix}.intermediate.dense.weight"].index_fill_(0, torch.tensor([number, 9]), 0)
    before = logits_of(network, tokenizer)
    prune_feed_forward(network, 2 / 16, live)
    assert network.config.intermediate_size == 14
    again, tokens = saved_and_loaded(network, tokenizer, tmp_path / "rows")
    torch.testing.assert_close(logits_of(again, tokens), before, atol=1e-6, rtol=0)
    third, last = (
        copy.deepcopy(network.bert.encoder.layer[1].state_dict()),
        network.bert.encoder.layer[3].state_dict(),
    )
    prune_layers(network, 2)
    again, _ = saved_and_loaded(network, tokenizer, tmp_path / "layers")
    found = again.bert.encoder.layer
    assert len(found) == again.config.num_hidden_layers == 2
    for layer, wanted in zip(found, (third, last), strict=True):
        assert all(torch.equal(weight, wanted[name]) for name, weight in layer.state_dict().items())
    with pytest.raises(InputError, match="expected at most the 2"):
        prune_layers(network, 3)
    with pytest.raises(InputError, match="only students of words"):
        prune_units(network, 0.5, live)


def test_heads_that_say_nothing_go_without_a_trace(bert, tmp_path):
    # of two a layer, 4 wide
    model, lasting = Model(copy.deepcopy(bert[0]), bert[1]), [[1], [0, 1], [0], [1]]
    live = {name: torch.ones_like(weight) for name, weight in model.network.named_parameters()}
    for number, heads in enumerate(lasting):
        prefix = f"bert.encoder.layer.{number}.attention"
        for head in {0, 1} - set(heads):
            columns = list(range(4 * head, 4 * head + 4))
            dead(model.network, f"{prefix}.output.dense.weight", columns, 1)
            live[f"{prefix}.self.query.weight"].index_fill_(0, torch.tensor(columns), 0)
    before = logits_of(model.network, model.tokenizer)
    assert before.std(0).min() > 1e-3
    assert prune_heads(model.network, 3 / 8, live) == (3, 8)
    model.lost_heads = True
    shapes = [
        [part.weight.shape for part in (*found.into, found.out)]
        for found in attentions(model.network)
    ]
    assert shapes == [[(4 * len(heads), 8)] * 3 + [(8, 4 * len(heads))] for heads in lasting]
    assert torch.allclose(logits_of(model.network, model.tokenizer), before, atol=1e-6)
    model.save(tmp_path / "model")
    again, tokens = load_classifier(str(tmp_path / "model"))
    assert again.config.heads == [1, 2, 1, 1]
    assert torch.equal(logits_of(again, tokens), logits_of(model.network, model.tokenizer))
    export_model(again, tokens, tmp_path / "bundle", [], one_file=False)
    assert np.abs(Predictor(tmp_path / "bundle").logits(TEXTS) - before.numpy()).max() < 1e-5
    with pytest.raises(InputError, match=r"compress\.heads knows the layers of bert"):
        prune_heads(nn.Linear(1, 1), 0.5, live)


@pytest.mark.parametrize("weight", ["query", "key", "value", "output"])
def test_a_head_is_worth_all_that_it_reads_and_is_read_by_and_each_layer_keeps_its_best(
    bert, weight
):
    network = copy.deepcopy(bert[0])
    worth = {name: torch.ones_like(weight) for name, weight in network.named_parameters()}
    for number, head in enumerate((1, 0, 0, 1)):
        name = f"bert.encoder.layer.{number}.attention." + (
            "output.dense.weight" if weight == "output" else f"self.{weight}.weight"
        )
        worth[name].index_fill_(int(weight == "output"), torch.arange(4) + 4 * head, 2.0 + number)
    worth["bert.encoder.layer.2.attention.self.value.weight"] += (
        9  # of both heads, and more than all other layers'
    )
    before = [found.into[2].weight.detach().clone() for found in attentions(network)]
    assert prune_heads(network, 0.4, worth) == (3, 8)  # 4.8 stay
    kept = [[1], [0], [0, 1], [1]]
    for old, found, heads in zip(before, attentions(network), kept, strict=True):
        assert torch.equal(
            found.into[2].weight, torch.cat([old[4 * head : 4 * head + 4] for head in heads])
        )
    assert prune_heads(
        network, 0.9, {name: torch.ones_like(weight) for name, weight in network.named_parameters()}
    ) == (1, 5)
    assert [found.heads for found in attentions(network)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert"]
)
def test_every_kind_of_transformer_without_some_heads_is_a_checkpoint(bert, kind, tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes = {"dim": 8, "n_layers": 2, "n_heads": 4} if kind == "distilbert" else sizes
    config = AutoConfig.for_model(
        kind,
        vocab_size=14,
        max_position_embeddings=30,
        pad_token_id=3,
        initializer_range=0.5,
        problem_type="multi_label_classification",
        id2label={0: "a", 1: "b", 2: "c"},
        label2id={"a": 0, "b": 1, "c": 2},
        **sizes,
    )
    torch.manual_seed(0)
    model = Model(AutoModelForSequenceClassification.from_config(config).eval(), bert[1])
    ids, mask = (
        torch.tensor([[5, 6, 7, 8], [9, 10, 3, 3]]),
        torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    )
    assert list(shrink(model, CompressConfig(heads=0.5), Reading([], None), 1)) == [
        "4 of 8 heads gone"
    ]
    with torch.no_grad():
        before = model.network(input_ids=ids, attention_mask=mask).logits
    model.save(tmp_path / "first")
    network, tokenizer = load_classifier(str(tmp_path / "first"))
    assert sum(network.config.heads) == 4
    assert network.config.max_position_embeddings == 30  # which texts are cut to
    # Its labels are its own, and gone on from: by another model of compress, and in a checkpoint of
    # that.
    network.config.id2label, network.config.label2id = (
        {0: "x", 1: "y", 2: "z"},
        {"x": 0, "y": 1, "z": 2},
    )
    Model(network, tokenizer).save(tmp_path / "second")
    again, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "second", output_loading_info=True
    )
    assert not any(info.values())
    assert (again.config.id2label[2], again.config.problem_type) == (
        "z",
        "multi_label_classification",
    )
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids, attention_mask=mask).logits, before)
        assert again.base_model(input_ids=ids, attention_mask=mask).last_hidden_state.shape == (
            2,
            4,
            8,
        )
    loss = again(
        input_ids=ids, attention_mask=mask, labels=(gold := torch.tensor([[0.0, 1, 1], [1, 0, 0]]))
    ).loss
    torch.testing.assert_close(loss, nn.functional.binary_cross_entropy_with_logits(before, gold))


def test_curvature_is_the_mean_square_of_each_logits_gradient(student):
    model, tokenizer = student("bilstm")
    rows = encode(tokenizer, ["a b c", "c", "d e f g"], None, 64)
    wanted = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    for row in range(3):
        logits = model(**rows.batch(torch.tensor([row]))).logits[0]
        for logit in logits:
            parts = torch.autograd.grad(logit, list(model.parameters()), retain_graph=True)
            for name, part in zip(wanted, parts, strict=True):
                wanted[name] += part.square() / 3
    draws = [curvatures(model, rows, seed) for seed in range(400)]
    for name in (
        "head.out.bias",
        "head.dense.weight",
        "encoder.layers.0.forward_lstm.weight_hh_l0",
    ):
        found = torch.stack([draw[name] for draw in draws]).mean(0)
        assert torch.corrcoef(torch.stack([found.flatten(), wanted[name].flatten()]))[
            0, 1
        ] > 0.97 or name.endswith("bias")
        torch.testing.assert_close(found.sum(), wanted[name].sum(), rtol=0.2, atol=0)
    assert all(not weight.requires_grad or weight.grad is None for weight in model.parameters())


def test_a_frozen_table_has_its_curvature_and_stays_frozen(student):
    model, tokenizer = student("bilstm", channels="multi")
    curvatures(model, encode(tokenizer, ["a b"], None, 64), 1)
    assert not model.encoder.embedding.frozen_table.weight.requires_grad
    assert model.encoder.embedding.table.weight.requires_grad


def test_brain_damage_spares_what_the_logits_feel(student):
    model, tokenizer = student("static")
    with torch.no_grad():
        model.head.out.weight.zero_()[:, 0] = 1e-3  # small, and all that there is
        model.head.dense.weight[0].fill_(1e-3)
        model.head.dense.bias[0] = 1.0
    rows = encode(tokenizer, TEXTS[:2], None, 64)
    by_size, by_loss = (
        saliencies(model, how, rows, 1)["head.dense.weight"] for how in ("magnitude", "obd")
    )
    assert by_size[0].max() < by_size[1:].median()
    assert by_loss[0].min() >= by_loss[1:].max() == 0


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_so_many_weights_become_zero(student, scope):
    model, _ = student("siamese-bilstm")
    table = model.encoder.embedding.table.weight.clone()
    biases = {name: weight.clone() for name, weight in model.named_parameters() if weight.ndim == 1}
    zero_weights(
        model,
        0.4,
        saliencies(model, "magnitude", None, 1),
        CompressConfig(sparsity=0.4, scope=scope),
    )
    matrices = [m for m in model.modules() if isinstance(m, nn.Linear | nn.LSTM)]
    weights = [
        weight for m in matrices for weight in m.parameters(recurse=False) if weight.ndim > 1
    ]
    share = [(weight == 0).float().mean().item() for weight in weights]
    total = sum((weight == 0).sum().item() for weight in weights) / sum(
        weight.numel() for weight in weights
    )
    assert total == pytest.approx(0.4, abs=0.01)
    assert (max(share) - min(share) < 0.03) == (scope == "layer")
    assert torch.equal(model.encoder.embedding.table.weight, table)
    assert all(torch.equal(model.get_parameter(name), bias) for name, bias in biases.items())
    assert all(isinstance(weight, nn.Parameter) for weight in weights)


def test_rounds_make_ever_fewer_zeros(student):
    model, tokenizer = student("bilstm")
    work, settings = Model(model, tokenizer), CompressConfig(sparsity=0.8, rounds=4)
    names = [make_zeros(work, settings, Reading(TEXTS, None), 1, number) for number in range(1, 5)]
    assert names == ["46.2 % zeros", "70 % zeros", "78.8 % zeros", "80 % zeros"]


def test_a_transformers_steps_come_in_their_order_and_go_on_from_fewer_heads(bert, tmp_path):
    work = Model(copy.deepcopy(bert[0]), copy.deepcopy(bert[1]))
    work.tokenizer.model_max_length = 64
    settings = [
        CompressConfig(heads=0.25, criterion="obd"),
        CompressConfig(vocabulary_size=12, layers=3, heads=0.4, feed_forward=0.5, criterion="obd"),
        CompressConfig(layers=2),
    ]
    # How many heads there are by then depends on which layer went.
    wanted = [
        [r"2 of 8 heads gone"],
        ["14 tokens", "3 layers", r"[12] of [456] heads gone", "50 % of feed-forward rows gone"],
        ["2 layers"],
    ]
    for number, (step, patterns) in enumerate(zip(settings, wanted, strict=True)):
        names = list(shrink(work, step, Reading(TEXTS, None), 1))
        assert all(
            re.fullmatch(pattern, name) for pattern, name in zip(patterns, names, strict=True)
        ), names
        before = logits_of(work.network, work.tokenizer)
        work.save(tmp_path / str(number))
        work = Model(*load_classifier(str(tmp_path / str(number))))
        assert torch.equal(logits_of(work.network, work.tokenizer), before)
    assert work.network.config.intermediate_size == 8
    assert work.network.config.num_hidden_layers == 2


def test_a_share_too_small_for_a_head_leaves_an_ordinary_checkpoint(bert, tmp_path):
    model = Model(copy.deepcopy(bert[0]), bert[1])
    assert list(shrink(model, CompressConfig(heads=0.05), Reading(TEXTS, None), 1)) == [
        "0 of 8 heads gone"
    ]
    model.save(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "bert"


def test_steps_come_in_their_order_and_each_upon_the_last(student, tmp_path):
    model, tokenizer = student(
        "bilstm", hidden_size=10, texts=["alpha beta gamma delta alpha beta a b"]
    )
    work = Model(model, tokenizer)
    settings = CompressConfig(vocabulary_size=7, embedding_size=3, units=0.5, criterion="obd")
    names = list(shrink(work, settings, Reading(["alpha beta gamma", "a b"], None), 1))
    assert names == ["7 tokens", "embedding dimension 3", "50 % of units gone"]
    again, tokens = saved_and_loaded(work.network, work.tokenizer, tmp_path)
    assert again.encoder.embedding.table.weight.shape == (7, 3)
    assert again.config.hidden_size == 5
    assert torch.equal(
        logits_of(again, tokens, ["alpha b"]), logits_of(work.network, work.tokenizer, ["alpha b"])
    )
