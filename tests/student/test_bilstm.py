"""The contract of every student, single or siamese; what is the siamese one's alone is in test_siamese.py."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from distillkit.data.batches import encode
from distillkit.measure.cost import parameter_counts
from distillkit.recipe import EmbeddingConfig, StudentConfig, VocabularyConfig
from distillkit.student.bilstm import BiLSTMConfig, BiLSTMEncoder, BiLSTMForSequenceClassification, Dropout, pull_left
from distillkit.student.build import build_student
from distillkit.student.register import KINDS
from distillkit.training.inference import predict_logits

LABELS = ["bad", "so-so", "good"]
TEXTS = ["a b c d e f g h", "a", "", "c b a", "h g f e d c b a a a a"]
PAIRS = ["b", "", "c d e f", "a b c", ""]

students = pytest.mark.parametrize("kind", sorted(KINDS))
channels = pytest.mark.parametrize("channels", ["single", "multi"])


def student(kind, channels="multi", **options):
    config = StudentConfig(
        kind=kind,
        hidden_size=6,
        head_size=7,
        embeddings=EmbeddingConfig("random", 5, channels),
        vocabulary=VocabularyConfig(unit="word"),
        **options,
    )
    return build_student(TEXTS, LABELS, config, seed=3)


def logits_of(model, tokenizer, kind, rows, **options):
    inputs = tokenizer(
        [TEXTS[i] for i in rows],
        [PAIRS[i] for i in rows] if kind.startswith("siamese") else None,
        padding=True,
        return_tensors="pt",
        **options,
    )
    with torch.inference_mode():
        return model(**inputs).logits


@students
@channels
def test_a_row_has_the_same_logits_alone_and_among_others(kind, channels):
    model, tokenizer = student(kind, channels)
    rows = [i for i in range(len(TEXTS)) if TEXTS[i] or (PAIRS[i] and kind.startswith("siamese"))]
    together = logits_of(model, tokenizer, kind, rows)
    alone = torch.cat([logits_of(model, tokenizer, kind, [i]) for i in rows])
    assert together.std(0).min() > 1e-3  # rows differ at all
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


@students
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("amount", [16, 40])
def test_padding_changes_nothing_on_either_side_in_any_amount(kind, side, amount):
    model, tokenizer = student(kind)
    plain = logits_of(model, tokenizer, kind, range(5))
    tokenizer.padding_side = side
    padded = logits_of(model, tokenizer, kind, range(5), pad_to_multiple_of=amount)
    torch.testing.assert_close(plain, padded, atol=1e-5, rtol=0)


@students
def test_what_stands_at_padding_has_no_influence(kind):
    model, tokenizer = student(kind)
    inputs = tokenizer(TEXTS, PAIRS if kind.startswith("siamese") else None, padding=True, return_tensors="pt")
    plain = model(**inputs).logits
    inputs["input_ids"][inputs["attention_mask"] == 0] = 4
    inputs["token_type_ids"][inputs["attention_mask"] == 0] = 1
    torch.testing.assert_close(model(**inputs).logits, plain, atol=1e-5, rtol=0)


@students
def test_an_empty_text_has_finite_logits_and_a_vector_of_zeros(kind):
    model, tokenizer = student(kind)
    rows = encode(tokenizer, ["", "   "], ["", " "] if kind.startswith("siamese") else None, 9)
    inputs = rows.batch(torch.arange(2))
    assert not model.encode(inputs["input_ids"], inputs["attention_mask"]).any()
    found = predict_logits(model, rows)
    assert found.isfinite().all()
    torch.testing.assert_close(found[0], found[1])


@students
def test_batches_of_like_length_give_what_one_by_one_gives(kind):
    model, tokenizer = student(kind)
    rows = encode(tokenizer, TEXTS, PAIRS if kind.startswith("siamese") else None, 99)
    one_by_one = torch.cat([logits_of(model, tokenizer, kind, [i]) for i in (0, 1, 3)])
    found = predict_logits(model, rows, max_batch_tokens=24)
    torch.testing.assert_close(found[[0, 1, 3]], one_by_one, atol=1e-5, rtol=0)


@students
def test_word_order_matters(kind):
    model, tokenizer = student(kind)
    side = ["x", "x"] if kind.startswith("siamese") else None
    found = predict_logits(model, encode(tokenizer, ["a b c", "c b a"], side, 9))
    assert (found[0] - found[1]).abs().max() > 1e-4


@students
@channels
def test_gradients_reach_every_trainable_parameter(kind, channels):
    model, tokenizer = student(kind, channels)
    pairs = PAIRS if kind.startswith("siamese") else None
    inputs = tokenizer(TEXTS, pairs, padding=True, return_tensors="pt")
    model(**inputs, labels=torch.tensor([0, 1, 2, 1, 0])).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None, name
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ([] if channels == "single" else ["encoder.frozen_embedding.weight"])


@students
@channels
def test_the_auto_classes_load_what_was_saved(kind, channels, tmp_path):
    model, tokenizer = student(kind, channels)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert [loaded.config.id2label[i] for i in range(3)] == LABELS
    assert [loaded.config.label2id[name] for name in LABELS] == [0, 1, 2]
    for (name, old), (_, new) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert torch.equal(old, new), name
    assert again(TEXTS, PAIRS).data == tokenizer(TEXTS, PAIRS).data
    assert torch.equal(
        logits_of(loaded, again, kind, range(5)),
        logits_of(model, tokenizer, kind, range(5)),
    )


@students
def test_the_frozen_channel_is_still_frozen_after_loading(kind, tmp_path):
    model, tokenizer = student(kind, "multi")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    loaded(**tokenizer("a b c", "d", return_tensors="pt"), labels=torch.tensor([1])).loss.backward()
    assert loaded.encoder.embedding.weight.grad is not None
    assert loaded.encoder.frozen_embedding.weight.grad is None


@students
def test_a_transformers_pipeline_gives_labels_and_probabilities(kind, tmp_path):
    model, tokenizer = student(kind)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = pipeline("text-classification", str(tmp_path), device="cpu", top_k=None)
    pair = kind.startswith("siamese")
    found = classify([{"text": TEXTS[0], "text_pair": PAIRS[2]}] if pair else [TEXTS[0]])[0]
    inputs = tokenizer(TEXTS[0], PAIRS[2] if pair else None, return_tensors="pt")
    expected = model(**inputs).logits.softmax(1)[0].tolist()
    assert {row["label"]: row["score"] for row in found} == pytest.approx(
        dict(zip(LABELS, expected, strict=True)), abs=1e-6
    )


@students
def test_the_loss_is_the_cross_entropy_with_the_labels(kind):
    model, tokenizer = student(kind)
    labels = torch.tensor([2, 0])
    out = model(**tokenizer(["a b", "c"], ["d", "e"], padding=True, return_tensors="pt"), labels=labels)
    by_hand = -out.logits.log_softmax(1)[torch.arange(2), labels].mean()
    torch.testing.assert_close(out.loss, by_hand)


@students
def test_dropout_acts_in_training_only(kind):
    model, tokenizer = student(kind, dropout=0.5)
    assert torch.equal(logits_of(model, tokenizer, kind, [0]), logits_of(model, tokenizer, kind, [0]))
    model.train()
    assert not torch.equal(logits_of(model, tokenizer, kind, [0]), logits_of(model, tokenizer, kind, [0]))


@students
@channels
def test_word_vectors_start_every_channel_and_padding_stays_zero(kind, channels):
    model, tokenizer = student(kind, channels)
    vectors = torch.randn(len(tokenizer), 5)
    model.set_word_vectors(vectors)
    tables = [t for t in (model.encoder.embedding, model.encoder.frozen_embedding) if t is not None]
    assert len(tables) == (1 if channels == "single" else 2)
    for table in tables:
        assert torch.equal(table.weight[1:], vectors[1:])
        assert not table.weight[0].any()


def test_the_papers_student_has_963002_parameters_without_its_tables():
    model = BiLSTMForSequenceClassification(BiLSTMConfig(vocab_size=11, channels="multi"))
    assert parameter_counts(model) == {"total": 963_002 + 2 * 11 * 300, "without_embeddings": 963_002}


@channels
def test_vectors_and_gradients_are_those_of_torchs_own_packed_bidirectional_lstm(channels):
    torch.manual_seed(0)
    encoder = BiLSTMEncoder(BiLSTMConfig(13, 5, channels, hidden_size=6, dropout=0.0)).train()
    both = torch.nn.LSTM(5 if channels == "single" else 10, 6, batch_first=True, bidirectional=True)
    ours = {}  # by the packed LSTM's names
    for lstm, suffix in ((encoder.forward_lstm, ""), (encoder.backward_lstm, "_reverse")):
        ours |= {name + suffix: parameter for name, parameter in lstm.named_parameters()}
    with torch.no_grad():
        for name, parameter in both.named_parameters():
            parameter.copy_(ours[name])
    lengths = torch.tensor([4, 7, 1, 0, 4, 6])
    ids = torch.randint(1, 13, (6, 7))  # what follows a row's length is any word
    wanted = torch.randn(6, 12)
    tables = [table for table in (encoder.frozen_embedding, encoder.embedding) if table is not None]
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
    torch.testing.assert_close(encoder.embedding.weight.grad, copies[-1].grad, atol=1e-5, rtol=1e-5)
    assert encoder.frozen_embedding is None or encoder.frozen_embedding.weight.grad is None


def test_bf16_gives_nearly_the_same_vectors_and_gradients():
    model, tokenizer = student("bilstm", "single", dropout=0.0)
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


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_a_share_of_p_anywhere_and_keeps_the_mean(p):
    torch.manual_seed(1)
    x = torch.full((50, 1001, 3), 2.0)
    found = Dropout(p)(x)
    kept = found > 0
    scaled = found[kept]
    assert torch.equal(scaled, scaled[:1].expand_as(scaled))
    assert scaled[0].item() == pytest.approx(2 / (1 - p), rel=1e-3)
    error = 5 * (p * (1 - p) / x.numel()) ** 0.5
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=error)
    flat = kept.flatten().float()
    for neighbour in (1, 2, 3, 4):  # four numbers share one draw
        together = (flat[neighbour:] * flat[:-neighbour]).mean().item()
        assert together == pytest.approx((1 - p) ** 2, abs=2 * error)


def test_dropout_gives_gradients_to_what_it_kept_alone():
    x = torch.ones(7, 3, requires_grad=True)
    found = Dropout(0.5)(x)
    found.sum().backward()
    assert 0 < (found > 0).sum() < 21
    torch.testing.assert_close(x.grad, found.detach())


def test_dropout_is_drawn_from_torchs_seed():
    def draw():
        torch.manual_seed(4)
        return [Dropout(0.5)(torch.ones(40)).tolist() for _ in range(2)]

    first, second = draw()
    assert draw() == [first, second]
    assert first != second


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_at_its_ends_keeps_all_or_nothing(p, expected):
    assert torch.equal(Dropout(p)(torch.ones(9)), torch.full((9,), expected))


def test_the_chosen_tokens_are_pulled_to_the_front_in_their_order():
    ids = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 4], [9, 9, 9, 9]])
    chosen = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0]]).bool()
    found, lengths = pull_left(ids, chosen)
    assert lengths.tolist() == [2, 3, 0]
    assert found[0, :2].tolist() == [6, 8]
    assert found[1, :3].tolist() == [1, 2, 3]
    assert found.shape == (3, 3)
