"""What `data.unlabelled: auto` means on this machine, for these texts."""

from dataclasses import replace

from distillkit.data.readers import source_files
from distillkit.data.tables import read_blocks
from distillkit.data.words import is_english
from distillkit.errors import InputError
from distillkit.recipe import DataConfig
from distillkit.recipe.data import AUTO_RAW, AUTO_RAW_ROWS

WORDNET = "wordnet"
_SAMPLE = 1000  # texts


def settle_raw_text(data: DataConfig) -> tuple[DataConfig, str]:
    """Say what raw text a task takes where `data.unlabelled` is `auto`.

    Args:
        data: Where the labelled text is.

    Returns:
        The same with `unlabelled` and `unlabelled_rows` that say it, and the reason in a line;
            empty where there was nothing to settle.

    Raises:
        InputError: The training data cannot be read.
    """
    if data.unlabelled != (AUTO_RAW,):
        return data, ""
    none = replace(data, unlabelled=(), unlabelled_rows=0)
    if not data.train:
        return none, ""
    blocks = read_blocks(
        data.train, data.columns, task=data.task, missing=data.missing, rows=_SAMPLE
    )
    first = next(blocks, None)
    if first is None:
        return none, "no raw text: there is no training text"
    if "text_pair" in first.column_names:
        return none, "no raw text: the rows are pairs, and WordNet has single texts"
    if not is_english(first["text"].to_pylist()):
        return (
            none,
            "no raw text: WordNet is English, the texts are not; name raw text in data.unlabelled",
        )
    try:
        source_files(WORDNET)
    except InputError as error:
        return none, f"no raw text: {error}"
    rows = data.unlabelled_rows or AUTO_RAW_ROWS
    settled = replace(data, unlabelled=(WORDNET,), unlabelled_rows=rows)
    return (
        settled,
        f"WordNet is installed: {rows:,} of its texts are the raw text; --data.unlabelled with no value leaves them out",
    )
