"""Fine-tune an encoder on labelled text with cross-entropy; every weight moves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from distillkit.data.batches import encode
from distillkit.data.tables import check_labels_known, label_ids, label_names, texts_of
from distillkit.recipe import TeacherConfig
from distillkit.teacher.checkpoint import load_classifier, own_labels
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.loop import FitResult, fit


def fine_tune(
    train: pa.Table, dev: pa.Table, config: TeacherConfig, seed: int, checkpoints: Checkpoints | None = None
) -> tuple[Any, Any, FitResult]:
    """Fine-tune a checkpoint and keep the epoch that is best on dev.

    Args:
        train: Canonical table, labelled.
        dev: Canonical table, labelled with labels of `train`.
        config: Which checkpoint, and how.
        seed: Draws the new head, the order of rows, dropout.
        checkpoints: Where training keeps what it needs to go on after a kill.

    Returns:
        The model (eval mode), its tokenizer, and how training went; the score is dev accuracy, 0 to 1.

    Raises:
        InputError: The checkpoint cannot be loaded, or a dev label is unknown.
    """
    labels = label_names(train)
    check_labels_known(dev, labels, "dev")
    # A checkpoint that knows these very labels keeps the order that its head was trained in.
    own = own_labels(config.model)
    labels = own if set(own) == set(labels) else labels
    torch.manual_seed(seed)  # the head is drawn on loading
    model, tokenizer = load_classifier(config.model, labels)
    rows = encode(tokenizer, *texts_of(train), config.max_tokens)
    dev_rows = encode(tokenizer, *texts_of(dev), config.max_tokens)
    gold, dev_gold = (torch.tensor(label_ids(table, labels)) for table in (train, dev))

    def loss(batch: Tensor, logits: Tensor, _: float) -> Tensor:
        nonlocal gold
        gold = gold.to(logits.device)
        return nn.functional.cross_entropy(logits, gold[batch])

    def accuracy(logits: Tensor) -> float:
        return float((logits.argmax(1) == dev_gold).double().mean())

    result = fit(
        model, rows, loss, config.training, seed, "teacher", dev=dev_rows, score=accuracy, checkpoints=checkpoints
    )
    return model, tokenizer, result


def save(model: Any, tokenizer: Any, folder: Path, max_tokens: int) -> None:
    """Save a checkpoint whose tokenizer truncates where training did."""
    tokenizer.model_max_length = min(tokenizer.model_max_length, max_tokens)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def word_vectors(model: Any, tokenizer: Any, words: Sequence[str], progress: str = "") -> Tensor:
    """Ask an encoder for one vector a word.

    Args:
        model: A sequence classifier with a base encoder.
        tokenizer: Its tokenizer.
        words: V words, each sent through the encoder alone.
        progress: Name of the progress bar; empty: none.

    Returns:
        Mean of the last hidden states of the word's own pieces, special tokens left out, (V, H) float32 on the CPU.
    """
    from tqdm import tqdm

    from distillkit.data.batches import budget_batches

    rows = encode(tokenizer, words, None, 32)
    special = torch.tensor(sorted(tokenizer.all_special_ids))
    encoder = model.base_model.eval()
    device = next(encoder.parameters()).device
    vectors = torch.empty(len(words), model.config.hidden_size)
    with (
        torch.inference_mode(),
        tqdm(total=len(words), desc=progress, unit="word", disable=None if progress else True) as bar,
    ):
        for batch in budget_batches(rows.lengths, 4096):
            inputs = rows.batch(batch)
            states = (
                encoder(**{k: v.to(device) for k, v in inputs.items()}).last_hidden_state.float().cpu()
            )  # (B, T, H)
            own = (
                (inputs["attention_mask"].bool() & ~torch.isin(inputs["input_ids"], special)).float().unsqueeze(2)
            )  # (B, T, 1)
            vectors[batch] = (states * own).sum(1) / own.sum(1).clamp(min=1)
            bar.update(len(batch))
    return vectors.clone()
