"""What an encoder learns from text, against transformers' own heads and calculations by hand."""

import math

import pytest
import torch
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    ElectraForPreTraining,
)
from transformers.modeling_outputs import MaskedLMOutput

from distillkit.data.rows import ELSEWHERE, FOLLOWS, SWAPPED
from distillkit.errors import InputError
from distillkit.recipe import ObjectivesConfig
from distillkit.teacher.masker import IGNORED
from distillkit.teacher.pretraining import (
    COLUMNS,
    Pretraining,
    fresh_network,
    load_encoder,
    measures,
    objective,
)

VOCABULARY = 40
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 32, "max_position_embeddings": 40}
ENDS = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
KINDS = {
    "bert": {},
    "ernie": {},
    "megatron-bert": {},
    "roberta": {"pad_token_id": 1},
    "xlm-roberta": {"pad_token_id": 1},
    "camembert": {"pad_token_id": 1},
    "mpnet": {"pad_token_id": 1},
    "electra": {"embedding_size": 16},
    "distilbert": {"dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "albert": {"embedding_size": 16},
    "modernbert": {"attn_implementation": "eager"} | ENDS,
}
MIXTURES = [
    {},
    {"mlm": 0.0, "rtd": 1.0},
    {"rtd": 2.0},
    {"nsp": 1.0},
    {"sop": 1.0},
    {"nsp": 1.0, "sop": 1.0, "rtd": 1.0},
    {"mlm": 0.0, "rtd": 1.0, "sop": 1.0},
]
SOME = ["bert", "roberta", "electra", "distilbert", "albert", "modernbert"]


def config_of(kind):
    sizes = {} if kind == "distilbert" else SIZES
    common = {"vocab_size": VOCABULARY, "pad_token_id": 0}
    return AutoConfig.for_model(kind, **common | sizes | KINDS[kind])


def model_of(kind, seed=0, **objectives):
    torch.manual_seed(seed)
    config = ObjectivesConfig(**objectives)
    return Pretraining(fresh_network(config_of(kind), config), config)


def batch_of(model, lengths=(9, 6, 4), seed=0, longest=None):
    """Make masked rows of a padding token of the model's own."""
    random = torch.Generator().manual_seed(seed)
    shape = (len(lengths), longest or max(lengths))
    ids = torch.full(shape, model.network.config.pad_token_id)
    inside, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORED)
    for i, length in enumerate(lengths):
        row = torch.randint(5, VOCABULARY, (length,), generator=random)
        row[0], row[-1] = 2, 3
        ids[i, :length], inside[i, :length] = row, 1
        for place in range(1, length - 1, 2):
            labels[i, place], ids[i, place] = ids[i, place].item(), 4
    return {"input_ids": ids, "attention_mask": inside, "labels": labels}


def answer_of(model, batch):
    """Return what a model answers, by the name of the column."""
    return dict(zip(COLUMNS, model(**batch).logits.T, strict=True))


def reference_of(model):
    """Return transformers' own masked language model with the same weights, in eval mode."""
    reference = AutoModelForMaskedLM.from_config(model.network.config)
    missing, _ = reference.load_state_dict(model.network.state_dict(), strict=False)
    assert not missing
    reference.tie_weights()
    return reference.eval()


ORDER = torch.tensor([FOLLOWS, SWAPPED, ELSEWHERE])


