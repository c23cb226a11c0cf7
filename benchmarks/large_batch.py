"""Dev accuracy and rows a second by batch size, AdamW beside LAMB, at the same number of epochs.

python benchmarks/large_batch.py student --transfer-set sst.parquet --logits STORE --teacher TEACHER
--dev dev.tsv --column sentence --results cells.jsonl python benchmarks/large_batch.py teacher
--train train.tsv --dev dev.tsv --column sentence --results cells.jsonl

Learning rates grow with the root of the batch from the one given for `--reference-batch`. Every
finished cell is kept in `--results`: stopped, it goes on, and several processes may share the cells
(`--shard 0/2`). With `--table` it prints what is there.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from statistics import mean

from cells import Cell, accuracies, finished, grouped, parser, some, train_missing
from torch import Tensor

from distillkit.data.content import texts_of
from distillkit.data.logits import join_logits, joined_labels
from distillkit.data.tables import mask_of, read_table
from distillkit.measure.report import table
from distillkit.recipe import (
    ColumnsConfig,
    LossConfig,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
    load_config,
)
from distillkit.student.build import build_student
from distillkit.student.train import fit_plan, training_rows
from distillkit.teacher import fine_tune
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_states import word_states
from distillkit.training.loop import fit

# Settings and seed in; rows and dev accuracy, 0 to 1, out.
Train = Callable[[TrainingConfig, int], tuple[int, float]]


def main() -> int:
    """Train what is missing, or print the table."""
    arguments = _parse()
    if arguments.table:
        print(_table(finished(arguments.results)))
        return 0
    keys = [
        {"what": arguments.what, "batch": batch, "optimizer": optimizer, "seed": seed}
        for seed in arguments.seeds
        for batch in sorted(arguments.batches, reverse=True)
        for optimizer in arguments.optimizers
    ]
    train = _student(arguments) if arguments.what == "student" else _teacher(arguments)

    def measured(key: Cell) -> Cell:
        rate, epochs = arguments.rates[key["optimizer"]], arguments.epochs
        training = TrainingConfig(
            epochs=epochs,
            batch_size=key["batch"],
            optimizer=key["optimizer"],
            learning_rate=rate,
            weight_decay=0.01,
            learning_rate_scaling="sqrt",
            reference_batch=arguments.reference_batch,
            warmup_fraction=arguments.warmup,
        )
        started = time.perf_counter()
        rows, accuracy = train(training, key["seed"])
        speed = rows * epochs / (time.perf_counter() - started)
        about = {"learning_rate": rate, "epochs": epochs, "rows": rows}
        return about | {"accuracy": accuracy, "rows_per_second": speed}

    train_missing(arguments, keys, measured)
    return 0


def _student(arguments: argparse.Namespace) -> Train:
    columns = ColumnsConfig(text=arguments.column)
    data = read_table(arguments.transfer_set, ColumnsConfig(), labels="optional")
    data = some(data, arguments.rows)
    dev, names = read_table(arguments.dev, columns), joined_labels(arguments.logits, {})
    logits = join_logits(data, arguments.logits, {})
    config = load_config("students", "bilstm", StudentConfig())
    texts = texts_of(data)[0]

    @cache
    def vectors(words: tuple[str, ...]) -> Tensor:
        return word_states(*load_classifier(arguments.teacher), words)

    def train(training: TrainingConfig, seed: int) -> tuple[int, float]:
        model, tokenizer = build_student(
            texts, names, config, seed, lambda words: vectors(tuple(words)), mask_of(data)
        )
        loss, mask = LossConfig(), mask_of(data)
        rows = training_rows(model, tokenizer, data, logits, loss, training, mask=mask)
        plan = fit_plan(model, tokenizer, rows, dev, loss, training, seed)
        result = fit(model, plan)
        return len(data), result.best_score

    return train


def _teacher(arguments: argparse.Namespace) -> Train:
    columns = ColumnsConfig(text=arguments.column)
    data, dev = read_table(arguments.train, columns), read_table(arguments.dev, columns)
    data = some(data, arguments.rows)
    config = load_config("teachers", "minilm-l6", TeacherConfig())

    def train(training: TrainingConfig, seed: int) -> tuple[int, float]:
        small = min(training.batch_size, arguments.forward_rows)
        training = replace(
            training, batch_size=small, accumulation_steps=training.batch_size // small
        )
        return len(data), fine_tune.fine_tune(data, dev, replace(config, training=training), seed)[
            2
        ].best_score

    return train


def _table(cells: Sequence[Cell]) -> str:
    rows = [["batch", "optimizer", "learning rate", "dev accuracy", "sd", "seeds", "rows a second"]]
    for (batch, optimizer), group in sorted(grouped(cells, "batch", "optimizer").items()):
        rate, speed = group[0]["learning_rate"], mean(cell["rows_per_second"] for cell in group)
        rows.append([f"{batch:,}", optimizer, f"{rate:g}", *accuracies(group), f"{speed:,.0f}"])
    return table(rows)


def _parse() -> argparse.Namespace:
    known = parser(__doc__)
    known.add_argument("what", choices=["student", "teacher"])
    known.add_argument("--train")
    known.add_argument("--epochs", type=int, default=1)
    known.add_argument("--batches", type=int, nargs="+", default=[64, 256, 1024, 4096, 16384])
    known.add_argument("--optimizers", nargs="+", default=["adamw", "lamb"])
    known.add_argument(
        "--adamw", type=float, default=5e-4, help="learning rate of AdamW at the reference batch"
    )
    known.add_argument(
        "--lamb", type=float, default=3e-3, help="learning rate of LAMB at the reference batch"
    )
    known.add_argument("--reference-batch", type=int, default=64)
    known.add_argument("--warmup", type=float, default=0.1)
    known.add_argument(
        "--forward-rows", type=int, default=128, help="teacher: rows a forward pass, accumulated"
    )
    arguments = known.parse_args()
    arguments.rates = {"adamw": arguments.adamw, "lamb": arguments.lamb}
    return arguments


if __name__ == "__main__":
    sys.exit(main())
