"""The masking strategies as data collators, for transformers' own Trainer or any DataLoader."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from distillkit.data.rows import FIRST, LATER, SPECIAL
from distillkit.data.segmenters import Segmenter, word_numbers
from distillkit.recipe import MaskingConfig
from distillkit.teacher.masker import Masker, fresh_draw
from distillkit.teacher.similar import SimilarWords


class MaskingCollator:
    """Pads examples to a batch and masks it.

    A batch has `input_ids`, `attention_mask`, `labels`, and `token_type_ids` where the examples do.

    Args:
        tokenizer: With a mask token.
        config: The strategy and its numbers.
        similar: What `macbert` puts in a word's place.

    An example has `input_ids` and may have `words`: 0 for tokens that are never masked, 1 for a
    word's first token, 2 for a later one, as `tokenize` gives them for any segmenter (with the
    Trainer, remove_unused_columns=False). Without it the tokenizer's own subwords tell the words.

    Raises:
        InputError: The tokenizer has no mask token, or macbert no similar words.
    """

    def __init__(
        self,
        tokenizer: Any,
        config: MaskingConfig | None = None,
        similar: SimilarWords | None = None,
    ) -> None:
        self.config = config or MaskingConfig()
        self._masker = Masker(self.config, tokenizer, similar)
        self._pad, self._kinds = int(tokenizer.pad_token_id), _kinds(tokenizer)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Make a batch of examples."""

        def padded(name: str, value: int) -> Tensor:
            rows = [torch.as_tensor(example[name], dtype=torch.long) for example in examples]
            return torch.nn.utils.rnn.pad_sequence(rows, True, value)

        ids = padded("input_ids", self._pad)
        lengths = torch.tensor([len(example["input_ids"]) for example in examples])
        inside = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        if "attention_mask" in examples[0]:  # they may be padded already
            inside = padded("attention_mask", 0)
        batch = {"input_ids": ids, "attention_mask": inside}
        if "token_type_ids" in examples[0]:
            batch["token_type_ids"] = padded("token_type_ids", 0)
        own = "words" in examples[0]
        words = padded("words", SPECIAL) if own else self._kinds[ids] * inside
        masked, labels = self._masker(ids, words, fresh_draw(len(ids), ids.device))
        return batch | {"input_ids": masked, "labels": labels}


def tokenize(
    texts: Sequence[str], tokenizer: Any, segmenter: Segmenter | None = None, max_tokens: int = 128
) -> dict[str, list[list[int]]]:
    """Tokenise texts into examples that know their words; what `datasets.map` takes.

    Args:
        texts: N texts.
        tokenizer: A fast tokenizer.
        segmenter: Finds the words of a script without spaces, as jieba.lcut does; None: the
            tokenizer's own.
        max_tokens: Longer texts are truncated, special tokens included.

    Returns:
        `input_ids`, and `words` as `MaskingCollator` takes them.

    Raises:
        InputError: The segmenter's words are not those of the text.
    """
    found = tokenizer(
        texts, truncation=True, max_length=max_tokens, return_offsets_mapping=segmenter is not None
    )
    words = []
    special = set(_special(tokenizer))
    for number, text in enumerate(texts):
        # A special token that stands in the text is of no word.
        tokens = zip(found["input_ids"][number], found.word_ids(number), strict=True)
        own = [None if i in special else word for i, word in tokens]
        if segmenter is not None:
            segments = word_numbers(segmenter, "given", text)
            spans = found["offset_mapping"][number]
            for place, (a, b) in enumerate(spans):
                # A subword that reaches over the end of a segment keeps the tokenizer's word.
                whole = b > a and 0 <= segments[a] == segments[b - 1]
                if own[place] is not None and whole:
                    own[place] = -1 - int(segments[a])
        pairs = zip(own, [None, *own], strict=False)
        words.append([SPECIAL if w is None else LATER if w == b else FIRST for w, b in pairs])
    return {"input_ids": found["input_ids"], "words": words}


def _kinds(tokenizer: Any) -> Tensor:
    """Return the `words` of every token of a vocabulary, (V,) int64, as far as its name tells."""
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    # Byte-level subwords and SentencePiece's have a sign before a word's first one; WordPiece has
    # ## before the others. RoBERTa has a subword ## too.
    first = ("\u0120", "\u2581")
    if sum(name.startswith(first) for name in names) > sum(name.startswith("##") for name in names):
        # punctuation stands for itself
        later = [name[:1].isalnum() and not name.startswith(first) for name in names]
    else:
        later = [name.startswith("##") for name in names]
    kinds = torch.where(torch.tensor(later), LATER, FIRST)
    kinds[_special(tokenizer)] = SPECIAL
    return kinds


def _special(tokenizer: Any) -> list[int]:
    """Return the tokens that stand for no text."""
    return sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
