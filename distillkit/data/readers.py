"""Read any source a user may name into rows of raw values, each with the place it came from."""

import codecs
import importlib.resources
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

from upath import UPath

from distillkit.data.delimited import csv_rows, tsv_rows
from distillkit.data.wordnet import FILES, glosses_of, wordnet_files
from distillkit.errors import ICONV, InputError, library_errors

if TYPE_CHECKING:
    import pyarrow as pa

EMBEDDED = ("reviews", "questions")
_FORMS = ".tsv, .csv, .jsonl, .json, .parquet, .txt, a folder of such files, embedded:NAME/SPLIT, datasets:NAME[:CONFIG]:SPLIT or wordnet[:FOLDER]"

# What a Parquet file may expand to: so many times its size, or so many bytes. Text expands to less
# than 20 times, a dictionary of one long text to millions.
_EXPANSION, _EXPANDED, _ROW_BYTES = 1_000, 1 << 28, 256
_NOT_PARQUET = "not a Parquet file, or a damaged one"

# (place to name in an error, e.g. "dev.tsv:17"; the row's values by column)
Row = tuple[str, dict[str, Any]]


def read_rows(source: str) -> Iterator[Row]:
    """Read a source row by row.

    Args:
        source: A path (.tsv, .csv, .jsonl, .parquet, .txt), a folder of such files, an address that
            fsspec knows (s3://...), `embedded:NAME/SPLIT`, `datasets:NAME[:CONFIG]:SPLIT`, or
            `wordnet[:FOLDER]`.

    Returns:
        Each row with its place, `FILE:LINE` or `FILE row N`.

    Raises:
        InputError: The source is absent, of no known form, not UTF-8, or a row does not fit its
            header.
    """
    if source.startswith("datasets:"):
        return _read_datasets(source)
    return chain.from_iterable(map(_rows_of, source_files(source)))


def is_plain_text(path: UPath) -> bool:
    """Say whether a file has texts alone, whose column is `text`."""
    return _form(path) == ".txt" or path.name in FILES


def _form(path: UPath) -> str:
    """Return a file's suffix in small letters: some programs write DATA.CSV."""
    return str(path.suffix.lower())


def _rows_of(path: UPath) -> Iterator[Row]:
    if path.name in FILES:
        return glosses_of(read_lines(path))
    if _form(path) not in _READERS:
        raise InputError(f"{path}: not a form that can be read; expected {_FORMS}")
    return _READERS[_form(path)](path)


def source_files(source: str) -> list[UPath]:
    """Return a source's files: itself, or a folder's files of one known form, by name.

    Raises:
        InputError: There is no such file, or a folder has none that can be read.
    """
    if source.startswith("embedded:"):
        return [UPath(source_path(source))]
    with library_errors(source, "cannot be read"):
        if source == "wordnet" or source.startswith("wordnet:"):
            return wordnet_files(source)
        path = UPath(source)
        if not path.is_dir():
            return [path if path.is_file() else UPath(source_path(source))]
        inside = sorted(
            p for p in path.iterdir() if _form(p) in _READERS and not p.name.startswith((".", "_"))
        )
    if len(forms := {_form(p) for p in inside}) != 1:
        raise InputError(
            f"{source}: expected a folder of files of one form ({', '.join(_READERS)}), found {sorted(forms) or 'none'}"
        )
    return inside


def source_path(source: str) -> Path:
    """Return the file of a source that is one on this machine.

    Raises:
        InputError: There is no such file.
    """
    if source.startswith("embedded:"):
        path = (
            Path(str(importlib.resources.files("distillkit.data")))
            / "embedded"
            / f"{source.removeprefix('embedded:')}.tsv"
        )
        if not os.path.isfile(path):
            raise InputError(
                f"{source}: no such embedded data; there is {', '.join(f'embedded:{n}/train, /dev, /test, /unlabelled' for n in EMBEDDED)}"
            )
        return path
    if not os.path.isfile(source):  # False, not an error, also for a name that is too long
        there = "is a pipe or a device" if os.path.exists(source) else "no such file"
        what = "is a folder, not a file" if os.path.isdir(source) else there
        raise InputError(f"{source}: {what}; expected {_FORMS}")
    return Path(source)


