"""Texts written by a causal language model that was fine-tuned on the task's own."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from distillkit.augment.method import RowsJob
from distillkit.data.batches import Encoded
from distillkit.data.checked import check_sealed, read_arrow, save_pretrained, write_arrow
from distillkit.data.content import paired, texts_of
from distillkit.data.counter import draw, seed_key
from distillkit.data.files import whole_folder
from distillkit.data.workers import each, processes
from distillkit.errors import InputError, checkpoint_errors
from distillkit.processes import progress_bar
from distillkit.recipe import AugmentConfig, GeneratedConfig, TrainingConfig
from distillkit.training.inference import on_threads
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan
from distillkit.training.precision import autocast, pick_device, resolve
from distillkit.training.strategies.base import Strategy

_SHARD = 1024  # texts a file: what a killed run may lose
_BATCH = 128  # texts written together
_SEQUENCE = 3  # of the seed's numbers: 0 to 2 are those of the variants and the sentences
_BETWEEN = "\t"  # the two texts of a pair


def generate(job: RowsJob) -> Iterator[pa.Table]:
    """Fine-tune a causal language model on a task's texts and have it write more.

    Text i is the same, up to rounding, however many are wanted. Empty texts, those that hold the
    mask word, and broken pairs are left out.

    Args:
        job: Its texts are kept in memory as tokens, four bytes each. `work` keeps the model and
            what is written; a killed run goes on from there.

    Yields:
        Tables with `text` and, for pairs, `text_pair`.

    Raises:
        InputError: The model cannot be loaded, or does not know where a text ends.

    Source: Tang et al. 2019, Natural language generation for effective knowledge distillation
    (DeepLo 2019), section 3.2.
    """
    if not job.wanted:
        return
    options, config = job.options, job.options.config.generated
    made_by = json.dumps([asdict(config), options.seed, options.models.fingerprints()])
    key = hashlib.sha256((job.digest + made_by).encode()).hexdigest()[:16]
    work = job.work / f"generated-{key}"
    if not (work / "model").is_dir():
        model = options.models.of["generated"]
        _fine_tune(model, job.tables, config, options.seed, work / "model")
    shards = list(range(-(-job.wanted // _SHARD)))
    write = partial(_write_shard, work, job.wanted, options.config, options.seed)
    workers = processes(options.workers, len(shards))
    steps = each(write, shards, engine=options.engine, workers=workers, holds_model=True)
    name = "augment: generate"
    for path in progress_bar(steps, desc=name, total=len(shards), unit="shard"):
        table = read_arrow(Path(path))
        if len(table):
            yield table


def write_texts(
    model: Any, tokenizer: Any, numbers: Sequence[int], config: GeneratedConfig, seed: int
) -> list[str]:
    """Have a language model write texts from nothing.

    Args:
        model: What AutoModelForCausalLM loads, in eval mode.
        tokenizer: Its tokenizer.
        numbers: Which texts, N of them; each draws numbers of its own.
        config: Longest text, temperature.
        seed: Draws everything.

    Returns:
        N texts.
    """
    first, end = _ends(tokenizer)
    device = next(model.parameters()).device
    # Of the special tokens only the end may come.
    never = torch.tensor(
        [i for i in tokenizer.all_special_ids if i != end], dtype=torch.long, device=device
    )
    keys = draw(seed_key(seed, _SEQUENCE), np.array(numbers))
    written = np.full((len(keys), config.max_tokens), end, np.int64)
    rows, cache = np.arange(len(keys)), None  # who has not come to an end
    ids = torch.full((len(keys), 1), first, device=device)
    with on_threads(1), torch.inference_mode(), autocast(resolve("auto", device), device):
        for step in range(config.max_tokens):
            out = model(input_ids=ids, past_key_values=cache, use_cache=True)
            logits = out.logits[:, -1].float().index_fill(1, never, -torch.inf)
            u = draw(keys[rows], np.full(len(rows), step))
            written[rows, step] = token = draw_tokens(logits, config.temperature, u)
            going = np.flatnonzero(token != end)
            if not len(going):
                break
            cache = out.past_key_values
            if len(going) < len(rows):
                cache.batch_select_indices(torch.from_numpy(going).to(device))
            rows, ids = rows[going], torch.from_numpy(token[going, None]).to(device)
    lengths = np.argmax(np.concatenate([written == end, np.ones((len(keys), 1), bool)], 1), axis=1)
    ids_of = [row[:n] for row, n in zip(written.tolist(), lengths, strict=True)]
    return tokenizer.batch_decode(ids_of, clean_up_tokenization_spaces=False)


def _write_shard(work: Path, wanted: int, config: AugmentConfig, seed: int, shard: int) -> str:
    """Write a shard's texts; return their file."""
    first, last = shard * _SHARD, min((shard + 1) * _SHARD, wanted)
    path = work / f"texts-{first:09}-{last:09}.arrow"
    if not path.is_file():
        model, tokenizer, pairs = _loaded(work / "model")
        texts: list[str] = []
        for start in range(first, last, _BATCH):
            numbers = range(start, min(start + _BATCH, last))
            texts += write_texts(model, tokenizer, numbers, config.generated, seed)
        write_arrow(_table(texts, config.mask, pairs), path)
    return str(path)


