"""Go on with an encoder's pre-training on text of its domain, before it is fine-tuned."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distillkit.data.batches import Encoded
from distillkit.data.checked import save_pretrained
from distillkit.data.rows import TextRows
from distillkit.data.workers import leading
from distillkit.errors import InputError
from distillkit.processes import progress_bar
from distillkit.recipe import AdaptConfig
from distillkit.teacher.checkpoint import SCRATCH
from distillkit.teacher.documents import Corpus, documents_of, read_corpus
from distillkit.teacher.masker import IGNORED, Masker, fresh_draw, keyed_draw
from distillkit.teacher.pretraining import (
    Pretraining,
    counts_of,
    fresh_network,
    load_encoder,
    measures,
    objective,
)
from distillkit.teacher.scratch import fresh_encoder, start_embeddings
from distillkit.teacher.similar import similar_words
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.inference import predict_logits
from distillkit.training.layers import positions_of
from distillkit.training.loop import fit
from distillkit.training.plan import CountedLoss, FitPlan, FitResult

_MASK_ROWS = 1024  # held-out rows that are masked together
_HELD_OUT_KEY, _PRIME = 1 << 40, 1_000_003  # spread the numbers of rows over all keys


@dataclass(frozen=True)
class Adapted:
    """An adapted encoder.

    Attributes:
        network: With the head of its objective, in eval mode, for `save_pretrained`.
        tokenizer: Its own.
        result: How training went; the score is minus the loss on the held-out rows.
        text: How many documents, rows and tokens there were.
        held_out: `teacher.pretraining.measures` of the held-out rows, `before` and `after`.
    """

    network: Any
    tokenizer: Any
    result: FitResult
    text: dict[str, Any]
    held_out: dict[str, dict[str, float]]


def adapt(
    config: AdaptConfig, model: str, seed: int, checkpoints: Checkpoints | None = None
) -> Adapted:
    """Adapt an encoder, or train one from scratch; keep the epoch that knows held-out text best.

    Args:
        config: The text, what is masked, what is learnt, and how.
        model: A checkpoint, as for `teacher.checkpoint.resolve`; or `scratch`, which builds
            `config.scratch`.
        seed: Draws the held-out masks, new heads, the order of rows, masks, dropout.
        checkpoints: Where training keeps what it needs to go on after a kill.

    Raises:
        InputError: There is no text, the checkpoint cannot be loaded, or what a strategy needs is
            missing.
    """
    if not config.text.sources:
        raise InputError(
            "adapt.text.sources is empty: expected text to adapt to, as in --adapt.text.sources reviews.txt"
        )
    torch.manual_seed(seed)  # new heads are drawn on loading
    network, tokenizer = _start(config, model)
    _check_length(network, config)
    corpus = _corpus(config, tokenizer, seed)
    if model == SCRATCH and config.scratch.embeddings == "co-occurrence":
        start_embeddings(network, corpus.train, seed)
    similar = None
    if config.masking.of_strategy.similar:
        embeddings = network.get_input_embeddings().weight
        similar = similar_words(corpus.train, tokenizer, embeddings, config.masking.similar)
    masker = Masker(config.masking, tokenizer, similar)
    result, held_out = _train(network, corpus, masker, config, seed, checkpoints)
    network.requires_grad_(True)  # fine-tuning may need weights that this objective left alone
    return Adapted(network.cpu().eval(), tokenizer, result, corpus.summary, held_out)


def _start(config: AdaptConfig, model: str) -> tuple[Any, Any]:
    """Return the encoder to start from, with the heads of its objectives, and its tokenizer."""
    if model != SCRATCH:
        return load_encoder(model, config.objectives)
    texts = documents_of(config.text)
    bar = progress_bar(texts, desc="adapt: word pieces", unit="doc", unit_scale=True)
    shape, tokenizer = fresh_encoder(bar, config.scratch)
    return fresh_network(shape, config.objectives), tokenizer


def _corpus(config: AdaptConfig, tokenizer: Any, seed: int) -> Corpus:
    pairs = (config.objectives.nsp, config.objectives.sop)
    with leading() as leads:  # the other processes find the rows that the first has cut
        found = read_corpus(config.text, tokenizer, pairs=pairs, seed=seed) if leads else None
    return found or read_corpus(config.text, tokenizer, pairs=pairs, seed=seed)


def _train(
    network: Any,
    corpus: Corpus,
    masker: Masker,
    config: AdaptConfig,
    seed: int,
    checkpoints: Checkpoints | None,
) -> tuple[FitResult, dict[str, dict[str, float]]]:
    """Train; return how it went and the held-out measures before and after."""
    model = Pretraining(network, config.objectives)
    held_out = masked(corpus.held_out, masker, seed)
    order, held_order = corpus.train.order, corpus.held_out.order

    def own(numbers: Tensor) -> Tensor | None:
        nonlocal order
        if order is None:
            return None
        order = order.to(numbers.device)  # for good: a copy a batch would wait for the device
        return order[numbers]

    def count(numbers: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        chosen = (inputs["labels"] != IGNORED).sum(1)
        return counts_of(chosen, inputs["attention_mask"].sum(1), own(numbers))

    def share(numbers: Tensor, counts: Tensor, table: Tensor) -> Tensor:
        return objective(table, config.objectives, own(numbers), counts)

    def score(table: Tensor) -> float:
        return -measures(table, config.objectives, held_order)["loss"]

    def measured() -> dict[str, float]:
        table = predict_logits(model, held_out, precision=config.training.precision)
        return measures(table, config.objectives, held_order)

    before = measured()
    plan = FitPlan(
        corpus.train,
        CountedLoss(count, share),
        config.training,
        seed,
        "adapt",
        dev=held_out,
        score=score,
        checkpoints=checkpoints,
        corrupt=_DrawnMasks(masker),
    )
    result = fit(model, plan)
    return result, {"before": before, "after": measured()}


@dataclass(frozen=True)
class _DrawnMasks:
    """Masks training batches, anew each time (RoBERTa)."""

    masker: Masker

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        ids = inputs["input_ids"]
        draw = fresh_draw(len(ids), ids.device)
        masked_ids, labels = self.masker(ids, inputs.pop("words"), draw)
        return inputs | {"input_ids": masked_ids, "labels": labels}


@dataclass(frozen=True)
class _MaskedRows(Encoded):
    """Rows whose masks are drawn once; `labels`, flat as `ids` are, is what the masker returned."""

    labels: Tensor

    def _columns(self) -> Iterator[tuple[str, Tensor, int]]:
        yield from super()._columns()
        yield "labels", self.labels, IGNORED


def masked(rows: TextRows, masker: Masker, seed: int) -> Encoded:
    """Return rows that are masked once, with `labels` in their batches, to measure by."""
    ids, labels = rows.ids.clone(), torch.empty_like(rows.ids)
    for numbers in torch.arange(len(rows)).split(_MASK_ROWS):
        batch = rows.batch(numbers)
        inside = batch["attention_mask"].bool()
        draw = keyed_draw((numbers + _HELD_OUT_KEY) * _PRIME * _PRIME + seed)
        hidden, chosen = masker(batch["input_ids"], batch["words"], draw)
        here = slice(int(rows.offsets[numbers[0]]), int(rows.offsets[numbers[-1] + 1]))
        ids[here], labels[here] = hidden[inside].to(ids.dtype), chosen[inside].to(ids.dtype)
    return _MaskedRows(ids, rows.types, rows.offsets, rows.pad_id, labels)


def _check_length(network: Any, config: AdaptConfig) -> None:
    longest = positions_of(network)
    if longest is not None and config.text.max_tokens > longest:
        raise InputError(
            f"adapt.text.max_tokens is {config.text.max_tokens}: expected at most {longest}, which the encoder reads"
        )


def save(adapted: Adapted, folder: Path) -> None:
    """Save the encoder as an ordinary checkpoint."""
    save_pretrained(folder, adapted.network, adapted.tokenizer)