# ---- masked language modelling


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_transformers_own_head(kind):
    model = model_of(kind).eval()
    reference = reference_of(model)
    vocabulary = [*SPECIAL, *(f"w{i}" for i in range(VOCABULARY - 5))]
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)})
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4, seed=3)
    texts = ["w1 w2 w3 w4 w5 w6 w7", "w8 w9 w10", "w11 w12 w13 w14 w15 w16 w17 w18 w19"]
    batch = collator([{"input_ids": tokenizer(text)["input_ids"]} for text in texts])
    batch["input_ids"][batch["attention_mask"] == 0] = model.network.config.pad_token_id
    assert (batch["labels"] != IGNORED).any(1).all()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    loss = objective(model(**inputs).logits, ObjectivesConfig(), None)
    expected = reference(**inputs).loss
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    loss.backward()
    expected.backward()
    ours, theirs = (
        {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        for network in (model.network, reference)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_what_is_right_is_counted_row_by_row(kind):
    model = model_of(kind).eval()
    batch = batch_of(model)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    logits = reference_of(model)(**inputs).logits
    best = logits.argmax(-1)
    batch["labels"][:, 1] = best[:, 1]  # one chosen token of each row is one that it knows
    found = answer_of(model, batch)
    chosen = batch["labels"] != IGNORED
    assert found["chosen"].tolist() == chosen.sum(1).tolist() == [4, 2, 1]
    assert found["tokens"].tolist() == [9, 6, 4]
    right = ((best == batch["labels"]) & chosen).sum(1)
    assert found["mlm_right"].tolist() == right.tolist()
    assert (right >= 1).all()
    loss = functional.cross_entropy(logits.mT, batch["labels"], reduction="none").sum(1)
    torch.testing.assert_close(found["mlm_loss"], loss)


# ---- replaced tokens


class Says(torch.nn.Module):
    """A generator that gives the same logits whatever its input: (V,) or (B, T, V)."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, input_ids, **_):
        return MaskedLMOutput(logits=self.logits.expand(*input_ids.shape, -1))


def sure_of(tokens):
    return functional.one_hot(tokens, VOCABULARY) * 1000.0


def seen_by(model):
    """Return what the encoder is given, call by call, and its states."""
    seen = []
    model.network.base_model.register_forward_hook(
        lambda _, args, kwargs, out: seen.append((kwargs["input_ids"], out.last_hidden_state)),
        with_kwargs=True,
    )
    return seen


def test_the_generator_of_an_encoder_without_token_types_has_those_of_two_parts():
    of = AutoConfig.for_model("deberta-v2", vocab_size=VOCABULARY, pad_token_id=0, **SIZES)
    assert of.type_vocab_size == 0
    config = ObjectivesConfig(rtd=1.0, sop=1.0)
    model = Pretraining(fresh_network(of, config), config)
    assert model.generator.config.type_vocab_size == 2


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_a_generator_that_is_always_right_leaves_nothing_replaced(kind, training):
    model = model_of(kind, mlm=0.0, rtd=1.0).train(training)
    batch = batch_of(model)
    original = torch.where(batch["labels"] != IGNORED, batch["labels"], batch["input_ids"])
    seen = seen_by(model)
    model.generator = Says(sure_of(original))
    found = answer_of(model, batch)
    assert torch.equal(seen[0][0], original)
    assert found["replaced"].tolist() == found["generator_loss"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_only_chosen_tokens_are_replaced_and_what_is_guessed_right_is_original(kind, training):
    model = model_of(kind, mlm=0.0, rtd=1.0).train(training)
    batch = batch_of(model)
    chosen, inside = batch["labels"] != IGNORED, batch["attention_mask"].bool()
    batch["labels"][0, 1] = 7
    original = torch.where(chosen, batch["labels"], batch["input_ids"])
    seen = seen_by(model)
    model.generator = Says(sure_of(torch.tensor(7)))
    found = answer_of(model, batch)
    ((given, states),) = seen
    assert torch.equal(given, torch.where(chosen, 7, original))
    replaced = chosen & (original != 7)
    assert found["replaced"].tolist() == replaced.sum(1).tolist()
    assert not replaced[0, 1]
    head = model.network.discriminator_predictions if kind == "electra" else model.detector
    logits = head(states).reshape(replaced.shape)
    loss = functional.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    torch.testing.assert_close(found["rtd_loss"], (loss * inside).sum(1))
    assert found["rtd_right"].tolist() == (((logits > 0) == replaced) & inside).sum(1).tolist()
    total = objective(torch.stack([*found.values()], 1), ObjectivesConfig(mlm=0.0, rtd=0.5), None)
    detector = found["rtd_loss"].sum() / inside.sum()
    expected = 0.5 * (found["generator_loss"].sum() / chosen.sum() + 50 * detector)
    torch.testing.assert_close(total, expected)


def test_replacements_are_drawn_from_what_the_generator_says():
    model = model_of("bert", mlm=0.0, rtd=1.0)
    seen, batch = seen_by(model), batch_of(model, [40] * 40)
    tokens, shares = torch.tensor([8, 11, 39]), torch.tensor([0.5, 0.3, 0.2])
    model.generator = Says(torch.full((VOCABULARY,), -torch.inf).index_put((tokens,), shares.log()))
    for training in (True, False):
        model.train(training)
        seen.clear()
        for _ in range(3):
            model(**batch)
        drawn = [given[batch["labels"] != IGNORED] for given, _ in seen]
        counts = torch.cat(drawn if training else drawn[:1]).bincount(minlength=VOCABULARY)
        assert counts.nonzero()[:, 0].tolist() == tokens.tolist()
        torch.testing.assert_close(counts[tokens] / counts.sum(), shares, atol=0.07, rtol=0)
        assert all(torch.equal(one, drawn[0]) for one in drawn) != training


@pytest.mark.parametrize("kind", KINDS)
def test_the_generator_shares_the_embeddings_and_is_not_saved(kind, tmp_path):
    model = model_of(kind, rtd=1.0)
    words = model.network.get_input_embeddings()
    own = model.generator.electra.embeddings
    assert own.word_embeddings is words
    assert model.generator.generator_lm_head.weight is words.weight
    if kind in ("bert", "ernie", "megatron-bert", "electra"):
        theirs = model.network.base_model.embeddings
        assert own.position_embeddings is theirs.position_embeddings
        assert own.token_type_embeddings is theirs.token_type_embeddings
    answer_of(model, batch_of(model))["generator_loss"].sum().backward()
    assert words.weight.grad.abs().sum() > 0
    model.network.save_pretrained(tmp_path)
    again, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} <= {"pooler"}
    assert not any(name.startswith(("generator.", "detector.")) for name in info["unexpected_keys"])
    assert torch.equal(again.get_input_embeddings().weight, words.weight)


def test_the_generator_is_narrow_and_as_deep():
    same = model_of("bert", rtd=1.0, generator_size=1.0).generator.config
    assert (same.hidden_size, same.num_hidden_layers) == (64, 2)
    sizes = SIZES | {"vocab_size": VOCABULARY, "hidden_size": 512, "num_attention_heads": 8}
    wide, options = AutoConfig.for_model("bert", **sizes), ObjectivesConfig(rtd=1.0)
    quarter = Pretraining(fresh_network(wide, options), options).generator.config
    assert (quarter.hidden_size, quarter.num_attention_heads) == (128, 2)
    assert quarter.embedding_size == 512


def test_an_electra_keeps_its_own_detector(tmp_path):
    torch.manual_seed(0)
    electra = ElectraForPreTraining(config_of("electra"))
    electra.save_pretrained(tmp_path)
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *"abc"])}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(tmp_path)
    objectives = ObjectivesConfig(mlm=0.0, rtd=1.0)
    network, _ = load_encoder(str(tmp_path), objectives)
    found = Pretraining(network, objectives).detector.state_dict()
    torch.testing.assert_close(
        found, electra.discriminator_predictions.state_dict(), rtol=0, atol=0
    )


# ---- all together


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("objectives", MIXTURES, ids=str)
@pytest.mark.parametrize("kind", SOME)
def test_every_parameter_that_wants_a_gradient_gets_one(kind, objectives, chosen):
    model = model_of(kind, **objectives).train()
    batch = batch_of(model)
    if not chosen:  # the loss of a batch in which nothing is asked is a number
        batch["labels"].fill_(IGNORED)
    config = model.objectives
    loss = objective(model(**batch).logits, config, ORDER if config.pairs else None)
    loss.backward()
    assert torch.isfinite(loss)
    assert loss > 0 or (not chosen and not config.rtd and not config.pairs)
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        used = "encoder.layer" in name or "word_embeddings" in name
        assert parameter.requires_grad or not used, name


@pytest.mark.parametrize(
    "objectives", [{}, {"rtd": 1.0}, {"mlm": 0.0, "rtd": 1.0, "sop": 1.0, "nsp": 1.0}], ids=str
)
@pytest.mark.parametrize("kind", SOME)
def test_a_row_is_measured_alike_in_any_batch(kind, objectives):
    model = model_of(kind, **objectives).eval()
    batch, lengths = batch_of(model), (9, 6, 4)

    def alone(i):
        return {name: values[i : i + 1, : lengths[i]] for name, values in batch.items()}

    with torch.inference_mode():
        together = model(**batch).logits
        assert torch.equal(model(**batch).logits, together)
        longer = model(**batch_of(model, longest=16)).logits
        torch.manual_seed(5)
        each = torch.cat([model(**alone(i)).logits for i in range(3)])
    names = ("chosen", "replaced", "tokens", "mlm_right", "rtd_right")
    counts = [COLUMNS.index(name) for name in names]
    for other in (each, longer):
        torch.testing.assert_close(other, together, rtol=1e-4, atol=1e-5)
        assert torch.equal(other[:, counts], together[:, counts])


def test_dropout_is_for_training_alone():
    model = model_of("bert").train()
    batch = batch_of(model)
    assert not torch.equal(model(**batch).logits, model(**batch).logits)
    assert not answer_of(model, batch)["mlm_right"].any()  # not computed in training


# ---- by hand


def table_of(*rows):
    return torch.tensor([[float(row.get(name, 0)) for name in COLUMNS] for row in rows])


def test_order_is_learnt_from_the_rows_that_are_of_it_alone():
    order = torch.tensor([0, 1, 2, 0], dtype=torch.int8)
    row = {"nsp_logit": 1.0, "sop_logit": -2.0, "chosen": 1, "tokens": 4}
    table = table_of(*[row] * 4).requires_grad_(True)
    objective(table, ObjectivesConfig(nsp=1.0, sop=1.0), order).backward()
    signs = dict(zip(COLUMNS, table.grad.sign().T.tolist(), strict=True))
    assert signs["nsp_logit"] == [1, 0, -1, 1]  # 1 for what follows: its logit is to fall
    assert signs["sop_logit"] == [1, -1, 0, 1]
    nsp = (2 * math.log1p(math.e) + math.log1p(math.exp(-1))) / 3
    sop = (2 * math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 3
    found = objective(table, ObjectivesConfig(nsp=2.0, sop=3.0), order).item()
    assert found == pytest.approx(2 * nsp + 3 * sop)


def test_bert_tells_what_follows_with_its_own_head():
    model = model_of("bert", nsp=1.0).eval()
    batch = batch_of(model)
    answers = model(**batch).logits
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    out = model.network(**inputs).seq_relationship_logits
    torch.testing.assert_close(answers[:, COLUMNS.index("nsp_logit")], out[:, 1] - out[:, 0])
    expected = functional.cross_entropy(out, torch.tensor([0, 0, 1]))
    order = torch.tensor([FOLLOWS, FOLLOWS, ELSEWHERE])
    both = objective(answers, ObjectivesConfig(nsp=1.0), order)
    torch.testing.assert_close(both - objective(answers, ObjectivesConfig(), None), expected)


def test_the_loss_is_the_mean_over_tokens_and_not_over_rows():
    table = table_of({"mlm_loss": 6, "chosen": 3}, {"mlm_loss": 4, "chosen": 1})
    assert float(objective(table, ObjectivesConfig(mlm=2.0), None)) == pytest.approx(2 * 10 / 4)
    assert float(objective(table[:0], ObjectivesConfig(), None)) == 0


def test_measures_are_those_of_a_calculation_by_hand():
    table = table_of(
        {"mlm_loss": 6, "mlm_right": 1, "chosen": 3, "generator_loss": 3, "tokens": 9}
        | {"rtd_loss": 2, "rtd_right": 7, "replaced": 2},
        {"mlm_loss": 4, "mlm_right": 1, "chosen": 1, "generator_loss": 1, "tokens": 5}
        | {"rtd_loss": 1, "rtd_right": 5, "replaced": 1},
        {"rtd_right": 3, "tokens": 6},
    )
    assert measures(table, ObjectivesConfig(rtd=1.0), None) == pytest.approx(
        {
            "loss": 10 / 4 + 4 / 4 + 50 * 3 / 20,
            "mlm_loss": 2.5,
            "perplexity": math.exp(2.5),
            "mlm_accuracy": 0.5,
            "generator_loss": 1.0,
            "rtd_accuracy": 0.75,
            "rtd_majority": 0.85,
        }
    )
    far = measures(table_of({"mlm_loss": 9e9, "chosen": 1}), ObjectivesConfig(), None)
    assert math.isfinite(far["perplexity"])
    order = torch.tensor([0, 1, 2, 0, 2])
    logits = [(-1.0, -1.0), (5.0, 1.0), (1.0, 5.0), (-1.0, 1.0), (-1.0, 5.0)]
    table = table_of(*({"nsp_logit": nsp, "sop_logit": sop} for nsp, sop in logits))
    found = measures(table, ObjectivesConfig(nsp=1.0, sop=1.0), order)
    assert (found["nsp_accuracy"], found["sop_accuracy"]) == pytest.approx((3 / 4, 2 / 3))
    assert "sop_accuracy" not in measures(table, ObjectivesConfig(nsp=1.0), order)


def test_a_kind_without_a_masked_language_model_is_refused():
    with pytest.raises(InputError, match="gpt2 has no masked language model in transformers; exp"):
        fresh_network(AutoConfig.for_model("gpt2"), ObjectivesConfig())
