"""What an encoder learns from text: masked tokens, replaced tokens, the order of two parts.

Axes: B rows, T tokens, M chosen tokens of all rows, H hidden, V vocabulary.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from distillkit.errors import InputError, checkpoint_errors
from distillkit.processes import quiet_transformers
from distillkit.recipe import ObjectivesConfig
from distillkit.teacher.checkpoint import load_config_of, resolve
from distillkit.teacher.masker import IGNORED, keyed_draw

# Sums over a row's tokens, and two logits: what `Pretraining` answers, a column each.
COLUMNS = (
    "mlm_loss",
    "mlm_right",
    "chosen",
    "generator_loss",
    "rtd_loss",
    "rtd_right",
    "replaced",
    "tokens",
    "nsp_logit",
    "sop_logit",
)
_COLUMN = {name: i for i, name in enumerate(COLUMNS)}
# Of nsp and sop the column of the logit, and the order that is to be told from 0.
_ORDERS = (("nsp_logit", 2), ("sop_logit", 1))

# Where each kind keeps the head that tells a masked token from its state; of others the whole
# output is computed.
_MLM_HEADS = dict.fromkeys(("bert", "ernie", "megatron-bert"), "cls.predictions")
_MLM_HEADS |= dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), "lm_head")
# Kinds with a pooler, which next-sentence prediction trained and fine-tuning goes on with.
_POOLED = ("bert", "ernie", "megatron-bert")
# A generator's attention head.
_HEAD_UNITS = 64


class Answer(NamedTuple):
    """What the training loop takes for logits: `COLUMNS` of each row, (B, 10) float32."""

    logits: Tensor


def load_encoder(model: str, objectives: ObjectivesConfig) -> tuple[Any, Any]:
    """Load a checkpoint to go on with its pre-training, with the head it had, or a new one.

    Args:
        model: As for `teacher.checkpoint.resolve`.
        objectives: Whether mlm is among them, and rtd for an ELECTRA, decides which head it gets.

    Returns:
        The model, float32, and its tokenizer.

    Raises:
        InputError: The checkpoint cannot be loaded, or has no masked language model.
    """
    from transformers import AutoTokenizer

    kind, folder = load_config_of(model).model_type, resolve(model)
    with checkpoint_errors(model), quiet_transformers(folder):
        network = _class_for(kind, objectives, model).from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        )
        return network, AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def fresh_network(config: Any, objectives: ObjectivesConfig) -> Any:
    """Build a model of random weights for the objectives."""
    return _class_for(config.model_type, objectives, config.model_type).from_config(
        config, trust_remote_code=False
    )


def _class_for(kind: str, objectives: ObjectivesConfig, model: str) -> Any:
    from transformers import (
        MODEL_FOR_MASKED_LM_MAPPING,
        AutoModel,
        AutoModelForMaskedLM,
        AutoModelForPreTraining,
    )

    if kind not in {config.model_type for config in MODEL_FOR_MASKED_LM_MAPPING}:
        raise InputError(
            f"{model}: {kind} has no masked language model in transformers; expected an encoder such as BERT"
        )
    if kind in _POOLED or (kind == "electra" and not objectives.mlm):
        return AutoModelForPreTraining
    return AutoModelForMaskedLM if objectives.mlm else AutoModel


class Pretraining(nn.Module):
    """An encoder with everything that its pre-training needs and its fine-tuning does not.

    Args:
        network: From `load_encoder` or `fresh_network`; it alone is saved.
        objectives: What it learns.
    """

    def __init__(self, network: Any, objectives: ObjectivesConfig) -> None:
        super().__init__()
        self.network, self.objectives = network, objectives
        config = network.config
        width = config.hidden_size
        self.kind = config.model_type
        self.generator = _generator(network, objectives.generator_size) if objectives.rtd else None
        self.detector: nn.Module | None = None
        if self.kind == "electra" and not objectives.mlm:
            self.detector = network.discriminator_predictions
        elif objectives.rtd:
            self.detector = _fresh(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        # Of a kind with a pooler, its own, and its own head for what follows.
        own = objectives.pairs and self.kind not in _POOLED
        self.pooler = _fresh(nn.Linear(width, width), nn.Tanh()) if own else None
        self.nsp = _fresh(nn.Linear(width, 2)) if own and objectives.nsp else None
        self.sop = _fresh(nn.Linear(width, 1)) if objectives.sop else None
        self._freeze_unused()

    def _freeze_unused(self) -> None:
        # DDP waits for the gradient of every parameter that wants one.
        # Some kinds have a pooler of their own that only fine-tuning uses.
        unused: list[nn.Module] = []
        pooler = dict(self.network.base_model.named_children()).get("pooler")
        if pooler is not None and not (self.kind in _POOLED and self.objectives.pairs):
            unused.append(pooler)
        if self.kind in _POOLED and not self.objectives.nsp:
            unused.append(self.network.cls.seq_relationship)
        if self.kind in _POOLED and not self.objectives.mlm:
            # Its decoder is the embeddings, which are trained.
            unused.append(self.network.cls.predictions.transform)
            self.network.cls.predictions.bias.requires_grad_(False)
        for module in unused:
            module.requires_grad_(False)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> Answer:
        """Compute every objective's sums.

        Args:
            input_ids: Masked tokens, (B, T) int64.
            attention_mask: 1 for tokens, 0 for padding, (B, T) int64.
            labels: The token that was there where one was chosen, else -100; (B, T) int64.
            token_type_ids: 0 for the first part of a row, 1 for the second, (B, T) int64.
        """
        inputs = {"attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        chosen = labels != IGNORED
        found: dict[str, Tensor] = {"chosen": chosen.sum(1), "tokens": attention_mask.sum(1)}
        states = None
        if self.objectives.mlm:
            states, logits = self._masked(input_ids, inputs, chosen)
            found["mlm_loss"] = _loss_by_row(logits, labels)
            if not self.training:
                right = (logits.argmax(-1) == labels[chosen]).float()
                found["mlm_right"] = _by_row(right, chosen)
        if self.generator is not None:
            logits = self.generator(input_ids=input_ids, **inputs).logits[chosen]
            found["generator_loss"] = _loss_by_row(logits, labels)
            original = torch.where(chosen, labels, input_ids)
            drawn = self._sampled(logits, original * attention_mask, chosen)
            corrupted = original.masked_scatter(chosen, drawn)
            seen = self.network.base_model(input_ids=corrupted, **inputs).last_hidden_state
            found |= self._detected(seen, corrupted != original, attention_mask)
            states = seen if states is None else states
        if self.objectives.pairs and states is not None:
            found |= self._followed(states)
        empty = found["tokens"].new_zeros(len(labels), dtype=torch.float32)
        return Answer(torch.stack([found.get(name, empty).float() for name in COLUMNS], 1))

    def _masked(
        self, input_ids: Tensor, inputs: dict[str, Tensor], chosen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the states, (B, T, H), and the logits of the chosen tokens, (M, V)."""
        if self.kind not in _MLM_HEADS:
            out = self.network(input_ids=input_ids, **inputs, output_hidden_states=True)
            return out.hidden_states[-1], out.logits[chosen]
        states = self.network.base_model(input_ids=input_ids, **inputs).last_hidden_state
        # The head of the few tokens that are asked for: of all of them it would cost as much as six
        # layers of MiniLM.
        return states, self.network.get_submodule(_MLM_HEADS[self.kind])(states[chosen])

    def _sampled(self, logits: Tensor, original: Tensor, chosen: Tensor) -> Tensor:
        """Draw the generator's tokens, (M,) int64; outside training the same for the same row."""
        if self.training:
            uniform = torch.rand(len(logits), device=logits.device)
        else:
            places = torch.arange(1, original.shape[1] + 1, device=original.device)
            uniform = keyed_draw((original * places).sum(1))(original.shape[1])[chosen]
        total = logits.detach().float().softmax(-1).cumsum(-1)
        # `right`: a token of probability 0 is not drawn by a 0 either.
        drawn = torch.searchsorted(total, (uniform * total[:, -1])[:, None], right=True)[:, 0]
        return drawn.clamp(max=total.shape[1] - 1)

    def _detected(
        self, states: Tensor, replaced: Tensor, attention_mask: Tensor
    ) -> dict[str, Tensor]:
        assert self.detector is not None
        logits = self.detector(states).reshape(replaced.shape).float()
        inside = attention_mask.bool()
        loss = functional.binary_cross_entropy_with_logits(
            logits, replaced.float(), reduction="none"
        )
        return {
            "rtd_loss": (loss * inside).sum(1),
            "rtd_right": (((logits > 0) == replaced) & inside).sum(1),
            "replaced": replaced.sum(1),
        }

    def _followed(self, states: Tensor) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        base = self.network.base_model
        pooled = base.pooler(states) if self.pooler is None else self.pooler(states[:, 0])
        if self.objectives.nsp:
            # As BERT has it: 0 for what follows, 1 for what does not.
            head = self.network.cls.seq_relationship if self.nsp is None else self.nsp
            two = head(pooled)
            found["nsp_logit"] = two[:, 1] - two[:, 0]
        if self.sop is not None:
            found["sop_logit"] = self.sop(pooled)[:, 0]
        return found