@contextmanager
def _opened(path: UPath, what: str = "cannot be read") -> Iterator[IO[bytes]]:
    """Open a file of a source; name it in whatever is raised while it is read.

    Raises:
        InputError: It is no regular file, or `what`.
    """
    with library_errors(str(path), what):
        if not path.is_file():  # a pipe in a folder of files would be waited for
            raise InputError(f"{path}: is no file; expected {_FORMS}")
        with path.open("rb") as stream:
            yield stream


def read_lines(path: UPath, *, ends: bool = False) -> Iterator[tuple[str, str]]:
    """Read a file's lines, blank ones too, each with its place, without byte order mark.

    A stray U+2028 ends no line.

    Raises:
        InputError: A line is not UTF-8.
    """
    with _opened(path) as stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1:
                _refuse_utf_16(path, raw)
                _refuse_returns(path, raw)
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}:{number}: byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8; "
                    f"convert the file first, {ICONV}"
                ) from None
            yield f"{path}:{number}", line if ends else line.rstrip("\r\n")


def _refuse_utf_16(path: UPath, start: bytes) -> None:
    """Refuse a file of two bytes a character: it begins with a mark, or half of its bytes are 0."""
    marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if marked or start[:200].count(0) > len(start[:200]) / 4:
        new = path.with_name(f"{path.stem}-utf8{path.suffix}")
        raise InputError(
            f"{path}: is UTF-16, expected UTF-8; convert it first: iconv -f utf-16 -t utf-8 {quote(str(path))} > {quote(str(new))}"
        )


def _refuse_returns(path: UPath, start: bytes) -> None:
    """Refuse a file whose lines end as old Macs end them."""
    if b"\r" in start.rstrip() and not start.endswith(b"\n"):
        raise InputError(
            f"{path}: its lines end with a carriage return alone, as on old Macs; save it with the line ends of Unix or Windows"
        )


def parse_json(text: str, place: str, mend: str = "") -> Any:
    """Return what JSON text holds.

    Args:
        text: One value.
        place: Where it stands, for errors.
        mend: Ends them.

    Raises:
        InputError: It is not JSON, an object has a key twice, a string has half of a surrogate
            pair, or it is too deep or a number too long for Python.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: column {error.colno}: not JSON: {error.msg}{mend}") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise InputError(f"{place}: {half!r}: half of a surrogate pair is no text") from None
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{place}: not JSON that can be read: {said}{mend}") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r} is given twice")
    return found


def _read_jsonl(path: UPath) -> Iterator[Row]:
    names: dict[str, None] = {}  # of the first row
    for place, line in read_lines(path):
        if not line.strip():
            continue
        row = parse_json(line, place, "; expected one object a line")
        if not isinstance(row, dict):
            raise InputError(
                f"{place}: expected a JSON object, found {type(row).__name__}; write one object a line"
            )
        names = names or dict.fromkeys(row)
        # A row that lacks a key, and has no other in its place, lacks a value.
        yield place, names | row if row.keys() <= names.keys() else row


def _read_text(path: UPath) -> Iterator[Row]:
    for place, line in read_lines(path):
        if line.strip():
            yield place, {"text": line}


def parquet_schema(path: UPath) -> "pa.Schema":
    """Return the columns of a Parquet file.

    Raises:
        InputError: It is no Parquet file.
    """
    import pyarrow.parquet as pq

    with _opened(path, _NOT_PARQUET) as stream:
        return pq.read_schema(stream)


def read_batches(
    path: UPath, rows: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, "pa.Table"]]:
    """Read a Parquet file in batches, each with the number of its first row, from 1.

    Args:
        path: The file.
        rows: Rows a batch, at most.
        columns: Those to read; None: all.

    Raises:
        InputError: It is no Parquet file, is damaged, or expands beyond all measure.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _opened(path, _NOT_PARQUET) as stream:
        limit = max(_EXPANDED, _EXPANSION * stream.seek(0, os.SEEK_END))
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        leaves = [file.schema.column(i) for i in range(len(file.schema))]
        texts = [
            leaf.path
            for leaf in leaves
            if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type != "DECIMAL"
        ]
        # Of a dictionary it is known what it expands to before it does.
        coded = pq.ParquetFile(
            stream,
            metadata=file.metadata,
            read_dictionary=texts,
            page_checksum_verification=True,
            pre_buffer=False,  # else all of the file's bytes are held until its last row is read
        )
        names = file.schema_arrow.names
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"{path}: has the column {twice!r} twice; rename one")
        wanted = names if columns is None else columns
        plain = pa.schema([_plain(file.schema_arrow.field(name)) for name in wanted])
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        columns_of = [group.column(i) for group in groups for i in range(len(leaves))]
        numbers = sum(c.num_values for c in columns_of if c.physical_type != "BYTE_ARRAY")
        number, expanded = 1, max(_ROW_BYTES * file.metadata.num_rows, 8 * numbers)
        for batch in chain([None], coded.iter_batches(rows, columns=columns)):
            expanded += sum(map(_expanded, batch.columns)) if batch else 0
            if expanded > limit:
                raise InputError(
                    f"{path}: expands to more than {limit:,} bytes, {_EXPANSION:,} times its size; expected rows of text"
                )
            if batch:
                table = pa.Table.from_batches([batch])
                table.validate(full=True)  # Python would trip over a text that is not UTF-8
                yield number, table.cast(plain)
                number += len(table)


