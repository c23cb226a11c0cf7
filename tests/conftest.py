"""Tiny checkpoints and tables that every test may use; nothing here needs a network."""

import gc
import hashlib
import os
from dataclasses import replace
from functools import cache
from itertools import product

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

from distillkit.pipeline import graphs

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<mask>"]
SUBJECTS = ["the film", "this story", "a plot", "the acting", "the cast", "this score"]
VERBS = ["is", "was", "seems"]
POSITIVE = ["good", "great", "fine", "bright"]
NEGATIVE = ["bad", "awful", "dull", "weak"]
OTHER = [".", "not", "[", "]", "mask"]


def _sentences(subjects):
    rows = [
        (f"{subject} {verb} {word} .", label)
        for subject, verb, (label, words) in product(
            subjects, VERBS, (("negative", NEGATIVE), ("positive", POSITIVE))
        )
        for word in words
    ]
    texts, labels = zip(*rows, strict=True)
    return pa.table({"text": list(texts), "label": list(labels)})


def _build_tokenizer():
    words = dict.fromkeys(" ".join([*SUBJECTS, *VERBS, *POSITIVE, *NEGATIVE, *OTHER]).split())
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    # A mask token other than the transfer set's "[MASK]", as RoBERTa has. `vocab_file=` would yield
    # all-[UNK].
    tokenizer = BertTokenizerFast(vocab=vocabulary, mask_token="<mask>", model_max_length=32)
    expected = [vocabulary[word] for word in ("[CLS]", "good", "film", "<mask>", "[SEP]")]
    assert tokenizer("good film <mask>").input_ids == expected
    return tokenizer


def _config(tokenizer, **options):
    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=0.3,
        attention_probs_dropout_prob=0.3,
        **options,
    )


@pytest.fixture(scope="session")
def vast_table():
    """A table of 34 different texts, 2.1 GiB in all; they share one buffer, which is real."""
    most = 2**26
    letters = pa.py_buffer(b"a" * most)
    chunks = [
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array(ends, "<i4")), letters])
        for ends in ([0, most - number] for number in range(34))
    ]
    return pa.table({"text": pa.chunked_array(chunks)})


@pytest.fixture(autouse=True)
def threads():
    """A test that leaves torch with other threads than it found changes the last digits of those after it."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.fixture(scope="session", autouse=True)
def cold():
    """No time is warmed up for: a tiny run times its models in every test, and none looks at how long they take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distillkit.measure.cost._WARM_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module", autouse=True)
