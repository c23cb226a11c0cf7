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
from distillkit.data.checked import (
    arrow_writer,
    as_batch,
    as_batches,
    open_arrow,
    read_array,
    read_arrow,
    write_arrow,
)
from distillkit.data.content import content_hashes
from distillkit.data.files import disk_errors, hold, remove_folder
from distillkit.data.normal import normal_rows
from distillkit.data.tables import table_writer, with_mask
from distillkit.data.workers import each, processes
from distillkit.errors import InputError, Unfinished
from distillkit.processes import progress_bar

_GROUP_ROWS = 2**17  # units are written together until they have as many rows
_FILES = 1024  # groups of units at most: each step opens the files of all groups
_FORMAT = 5  # of the work folder and of what is written: raised when either changes
_COUNTS = b"counts"  # key of a finished batch's metadata
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
            `leaks` left out; `rules`: rows that each had a part in.

    Raises:
        InputError: Pairs and single texts are mixed, a text holds the mask word, there is no such
            tagger, or another process is making it.
    """
    target = target.absolute()  # workers may stand elsewhere
    work = target.with_name(f".{target.name}.work")
    with hold(target):
        fresh = not work.exists()
        with disk_errors(target):
            work.mkdir(exist_ok=True)
        try:
            report = _build(sources, target, work, options)
        except Unfinished:
            raise
        except InputError:
            if fresh:  # else a mistake in this command would cost what a killed one has done
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
    units = [unit for block in layout.blocks for unit in units_of(block, job.config)]
    size = -(-len(units) // _FILES) or 1
    groups = [units[start : start + size] for start in range(0, len(units), size)]
    cores = processes(options.workers, len(varied))

    def go(what: str, step: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        results = each(step, items, engine=options.engine, workers=cores)
        name = f"augment: {what}"
        yield from progress_bar(results, desc=name, total=len(items), unit="block")

    list(go("tag", partial(_tag, job, tagger, options.tagger), varied))
    _prepare(job, options, varied)
    candidates = sum(go("make", partial(_make, job), list(enumerate(groups))))
    partitions = max(1, -(-candidates * BYTES_A_ROW // (config.memory_mb * 2**20)))
    list(go("compare", partial(_compare, job, len(groups), partitions), range(partitions)))
    counts = go("write", partial(_finish, job, partitions), range(len(groups)))
    return yield_report(_write(job, target, counts), candidates)


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


def _tag(job: Job, name: str, tagger: Tagger | None, block: Unit) -> None:
    rows = job.rows(block)
    for path, column in zip(job.tag_paths(block.block), ("text", "text_pair"), strict=False):
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
        lexicon = Lexicon.load(job.folder)
        for method in job.methods:
            if method.prepare is not None:
                method.prepare(Preparation(options, lexicon, job.folder))


def _make(job: Job, numbered: tuple[int, Sequence[Unit]]) -> int:
    """Write the candidates of some units, a batch each, and their hashes; return how many."""
    number, units = numbered
    hashes = job.path("hashes", number, "npy")
    if hashes.is_file():
        return read_array(hashes).shape[1]
    found = []
    with arrow_writer(job.path("candidates", number), job.schema) as writer:
        for unit in units:
            for batch in as_batches(_candidates(job, unit)):
                writer.write_batch(batch)
                found.append(_hashed(job, batch))
    content, classes, labels = map(np.concatenate, zip(*found, strict=True))
    write_hashes(hashes, content, classes, number, labels)
    return len(content)


def _candidates(job: Job, unit: Unit) -> pa.Table:
    """Return a unit's own rows, then what is made of them."""
    rows = job.rows(unit).slice(unit.start, unit.stop - unit.start)
    own = _as_they_are(rows, unit, job)
    tables = [own]
    if job.config.swap and job.pairs and unit.origin == "original":
        tables.append(_turned(own))
    if unit.varied:
        tables.extend(_variants(job, unit, rows))
    return pa.concat_tables(tables, promote_options="default")


