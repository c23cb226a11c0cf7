"""Sentences a second that a teacher labels: transformers' pipeline at fixed batch sizes, and distillkit label.

python benchmarks/labelling.py train.tsv TEACHER --column sentence

The same process, the same sentences, turn by turn, so that whatever else the machine does falls on
both. It wants an idle machine all the same.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import torch
from tables import keyed, save_results
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer, pipeline

from distillkit.data.batches import Encoded, encode
from distillkit.data.logits import join_logits
from distillkit.data.pieces import WordPieces, gathers
from distillkit.data.tables import mask_of, read_table
from distillkit.measure.report import table
from distillkit.recipe import ColumnsConfig, LabelConfig
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.label import label_table

BATCH_SIZES = (1, 8, 32, 128)


def seconds(work: Callable[[], object]) -> float:
    """Time a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def matmul_gflops(size: int = 2048, times: int = 20) -> float:
    """Return what a plain bf16 product of square matrices reaches."""
    a, b = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
    a @ b
    return 2 * size**3 * times / seconds(lambda: [a @ b for _ in range(times)]) / 1e9


def forward_flops(teacher: str, rows: Encoded) -> int:
    """Count the floating-point operations of rows without padding: matrix products and attention."""
    model, _ = load_classifier(teacher)
    total = 0
    for length, count in zip(*np.unique(rows.lengths.numpy(), return_counts=True), strict=True):
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model(input_ids=torch.ones(1, int(length), dtype=torch.long))
        total += counter.get_total_flops() * int(count)
    return total


def tokenising(teacher: str, texts: list[str], max_tokens: int) -> list[list[str]]:
    """Time the tokenizer alone and the gathered pieces, which must be the same."""
    tokenizer = AutoTokenizer.from_pretrained(teacher, trust_remote_code=False)
    if not gathers(tokenizer, max_tokens):
        return [["tokenising, rows a second", "not BERT's word pieces"]]
    found: list[object] = []
    asked = seconds(
        lambda: found.extend(tokenizer(texts, truncation=True, max_length=max_tokens)["input_ids"])
    )
    pieces = WordPieces(tokenizer)
    first, again = (
        seconds(lambda: found.append(pieces.rows(texts, None, max_tokens)[0])) for _ in range(2)
    )
    assert found[-1].tolist() == [token for row in found[: len(texts)] for token in row]  # type: ignore[union-attr, attr-defined]
    names = ("by the tokenizer", "gathered, words unseen", "gathered, words seen")
    return [
        [f"tokenising {name}, rows a second", f"{len(texts) / took:,.0f}"]
        for name, took in zip(names, (asked, first, again), strict=True)
    ]


def main() -> int:
    """Run the turns, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source", help="sentences: any source that distillkit reads, a transfer set for one"
    )
    parser.add_argument("teacher", help="folder of a fine-tuned classifier")
    parser.add_argument("--column", default="text", help="name of the source's text column")
    parser.add_argument(
        "--rows", type=int, default=20_000, help="sentences that distillkit labels in a turn"
    )
    parser.add_argument(
        "--pipeline-rows", type=int, default=2_000, help="of these, sentences for the pipeline"
    )
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    everything = read_table(options.source, ColumnsConfig(text=options.column), labels="ignored")
    mask = mask_of(everything)
    texts = everything["text"].unique().to_pylist()
    chosen = np.random.default_rng(0).permutation(len(texts))[: options.rows]
    rows = pa.table({"text": [texts[i] for i in chosen]})
    some = rows["text"].to_pylist()[: options.pipeline_rows]
    classify = pipeline(
        "text-classification",
        model=options.teacher,
        device="cpu",
        dtype=torch.float32,
        trust_remote_code=False,
    )
    limit = classify.tokenizer.model_max_length
    encoded = encode(classify.tokenizer, rows["text"].to_pylist(), None, limit, mask=mask)
    flops = forward_flops(options.teacher, encoded)
    speed: dict[str, list[float]] = {}
    best, peak, summaries = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.turns):
            for size in BATCH_SIZES:
                took = seconds(lambda size=size: classify(some, batch_size=size, truncation=True))  # type: ignore[misc]
                speed.setdefault(f"pipeline fp32, batch size {size}", []).append(len(some) / took)
            best.append(
                max(values[-1] for name, values in speed.items() if name.startswith("pipeline"))
            )
            peak.append(matmul_gflops())
            for precision in ("bf16", "fp32"):
                store = Path(folder) / f"{precision}-{turn}"
                config = LabelConfig(precision=precision, storage="fp32" if turn else "fp16")  # type: ignore[arg-type]
                took = seconds(
                    lambda store=store, config=config: summaries.update(  # type: ignore[misc]
                        {store.name: label_table(rows, store, options.teacher, config, mask)}
                    )
                )
                speed.setdefault(f"distillkit label {precision}", []).append(len(rows) / took)
        low, full = (
            join_logits(rows, Path(folder) / f"{name}-{options.turns - 1}")
            for name in ("bf16", "fp32")
        )
    ratios = {
        name: [
            ours / theirs
            for ours, theirs in zip(speed[f"distillkit label {name}"], best, strict=True)
        ]
        for name in ("bf16", "fp32")
    }
    reached = [values * flops / len(rows) / 1e9 for values in speed["distillkit label bf16"]]
    lines = [["way", "median", *(f"turn {turn + 1}" for turn in range(options.turns))]]
    lines += [
        [f"{name}, rows a second", *_figures(values, ",.0f")] for name, values in speed.items()
    ]
    lines += [
        [f"distillkit {name} over the pipeline's best", *_figures(v, ".2f")]
        for name, v in ratios.items()
    ]
    lines += [
        ["distillkit label bf16, GFLOP/s", *_figures(reached, ",.0f")],
        ["plain bf16 matrix product, GFLOP/s", *_figures(peak, ",.0f")],
        ["share of it", *_figures([a / b for a, b in zip(reached, peak, strict=True)], ".2f")],
    ]
    error = np.abs(low - full)
    print(table(lines), end="\n\n")
    save_results("labelling", "rows a second of labelling", [], keyed(lines))
    figures = [
        ["", ""],
        ["|bf16 - fp32| of a logit, largest", f"{error.max():.4f}"],
        ["|bf16 - fp32| of a logit, mean", f"{error.mean():.5f}"],
        ["same label in bf16 and fp32", f"{(low.argmax(1) == full.argmax(1)).mean():.5f}"],
        [
            "|fp16 on disk - fp32| of a logit, largest",
            f"{summaries['fp32-0']['rounding_error']:.6f}",
        ],
        *tokenising(options.teacher, rows["text"].to_pylist(), limit),
    ]
    print(table(figures))
    sys.stderr.write(
        json.dumps(
            {
                "rows": len(rows),
                "tokens": int(encoded.lengths.sum()),
                "ratio": median(ratios["bf16"]),
            }
        )
        + "\n"
    )
    return 0


def _figures(values: list[float], form: str) -> list[str]:
    return [format(value, form) for value in (median(values), *values)]


if __name__ == "__main__":
    sys.exit(main())
