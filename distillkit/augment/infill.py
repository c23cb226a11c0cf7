"""Words masked and filled in by a masked language model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from distillkit.augment.corpus import Block, Lexicon
from distillkit.augment.language_model import draw_tokens, load_language_model
from distillkit.augment.replacing import with_words, word_draws
from distillkit.augment.rules import INFILLED, Variants, any_of
from distillkit.data.batches import Encoded, budget_batches, encode
from distillkit.data.checked import save_pretrained
from distillkit.data.counter import draw, seed_key, threshold
from distillkit.data.files import whole_folder
from distillkit.data.words import split_words
from distillkit.errors import InputError
from distillkit.recipe import InfillConfig, TrainingConfig
from distillkit.training.inference import on_threads
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan
from distillkit.training.precision import autocast, pick_device, resolve

_BATCH_TOKENS = 2048
# texts in a step of the head's training, share of their tokens masked
_HEAD_TEXTS, _HEAD_MASKED = 64, 0.15


class Infill:
    """Masks each word with probability p; a masked language model draws another in its place.

    All masked words of a text are filled in one pass, each by a number of its own. Signs are left
    alone (a word in place of a comma would grow into its neighbour), and so is what the model
    cannot see of a long text.

    Args:
        lexicon: Of the whole corpus.
        config: Rates.
        folder: What `prepare_infill` wrote.

    Source: Jiao et al. 2020 (arXiv 1909.10351), algorithm 1; Wu et al. 2019, Conditional BERT
    contextual augmentation, sample likewise.
    """

    def __init__(self, lexicon: Lexicon, config: InfillConfig, folder: Path) -> None:
        from transformers import AutoModelForMaskedLM

        network, self.tokenizer, _ = load_language_model(AutoModelForMaskedLM, str(folder))
        self.device = pick_device()
        self.precision = resolve("auto", self.device)
        self.model = AtMasks(network, self.tokenizer.mask_token_id).to(self.device).eval()
        self.max_tokens = _max_tokens(network, self.tokenizer)
        self.p, self.temperature = threshold(config.p), config.temperature
        is_word = pc.match_substring_regex(lexicon.strings, r"[\p{L}\p{N}]")
        self.is_word = is_word.to_numpy(zero_copy_only=False)
        self.mask, self.first_fill = lexicon.mask, len(lexicon.strings)
        tokens, words = _whole_words(self.tokenizer, lexicon.strings[lexicon.mask].as_py())
        self.tokens = torch.tensor(tokens, device=self.device)
        # The model's words stand behind the lexicon's own.
        strings = pa.concat_arrays([lexicon.strings, pa.array(words, pa.string())])
        self.lexicon = replace(lexicon, strings=strings)

    def __call__(self, block: Block, rows: np.ndarray, keys: np.ndarray) -> Variants:
        """Make one variant for each key."""
        source, offsets, u = word_draws(block, rows, keys)
        words = block.words[source]
        chosen = ((u >> np.uint64(32)) < self.p) & self.is_word[words]
        some = np.flatnonzero(any_of(chosen, offsets))
        if not len(some):
            return with_words(self.lexicon, block, rows, source, offsets, words, chosen, INFILLED)
        hidden = np.where(chosen, np.int32(self.mask), words)
        masked = self.lexicon.write_out(block.gaps[source], hidden, offsets, block.tails[rows])
        own, texts = self.lexicon.strings[self.mask].as_py(), masked.take(some).to_pylist()
        encoded = encode(self.tokenizer, texts, None, self.max_tokens, mask=own)
        seen = _masks_of(encoded, self.tokenizer.mask_token_id)
        total = np.concatenate([[0], np.cumsum(chosen)])
        wanted = (total[offsets[1:]] - total[offsets[:-1]])[some]
        # More masks than words were masked: the text has held this model's mask token before, so
        # nobody knows which are ours.
        seen_of = np.zeros(len(rows), np.int64)
        seen_of[some] = np.where(seen > wanted, 0, seen)
        # of a chosen word in its text, from 1
        rank = np.cumsum(chosen) - np.repeat(total[offsets[:-1]], np.diff(offsets))
        filled = chosen & (rank <= np.repeat(seen_of, np.diff(offsets)))
        words[filled] = self.first_fill + self._fill(encoded, seen_of[some], u[filled])
        return with_words(self.lexicon, block, rows, source, offsets, words, filled, INFILLED)

    def _fill(self, texts: Encoded, masks: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw a word for each mask.

        Args:
            texts: N texts with masks.
            masks: How many masks of each text are to be filled: all or none, (N,) int64.
            u: A number for each, (M,) uint64.

        Returns:
            Which of the model's words, (M,) int64.
        """
        out = np.empty(len(u), np.int64)
        first = np.concatenate([[0], np.cumsum(masks)])
        rows, texts = torch.from_numpy(np.flatnonzero(masks)), texts.to(self.device)
        with on_threads(1), torch.inference_mode(), autocast(self.precision, self.device):
            for batch in budget_batches(texts.lengths.cpu()[rows], _BATCH_TOKENS):
                group = rows[batch]
                logits = self.model(**texts.batch(group.to(self.device))).logits[:, self.tokens]
                spans = [np.arange(first[row], first[row + 1]) for row in group.tolist()]
                at = np.concatenate(spans)
                out[at] = draw_tokens(logits, self.temperature, u[at])
        return out


