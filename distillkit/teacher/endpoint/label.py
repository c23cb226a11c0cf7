"""Give text the logits of a model service, in a store that grows shard by shard."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.content import paired, texts_of
from distillkit.data.files import disk_errors, hold
from distillkit.data.gold import label_names
from distillkit.data.keys import count_distinct
from distillkit.data.logits import (
    MANIFEST,
    join_logits,
    keys_of,
    rounding_error,
    shard_table,
    stored_keys,
    stored_rows,
    teacher_folder,
)
from distillkit.data.scratch import TEMPORARY
from distillkit.data.tables import take_rows
from distillkit.errors import InputError
from distillkit.processes import log, progress_bar
from distillkit.recipe import LabelConfig
from distillkit.teacher.chance import has_labels, refuse_chance
from distillkit.teacher.endpoint.answers import RULES
from distillkit.teacher.endpoint.budget import (
    SpentUp,
    cost_of,
    likely_tokens,
    most_tokens,
    spending,
)
from distillkit.teacher.endpoint.journal import Journal, Tokens, read_journal
from distillkit.teacher.endpoint.prompts import Prompts, draw_examples
from distillkit.teacher.shards import plan_shards
from distillkit.teacher.store import (
    check_manifest,
    fill_store,
    keep_manifest,
    manifest_of,
    write_here,
)


@dataclass(frozen=True)
class _Job:
    """What is asked, and where the answers go."""

    config: LabelConfig
    folder: Path
    labels: list[str]
    prompts: Prompts
    manifest: dict[str, Any]

    def planned(self, table: pa.Table) -> tuple[int, dict[str, float], Tokens]:
        """Count the distinct rows of a table, and estimate what is left to spend on it.

        Returns:
            The distinct rows, the estimate, and the most tokens that one of the calls may take.
        """
        record, endpoint, scratch = read_journal(self.folder), self.config.endpoint, TEMPORARY
        keys, rows, calls, asked, dearest = keys_of(table, scratch), 0, 0, 0, 0
        stored = stored_keys(self.folder, scratch)
        for shard in plan_shards(keys, stored, self.config.shard_rows, scratch):
            part = take_rows(table, shard.rows)
            for key, texts in zip(keys_of(part).to_pylist(), paired(*texts_of(part)), strict=True):
                prompts = [
                    self.prompts.fill(number, key, *texts)
                    for number in range(len(self.prompts.templates))
                    if (key, number) not in record.answers
                ]
                rows, calls = rows + bool(prompts), calls + len(prompts)
                asked += sum(likely_tokens(prompt, "")[0] for prompt in prompts)
                dearest = max([dearest, *(most_tokens(one, endpoint)[0] for one in prompts)])
        tokens = asked, calls * endpoint.answer_tokens
        cost = cost_of(tokens, endpoint)
        found: dict[str, float] = {"rows": rows, "calls": calls, "tokens": sum(tokens)}
        found |= {} if cost is None else {"cost": cost}
        return count_distinct(keys, scratch), found, (dearest, endpoint.answer_tokens)


def _job(
    table: pa.Table, store: Path, config: LabelConfig, labels: Sequence[str], name: str
) -> _Job:
    """Settle the labels, the prompts and the manifest.

    Raises:
        InputError: They are not known, or do not fit the table or the folder.
    """
    endpoint, folder = config.endpoint, teacher_folder(store, name)
    endpoint.check_complete()
    names = list(labels) or (label_names(table) if has_labels(table) else [])
    if len(names) < 2 or len(set(names)) != len(names):
        said = f"{len(names)} labels ({', '.join(names)})" if names else "no labels"
        raise InputError(
            f"{endpoint.url}: {said} to choose from; name two or more different ones with --labels"
        )
    if endpoint.hard_probability <= 1 / len(names):
        raise InputError(
            f"label.endpoint.hard_probability is {endpoint.hard_probability}: expected more than 1 / {len(names)}, the share of each of {len(names)} labels"
        )
    examples = draw_examples(table, names, endpoint, "the source")
    pairs = "text_pair" in table.column_names
    prompts = Prompts(endpoint, names, examples, config.meanings(names), pairs=pairs)
    own = endpoint.settings() | {
        "prompt": list(prompts.templates),
        "descriptions": list(config.descriptions),
        "examples_sha256": prompts.digest() if examples else None,
        "rules": RULES,
    }
    # no mask: a text's mask word is sent as it is
    manifest = manifest_of(names, "classification", config.storage, **own)
    check_manifest(folder, manifest)
    return _Job(config, folder, names, prompts, manifest)


def plan_endpoint(
    table: pa.Table,
    store: Path,
    config: LabelConfig,
    labels: Sequence[str] = (),
    name: str = "teacher",
) -> dict[str, Any]:
    """Say what `label_from_endpoint` would ask and spend; nothing is asked or written.

    Returns:
        Its summary as of now, and `planned`: rows, calls, and, estimated at 4 bytes a token
        and answers of full length, tokens and cost.

    Raises:
        InputError: As for `label_from_endpoint`.
    """
    job = _job(table, store, config, labels, name)
    distinct, planned, _ = job.planned(table)
    return {
        "rows": len(table),
        "distinct": distinct,
        "labelled_now": 0,
        "labels": job.labels,
        "rounding_error": rounding_error(job.folder),
        "planned": planned,
    }


def label_from_endpoint(
    table: pa.Table,
    store: Path,
    config: LabelConfig,
    labels: Sequence[str] = (),
    name: str = "teacher",
) -> dict[str, Any]:
    """Give every row of a table the log-probabilities that a service gives its labels.

    Every answer is noted at once beside the shards, so that nothing is asked twice, whatever ends a
    run. One process at a time asks for a folder.

    Args:
        table: Canonical table; labelled rows are asked about first, to check the service.
        store: Folder of the store; made if absent.
        config: The service, shards and storage.
        labels: The labels to choose from, in the order of the logits; empty: the table's.
        name: The teacher's folder in the store.

    Returns:
        As `label_table`, and `calls`, `tokens`, `unanswered` and, where there are prices, `cost`:
        of the folder in all.

    Raises:
        InputError: Something given is wrong, the service refuses, fails or does not answer with
            labels, is at chance, or the budget is spent.
    """
    from distillkit.teacher.endpoint.asker import Asker  # httpx is of the extra `endpoint`
    from distillkit.teacher.endpoint.service import Service

    job = _job(table, store, config, labels, name)
    with ExitStack() as open_:
        open_.enter_context(disk_errors(job.folder))
        open_.enter_context(hold(job.folder))
        job.folder.mkdir(exist_ok=True)
        service = Service(config.endpoint)
        open_.callback(service.close)
        new = not (job.folder / MANIFEST).is_file()
        journal = Journal(job.folder)
        open_.callback(journal.close)
        # Before the first call: an answer is of no other teacher than the manifest's.
        keep_manifest(job.folder, job.manifest)
        asker = Asker(config.endpoint, job.prompts, job.labels, service, journal)
        try:
            return _label(table, store, job, asker, journal)
        except SpentUp as error:
            raise _spent_up(error, table, job, journal) from None
        finally:
            nothing = not journal.spent.answers and not journal.spent.unanswered
            if new and nothing and not len(stored_keys(job.folder)):
                (job.folder / MANIFEST).unlink(missing_ok=True)


def _label(table: pa.Table, store: Path, job: _Job, asker: Any, journal: Journal) -> dict[str, Any]:
    source = f"{job.config.endpoint.url} ({job.config.endpoint.model})"

    def shard(part: pa.Table, logits: np.ndarray) -> pa.Table:
        found = shard_table(part, logits, job.config.storage, source, job.labels)
        journal.forget(found["key"].to_pylist(), len(job.prompts.templates))
        return found

    def checked(part: pa.Table) -> np.ndarray:
        part = part.drop_columns("label")
        stored = stored_rows(part, job.folder)
        found = np.empty((len(part), len(job.labels)), np.float32)
        if stored.any():
            found[stored] = join_logits(part.filter(stored), store, {job.folder.name: 1.0})
        with progress_bar(total=int((~stored).sum()), desc="check", unit="row") as bar:
            found[~stored] = asker.logits(part.filter(~stored), bar.update)
        return found

    mend = (
        "change label.endpoint.prompt, or ask another model (distillkit label: with another --name)"
    )
    score = refuse_chance(table, checked, job.labels, "classification", source, mend)
    write = partial(write_here, lambda part: part, asker.logits, shard)
    summary = fill_store(table, job.folder, job.manifest, job.config, write, score)
    journal.compact(stored_keys(job.folder))
    if journal.spent.unanswered:
        log(
            f"{source}: {journal.spent.unanswered:,} answers name no label; a row without any gets logits that favour none"
        )
    return summary | spending(journal.spent, job.config.endpoint)


def _spent_up(error: SpentUp, table: pa.Table, job: _Job, journal: Journal) -> InputError:
    """Say in one line what is answered, what is left, and how to go on."""
    distinct, planned, dearest = job.planned(table)
    field = str(error).split()[0]
    spent = spending(journal.spent, job.config.endpoint)
    amount = {"max_calls": "calls", "max_tokens": "tokens", "max_cost": "cost"}[
        field.rpartition(".")[2]
    ]
    # A tenth more than calls took until now; a call begins only if the most that it may take is left.
    each = 1 if amount == "calls" else 1.1 * spent[amount] / max(spent["calls"], 1)
    most = {"calls": 1, "tokens": sum(dearest), "cost": cost_of(dearest, job.config.endpoint) or 0}
    needed = spent[amount] + each * (planned["calls"] - 1) + max(each, most[amount])
    more = f"{needed:.4g}" if amount == "cost" else f"{math.ceil(needed)}"
    return InputError(
        f"{job.folder}: {error}: {distinct - planned['rows']:,} of {distinct:,} rows are answered and kept, {planned['rows']:,} are left; "
        f"to go on, run it again with --{field.replace('_', '-')} {more} or so"
    )
