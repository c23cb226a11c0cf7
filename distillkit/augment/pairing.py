"""New pairs: texts of a task's pairs, and single raw texts, put beside others."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from distillkit.augment.method import AugmentOptions, Models, RowsJob
from distillkit.data.checked import arrow_writer, open_arrow, read_arrow, write_arrow
from distillkit.data.counter import below, draw, high, seed_key
from distillkit.data.keys import first_places
from distillkit.data.logits import keys_of
from distillkit.data.tables import take_rows
from distillkit.data.words import splitter
from distillkit.data.workers import each, processes
from distillkit.processes import progress_bar

_GROUP = 2**15  # texts among which partners are looked for together
_SEQUENCE = 6  # of the seed's numbers: 0 to 5 are those of variants, other rows and drawn texts
_WAY, _PARTNER, _NEAREST = 0, 1, 2  # sequences of a pair's own numbers
_BLOCK = 512  # texts whose likeness to all of a group is in memory together
# A word in a larger share of a group's texts, and in more than a few, says little, and comparing by
# it takes longest.
_COMMON, _FEW = 0.05, 50
_TEXT = pa.schema([("text", pa.string())])
_PAIR = pa.schema(
    [
        ("text", pa.string()),
        ("text_pair", pa.string()),
        ("rules", pa.string()),
        ("source_row", pa.int64()),
        ("source_row_pair", pa.int64()),
    ]
)


def make_pairs(job: RowsJob) -> Iterator[pa.Table]:
    """Put texts beside others.

    The distinct texts of the job's tables are dealt out to groups by chance. Each text is as often
    the first of a pair as any other. Its partner comes from its group, by the weights of
    `augment.pairs`: one of the nearest by TF-IDF, one of the nearest by sentence vectors, or any.

    Args:
        job: Tables of pairs or single texts. Memory holds 24 bytes a text, and for each process
            one group. A killed run does not do a finished group again.

    Yields:
        Tables of pairs with `rules`, how the partner was found: tfidf, vectors or random; and
        `source_row` and `source_row_pair`, the number of each text's row among all rows of the
        tables.

    Source: Thakur et al. 2021 (Augmented SBERT, arXiv 2010.08240), section 3.1.
    """
    settings = json.dumps([asdict(job.options.config.pairs), job.options.seed, job.wanted])
    name = hashlib.sha256(f"{job.digest} {settings}".encode()).hexdigest()[:16]
    folder = job.work / f"pairs-{name}"
    folder.mkdir(exist_ok=True)
    pool = _Pool.gather(job.tables, folder / "texts.arrow")
    seed, count = job.options.seed, len(pool.places)
    order = np.argsort(draw(seed_key(seed, _SEQUENCE, 0), np.arange(count)), kind="stable")
    groups = np.array_split(order, max(1, -(-count // _GROUP)))
    ends = np.linspace(0, job.wanted, len(groups) + 1).astype(np.int64)
    items = [
        _Group(seed_key(seed, _SEQUENCE, 1 + i), members, wanted, folder / f"group-{i:06}.arrow")
        for i, (members, wanted) in enumerate(zip(groups, np.diff(ends).tolist(), strict=True))
        if len(members) > 1 and wanted
    ]
    step = partial(_pair_up, job.options, pool)
    workers = processes(job.options.workers, 4 * len(items))
    done = each(step, items, engine=job.options.engine, workers=workers, holds_model=True)
    for path in progress_bar(done, desc="augment: pairs", total=len(items), unit="group"):
        yield read_arrow(Path(path))


@dataclass(frozen=True)
class _Pool:
    """Distinct texts, in a file that each group maps into memory."""

    path: Path
    places: np.ndarray  # (N,) int64: which lines of the file, each text's first
    rows: np.ndarray  # (N,) int64: the row it stands in

    @classmethod
    def gather(cls, tables: Iterable[pa.Table], path: Path) -> "_Pool":
        """Write all texts of some tables, and find the distinct ones."""
        keys, rows, first = [], [], 0
        with arrow_writer(path, _TEXT) as writer:
            for table in tables:
                for name in ("text", "text_pair")[: 1 + ("text_pair" in table.column_names)]:
                    texts = table[name].combine_chunks()
                    writer.write_batch(pa.record_batch([texts], schema=_TEXT))
                    keys.append(keys_of(pa.table({"text": texts})))
                    rows.append(np.arange(first, first + len(texts)))
                first += len(table)
        places = first_places(pa.concat_arrays(keys))
        return cls(path, places, np.concatenate(rows)[places])

    def texts(self, numbers: np.ndarray) -> list[str]:
        """Return the texts of some numbers, in their order."""
        places = self.places[numbers]
        order = np.argsort(places)
        found = take_rows(open_arrow(self.path).read_all(), places[order])["text"].to_pylist()
        return [found[i] for i in np.argsort(order)]


@dataclass(frozen=True)
class _Group:
    key: int  # of its random numbers
    members: np.ndarray  # numbers in the pool
    wanted: int  # pairs
    path: Path  # where they are written


def _pair_up(options: AugmentOptions, pool: _Pool, group: _Group) -> str:
    """Write a group's pairs; return the file."""
    if group.path.is_file():
        return str(group.path)
    texts, rows, size = pool.texts(group.members), pool.rows[group.members], len(group.members)
    weights = {name: share for name, share in asdict(options.config.pairs.ways).items() if share}
    keys = draw(group.key, np.arange(group.wanted))
    first = np.arange(group.wanted) % size  # the members come in a random order already
    second = below(draw(keys, np.full(len(keys), _PARTNER)), size - 1)
    second += second >= first  # any text but itself
    ends = np.cumsum(list(weights.values()))
    at = high(draw(keys, np.full(len(keys), _WAY))) / 2.0**32 * ends[-1]
    way = np.searchsorted(ends, at, side="right")
    for number, name in enumerate(weights):
        mine = np.flatnonzero(way == number)
        if name != "random" and len(mine):
            near = nearest_texts(name, texts, options)
            u = draw(keys[mine], np.full(len(mine), _NEAREST))
            second[mine] = near[first[mine], below(u, near.shape[1])]
    kept = np.flatnonzero(second >= 0)
    first, second, way = first[kept], second[kept], way[kept]
    column = pa.array(texts, pa.string())
    found = [column.take(pa.array(first)), column.take(pa.array(second))]
    found += [pa.array(list(weights)).take(pa.array(way)), rows[first], rows[second]]
    write_arrow(pa.table(found, schema=_PAIR), group.path)
    return str(group.path)


