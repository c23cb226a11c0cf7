"""The stage that measures every model of a run on dev and test."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distillkit import pipeline
from distillkit.data.content import paired, texts_of
from distillkit.data.gold import gold_of
from distillkit.data.labels import labels_of
from distillkit.data.tables import read_table
from distillkit.measure.baselines import FrozenBaseline, TfidfBaseline, majority_logits
from distillkit.measure.cost import (
    Answer,
    answer_of,
    megabytes,
    milliseconds,
    parameter_counts,
)
from distillkit.measure.metrics import metrics
from distillkit.measure.report import comparison_table
from distillkit.processes import log
from distillkit.recipe import Recipe
from distillkit.runs.folder import BUNDLE, RunFolder, Summary
from distillkit.runs.stages import Taught
from distillkit.teacher.checkpoint import load_classifier
from distillkit.teacher.text_vectors import TextVectors
from distillkit.training.inference import on_threads

# Raise it when the same models and rows give other metrics: runs then do the stage again.
EVALUATION_VERSION = 3


def evaluation_folder(run: Path) -> Path:
    """Return the folder of a run's evaluation; earlier versions called it `proof`."""
    folder, old = run / "evaluation", run / "proof"
    return old if old.is_dir() and not folder.exists() else folder


def evaluate_models(recipe: Recipe, home: RunFolder, task: Taught) -> Summary:
    """Bring the stage `evaluation` up to date; return its summary."""

    def build(out: Path) -> Summary:
        summary, latency = _measure(recipe, home.folder, task)
        (out / "latency.json").write_text(json.dumps(latency, indent=1) + "\n", encoding="utf-8")
        (out / "report.md").write_text(comparison_table(summary, latency) + "\n", encoding="utf-8")
        return summary

    tables = {split: found for split, found in task.tables.items() if split != "unlabelled"}
    stages = ["student-gold"] if recipe.evaluation.gold_epochs else []
    stages += ["student", "ship"] if recipe.ship.form == "bundle" else ["student"]
    if (old := evaluation_folder(home.folder)).name == "proof":
        old.rename(home.folder / "evaluation")
    inputs = tables | home.keys("teacher", *stages)
    return home.stage(
        "evaluation", asdict(recipe.evaluation), inputs, build, version=EVALUATION_VERSION
    )


def _measure(recipe: Recipe, folder: Path, task: Taught) -> tuple[Summary, dict[str, float]]:
    """Measure every model on dev and test; return scores and milliseconds a row."""
    kind = recipe.data.task
    tables = {
        split: read_table(task.path[split], task.columns, task=kind)
        for split in ("train", "dev", "test")
        if split in task.tables
    }
    train = tables.pop("train")
    names = labels_of(load_classifier(task.model)[0])
    train_gold = gold_of(train, names, kind)
    labelled = (*texts_of(train), train_gold, len(names), kind)
    answers = {name: baseline(name, recipe, task, labelled) for name in ("tfidf", "frozen")}
    models: dict[str, Summary] = {name: {} for name in ("majority", *answers)}
    folders = {"student_gold": "student-gold", "student": "student", "teacher": "teacher"}
    if not recipe.evaluation.gold_epochs:
        del folders["student_gold"]
    for name, stage in folders.items():
        model = folder / stage / "model"
        network, tokenizer = load_classifier(str(model))
        models[name] = {"parameters": parameter_counts(network), "megabytes": megabytes(model)}
        answers[name] = answer_of(network, tokenizer)
    if recipe.ship.form == "bundle":
        bundle = folder / "ship" / BUNDLE
        models["shipped"] = {"megabytes": bundle.stat().st_size / 1e6}
        answers["shipped"] = _calibrated(bundle, names)
    for split, table in tables.items():
        logits = {
            name: pipeline.classify(str(folder / folders[name] / "model"), table, split, names)[0]
            if name in folders
            else answer(*texts_of(table))
            for name, answer in answers.items()
        }
        logits["majority"] = majority_logits(train_gold, len(names), len(table), kind)
        gold = gold_of(table, names, kind)
        for name, found in logits.items():
            models[name][split] = metrics(kind, found, gold, names, logits["teacher"])
    log("evaluation: timing the models")
    timed = paired(*texts_of(tables["dev"].slice(0, recipe.evaluation.latency_sentences)))
    with on_threads(1):
        latency = milliseconds(answers, timed) if timed else {}
    return {"models": models}, latency


def baseline(name: str, recipe: Recipe, task: Taught, train: tuple[Any, ...]) -> Answer:
    """Fit a baseline that trains no network.

    Args:
        name: tfidf; or frozen, the teacher's encoder as it was before it was fine-tuned.
        recipe: Names the encoder.
        task: What `teach` left.
        train: Texts, second texts or None, gold, C, task.
    """
    log(f"baseline: {name}")
    if name == "tfidf":
        return TfidfBaseline(*train).logits
    model = recipe.teacher.model
    if task.adapted is not None:
        model = str(Path(task.model).parents[1] / "adapted" / "model")
    return FrozenBaseline(TextVectors(model, recipe.teacher.max_tokens), *train).logits


def _calibrated(bundle: Path, names: Sequence[str]) -> Answer:
    """Return what answers with a bundle's logits, in the order of `names`, over its temperature."""
    from distillkit.runtime import Predictor

    student = Predictor(bundle)
    order = [student.labels.index(name) for name in names]
    temperature = student.manifest.temperature
    return lambda texts, pairs: student.logits(texts, pairs)[:, order] / temperature
