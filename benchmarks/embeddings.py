"""Dev accuracy of one student by where its word vectors start.

python benchmarks/embeddings.py --transfer-set t.parquet --logits STORE --teacher TEACHER --glove
glove.txt --dev dev.tsv --column text --results cells.jsonl

Every finished cell is kept in `--results`: stopped, it goes on, and several processes may share the
cells (`--shard 0/2`). With `--table` it prints what is there. `--pieces` makes rare words into word
pieces, which are then met at serving time as well.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

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
from distillkit.student.train import DistillationTask, prepare, training_rows
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.word_vectors import word_vectors
from distillkit.training.loop import fit

# GloVe is a file of 50 numbers a word.
STARTS = {
    "random": EmbeddingConfig("random"),
    "glove": EmbeddingConfig("glove"),
    "teacher": EmbeddingConfig("teacher"),
}
# Start, width and seed in; rows, dev accuracy, 0 to 1, and seconds until training began, out.
Train = Callable[[str, int, int], tuple[int, float, float]]


def main() -> int:
    """Train what is missing, or print the table."""
    arguments = _parse()
    if arguments.table:
        print(_table(_finished(arguments.results)))
        return 0
    cells = [
        (start, width, seed)
        for seed in arguments.seeds
        for width in arguments.widths
        for start in arguments.starts
        if start != "glove" or (width == 50 and arguments.glove)
    ]
    shard, shards = map(int, arguments.shard.split("/"))
    train = _student(arguments)
    for start, width, seed in cells[shard::shards]:
        vocabulary = {"pieces": arguments.pieces, "min_count": arguments.min_count}
        key = {
            "start": start,
            "width": width,
            **vocabulary,
            "epochs": arguments.epochs,
            "seed": seed,
        }
        if any(key.items() <= cell.items() for cell in _finished(arguments.results)):
            continue
        started = time.perf_counter()
        rows, accuracy, built = train(start, width, seed)
        cell = key | {
            "rows": rows,
            "accuracy": accuracy,
            "build_seconds": built,
            "seconds": time.perf_counter() - started,
        }
        with arguments.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell) + "\n")
        sys.stderr.write(json.dumps(cell) + "\n")
    return 0


def _student(arguments: argparse.Namespace) -> Train:
    data = read_table(arguments.transfer_set, ColumnsConfig(), labels="optional")
    if arguments.rows:
        data = data.take(list(range(0, len(data), -(-len(data) // arguments.rows))))
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
            kept.append(word_vectors(*teacher, words))
        return kept[0]

    def train(start: str, width: int, seed: int) -> tuple[int, float, float]:
        embeddings = replace(STARTS[start], dimension=width)
        if start == "glove":
            embeddings = replace(embeddings, source=arguments.glove)
        began = time.perf_counter()
        config = replace(shelf, vocabulary=vocabulary, embeddings=embeddings)
        model, tokenizer = build_student(texts, names, config, seed, ask, mask_of(data))
        built = time.perf_counter() - began
        loss, mask = LossConfig(), mask_of(data)
        rows = training_rows(model, tokenizer, data, logits, loss, training, mask=mask)
        task = DistillationTask(model, tokenizer, rows, dev, loss, training, seed)
        result = fit(*prepare(task))
        return len(data), result.best_score, built

    return train


def _finished(path: Path) -> list[dict]:
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.is_file()
        else []
    )


def _table(cells: Sequence[dict]) -> str:
    found: dict[tuple[int, int, int, str], list[dict]] = {}
    for cell in cells:
        found.setdefault((cell["width"], cell["pieces"], cell["epochs"], cell["start"]), []).append(
            cell
        )
    rows = [["width", "word vectors", "pieces", "rows", "epochs", "dev accuracy", "sd", "seeds"]]
    for (width, pieces, epochs, start), group in sorted(
        found.items(), key=lambda item: (item[0][:3], list(STARTS).index(item[0][3]))
    ):
        scores = [100 * cell["accuracy"] for cell in group]
        spread = f"{stdev(scores):.2f}" if len(scores) > 1 else ""
        rows.append(
            [
                str(width),
                start,
                f"{pieces:,}",
                f"{group[0]['rows']:,}",
                str(epochs),
                f"{mean(scores):.2f}",
                spread,
                str(len(group)),
            ]
        )
    return table(rows)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--transfer-set")
    parser.add_argument("--logits", type=Path)
    parser.add_argument("--teacher")
    parser.add_argument(
        "--glove", default="", help="a file of vectors of width 50; none: without it"
    )
    parser.add_argument("--dev")
    parser.add_argument("--column", default="text")
    parser.add_argument(
        "--rows", type=int, default=0, help="take about so many rows, evenly; 0: all"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--widths", type=int, nargs="+", default=[50, 300])
    parser.add_argument("--starts", nargs="+", choices=list(STARTS), default=list(STARTS))
    parser.add_argument("--pieces", type=int, default=0, help="of the vocabulary, word pieces")
    parser.add_argument(
        "--min-count", type=int, default=1, help="rarer words are unknown, or made of pieces"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--shard", default="0/1")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
