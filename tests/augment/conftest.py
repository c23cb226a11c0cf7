"""What several tests of augmentation use: a tagger that counts its calls, a tiny GPT-2."""

import importlib
import sys

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from distillkit.augment import taggers

COUNTING = """
calls = []
def tag(texts):
    calls.append(list(texts))
    return [[(word, {tag}) for word in text.split()] for text in texts]
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """Write a module `counting_tagger` as a new program finds it; return the list of its calls."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(tag="'X'"):
        (tmp_path / "counting_tagger.py").write_text(COUNTING.format(tag=tag))
        sys.modules.pop("counting_tagger", None)
        importlib.invalidate_caches()
        taggers._loaded.cache_clear()
        return importlib.import_module("counting_tagger").calls

    yield write
    sys.modules.pop("counting_tagger", None)
    taggers._loaded.cache_clear()


@pytest.fixture(scope="session")
def gpt_folder(train_table, tmp_path_factory):
    """A random GPT-2 of width 16, its tokenizer one token a word, most of them not the task's."""
    words = dict.fromkeys(" ".join(train_table["text"].to_pylist()).split())
    other = [f"other{i}" for i in range(60)]
    vocabulary = {word: i for i, word in enumerate(["<|end|>", "<unk>", "\t", *words, *other])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split("\t", "isolated")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|end|>", eos_token="<|end|>", unk_token="<unk>"
    )
    expected = [vocabulary[word] for word in ("the", "film", "\t", "is")]
    assert tokenizer("the film\tis").input_ids == expected
    folder = tmp_path_factory.mktemp("gpt")
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    config = GPT2Config(vocab_size=len(vocabulary), bos_token_id=0, eos_token_id=0, **size)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
