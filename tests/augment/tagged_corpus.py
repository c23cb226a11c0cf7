"""Texts as tests of augmentation methods read them: tagged, numbered, in one block."""

from distillkit.augment.corpus import Lexicon, tagged_batch
from distillkit.augment.taggers import load_tagger


def batch_of(texts, tag=None):
    """Tagged texts: one tag for all words, or each word's by a function."""
    if tag is None:
        return tagged_batch(texts, load_tagger("none")(texts))
    return tagged_batch(texts, [[(word, tag(word)) for word in text.split()] for text in texts])


def corpus(texts, tag=None):
    """The lexicon of some texts, and their block."""
    batch = batch_of(texts, tag)
    lexicon = Lexicon.build([batch], "[MASK]")
    return lexicon, lexicon.block(batch)


def is_digit(word):
    """Two tags, to be told apart."""
    return "digit" if word.isdigit() else "letter"
