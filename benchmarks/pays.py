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
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from near_teacher import Experiment
from scipy.stats import t as student_t
from tables import save_results

from distillkit.cli import parse
from distillkit.errors import InputError
from distillkit.measure.report import table
from distillkit.processes import log
from distillkit.recipe import Recipe
from distillkit.runs import at_work, teach

FOLDER = Path("runs") / "pays"
BASE = "--augment.mix.rules 1 --augment.mix.markov 0 --augment.mix.pairs 0 --augment.n-iter 4 --training.steps 1500 --training.batch-size 128"
RAW = "10,000 raw texts"
ADAPTED = "teacher adapted to the training texts:"
INGREDIENTS = {
    "base": "",
    "without masking": "--augment.p-mask 0",
    "without part-of-speech replacement": "--augment.p-pos 0",
    "without n-grams": "--augment.p-ng 0",
    "half of the variants: neighbours": "--augment.mix.rules 1 --augment.mix.neighbours 1",
    "half of the variants: Markov chain": "--augment.mix.rules 1 --augment.mix.markov 1",
    "half of the variants: new pairs": "--augment.mix.rules 1 --augment.mix.pairs 1",
    RAW: "--data.unlabelled {raw} --data.unlabelled-rows 10000",
    "training rows three times as often": "--training.sampling-weights original=3",
    "no dropout": "--student.dropout 0",
    "dropout 0.3": "--student.dropout 0.3",
    "soft targets, temperature 1": "--loss.kind soft",
    "soft targets, temperature 4": "--loss.kind soft --loss.temperature 4",
    "0.2 for gold labels": "--loss.alpha 0.2",
    "words without subwords": "--student.vocabulary.subwords 0",
    "word pieces": "--student.vocabulary.unit word-piece --student.vocabulary.subwords 0",
    "teacher's words too": "--student.vocabulary.teacher-words",
    "one table of vectors": "--student.embeddings.channels single",
    "vectors of the encoder before fine-tuning": "--student.embeddings.source {encoder}",
    "random vectors": "--student.embeddings.source random",
    "hashed n-grams": "--student.vocabulary.unit hashed --student.vocabulary.size 50000 --student.vocabulary.subwords 0 --student.max-tokens 512 "
    "--student.embeddings.source random --student.embeddings.dimension 100 --student.embeddings.channels single",
    "last states in place of max": "--student.pooling last",
    "attention in place of max": "--student.pooling attention",
    "two layers": "--student.layers 2",
    "three layers of the teacher": "--student transformer-tiny --training.learning-rate 2e-4",
    **{
        f"{ADAPTED} {name}": f"--adapt.text.sources {{train}} --adapt.text.column {{column}} --adapt.training.epochs 2 {options}"
        for name, options in (
            ("tokens", "--adapt.masking.strategy token"),
            ("whole words", "--adapt.masking.strategy whole-word"),
            ("n-grams", "--adapt.masking.strategy n-gram"),
            ("MacBERT", "--adapt.masking.strategy macbert"),
            ("spans", "--adapt.masking.strategy span"),
            ("replaced tokens", "--adapt.objectives.mlm 0 --adapt.objectives.rtd 1"),
        )
    },
}


def measure(given: argparse.Namespace) -> None:
    """Train the students of one data set that are not there yet."""
    base = recipe_of(given, "base")
    folder = FOLDER / given.name
    with ExitStack() as stack:
        experiments = {"": experiment_of(base, folder, stack)}
        for seed in given.seeds:
            for ingredient, options in INGREDIENTS.items():
                if given.only and ingredient not in ("base", *given.only):
                    continue
                try:
                    recipe = recipe_of(given, ingredient)
                    teacher = ingredient if ingredient.startswith(ADAPTED) else ""
                    if teacher not in experiments:
                        experiments[teacher] = experiment_of(
                            recipe, folder / file_name(teacher), stack
                        )
                    own = "--data" in options or "--augment" in options
                    rows = file_name(ingredient) if own else "rows"
                    experiments[teacher].student(ingredient, recipe, seed, rows)
                except InputError as error:  # not every ingredient is for every task and student
                    log(f"{ingredient}: left out, {error}")


def recipe_of(given: argparse.Namespace, ingredient: str) -> Recipe:
    """Return the recipe of an ingredient."""
    start: Recipe = parse("run", [given.recipe, *given.options]).settings  # type: ignore[attr-defined]
    student = "" if "--student " in INGREDIENTS[ingredient] else f"--student {given.student}"
    options = f"{student} {BASE} {INGREDIENTS[ingredient]}".format(
        raw=given.raw,
        train=start.data.train,
        column=start.data.columns.text,
        encoder=start.teacher.model,
    )
    recipe: Recipe = parse("run", [given.recipe, *given.options, *options.split()]).settings  # type: ignore[attr-defined]
    if ingredient != RAW:
        recipe = replace(recipe, data=replace(recipe.data, unlabelled=(), unlabelled_rows=0))
    return recipe


def experiment_of(recipe: Recipe, folder: Path, stack: ExitStack) -> Experiment:
    """Return the experiments with one teacher, which is fine-tuned if it is not there."""
    home = stack.enter_context(at_work(folder))
    task = teach(recipe, home, folder / "recipe.yaml")
    return Experiment(task, recipe.data.task, folder)


def file_name(ingredient: str) -> str:
    """Return an ingredient's name without spaces and signs."""
    return re.sub(r"\W+", "-", ingredient)


def show() -> None:
    """Print the table of all data sets, and save it."""
    rows: list[dict[str, Any]] = [{"ingredient": name} for name in INGREDIENTS]
    seeds: set[int] = set()
    for file in sorted(FOLDER.glob("*/results.json")):
        done = json.loads(file.read_text(encoding="utf-8"))
        for other in file.parent.glob("*/results.json"):
            done |= json.loads(other.read_text(encoding="utf-8"))
        name = file.parent.name
        for row in rows:
            found, base = _seeds(done, row["ingredient"]), _seeds(done, "base")
            seeds |= found.keys()
            if not found:
                continue
            if row["ingredient"] == "base":
                row[name] = [round(one["score"], 2) for one in found.values()]
                row[f"{name}, missed"] = [round(one["missed"], 1) for one in found.values()]
                continue
            pairs = [(found[seed], base[seed]) for seed in sorted(found.keys() & base.keys())]
            for key, heading in (("score", name), ("missed", f"{name}, missed")):
                row[heading] = _interval([one[key] - other[key] for one, other in pairs])
    rows = [row for row in rows if len(row) > 1]
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
    """Return the mean of differences seed by seed, and half of its 95 % interval by Student's t."""
    if len(gains) < 3:
        return f"{mean(gains):+.1f} ({len(gains)} seeds)" if gains else ""
    half = student_t.ppf(0.975, len(gains) - 1) * stdev(gains) / len(gains) ** 0.5
    return f"{mean(gains):+.1f} ± {half:.1f}"


def _text(value: Any) -> str:
    return ", ".join(f"{one:.1f}" for one in value) if isinstance(value, list) else str(value)


def main() -> None:
    """Measure one data set, or show all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", nargs="?", default="", help="of the data set: a folder of runs/pays"
    )
    parser.add_argument("--recipe", default="quickstart", help="of its data and teacher")
    parser.add_argument("--student", default="bilstm-subwords", help="on the shelf")
    parser.add_argument("--raw", default="wordnet", help="raw text, a source")
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
