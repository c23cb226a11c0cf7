"""What each ingredient brings a student, one changed at a time on several data sets.

python benchmarks/pays.py trec --recipe trec-bilstm --options --data.train trec6/train.tsv
python benchmarks/pays.py --show

All students of a data set have one teacher, and take 1,500 steps of 128 rows of a transfer set with four
variants a row. So an ingredient of the transfer set replaces a part of the variants. A student differs
from the base in one line of INGREDIENTS. Finished students stay in runs/pays/NAME, so it can be stopped
and started again. `--show` makes the table of all data sets, and runs/pays.json, a file for
benchmarks/results/.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from near_teacher import Experiment
from scipy.stats import t as student_t
from tables import save_results

from distillkit.cli import parse
from distillkit.measure.report import table
from distillkit.recipe import Recipe
from distillkit.runs import at_work, teach

FOLDER = Path("runs") / "pays"
BASE = (
    "--student bilstm-subwords --augment.n-iter 4 --training.steps 1500 --training.batch-size 128"
)
INGREDIENTS = {
    "base": "",
    "without masking": "--augment.p-mask 0",
    "without part-of-speech replacement": "--augment.p-pos 0",
    "without n-grams": "--augment.p-ng 0",
    "half of the variants: infill": "--augment.mix.rules 1 --augment.mix.infill 1",
    "half of the variants: neighbours": "--augment.mix.rules 1 --augment.mix.neighbours 1",
    "half of the variants: Markov chain": "--augment.mix.rules 1 --augment.mix.markov 1",
    "10,000 texts of WordNet": "--data.unlabelled wordnet --data.unlabelled-rows 10000",
    "EMA 0.999": "--training.ema-decay 0.999",
    "cosine schedule": "--training.schedule cosine",
    "no dropout": "--student.dropout 0",
    "dropout 0.3": "--student.dropout 0.3",
    "word dropout 0.1": "--student.word-dropout 0.1",
    "soft targets, temperature 1": "--loss.kind soft",
    "soft targets, temperature 4": "--loss.kind soft --loss.temperature 4",
    "0.2 for gold labels": "--loss.alpha 0.2",
    "words without subwords": "--student.vocabulary.subwords 0",
    "word pieces": "--student.vocabulary.unit word-piece --student.vocabulary.subwords 0",
    "teacher's words too": "--student.vocabulary.teacher-words",
    "one table of vectors": "--student.embeddings.channels single",
    "random vectors": "--student.embeddings.source random",
    "vectors of words in context": "--student.embeddings.source teacher-context",
    "frequent words weigh more in the PCA": "--student.embeddings.weighting frequency",
    "a token for the mask": "--student.vocabulary.mask own",
    "last states in place of max": "--student.pooling last",
    "attention in place of max": "--student.pooling attention",
    "two layers": "--student.layers 2",
}


def measure(given: argparse.Namespace) -> None:
    """Train the students of one data set that are not there yet."""

    def recipe_of(ingredient: str) -> Recipe:
        options = f"{BASE} {INGREDIENTS[ingredient]}".split()
        return parse("run", [given.recipe, *given.options, *options]).settings  # type: ignore[attr-defined]

    base = recipe_of("base")
    base = replace(base, data=replace(base.data, unlabelled=(), unlabelled_rows=0))
    with at_work(FOLDER / given.name) as home:
        task = teach(base, home, home.folder / "recipe.yaml")
        experiment = Experiment(task, base.data.task, home.folder)
        for seed in given.seeds:
            for ingredient, options in INGREDIENTS.items():
                if given.only and ingredient not in ("base", *given.only):
                    continue
                recipe = recipe_of(ingredient)
                if "--data" not in options:
                    recipe = replace(recipe, data=base.data)
                own = "--data" in options or "--augment" in options
                rows = ingredient.replace(" ", "-") if own else "rows"
                experiment.student(ingredient, recipe, seed, rows)


def show() -> None:
    """Print the table of all data sets, and save it."""
    rows: list[dict[str, Any]] = [{"ingredient": name} for name in INGREDIENTS]
    seeds: set[int] = set()
    for file in sorted(FOLDER.glob("*/results.json")):
        done = json.loads(file.read_text(encoding="utf-8"))
        name, base = file.parent.name, _seeds(done, "base")
        for row in rows:
            found = _seeds(done, row["ingredient"])
            pairs = [(found[seed], base[seed]) for seed in found.keys() & base.keys()]
            seeds |= found.keys()
            if not pairs:
                continue
            row[name] = [round(one["score"], 2) for one, _ in pairs]
            row[f"{name}: missed"] = round(mean(one["missed"] for one, _ in pairs), 1)
            if len(pairs) > 1 and row["ingredient"] != "base":
                row[f"{name}: gain"] = _interval(
                    [one["score"] - other["score"] for one, other in pairs]
                )
    headings = list(dict.fromkeys(key for row in rows for key in row))
    lines = [[_text(row.get(key, "")) for key in headings] for row in rows]
    print(table([headings, *lines]))
    save_results("pays", "dev score by ingredient", sorted(seeds), rows)


def _seeds(done: dict[str, dict[str, float]], name: str) -> dict[int, dict[str, float]]:
    return {
        int(key.rpartition(" ")[2]): one
        for key, one in done.items()
        if key.rpartition(" ")[0] == name
    }


def _interval(gains: list[float]) -> str:
    """Return the mean of differences seed by seed, and its 95 % interval by Student's t."""
    half = student_t.ppf(0.975, len(gains) - 1) * stdev(gains) / len(gains) ** 0.5
    return f"{mean(gains):+.1f} ({mean(gains) - half:+.1f} to {mean(gains) + half:+.1f})"


def _text(value: Any) -> str:
    return ", ".join(f"{one:.1f}" for one in value) if isinstance(value, list) else str(value)


def main() -> None:
    """Measure one data set, or show all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", nargs="?", default="", help="of the data set: a folder of runs/pays"
    )
    parser.add_argument("--recipe", default="quickstart", help="of its data and teacher")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the students")
    parser.add_argument("--only", nargs="+", default=[], help="ingredients; empty: all")
    parser.add_argument("--show", action="store_true", help="make the table")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of distillkit run")
    given = parser.parse_args()
    if given.name:
        measure(given)
    if given.show:
        show()


if __name__ == "__main__":
    main()
