"""The masking strategies in transformers' own Trainer, and in a DataLoader with workers."""

from itertools import chain, pairwise

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from torch.utils.data import DataLoader
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from distillkit.data.rows import FIRST, LATER, SPECIAL
from distillkit.errors import InputError
from distillkit.recipe import MaskingConfig
from distillkit.teacher.collators import MaskingCollator, tokenize
from distillkit.teacher.masker import IGNORED
from distillkit.teacher.similar import SimilarWords

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SUBWORDS = [*SPECIAL_TOKENS, "a", "film", "thought", "##ful", "##ly", "made", "."]
HAN = "这部电影的演员非常出色故事也很感人我们都喜欢看，。"
TEXTS = [
    "a thoughtfully made film .",
    "a film",
    "thoughtful thoughtful thoughtful",
    "a made film made . a film .",
]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizerFast(vocab={name: i for i, name in enumerate([*SUBWORDS, *HAN])})


@pytest.fixture(scope="module")
def byte_level():
    trained = ByteLevelBPETokenizer()
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    text = ["the film is a film with film", "the plot, isn't it?", "## ##"] * 20
    special = list(names.values())
    trained.train_from_iterator(text, 292, special_tokens=special, show_progress=False)
    tokens = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **tokens)


@pytest.fixture(scope="module")
def examples(tokenizer):
    return [{"input_ids": ids} for ids in tokenizer(TEXTS)["input_ids"]]


def always(strategy="whole-word", **options):
    """Hide all that is chosen."""
    return MaskingConfig(strategy=strategy, mask_share=1.0, random_share=0.0, **options)


def chosen_words(collator, example, times=40):
    """Return which places are chosen, in every draw."""
    return (collator([example] * times)["labels"] != IGNORED).tolist()


def test_words_are_what_the_subwords_say(tokenizer):
    torch.manual_seed(0)
    example = {"input_ids": tokenizer("a thoughtfully made film .")["input_ids"]}
    found = chosen_words(MaskingCollator(tokenizer, always(rate=0.4)), example)
    assert tokenizer.convert_ids_to_tokens(example["input_ids"])[2:5] == SUBWORDS[7:10]
    assert all(row[2] == row[3] == row[4] for row in found)
    assert not any(row[0] or row[-1] for row in found)
    assert {row[2] for row in found} == {True, False}
    # of five words, the mark too
    assert all(sum(row[i] for i in (1, 2, 5, 6, 7)) == 2 for row in found)


def test_words_are_what_byte_level_subwords_say(byte_level):
    torch.manual_seed(0)
    assert byte_level.convert_tokens_to_ids("##") != byte_level.unk_token_id  # as RoBERTa has
    found = byte_level("<s>unknown film, isn't it?</s>")
    ids, words = found["input_ids"], found.word_ids()
    assert ids[0] == byte_level.cls_token_id
    later = [word == before for before, word in pairwise(words[1:-1])]
    assert sum(later) > 5
    chosen = chosen_words(MaskingCollator(byte_level, always(rate=0.5)), {"input_ids": ids}, 300)
    together = [all(row[i] == row[i - 1] for row in chosen) for i in range(2, len(ids) - 1)]
    assert together == later
    assert not any(row[0] or row[-1] for row in chosen)


def test_an_unknown_word_is_a_word(tokenizer):
    example = {"input_ids": tokenizer("zebra")["input_ids"]}
    assert example["input_ids"][1] == tokenizer.unk_token_id
    assert tokenize(["zebra"], tokenizer)["words"] == [[SPECIAL, FIRST, SPECIAL]]
    found = chosen_words(MaskingCollator(tokenizer, always(rate=1.0)), example)
    assert found == [[False, True, False]] * 40


def test_words_that_the_examples_bring_come_first(tokenizer):
    torch.manual_seed(0)
    example = {"input_ids": tokenizer("a film made .")["input_ids"], "words": [0, 1, 2, 1, 0, 0]}
    found = chosen_words(MaskingCollator(tokenizer, always(rate=0.5)), example)
    expected = {(True, True, False, False), (False, False, True, False)}
    assert {tuple(row[1:5]) for row in found} == expected


def test_chinese_words_are_never_split(tokenizer):
    import jieba

    jieba.setLogLevel("ERROR")
    torch.manual_seed(0)
    texts = ["这部电影的演员非常出色，故事也很感人。", "我们都喜欢看电影"]
    found = tokenize(texts, tokenizer, jieba.lcut)
    collator = MaskingCollator(tokenizer, always(rate=0.4))
    for text, ids, words in zip(texts, found["input_ids"], found["words"], strict=True):
        kinds = [[FIRST, *[LATER] * (len(word) - 1)] for word in jieba.lcut(text)]
        assert words == [SPECIAL, *chain(*kinds), SPECIAL]
        assert LATER in words
        for row in chosen_words(collator, {"input_ids": ids, "words": words}):
            assert all(row[i] == row[i - 1] for i, kind in enumerate(words) if kind == LATER)
    alone = tokenize(texts, tokenizer)["words"]
    assert set(alone[0][1:-1]) == {FIRST}  # characters


