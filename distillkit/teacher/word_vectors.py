"""An encoder's vectors of words: of each word alone, or its mean in the texts where it stands."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distillkit.data.batches import budget_batches, encode, with_own_mask
from distillkit.data.contexts import Contexts
from distillkit.data.pieces import ranges
from distillkit.errors import InputError
from distillkit.processes import progress_bar
from distillkit.recipe import Precision
from distillkit.teacher.checkpoint import max_tokens_of
from distillkit.training.precision import autocast, pick_device, resolve

_CONTINUES = "##"  # how a vocabulary of word pieces writes a piece that continues a word
_BATCH_TOKENS = 4096  # of words alone, padding included
_BATCH_CHARACTERS = 16_384  # of texts, padding included: about as many tokens as that of English


def word_vectors(
    model: Any,
    tokenizer: Any,
    words: Sequence[str],
    contexts: Contexts | None = None,
    *,
    precision: Precision = "auto",
    progress: str = "",
) -> Tensor:
    """Ask an encoder for one vector a word.

    Args:
        model: A sequence classifier with a base encoder.
        tokenizer: Its tokenizer.
        words: V words.
        contexts: None: each word goes through the encoder alone. Else each vector is the mean over
            all places where the word of that id stands in these texts; that of a subword that
            continues a word, also over its places inside the other words. A word that no text has
            gets its vector alone, moved by the mean difference of those that some text has.
        precision: Autocast over texts; words alone are computed in float32.
        progress: Name of the progress bar; empty: none.

    Returns:
        Mean of the last hidden states of the word's own subwords, special tokens left out, (V, H)
        float32 on the CPU.

    Raises:
        InputError: The encoder's tokenizer cannot say where in a text its subwords stand.
    """
    if contexts is not None and not tokenizer.is_fast:
        raise InputError(
            "student.embeddings.source is teacher-context, but the teacher's tokenizer is not a fast one (tokenizer.json): choose teacher, or another teacher"
        )
    with _placed(model.base_model) as (encoder, device):
        alone = _alone(encoder, tokenizer, words, device, progress)
        if contexts is None:
            return alone
        limit, kind = max_tokens_of(model, tokenizer), resolve(precision, device)
        sums, counts = _in_texts(encoder, tokenizer, limit, contexts, kind, progress)
    met = counts > 0
    if not met.any():
        return alone
    means = (sums[met] / counts[met, None]).float()
    # Words alone lie apart from words in texts: unmoved, that gap would be the table's first
    # component.
    vectors = alone + (means - alone[met]).mean(0)
    vectors[met] = means
    return vectors


@contextmanager
def _placed(encoder: Any) -> Iterator[tuple[Any, torch.device]]:
    """Lend an encoder to the accelerator, where it must not stay: the student trains there."""
    home, device = next(encoder.parameters()).device, pick_device()
    try:
        with torch.no_grad():
            yield encoder.to(device).eval(), device
    finally:
        encoder.to(home)


def _alone(
    encoder: Any, tokenizer: Any, words: Sequence[str], device: torch.device, progress: str
) -> Tensor:
    rows = encode(tokenizer, words, None, 32)
    special = torch.tensor(sorted(tokenizer.all_special_ids))
    vectors = torch.empty(len(words), encoder.config.hidden_size)
    with progress_bar(total=len(words), desc=progress, unit="word") as bar:
        for batch in budget_batches(rows.lengths, _BATCH_TOKENS):
            inputs = rows.batch(batch)
            states = _states(encoder, inputs, device).float().cpu()
            own = inputs["attention_mask"].bool() & ~torch.isin(inputs["input_ids"], special)
            weights = own.float().unsqueeze(2)  # (B, T, 1)
            vectors[batch] = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
            bar.update(len(batch))
    return vectors


def _states(encoder: Any, inputs: dict[str, Tensor], device: torch.device) -> Tensor:
    return encoder(**{k: v.to(device) for k, v in inputs.items()}).last_hidden_state


def _in_texts(
    encoder: Any,
    tokenizer: Any,
    max_tokens: int,
    contexts: Contexts,
    precision: Precision,
    progress: str,
) -> tuple[Tensor, Tensor]:
    """Add up each word's states over its places in texts.

    Returns:
        The sums, (V, H) float64, and the number of places, (V,) int64.
    """
    device, size = next(encoder.parameters()).device, len(contexts.ids)
    number = np.full(len(contexts.tokenizer), -1)  # of a token's id among the words
    number[contexts.ids] = np.arange(size)
    inside = _Inside(contexts.tokenizer.convert_ids_to_tokens(contexts.ids))
    sums = torch.zeros(size, encoder.config.hidden_size, dtype=torch.float64)
    counts = torch.zeros(size, dtype=torch.long)
    own_mask = with_own_mask([contexts.mask], contexts.mask, tokenizer)[0]
    lengths = torch.tensor([len(text) for text in contexts.texts])
    with (
        autocast(precision, device),
        progress_bar(total=len(lengths), desc=progress, unit="text") as bar,
    ):
        for batch in budget_batches(lengths, _BATCH_CHARACTERS):
            texts = [contexts.texts[i] for i in batch.tolist()]
            masked = with_own_mask(texts, contexts.mask, tokenizer)
            inputs, pieces = _located(tokenizer, masked, max_tokens)
            if contexts.mask:
                # The mask word is no word. Blanks in its place keep the characters' numbers those
                # of the encoder's text.
                texts = [text.replace(contexts.mask, " " * len(own_mask)) for text in texts]
            found, tokens = _located(contexts.tokenizer, texts, contexts.tokenizer.model_max_length)
            ids = found["input_ids"].long().numpy().ravel()[tokens[:, 3]]
            word, tokens = inside.added(number[ids], tokens)
            place, piece, shares = _overlaps(tokens, pieces)
            states = _states(encoder, inputs, device).flatten(0, 1).cpu().double()
            states = states[torch.from_numpy(pieces[piece, 3])] * torch.from_numpy(shares)[:, None]
            sums.index_add_(0, torch.from_numpy(word[place]), states)
            counts += torch.bincount(torch.from_numpy(word[np.unique(place)]), minlength=size)
            bar.update(len(batch))
    return sums, counts


def _located(
    tokenizer: Any, texts: Sequence[str], max_tokens: int
) -> tuple[dict[str, Tensor], np.ndarray]:
    """Tokenise texts and say where each token stands.

    Returns:
        The padded inputs, (B, T) each; and of every token that stands for characters, in the order
        of the text, its text's number, its first character, the one after its last, and its place
        in the flattened inputs, (P, 4) int64.
    """
    how = {"padding": True, "truncation": True, "max_length": max_tokens, "return_tensors": "pt"}
    inputs = dict(tokenizer(list(texts), return_offsets_mapping=True, **how))
    spans = inputs.pop("offset_mapping").numpy().reshape(*inputs["input_ids"].shape, 2)
    # special tokens and padding stand for no character
    row, column = np.nonzero(spans[..., 1] > spans[..., 0])
    return inputs, np.column_stack([row, spans[row, column], row * spans.shape[1] + column])


def _overlaps(tokens: np.ndarray, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find which pieces share a character with which tokens.

    Args:
        tokens: As `_located` has them, in any order.
        pieces: As `_located` has them.

    Returns:
        Of each such pair the token's and the piece's number, and one over the number of pieces that
        the token has.
    """
    # All texts on one line of characters, so that one search finds each token's first and last
    # piece.
    far = 1 + max(tokens[:, 2].max(initial=0), pieces[:, 2].max(initial=0))
    (begins, ends), (starts, stops) = (
        (where[:, 0] * far + where[:, 1], where[:, 0] * far + where[:, 2])
        for where in (tokens, pieces)
    )
    first = np.searchsorted(stops, begins, side="right")
    stop = np.searchsorted(starts, ends, side="left")
    count = np.maximum(stop - first, 0)
    place = np.repeat(np.arange(len(tokens)), count)
    return place, ranges(first, count), 1 / count[place]