def draw_tokens(logits: Tensor, temperature: float, u: np.ndarray) -> np.ndarray:
    """Draw a token of each distribution by inverting its cumulative distribution.

    Args:
        logits: (M, V) float.
        temperature: > 0.
        u: (M,) uint64, of which the lower 32 bits are used.

    Returns:
        (M,) int64; rows do not depend on each other.
    """
    p = torch.softmax(logits.float().cpu() / temperature, dim=1)
    below = p.cumsum(dim=1, dtype=torch.float64)
    share = torch.from_numpy((u & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32)[:, None]
    # Rounding: the sum need not be 1, and must not be reached.
    drawn = torch.searchsorted(below, share * below[:, -1:], right=True).ravel()
    return drawn.clamp(max=logits.shape[1] - 1).numpy()


def _table(texts: Sequence[str], mask: str, pairs: bool) -> pa.Table:
    """Keep what can be used of the texts."""
    split = [text.split(_BETWEEN) if pairs else [text] for text in texts if mask not in text]
    names = ["text", "text_pair"] if pairs else ["text"]
    rows = [[side.strip() for side in sides] for sides in split if len(sides) == len(names)]
    rows = [sides for sides in rows if all(sides)]
    columns = [[sides[i] for sides in rows] for i in range(len(names))]
    return pa.table([pa.array(column, pa.string()) for column in columns], names)


def load_language_model(model: str) -> tuple[Any, Any, set[str]]:
    """Load a causal language model in float32 and eval mode.

    Returns:
        The model, its tokenizer, and the names of weights that the checkpoint lacks.

    Raises:
        InputError: It cannot be loaded.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    check_sealed(Path(model))
    with checkpoint_errors(model):
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        network, found = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    return network.eval(), tokenizer, set(found["missing_keys"])


@lru_cache(maxsize=1)
def _loaded(folder: Path) -> tuple[Any, Any, bool]:
    model, tokenizer, _ = load_language_model(str(folder))
    return model.to(pick_device()), tokenizer, (folder / "pairs").is_file()


def _fine_tune(
    model: str, texts: Iterable[pa.Table], config: GeneratedConfig, seed: int, folder: Path
) -> None:
    network, tokenizer, missing = load_language_model(model)
    if missing:
        raise InputError(
            f"{model}: has no causal language model's weights ({min(missing)}); augment.generated.model must be one such as GPT-2"
        )
    first, end = _ends(tokenizer)
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    pairs = False
    for table in texts:
        pairs = "text_pair" in table.column_names
        joined = [a if b is None else f"{a}{_BETWEEN}{b}" for a, b in paired(*texts_of(table))]
        for own in tokenizer(joined, add_special_tokens=False)["input_ids"]:
            row = [first, *own, end][: config.max_tokens + 1]
            ids.append(np.array(row, np.int32))
            lengths.append(len(row))
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    flat = torch.from_numpy(np.concatenate(ids))
    rows = Encoded(flat, None, offsets, end)
    targets = Encoded(flat, None, offsets, -100).to(pick_device())

    def loss(batch: Tensor, logits: Tensor) -> Tensor:
        target = targets.batch(batch)["input_ids"][:, 1:]
        flat = logits[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(flat, target.flatten(), ignore_index=-100)

    training = TrainingConfig(epochs=config.epochs, learning_rate=config.learning_rate)
    plan = FitPlan(rows, loss, training, seed, "augment: language model")
    fit(network, plan, _Alone(training))
    with whole_folder(folder) as partial_folder:
        save_pretrained(partial_folder, network.cpu(), tokenizer)
        if pairs:
            (partial_folder / "pairs").touch()


class _Alone(Strategy):
    """One process: those that torchrun has started beside it wait for the texts."""

    def join(self) -> Any:
        """Join nobody."""
        return SimpleNamespace(process_index=0, num_processes=1, device=pick_device())

    def no_sync(self) -> contextlib.AbstractContextManager[Any]:
        """Send nothing in any case."""
        return contextlib.nullcontext()


def _ends(tokenizer: Any) -> tuple[int, int]:
    """Return the tokens that a text begins and ends with.

    Raises:
        InputError: The tokenizer has no end.
    """
    end = tokenizer.eos_token_id
    if end is None:
        raise InputError(
            f"{tokenizer.name_or_path}: its tokenizer has no end-of-text token; augment.generated.model must be a causal language model such as GPT-2"
        )
    return (end if tokenizer.bos_token_id is None else tokenizer.bos_token_id), end
