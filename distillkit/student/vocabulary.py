"""The student's tokenizer: its own words or characters, in a fast tokenizer that any transformers code can load."""

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from distillkit.data.words import CHARACTER_PATTERN, WORD_PATTERN, is_unsegmented
from distillkit.recipe import VocabularyConfig

PAD, UNKNOWN = "[PAD]", "[UNK]"


def build_tokenizer(texts: Sequence[str], config: VocabularyConfig, max_tokens: int, mask: str = "") -> Any:
    """Build a tokenizer whose vocabulary is the most frequent words of the texts.

    Args:
        texts: Training and transfer text; dev and test text must not be among it.
        config: Words or characters, how many, how frequent.
        max_tokens: Where the tokenizer truncates.
        mask: The transfer set's mask word: it is unknown to the student, so that masking teaches it what an unknown word is worth.

    Returns:
        A transformers fast tokenizer, lower-casing; `[PAD]` is 0, `[UNK]`, also its mask token, is 1. The second text of a pair has token type 1.
    """
    from transformers import PreTrainedTokenizerFast

    characters = config.unit == "character" or (config.unit == "auto" and is_unsegmented(texts))
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    pattern = CHARACTER_PATTERN if characters else WORD_PATTERN
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.size, min_frequency=config.min_count, special_tokens=[PAD, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(_without(texts, mask), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        mask_token=UNKNOWN,
        model_max_length=max_tokens,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _without(texts: Iterable[str], mask: str) -> Iterable[str]:
    return (text.replace(mask, " ") for text in texts) if mask else texts


def words_of(tokenizer: Any) -> list[str]:
    """List a tokenizer's vocabulary in the order of its ids."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)