def counts_of(chosen: Tensor, tokens: Tensor, order: Tensor | None) -> Tensor:
    """Return what the terms of `objective` are means over, (4,) float32.

    Args:
        chosen: Tokens of each row that are asked for, (B,).
        tokens: Tokens of each row, (B,).
        order: As for `objective`.

    Returns:
        Chosen tokens, tokens, rows that are asked for nsp, rows that are asked for sop.
    """
    asked = [chosen.new_zeros(())] * 2
    if order is not None:
        asked = [_asked(order, negative).sum() for _, negative in _ORDERS]
    return torch.stack([count.float() for count in (chosen.sum(), tokens.sum(), *asked)])


def objective(
    table: Tensor,
    config: ObjectivesConfig,
    order: Tensor | None,
    counts: Tensor | None = None,
) -> Tensor:
    """Return the loss of rows, () float32: the weighted sums of the objectives over their counts.

    Args:
        table: What `Pretraining` answered, (B, 10).
        config: The weights.
        order: Of rows that are pairs, (B,): 0 the second follows the first, 1 they are swapped, 2
            the second is from another document.
        counts: `counts_of` more rows, for the share that these have in the mean loss of all; None:
            of these, for their own mean loss.

    Source: Devlin et al. 2019; Clark et al. 2020 (arXiv 2003.10555), section 2; Lan et al. 2020
    (arXiv 1909.11942), section 3.1.
    """
    sums = dict(zip(COLUMNS, table.sum(0), strict=True))
    if counts is None:
        counts = counts_of(table[:, _COLUMN["chosen"]], table[:, _COLUMN["tokens"]], order)
    # Of no chosen token at all the mean is 0, and still has a gradient for every process.
    chosen, tokens, *asked = counts.clamp_min(1)
    loss = config.mlm * sums["mlm_loss"] / chosen
    loss = loss + config.rtd * (
        sums["generator_loss"] / chosen + config.discriminator_weight * sums["rtd_loss"] / tokens
    )
    if order is not None:
        weights = (config.nsp, config.sop)
        for weight, (name, negative), rows in zip(weights, _ORDERS, asked, strict=True):
            each = functional.binary_cross_entropy_with_logits(
                table[:, _COLUMN[name]], (order == negative).float(), reduction="none"
            )
            loss = loss + weight * (each * _asked(order, negative)).sum() / rows
    return loss


