"""`augment`: training text -> transfer set."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from torch import Tensor

from distillkit.augment.method import AugmentOptions, Models
from distillkit.augment.methods import methods_of
from distillkit.augment.transfer_set import build_transfer_set
from distillkit.data.content import texts_alone
from distillkit.data.memory import source_of
from distillkit.data.own_tables import raw_columns
from distillkit.data.tables import read_blocks, read_table
from distillkit.data.workers import leading
from distillkit.errors import InputError
from distillkit.pipeline.results import TransferSet
from distillkit.pipeline.task import COLUMNS
from distillkit.processes import log
from distillkit.recipe import AugmentConfig, ColumnsConfig, Engine, Task
from distillkit.teacher.checkpoint import load_base_model, load_config_of, resolve
from distillkit.teacher.text_vectors import TextVectors
from distillkit.teacher.word_states import word_states
from distillkit.training.inference import on_threads

if TYPE_CHECKING:
    from distillkit.data.memory import Rows

_TOKENS = 128  # of a text whose sentence vector is compared
# Raise it when the same settings and inputs give another result: runs then do the stage again.
TRANSFER_VERSION = 1


def augment(
    source: "Rows",
    target: Path,
    config: AugmentConfig | None = None,
    columns: ColumnsConfig = COLUMNS,
    held_out: Sequence["Rows"] = (),
    unlabelled: Sequence["Rows"] = (),
    seed: int = 1,
    *,
    task: Task = "classification",
    teacher: str = "",
    engine: Engine = "local",
    workers: int = 0,
) -> TransferSet:
    """Build the transfer set of a file: its own texts byte for byte, more text, and variants.

    Args:
        source: Training text, also in memory as `data.memory.source_of` takes it; labels are kept
            where there are any. Empty: `unlabelled` alone.
        target: Parquet file to write; docs/files.md has its columns.
        config: Rates, iterations, tagger, mix.
        columns: Names of the columns of every source here.
        held_out: Dev and test, likewise: no added row equals one of theirs.
        unlabelled: More text, likewise; cut into sentences where the mix has them, varied only where
            `config.vary_unlabelled` says so.
        seed: Draws everything.
        task: What a label is.
        teacher: Encoder that neighbours and pairs ask where they do not name another.
        engine: local or ray.
        workers: Processes; 0: one a core where there is work enough. Under torchrun its processes
            share the work, and only process 0 reports.
    """
    target = Path(target)
    if target.suffix != ".parquet":
        raise InputError(f"{target}: expected a target that ends in .parquet")
    raw = [source_of(rows, "unlabelled") for rows in unlabelled]
    others = [source_of(rows, "held_out") for rows in held_out]
    config, counts = config or AugmentConfig(), {}
    with leading() as here:
        if here:
            models = models_of(config, teacher, columns, raw)
            sources = {}
            if not (isinstance(source, str) and source == ""):
                own = source_of(source, "source")
                blocks = read_blocks(own, columns, task=task, labels="optional")
                sources["original"] = _with_labels(blocks, own, columns.label)
            if raw:
                named = {name: raw_columns(name, columns) for name in raw}
                _check_alike(named)
                blocks = (
                    read_blocks(name, named[name], labels="ignored", or_canonical=True)
                    for name in raw
                )
                sources["unlabelled"] = map(texts_alone, chain.from_iterable(blocks))
            tables = [read_table(name, columns, labels="ignored") for name in others]
            options = AugmentOptions(
                config, int(seed), tables, models=models, engine=engine, workers=workers
            )
            counts = build_transfer_set(sources, target, options)
    return TransferSet(str(target), **counts)


def _check_alike(named: dict[str, ColumnsConfig]) -> None:
    """Refuse unlabelled sources, by name, of which some have pairs and some single texts.

    Raises:
        InputError: One of each is named.
    """
    kinds = {bool(columns.text_pair): name for name, columns in named.items()}
    if len(kinds) > 1:
        raise InputError(
            f"{kinds[True]} has pairs, {kinds[False]} single texts; give texts of one kind at a time"
        )


def _with_labels(blocks: Iterable[pa.Table], source: str, column: str) -> Iterator[pa.Table]:
    """Yield blocks of a source; say it if none has a label.

    Raises:
        InputError: None has, and the user named the column.
    """
    labelled = False
    for block in blocks:
        labelled |= block["label"].null_count < len(block)
        yield block
    if not labelled:
        missing = f"{source}: no row has a label in column {column!r}; name theirs with --data.columns.label"
        if column != COLUMNS.label:
            raise InputError(missing)
        log(missing)


def models_of(
    config: AugmentConfig,
    teacher: str = "",
    columns: ColumnsConfig = COLUMNS,
    unlabelled: Sequence[str] = (),
) -> Models:
    """Find what the mix of a transfer set needs beside the training texts.

    Args:
        config: The mix, and each method's settings.
        teacher: Encoder where neighbours and pairs do not name another.
        columns: Names of the columns; with a second text the task is of pairs.
        unlabelled: Sources of more text.

    Raises:
        InputError: A model or file is not there, or there is nothing that could be cut into
            sentences.
    """
    found: dict[str, str] = {}
    for method in methods_of(config):
        if method.check is not None:
            method.check(config, bool(columns.text_pair), bool(unlabelled))
        asked = method.model and method.model(config, teacher)
        if asked:
            setting, model = asked
            found[method.name] = model if Path(model).is_file() else _checkpoint(setting, model)
    return Models(found, _word_vectors, _text_vectors) if found else Models()


def _checkpoint(setting: str, model: str) -> str:
    """Return what a checkpoint can be loaded by, once its configuration has been."""
    if not model:
        raise InputError(f"{setting} is empty and no teacher is given; name a checkpoint")
    load_config_of(model)
    return resolve(model)


def _word_vectors(encoder: str, words: Sequence[str]) -> Tensor:
    states = word_states(*load_base_model(encoder), words, progress="augment: word vectors")
    return states[:, -1]  # the last layer's


def _text_vectors(encoder: str, texts: Sequence[str]) -> np.ndarray:
    # On one thread, so that the number of processes changes no bit.
    with on_threads(1):
        return _encoder(encoder)(texts)


@lru_cache(maxsize=1)
def _encoder(name: str) -> TextVectors:
    return TextVectors(name, _TOKENS)
