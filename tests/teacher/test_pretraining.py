"""What an encoder learns from text: the same numbers as transformers' own heads, and as calculations by hand."""

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
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
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
    "modernbert": {
        "attn_implementation": "eager",
        "bos_token_id": 2,
        "eos_token_id": 3,
        "cls_token_id": 2,
        "sep_token_id": 3,
    },
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
    return AutoConfig.for_model(
        kind, **{"vocab_size": VOCABULARY, "pad_token_id": 0} | sizes | KINDS[kind]
    )


def model_of(kind, seed=0, **objectives):
    torch.manual_seed(seed)
    config = ObjectivesConfig(**objectives)
    return Pretraining(fresh_network(config_of(kind), config), config)


def batch_of(model, lengths=(9, 6, 4), seed=0, longest=None):
    """Make masked rows of a padding token of the model's own."""
    random = torch.Generator().manual_seed(seed)
    pad = model.network.config.pad_token_id
    longest = longest or max(lengths)
    ids, inside = (
        torch.full((len(lengths), longest), pad),
        torch.zeros(len(lengths), longest, dtype=torch.long),
    )
    labels = torch.full_like(ids, IGNORED)
    for i, length in enumerate(lengths):
        row = torch.randint(5, VOCABULARY, (length,), generator=random)
        row[0], row[-1] = 2, 3
        ids[i, :length], inside[i, :length] = row, 1
        for place in range(1, length - 1, 2):
            labels[i, place], ids[i, place] = ids[i, place].item(), 4
    return {"input_ids": ids, "attention_mask": inside, "labels": labels}


ORDER = torch.tensor([FOLLOWS, SWAPPED, ELSEWHERE])


