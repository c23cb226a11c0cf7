"""The transfer set: originals, unlabelled text and variants, without duplicates and leaks.

    sources -> blocks of rows -> tags -> lexicon -> candidates, a hash each -> which come first ->
    the rows that stay -> Parquet

Each step reads files of a work folder and writes files there. So memory holds a block and one
partition of the hashes, any process of any machine may do any block, and a killed run goes on
from the files that are there.
"""

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distillkit.augment.corpus import LEXICON, Lexicon, tagged_batch
from distillkit.augment.duplicates import BYTES_A_ROW, keep_first, kept, write_hashes
from distillkit.augment.layout import (
    Job,
    Layout,
    Unit,
    drawn_texts,
    first_texts,
    held_out_path,
    lay_out,
    units_of,
)
from distillkit.augment.method import AugmentOptions, Preparation
from distillkit.augment.rules import SWAPPED, Variation
from distillkit.augment.taggers import Tagger, resolve_tagger, tag_block, tagger_version
from distillkit.augment.variants import ORIGINS, VariantMaker, origin_column, rules_column
from distillkit.augment.yields import count_rows, yield_report
from distillkit.data.checked import read_array, read_arrow, write_arrow
from distillkit.data.content import content_hashes, paired, texts_of
from distillkit.data.files import disk_errors, hold, remove_folder
from distillkit.data.normal import normal_row
from distillkit.data.tables import table_writer, with_mask
from distillkit.data.workers import each, processes
from distillkit.errors import InputError
from distillkit.processes import progress_bar

_GROUP_ROWS = 2**17  # units are written together until they have as many rows
_FORMAT = 3  # of the work folder and of what is written: raised when either changes
_COUNTS = b"counts"  # key of a finished unit's metadata
# Classes of rows for `duplicates`: an original is never left out for another row.
_CLASSES = {"original": 0, "unlabelled": 1, "generated": 2, "augmented": 3}


def build_transfer_set(
    sources: Mapping[str, Iterable[pa.Table]], target: Path, options: AugmentOptions
) -> dict[str, Any]:
    """Build the transfer set and write it as one Parquet file.

    Args:
        sources: Canonical tables, block by block, by origin. `original`: their texts come back byte
            for byte, each once, with their label, unless two labels conflict. `unlabelled`: cut
            into sentences where the mix has them. `generated`.
        target: Parquet file to write, whole or not at all; docs/files.md has its columns.
        options: How, from which seed, guarded against what, and where.

    Returns:
        `rows`, and by origin `original`, `unlabelled`, `generated`, `augmented`; `duplicates` and
            `leaks` left out; `rules`: rows that each had a part in; `lengths`: rows by number of
            words ("9-16": rows).

    Raises:
        InputError: Pairs and single texts are mixed, a text holds the mask word, there is no such
            tagger, or another process is making it.
    """
    target = target.absolute()  # workers may stand elsewhere
    work = target.with_name(f".{target.name}.work")
    with hold(target):
        with disk_errors(target):
            work.mkdir(exist_ok=True)
        try:
            report = _build(sources, target, work, options)
        except InputError:
            remove_folder(work)
            raise
        remove_folder(work)
    return report