def nearest_texts(way: str, texts: Sequence[str], options: AugmentOptions) -> np.ndarray:
    """Find each text's nearest among some texts.

    Args:
        way: tfidf: by the cosine of TF-IDF over words; vectors: of sentence vectors.
        texts: N texts.
        options: How many nearest, and what gives the vectors.

    Returns:
        Their numbers, (N, nearest) int64, in no order; -1 where there are not so many that share a
            word.
    """
    nearest = min(options.config.pairs.nearest, len(texts) - 1)
    found = np.full((len(texts), nearest), -1, np.int64)
    features: Any = _tfidf(texts) if way == "tfidf" else _unit_vectors(texts, options.models)
    columns = features.T.tocsr() if way == "tfidf" else features.T
    for start in range(0, len(texts), _BLOCK):
        part = features[start : start + _BLOCK]
        likeness = (part @ columns).toarray() if way == "tfidf" else part @ columns
        own = np.arange(len(likeness))
        likeness[own, start + own] = -1  # a text is no neighbour of its own
        best = np.argpartition(-likeness, nearest - 1, axis=1)[:, :nearest]
        alike = np.take_along_axis(likeness, best, axis=1) > 0
        found[start : start + _BLOCK] = np.where(alike, best, -1)
    return found


def _tfidf(texts: Sequence[str]) -> csr_matrix:
    """Return unit vectors of words by TF-IDF, (N, V), without the words that are in many texts."""
    split = splitter(texts)
    counts = CountVectorizer(tokenizer=split, token_pattern=None).fit_transform(texts)
    texts_with = np.bincount(counts.indices, minlength=counts.shape[1])
    counts.data[texts_with[counts.indices] > max(_COMMON * len(texts), _FEW)] = 0
    counts.eliminate_zeros()
    return TfidfTransformer(sublinear_tf=True).fit_transform(counts).astype(np.float32)


def _unit_vectors(texts: Sequence[str], models: Models) -> np.ndarray:
    assert models.vectors_of_texts is not None
    vectors = models.vectors_of_texts(models.of["pairs"], texts)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