def _plain(field: "pa.Field") -> "pa.Field":
    """Return a field in a type that a dictionary can be cast to."""
    import pyarrow as pa

    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return field.with_type(views.get(field.type, field.type))


def _expanded(column: "pa.Array") -> int:
    """Return how many bytes a column has once its dictionaries are spelled out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if str(column.type).startswith(("dictionary<values=string", "dictionary<values=binary")):
        return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
    if isinstance(column, pa.StructArray):
        return sum(map(_expanded, column.flatten()))
    if pa.types.is_map(column.type):
        return _expanded(column.keys) + _expanded(column.items)
    if pa.types.is_nested(column.type):
        return _expanded(column.flatten())
    return column.nbytes


def _read_parquet(path: UPath) -> Iterator[Row]:
    for first, batch in read_batches(path, 4096):
        with library_errors(f"{path} from row {first}", "a value that Python cannot hold"):
            rows = batch.to_pylist()
        for number, row in enumerate(rows, start=first):
            yield f"{path} row {number}", row


def _read_datasets(source: str) -> Iterator[Row]:
    import datasets

    parts = source.split(":")[1:]
    if len(parts) not in (2, 3) or not all(parts):
        raise InputError(f"{source}: expected datasets:NAME:SPLIT or datasets:NAME:CONFIG:SPLIT")
    name, split = parts[0], parts[-1]
    try:
        if (Path(name) / "dataset_dict.json").is_file() or (Path(name) / "state.json").is_file():
            saved = datasets.load_from_disk(name)
            table = saved[split] if isinstance(saved, datasets.DatasetDict) else saved
        else:
            table = datasets.load_dataset(name, *parts[1:-1], split=split)
    except (
        datasets.exceptions.DatasetsError,
        FileNotFoundError,
        ValueError,
        KeyError,
        RuntimeError,
        OSError,
    ) as error:
        raise InputError(
            f"{source}: datasets could not load it: {' '.join(str(error).split())[:300]}; "
            "expected datasets:NAME[:CONFIG]:SPLIT, or a folder of save_to_disk for NAME"
        ) from None
    for number, row in enumerate(named_rows(table), start=1):
        yield f"{source} row {number}", row


def named_rows(table: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a `datasets.Dataset`, classes by their names; None where one is hidden."""
    import datasets

    classes = {
        column: feature
        for column, feature in table.features.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    # Of a multi-label task each row has a list of classes.
    lists = {
        column: feature.feature
        for column, feature in table.features.items()
        if isinstance(feature, (datasets.Sequence, datasets.LargeList))
        and isinstance(feature.feature, datasets.ClassLabel)
    }
    for row in table:
        # A ClassLabel of -1 is the hub's way to hide a test label.
        named = {name: row[name] for name in classes}
        named = {k: None if v is None or v < 0 else classes[k].names[v] for k, v in named.items()}
        named |= {
            k: None if row[k] is None or -1 in row[k] else [feature.names[i] for i in row[k]]
            for k, feature in lists.items()
        }
        yield {**row, **named}


_READERS: dict[str, Callable[[UPath], Iterator[Row]]] = {
    ".tsv": lambda path: tsv_rows(path, read_lines(path)),
    ".csv": lambda path: csv_rows(path, read_lines(path, ends=True)),
    ".jsonl": _read_jsonl,
    ".json": _read_jsonl,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
