"""Weigh commands that work for long: memory, open files and threads, from the beginning to the end.

python benchmarks/memory.py runs/quickstart/bundle.zip --augment 10000000 --predict 1000000

`augment` makes so many rows of drawn texts of 5 to 25 words, `predict` answers so many of them. Every second
the command and its children are added up. The table has the means over the second and over the last tenth of
the time; what grows with the rows is higher in the last. runs/memory.json has the figures, as a file for
benchmarks/results/.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

import numpy as np
import psutil
from tables import keyed, save_results

from distillkit.measure.report import table
from distillkit.processes import log

VARIANTS = 20  # of a text


def write_texts(path: Path, rows: int, seed: int = 1) -> None:
    """Write drawn texts, one a line: 20,000 words, the n-th of them as often as one in n."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, 20_001)
    words = np.array([f"word{n}" for n in range(20_000)])
    with path.open("w", encoding="utf-8") as file:
        for begin in range(0, rows, 100_000):
            lengths = rng.integers(5, 26, min(100_000, rows - begin))
            drawn = words[rng.choice(20_000, lengths.sum(), p=share / share.sum())]
            for text in np.split(drawn, np.cumsum(lengths)[:-1]):
                file.write(" ".join(text) + "\n")


def weighed(command: list[str]) -> list[tuple[float, int, int]]:
    """Run a distillkit command; return MB, open files and threads, every second."""
    log(" ".join(command))
    found = []
    with subprocess.Popen(
        [sys.executable, "-m", "distillkit", *command], stdout=subprocess.DEVNULL
    ) as process:
        own = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                all_of_it = [own, *own.children(recursive=True)]
                memory = sum(one.memory_full_info().pss for one in all_of_it) / 1e6
                files = sum(one.num_fds() for one in all_of_it)
                found.append((memory, files, sum(one.num_threads() for one in all_of_it)))
            except psutil.NoSuchProcess:  # a child that has just ended
                pass
            time.sleep(1)
    if process.returncode:
        raise SystemExit(f"status {process.returncode}: {' '.join(command)}")
    return found


def main() -> None:
    """Weigh both commands, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle")
    parser.add_argument("--augment", type=int, default=10_000_000, help="rows")
    parser.add_argument("--predict", type=int, default=1_000_000, help="rows")
    given = parser.parse_args()
    rows = [["command", "rows", "seconds", "MB at first", "MB at last", "peak MB"]]
    rows[0] += ["open files at first", "at last", "threads at first", "threads at last"]
    with tempfile.TemporaryDirectory() as folder:
        texts, less = Path(folder) / "texts.txt", Path(folder) / "less.txt"
        write_texts(texts, given.predict)
        write_texts(less, given.augment // (1 + VARIANTS))
        made = Path(folder) / "transfer.parquet"
        augment = ["augment", str(less), str(made), "--augment.n-iter", f"{VARIANTS}"]
        commands = {
            given.augment: [*augment, "--augment.tagger", "pattern"],
            given.predict: ["predict", given.bundle, str(texts)],
        }
        for count, command in commands.items():
            found = weighed(command)
            tenth = max(len(found) // 10, 1)
            first, last = found[tenth : 2 * tenth], found[-tenth:]
            row = [command[0], f"{count:,}", f"{len(found)}"]
            row += [f"{mean(one[0] for one in part):.0f}" for part in (first, last)]
            row += [f"{max(one[0] for one in found):.0f}"]
            for column in (1, 2):
                row += [f"{mean(one[column] for one in part):.0f}" for part in (first, last)]
            rows.append(row)
    print(table(rows))
    save_results("memory", "memory, open files and threads of long commands", [], keyed(rows))


if __name__ == "__main__":
    main()
