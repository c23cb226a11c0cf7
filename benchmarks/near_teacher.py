"""Train one student on transfer sets of several kinds, and see how near each brings it to its teacher.

python benchmarks/near_teacher.py trec-bilstm --options --data.train trec6/train.tsv
python benchmarks/near_teacher.py trec-bilstm --sets gold today rules both --raw imdb.txt --options ...
python benchmarks/near_teacher.py mrpc --student decomposable --sets few pairs --options ...

One teacher labels all transfer sets; the students of a set differ in their seed. By transfer set the
table has dev scores, the share that is closed of what the teacher is above the gold student, and the
share of the variance of the teacher's logits that the student misses on dev. Finished students stay
in runs/near/NAME/students, so it can be stopped and started again, and they can be compressed.
runs/near-NAME.json has every seed's figures, as a file for benchmarks/results/.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tables import save_results

from distillkit import pipeline
from distillkit.cli import parse
from distillkit.data.files import whole_file
from distillkit.data.tables import read_table, write_table
from distillkit.measure.report import table
from distillkit.recipe import (
    MixConfig,
    Recipe,
    StudentConfig,
    Task,
    load_config,
)
from distillkit.runs import Taught, at_work, student_job, teach
from distillkit.runs.gap import Probe
from distillkit.runs.students import GOLD_BATCH
from distillkit.training.checkpoints import training_log


@dataclass(frozen=True)
class Set:
    """A transfer set, and how long a student learns from it."""

    rules: int = 0  # variants of each text by the paper's rules
    chains: int = 0  # texts of a Markov chain for each text
    raw: int = 0  # raw texts
    pairs: int = 0  # new pairs for each pair
    self_pairs: int = 0  # texts beside their own variants, for each pair
    epochs: int = -1  # by the rows
    steps: int = 0

    def of(self, recipe: Recipe, raw: str) -> Recipe:
        """Return a recipe that makes it."""
        rows = self.rules + self.chains + self.pairs + self.self_pairs
        mix = MixConfig(
            rules=float(self.rules or not rows),
            markov=float(self.chains),
            pairs=float(self.pairs),
            self_pairs=float(self.self_pairs),
        )
        augment = replace(recipe.augment, n_iter=rows, mix=mix)
        unlabelled = (raw,) if self.raw else ()
        data = replace(recipe.data, unlabelled=unlabelled, unlabelled_rows=self.raw)
        training = replace(recipe.training, epochs=self.epochs, steps=self.steps)
        return replace(recipe, data=data, augment=augment, training=training)


SETS = {
    "gold": Set(),
    "today": Set(rules=10, epochs=3),
    "rules": Set(rules=20),
    "chains": Set(rules=20, chains=20),
    "raw": Set(rules=20, raw=30_000),
    "both": Set(rules=20, chains=20, raw=30_000),
    "half-chains": Set(rules=10, chains=10),
    "half": Set(rules=10, chains=10, raw=30_000),
    "few": Set(rules=4),
    "pairs": Set(rules=4, pairs=10),
    "many-pairs": Set(rules=2, pairs=30),
    "self-pairs": Set(rules=4, pairs=10, self_pairs=12),
    "half-pairs": Set(rules=2, pairs=4, steps=3000),
    "half-self-pairs": Set(rules=2, pairs=4, self_pairs=6, steps=3000),
    "no-rules": Set(chains=20, raw=30_000),
    "few-half": Set(rules=2, chains=2, raw=30_000),
    "few-100k": Set(rules=5, raw=100_000),
    **{f"raw-{n}k": Set(rules=20, raw=1000 * n) for n in (10, 60, 100, 300)},
}


class Experiment:
    """One teacher, and the folder of all that is measured with it.

    Args:
        task: What `runs.teach` left.
        kind: Of the recipe's task.
        folder: Holds results.json, the logit store and the transfer sets.
    """

    def __init__(self, task: Taught, kind: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        self.results = folder / "results.json"
        dev = read_table(task.path["dev"], task.columns, task=kind)
        names = [name for name in ("text", "text_pair") if name in dev.column_names]
        self.probe = Probe(task.model, {"dev": dev.select(names)}, kind)
        self.done: dict[str, dict[str, float]] = {}
        if self.results.is_file():
            self.done = json.loads(self.results.read_text(encoding="utf-8"))

    def student(self, name: str, recipe: Recipe, seed: int, rows: str) -> dict[str, float]:
        """Return what one student scores; train it if it is not there.

        Args:
            name: Of the student, among this folder's.
            recipe: What it is, and how it learns.
            seed: Of the student.
            rows: Name of the recipe's transfer set; gold: the training rows and their labels.
        """
        key = f"{name} {seed}"
        if key not in self.done:
            self.done[key] = self._train(
                recipe, seed, rows, self.folder / "students" / key.replace(" ", "-")
            )
            with whole_file(self.results) as unfinished:
                unfinished.write_text(json.dumps(self.done, indent=1) + "\n", encoding="utf-8")
        return self.done[key]

    def _train(self, recipe: Recipe, seed: int, rows: str, model: Path) -> dict[str, float]:
        gold = rows == "gold"
        transfer_set, labelling = (
            (self.task.path["train"], 0.0) if gold else self._transfer(recipe, rows)
        )
        training, began = recipe.training, time.monotonic()
        if gold:
            training = replace(
                training.by_epochs(recipe.evaluation.gold_epochs),
                batch_size=min(training.batch_size, GOLD_BATCH),
            )
        logits = None if gold else self.folder / "store"
        job = student_job(recipe, self.task, transfer_set, model, logits)
        found = pipeline.train_student(replace(job, training=training, seed=seed))
        return {
            "score": 100 * found[f"dev_{training.score_of(recipe.data.task)}"],
            "missed": 100 * self.probe.gaps(str(model))["dev"],
            "rows": len(read_table(transfer_set, self.task.columns, labels="ignored")),
            "steps": max(line["step"] for line in training_log(model)),
            "labelling": labelling / 60,
            "training": (time.monotonic() - began) / 60,
        }

    def _transfer(self, recipe: Recipe, name: str) -> tuple[str, float]:
        """Make and label a transfer set; return its path, and the seconds that labelling took."""
        target = self.folder / f"{name}.parquet"
        took = target.with_suffix(".seconds")
        if not took.is_file():
            task, unlabelled = self.task, []
            if recipe.data.unlabelled:
                here = replace(
                    recipe.data,
                    train=task.path["train"],
                    dev=task.path["dev"],
                    columns=task.columns,
                )
                raw = target.with_suffix(".raw.parquet")
                write_table(pipeline.read_data(here, recipe.seed)["unlabelled"], raw)
                unlabelled = [str(raw)]
            pipeline.augment(
                task.path["train"],
                target,
                recipe.augment,
                task.columns,
                [task.path["dev"]],
                unlabelled,
                recipe.seed,
                task=recipe.data.task,
                teacher=self.task.model,
            )
            began = time.monotonic()
            store = self.folder / "store"
            pipeline.label(str(target), store, task.model, recipe.label, task.columns)
            took.write_text(str(time.monotonic() - began), encoding="utf-8")
        return str(target), float(took.read_text(encoding="utf-8"))


def rows_of(found: dict[str, list[dict[str, float]]], teacher: float) -> list[list[str]]:
    """Return the table: a line for each transfer set."""
    gold = mean(one["score"] for one in found["gold"])
    rows = [["dev", "rows", "steps", "score", "sd", "closed, %", "missed, %", "labelled in, min"]]
    rows[0] += ["trained in, min"]
    for name, cells in found.items():
        scores = [cell["score"] for cell in cells]
        closed = 100 * (mean(scores) - gold) / (teacher - gold) if teacher > gold else 0.0
        about: dict[str, Any] = asdict(SETS[name])
        what = ", ".join(f"{value:,} {key}" for key, value in about.items() if value > 0)
        times = [f"{mean(c[key] for c in cells):.1f}" for key in ("labelling", "training")]
        rows.append(
            [
                f"{name} ({what})" if what else name,
                *(f"{mean(cell[key] for cell in cells):,.0f}" for key in ("rows", "steps")),
                f"{mean(scores):.1f}",
                f"{stdev(scores):.1f}" if len(scores) > 1 else "",
                f"{closed:.0f}",
                "" if name == "gold" else f"{mean(cell['missed'] for cell in cells):.1f}",
                *times,
            ]
        )
    return [*rows, ["teacher", "", "", f"{teacher:.1f}", "", "100", "0", "", ""]]


def main() -> None:
    """Train what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the students")
    parser.add_argument("--sets", nargs="+", default=["gold", "today", "rules", "both"])
    parser.add_argument("--raw", default="wordnet", help="raw text, a source")
    parser.add_argument("--name", default="", help="folder below runs/near; empty: the recipe's")
    parser.add_argument("--student", default="", help="on the shelf; empty: the recipe's")
    parser.add_argument("--vectors", default="", help="student.embeddings.source; empty: its own")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of distillkit run")
    given = parser.parse_args()
    name = given.name or Path(given.recipe).stem
    recipe: Recipe = parse("run", [given.recipe, *given.options]).settings  # type: ignore[attr-defined]
    recipe = replace(recipe, data=replace(recipe.data, unlabelled=(), unlabelled_rows=0))
    if given.student:
        recipe = replace(recipe, student=load_config("students", given.student, StudentConfig()))
    whose = f"{given.student} " if given.student else ""
    if given.vectors:
        embeddings = replace(recipe.student.embeddings, source=given.vectors)
        recipe = replace(recipe, student=replace(recipe.student, embeddings=embeddings))
        whose += f"{Path(given.vectors).stem} "
    with at_work(Path("runs") / "near" / name) as home:
        task = teach(recipe, home, home.folder / "recipe.yaml")
        experiment = Experiment(task, recipe.data.task, home.folder)
        source = "" if given.raw == "wordnet" else f"-{Path(given.raw).stem}"
        found: dict[str, list[dict[str, float]]] = {}
        for seed in given.seeds:
            for one in dict.fromkeys(["gold", *given.sets]):
                rows = f"{one}{source if SETS[one].raw else ''}"
                found.setdefault(one, []).append(
                    experiment.student(
                        f"{whose}{rows}", SETS[one].of(recipe, given.raw), seed, rows
                    )
                )
        teacher = 100 * task.teacher[f"dev_{recipe.teacher.training.score_of(recipe.data.task)}"]
        print(table(rows_of(found, teacher)))
        saved: list[dict[str, Any]] = [{"dev": "teacher", "score": round(teacher, 2)}]
        for one, cells in found.items():
            lists = {key: [round(cell[key], 2) for cell in cells] for key in cells[0]}
            saved.append({"dev": one, **lists})
        save_results(f"near-{name}", f"dev score by transfer set, {name}", given.seeds, saved)


if __name__ == "__main__":
    main()