def prepare_infill(
    model: str, texts: Callable[[int], Sequence[str]], config: InfillConfig, seed: int, folder: Path
) -> None:
    """Save a masked language model for the workers.

    An encoder without a head first learns one on the task's own texts.

    Args:
        model: Folder or hub name of an encoder.
        texts: Draws that many of the task's texts.
        config: How long a head is trained.
        seed: Draws the head and what is masked.
        folder: Folder to write, whole or not at all.

    Raises:
        InputError: The model cannot be loaded, or has no mask token.
    """
    from transformers import AutoModelForMaskedLM

    torch.manual_seed(seed)  # a new head is drawn on loading
    network, tokenizer, missing = load_language_model(AutoModelForMaskedLM, model)
    if tokenizer.mask_token is None or tokenizer.pad_token is None:
        raise InputError(
            f"{model}: its tokenizer has no mask token; augment.infill.model must be an encoder such as BERT"
        )
    if missing and config.head_steps:
        _train_head(network, tokenizer, texts(_HEAD_TEXTS * config.head_steps), seed)
    with whole_folder(folder) as partial:
        save_pretrained(partial, network, tokenizer)


class AtMasks(nn.Module):
    """A masked language model that answers at the masks alone, for its vocabulary is wide."""

    def __init__(self, model: Any, mask_id: int) -> None:
        super().__init__()
        self.model, self.mask_id = model, mask_id
        self.at: Tensor | None = None
        model.get_output_embeddings().register_forward_pre_hook(
            lambda _, states: (states[0][self.at],)
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Any:
        """Return the model's output, its logits (M, V) for the M masks, row by row."""
        self.at = input_ids == self.mask_id
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **types)


def _train_head(network: Any, tokenizer: Any, texts: Sequence[str], seed: int) -> None:
    # The encoder learns too: one made for whole sentences knows little more than word frequencies.
    rows = encode(tokenizer, texts, None, _max_tokens(network, tokenizer))
    u = draw(seed_key(seed, len(rows)), np.arange(len(rows.ids))) >> np.uint64(32)
    special = torch.isin(rows.ids, torch.tensor(tokenizer.all_special_ids))
    masked = torch.from_numpy(u < threshold(_HEAD_MASKED)) & ~special
    hidden = rows.ids.masked_fill(masked, tokenizer.mask_token_id)
    # A mask that the text held already is asked for too, so that every mask has its target.
    truth = rows.ids.masked_fill(hidden != tokenizer.mask_token_id, -100)
    targets = Encoded(truth, None, rows.offsets, -100).to(pick_device())

    def loss(batch: Tensor, logits: Tensor) -> Tensor:
        target = targets.batch(batch)["input_ids"]
        target = target[target >= 0]
        return nn.functional.cross_entropy(logits, target, reduction="sum") / max(len(target), 1)

    training = TrainingConfig(epochs=1, batch_size=_HEAD_TEXTS, learning_rate=5e-4)
    hidden_rows = Encoded(hidden, rows.types, rows.offsets, rows.pad_id)
    plan = FitPlan(hidden_rows, loss, training, seed, "augment: infill head")
    fit(AtMasks(network, tokenizer.mask_token_id), plan)
    network.cpu().eval()


def _whole_words(tokenizer: Any, mask_word: str) -> tuple[list[int], list[str]]:
    """List the tokens that are a word by themselves, and what they read."""
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    # Byte-pair and sentence-piece tokenizers mark where a word begins, WordPiece where it goes on.
    begun = {mark: sum(token.startswith(mark) for token in tokens) for mark in ("Ġ", "▁")}
    mark = next((mark for mark, count in begun.items() if count > 1), "")
    special, found = set(tokenizer.all_special_ids), {}
    for i, token in enumerate(tokens):
        begins = token.startswith(mark) if mark else not token.startswith("##")
        if i in special or not begins:
            continue
        word = tokenizer.convert_tokens_to_string([token]).strip()
        if split_words(word) == [word] and any(map(str.isalnum, word)) and mask_word not in word:
            found[i] = word
    return list(found), list(found.values())


def _masks_of(rows: Encoded, mask_id: int) -> np.ndarray:
    """Count each row's masks, (N,) int64."""
    total = np.concatenate([[0], np.cumsum(rows.ids.numpy() == mask_id)])
    offsets = rows.offsets.numpy()
    return total[offsets[1:]] - total[offsets[:-1]]


def _max_tokens(network: Any, tokenizer: Any) -> int:
    return int(min(tokenizer.model_max_length, network.config.max_position_embeddings))
