"""Logits of an encoder that never learnt the task: how near a text is to what each label means."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.batches import encode
from distillkit.data.checked import fingerprint_or_name
from distillkit.data.gold import label_names
from distillkit.data.logits import shard_table, teacher_folder
from distillkit.errors import InputError
from distillkit.recipe import LabelConfig, Precision
from distillkit.teacher.chance import has_labels, refuse_chance
from distillkit.teacher.checkpoint import load_classifier, max_tokens_of, own_labels, resolve
from distillkit.teacher.store import check_manifest, fill_store, manifest_of, write_here
from distillkit.teacher.text_vectors import TextVectors
from distillkit.training.inference import predict_logits
from distillkit.training.precision import pick_device
from distillkit.training.precision import resolve as resolve_precision

HYPOTHESIS = "This example is {}."  # Yin et al. 2019
_SCALE = 20.0  # of a cosine, as sentence encoders are trained with it
_MAX_TOKENS = 256
_ROWS = 512  # between two moves of the progress bar

Answer = Callable[[Sequence[str]], np.ndarray]


def zero_shot(
    model: str, labels: Sequence[str], meanings: dict[str, str], precision: Precision = "auto"
) -> Answer:
    """Return what gives N texts logits, (N, C) float32.

    A model of entailment is asked whether the text entails each label's hypothesis: the label's
    description, or `HYPOTHESIS` about its name. Any other encoder compares the text's vector with
    that of each label's description or name; the logit is the cosine, times 20.

    Args:
        model: As for `checkpoint.resolve`.
        labels: C labels, in the order of the logits.
        meanings: Descriptions of labels.
        precision: Autocast of the forward pass.

    Raises:
        InputError: The model is a classifier of something else.

    Source: Yin et al. 2019 (arXiv 1909.00161) for entailment.
    """
    answers = own_labels(model)
    if not answers:
        vectors = TextVectors(model, _MAX_TOKENS, precision)
        wanted = _unit(vectors([meanings.get(label, label) for label in labels]))
        return lambda texts: _SCALE * _unit(vectors(texts)) @ wanted.T
    entails = [i for i, name in enumerate(answers) if name.lower().startswith("entail")]
    if not entails:
        raise InputError(
            f"{model}: a classifier of {', '.join(answers[:8])}: expected entailment, or an encoder without a head; its own labels want no --labels"
        )
    network, tokenizer = load_classifier(model)
    limit = min(_MAX_TOKENS, max_tokens_of(network, tokenizer))
    hypotheses = [meanings.get(label, HYPOTHESIS.format(label)) for label in labels]

    def entailed(texts: Sequence[str]) -> np.ndarray:
        columns = (
            predict_logits(
                network, encode(tokenizer, texts, [wanted] * len(texts), limit), precision=precision
            ).numpy()[:, entails[0]]
            for wanted in hypotheses
        )
        return np.stack([*columns], axis=1)

    return entailed


def label_zero_shot(
    table: pa.Table,
    store: Path,
    model: str,
    config: LabelConfig,
    labels: Sequence[str],
    name: str = "teacher",
) -> dict[str, Any]:
    """Give every row of a table the logits of `zero_shot`, in a store; else as `label_table`.

    Args:
        table: Canonical table of single texts; labelled rows are used to check the model.
        store: Folder of the store; made if absent.
        model: As for `zero_shot`.
        config: Descriptions of labels, precision, shards and storage.
        labels: C labels, in the order of the logits; empty: the table's.
        name: The teacher's folder in the store.

    Raises:
        InputError: The rows are pairs, there are not two labels, or the model does not fit or is at
            chance.
    """
    if "text_pair" in table.column_names:
        raise InputError(
            f"{model}: a zero-shot teacher reads single texts, but the rows are pairs; leave out --data.columns.text-pair"
        )
    names = list(labels) or (label_names(table) if has_labels(table) else [])
    if len(set(names)) < max(len(names), 2):
        raise InputError(f"{model}: expected two or more different --labels to choose from")
    folder, meanings = teacher_folder(store, name), config.meanings(names)
    precision = resolve_precision(config.precision, pick_device())
    manifest = manifest_of(
        names,
        "classification",
        config.storage,
        weights=fingerprint_or_name(resolve(model)),
        max_tokens=_MAX_TOKENS,
        precision=precision,
        descriptions=list(config.descriptions),
    )
    check_manifest(folder, manifest)
    answer = zero_shot(model, names, meanings, precision)
    score = refuse_chance(
        table,
        lambda rows: answer(rows["text"].to_pylist()),
        names,
        "classification",
        model,
        "say what the labels mean with --label.descriptions LABEL=SENTENCE",
    )
    shard = partial(shard_table, storage=config.storage, source=model, labels=names)

    def answered(texts: list[str], on_rows: Callable[[int], object]) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), _ROWS):
            parts.append(answer(texts[start : start + _ROWS]))
            on_rows(len(parts[-1]))
        return np.concatenate(parts)

    write = partial(write_here, lambda part: part["text"].to_pylist(), answered, shard)
    return fill_store(table, folder, manifest, config, write, score)


def _unit(vectors: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(length, 1e-9)
