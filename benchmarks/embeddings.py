"""Dev accuracy of one student by where its word vectors start.

python benchmarks/embeddings.py --transfer-set t.parquet --logits STORE --teacher TEACHER --glove
glove.txt --dev dev.tsv --column text --results cells.jsonl

Every finished cell is kept in `--results`: stopped, it goes on, and several processes may share the
cells (`--shard 0/2`). With `--table` it prints what is there. `--pieces` makes rare words into word
pieces, which are then met at serving time as well.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cells import Cell, accuracies, finished, grouped, parser, some, train_missing
from torch import Tensor

from distillkit.data.content import texts_of
from distillkit.data.logits import join_logits, joined_labels
from distillkit.data.tables import mask_of, read_table
from distillkit.measure.report import table
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
    load_config,
)
from distillkit.student.build import build_student
from distillkit.student.train import fit_plan, training_rows
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_states import word_states
from distillkit.training.loop import fit

# GloVe is a file of 50 numbers a word.
STARTS = {
    "random": EmbeddingConfig("random"),
    "glove": EmbeddingConfig("glove"),
    "teacher": EmbeddingConfig("teacher"),
}


def main() -> int:
    """Train what is missing, or print the table."""
    arguments = _parse()
    if arguments.table:
        print(_table(finished(arguments.results)))
        return 0
    keys = [
        {
            "start": start,
            "width": width,
            "pieces": arguments.pieces,
            "min_count": arguments.min_count,
            "epochs": arguments.epochs,
            "seed": seed,
        }
        for seed in arguments.seeds
        for width in arguments.widths
        for start in arguments.starts
        if start != "glove" or (width == 50 and arguments.glove)
    ]
    train_missing(arguments, keys, _student(arguments))
    return 0


def _student(arguments: argparse.Namespace) -> Callable[[Cell], Cell]:
    data = read_table(arguments.transfer_set, ColumnsConfig(), labels="optional")
    data = some(data, arguments.rows)
    dev, names = (
        read_table(arguments.dev, ColumnsConfig(text=arguments.column)),
        joined_labels(arguments.logits, {}),
    )
    logits = join_logits(data, arguments.logits, {})
    texts = texts_of(data)[0]
    shelf = load_config("students", "bilstm", StudentConfig())
    vocabulary = replace(shelf.vocabulary, subwords=arguments.pieces, min_count=arguments.min_count)
    training = TrainingConfig(
        epochs=arguments.epochs,
        batch_size=64,
        learning_rate=arguments.learning_rate,
        weight_decay=0.01,
    )
    teacher = load_classifier(arguments.teacher)
    kept: list[Tensor] = []  # what the teacher said: all widths start from it

    def ask(words: Sequence[str]) -> Tensor:
        if not kept:
            kept.append(word_states(*teacher, words))
        return kept[0]

    def train(key: Cell) -> Cell:
        embeddings, seed = replace(STARTS[key["start"]], dimension=key["width"]), key["seed"]
        if key["start"] == "glove":
            embeddings = replace(embeddings, source=arguments.glove)
        began = time.perf_counter()
        config = replace(shelf, vocabulary=vocabulary, embeddings=embeddings)
        model, tokenizer = build_student(texts, names, config, seed, ask, mask_of(data))
        built = time.perf_counter() - began
        loss, mask = LossConfig(), mask_of(data)
        rows = training_rows(model, tokenizer, data, logits, loss, training, mask=mask)
        plan = fit_plan(model, tokenizer, rows, dev, loss, training, seed)
        return {
            "rows": len(data),
            "accuracy": fit(model, plan).best_score,
            "build_seconds": built,
            "seconds": time.perf_counter() - began,
        }

    return train


def _table(cells: Sequence[Cell]) -> str:
    rows = [["width", "word vectors", "pieces", "rows", "epochs", "dev accuracy", "sd", "seeds"]]
    found = grouped(cells, "width", "pieces", "epochs", "start")
    order = sorted(found, key=lambda key: (key[:3], list(STARTS).index(key[3])))
    for width, pieces, epochs, start in order:
        group = found[width, pieces, epochs, start]
        about = [str(width), start, f"{pieces:,}", f"{group[0]['rows']:,}", str(epochs)]
        rows.append([*about, *accuracies(group)])
    return table(rows)


def _parse() -> argparse.Namespace:
    known = parser(__doc__)
    known.add_argument(
        "--glove", default="", help="a file of vectors of width 50; none: without it"
    )
    known.add_argument("--epochs", type=int, default=3)
    known.add_argument("--learning-rate", type=float, default=5e-4)
    known.add_argument("--widths", type=int, nargs="+", default=[50, 300])
    known.add_argument("--starts", nargs="+", choices=list(STARTS), default=list(STARTS))
    known.add_argument("--pieces", type=int, default=0, help="of the vocabulary, word pieces")
    known.add_argument(
        "--min-count", type=int, default=1, help="rarer words are unknown, or made of pieces"
    )
    return known.parse_args()


if __name__ == "__main__":
    sys.exit(main())