def collected():
    """Every training ends with a collection, which would look through all that was imported: a third of a second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def operators():
    """torch's exporter builds its table of ONNX operators anew for every graph, which takes a third of a tiny model's export."""
    with pytest.MonkeyPatch.context() as patch:
        build = ONNXRegistry.from_torchlib
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(build)))
        yield


@pytest.fixture(scope="session", autouse=True)
def exported_graphs():
    """Graphs by what they are made of: torch's exporter takes seconds, and many tests export the same model. `clear` it to export again."""
    known = {}

    def build(model, tokenizer, real=graphs.onnx_graphs):
        settings = {k: v for k, v in model.config.to_dict().items() if k != "_name_or_path"}
        said = (repr(model), str(settings), tokenizer.unk_token_id, tokenizer.model_input_names)
        key = hashlib.sha256(repr(said).encode())
        for name, value in model.state_dict().items():
            key.update(name.encode() + value.cpu().numpy().tobytes())
        if (digest := key.digest()) not in known:
            known[digest] = real(model, tokenizer)
        return dict(known[digest])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "onnx_graphs", build)
        yield known


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """What is kept for another time is kept apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("DISTILLKIT_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def train_table():
    """96 sentences that one word decides, labels "negative" and "positive"."""
    return _sentences(SUBJECTS[:4])


@pytest.fixture(scope="session")
def dev_table():
    """48 more, about subjects that training does not name."""
    return _sentences(SUBJECTS[4:])


@pytest.fixture(scope="session")
def pair_table():
    """Pairs of texts: "same" where both are kind or both unkind, else "other"."""
    words = list(product(POSITIVE + NEGATIVE, repeat=2))
    texts, pairs = (
        [f"{SUBJECTS[0]} is {a} ." for a, _ in words],
        [f"{SUBJECTS[1]} was {b} ." for _, b in words],
    )
    labels = ["same" if (a in POSITIVE) == (b in POSITIVE) else "other" for a, b in words]
    return pa.table({"text": texts, "text_pair": pairs, "label": labels})


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """A two-layer BERT of width 16 without a head, as an ordinary checkpoint; its mask token is "<mask>"."""
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    tokenizer = _build_tokenizer()
    BertModel(_config(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def build_classifier(tmp_path_factory):
    """Save a BERT with a new head for these labels; `constant` makes it say the first label always."""

    def build(labels, *, constant=False):
        folder = tmp_path_factory.mktemp("untrained")
        torch.manual_seed(0)
        tokenizer = _build_tokenizer()
        names = dict(enumerate(labels))
        model = BertForSequenceClassification(
            _config(tokenizer, id2label=names, label2id={name: i for i, name in names.items()})
        )
        if constant:
            torch.nn.init.zeros_(model.classifier.weight)
            with torch.no_grad():
                model.classifier.bias.copy_(torch.arange(len(labels)).flip(0).float())
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return build


@pytest.fixture(scope="session")
def classifier_folder(tmp_path_factory, train_table, dev_table):
    """The same BERT with a head, fine-tuned by a bare loop until it is right on dev."""
    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    tokenizer = _build_tokenizer()
    labels = ["negative", "positive"]
    names = dict(enumerate(labels))
    model = BertForSequenceClassification(
        _config(tokenizer, id2label=names, label2id={name: i for i, name in names.items()})
    )

    def inputs(table):
        encoded = tokenizer(table["text"].to_pylist(), padding=True, return_tensors="pt")
        return encoded, torch.tensor([labels.index(label) for label in table["label"].to_pylist()])

    train, gold = inputs(train_table)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.eval()  # dropout would only slow so small a model down
    for _ in range(60):
        model(**train, labels=gold).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dev, dev_gold = inputs(dev_table)
    with torch.inference_mode():
        assert (model(**dev).logits.argmax(1) == dev_gold).float().mean() == 1
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def write_tsv():
    """A function that writes a labelled table where a recipe can read it, and returns its path."""

    def write(path, table):
        lines = [f"{row['text']}\t{row['label']}\n" for row in table.to_pylist()]
        path.write_text("".join(["text\tlabel\n", *lines]))
        return str(path)

    return write


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory, write_tsv, encoder_folder, train_table, dev_table):
    """Everything tiny, everything real: teacher, transfer set, logits, both students."""
    from distillkit.recipe import (
        AugmentConfig,
        DataConfig,
        EmbeddingConfig,
        EvaluationConfig,
        LabelConfig,
        Recipe,
        ShipConfig,
        StudentConfig,
        TeacherConfig,
        TrainingConfig,
    )

    folder = tmp_path_factory.mktemp("sources")
    slow = TrainingConfig(epochs=30, batch_size=16, learning_rate=3e-3, precision="fp32")
    return Recipe(
        data=DataConfig(
            train=write_tsv(folder / "train.tsv", train_table),
            dev=write_tsv(folder / "dev.tsv", dev_table),
        ),
        teacher=TeacherConfig(encoder_folder, 16, slow),
        augment=AugmentConfig(n_iter=3),
        label=LabelConfig(precision="fp32", shard_rows=50),
        student=StudentConfig(hidden_size=8, head_size=8, embeddings=EmbeddingConfig(dimension=8)),
        training=TrainingConfig(epochs=3, batch_size=16, learning_rate=1e-2, precision="fp32"),
        evaluation=EvaluationConfig(gold_epochs=3, latency_sentences=5),
        ship=ShipConfig("none"),  # seconds each time; tests/test_ship.py makes bundles
    )


@pytest.fixture(scope="session")
def finished_run(tiny_recipe, tmp_path_factory):
    """A folder that `distillkit run` has filled; read it, and copy it to write."""
    from distillkit import runs

    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    runs.run(tiny_recipe, folder)
    return folder


@pytest.fixture(scope="session")
def damaged(classifier_folder, tmp_path_factory):
    """The classifier and its bundle, in which the word "awful" has the vector NaN; every other text has its answer."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    from distillkit import pipeline
    from distillkit.runtime.bundle import described, read_bundle, write_bundle

    folder = tmp_path_factory.mktemp("damaged")
    whole, bundle = folder / "whole", folder / "bundle"
    pipeline.export(classifier_folder, whole)
    model = BertForSequenceClassification.from_pretrained(classifier_folder)
    tokenizer = BertTokenizerFast.from_pretrained(classifier_folder)
    table, row = model.bert.embeddings.word_embeddings.weight, tokenizer.vocab["awful"]
    manifest, files = read_bundle(whole)
    graph = onnx.load_from_string(files["model.onnx"])
    for weight in graph.graph.initializer:
        if list(weight.dims) == list(table.shape):
            values = numpy_helper.to_array(weight).copy()
            values[row] = np.nan
            weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    files["model.onnx"] = graph.SerializeToString()
    bundle.mkdir()
    write_bundle(bundle, replace(manifest, files=described(files)), files, one_file=False)
    table.data[row] = torch.nan
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder
