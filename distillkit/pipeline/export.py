"""`export`: a model in torch -> a bundle without torch, compared with torch before it is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from distillkit.data.batches import encode
from distillkit.data.content import paired, texts_of
from distillkit.data.files import hold, replaceable, whole_file, whole_folder
from distillkit.data.gold import check_labels_known, gold_of
from distillkit.data.labels import labels_of, task_of_model
from distillkit.data.memory import source_of
from distillkit.data.tables import read_table
from distillkit.errors import InputError
from distillkit.measure.metrics import agreement
from distillkit.measure.statistics import coverage_floors, fit_temperature
from distillkit.pipeline.results import Exported
from distillkit.pipeline.task import COLUMNS, check_reads
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig
from distillkit.runtime.bundle import (
    ENCODER,
    MANIFEST,
    MODEL,
    TOKENIZER,
    Manifest,
    described,
    read_bundle,
    write_bundle,
)
from distillkit.student.model import PairStudent, StudentModel
from distillkit.teacher.checkpoint import load_classifier, max_tokens_of
from distillkit.training.inference import predict_logits

if TYPE_CHECKING:
    from distillkit.data.memory import Rows
    from distillkit.runtime import Predictor

# Largest difference of any logit from torch's that a graph in fp32 may have: sums in another order
# differ by about 1e-6 of the logit.
PARITY = 1e-4
# Of a graph that computes in int8, the root mean square difference, as a share of the logits'
# standard deviation.
INT8_PARITY = 0.2
_HARD = (
    "",
    " ",
    "a",
    "zxqv",
    "zxqv zxqv zxqv",
    "never-seen-w0rd 12345",
    "Wonderful!!! 😀👍🏽",
    "שלום עולם",
    "مرحبا بالعالم",
    "你好，世界。",
    "nul\0byte",
    "cafe\u0301",
    "\u200b\ufeff",
    "tab\tand\nline",
    "one two three four five six seven eight nine ten " * 60,
)
_BATCHES = (1, 3, 64)
_CALIBRATED_ROWS = 20  # of three rows one that is wrong makes every answer a doubtful one
_ROWS = 2000  # of the source; more rows would find no other way through the graph


def export(
    model: str,
    target: Path,
    source: "Rows" = "",
    columns: ColumnsConfig = COLUMNS,
    *,
    one_file: bool = False,
    int8: bool = False,
    overwrite: bool = False,
    dev: "Rows" = "",
) -> Exported:
    """Write a bundle, which `runtime.Predictor` answers from.

    Args:
        model: Folder, package or hub name of a fine-tuned classifier with a fast tokenizer.
        target: Folder to write; with `one_file` a file.
        source: Texts or pairs, also in memory as `data.memory.source_of` takes them; the first 2,000 are what the bundle's answers are held
            against torch's on, beside some that are made to be hard.
        columns: Names of the source's columns.
        one_file: Write one file.
        int8: Compute in int8, weights and activations.
        overwrite: Replace a finished bundle of another model, or with another temperature or a threshold.
        dev: Labelled rows that training has not seen, with the same columns: the temperature and
            the label sets are fitted on them.

    Raises:
        InputError: A package is missing, the model has no fast tokenizer, the bundle does not
            answer as torch does, or another bundle would be replaced; nothing is written then.
    """
    check_installed("export")
    model, target, source = str(model), Path(target), source_of(source, "source")
    dev = source_of(dev, "dev")
    if one_file and target.is_dir():
        raise InputError(
            f"{target}: is a folder, and --one-file writes a file; choose another name"
        )
    with hold(target) if one_file else replaceable(target, MODEL, ENCODER):
        table = read_table(source, columns, labels="ignored") if source else None
        rows = list(paired(*texts_of(table.slice(0, _ROWS)))) if table is not None else []
        network, tokenizer = load_classifier(model)
        check_fast(model, tokenizer)
        if table is not None:
            check_reads(model, network, pairs="text_pair" in table.column_names, source=source)
        task = task_of_model(network.config)
        if dev and task != "classification":
            raise InputError(
                f"--dev: the temperature and the label sets are of a classification, and {model} is for {task}; leave it out"
            )
        labelled = read_table(dev, columns, task=task) if dev else None
        if labelled is not None:
            check_reads(model, network, pairs="text_pair" in labelled.column_names, source=dev)
            check_labels_known(labelled, labels_of(network), dev)
        return export_model(
            network,
            tokenizer,
            target,
            rows,
            one_file=one_file,
            int8=int8,
            overwrite=overwrite,
            dev=labelled,
        )


def export_model(
    model: Any,
    tokenizer: Any,
    target: Path,
    rows: Sequence[tuple[str, str | None]],
    *,
    one_file: bool,
    int8: bool = False,
    rewrite: Callable[[bytes], bytes] | None = None,
    made_from: Mapping[str, str] | None = None,
    overwrite: bool = True,
    dev: pa.Table | None = None,
) -> Exported:
    """Write a bundle of a model in memory.

    Args:
        model: A classifier, of distillkit or of transformers.
        tokenizer: Its fast tokenizer.
        target: Folder or file to write.
        rows: Texts or pairs to hold both on.
        one_file: Write one file.
        int8: Compute in int8, weights and activations.
        rewrite: Stores a graph's weights in another form, with the same answers; None: in fp32.
        made_from: What the manifest says of that form.
        overwrite: As in `export`.
        dev: Labelled rows to fit the temperature and the label sets on.

    Raises:
        InputError: The bundle does not answer as torch does; nothing is written then.
    """
    from distillkit.pipeline.graphs import int8_graph, onnx_graphs
    from distillkit.runtime import Predictor

    graphs = onnx_graphs(model.cpu(), tokenizer)
    for form in (int8_graph if int8 else None, rewrite):
        if form is not None:
            graphs = {name: form(graph) for name, graph in graphs.items()}
    files = {TOKENIZER: tokenizer.backend_tokenizer.to_str().encode(), **graphs}
    manifest = Manifest(
        task=task_of_model(model.config),
        labels=labels_of(model),
        max_tokens=max_tokens_of(model, tokenizer),
        pairs=isinstance(model, PairStudent) if isinstance(model, StudentModel) else None,
        pad_id=int(tokenizer.pad_token_id),
        files=described(files),
        made_from={
            "model_type": model.config.model_type,
            **(made_from or {}),
            **({"arithmetic": "int8"} if int8 else {}),
        },
    )
    with (whole_file if one_file else whole_folder)(target) as partial:
        write_bundle(partial, manifest, files, one_file=one_file)
        bundle = Predictor(partial)
        parity = _held_against(model, tokenizer, bundle, list(rows), str(target), int8=int8)
        model.cpu()  # a GPU has answered for torch; whoever goes on with the model cuts it here
        manifest = replace(manifest, parity=parity)
        if dev is not None:
            manifest = replace(manifest, **_calibrated(bundle, dev))
        if not overwrite:
            _check_finished(target, manifest)
        write_bundle(partial, manifest, files, one_file=one_file)
    size = (
        target.stat().st_size if one_file else sum(file.stat().st_size for file in target.iterdir())
    )
    return Exported(str(target), parity, size / 1e6)


def _calibrated(bundle: "Predictor", dev: pa.Table) -> dict[str, Any]:
    """Fit on labelled rows `temperature` and `coverage` of a classification's `Manifest`."""
    if bundle.task != "classification":
        return {}
    logits, gold = bundle.logits(*texts_of(dev)), gold_of(dev, bundle.labels, "classification")
    temperature = 1.0
    if len(gold) >= _CALIBRATED_ROWS:
        temperature = fit_temperature(logits, gold)
    else:
        log(f"export: no temperature: dev has {len(gold)} rows, fewer than {_CALIBRATED_ROWS}")
    return {"temperature": temperature, "coverage": coverage_floors(logits / temperature, gold)}


