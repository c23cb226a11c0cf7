"""A block of documents made tokens: what a worker process does for `teacher.documents`."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from distillkit.data.checked import read_arrow
from distillkit.data.rows import FIRST, LATER, SPECIAL
from distillkit.data.segmenters import load_segmenter, word_numbers
from distillkit.data.sentences import sentences_of


@dataclass(frozen=True)
class Job:
    """What a worker needs to know."""

    tokenizer: Path
    segmenter: str
    sentences: bool
    """Tokenise sentence by sentence."""
    lines: bool
    """A sentence is a line."""
    least_units: int
    """Documents of fewer sentences are left out."""
    separator: int | None
    """Put after every document."""
    special: tuple[int, ...]
    last_held_out: int
    """Documents whose hash is greater are trained on."""
    parent: int


# Of one side of a block: ids, words, pieces a unit, units a document, hashes of the documents.
Side = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def content_hash(text: str) -> int:
    """Return a number, 0 to 2**64 - 1, that tells on which side a document is."""
    return int.from_bytes(hashlib.blake2b(text.strip().encode(), digest_size=8).digest(), "big")


@lru_cache(maxsize=1)
def _backend(path: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def tokenised(job: Job, path: Path) -> tuple[int, int, list[Side]]:
    """Tokenise a block; return how many documents it has, how many are left out, and both sides."""
    if os.getpid() != job.parent:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every core has a process already
    texts: list[str] = read_arrow(path)["text"].to_pylist()
    hashes = np.array([content_hash(text) for text in texts], np.uint64)
    units = [_units(text, job) for text in texts]
    document = np.repeat(np.arange(len(texts)), [len(own) for own in units])
    ids, words, lengths = _pieces_of([unit for own in units for unit in own], job)
    counts = np.bincount(document[lengths > 0], minlength=len(texts))
    enough, low = counts >= job.least_units, hashes <= np.uint64(job.last_held_out)
    sides = []
    for chosen in (enough & ~low, enough & low):
        tokens, sizes = np.repeat(chosen[document], lengths), lengths[chosen[document]]
        side = (ids[tokens], words[tokens], sizes[sizes > 0], counts[chosen], hashes[chosen])
        sides.append(_separated(side, job))
    return len(texts), int((~enough).sum()), sides


def _units(text: str, job: Job) -> list[str]:
    if not job.sentences:
        return [text.replace("\n", " ") if job.lines else text]
    units = text.split("\n") if job.lines else sentences_of(text)
    # What begins with a space is what follows other text: for bytes' pairs, other pieces.
    return [*units[:1], *(f" {unit}" for unit in units[1:])] if job.least_units > 1 else units


def _pieces_of(units: Sequence[str], job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of all units, one after the other, `TextRows.words` of each, tokens a unit."""
    segmenter = load_segmenter(job.segmenter)
    found = _backend(job.tokenizer).encode_batch(units, add_special_tokens=False)
    lengths = np.array([len(encoding) for encoding in found], np.int64)
    ids = np.array([token for encoding in found for token in encoding.ids], np.int32)
    words = np.array([word for encoding in found for word in encoding.word_ids], np.int64)
    unit = np.repeat(np.arange(len(units)), lengths)
    same = (words[1:] == words[:-1]) & (unit[1:] == unit[:-1])
    if segmenter is not None:
        own = [_segments(e, segmenter, job, u) for e, u in zip(found, units, strict=True)]
        segments = np.concatenate([np.empty(0, np.int64), *own])
        # Within them the segmenter's words count alone: to SentencePiece and byte-level subwords all
        # text up to a space, or a sign, is one word.
        known = (segments[1:] >= 0) & (segments[:-1] >= 0)
        same = np.where(known, segments[1:] == segments[:-1], same) & (unit[1:] == unit[:-1])
    kinds = np.full(len(ids), FIRST, np.int8)
    kinds[1:][same] = LATER
    kinds[np.isin(ids, job.special)] = SPECIAL
    return ids, kinds, lengths


def _segments(encoding: Any, segmenter: Any, job: Job, text: str) -> np.ndarray:
    """Return the number of the segmenter's word that each subword lies within; -1: in none."""
    numbers = np.append(word_numbers(segmenter, job.segmenter, text), -1)
    places = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    first, last = numbers[places[:, 0]], numbers[places[:, 1] - 1]
    return np.where((first == last) & (places[:, 1] > places[:, 0]), first, -1)


def _separated(side: Side, job: Job) -> Side:
    """Put the separator after every document, which is one unit."""
    if job.separator is None:
        return side
    ids, words, lengths, counts, hashes = side
    ends = np.cumsum(lengths)
    ids, words = np.insert(ids, ends, job.separator), np.insert(words, ends, SPECIAL)
    return ids, words, lengths + 1, counts, hashes
