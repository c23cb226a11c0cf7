"""How many of the labels that `distillkit doctor --labels` suspects first are wrong.

python benchmarks/labels.py trec-bilstm --options --data.train trec6/train.tsv
python benchmarks/labels.py sst2-bilstm --rows 10000 --options --data.train sst2/train.tsv --data.dev sst2/dev.tsv

Labels of train and dev are turned at random, each to another label, and the file that the doctor
writes is held against them. What the data themselves have wrong counts as a false alarm here.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pyarrow as pa

from distillkit.cli import parse
from distillkit.data.corrections import read_corrections
from distillkit.data.gold import label_ids, label_names
from distillkit.data.tables import write_table
from distillkit.doctor.labels import suspect_labels
from distillkit.measure.report import table
from distillkit.pipeline.task import read_labelled
from distillkit.recipe import ColumnsConfig, Recipe
from distillkit.runs import with_data

TOP = 50


def main() -> int:
    """Print a table with a row a seed."""
    arguments = _parse()
    recipe = with_data(parse("doctor", [arguments.recipe, *arguments.options]).settings)
    tables = read_labelled(recipe.data, ("train", "dev"))
    cells = [_found(recipe, tables, arguments, seed) for seed in arguments.seeds]
    means = [f"{mean(float(row[i]) for row in cells):.1f}" for i in range(1, len(cells[0]))]
    header = [
        "seed",
        "labels the models agree with, %",
        f"turned among the first {TOP} suspects, %",
    ]
    header += [f"first {TOP} rows, %", "in the file, of all turned, %"]
    print(table([[*header, "rows of the file", "minutes"], *cells, ["mean", *means]]))
    return 0


def _found(
    recipe: Recipe, tables: dict[str, pa.Table], arguments: argparse.Namespace, seed: int
) -> list[str]:
    """Turn labels by a seed, ask the doctor, and return a row of the table."""
    generator = np.random.default_rng(seed)
    names = label_names(tables["train"])
    turned: set[tuple[str, int]] = set()
    with tempfile.TemporaryDirectory() as folder:
        sources: dict[str, str] = {}
        for split, all_rows in tables.items():
            count = min(arguments.rows or len(all_rows), len(all_rows))
            some = np.sort(generator.choice(len(all_rows), count, replace=False))
            gold = np.array(label_ids(all_rows, names))[some]
            chosen = generator.choice(count, round(arguments.share * count), replace=False)
            gold[chosen] += generator.integers(1, len(names), len(chosen))
            labels = pa.array([names[i % len(names)] for i in gold])
            place = all_rows.column_names.index("label")
            sources[split] = str(Path(folder, f"{split}.parquet"))
            found = all_rows.take(some).set_column(place, "label", labels)
            write_table(found, Path(sources[split]))
            turned |= {(split, int(row) + 1) for row in chosen}
        columns = ColumnsConfig(text_pair="text_pair" if recipe.data.columns.text_pair else "")
        data = replace(recipe.data, columns=columns, **sources)
        target, began = Path(folder, "labels.csv"), time.monotonic()
        encoder = "" if arguments.tfidf_alone else recipe.teacher.model
        finding = suspect_labels(replace(recipe, data=data, seed=seed), target, encoder)
        minutes = (time.monotonic() - began) / 60
        rows = read_corrections(str(target))
    listed = [(one.split, one.row) for one in rows]
    # The others stand beside one of these, whose words they have.
    suspects = [(one.split, one.row) for one in rows if "unlikely" in one.fields["reason"]]
    return [
        str(seed),
        f"{100 * finding.metrics['agreement']:.1f}",
        f"{100 * _share(suspects[:TOP], turned):.0f}",
        f"{100 * _share(listed[:TOP], turned):.0f}",
        f"{100 * len(turned & set(listed)) / len(turned):.0f}",
        str(len(listed)),
        f"{minutes:.1f}",
    ]


def _share(rows: Sequence[tuple[str, int]], turned: set[tuple[str, int]]) -> float:
    return sum(row in turned for row in rows) / max(len(rows), 1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--rows", type=int, default=0, help="of each split, at random; 0: all")
    parser.add_argument("--share", type=float, default=0.05, help="of the labels that are turned")
    parser.add_argument("--tfidf-alone", action="store_true", help="ask no encoder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[])
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
