"""One form of a row for comparing: what two rows share if they differ in form alone."""

import unicodedata

import pyarrow as pa

from distillkit.data.content import paired, texts_of


def normal_row(text: str, pair: str | None = None) -> str:
    """Return a row without what Unicode form, case and white space tell apart.

    Finding duplicates in a transfer set compares bytes instead: a teacher's logits may depend on
    case and white space.

    Args:
        text: The text.
        pair: The second text of a pair, which a line end parts from the first.

    >>> normal_row("A  cafe\u0301 ") == normal_row("a CAF\u00c9")
    True
    """
    sides = (text,) if pair is None else (text, pair)
    return "\n".join(
        " ".join(unicodedata.normalize("NFC", side).casefold().split()) for side in sides
    )


def normal_rows(table: pa.Table) -> list[str]:
    """Return a canonical table's rows, each as `normal_row` makes it."""
    return [normal_row(*row) for row in paired(*texts_of(table))]
