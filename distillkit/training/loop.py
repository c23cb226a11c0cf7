"""One small loop for teacher and student: accumulation, clipping, warm-up, best-on-dev."""

import copy
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

from distillkit.data.batches import Encoded, shuffled_batches
from distillkit.errors import InputError
from distillkit.recipe import TrainingConfig
from distillkit.training.precision import autocast, pick_device, resolve

# Row numbers (B,) and logits (B, C) in, mean loss over the batch out.
LossOfRows = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FitResult:
    """What training came to: the best dev score, the epoch that had it (from 1; 0: none ran), and each epoch's loss and score."""

    best_score: float
    best_epoch: int
    history: list[dict[str, float]]


def fit(
    model: nn.Module,
    rows: Encoded,
    loss: LossOfRows,
    evaluate: Callable[[nn.Module], float],
    config: TrainingConfig,
    seed: int,
    progress: str,
) -> FitResult:
    """Train a model and leave it with the weights that scored best; of epochs with the same score, the last one's.

    Args:
        model: Takes `rows.batch(...)` as keyword arguments and answers with `.logits`, (B, C).
        rows: Training rows; moved to the device whole.
        loss: Mean loss of a batch, from row numbers and logits.
        evaluate: Score of the model on dev after each epoch; higher is better.
        config: Epochs, batches, optimizer, schedule, precision.
        seed: Order of the rows, and dropout.
        progress: Name of the progress bar.

    Raises:
        InputError: Started by torchrun with more than one process, or the loss is not a number.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Else every rank would silently train everything.
        raise InputError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}: this version trains in one process; start it without torchrun"
        )
    device = pick_device()
    precision = resolve(config.precision, device)
    torch.manual_seed(seed)
    order = torch.Generator().manual_seed(seed)
    lengths = rows.lengths
    rows, model = rows.to(device), model.to(device)
    optimizer = make_optimizer(model, config)
    steps_an_epoch = math.ceil(math.ceil(len(rows) / config.batch_size) / config.accumulation_steps)
    scheduler = make_schedule(optimizer, config, steps_an_epoch * config.epochs)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    if not config.epochs:
        return FitResult(evaluate(model), 0, [])
    result, best = FitResult(-math.inf, 0, []), None
    with tqdm(total=len(rows) * config.epochs, desc=progress, unit="row", unit_scale=True, disable=None) as bar:
        for epoch in range(1, config.epochs + 1):
            model.train()
            total = torch.zeros((), device=device)
            batches = shuffled_batches(lengths, config.batch_size, order)
            for first in range(0, len(batches), config.accumulation_steps):
                group = batches[first : first + config.accumulation_steps]
                group_rows = sum(map(len, group))
                for batch in group:
                    batch = batch.to(device)
                    with autocast(precision, device):
                        logits = model(**rows.batch(batch)).logits
                    # Weighted by rows, so that n small batches give the gradient of one large one.
                    part = loss(batch, logits.float()) * (len(batch) / group_rows)
                    scaler.scale(part).backward()
                    total += part.detach() * group_rows
                    bar.update(len(batch))
                scaler.unscale_(optimizer)
                if config.max_grad_norm:
                    nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
            mean_loss = float(total) / len(rows)
            if not math.isfinite(mean_loss):
                raise InputError(
                    f"{progress}: the loss of epoch {epoch} is {mean_loss}; lower the learning rate ({config.learning_rate}) or choose precision fp32"
                )
            score = evaluate(model)
            result.history.append({"epoch": epoch, "loss": mean_loss, "dev": score})
            bar.set_postfix(loss=f"{mean_loss:.4f}", dev=f"{score:.4f}")
            # Of equals the last: a small dev set is soon all right, long before the logits are worth learning.
            if score >= result.best_score:
                result = FitResult(score, epoch, result.history)
                best = copy.deepcopy(model.state_dict())
    if best is not None:
        model.load_state_dict(best)
    model.eval()
    return result


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Build the optimizer; matrices decay, vectors (biases, norms) do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if config.optimizer == "adadelta":
        return torch.optim.Adadelta(groups, lr=config.learning_rate, rho=0.95)
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def make_schedule(
    optimizer: torch.optim.Optimizer, config: TrainingConfig, steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Build the schedule: linear warm-up, then linear decay to 0 or constant."""
    warmup = math.ceil(steps * config.warmup_fraction)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return (steps - step) / max(1, steps - warmup) if config.schedule == "linear" else 1.0

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
