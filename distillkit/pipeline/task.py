"""What a recipe's data are: every source of a task read and checked, before anything is trained."""

import pyarrow as pa

from distillkit.data.tables import label_names, read_table, split_dev
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig, DataConfig

COLUMNS = ColumnsConfig()


def read_data(data: DataConfig, seed: int = 1) -> dict[str, pa.Table]:
    """Read everything a task has into canonical tables.

    Args:
        data: The kind of task, sources and their columns.
        seed: Which rows become dev where the task has none.

    Returns:
        `train`, `dev`, where given `test` and `unlabelled`.

    Raises:
        InputError: A source is wrong, has one class or score only, or has a label that train has
            not.
    """
    if not data.train:
        raise InputError(
            "no training data: give --data.train, a file with a text and a label column"
        )
    tables = {"train": read_table(data.train, data.columns, task=data.task)}
    names = label_names(tables["train"], data.train)
    for split in ("dev", "test"):
        source = getattr(data, split)
        if source:
            tables[split] = read_table(source, data.columns, task=data.task, known=names)
    if "dev" not in tables:
        if not data.dev_fraction:
            raise InputError("no dev data: give --data.dev, or a --data.dev-fraction above 0")
        tables["train"], tables["dev"] = split_dev(tables["train"], data.dev_fraction, seed)
    if data.unlabelled:
        tables["unlabelled"] = pa.concat_tables(
            [
                read_table(source, data.columns, labels="ignored", or_canonical=True).select(
                    _text_names(data.columns)
                )
                for source in data.unlabelled
            ]
        )
    return tables


def _text_names(columns: ColumnsConfig) -> list[str]:
    return ["text", "text_pair"] if columns.text_pair else ["text"]
