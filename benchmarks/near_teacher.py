"""Train one student on transfer sets of several kinds, and see how near each brings it to its teacher.

python benchmarks/near_teacher.py quickstart --seeds 1 2 3
python benchmarks/near_teacher.py trec-bilstm --seeds 1 --options --data.train trec6/train.tsv

By transfer set the table has dev scores, the share closed of what the teacher is above the gold
student, and the share of the variance of the teacher's logits that the student misses on dev.
Runs stand in runs/near and are kept, so it can be stopped and started again.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from distillkit.measure.report import table

RUNS = Path("runs") / "near"
# Transfer sets, the recipe's own first: its teacher and gold student serve all others.
SETS: dict[str, list[str]] = {
    "recipe": [],
    "rules, 3,000 steps": ["--training.steps", "3000"],
    "rules, 6,000 steps": ["--training.steps", "6000"],
    "30,000 glosses, 3,000 steps": ["--data.unlabelled-rows", "30000", "--training.steps", "3000"],
    "120,000 glosses, 3,000 steps": [
        *("--data.unlabelled-rows", "120000", "--training.steps", "3000")
    ],
    "120,000 glosses, 6,000 steps": [
        *("--data.unlabelled-rows", "120000", "--training.steps", "6000")
    ],
}


def run(recipe: str, name: str, options: list[str]) -> dict[str, Any]:
    """Run a recipe; return what it measured of every model on dev, and of the student's gap."""
    common = [recipe, "--runs", str(RUNS), "--name", name, *options]
    command = [sys.executable, "-m", "distillkit"]
    if not (RUNS / name / "gap.json").is_file():
        subprocess.run([*command, "run", *common], check=True, stdout=subprocess.DEVNULL)
        found = subprocess.run(
            [*command, "doctor", *common], stdout=subprocess.PIPE, text=True, check=False
        )
        (gap,) = (
            one["metrics"]
            for one in json.loads(found.stdout)["findings"]
            if one["check"] == "student-gap"
        )
        (RUNS / name / "gap.json").write_text(json.dumps(gap), encoding="utf-8")
    result = json.loads((RUNS / name / "result.json").read_text(encoding="utf-8"))
    gap = json.loads((RUNS / name / "gap.json").read_text(encoding="utf-8"))
    dev = {model: 100 * of["dev"]["accuracy"] for model, of in result["models"].items()}
    rows = result["transfer_set"]["rows"]
    return {**dev, "rows": rows, "missed": 100 * gap["unexplained_dev"], "steps": gap["steps"]}


def runs_of(
    recipe: str, seed: int, options: list[str], raw: str, sets: list[int]
) -> dict[str, dict[str, Any]]:
    """Run transfer sets with one seed."""
    found = {}
    first = f"{Path(recipe).stem}-seed{seed}-0"
    for number, (title, own) in enumerate(SETS.items()):
        if number not in sets:
            continue
        name = f"{Path(recipe).stem}-seed{seed}-{number}"
        if number and not (RUNS / name).is_dir():
            # Whatever the change leaves as it is, the teacher for one, is kept.
            ignored = shutil.ignore_patterns("gap.json", ".lock")
            shutil.copytree(RUNS / first, RUNS / name, ignore=ignored)
        text = ["--data.unlabelled", raw] if "--data.unlabelled-rows" in own else []
        once = ["--evaluation.gold-epochs", "0"] if number else []
        found[title] = run(recipe, name, ["--seed", str(seed), *options, *text, *own, *once])
    return found


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--sets", type=int, nargs="+", default=[*range(len(SETS))], help="from 0, with 0 among them"
    )
    parser.add_argument("--raw", default="wordnet", help="raw text, a source")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of the runs")
    given = parser.parse_args()
    by_seed = [
        runs_of(given.recipe, seed, given.options, given.raw, given.sets) for seed in given.seeds
    ]
    teacher, gold = (
        mean(runs["recipe"][model] for runs in by_seed) for model in ("teacher", "student_gold")
    )
    rows = [["dev accuracy", "rows", "steps", "mean", "sd", "closed, %", "missed, %"]]
    rows += [["gold", "", "", f"{gold:.1f}", "", "0", ""]]
    for title in by_seed[0]:
        cells = [runs[title] for runs in by_seed]
        scores = [cell["student"] for cell in cells]
        spread = f"{stdev(scores):.1f}" if len(scores) > 1 else ""
        closed = 100 * (mean(scores) - gold) / (teacher - gold) if teacher > gold else 0.0
        counts = [f"{mean(cell[key] for cell in cells):,.0f}" for key in ("rows", "steps")]
        missed = mean(cell["missed"] for cell in cells)
        rows.append(
            [title, *counts, f"{mean(scores):.1f}", spread, f"{closed:.0f}", f"{missed:.1f}"]
        )
    rows.append(["teacher", "", "", f"{teacher:.1f}", "", "100", "0"])
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
