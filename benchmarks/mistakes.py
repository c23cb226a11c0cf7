"""Make deliberate mistakes in a copy of the code, one after the other, and see which tests catch them.

python benchmarks/mistakes.py                    # all of benchmarks/mistakes.yaml
python benchmarks/mistakes.py --only ngram-length lamb-bias

A mistake counts as caught if a test fails. It is a fault of the list, and ends the run, if the text
to replace does not stand in its file exactly once, or if the tests cannot be collected.
"""

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".yaml")


def copy_of_tree(target: Path) -> Path:
    """Copy every file that git tracks."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, names.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target


def is_caught(mistake: dict[str, Any], tree: Path) -> bool:
    """Make one mistake in a tree, run its tests, and take it back.

    Raises:
        ValueError: The list is at fault.
    """
    path = tree / mistake["file"]
    before = path.read_text(encoding="utf-8")
    found = before.count(mistake["old"])
    if found != 1:
        raise ValueError(f"{mistake['name']}: `old` stands {found} times in {mistake['file']}")
    path.write_text(before.replace(mistake["old"], mistake["new"]), encoding="utf-8")
    try:
        tier = "slow" if mistake.get("tier") == "slow" else "not slow"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", tier, "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, *mistake["tests"].split()],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(before, encoding="utf-8")
    if run.returncode not in (0, 1):
        raise ValueError(f"{mistake['name']}: the tests cannot be run:\n{run.stdout[-2000:]}")
    return run.returncode == 1


def main() -> None:
    """Try all mistakes and print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], help="names of mistakes; none: all")
    parser.add_argument("--workers", type=int, default=2, help="mistakes tried at a time")
    args = parser.parse_args()
    mistakes = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    mistakes = [one for one in mistakes if not args.only or one["name"] in args.only]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.workers) as pool:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(args.workers):
            trees.put(copy_of_tree(Path(folder) / str(number)))

        def attempt(mistake: dict[str, Any]) -> bool:
            tree = trees.get()
            try:
                return is_caught(mistake, tree)
            finally:
                trees.put(tree)

        results = tqdm(pool.map(attempt, mistakes), total=len(mistakes), unit="mistake")
        missed = [one["name"] for one, caught in zip(mistakes, results, strict=True) if not caught]
    print(json.dumps({"mistakes": len(mistakes), "missed": missed}))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