def _build(
    sources: Mapping[str, Iterable[pa.Table]], target: Path, work: Path, options: AugmentOptions
) -> dict[str, Any]:
    job, layout = lay_out(sources, work, options)
    config, varied = options.config, [block for block in layout.blocks if block.varied]
    tagger = resolve_tagger(config.tagger, first_texts(work)) if varied else "none"
    job = _in_own_folder(job, layout, tagger, options)
    units = [unit for block in layout.blocks for unit in units_of(block, config)]
    cores = processes(options.workers, len(varied))

    def go(what: str, step: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        asks = what == "make" and any(method.holds_model for method in job.methods)
        results = each(step, items, engine=options.engine, workers=cores, holds_model=asks)
        name = f"augment: {what}"
        yield from progress_bar(results, desc=name, total=len(items), unit="block")

    blocks = [block.block for block in varied]
    list(go("tag", partial(_tag, job, tagger, options.tagger), blocks))
    _prepare(job, options, varied)
    candidates = sum(go("make", partial(_make, job), list(enumerate(units))))
    partitions = max(1, -(-candidates * BYTES_A_ROW // (config.memory_mb * 2**20)))
    list(go("compare", partial(_compare, job, len(units), partitions), range(partitions)))
    counts = go("write", partial(_finish, job, partitions), range(len(units)))
    return yield_report(_write(job, target, counts, len(units)), candidates)


def _in_own_folder(job: Job, layout: Layout, tagger: str, options: AugmentOptions) -> Job:
    """Give the work a folder named after all that it depends on; remove those of other settings."""
    # Two callables cannot be told apart, so their work is not taken up again.
    version = uuid4().hex if options.tagger is not None else tagger_version(tagger)
    config = asdict(replace(options.config, tagger=version, memory_mb=1))
    settings = [_FORMAT, config, options.seed, layout.digest.hexdigest()]
    settings.append(options.models.fingerprints())
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
    folder = layout.work / key
    for old in layout.work.glob("????????????????"):
        if old != folder:
            remove_folder(old)
    folder.mkdir(exist_ok=True)
    return replace(job, folder=folder)


def _tag(job: Job, name: str, tagger: Tagger | None, block: int) -> None:
    rows = job.rows(block)
    for path, column in zip(job.tag_paths(block), ("text", "text_pair"), strict=False):
        if not path.is_file():
            texts = rows[column].to_pylist()
            batch = tag_block(name, texts) if tagger is None else tagged_batch(texts, tagger(texts))
            write_arrow(pa.Table.from_batches([batch]), path)


def _prepare(job: Job, options: AugmentOptions, varied: Sequence[Unit]) -> None:
    """Do once what every worker needs: the lexicon, and what methods prepare."""
    if not (job.folder / LEXICON).is_file():
        paths = (path for block in varied for path in job.tag_paths(block.block))
        batches = (read_arrow(path).to_batches()[0] for path in paths)
        Lexicon.build(batches, job.config.mask).save(job.folder)
    if varied:
        lexicon, texts = Lexicon.load(job.folder), partial(drawn_texts, job, varied)
        for method in job.methods:
            if method.prepare is not None:
                method.prepare(Preparation(options, lexicon, texts, job.folder))


def _make(job: Job, numbered: tuple[int, Unit]) -> int:
    """Write a unit's candidates and their hashes; return how many there are."""
    number, unit = numbered
    path, hashes = job.path("candidates", number), job.path("hashes", number, "npy")
    if hashes.is_file():
        return len(read_array(hashes))
    rows = job.rows(unit.block).slice(unit.start, unit.stop - unit.start)
    own = _as_they_are(rows, unit, job)
    tables = [own]
    if job.config.swap and job.pairs and unit.origin == "original":
        tables.append(_turned(own))
    if unit.varied:
        tables.extend(_variants(job, unit, rows))
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    write_arrow(table, path)
    classes = np.array([_CLASSES[name] for name in ORIGINS])
    origins = table["origin"].chunk(0).indices.to_numpy()
    labels = np.zeros(len(table), np.uint32)
    labels[: len(own)] = [
        0 if label is None else zlib.crc32(str(label).encode()) | 1
        for label in own["label"].to_pylist()
    ]
    pairs = table["text_pair"].chunk(0) if job.pairs else None
    content = content_hashes(table["text"].chunk(0), pairs)
    write_hashes(hashes, content, classes[origins], number, labels)
    return len(table)


def _variants(job: Job, unit: Unit, rows: pa.Table) -> Iterator[pa.Table]:
    lexicon, variations = _variations(job)
    tags = (read_arrow(path).slice(unit.start, len(rows)) for path in job.tag_paths(unit.block))
    blocks = [lexicon.block(table.combine_chunks().to_batches()[0]) for table in tags]
    unlabelled = unit.origin == "unlabelled"
    maker = VariantMaker(job.config, job.seed, variations, unlabelled=unlabelled, label=job.label)
    return maker(blocks[0], blocks[1] if job.pairs else None, rows, unit.first_row)


@lru_cache(maxsize=1)
def _variations(job: Job) -> tuple[Lexicon, Mapping[str, Variation]]:
    lexicon = Lexicon.load(job.folder)
    return lexicon, {
        method.name: method.variation(lexicon, job.config, job.folder)
        for method in job.methods
        if method.variation is not None
    }


def _as_they_are(rows: pa.Table, unit: Unit, job: Job) -> pa.Table:
    """Return a unit's own rows as candidates."""
    columns: dict[str, Any] = {name: rows[name] for name in rows.column_names}
    columns["origin"] = origin_column(unit.origin, len(rows))
    if "source_row" not in columns:
        columns["source_row"] = pa.array(np.arange(unit.first_row, unit.first_row + len(rows)))
        columns["rules"] = rules_column(np.zeros(len(rows), np.uint8))
    wanted = job.schema
    found = [columns.get(field.name, pa.nulls(len(rows), field.type)) for field in wanted]
    return pa.table(found, schema=wanted)


def _turned(table: pa.Table) -> pa.Table:
    """Return pairs the other way round, without labels."""
    columns = {
        "text": table["text_pair"],
        "text_pair": table["text"],
        "label": pa.nulls(len(table), table["label"].type),
        "origin": origin_column("augmented", len(table)),
        "rules": rules_column(np.full(len(table), SWAPPED, np.uint8)),
    }
    found = [columns.get(name, table[name]) for name in table.column_names]
    return pa.table(found, schema=table.schema)


def _compare(job: Job, units: int, partitions: int, partition: int) -> None:
    target = job.path(f"first-of-{partitions}", partition, "npy")
    if not target.is_file():
        paths = [job.path("hashes", unit, "npy") for unit in range(units)]
        keep_first(paths, partition, partitions, target)


def _finish(job: Job, partitions: int, number: int) -> dict[str, int]:
    """Write the rows of a unit that stay; return how many of each sort there are."""
    path = job.path("done", number)
    if path.is_file():
        return json.loads(read_arrow(path).schema.metadata[_COUNTS])
    table = read_arrow(job.path("candidates", number))
    kind = f"first-of-{partitions}"
    paths = [job.path(kind, partition, "npy") for partition in range(partitions)]
    places, conflicting = kept(paths, number)
    table = table.take(pa.array(places))
    if conflicting.any():
        labels = pc.if_else(pa.array(conflicting), pa.scalar(None, job.label), table["label"])
        table = table.set_column(table.column_names.index("label"), "label", labels)
    distinct = len(table)
    table = _without_leaks(table, job.folder)
    counts = count_rows(table) | {"distinct": distinct, "leaks": distinct - len(table)}
    done = table.cast(_plain(table.schema)).replace_schema_metadata({_COUNTS: json.dumps(counts)})
    write_arrow(done, path)
    return counts


def _write(
    job: Job, target: Path, counts: Iterable[Mapping[str, int]], units: int
) -> Mapping[str, int]:
    """Write the finished units into the target, as they come; return the sum of their counts."""
    total: Counter[str] = Counter()
    empty = with_mask(_plain(job.schema).empty_table(), job.config.mask)
    with table_writer(target, empty.schema) as writer:
        group: list[pa.Table] = []
        for number, found in enumerate(counts):
            total.update(found)
            done = read_arrow(job.path("done", number))
            group.append(done.replace_schema_metadata(empty.schema.metadata))
            if sum(map(len, group)) >= _GROUP_ROWS or number == units - 1:
                writer.write_table(pa.concat_tables(group))
                group = []
    return total


def _plain(of: pa.Schema) -> pa.Schema:
    """Spell dictionaries out: Parquet makes its own, and not every reader takes Arrow's."""
    text = pa.string()
    return pa.schema([(f.name, text if pa.types.is_dictionary(f.type) else f.type) for f in of])


def _without_leaks(table: pa.Table, folder: Path) -> pa.Table:
    guarded = _guarded(folder)
    if not guarded:
        return table
    original = pc.equal(table["origin"].cast(pa.string()), "original").to_numpy()
    rows = paired(*texts_of(table))
    leak = np.fromiter((normal_row(*row) in guarded for row in rows), bool, len(table))
    return table.filter(pa.array(original | ~leak)) if (leak & ~original).any() else table


@lru_cache(maxsize=1)
def _guarded(folder: Path) -> frozenset[str]:
    # Kept by the folder of the settings, whose name depends on what is held out: the file's own
    # path does not.
    return frozenset(read_arrow(held_out_path(folder.parent))["row"].to_pylist())