class _Inside:
    """Where subwords that continue a word stand inside whole words.

    Each word is cut as it would be if it were no word itself.

    Args:
        words: V words, those that begin with `##` the subwords.
    """

    def __init__(self, words: Sequence[str]) -> None:
        number = {word: i for i, word in enumerate(words)}
        self.lengths = np.array([len(word) for word in words], np.int64)
        cuts: list[list[tuple[int, int, int]]] = [[] for _ in words]
        if any(word.startswith(_CONTINUES) and word != _CONTINUES for word in words):
            whole = [word for word in words if not word.startswith(_CONTINUES)]
            for word in whole:
                cuts[number[word]] = _continuing(word, number)
        # subword's number, first character, the one after its last
        self.cut = np.array([one for own in cuts for one in own], np.int64).reshape(-1, 3)
        self.counts = np.array([len(own) for own in cuts], np.int64)
        self.first = np.cumsum(self.counts) - self.counts

    def added(self, word: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Drop tokens that are no words (number -1) and add the subwords inside those that are.

        Args:
            word: Each token's number among the words, (P,) int64.
            tokens: As `_located` has them.
        """
        word, tokens = word[word >= 0], tokens[word >= 0]
        # Lower-casing and composing may change a word's length: then the subword's place in it is
        # unknown.
        count = np.where(tokens[:, 2] - tokens[:, 1] == self.lengths[word], self.counts[word], 0)
        piece = self.cut[ranges(self.first[word], count)]
        inner = np.repeat(tokens, count, axis=0)
        inner[:, 2] = inner[:, 1] + piece[:, 2]
        inner[:, 1] += piece[:, 1]
        return np.concatenate([word, piece[:, 0]]), np.concatenate([tokens, inner])


def _continuing(word: str, number: dict[str, int]) -> list[tuple[int, int, int]]:
    """Cut a word into the longest subwords there are, itself not among them.

    Returns:
        Those after the first; none where a subword is missing.
    """
    found: list[tuple[int, int, int]] = []
    start = 0
    while start < len(word):
        ends = range(len(word) if start else len(word) - 1, start, -1)
        lead = _CONTINUES if start else ""
        end = next((end for end in ends if lead + word[start:end] in number), 0)
        if not end:
            return []
        if start:
            found.append((number[lead + word[start:end]], start, end))
        start = end
    return found
