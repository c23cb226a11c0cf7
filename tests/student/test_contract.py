"""The contract of every student, of every kind, single or siamese; what is one kind's alone is in the module of its name."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from distillkit import shelf
from distillkit.data.batches import encode
from distillkit.recipe import StudentConfig, load_config
from distillkit.recipe.kinds import load_kinds
from distillkit.training.inference import predict_logits
from distillkit.training.scores import rescale
from tests.student.conftest import LABELS, PAIRS, TEXTS

KINDS = sorted(load_kinds())
READS_PAIRS = {name for name in KINDS if load_kinds()[name].reads == "pairs"}
WORDS = [name for name in KINDS if load_kinds()[name].from_teacher is None]
# Each kind as it comes, and each setting that changes what is computed.
STUDENTS = {kind: {"kind": kind} for kind in KINDS}
STUDENTS |= {
    f"{kind}, {how}": {"kind": kind, "pooling": how}
    for kind in KINDS
    for how in load_kinds()[kind].poolings
}
for kind in ("bilstm", "siamese-textcnn"):  # all kinds share the tables and vocabularies
    STUDENTS |= {f"{kind}, hashed": {"kind": kind, "unit": "hashed"}}
    STUDENTS |= {f"{kind}, two channels": {"kind": kind, "channels": "multi"}}
    STUDENTS |= {f"{kind}, frozen": {"kind": kind, "channels": "frozen"}}
    STUDENTS |= {f"{kind}, word pieces": {"kind": kind, "unit": "word-piece"}}
    STUDENTS |= {f"{kind}, teacher's words": {"kind": kind, "unit": "teacher"}}
for kind in ("bilstm", "siamese-bilstm"):
    STUDENTS |= {f"{kind}, two layers": {"kind": kind, "layers": 2}}
STUDENTS["static, hashed"] = {"kind": "static", "unit": "hashed"}
STUDENTS["siamese-bilstm, hashed"] = {"kind": "siamese-bilstm", "unit": "hashed"}
STUDENTS["interaction-bilstm, hashed"] = {"kind": "interaction-bilstm", "unit": "hashed"}
STUDENTS["decomposable, two channels"] = {"kind": "decomposable", "channels": "multi"}
STUDENTS["siamese-static, frozen"] = {"kind": "siamese-static", "channels": "frozen"}
STUDENTS["transformer, fresh"] = {"kind": "transformer", "hidden_size": 12}

students = pytest.mark.parametrize("name", STUDENTS)
with_encoder = pytest.mark.parametrize(
    "name", [name for name in STUDENTS if not name.startswith("transformer")]
)


def is_pair(name):
    return STUDENTS.get(name, {"kind": name})["kind"] in READS_PAIRS


def logits_of(model, tokenizer, name, rows, **options):
    inputs = tokenizer(
        [TEXTS[i] for i in rows],
        [PAIRS[i] for i in rows] if is_pair(name) else None,
        padding=True,
        return_tensors="pt",
        **options,
    )
    with torch.inference_mode():
        return model(**inputs).logits


@students
def test_a_row_has_the_same_logits_alone_and_among_others(student, name):
    model, tokenizer = student(**STUDENTS[name])
    rows = [i for i in range(len(TEXTS)) if TEXTS[i] or (PAIRS[i] and is_pair(name))]
    together = logits_of(model, tokenizer, name, rows)
    alone = torch.cat([logits_of(model, tokenizer, name, [i]) for i in rows])
    assert together.std(0).min() > 1e-4  # rows differ at all
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


@students
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_on_either_side(student, name, side):
    if name.startswith("transformer") and side == "left":
        pytest.skip("BERT counts positions from the left, padding included")
    model, tokenizer = student(**STUDENTS[name])
    plain = logits_of(model, tokenizer, name, range(5))
    before, tokenizer.padding_side = tokenizer.padding_side, side
    padded = logits_of(model, tokenizer, name, range(5), pad_to_multiple_of=48)
    tokenizer.padding_side = before
    torch.testing.assert_close(plain, padded, atol=1e-5, rtol=0)


@students
def test_what_stands_at_padding_has_no_influence(student, name):
    model, tokenizer = student(**STUDENTS[name])
    inputs = tokenizer(TEXTS, PAIRS if is_pair(name) else None, padding=True, return_tensors="pt")
    plain = model(**inputs).logits
    inputs["input_ids"][inputs["attention_mask"] == 0] = 4
    inputs["token_type_ids"][inputs["attention_mask"] == 0] = 1
    torch.testing.assert_close(model(**inputs).logits, plain, atol=1e-5, rtol=0)


@with_encoder
def test_an_empty_text_has_finite_logits_and_a_vector_of_zeros(student, name):
    model, tokenizer = student(**STUDENTS[name])
    inputs = {
        "input_ids": torch.zeros(2, 3, dtype=torch.int64),
        "attention_mask": torch.zeros(2, 3, dtype=torch.int64),
    }
    if hasattr(model, "encode"):
        assert not model.encode(**inputs).any()
    found = predict_logits(
        model, encode(tokenizer, ["", "   "], ["", " "] if is_pair(name) else None, 9)
    )
    assert found.isfinite().all()


@students
def test_batches_of_like_length_give_what_one_by_one_gives(student, name):
    model, tokenizer = student(**STUDENTS[name])
    rows = encode(tokenizer, TEXTS, PAIRS if is_pair(name) else None, 60)
    one_by_one = torch.cat([logits_of(model, tokenizer, name, [i]) for i in (0, 1, 3)])
    found = predict_logits(model, rows, max_batch_tokens=24)
    torch.testing.assert_close(found[[0, 1, 3]], one_by_one, atol=1e-5, rtol=0)


@students
def test_word_order_matters_but_to_students_that_are_blind_to_it(student, name):
    model, tokenizer = student(**STUDENTS[name], seed=5)
    side = ["x", "x"] if is_pair(name) else None
    found = predict_logits(model, encode(tokenizer, ["a b c", "c b a"], side, 20))
    difference = (found[0] - found[1]).abs().max()
    if "static" in name or "decomposable" in name:
        assert difference < 1e-6
    else:
        assert difference > 1e-5


@students
def test_gradients_reach_every_trainable_parameter(student, name):
    model, tokenizer = student(**STUDENTS[name], dropout=0.0)
    inputs = tokenizer(
        [*TEXTS, "x"], [*PAIRS, "a b"] if is_pair(name) else None, padding=True, return_tensors="pt"
    )
    out = model.train()(**inputs, labels=torch.tensor([0, 1, 2, 1, 0, 2]))
    out.loss.backward()
    frozen = []
    for parameter_name, parameter in model.named_parameters():
        if (
            "position_embeddings" in parameter_name
            or "key.bias" in parameter_name
            or "pooler" in parameter_name
        ):
            # BERT's: rows not used here; no influence on a softmax; not asked by a siamese student
            continue
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.abs().sum() > 0, parameter_name
        else:
            frozen.append(parameter_name)
    assert frozen == (
        ["encoder.embedding.frozen_table.weight"]
        if name.endswith(("two channels", "frozen"))
        else []
    )
    by_hand = -out.logits.log_softmax(1)[torch.arange(6), torch.tensor([0, 1, 2, 1, 0, 2])].mean()
    torch.testing.assert_close(out.loss, by_hand)
    model.zero_grad()


@students
def test_the_auto_classes_load_what_was_saved(student, name, tmp_path):
    model, tokenizer = student(**STUDENTS[name])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert [loaded.config.id2label[i] for i in range(3)] == LABELS
    assert [loaded.config.label2id[label] for label in LABELS] == [0, 1, 2]
    for (parameter_name, old), (_, new) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert torch.equal(old, new), parameter_name
    assert again(TEXTS, PAIRS).data == tokenizer(TEXTS, PAIRS).data
    assert again.model_max_length == tokenizer.model_max_length
    assert torch.equal(
        logits_of(loaded, again, name, range(5)), logits_of(model, tokenizer, name, range(5))
    )


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("channels", ["frozen", "multi"])
def test_the_frozen_channel_is_still_frozen_after_loading(student, kind, channels, tmp_path):
    model, tokenizer = student(kind, channels)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    loaded(**tokenizer("a b c", "d", return_tensors="pt"), labels=torch.tensor([1])).loss.backward()
    assert (loaded.encoder.embedding.table is None) == (channels == "frozen")
    if channels == "multi":
        assert loaded.encoder.embedding.table.weight.grad is not None
    assert loaded.encoder.embedding.frozen_table.weight.grad is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_transformers_pipeline_gives_labels_and_probabilities(student, kind, tmp_path):
    model, tokenizer = student(kind)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = pipeline("text-classification", str(tmp_path), device="cpu", top_k=None)
    # The pipeline reads each row alone; an empty one has no column at all.
    rows = [("", "") if kind in WORDS else ("a", "b"), (TEXTS[0], PAIRS[2])]
    found = classify(
        [dict(zip(("text", "text_pair"), row, strict=True)) for row in rows]
        if is_pair(kind)
        else [text for text, _ in rows]
    )
    inputs = tokenizer(
        *(map(list, zip(*rows, strict=True)) if is_pair(kind) else ([text for text, _ in rows],)),
        padding=True,
        return_tensors="pt",
    )
    for answers, expected in zip(found, model(**inputs).logits.softmax(1).tolist(), strict=True):
        assert {row["label"]: row["score"] for row in answers} == pytest.approx(
            dict(zip(LABELS, expected, strict=True)), abs=1e-6
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("problem", "labels", "by_hand"),
    [
        (
            "multi_label_classification",
            torch.tensor([[0.0, 1.0, 1.0]]),
            torch.nn.BCEWithLogitsLoss(),
        ),
        ("regression", torch.tensor([[0.5, -2.0, 1.0]]), torch.nn.MSELoss()),
    ],
)
def test_the_loss_is_that_of_the_kind_of_task(student, kind, problem, labels, by_hand):
    model, tokenizer = student(kind)
    model.config.problem_type = problem
    out = model(
        **tokenizer("a b", "c" if is_pair(kind) else None, return_tensors="pt"), labels=labels
    )
    torch.testing.assert_close(out.loss, by_hand(out.logits, labels))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_acts_in_training_only(student, kind):
    model, tokenizer = student(kind, dropout=0.5)
    assert torch.equal(
        logits_of(model, tokenizer, kind, [0]), logits_of(model, tokenizer, kind, [0])
    )
    model.train()
    assert not torch.equal(
        logits_of(model, tokenizer, kind, [0]), logits_of(model, tokenizer, kind, [0])
    )


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("channels", ["single", "frozen", "multi"])
def test_word_vectors_start_every_channel_and_padding_stays_zero(student, kind, channels):
    model, tokenizer = student(kind, channels)
    vectors = torch.randn(len(tokenizer), 5)
    model.encoder.embedding.set_vectors(vectors)
    tables = [
        t
        for t in (model.encoder.embedding.table, model.encoder.embedding.frozen_table)
        if t is not None
    ]
    assert len(tables) == (2 if channels == "multi" else 1)
    for table in tables:
        assert torch.equal(table.weight[1:], vectors[1:])
        assert not table.weight[0].any()


@pytest.mark.parametrize("name", shelf.entries("students"))
def test_every_student_of_the_shelf_is_one_of_these_kinds(name):
    assert load_config("students", name, StudentConfig()).kind in KINDS


@students
def test_what_was_learnt_standardised_is_answered_on_its_scale(name, student):
    model, tokenizer = student(**STUDENTS.get(name, {"kind": name}))
    standardised = logits_of(model, tokenizer, name, range(3))
    rescale(model, 50.0, 20.0)
    found = logits_of(model, tokenizer, name, range(3))
    torch.testing.assert_close(found, 50 + 20 * standardised, rtol=1e-4, atol=1e-3)
