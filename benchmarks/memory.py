"""Weigh commands that work for long: memory, open files and threads, from the beginning to the end.

python benchmarks/memory.py runs/quickstart/bundle.zip --augment 10000000 --predict 1000000 --serve 100000

`augment` makes so many rows of drawn texts of 5 to 25 words, `predict` answers so many of them, and `serve`
answers so many requests of one text from four clients. Every second the command and its children are added
up. The table has the means over the second and over the last tenth of the time; what grows with the rows is
higher in the last. A count of 0 leaves a command out. runs/memory.json has the figures, as a file for
benchmarks/results/.
"""

import argparse
import http.client
import itertools
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import numpy as np
import psutil
from serve import running
from tables import keyed, save_results

from distillkit.measure.report import table
from distillkit.processes import log

VARIANTS = 20  # of a text
CLIENTS = 4
Weight = tuple[float, int, int]  # MB, open files, threads


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


def weighed(process: subprocess.Popen) -> list[Weight]:
    """Weigh a process and its children, every second until it ends."""
    found, own = [], psutil.Process(process.pid)
    while process.poll() is None:
        try:
            all_of_it = [own, *own.children(recursive=True)]
            memory = sum(one.memory_full_info().pss for one in all_of_it) / 1e6
            files = sum(one.num_fds() for one in all_of_it)
            found.append((memory, files, sum(one.num_threads() for one in all_of_it)))
        except psutil.Error:  # a process that has just ended
            pass
        time.sleep(1)
    return found


def weighed_command(command: list[str]) -> list[Weight]:
    """Run a distillkit command to its end, and weigh it."""
    log(" ".join(command))
    words = [sys.executable, "-m", "distillkit", *command]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        found = weighed(process)
    if process.returncode:
        raise SystemExit(f"status {process.returncode}: {' '.join(command)}")
    return found


def ask(port: int, texts: Path, requests: int) -> None:
    """Send so many texts, one a request, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    with texts.open(encoding="utf-8") as file:
        for line in itertools.islice(itertools.cycle(file), requests):
            body = json.dumps({"texts": [line.strip()]})
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200 or not answer.read():
                raise SystemExit(f"serve: status {answer.status}")


def weighed_service(bundle: str, texts: Path, requests: int) -> list[Weight]:
    """Serve a bundle until every request is answered, and weigh it."""
    log(f"serve {bundle}")
    with ThreadPoolExecutor(1) as scales, ThreadPoolExecutor(CLIENTS) as clients:
        with running(bundle) as (port, process):
            found = scales.submit(weighed, process)
            share = requests // CLIENTS
            for done in [clients.submit(ask, port, texts, share) for _ in range(CLIENTS)]:
                done.result()
        return found.result()


def main() -> None:
    """Weigh the commands, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle")
    parser.add_argument("--augment", type=int, default=10_000_000, help="rows")
    parser.add_argument("--predict", type=int, default=1_000_000, help="rows")
    parser.add_argument("--serve", type=int, default=100_000, help="requests")
    given = parser.parse_args()
    rows = [["command", "rows or requests", "seconds", "MB at first", "MB at last", "peak MB"]]
    rows[0] += ["open files at first", "at last", "threads at first", "threads at last"]
    with tempfile.TemporaryDirectory() as folder:
        texts, less = Path(folder) / "texts.txt", Path(folder) / "less.txt"
        made = Path(folder) / "transfer.parquet"
        write_texts(texts, max(given.predict, 10_000))
        write_texts(less, given.augment // (1 + VARIANTS))
        augment = ["augment", str(less), str(made), "--augment.n-iter", f"{VARIANTS}"]
        augment += ["--augment.tagger", "pattern"]
        weigh = {
            "augment": lambda _: weighed_command(augment),
            "predict": lambda _: weighed_command(["predict", given.bundle, str(texts)]),
            "serve": lambda count: weighed_service(given.bundle, texts, count),
        }
        for name, work in weigh.items():
            if not (count := getattr(given, name)):
                continue
            found = work(count)
            tenth = max(len(found) // 10, 1)
            first, last = found[tenth : 2 * tenth], found[-tenth:]
            row = [name, f"{count:,}", f"{len(found)}"]
            row += [f"{mean(one[0] for one in part):.0f}" for part in (first, last)]
            row += [f"{max(one[0] for one in found):.0f}"]
            for column in (1, 2):
                row += [f"{mean(one[column] for one in part):.0f}" for part in (first, last)]
            rows.append(row)
    print(table(rows))
    save_results("memory", "memory, open files and threads of long commands", [], keyed(rows))


if __name__ == "__main__":
    main()