# ---- masked language modelling


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_of_transformers_own_head(kind):
    model = model_of(kind).eval()
    reference = AutoModelForMaskedLM.from_config(config_of(kind))
    missing, _ = reference.load_state_dict(model.network.state_dict(), strict=False)
    assert not missing
    reference.tie_weights()
    reference.eval()
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *(f"w{i}" for i in range(VOCABULARY - 5)),
    ]
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
    ours = {name: p.grad for name, p in model.network.named_parameters() if p.grad is not None}
    theirs = {name: p.grad for name, p in reference.named_parameters() if p.grad is not None}
    assert set(ours) == set(theirs)
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_what_is_right_is_counted_row_by_row(kind):
    model = model_of(kind).eval()
    batch = batch_of(model)
    states = AutoModelForMaskedLM.from_config(config_of(kind)).eval()
    states.load_state_dict(model.network.state_dict(), strict=False)
    states.tie_weights()
    logits = states(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    best = logits.argmax(-1)
    for row in range(3):  # the second chosen token of each row is one that it knows
        batch["labels"][row, 1] = best[row, 1]
    found = dict(zip(COLUMNS, model(**batch).logits.T, strict=True))
    chosen = batch["labels"] != IGNORED
    assert found["chosen"].tolist() == chosen.sum(1).tolist() == [4, 2, 1]
    assert found["tokens"].tolist() == [9, 6, 4]
    right = ((best == batch["labels"]) & chosen).sum(1)
    assert found["mlm_right"].tolist() == right.tolist()
    assert (right >= 1).all()
    for row in range(3):
        expected = functional.cross_entropy(
            logits[row][chosen[row]], batch["labels"][row][chosen[row]], reduction="sum"
        )
        torch.testing.assert_close(found["mlm_loss"][row], expected)


# ---- replaced tokens


class Says(torch.nn.Module):
    """A generator that says the same whatever it is asked: logits, (V,) or (B, T, V)."""

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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_a_generator_that_is_always_right_leaves_nothing_replaced(kind, training):
    model = model_of(kind, mlm=0.0, rtd=1.0).train(training)
    batch = batch_of(model)
    chosen = batch["labels"] != IGNORED
    original = torch.where(chosen, batch["labels"], batch["input_ids"])
    seen = seen_by(model)
    model.generator = Says(sure_of(original))
    found = dict(zip(COLUMNS, model(**batch).logits.T, strict=True))
    assert torch.equal(seen[0][0], original)
    assert found["replaced"].tolist() == [0, 0, 0]
    assert found["generator_loss"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_only_chosen_tokens_are_replaced_and_what_is_guessed_right_is_original(kind, training):
    model = model_of(kind, mlm=0.0, rtd=1.0).train(training)
    batch = batch_of(model)
    chosen = batch["labels"] != IGNORED
    batch["labels"][0, 1] = 7
    original = torch.where(chosen, batch["labels"], batch["input_ids"])
    seen = seen_by(model)
    model.generator = Says(sure_of(torch.tensor(7)))
    found = dict(zip(COLUMNS, model(**batch).logits.T, strict=True))
    ((given, states),) = seen
    assert torch.equal(given, torch.where(chosen, 7, original))
    replaced = chosen & (original != 7)
    assert found["replaced"].tolist() == replaced.sum(1).tolist()
    assert not replaced[0, 1]
    head = model.network.discriminator_predictions if kind == "electra" else model.detector
    logits = head(states).reshape(replaced.shape)
    inside = batch["attention_mask"].bool()
    loss = functional.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    torch.testing.assert_close(found["rtd_loss"], (loss * inside).sum(1))
    assert found["rtd_right"].tolist() == (((logits > 0) == replaced) & inside).sum(1).tolist()
    total = objective(
        torch.stack([found[name] for name in COLUMNS], 1), ObjectivesConfig(mlm=0.0, rtd=0.5), None
    )
    expected = 0.5 * (
        found["generator_loss"].sum() / chosen.sum() + 50 * found["rtd_loss"].sum() / inside.sum()
    )
    torch.testing.assert_close(total, expected)


def test_replacements_are_drawn_from_what_the_generator_says():
    model = model_of("bert", mlm=0.0, rtd=1.0)
    seen, batch = seen_by(model), batch_of(model, [40] * 40)
    logits = torch.full((VOCABULARY,), -torch.inf)
    logits[[8, 11, 39]] = torch.tensor([0.5, 0.3, 0.2]).log()
    model.generator = Says(logits)
    for training in (True, False):
        model.train(training)
        seen.clear()
        for _ in range(3):
            model(**batch)
        tokens = torch.cat(
            [given[batch["labels"] != IGNORED] for given, _ in seen[: 3 if training else 1]]
        )
        shares = torch.bincount(tokens, minlength=VOCABULARY) / len(tokens)
        assert set(tokens.tolist()) == {8, 11, 39}
        torch.testing.assert_close(
            shares[[8, 11, 39]], torch.tensor([0.5, 0.3, 0.2]), atol=0.07, rtol=0
        )
        assert all(torch.equal(given, seen[0][0]) for given, _ in seen) != training


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
    objective(
        model(**batch_of(model)).logits[:, 3:4].expand(-1, 10) * torch.eye(10)[3],
        model.objectives,
        None,
    ).backward()
    assert words.weight.grad.abs().sum() > 0  # of the generator's loss alone
    model.network.save_pretrained(tmp_path)
    again, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} <= {"pooler"}
    assert not any(name.startswith(("generator.", "detector.")) for name in info["unexpected_keys"])
    assert torch.equal(again.get_input_embeddings().weight, words.weight)


def test_the_generator_is_narrow_and_as_deep():
    model = model_of("bert", rtd=1.0, generator_size=1.0)
    assert (model.generator.config.hidden_size, model.generator.config.num_hidden_layers) == (64, 2)
    wide = AutoConfig.for_model(
        "bert", **SIZES | {"vocab_size": VOCABULARY, "hidden_size": 512, "num_attention_heads": 8}
    )
    options = ObjectivesConfig(rtd=1.0)
    quarter = Pretraining(fresh_network(wide, options), options).generator
    assert (
        quarter.config.hidden_size,
        quarter.config.num_attention_heads,
        quarter.config.embedding_size,
    ) == (128, 2, 512)


def test_an_electra_keeps_its_own_detector(tmp_path):
    torch.manual_seed(0)
    electra = ElectraForPreTraining(config_of("electra"))
    electra.save_pretrained(tmp_path)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]
    BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)}).save_pretrained(
        tmp_path
    )
    objectives = ObjectivesConfig(mlm=0.0, rtd=1.0)
    network, _ = load_encoder(str(tmp_path), objectives)
    weights = electra.discriminator_predictions.state_dict()
    model = Pretraining(network, objectives)
    assert all(
        torch.equal(weights[name], value) for name, value in model.detector.state_dict().items()
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
    wanting = {name for name, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert wanting == set()
    still = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert all(p.grad is None for name, p in model.named_parameters() if name in still)
    assert not any("encoder.layer" in name or "word_embeddings" in name for name in still)


@pytest.mark.parametrize(
    "objectives", [{}, {"rtd": 1.0}, {"mlm": 0.0, "rtd": 1.0, "sop": 1.0, "nsp": 1.0}], ids=str
)
@pytest.mark.parametrize("kind", SOME)
def test_a_row_is_measured_alike_in_any_batch(kind, objectives):
    model = model_of(kind, **objectives).eval()
    batch = batch_of(model)
    with torch.inference_mode():
        together = model(**batch).logits
        assert torch.equal(model(**batch).logits, together)
        longer = model(**batch_of(model, longest=16)).logits
        torch.manual_seed(5)
        alone = torch.cat(
            [
                model(**{name: t[i : i + 1, : (9, 6, 4)[i]] for name, t in batch.items()}).logits
                for i in range(3)
            ]
        )
    counts = [
        COLUMNS.index(name) for name in ("chosen", "replaced", "tokens", "mlm_right", "rtd_right")
    ]
    for other in (alone, longer):
        torch.testing.assert_close(other, together, rtol=1e-4, atol=1e-5)
        assert torch.equal(other[:, counts], together[:, counts])


def test_dropout_is_for_training_alone():
    model, batch = model_of("bert"), None
    batch = batch_of(model)
    assert not torch.equal(model.train()(**batch).logits, model(**batch).logits)
    assert not model(**batch).logits[:, COLUMNS.index("mlm_right")].any()  # not looked at then


# ---- by hand


def table_of(rows):
    table = torch.zeros(len(rows), len(COLUMNS))
    for i, row in enumerate(rows):
        for name, value in row.items():
            table[i, COLUMNS.index(name)] = value
    return table


def test_order_is_learnt_from_the_rows_that_are_of_it_alone():
    order = torch.tensor([0, 1, 2, 0], dtype=torch.int8)
    table = table_of(
        [{"nsp_logit": 1.0, "sop_logit": -2.0, "chosen": 1, "tokens": 4}] * 4
    ).requires_grad_(True)
    objective(table, ObjectivesConfig(nsp=1.0, sop=1.0), order).backward()
    assert (table.grad[:, COLUMNS.index("nsp_logit")] != 0).tolist() == [True, False, True, True]
    assert (table.grad[:, COLUMNS.index("sop_logit")] != 0).tolist() == [True, True, False, True]
    signs = table.grad.sign()  # 1 for what follows: its logit is to fall
    assert signs[:, COLUMNS.index("nsp_logit")].tolist() == [1, 0, -1, 1]
    assert signs[:, COLUMNS.index("sop_logit")].tolist() == [1, -1, 0, 1]
    nsp = (2 * math.log1p(math.e) + math.log1p(math.exp(-1))) / 3
    sop = (2 * math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 3
    assert objective(table, ObjectivesConfig(nsp=2.0, sop=3.0), order).item() == pytest.approx(
        2 * nsp + 3 * sop
    )


def test_bert_tells_what_follows_with_its_own_head():
    model = model_of("bert", nsp=1.0).eval()
    batch = batch_of(model)
    found = model(**batch).logits[:, COLUMNS.index("nsp_logit")]
    out = model.network(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
    ).seq_relationship_logits
    torch.testing.assert_close(found, out[:, 1] - out[:, 0])
    expected = functional.cross_entropy(out, torch.tensor([0, 0, 1]))
    order = torch.tensor([FOLLOWS, FOLLOWS, ELSEWHERE])
    both = objective(model(**batch).logits, ObjectivesConfig(nsp=1.0), order)
    without = objective(model(**batch).logits, ObjectivesConfig(), None)
    torch.testing.assert_close(both - without, expected)


def test_the_loss_is_the_mean_over_tokens_and_not_over_rows():
    table = table_of(
        [{"mlm_loss": 6.0, "chosen": 3, "tokens": 9}, {"mlm_loss": 4.0, "chosen": 1, "tokens": 5}]
    )
    assert float(objective(table, ObjectivesConfig(mlm=2.0), None)) == pytest.approx(2 * 10 / 4)
    assert float(objective(table[:0], ObjectivesConfig(), None)) == 0


def test_measures_are_those_of_a_calculation_by_hand():
    rows = [
        {
            "mlm_loss": 6.0,
            "mlm_right": 1,
            "chosen": 3,
            "generator_loss": 3.0,
            "rtd_loss": 2.0,
            "rtd_right": 7,
            "replaced": 2,
            "tokens": 9,
        },
        {
            "mlm_loss": 4.0,
            "mlm_right": 1,
            "chosen": 1,
            "generator_loss": 1.0,
            "rtd_loss": 1.0,
            "rtd_right": 5,
            "replaced": 1,
            "tokens": 5,
        },
        {"chosen": 0, "rtd_right": 3, "tokens": 6},
    ]
    found = measures(table_of(rows), ObjectivesConfig(rtd=1.0), None)
    assert found == pytest.approx(
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
    order = torch.tensor([0, 1, 2, 0, 2])
    logits = [(-1.0, -1.0), (5.0, 1.0), (1.0, 5.0), (-1.0, 1.0), (-1.0, 5.0)]
    table = table_of([{"nsp_logit": nsp, "sop_logit": sop} for nsp, sop in logits])
    found = measures(table, ObjectivesConfig(nsp=1.0, sop=1.0), order)
    assert (found["nsp_accuracy"], found["sop_accuracy"]) == pytest.approx((3 / 4, 2 / 3))
    assert "sop_accuracy" not in measures(table, ObjectivesConfig(nsp=1.0), order)
    assert math.isfinite(
        measures(table_of([{"mlm_loss": 9e9, "chosen": 1}]), ObjectivesConfig(), None)["perplexity"]
    )


def test_a_kind_without_a_masked_language_model_is_refused():
    with pytest.raises(
        InputError,
        match="gpt2 has no masked language model in transformers; expected an encoder such as BERT",
    ):
        fresh_network(AutoConfig.for_model("gpt2"), ObjectivesConfig())
