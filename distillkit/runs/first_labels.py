"""The stage `first-labels`: what a run learns from where only the names of the classes are known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit import pipeline
from distillkit.data.checked import fingerprint_or_name
from distillkit.data.keys import first_places
from distillkit.data.logits import join_logits, joined_labels, keys_of
from distillkit.data.normal import normal_row
from distillkit.data.tables import draw_rows, read_table, take_rows, write_table
from distillkit.errors import InputError
from distillkit.pipeline.task import read_unlabelled
from distillkit.pipeline.teacher import LABEL_VERSION
from distillkit.recipe import ColumnsConfig, DataConfig, Recipe
from distillkit.runs.asked import ask_service
from distillkit.runs.folder import RunFolder, Summary, relative

FIRST_LABELS = "first-labels"
ANSWERS = "store"
_TRAIN = "train.parquet"


def check_first_labels(recipe: Recipe) -> None:
    """Refuse a recipe without labelled rows that does not say who labels some, or the reverse.

    Raises:
        InputError: It is one.
    """
    label, said = recipe.label, f"data.labels is {', '.join(recipe.data.labels)}"
    if not recipe.data.labels:
        if label.zero_shot:
            raise InputError(
                f"label.zero_shot is {label.zero_shot}, which is for texts without labels: name data.labels and data.unlabelled, or leave it out"
            )
        return
    if not (label.zero_shot or label.endpoint.url):
        raise InputError(
            f"{said}: say who labels the first texts: label.endpoint.url, a service, or label.zero_shot, an encoder"
        )
    if recipe.data.columns.text_pair:
        raise InputError(f"{said}, but the rows are pairs, which want labelled rows: data.train")
    label.meanings(recipe.data.labels)


def labelled_data(data: DataConfig, run: Path) -> DataConfig:
    """Return where the labelled text of a recipe with `data.labels` is, once a run has labelled some.

    Args:
        data: Of the recipe.
        run: The run's folder.
    """
    return replace(data, train=str(run / FIRST_LABELS / _TRAIN), labels=())


def with_first_labels(recipe: Recipe, home: RunFolder, sources: str) -> tuple[DataConfig, Summary]:
    """Bring the stage up to date.

    Args:
        recipe: One with `data.labels`.
        home: The run's folder.
        sources: Fingerprint of the data's sources.

    Returns:
        Where the labelled text now is, and a summary: `by`, `texts` that there are, `rows` that
            got a label, `log_probabilities`: whether a service gave most answers with them, `dev_by`:
            whose labels dev has; empty: its own.
    """
    data, label = recipe.data, recipe.label
    by = label.zero_shot or f"{label.endpoint.url} ({label.endpoint.model})"

    def build(out: Path) -> Summary:
        texts, chosen = chosen_texts(recipe)
        source = out / "texts.parquet"
        write_table(chosen, source)
        store, columns = out / ANSWERS, ColumnsConfig()
        with_probabilities = False
        if label.zero_shot:
            pipeline.label(str(source), store, label.zero_shot, label, labels=data.labels)
        else:
            asked = ask_service(recipe, home.folder, str(source), columns, data.labels, "", store)
            with_probabilities = 2 * asked["hard"] < asked["answers"]
        logits = join_logits(chosen, store)
        answered = np.ptp(logits, axis=1) > 0
        names = np.array(joined_labels(store))[logits.argmax(1)]
        train = chosen.append_column("label", pa.array(names, pa.string())).filter(answered)
        if len(set(train["label"].to_pylist())) < len(data.labels):
            none = sorted(set(data.labels) - set(train["label"].to_pylist()))
            more = "raise label.budget" if len(chosen) < len(texts) else "name more texts"
            raise InputError(
                f"{by}: none of {len(train):,} texts is called {', '.join(none)}; say what the labels mean with label.descriptions, or {more}"
            )
        write_table(train, out / _TRAIN)
        return {
            "by": by,
            "texts": len(texts),
            "rows": len(train),
            "log_probabilities": with_probabilities,
            "dev_by": "" if data.dev else by,
        }

    settings: list[Any] = [data.settings(), label.settings(), label.budget, recipe.seed]
    settings += [label.zero_shot, label.descriptions]
    inputs = {"data's sources": sources}
    if label.zero_shot:
        inputs["label.zero_shot"] = fingerprint_or_name(label.zero_shot)
    found = relative(home.stage(FIRST_LABELS, settings, inputs, build, version=LABEL_VERSION))
    return labelled_data(data, home.folder), found


def _texts(source: str, data: DataConfig) -> list[str]:
    table = read_table(source, data.columns, labels="ignored", missing=data.missing)
    return table["text"].to_pylist()


def chosen_texts(recipe: Recipe) -> tuple[pa.Table, pa.Table]:
    """Read the distinct unlabelled texts that are in no held-out split, and draw the first ones.

    Case and white space aside, as for the transfer set.

    Returns:
        All of them, and `label.budget` of them.

    Raises:
        InputError: They cannot be read, are pairs, or are all held out.
    """
    data, budget = recipe.data, recipe.label.budget
    texts = read_unlabelled(data)
    assert texts is not None  # as `DataConfig` checks
    if "text_pair" in texts.column_names:
        raise InputError("data.unlabelled has pairs, which want labelled rows: data.train")
    texts = take_rows(texts, first_places(keys_of(texts)))
    held_out = {
        normal_row(text, None)
        for source in filter(None, (data.dev, data.test))
        for text in _texts(source, data)
    }
    new = [normal_row(text, None) not in held_out for text in texts["text"].to_pylist()]
    texts = texts.filter(pa.array(new, pa.bool_()))
    if not len(texts):
        raise InputError(
            f"{', '.join(data.unlabelled)}: every text is also in dev or test, so that none is left to learn from; give other texts"
        )
    return texts, draw_rows(texts, budget or len(texts), recipe.seed)
