"""Text without labels for pre-training: read, tokenised once, cut into rows, kept in a cache."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from distillkit.data.checked import check_sealed, fingerprint, seal, write_arrow
from distillkit.data.columns import find_columns
from distillkit.data.files import cache_folder, hold, whole_folder
from distillkit.data.pieces import Glue, backend_of
from distillkit.data.readers import is_plain_text, read_lines, read_rows, source_files
from distillkit.data.rows import TextRows
from distillkit.data.segmenters import resolve_segmenter, segmenter_version
from distillkit.data.workers import each, processes
from distillkit.errors import InputError
from distillkit.processes import progress_bar
from distillkit.recipe import ColumnsConfig, TextConfig
from distillkit.teacher.cuts import GrowingArray, GrowingOffsets, Pieces, cut, joined, mapped
from distillkit.teacher.tokenised import Job, content_hash, tokenised

_VERSION = 2  # of the files in the cache
_SIDES = ("train", "held_out")
_SHARE = {"train": "to train on", "held_out": "held out"}
_BLOCK_CHARACTERS = 1 << 21  # tokenised together
_SAMPLE = 1000  # documents by which a segmenter is chosen


@dataclass(frozen=True)
class Corpus:
    """Rows to train on and rows that are only measured on.

    `summary` has `documents`, `rows` and `tokens` (special ones included) of `train` and of
    `held_out`, `left_out` (documents without two sentences to make a pair of), the `segmenter`, and
    the `key` of the cache.
    """

    train: TextRows
    held_out: TextRows
    summary: dict[str, Any]


def read_corpus(
    config: TextConfig, tokenizer: Any, *, pairs: tuple[float, float] = (0, 0), seed: int = 1
) -> Corpus:
    """Read text into tokenised rows, or find those that the same text gave before.

    The rows are files in `config.cache` that memory maps. The text, the tokenizer and the settings
    name them; they may be deleted at any time. Of processes started together, process 0 calls this
    first, in `workers.leading`; the others find its rows.

    Args:
        config: The text, and how it is cut.
        tokenizer: A transformers fast tokenizer.
        pairs: Weights of next-sentence and of sentence-order prediction. With either, rows are
            pairs of runs of sentences of one document, whatever `config.rows` says: for sentence
            order half of them are swapped, for next sentence half have a second run from another
            document, and for both a third each. A document of one sentence makes no pair.
        seed: Draws the pairs.

    Returns:
        The rows; the same for any number of workers.

    Raises:
        InputError: There is no text, or too little to hold some of it out, a source cannot be read,
            or the tokenizer is no fast one.
    """
    if not tokenizer.is_fast or tokenizer.sep_token_id is None:
        raise InputError(
            "adapt: the tokenizer is not a fast one (tokenizer.json) with a separator ([SEP]); choose another encoder"
        )
    segmenter = resolve_segmenter(config.segmenter, list(islice(documents_of(config), _SAMPLE)))
    kinds = (bool(pairs[0]), bool(pairs[1]))
    plan = _Plan(config, tokenizer, segmenter, kinds, seed)
    folder = (Path(config.cache).expanduser() if config.cache else cache_folder("text")) / plan.key
    found = _load(folder, plan)
    if found is None:
        with hold(folder, wait=True):  # of two that want the same rows one makes them
            found = _load(folder, plan)
            if found is None:
                with whole_folder(folder) as unfinished:
                    _write(unfinished, plan)
                found = _load(folder, plan)
    assert found is not None
    return found


def documents_of(config: TextConfig) -> Iterator[str]:
    r"""Read documents one by one; those of nothing but white space are left out.

    Yields:
        A document's text; of `blank-line` its sentences, one a line.

    Raises:
        InputError: A source is absent or cannot be read, or a row has no text.
    """
    if not config.sources:
        raise InputError(
            "adapt.text.sources is empty: expected text without labels, a .txt file for example"
        )
    for source in config.sources:
        by_lines = config.documents == "blank-line"
        yield from _up_to_blank_lines(source) if by_lines else _rows(source, config.column)


def _rows(source: str, column: str) -> Iterator[str]:
    if not source.startswith("datasets:") and is_plain_text(source_files(source)[0]):
        column = "text"  # there is no other
    for place, row in read_rows(source):
        if column not in row:  # as in labelled data
            found, _ = find_columns(list(row), ColumnsConfig(text=column))
            column = column if found.text_pair else found.text
        if column not in row:
            raise InputError(
                f"{place}: no column {column!r}; there is {', '.join(map(repr, row))}: name yours with --adapt.text.column"
            )
        text = row[column]
        if not isinstance(text, str | None):
            raise InputError(f"{place}: column {column!r} is {text!r}; expected text")
        if text and text.strip():
            yield text


def _up_to_blank_lines(source: str) -> Iterator[str]:
    files = [] if source.startswith("datasets:") else source_files(source)
    if not files or files[0].suffix.lower() != ".txt":
        raise InputError(
            f"{source}: adapt.text.documents is blank-line, expected .txt files; else choose row"
        )
    for path in files:
        lines: list[str] = []
        for _, line in read_lines(path):
            if line.strip():
                lines.append(line.strip())
            elif lines:
                yield "\n".join(lines)
                lines = []
        if lines:
            yield "\n".join(lines)


class _Plan:
    """What is made of which text, and the name of it."""

    def __init__(
        self,
        config: TextConfig,
        tokenizer: Any,
        segmenter: str,
        kinds: tuple[bool, bool],
        seed: int,
    ) -> None:
        self.config, self.segmenter, self.kinds, self.seed = config, segmenter, kinds, seed
        self.pairs = any(kinds)
        self.mode = "pairs" if self.pairs else config.rows
        # Different documents a side: a second half from another one needs another one.
        self.least = 2 if kinds[0] else 1
        self.separator, self.pad_id = int(tokenizer.sep_token_id), int(tokenizer.pad_token_id)
        self.backend = backend_of(tokenizer)
        self.special = sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
        self.glue = Glue.of(self.backend, 2 if self.pairs else 1)
        self.has_types = self.pairs and "token_type_ids" in tokenizer.model_input_names
        self.key = self._key()

    def _key(self) -> str:
        config = self.config
        settings = [
            _VERSION,
            config.documents,
            self.mode,
            config.max_tokens,
            segmenter_version(self.segmenter),
            config.held_out_fraction,
            self.separator,
            self.special,
            self.has_types,
            (self.kinds, self.seed) if self.pairs else None,
        ]
        digest = hashlib.sha256(json.dumps(settings).encode())
        digest.update(self.backend.to_str().encode())
        for source in config.sources:
            digest.update(_content(source, config).encode())
        return digest.hexdigest()[:32]

    def job(self, work: Path, last_held_out: int) -> Job:
        """Return what the workers need to tokenise blocks."""
        return Job(
            tokenizer=work / "tokenizer.json",
            segmenter=self.segmenter,
            sentences=self.mode in ("pairs", "sentences"),
            lines=self.config.documents == "blank-line",
            least_units=2 if self.pairs else 1,
            separator=self.separator if self.mode == "packed" else None,
            special=tuple(self.special),
            last_held_out=last_held_out,
            parent=os.getpid(),
        )


def _content(source: str, config: TextConfig) -> str:
    """Name what is in a source, and how it is read."""
    files = [] if source.startswith("datasets:") else source_files(source)
    if files and all(isinstance(path, Path) for path in files):
        prints = [[path.suffix, fingerprint(Path(str(path)))] for path in files]
        return json.dumps([config.column, prints])
    digest = hashlib.sha256()
    for text in documents_of(replace(config, sources=(source,))):
        digest.update(f"{len(text)}\0{text}".encode())
    return digest.hexdigest()


def _write(folder: Path, plan: _Plan) -> None:
    work = folder / "work"
    work.mkdir()
    plan.backend.save(str(work / "tokenizer.json"))
    blocks, documents, last_held_out = _blocks(plan.config, work, plan.least)
    left_out = _tokenise(work, blocks, documents, plan, plan.job(work, last_held_out))
    summary: dict[str, Any] = {"left_out": left_out, "segmenter": plan.segmenter, "key": plan.key}
    for number, name in enumerate(_SIDES):
        pieces = Pieces.read(work / name)
        summary[name] = _write_side(folder, name, pieces, plan, [plan.seed, number])
    shutil.rmtree(work)
    (folder / "summary.json").write_text(json.dumps(summary))
    seal(folder)


def _tokenise(work: Path, blocks: list[Path], documents: int, plan: _Plan, job: Job) -> int:
    """Write the tokens of all blocks, side by side; return how many documents are left out."""
    left_out = 0
    workers = min(processes(plan.config.workers, len(blocks)), len(blocks))
    found = each(partial(tokenised, job), blocks, workers=workers)
    with ExitStack() as stack:
        bar = stack.enter_context(
            progress_bar(total=documents, desc="adapt: tokenise", unit="doc", unit_scale=True)
        )
        gathered = [stack.enter_context(Pieces.writer(work / side)) for side in _SIDES]
        for block, (seen, dropped, sides) in zip(blocks, found, strict=True):
            for arrays, side in zip(gathered, sides, strict=True):
                for array, more in zip(arrays, side, strict=True):
                    array.append(more)
            left_out += dropped
            bar.update(seen)
            block.unlink()
    return left_out


def _blocks(config: TextConfig, work: Path, least: int) -> tuple[list[Path], int, int]:
    """Write documents block by block; return the blocks, their documents, the last held-out hash.

    Args:
        config: Where they are.
        work: Folder for the blocks.
        least: Different documents that either side needs: of few, chance might hold out none, or
            all.
    """
    blocks: list[Path] = []
    waiting: list[str] = []
    low: list[int] = []  # the `least` smallest hashes, and the greatest
    high: list[int] = []
    documents = size = 0

    def write() -> None:
        blocks.append(work / f"documents-{len(blocks):06}.arrow")
        write_arrow(pa.table({"text": pa.array(waiting, pa.large_string())}), blocks[-1])
        waiting.clear()

    for text in documents_of(config):
        waiting.append(text)
        number = content_hash(text)
        low, high = sorted({*low, number})[:least], sorted({*high, number})[-least:]
        documents, size = documents + 1, size + len(text)
        if size >= _BLOCK_CHARACTERS:
            write()
            size = 0
    if waiting:
        write()
    if not documents or len(low) < least or low[-1] >= high[0]:
        what = "too few different documents" if documents else "no text"
        raise InputError(
            f"adapt.text.sources: {what} in {', '.join(config.sources)}; expected at least {2 * least}, {least} of which to hold out"
        )
    return blocks, documents, min(max(int(config.held_out_fraction * 2**64), low[-1]), high[0] - 1)


def _write_side(
    folder: Path, side: str, pieces: Pieces, plan: _Plan, seed: Sequence[int]
) -> dict[str, int]:
    # two stand for more
    different = int((pieces.hashes != pieces.hashes[:1]).any()) + 1 if len(pieces.hashes) else 0
    if different < plan.least:
        what = "documents of two sentences or more" if plan.pairs else "documents"
        raise InputError(
            f"adapt.text: {different} different {what} {_SHARE[side]}, expected at least {plan.least}: give more text, or change adapt.text.held_out_fraction"
        )
    small = ["words", *["types"] * plan.has_types, *["order"] * plan.pairs]
    files = {name: GrowingArray(folder / f"{side}-{name}.npy", np.int8) for name in small}
    files["ids"] = GrowingArray(folder / f"{side}-ids.npy", np.int32)
    files["offsets"] = GrowingOffsets(folder / f"{side}-offsets.npy")
    rows = tokens = 0
    with ExitStack() as stack:
        for file in files.values():
            stack.enter_context(file)
        room = plan.config.max_tokens - plan.glue.size
        for spans, order in cut(pieces, plan.mode, room, plan.separator, plan.kinds, seed):
            ids, words, types, lengths = joined(pieces, spans, plan.glue)
            found = {"ids": ids, "words": words, "types": types, "offsets": lengths}
            found |= {} if order is None else {"order": order}
            for name, file in files.items():
                file.append(found[name])
            rows, tokens = rows + len(lengths), tokens + len(ids)
    return {"documents": len(pieces.hashes), "rows": rows, "tokens": tokens}


def _load(folder: Path, plan: _Plan) -> Corpus | None:
    """Return what a folder of the cache holds, or None where it is not there or not whole."""
    try:
        check_sealed(folder)
        summary = json.loads((folder / "summary.json").read_text())
        train, held_out = (_load_side(folder, side, summary[side], plan) for side in _SIDES)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Corpus(train, held_out, summary)


def _load_side(folder: Path, side: str, summary: dict[str, int], plan: _Plan) -> TextRows:
    def flat(name: str, length: int) -> torch.Tensor:
        values = mapped(folder / f"{side}-{name}.npy")
        if values.shape != (length,):
            raise ValueError(f"{side}-{name} has another length than when it was written")
        return torch.from_numpy(values)

    rows, tokens = summary["rows"], summary["tokens"]
    return TextRows(
        ids=flat("ids", tokens),
        types=flat("types", tokens) if plan.has_types else None,
        offsets=flat("offsets", rows + 1),
        pad_id=plan.pad_id,
        words=flat("words", tokens),
        order=flat("order", rows) if plan.pairs else None,
    )
