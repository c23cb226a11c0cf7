"""Rows a second that train the paper's BiLSTM: a plain PyTorch loop with a packed two-way LSTM, and distillkit's.

python benchmarks/student_speed.py --transfer-set sst.parquet

Both train in turn, in one process, on the same rows, tokenised before, from logits drawn at random:
speed does not depend on them. The plain loop is a DataLoader that shuffles and pads to the longest,
nn.LSTM over packed rows and AdamW as they come; it neither clips gradients nor has a schedule. It
wants an idle machine, and OMP_WAIT_POLICY unset: with `passive`, threads sleep between the many
small steps of an LSTM.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from tables import keyed, save_results
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

from distillkit.augment.augmenter import Augmenter
from distillkit.data.batches import Encoded, encode
from distillkit.data.tables import mask_of, read_table
from distillkit.measure.report import table
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    Precision,
    TrainingConfig,
    VocabularyConfig,
)
from distillkit.student.bilstm import BiLSTMConfig, BiLSTMForSequenceClassification
from distillkit.student.vocabulary import build_tokenizer
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan

BATCH_SIZES = (64, 256)
WIDTH, HIDDEN, HEAD, DROPOUT = 300, 150, 200, 0.1
# Operations by their part in a step; an operation that is in no list is "everything else".
PARTS = {
    "LSTM, forward": ("aten::mkldnn_rnn_layer", "aten::lstm"),
    "LSTM, backward": (
        "aten::mkldnn_rnn_layer_backward",
        "autograd::engine::evaluate_function: MkldnnRnnLayerBackward0",
    ),
    "optimizer": ("aten::_fused_adamw_", "Optimizer.step#AdamW.step"),
    "gradient norm and clipping": (
        "aten::linalg_vector_norm",
        "aten::mul_",
        "aten::_foreach_mul_",
        "aten::_foreach_norm",
    ),
    "embeddings and gathers": (
        "aten::embedding_dense_backward",
        "aten::index_select",
        "aten::index",
        "aten::gather",
    ),
    "dropout's noise": ("aten::random_", "aten::bernoulli_"),
    "zeros and copies": ("aten::fill_", "aten::copy_", "aten::cat"),
}


class PlainBiLSTM(nn.Module):
    """The same student as it is usually written."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH, padding_idx=0)
        self.lstm = nn.LSTM(WIDTH, HIDDEN, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(DROPOUT)
        self.dense = nn.Linear(2 * HIDDEN, HEAD)
        self.out = nn.Linear(HEAD, 2)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Map padded rows (B, T) and their lengths (B,) to logits (B, C)."""
        x = self.dropout(self.embedding(ids))
        _, (last, _) = self.lstm(
            pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        )
        return self.out(torch.relu(self.dense(self.dropout(torch.cat([last[0], last[1]], dim=1)))))


def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad rows to the longest."""
    ids, logits = zip(*rows, strict=True)
    return (
        pad_sequence(ids, batch_first=True),
        torch.tensor([len(row) for row in ids]),
        torch.stack(logits),
    )


def train_plainly(
    words: int, rows: Encoded, logits: Tensor, batch_size: int, precision: Precision
) -> None:
    """Train for one epoch as a tutorial does."""
    model = PlainBiLSTM(words)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # A packed row has one token at least.
    ids = [
        row.long() if len(row) else torch.ones(1, dtype=torch.long)
        for row in rows.ids.split(rows.lengths.tolist())
    ]
    loader = DataLoader(
        list(zip(ids, logits, strict=True)), batch_size, shuffle=True, collate_fn=collate
    )  # type: ignore[arg-type]
    for padded, lengths, wanted in loader:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            found = model(padded, lengths)
        loss = nn.functional.mse_loss(found.float(), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_here(
    words: int, rows: Encoded, logits: Tensor, batch_size: int, precision: Precision
) -> None:
    """Train for one epoch with distillkit."""
    config = BiLSTMConfig(
        HIDDEN,
        vocab_size=words,
        embedding_size=WIDTH,
        head_size=HEAD,
        dropout=DROPOUT,
        num_labels=2,
    )
    training = TrainingConfig(
        epochs=1, batch_size=batch_size, learning_rate=1e-3, precision=precision
    )

    def loss(numbers: Tensor, found: Tensor) -> Tensor:
        return nn.functional.mse_loss(found.float(), logits[numbers])

    fit(BiLSTMForSequenceClassification(config), FitPlan(rows, loss, training, 1, "student"))


def seconds(work: Callable[[], object]) -> float:
    """Time a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def matmul_gflops(dtype: torch.dtype, size: int = 2048) -> float:
    """Return what a plain product of square matrices reaches."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    a @ b
    return 2 * size**3 / min(seconds(lambda: a @ b) for _ in range(5)) / 1e9


def flops_a_row(rows: Encoded) -> float:
    """Count the floating-point operations of matrix products that train one row, padding left out: forward, and twice that backward."""
    gates = 4 * HIDDEN * (WIDTH + HIDDEN)
    tokens = float(rows.lengths.float().mean())
    return 3 * 2 * (2 * gates * tokens + 2 * HIDDEN * HEAD + HEAD * 2)


def shares(work: Callable[[], object]) -> Counter[str]:
    """Profile a call: share of the processors' time by part."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    part_of = {name: part for part, names in PARTS.items() for name in names}
    spent: Counter[str] = Counter()
    for event in profiler.key_averages():
        spent[part_of.get(event.key, "everything else")] += event.self_cpu_time_total
    whole = sum(spent.values())
    return Counter({part: time / whole for part, time in spent.items()})


def transfer_rows(source: str, count: int) -> tuple[int, Encoded]:
    """Return the vocabulary's size and tokenised rows drawn from a transfer set, or from one that is made of the reviews that come with distillkit."""
    if source:
        found = read_table(source, ColumnsConfig(), labels="ignored")
        mask, texts = mask_of(found), found["text"].to_pylist()
    else:
        config = AugmentConfig()
        mask = config.mask
        texts = Augmenter(config)(
            read_table("embedded:reviews/train", ColumnsConfig())["text"].to_pylist()
        )
    tokenizer = build_tokenizer(texts, VocabularyConfig(), 128, mask)
    chosen = np.random.default_rng(0).permutation(len(texts))[:count]
    return len(tokenizer), encode(tokenizer, [texts[i] for i in chosen], None, 128, mask=mask)


def main() -> int:
    """Run the turns, then print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--transfer-set",
        default="",
        help="texts; empty: made of the reviews that come with distillkit",
    )
    parser.add_argument(
        "--rows", type=int, default=10_000, help="rows that are trained on in a turn"
    )
    parser.add_argument("--turns", type=int, default=3, help="after one that warms up")
    options = parser.parse_args()
    words, rows = transfer_rows(options.transfer_set, options.rows)
    logits = torch.randn(len(rows), 2)
    ways: dict[str, tuple[Callable[..., None], Precision]] = {
        "plain fp32": (train_plainly, "fp32"),
        "plain bf16": (train_plainly, "bf16"),
        "distillkit fp32": (train_here, "fp32"),
        "distillkit bf16": (train_here, "bf16"),
    }
    lines = [["loop", "median", *(f"turn {turn + 1}" for turn in range(options.turns))]]
    profiles, ratios = [], {}
    for size in BATCH_SIZES:
        speed: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.turns + 1):
            for name, (train, precision) in ways.items():
                took = seconds(lambda t=train, s=size, p=precision: t(words, rows, logits, s, p))  # type: ignore[misc]
                if turn:
                    speed[name].append(len(rows) / took)
        lines += [
            [f"{name}, batches of {size}, rows a second", *_figures(v, ",.0f")]
            for name, v in speed.items()
        ]
        for name in ("distillkit fp32", "distillkit bf16"):
            found = [
                ours / theirs for ours, theirs in zip(speed[name], speed["plain fp32"], strict=True)
            ]
            lines.append([f"{name} over plain fp32, batches of {size}", *_figures(found, ".2f")])
            ratios[f"{name} {size}"] = round(median(found), 2)
            precision = ways[name][1]
            profiles.append(
                (
                    f"{precision}, {size}",
                    shares(lambda s=size, p=precision: train_here(words, rows, logits, s, p)),
                )
            )  # type: ignore[misc]
    print(table(lines), end="\n\n")
    save_results("student-speed", "rows a second of the student's training", [], keyed(lines))
    parts = [*PARTS, "everything else"]
    columns = [name for name, _ in profiles]
    print(
        table(
            [
                ["share of time", *columns],
                *([p, *(f"{100 * s[p]:.0f} %" for _, s in profiles)] for p in parts),
            ]
        )
    )
    flops = flops_a_row(rows)
    bound = [["", "GFLOP/s", "rows a second at most"]]
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        reached = matmul_gflops(dtype)
        bound.append(
            [f"plain {name} matrix product", f"{reached:,.0f}", f"{reached * 1e9 / flops:,.0f}"]
        )
    print("\n" + table(bound))
    sys.stderr.write(
        json.dumps({"rows": len(rows), "tokens": int(rows.lengths.sum()), "ratios": ratios}) + "\n"
    )
    return 0


def _figures(values: list[float], form: str) -> list[str]:
    return [format(value, form) for value in (median(values), *values)]


if __name__ == "__main__":
    sys.exit(main())
