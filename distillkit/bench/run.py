"""One bench: prepare the forms, start each, time all in turns, report."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from distillkit import __version__
from distillkit.bench.forms import FORMS, Form, load, prepare
from distillkit.bench.measure import speed, start
from distillkit.bench.report import bench_tables, draw_bench
from distillkit.data.content import paired, texts_of
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.measure.cost import Row, megabytes, parameter_counts, times
from distillkit.measure.results import write_results
from distillkit.processes import cores, environment, progress_bar
from distillkit.recipe import ColumnsConfig
from distillkit.teacher.checkpoint import load_classifier, resolve


def bench(
    models: Sequence[str],
    source: str,
    output: Path,
    columns: ColumnsConfig,
    *,
    forms: Sequence[str] = FORMS,
    batch_sizes: Sequence[int] = (1, 8, 32, 256),
    threads: Sequence[int] = (),
    rows: int = 500,
) -> dict[str, Any]:
    """Measure models in every form that they can be served in.

    Args:
        models: Folders, packages or hub names of classifiers, or bundles; the last is what the
            others are compared with, say the teacher.
        source: Texts or pairs to answer.
        output: Folder for `bench.json`, `bench.md` and `bench.svg`.
        columns: Names of the source's columns.
        forms: Of models that are no bundles.
        batch_sizes: Rows a call.
        threads: Of each call; none: 1, and all cores.
        rows: Of the source, at most.

    Returns:
        What is written to `bench.json`: by form its parameters, megabytes, start and speed.

    Raises:
        InputError: Something given is wrong.
    """
    for form in forms:
        if form not in FORMS:
            raise InputError(f"--forms {form}: expected some of {', '.join(FORMS)}")
    if not batch_sizes or min(batch_sizes) < 1 or rows < 1 or any(count < 1 for count in threads):
        raise InputError("--batch-sizes, --rows and --threads: expected numbers of at least 1")
    asked = read_table(source, columns, labels="ignored")
    asked = asked.slice(0, min(rows, len(asked)))  # Arrow takes no number of 20 digits
    if not len(asked):
        raise InputError(f"{source}: no rows to answer")
    texts = list(paired(*texts_of(asked)))
    counts = list(threads) or sorted({1, cores()})
    with tempfile.TemporaryDirectory() as work:
        prepared = [
            form
            for number, model in enumerate(progress_bar(models, desc="bench: forms", unit="model"))
            for form in prepare(_name(models, number), model, forms, Path(work) / str(number))
        ]
        sizes = {
            model: parameter_counts(load_classifier(model)[0])
            for model in {form.model for form in prepared} - {""}
        }
        result: dict[str, Any] = {
            "distillkit": __version__,
            "source": source,
            "rows": len(texts),
            "batch_sizes": list(batch_sizes),
            "threads": counts,
            "forms": [
                _described(form, texts[0], sizes)
                for form in progress_bar(prepared, desc="bench: start", unit="form")
            ],
        }
        for count in counts:
            answers = {form.name: load(form, count) for form in prepared}
            for size in batch_sizes:
                # Tokenizers share out a batch only where there is more than one thread.
                with environment("TOKENIZERS_PARALLELISM", str(count > 1).lower()):
                    taken = times(answers, texts, size, progress=f"bench: {count} x {size}")
                for form in result["forms"]:
                    form["speed"][f"{count} x {size}"] = speed(taken[form["name"]], size)
    return _report(result, output)


def _name(models: Sequence[str], number: int) -> str:
    """Call a model by its path's last part, and where that is not enough by more of it."""
    parts = [Path(model).parts for model in models]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names[number]
    return f"{parts[number][-1]} ({number + 1})"


def _described(form: Form, row: Row, sizes: Mapping[str, dict[str, int]]) -> dict[str, Any]:
    """Return what a form costs apart from speed: size on disk, start, parameters."""
    return {
        "name": form.name,
        "kind": form.kind,
        "megabytes": _megabytes(form),
        **start(form, row),
        "speed": {},
        "parameters": sizes.get(form.model),
    }


def _megabytes(form: Form) -> float | None:
    """Return the size of a form's files in MB (10^6 bytes); None for a model on a hub."""
    place = Path(resolve(form.path)) if form.path == form.model else Path(form.path)
    if place.is_file():
        return place.stat().st_size / 1e6
    return megabytes(place) if place.is_dir() else None


def _report(result: dict[str, Any], output: Path) -> dict[str, Any]:
    size = (4.2 * len(result["threads"]) + 1.5, 4)
    draw = partial(draw_bench, result)
    write_results("bench", output, result, bench_tables(result), size, draw)
    return result
