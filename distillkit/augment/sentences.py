"""In-domain documents cut into sentences that look like the task's own texts."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import regex
from nltk.tokenize import TreebankWordTokenizer

from distillkit.augment.method import RowsJob
from distillkit.data.checked import fingerprint, read_arrow, write_arrow
from distillkit.data.counter import draw, seed_key
from distillkit.data.sentences import sentences_of
from distillkit.data.tables import resized
from distillkit.data.words import splitter
from distillkit.data.workers import each, processes
from distillkit.errors import InputError
from distillkit.processes import progress_bar
from distillkit.recipe import SentencesConfig

_DOCUMENTS = 1024  # cut together
_SEQUENCE = 2  # of the seed's numbers: 0 and 1 are those of the variants
_BUCKETS = 16  # bits of a sentence's number by which they are counted

_SPACE_BEFORE, _NO_SPACE_BEFORE = regex.compile(r"\s[.,!?;:]"), regex.compile(r"\S[.,!?;:](?:\s|$)")
_TREEBANK = TreebankWordTokenizer()
_QUOTES = str.maketrans("’‘“”", "''\"\"")


def cut_sentences(job: RowsJob) -> Iterator[pa.Table]:
    """Cut documents into sentences and draw as many as are wanted.

    Every sentence has a 64-bit number; those with the smallest are taken. Of whole documents, and
    of all the sentences, memory holds a block.

    Args:
        job: Tables with `text`, block by block. What a killed run left in `work` is not done again.

    Yields:
        Tables with `text`, in the order of the documents.

    Raises:
        InputError: The documents are pairs.
    """
    paths: list[Path] = []
    for table in resized(job.tables, _DOCUMENTS):
        if "text_pair" in table.column_names:
            raise InputError(
                "augment.mix.sentences cuts single texts; of pairs nobody knows which sentences belong together: set it to 0"
            )
        path = job.work / "sentences" / f"documents-{len(paths):06}.arrow"
        write_arrow(table.select(["text"]).replace_schema_metadata(None).combine_chunks(), path)
        paths.append(path)
    if not job.wanted:
        return
    options, config = job.options, job.options.config.sentences
    style = style_of(config.style, job.sample)
    step = partial(_cut, config, style, json.dumps([asdict(config), style]).encode())
    workers = processes(options.workers, len(paths))
    steps = each(step, paths, engine=options.engine, workers=workers)
    name = "augment: sentences"
    cut = list(map(Path, progress_bar(steps, desc=name, total=len(paths), unit="block")))
    numbers = partial(_numbers, options.seed, [len(read_arrow(path)) for path in cut])
    last = _smallest(numbers, job.wanted, len(cut))
    for block, path in enumerate(cut):
        table = read_arrow(path).filter(pa.array(numbers(block) <= last))
        if len(table):
            yield table


def penn(sentence: str) -> str:
    r"""Write a sentence in lower case and Penn tokens; brackets stay brackets, as in SST-2.

    >>> penn('It isn\'t "bad" (at all).')
    "it is n't `` bad '' ( at all ) ."
    """
    return " ".join(_TREEBANK.tokenize(sentence.translate(_QUOTES))).lower()


def style_of(style: str, texts: Sequence[str]) -> str:
    """Resolve `auto`: `penn` for lower-case texts with a space before every sign, else `plain`."""
    if style != "auto":
        return style
    sample = texts[:1000]
    spaced = sum(len(_SPACE_BEFORE.findall(text)) for text in sample)
    tight = sum(len(_NO_SPACE_BEFORE.findall(text)) for text in sample)
    small = sum(text == text.lower() for text in sample)
    return "penn" if small > 0.99 * len(sample) and spaced > 20 * tight else "plain"


def _cut(config: SentencesConfig, style: str, settings: bytes, path: Path) -> str:
    """Cut a block of documents; return the file of its sentences, named by its content."""
    content = hashlib.sha256(settings + fingerprint(path).encode()).hexdigest()[:16]
    target = path.with_name(f"sentences-{path.stem.removeprefix('documents-')}-{content}.arrow")
    if not target.is_file():
        documents = read_arrow(path)["text"].to_pylist()
        count = splitter(documents)
        found = (sentence for text in documents for sentence in sentences_of(text))
        written = map(penn, found) if style == "penn" else found
        fitting = range(config.min_words, config.max_words + 1)
        kept = [text for text in written if len(count(text)) in fitting]
        write_arrow(pa.table({"text": pa.array(kept, pa.string())}), target)
    return str(target)


def _numbers(seed: int, counts: Sequence[int], block: int) -> np.ndarray:
    """Return the numbers of a block's sentences, (n,) uint64."""
    return draw(seed_key(seed, _SEQUENCE, block), np.arange(counts[block]))


def _smallest(numbers: partial[np.ndarray], wanted: int, blocks: int) -> np.uint64:
    """Return the number that just `wanted` of all numbers do not exceed.

    Numbers are counted by bucket; only those of its bucket are sorted.
    """
    shift = np.uint64(64 - _BUCKETS)
    counts = np.zeros(2**_BUCKETS, np.int64)
    for block in range(blocks):
        counts += np.bincount((numbers(block) >> shift).astype(np.int64), minlength=2**_BUCKETS)
    total = np.cumsum(counts)
    if wanted >= total[-1]:
        return np.uint64(2**64 - 1)
    bucket = int(np.searchsorted(total, wanted))
    inside = [u[(u >> shift) == np.uint64(bucket)] for u in map(numbers, range(blocks))]
    nth = wanted - int(total[bucket] - counts[bucket]) - 1
    return np.partition(np.concatenate(inside), nth)[nth]
