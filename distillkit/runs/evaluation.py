"""The stage that measures every model of a run on dev and test."""

import json
from dataclasses import asdict
from pathlib import Path

from distillkit import pipeline
from distillkit.data.gold import gold_of
from distillkit.data.tables import paired, read_table, texts_of
from distillkit.measure.baselines import TfidfBaseline, majority_logits
from distillkit.measure.cost import answer_of, megabytes, milliseconds, parameter_counts
from distillkit.measure.metrics import metrics
from distillkit.measure.report import comparison_table
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, Recipe
from distillkit.runs.folder import RunFolder, Summary
from distillkit.runs.stages import Taught
from distillkit.teacher.checkpoint import labels_of, load_classifier

# Raise it when the same models and rows give other metrics: runs then do the stage again.
EVALUATION_VERSION = 1


def evaluation_folder(run: Path) -> Path:
    """Return the folder of a run's evaluation; earlier versions called it `proof`."""
    folder, old = run / "evaluation", run / "proof"
    return old if old.is_dir() and not folder.exists() else folder


def evaluate_models(recipe: Recipe, home: RunFolder, task: Taught) -> Summary:
    """Bring the stage `evaluation` up to date; return its summary."""

    def build(out: Path) -> Summary:
        summary, latency = _measure(recipe, home.folder, task.data["rows"], task.columns)
        (out / "latency.json").write_text(json.dumps(latency, indent=1) + "\n", encoding="utf-8")
        (out / "report.md").write_text(comparison_table(summary, latency) + "\n", encoding="utf-8")
        return summary

    tables = {split: found for split, found in task.tables.items() if split != "unlabelled"}
    gold = ["student-gold"] if recipe.evaluation.gold_epochs else []
    if (old := evaluation_folder(home.folder)).name == "proof":
        old.rename(home.folder / "evaluation")
    inputs = tables | home.keys("teacher", *gold, "student")
    return home.stage(
        "evaluation", asdict(recipe.evaluation), inputs, build, version=EVALUATION_VERSION
    )


def _measure(
    recipe: Recipe, folder: Path, rows: dict[str, int], columns: ColumnsConfig
) -> tuple[Summary, dict[str, float]]:
    """Measure every model on dev and test; return scores and milliseconds a sentence."""
    task = recipe.data.task
    tables = {
        split: read_table(str(folder / "data" / f"{split}.parquet"), columns, task=task)
        for split in rows
        if split != "unlabelled"
    }
    stages = {"student_gold": "student-gold", "student": "student", "teacher": "teacher"}
    if not recipe.evaluation.gold_epochs:
        del stages["student_gold"]
    folders = {name: folder / stage / "model" for name, stage in stages.items()}
    loaded = {name: load_classifier(str(path)) for name, path in folders.items()}
    names = labels_of(loaded["teacher"][0])
    train_gold = gold_of(tables["train"], names, task)
    log("evaluation: TF-IDF")
    tfidf = TfidfBaseline(*texts_of(tables["train"]), train_gold, len(names), task)
    models: dict[str, Summary] = {name: {} for name in ("majority", "tfidf", *folders)}
    for split, table in tables.items():
        if split == "train":
            continue
        logits = {
            name: pipeline.classify(str(path), table, split, names)[0]
            for name, path in folders.items()
        }
        logits["majority"] = majority_logits(train_gold, len(names), len(table), task)
        logits["tfidf"] = tfidf.logits(*texts_of(table))
        gold = gold_of(table, names, task)
        for name, found in logits.items():
            models[name][split] = metrics(task, found, gold, names, logits["teacher"])
    for name, (model, _) in loaded.items():
        models[name] |= {
            "parameters": parameter_counts(model),
            "megabytes": megabytes(folders[name]),
        }
    log("evaluation: milliseconds a sentence")
    answers = {name: answer_of(*pair) for name, pair in loaded.items()}
    answers["tfidf"] = tfidf.logits
    timed = paired(*texts_of(tables["dev"].slice(0, recipe.evaluation.latency_sentences)))
    latency = milliseconds(answers, timed) if timed else {}
    return {"models": models}, latency