def _asked(order: Tensor, negative: int) -> Tensor:
    return (order == 0) | (order == negative)


def measures(table: Tensor, config: ObjectivesConfig, order: Tensor | None) -> dict[str, float]:
    """Say how well held-out rows are known.

    Returns:
        `loss`; with mlm `mlm_loss` in nats a chosen token, `perplexity` (its exponential) and
        `mlm_accuracy`; with rtd `rtd_accuracy`, the share of tokens told right, and `rtd_majority`,
        what is right by calling every token original; with nsp and sop the share of rows told
        right.
    """
    sums = dict(zip(COLUMNS, table.double().sum(0).tolist(), strict=True))
    chosen, tokens = max(sums["chosen"], 1), max(sums["tokens"], 1)
    found = {"loss": float(objective(table.detach(), config, order))}
    if config.mlm:
        mlm = sums["mlm_loss"] / chosen
        found |= {
            "mlm_loss": mlm,
            "perplexity": math.exp(min(mlm, 700)),
            "mlm_accuracy": sums["mlm_right"] / chosen,
        }
    if config.rtd:
        found |= {
            "generator_loss": sums["generator_loss"] / chosen,
            "rtd_accuracy": sums["rtd_right"] / tokens,
            "rtd_majority": 1 - sums["replaced"] / tokens,
        }
    if order is not None:
        for weight, (name, negative) in zip((config.nsp, config.sop), _ORDERS, strict=True):
            asked = _asked(order, negative)
            if weight and asked.any():
                right = (table[:, _COLUMN[name]] > 0) == (order == negative)
                found[f"{name.removesuffix('_logit')}_accuracy"] = float(
                    right[asked].float().mean()
                )
    return found