def _check_finished(target: Path, new: Manifest) -> None:
    """Refuse to replace a bundle of another model, or one that was given more since its export.

    Raises:
        InputError: It would be replaced.
    """
    try:
        old, _ = read_bundle(target)
    except InputError:  # absent, or not whole
        return
    if (old.files, old.cascade, old.temperature) != (new.files, None, new.temperature):
        raise InputError(
            f"{target}: holds another finished bundle; choose another name, or give --overwrite to replace it"
        )


def change_manifest(place: Path, **changes: Any) -> None:
    """Replace fields of the manifest of a bundle, folder or file."""
    manifest, files = read_bundle(place)
    manifest = replace(manifest, **changes)
    with whole_file(place if place.is_file() else place / MANIFEST) as unfinished:
        if place.is_file():
            write_bundle(unfinished, manifest, files, one_file=True)
        else:  # beside whatever else its owner keeps there
            unfinished.write_text(manifest.text(), encoding="utf-8")


def check_installed(command: str, otherwise: str = "") -> None:
    """Refuse a command where what writes bundles is not installed; say what to do without it.

    Raises:
        InputError: It is not.
    """
    if missing := [
        name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None
    ]:
        raise InputError(
            f"{command} needs {', '.join(missing)}: pip install 'distillkit[export]'{otherwise}"
        )


