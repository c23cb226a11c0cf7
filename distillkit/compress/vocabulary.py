"""Fewer tokens: those that a text uses most, under new numbers."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models
from torch import nn

from distillkit.errors import InputError
from distillkit.student.vocabulary import with_backend


def prunable(tokenizer: Any) -> bool:
    """Say whether a tokenizer's tokens are words or word pieces, which do not depend on each other."""
    return isinstance(tokenizer.backend_tokenizer.model, models.WordLevel | models.WordPiece)


def prune_vocabulary(model: Any, tokenizer: Any, counts: np.ndarray, size: int) -> Any:
    """Remove a model's rarest tokens, in place, and return the tokenizer of the others.

    Special tokens stay, and of word pieces single characters, because removed words are read as
    these. Subwords (`##ing`) stay as far as they take at most half of the other places.

    Args:
        model: A classifier whose tables have a row a token.
        tokenizer: Its fast tokenizer, of words or subwords; left as it is.
        counts: How often each token is used, (V,).
        size: Tokens to keep; more where more must stay.

    Raises:
        InputError: The tokenizer is of another kind (BPE, unigrams, bytes), whose tokens depend on
            each other.
    """
    if not isinstance(getattr(model.config, "vocab_size", None), int):
        raise InputError(
            f"compress.vocabulary_size: a {model.config.model_type} keeps its table within another model; expected another kind"
        )
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if not prunable(tokenizer):
        raise InputError(
            f"compress.vocabulary_size: the tokenizer's model is {state['model']['type']}, whose tokens depend on each other; expected words or word pieces"
        )
    vocabulary: dict[str, int] = state["model"]["vocab"]
    special = {token["id"] for token in state["added_tokens"]}
    special |= {vocabulary[token] for token in tokenizer.all_special_tokens if token in vocabulary}
    part, must = state["model"].get("continuing_subword_prefix"), special
    if part:  # word pieces; a removed word of WordLevel is unknown
        must = special | {
            i for token, i in vocabulary.items() if len(token.removeprefix(part)) == 1
        }
    words: list[int] = []
    subwords: list[int] = []
    for i, token in sorted((i, token) for token, i in vocabulary.items() if i not in must):
        (subwords if part and token.startswith(part) else words).append(i)
    for tokens in (words, subwords):
        tokens.sort(key=lambda i: -counts[i])
    room = max(size - len(must), 0)
    subwords = subwords[: max(room // 2, room - len(words))]
    kept = sorted({*must, *subwords, *words[: room - len(subwords)]})
    new = {old: i for i, old in enumerate(kept)}
    state["model"]["vocab"] = {
        token: new[i]
        for token, i in sorted(vocabulary.items(), key=lambda item: item[1])
        if i in new
    }
    for token in state["added_tokens"]:
        token["id"] = new[token["id"]]
    _renumber(state["post_processor"], new)
    _cut_tables(model, kept)
    return with_backend(tokenizer, Tokenizer.from_str(json.dumps(state)))


def _renumber(state: Any, new: Mapping[int, int]) -> None:
    """Give a post-processor's special tokens their new numbers, in place."""
    if not isinstance(state, dict):
        return
    for key in ("sep", "cls"):  # of BERT and RoBERTa: ["[SEP]", 102]
        if key in state:
            state[key][1] = new[state[key][1]]
    for token in (state.get("special_tokens") or {}).values():  # of a template
        token["ids"] = [new[i] for i in token["ids"]]
    for part in state.get("processors", ()):
        _renumber(part, new)


def _cut_tables(model: Any, kept: list[int]) -> None:
    """Keep some rows of each table of tokens, and renumber the configuration's special tokens."""
    size, config = model.config.vocab_size, model.config
    rows = torch.tensor(kept)
    for name, module in model.named_modules():
        if "position" in name:  # as many positions as tokens mean nothing
            continue
        if isinstance(module, nn.Embedding) and module.num_embeddings == size:
            trained = module.weight.requires_grad
            module.weight = nn.Parameter(module.weight.detach()[rows], requires_grad=trained)
            module.num_embeddings = len(kept)
            if module.padding_idx is not None:
                module.padding_idx = kept.index(module.padding_idx)
    config.vocab_size = len(kept)
    for name in ("pad", "unk", "bos", "eos", "cls", "sep"):
        old = getattr(config, f"{name}_token_id", None)
        if isinstance(old, int):
            setattr(config, f"{name}_token_id", kept.index(old) if old in kept else None)
