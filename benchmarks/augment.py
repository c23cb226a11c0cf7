"""Time the augmenter beside a plain Python loop, a few lines of numpy and nlpaug, in one process on one core, and weigh its memory.

pip install '.[bench]'
OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/augment.py sst2/train.tsv --column sentence

The passes are interleaved and each figure is the median of `--repeats`. Tags are computed before
the clock starts: they are the same work for all.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tables import keyed, save_results

from distillkit.augment.corpus import Lexicon, tagged_batch
from distillkit.augment.method import AugmentOptions
from distillkit.augment.rules import Rules
from distillkit.augment.taggers import load_tagger
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.augment.variants import VariantMaker
from distillkit.data.counter import draw
from distillkit.data.tables import read_table
from distillkit.measure.report import table as markdown
from distillkit.recipe import AugmentConfig, ColumnsConfig

CONFIG = AugmentConfig()
SLICE = 8192


def python_loop(
    tagged: list[list[tuple[str, str]]], by_tag: dict[str, list[str]], n_iter: int
) -> int:
    """The same three rules, word by word, to texts."""
    count = 0
    for _ in range(n_iter):
        for words in tagged:
            out = []
            for word, tag in words:
                x = random.random()
                if x < CONFIG.p_mask:
                    word = CONFIG.mask
                elif x < CONFIG.p_mask + CONFIG.p_pos:
                    word = random.choice(by_tag[tag])
                out.append(word)
            if random.random() < CONFIG.p_ng:
                n = min(random.randint(1, CONFIG.max_ngram), len(out))
                start = random.randint(0, len(out) - n)
                out = out[start : start + n]
            " ".join(out)
            count += 1
    return count


def few_lines(
    words: np.ndarray, tags: np.ndarray, offsets: np.ndarray, mask: int, n_iter: int
) -> int:
    """The same three rules in the fewest lines of numpy, to word numbers and spans, no text."""
    rng = np.random.default_rng(1)
    order, count = np.argsort(tags, kind="stable"), np.bincount(tags)
    start_of, length = np.cumsum(count) - count, np.diff(offsets)
    for _ in range(n_iter):
        x, new = rng.random(len(words)), words.copy()
        new[x < CONFIG.p_mask] = mask
        pos = np.flatnonzero((x >= CONFIG.p_mask) & (x < CONFIG.p_mask + CONFIG.p_pos))
        new[pos] = words[
            order[start_of[tags[pos]] + (rng.random(len(pos)) * count[tags[pos]]).astype(np.int64)]
        ]
        cut = rng.random(len(length)) < CONFIG.p_ng
        n = np.where(
            cut, np.minimum(rng.integers(1, CONFIG.max_ngram + 1, len(length)), length), length
        )
        (rng.random(len(length)) * (length - n + 1)).astype(np.int64)
    return n_iter * len(length)


def peers(source: str, column: str, n_iter: int, nlpaug_rows: int) -> dict[str, Callable[[], int]]:
    """Everything that is timed; each call returns how many sentences it made."""
    table = read_table(source, ColumnsConfig(text=column), labels="optional")
    texts = table["text"].to_pylist()
    tagged = [list(pairs) for pairs in load_tagger("pattern")(texts)]
    by_tag: dict[str, list[str]] = {}
    for pairs in tagged:
        for word, tag in pairs:
            by_tag.setdefault(tag, []).append(word)
    batch = tagged_batch(texts, tagged)
    lexicon = Lexicon.build([batch], CONFIG.mask)
    block, config = lexicon.block(batch), AugmentConfig(tagger="pattern", n_iter=n_iter)
    rules, maker = (
        Rules(lexicon, config),
        VariantMaker(config, 1, {"rules": Rules(lexicon, config)}),
    )
    total = n_iter * len(texts)

    def sampled() -> int:
        for first in range(0, total, SLICE):
            slots = np.arange(first, min(first + SLICE, total))
            rules.sample(block, slots // n_iter, draw(draw(1, slots // n_iter), slots % n_iter))
        return total

    def to_parquet() -> int:
        with tempfile.TemporaryDirectory() as folder:
            options = AugmentOptions(config, 1, workers=1)
            build_transfer_set({"original": [table]}, Path(folder) / "transfer.parquet", options)
        return total

    found = {
        "plain Python loop, texts": lambda: python_loop(tagged, by_tag, max(1, n_iter // 10)),
        "a few lines of numpy, word numbers": lambda: few_lines(
            block.words, block.tags, block.offsets, lexicon.mask, n_iter
        ),
        "distillkit, word numbers": sampled,
        "distillkit, texts with provenance": lambda: sum(map(len, maker(block, None, table, 0))),
        "distillkit, distinct, to Parquet": to_parquet,
    }
    try:
        import nlpaug.augmenter.word as naw
    except ImportError:
        return found
    masker = naw.RandomWordAug(
        action="substitute", target_words=[CONFIG.mask], aug_p=CONFIG.p_mask, aug_min=0
    )
    return {"nlpaug, masking alone": lambda: len(masker.augment(texts[:nlpaug_rows]))} | found


def peak_mb(source: str, column: str, n_iter: int) -> tuple[float, int]:
    """Run `distillkit augment` and return its peak memory and the rows it wrote."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "transfer.parquet"
        command = [
            sys.executable,
            "-m",
            "distillkit",
            "augment",
            source,
            str(target),
            "--data.columns.text",
            column,
        ]
        options = ["--augment.n-iter", str(n_iter), "--augment.tagger", "pattern", "--workers", "1"]
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"augment failed with n_iter {n_iter}")
        return usage.ru_maxrss / 1024, pq.ParquetFile(target).metadata.num_rows


def main() -> int:
    """Print the table of speeds and the line on memory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source")
    parser.add_argument("--column", default="text")
    parser.add_argument("--n-iter", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nlpaug-rows", type=int, default=5000)
    options = parser.parse_args()
    calls = peers(options.source, options.column, options.n_iter, options.nlpaug_rows)
    speeds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            speeds[name].append(call() / (time.perf_counter() - began))
    median = {name: statistics.median(found) for name, found in speeds.items()}
    rows = [
        [
            "augmenter",
            "sentences per second",
            *(f"x {name.partition(',')[0]}" for name in list(median)[:3]),
        ]
    ]
    for name, speed in median.items():
        rows.append(
            [name, f"{speed:,.0f}", *(f"{speed / peer:.1f}" for peer in list(median.values())[:3])]
        )
    print(markdown(rows), end="\n\n")
    save_results("augment", "sentences per second of augmenting, one core", [], keyed(rows))
    (once, few), (ten, many) = (
        peak_mb(options.source, options.column, n) for n in (options.n_iter, 10 * options.n_iter)
    )
    print(
        f"peak memory: {once:.0f} MB for {few:,} rows, {ten:.0f} MB for {many:,}: {ten / once - 1:+.1%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