def check_fast(model: str, tokenizer: Any) -> None:
    """Refuse a model whose tokenizer cannot leave transformers.

    Raises:
        InputError: It cannot.
    """
    if not tokenizer.is_fast:
        raise InputError(
            f"{model}: its tokenizer is not a fast one, which only transformers can run; export a student with a tokenizer.json"
        )


def _held_against(
    model: Any,
    tokenizer: Any,
    bundle: "Predictor",
    rows: list[tuple[str, str | None]],
    target: str,
    *,
    int8: bool,
) -> dict[str, Any]:
    """Compare the bundle's logits with torch's on given and hard texts, in several batch sizes."""
    pairs = bundle.manifest.pairs
    rows = [row for row in rows if pairs is None or (row[1] is not None) == pairs]
    if pairs is not True:
        rows += [(text, None) for text in _HARD]
    if pairs is not False:
        rows += list(zip(_HARD, _HARD[1:] + _HARD[:1], strict=True))
    found, wanted = [], []
    for kind in (False, True):
        part = [row for row in rows if (row[1] is not None) == kind]
        if not part:
            continue
        texts, second = (
            [text for text, _ in part],
            [pair or "" for _, pair in part] if kind else None,
        )
        wanted.append(
            predict_logits(
                model, encode(tokenizer, texts, second, bundle.manifest.max_tokens)
            ).numpy()
        )
        found.append(_in_batches(bundle, texts, second))
    ours, torchs = np.concatenate(found), np.concatenate(wanted)
    difference = np.abs(ours - torchs)
    parity = {
        "rows": len(ours),
        "largest": float(difference.max()),
        "mean": float(difference.mean()),
    }
    if (task := task_of_model(model.config)) != "regression":
        parity["same_answer"] = agreement(task, ours, torchs)
    if int8:
        parity["relative"] = float(np.sqrt(np.square(difference).mean()) / torchs.std())
        if not parity["relative"] <= INT8_PARITY:
            raise InputError(
                f"{target}: not written: in int8 its logits are {100 * parity['relative']:.0f} % of their standard deviation from torch's (root mean square), "
                f"and {100 * INT8_PARITY:.0f} % is allowed; export it without --int8"
            )
        return parity
    if not parity["largest"] <= (allowed := parity_of(torchs)):
        worst = int(difference.max(axis=1).argmax())
        raise InputError(
            f"{target}: not written: a logit of row {worst + 1} of {len(ours)} differs from torch's by {parity['largest']:.2g}, and {allowed:.2g} is allowed"
        )
    return parity


def parity_of(logits: np.ndarray) -> float:
    """Return how far a graph in fp32 may be from torch: a score far from 0 has digits of its own size."""
    return max(PARITY, PARITY / 100 * float(np.abs(logits).max(initial=0)))


def _in_batches(
    bundle: "Predictor", texts: Sequence[str], pairs: Sequence[str] | None
) -> np.ndarray:
    """Predict in calls of 1, 3 and 64 rows in turn, so that every path of the predictor runs."""
    found, start, turn = [], 0, 0
    while start < len(texts):
        stop = start + _BATCHES[turn % len(_BATCHES)]
        found.append(bundle.logits(texts[start:stop], None if pairs is None else pairs[start:stop]))
        start, turn = stop, turn + 1
    return np.concatenate(found)
