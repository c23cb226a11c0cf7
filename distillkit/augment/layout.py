"""The work folder of a transfer set: the sources' rows, block by block, and the held-out rows."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from distillkit.augment.augmenter import refuse_mask
from distillkit.augment.method import AugmentOptions, Method, RowsJob, share_of
from distillkit.augment.methods import methods_of
from distillkit.augment.variants import schema
from distillkit.data.checked import arrow_writer, as_batch, fingerprint, open_arrow, write_arrow
from distillkit.data.content import paired, texts_of
from distillkit.data.labels import LABEL_TYPES
from distillkit.data.normal import normal_row
from distillkit.data.tables import resized
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig
from distillkit.recipe.kinds import resolve

BLOCK_ROWS = 4096  # texts tagged, and their tags kept, together
# Columns kept of a table: the row, and its provenance if a method made it.
_COLUMNS = ("text", "text_pair", "label", "rules", "source_row", "source_row_pair")
_FILE_BLOCKS = 64  # blocks of rows in a file: a folder of a million files is slow to work in
_UNIT_CANDIDATES = 2**16  # a block is cut into units that make no more rows than this


@dataclass(frozen=True)
class Unit:
    """Some rows of a block that are made into candidates, and written, together."""

    block: int
    origin: str
    first_row: int  # of the unit, in its source
    start: int  # in the block
    stop: int
    varied: bool
    file: int = 0  # of the block's rows
    batch: int = 0  # in that file


@dataclass(frozen=True)
class Job:
    """What every step must know beside the files; small, and sent to every worker."""

    folder: Path
    config: AugmentConfig
    seed: int
    # Outside of comparisons, in which a worker's copy of a function would be another.
    methods: tuple[Method, ...] = field(compare=False)
    pairs: bool
    label: pa.DataType  # of the column `label`

    @property
    def schema(self) -> pa.Schema:
        """The transfer set's columns."""
        two_rows = any(method.takes_singles for method in self.methods)
        return schema(self.pairs, self.label, two_rows=two_rows)

    def path(self, kind: str, number: int, form: str = "arrow") -> Path:
        """Return the file of a block, a unit or a partition."""
        return self.folder / f"{kind}-{number:06}.{form}"

    def rows(self, block: Unit) -> pa.Table:
        """Read a block's rows."""
        return _read_rows(self.folder.parent, block)

    def tag_paths(self, block: int) -> list[Path]:
        """Return the files of a block's tags, one for each text of a row."""
        return [
            self.path(f"tags{side}", block) for side in (("", "-pair") if self.pairs else ("",))
        ]


class Layout:
    """The sources' rows in files of a work folder.

    Attributes:
        blocks: One `Unit` for each block.
        kinds: Whether tables are of pairs; once all is laid out, one answer or none.
        label: Type of the labels.
        rows: Number of originals.
        originals: Hash of the rows up to the last original.
        digest: Hash of all rows, in the end with the held-out ones.
    """

    def __init__(self, work: Path, config: AugmentConfig, kinds: set[bool]) -> None:
        self.work, self.config, self.kinds, self._files = work, config, kinds, 0
        self.blocks: list[Unit] = []
        self.label = LABEL_TYPES["classification"]
        self.rows, self.originals, self.digest = 0, "", hashlib.sha256()

    def add(self, origin: str, tables: Iterable[pa.Table]) -> None:
        """Write a source's rows, block by block."""
        first = 0
        varied = self.config.n_iter != 0 and (
            origin == "original" or (origin == "unlabelled" and self.config.vary_unlabelled)
        )
        checked = map(self._checked, resized(tables, BLOCK_ROWS))
        for columns, alike in groupby(checked, attrgetter("schema")):
            for head in alike:
                path = _rows_path(self.work, self._files)
                with arrow_writer(path, columns) as writer:
                    for batch, table in enumerate(chain([head], islice(alike, _FILE_BLOCKS - 1))):
                        writer.write_batch(as_batch(table))
                        place = (first, 0, len(table), varied, self._files, batch)
                        self.blocks.append(Unit(len(self.blocks), origin, *place))
                        first += len(table)
                self.digest.update(f"{origin}{fingerprint(path)}".encode())
                self._files += 1
        if origin == "original":
            self.rows, self.originals = first, self.digest.hexdigest()

    def _checked(self, table: pa.Table) -> pa.Table:
        self.kinds.add("text_pair" in table.column_names)
        if len(self.kinds) > 1:
            raise InputError(
                "some tables have pairs and some single texts; give all of them the same columns, or --augment.mix.pairs 1, which pairs unlabelled texts"
            )
        names = [name for name in _COLUMNS if name in table.column_names]
        table = table.select(names).replace_schema_metadata(None).combine_chunks()
        if "label" in names and table["label"].type in LABEL_TYPES.values():
            self.label = table["label"].type
        for column in texts_of(table):
            refuse_mask(column or [], self.config.mask)
        return table

    def models(self) -> list[Unit]:
        """Return the blocks that new texts are modelled on: the originals, and what is varied."""
        return [block for block in self.blocks if block.origin == "original" or block.varied]

    def tables(self, blocks: Iterable[Unit]) -> Iterator[pa.Table]:
        """Read the rows of blocks again."""
        return (_read_rows(self.work, block) for block in blocks)


