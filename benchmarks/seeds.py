"""Run a recipe with several seeds and print every model's accuracy per seed, mean and standard deviation.

python benchmarks/seeds.py quickstart
python benchmarks/seeds.py sst2-bilstm --data.train sst2/train.tsv --data.dev sst2/dev.tsv
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

from distillkit.measure.report import table

SEEDS = (1, 2, 3)


def main() -> int:
    """Run what is missing, then print one table a split."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.stderr.write(__doc__ or "")
        return 2
    recipe, *options = sys.argv[1:]
    models = []
    for seed in SEEDS:
        name = f"{Path(recipe).stem}-seed{seed}"
        command = [sys.executable, "-m", "distillkit", "run", recipe, "--name", name, "--seed", str(seed), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        models.append(json.loads((Path("runs") / name / "result.json").read_text(encoding="utf-8"))["models"])
    for split in ("dev", "test"):
        if split not in models[0]["teacher"]:
            continue
        rows = [[f"{split} accuracy", *(f"seed {seed}" for seed in SEEDS), "mean", "sd"]]
        for model in models[0]:
            scores = [100 * result[model][split]["accuracy"] for result in models]
            rows.append([model, *(f"{score:.1f}" for score in scores), f"{mean(scores):.1f}", f"{stdev(scores):.1f}"])
        print(table(rows), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