def _hashed(job: Job, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `write_hashes` takes of candidates: hashes, classes and labels."""
    classes = np.array([_CLASSES[name] for name in ORIGINS])
    labels = [
        0 if label is None else zlib.crc32(str(label).encode()) | 1
        for label in batch["label"].to_pylist()
    ]
    content = content_hashes(batch["text"], batch["text_pair"] if job.pairs else None)
    return content, classes[batch["origin"].indices.to_numpy()], np.array(labels, np.uint32)


def _variants(job: Job, unit: Unit, rows: pa.Table) -> Iterator[pa.Table]:
    lexicon, variations = _variations(job)
    tags = (read_arrow(path).slice(unit.start, len(rows)) for path in job.tag_paths(unit.block))
    blocks = [lexicon.block(table.combine_chunks().to_batches()[0]) for table in tags]
    unlabelled = unit.origin == "unlabelled"
    alone = [method.name for method in job.methods if method.self_pairs]
    maker = VariantMaker(
        job.config,
        job.seed,
        variations,
        unlabelled=unlabelled,
        label=job.label,
        self_pairs=alone,
    )
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


def _compare(job: Job, groups: int, partitions: int, partition: int) -> None:
    target = job.path(f"first-of-{partitions}", partition, "npy")
    if not target.is_file():
        paths = [job.path("hashes", group, "npy") for group in range(groups)]
        keep_first(paths, partition, partitions, target)


def _finish(job: Job, partitions: int, number: int) -> dict[str, int]:
    """Write the rows of a group that stay; return how many of each sort there are."""
    path, candidates = job.path("done", number), job.path("candidates", number)
    if not path.is_file():
        kind = f"first-of-{partitions}"
        paths = [job.path(kind, partition, "npy") for partition in range(partitions)]
        _keep(job, candidates, *kept(paths, number), path)
    candidates.unlink(missing_ok=True)
    return sum((counts for _, counts in _done(path)), Counter())


def _keep(
    job: Job, candidates: Path, places: np.ndarray, conflicting: np.ndarray, target: Path
) -> None:
    """Write the rows of a group that stay, and their counts with each batch."""
    reader, start = open_arrow(candidates), 0
    with arrow_writer(target, _plain(job.schema)) as writer:
        for batch in map(reader.get_batch, range(reader.num_record_batches)):
            a, b = np.searchsorted(places, (start, start + len(batch)))
            table = pa.Table.from_batches([batch]).take(pa.array(places[a:b] - start))
            if conflicting[a:b].any():
                two = pa.array(conflicting[a:b])
                labels = pc.if_else(two, pa.scalar(None, job.label), table["label"])
                table = table.set_column(table.column_names.index("label"), "label", labels)
            distinct = len(table)
            table = _without_leaks(table, job.folder)
            counts = count_rows(table) | {"distinct": distinct, "leaks": distinct - len(table)}
            plain = as_batch(table.cast(_plain(table.schema)))
            writer.write_batch(plain, custom_metadata={_COUNTS: json.dumps(counts)})
            start += len(batch)


def _done(path: Path) -> Iterator[tuple[pa.RecordBatch, Counter[str]]]:
    """Read what `_keep` wrote."""
    reader = open_arrow(path)
    for number in range(reader.num_record_batches):
        batch, meta = reader.get_batch_with_custom_metadata(number)
        yield batch, Counter(json.loads(meta[_COUNTS]))


def _write(job: Job, target: Path, counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Write the finished groups into the target, as they come; return the sum of their counts."""
    total: Counter[str] = Counter()
    empty = with_mask(_plain(job.schema).empty_table(), job.config.mask)
    with table_writer(target, empty.schema) as writer:
        group: list[pa.RecordBatch] = []
        for number, found in enumerate(counts):
            total.update(found)
            for batch, _ in _done(job.path("done", number)):
                group.append(batch)
                if sum(map(len, group)) >= _GROUP_ROWS:
                    writer.write_table(_joined(group, empty.schema))
                    group = []
        if group:
            writer.write_table(_joined(group, empty.schema))
    return total


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches).replace_schema_metadata(schema.metadata)


def _plain(of: pa.Schema) -> pa.Schema:
    """Spell dictionaries out: Parquet makes its own, and not every reader takes Arrow's."""
    text = pa.string()
    return pa.schema([(f.name, text if pa.types.is_dictionary(f.type) else f.type) for f in of])


def _without_leaks(table: pa.Table, folder: Path) -> pa.Table:
    guarded = _guarded(folder)
    if not guarded:
        return table
    original = pc.equal(table["origin"].cast(pa.string()), "original").to_numpy()
    leak = np.fromiter((row in guarded for row in normal_rows(table)), bool, len(table))
    return table.filter(pa.array(original | ~leak)) if (leak & ~original).any() else table


@lru_cache(maxsize=1)
def _guarded(folder: Path) -> frozenset[str]:
    # Kept by the folder of the settings, whose name depends on what is held out: the file's own
    # path does not.
    return frozenset(read_arrow(held_out_path(folder.parent))["row"].to_pylist())