def lay_out(
    sources: Mapping[str, Iterable[pa.Table]], work: Path, options: AugmentOptions
) -> tuple[Job, Layout]:
    """Write every source's rows, block by block, and the held-out rows."""
    config, held_out = options.config, options.held_out
    layout = Layout(work, config, {"text_pair" in table.column_names for table in held_out})
    methods = methods_of(config)

    singles: list[Path] = []  # raw texts that a method makes pairs of
    pairs_up = any(method.takes_singles for method in methods)

    def rows_of(
        method: Method, tables: Iterable[pa.Table], rows: int, digest: str
    ) -> Iterable[pa.Table]:
        assert method.rows is not None
        if method.takes_singles:
            tables = chain(tables, *map(_batches, singles))
            digest += "".join(map(fingerprint, singles))
        wanted = share_of(config.for_rows(layout.rows), method.name, rows)
        job = RowsJob(options, tables, wanted, first_texts(work), digest, work)
        return resolve(method.rows)(job)

    for origin, tables in sources.items():
        for method in methods:
            if method.origin == origin == "unlabelled":
                tables = rows_of(method, tables, layout.rows, layout.originals)
        if origin == "unlabelled" and pairs_up and layout.kinds == {True}:
            tables, singles = _singles_apart(tables, work)
        layout.add(origin, tables)
    config, pairs = config.for_rows(layout.rows), True in layout.kinds
    if pairs:
        config = config.for_pairs()
        methods = methods_of(config)
    models = layout.models()
    count = sum(block.stop for block in models)
    digest = layout.originals if count == layout.rows else layout.digest.hexdigest()
    for method in methods:
        if method.origin not in ("", "unlabelled"):
            found = rows_of(method, layout.tables(models), count, digest)
            layout.add(method.origin, found)
    # A pair says the same the other way round, and a new pair may be one of them turned.
    path = _write_held_out(work, held_out, turned=pairs and (config.swap or pairs_up))
    layout.digest.update(fingerprint(path).encode())
    return Job(work, config, options.seed, tuple(methods), pairs, layout.label), layout


def _write_held_out(work: Path, tables: Iterable[pa.Table], *, turned: bool) -> Path:
    rows = [row for table in tables for row in paired(*texts_of(table))]
    if turned:
        rows += [(pair, text) for text, pair in rows if pair is not None]
    guarded = sorted({normal_row(*row) for row in rows})
    path = held_out_path(work)
    write_arrow(pa.table({"row": pa.array(guarded, pa.string())}), path)
    return path


def _singles_apart(tables: Iterable[pa.Table], work: Path) -> tuple[Iterable[pa.Table], list[Path]]:
    """Write tables to files if they have single texts; return the tables that are left, and these."""
    tables = iter(tables)
    first = list(islice(tables, 1))
    tables = chain(first, tables)
    if not first or "text_pair" in first[0].column_names:
        return tables, []
    path = work / "singles.arrow"
    with arrow_writer(path, pa.schema([("text", pa.string())])) as writer:
        for table in resized(tables, BLOCK_ROWS):
            writer.write_batch(as_batch(table.select(["text"]).replace_schema_metadata(None)))
    return [], [path]


def _batches(path: Path) -> Iterator[pa.Table]:
    reader = open_arrow(path)
    for number in range(reader.num_record_batches):
        yield pa.Table.from_batches([reader.get_batch(number)])


def units_of(block: Unit, config: AugmentConfig) -> Iterator[Unit]:
    """Cut a block into units that make few enough candidates."""
    rows, made = BLOCK_ROWS, 1 + config.swap + (config.n_iter if block.varied else 0)
    while rows > 1 and rows * made > _UNIT_CANDIDATES:
        rows //= 2
    for start in range(0, block.stop, rows):
        stop = min(start + rows, block.stop)
        yield replace(block, first_row=block.first_row + start, start=start, stop=stop)


def first_texts(work: Path) -> list[str]:
    """Return the texts of the first block.

    Raises:
        InputError: There is none.
    """
    path = _rows_path(work, 0)
    if not path.is_file():
        raise InputError(
            "augment.mix.sentences cuts as many texts as the training texts ask for, but there are none; give a source, or set it to 0"
        )
    return texts_of(next(_batches(path)))[0]


def held_out_path(work: Path) -> Path:
    """Return the file of the rows that no added row may equal."""
    return work / "held-out.arrow"


def _rows_path(work: Path, file: int) -> Path:
    return work / f"rows-{file:06}.arrow"


def _read_rows(work: Path, block: Unit) -> pa.Table:
    return pa.Table.from_batches([open_arrow(_rows_path(work, block.file)).get_batch(block.batch)])