def test_tokenize_knows_words_special_tokens_and_where_to_stop(tokenizer, byte_level):
    def words(text, *rest, **options):
        return "".join(map(str, tokenize([text], *(rest or [tokenizer]), **options)["words"][0]))

    assert words("a thoughtfully made [MASK] film [SEP] film") == "01122101010"
    assert words("") == "00"
    assert tokenize(["a thoughtfully made film"], tokenizer, max_tokens=4) == {
        "input_ids": [[2, 5, 7, 3]],
        "words": [[SPECIAL, FIRST, FIRST, SPECIAL]],
    }
    segments = ["a", "thoughtful", "ly", "made"]
    assert words("a thoughtfully made", tokenizer, lambda text: segments) == "0112110"
    found = tokenize(["the filmed plot, isn't"], byte_level)
    names = byte_level.convert_ids_to_tokens(found["input_ids"][0])
    for name, kind in zip(names[1:], found["words"][0][1:], strict=True):
        assert (kind == FIRST) == (name[0] in "Ġ,'")
    with pytest.raises(InputError, match="found the word 'flim', which the text has not"):
        words("a film", tokenizer, lambda text: ["a", "flim"])


def test_a_batch_is_padded_and_has_types_where_the_examples_do(tokenizer):
    pairs = (("a film", "made ."), ("a film made . thoughtfully",))
    batch = MaskingCollator(tokenizer)([dict(tokenizer(*texts)) for texts in pairs])
    assert set(batch) == {"input_ids", "attention_mask", "token_type_ids", "labels"}
    assert batch["attention_mask"].tolist() == [[1] * 7 + [0] * 2, [1] * 9]
    assert batch["token_type_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert batch["input_ids"][0, 7:].tolist() == [0, 0]
    assert (batch["labels"][batch["attention_mask"] == 0] == IGNORED).all()
    padded = dict(tokenizer("a film", padding="max_length", max_length=12))
    found = MaskingCollator(tokenizer)([padded])
    assert found["attention_mask"].tolist() == [padded["attention_mask"]]
    assert (found["labels"][0, sum(padded["attention_mask"]) :] == IGNORED).all()
    without = MaskingCollator(tokenizer)([{"input_ids": [2, 5, 3]}])
    assert set(without) == {"input_ids", "attention_mask", "labels"}


@pytest.mark.parametrize("strategy", ["token", "whole-word", "n-gram", "macbert", "span"])
def test_it_works_in_transformers_own_trainer(strategy, tokenizer, tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), num_attention_heads=2, **sizes))
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    found = tokenize(TEXTS * 4, tokenizer)
    rows = zip(found["input_ids"], found["words"], strict=True)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=8,
        remove_unused_columns=False,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        learning_rate=0.1,
    )
    similar = SimilarWords([[6], [10], [7, 8], [7, 9]], [[1], [0], [3], [2]])
    collator = MaskingCollator(
        tokenizer,
        MaskingConfig(strategy=strategy, rate=0.4),
        similar if strategy == "macbert" else None,
    )
    examples = [{"input_ids": ids, "words": words} for ids, words in rows]
    result = Trainer(model, arguments, data_collator=collator, train_dataset=examples).train()
    assert result.global_step == 2
    assert result.training_loss > 0
    assert not torch.equal(model.bert.embeddings.word_embeddings.weight, before)


def test_it_works_in_a_loader_with_workers(tokenizer, examples):
    collator = MaskingCollator(tokenizer, MaskingConfig(rate=0.4))
    torch.manual_seed(0)
    loader = DataLoader(examples * 4, batch_size=4, collate_fn=collator, num_workers=2)
    batches = [batch["labels"] for _ in range(2) for batch in loader]
    assert len(batches) == 8
    for epoch in (batches[:4], batches[4:]):
        assert not all(torch.equal(batch, epoch[0]) for batch in epoch)
    assert not all(torch.equal(*pair) for pair in zip(batches[:4], batches[4:], strict=True))


def test_a_checkpoints_own_tokenizer_will_do(encoder_folder):
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    batch = MaskingCollator(tokenizer, always(rate=0.5))(
        [{"input_ids": tokenizer("the film is great")["input_ids"]}]
    )
    assert (batch["input_ids"] == tokenizer.mask_token_id).sum() == 2  # "<mask>", not "[MASK]"