def _by_row(values: Tensor, chosen: Tensor) -> Tensor:
    """Add up values of the chosen tokens, (M,), row by row, (B,)."""
    return values.new_zeros(len(chosen)).index_add(0, chosen.nonzero()[:, 0], values)


def _loss_by_row(logits: Tensor, labels: Tensor) -> Tensor:
    """Add up the cross-entropy of the chosen tokens' logits, (M, V), row by row, (B,)."""
    chosen = labels != IGNORED
    losses = functional.cross_entropy(logits.float(), labels[chosen], reduction="none")
    return _by_row(losses, chosen)


def _generator(network: Any, size: float) -> Any:
    """Build ELECTRA's small generator for an encoder: narrow, as deep, with the same embeddings.

    Source: Clark et al. 2020, sections 3.2 and 3.4: a quarter to half the width; token and position
    embeddings are shared.
    """
    from transformers import ElectraConfig, ElectraForMaskedLM

    of = network.config
    words = network.get_input_embeddings()
    heads = max(1, round(of.hidden_size * size / _HEAD_UNITS))
    generator = ElectraForMaskedLM(
        ElectraConfig(
            vocab_size=words.num_embeddings,
            embedding_size=words.embedding_dim,
            hidden_size=heads * _HEAD_UNITS,
            num_hidden_layers=of.num_hidden_layers,
            num_attention_heads=heads,
            intermediate_size=4 * heads * _HEAD_UNITS,
            max_position_embeddings=of.max_position_embeddings,
            type_vocab_size=getattr(of, "type_vocab_size", 1) or 2,  # DeBERTa has none, and says 0
            pad_token_id=of.pad_token_id,
        )
    )
    embeddings = generator.electra.embeddings
    embeddings.word_embeddings = words
    generator.generator_lm_head.weight = words.weight
    if network.config.model_type in (*_POOLED, "electra"):
        theirs = network.base_model.embeddings
        embeddings.position_embeddings = theirs.position_embeddings
        embeddings.token_type_embeddings = theirs.token_type_embeddings
    return generator


def _fresh(*layers: nn.Module) -> nn.Sequential:
    """Draw a new head's weights as BERT's are (Devlin et al. 2019, code)."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)
