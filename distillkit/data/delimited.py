"""Tables as text: fields split at tabs, or as spreadsheets write CSV."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

from upath import UPath

from distillkit.errors import InputError
from distillkit.processes import log

# The csv module's own limit, 131,072 characters a field, is shorter than some documents.
csv.field_size_limit(2**31 - 1)
_SEEN_LINES = 20  # of a CSV file, after its header, that say what it is split at
_QUOTED = re.compile(r"(^|\t)\"[^\t]*\"\"[^\t]*\"(\t|$)")  # a field as CSV quotes it


def _header(place: str, fields: list[str]) -> list[str]:
    if not any(fields):
        raise InputError(f"{place}: is blank; expected the names of the columns: remove this line")
    for name, count in Counter(filter(None, fields)).most_common(1):
        if count > 1:
            raise InputError(f"{place}: the header names the column {name!r} twice; rename one")
    return fields


def tsv_rows(path: UPath, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Split lines at tabs. Quotes mean nothing: a reader that honours them swallows rows at a stray one.

    Args:
        path: The file, for notes.
        lines: From `readers.read_lines`: places and texts.

    Yields:
        Each row's place, and its values by column.

    Raises:
        InputError: A row has another number of fields than the header, or that names a column twice.
    """
    header: list[str] | None = None
    for place, line in lines:
        fields = line.split("\t")
        if header is None:
            header = _header(place, fields)
        elif line:
            if '""' in line and _QUOTED.search(line):
                _say_quotes(str(path))
            if len(fields) != len(header):
                raise InputError(
                    f"{place}: {len(fields)} fields, but the header has {len(header)} ({', '.join(header)}); fields are split at tabs and quotes mean nothing"
                )
            yield place, dict(zip(header, fields, strict=True))


@cache
def _say_quotes(path: str) -> None:
    log(f"{path}: fields are quoted as in CSV, and in a .tsv quotes mean nothing; rename it .csv")


def csv_rows(path: UPath, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read lines as spreadsheets write them; arguments, rows and errors as for `tsv_rows`."""
    header: list[str] | None = None
    texts = (line for _, line in lines)
    first, start = next(texts, ""), 1
    if not first:
        return
    head = [first, *islice(texts, _SEEN_LINES)]
    if first.startswith("sep=") and len(first.rstrip("\r\n")) == len(
        "sep=;"
    ):  # Excel's own first line
        delimiter, start = first[4], 2
        del head[0]
    else:
        delimiter = _delimiter(head)
    skipped = start - 1
    reader = csv.reader(chain(head, texts), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            place, start = f"{path}:{start}", reader.line_num + 1 + skipped
            if header is None:
                header = _header(place, fields)
            elif fields:
                if len(fields) != len(header):
                    raise InputError(
                        f"{place}: {len(fields)} fields, but the header has {len(header)} ({', '.join(header)}); quote a field that holds a {delimiter!r}"
                    )
                yield place, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise InputError(
            f"{path}:{start}: not CSV: {error}; a field with a quote in it must be quoted and the quote doubled"
        ) from None


def _delimiter(lines: Sequence[str]) -> str:
    """Find the mark between fields: spreadsheets of many countries split at semicolons.

    A column's name may hold another mark. The one that splits most lines as it does the header is it.
    """
    header, *rows = (re.sub(r'"[^"]*"', "", line) for line in lines)  # in quotes nothing splits
    marks = [mark for mark in ",;\t|" if mark in header] or [","]
    return max(marks, key=lambda mark: sum(row.count(mark) == header.count(mark) for row in rows))
