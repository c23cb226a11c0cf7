"""Measure what grows with the rows: seconds, memory and files at a few million rows, one core.

python benchmarks/scale.py duplicates --millions 1 3 10
python benchmarks/scale.py keys --millions 3 10 30

`duplicates` runs `augment --augment.n-iter 0` on drawn texts of 3 to 7 words, one in ten of them twice.
`keys` plans shards for drawn keys of which half are stored, and finds each key's place. Each size has a
process of its own. Time is the processor's, user and system, since another program may share the cores.
runs/scale-NAME.json has the figures, as a file for benchmarks/results/.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from tables import keyed, save_results

from distillkit.data.tables import table_writer
from distillkit.measure.report import table
from distillkit.processes import log

_BLOCK = 100_000
_HEADS = {
    "duplicates": ["rows", "microseconds a row", "peak MB", "most files", "duplicates"],
    "keys": ["keys", "microseconds a key", "peak MB", "bytes a key"],
}


def write_rows(path: Path, rows: int, seed: int = 1) -> None:
    """Write drawn texts with labels; the last tenth of each block repeats its first."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{n}" for n in range(20_000)])
    schema = pa.schema([("text", pa.string()), ("label", pa.string())])
    with table_writer(path, schema) as writer:
        for begin in range(0, rows, _BLOCK):
            new = min(_BLOCK, rows - begin) * 9 // 10
            lengths = rng.integers(3, 8, new)
            drawn = words[rng.integers(0, len(words), lengths.sum())]
            texts = [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]
            texts += texts[: min(_BLOCK, rows - begin) - new]
            labels = np.where(np.arange(len(texts)) % 2, "yes", "no")
            writer.write_table(pa.table([pa.array(texts), pa.array(labels)], schema=schema))


def _files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def duplicates(rows: int) -> list[str]:
    """Run `augment` on so many rows; return the cells of a line."""
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "rows.parquet", Path(name) / "transfer.parquet"
        write_rows(source, rows)
        command = [sys.executable, "-m", "distillkit", "augment", str(source), str(target)]
        command += ["--augment.n-iter", "0", "--augment.tagger", "none", "--workers", "1"]
        before, peak, files = resource.getrusage(resource.RUSAGE_CHILDREN), 0, 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            own = psutil.Process(process.pid)
            while process.poll() is None:
                peak = max(peak, own.memory_full_info().uss if own.is_running() else 0)
                files = max(files, _files(target.with_name(f".{target.name}.work")))
                time.sleep(1)
            assert process.stdout is not None
            found = json.loads(process.stdout.read())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cells = [f"{rows:,}", f"{seconds / rows * 1e6:.1f}", f"{peak / 1e6:,.0f}", f"{files:,}"]
    return [*cells, f"{found['duplicates']:,}"]


def keys(count: int) -> list[str]:
    """Plan and look up so many drawn keys, in this process; return the cells of a line."""
    from distillkit.data.keys import KeyIndex
    from distillkit.teacher.shards import plan_shards

    # Drawn before the clock and the memory are looked at.
    drawn = np.random.default_rng(1).integers(0, 256, (count, 16), np.uint8)
    table_keys = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), count, [None, pa.py_buffer(drawn)]
    )
    least, start = psutil.Process().memory_info().rss, time.process_time()
    plan = plan_shards(table_keys, table_keys.slice(0, count // 2), 16_384)
    places = KeyIndex(table_keys).find(table_keys)
    seconds = time.process_time() - start
    if sum(len(shard.rows) for shard in plan) != count - count // 2 or (places < 0).any():
        raise SystemExit("a key was not found")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cells = [f"{count:,}", f"{seconds / count * 1e6:.2f}", f"{peak / 1e6:,.0f}"]
    return [*cells, f"{(peak - least) / count:.0f}"]


def main() -> None:
    """Measure each size in its own process, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=list(_HEADS))
    parser.add_argument("--millions", type=float, nargs="+", default=[1, 3, 10])
    parser.add_argument("--one", type=int, help="measure this many rows here, and print the cells")
    given = parser.parse_args()
    measure: Any = {"duplicates": duplicates, "keys": keys}[given.what]
    if given.one:
        print(json.dumps(measure(given.one)))
        return
    rows = [_HEADS[given.what]]
    for millions in given.millions:
        command = [sys.executable, __file__, given.what, "--one", f"{int(millions * 1e6)}"]
        log(" ".join(command))
        rows.append(json.loads(subprocess.check_output(command, text=True)))
    print(table(rows))
    save_results(f"scale-{given.what}", f"growth of {given.what}", [], keyed(rows))


if __name__ == "__main__":
    main()
