"""Run a recipe with several seeds and print every model's score per seed, mean and standard deviation.

python benchmarks/seeds.py quickstart
python benchmarks/seeds.py sst2-bilstm --data.train sst2/train.tsv --data.dev sst2/dev.tsv

The scores are those of the recipe's kind of task, times 100. They are also left in
runs/RECIPE-SPLIT-SCORE.json, a file for benchmarks/results/. `--output` and `--seed` are this
script's to give.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

from tables import save_results

from distillkit.measure.report import table

SEEDS = (1, 2, 3)
SCORES = ("accuracy", "micro_f1", "pearson", "spearman")


def main() -> int:
    """Run what is missing, then print one table a split."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.stderr.write(__doc__ or "")
        return 2
    recipe, *options = sys.argv[1:]
    models = []
    for seed in SEEDS:
        name = f"{Path(recipe).stem}-seed{seed}"
        command = [
            sys.executable,
            "-m",
            "distillkit",
            "run",
            recipe,
            "--output",
            f"runs/{name}",
            "--seed",
            str(seed),
            *options,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        models.append(
            json.loads((Path("runs") / name / "result.json").read_text(encoding="utf-8"))["models"]
        )
    for split in ("dev", "test"):
        if split not in models[0]["teacher"]:
            continue
        for key in (key for key in SCORES if key in models[0]["teacher"][split]):
            rows = [[f"{split} {key}", *(f"seed {seed}" for seed in SEEDS), "mean", "sd"]]
            kept = []
            for name in models[0]:
                scores = [100 * result[name][split][key] for result in models]
                kept.append({rows[0][0]: name, "seeds": [round(score, 2) for score in scores]})
                figures = [*scores, mean(scores), stdev(scores)]
                rows.append([name, *(f"{figure:.1f}" for figure in figures)])
            print(table(rows), end="\n\n")
            about = f"{Path(recipe).stem}-{split}-{key}"
            save_results(about, f"{split} {key} of {recipe}, times 100", list(SEEDS), kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
