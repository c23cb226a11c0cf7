"""Checks of the text against both vocabularies: script, unknown tokens, subwords, truncation."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from distillkit.data.batches import encode
from distillkit.data.words import is_unsegmented, split_characters, split_words
from distillkit.doctor.findings import SEVERITIES, Finding, Severity, finding, graded, percent
from distillkit.pipeline.student_choice import NEW_WORDS

_UNTRUNCATED = 1 << 20
# The share of the teacher's tokens that are its unknown token, and subwords a word (a character in
# unsegmented scripts).
UNKNOWN, MANY_UNKNOWN = 0.01, 0.05
SUBWORDS, MANY_SUBWORDS = 1.8, 2.6
# Below this share of its letters a teacher's vocabulary hardly knows a script. In a vocabulary of a
# hundred languages a script may have 1 %.
SCRIPT = 0.002
# SST-2 students with 4.7 % of dev's tokens out of vocabulary agreed with their teacher on 90.8 % of
# the rows; with subwords for them on 92.1 %.
OUT_OF_VOCABULARY, MANY_OUT_OF_VOCABULARY = NEW_WORDS, 0.3
TRUNCATED = 0.05


def check_teacher_tokenizer(tokenizer: Any, texts: Sequence[str], model: str) -> Finding:
    """Check that a teacher can read the data: script, unknown tokens, subwords a word.

    Args:
        tokenizer: The teacher's.
        texts: A sample of the data.
        model: Named in the findings.
    """
    split, unit = (
        (split_characters, "character") if is_unsegmented(texts) else (split_words, "word")
    )
    rows = tokenizer(list(texts), add_special_tokens=False, truncation=False).input_ids
    ids = [token for row in rows for token in row]
    unknown = ids.count(_unknown(tokenizer)) / max(len(ids), 1)
    subwords = len(ids) / max(sum(len(split(text)) for text in texts), 1)
    script, share = next(iter(_scripts(texts).items()), ("", 0.0))
    known = _scripts(_written(tokenizer)).get(script, 0.0)
    grades: list[Severity] = [
        graded(unknown, UNKNOWN, MANY_UNKNOWN),
        graded(subwords, SUBWORDS, MANY_SUBWORDS),
        "warning" if script and known < SCRIPT else "fine",
    ]
    return finding(
        "teacher-language",
        min(grades, key=SEVERITIES.index),
        f"{percent(share)} of the data's letters are {script.title() or 'of no script'}, {percent(known)} of {model}'s vocabulary is; "
        f"{percent(unknown)} of its tokens are unknown to it, {subwords:.2f} subwords a {unit}",
        "choose a teacher that was pre-trained on this language (distillkit list) and, for cased text, of this case",
        {
            "script": script,
            "script_share": share,
            "vocabulary_share": known,
            "unknown_share": unknown,
            "subwords_a_unit": subwords,
            "unit": unit,
        },
    )


def _unknown(tokenizer: Any) -> int:
    """Return the id of a tokenizer's unknown token, or one that no token has."""
    return -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id


def check_truncation(
    who: str, tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_tokens: int
) -> Finding:
    """Check how many rows a model sees only the beginning of.

    Args:
        who: `teacher` or `student`.
        tokenizer: Its tokenizer.
        texts: N texts.
        pairs: N second texts, or None.
        max_tokens: Where its input is truncated.
    """
    lengths = encode(tokenizer, texts, pairs, _UNTRUNCATED).lengths.numpy()
    rows = float((lengths > max_tokens).mean())
    lost = float(np.maximum(lengths - max_tokens, 0).sum() / max(lengths.sum(), 1))
    enough = int(np.quantile(lengths, 0.99))
    return finding(
        f"truncation-{who}",
        graded(rows, TRUNCATED),
        f"{percent(rows)} of the rows are longer than the {who}'s {max_tokens} tokens, which loses {percent(lost)} of the text; "
        f"99 % of the rows have at most {enough}",
        f"raise {who}.max_tokens to {enough}, if the model takes as many",
        {
            "rows_share": rows,
            "text_share": lost,
            "max_tokens": max_tokens,
            "tokens_99_percent": enough,
        },
    )


def check_student_vocabulary(tokenizer: Any, dev: Sequence[str]) -> Finding:
    """Check how much of dev the student's own vocabulary knows.

    Args:
        tokenizer: Built from training and unlabelled text as the recipe says.
        dev: Dev texts, of pairs both sides.
    """
    rows = [row for row in tokenizer(list(dev), truncation=False).input_ids if row]
    unknown = [row.count(_unknown(tokenizer)) for row in rows]
    share = sum(unknown) / max(sum(map(len, rows)), 1)
    touched = sum(n > 0 for n in unknown) / max(len(rows), 1)
    return finding(
        "student-vocabulary",
        graded(share, OUT_OF_VOCABULARY, MANY_OUT_OF_VOCABULARY),
        f"{percent(share)} of dev's tokens, in {percent(touched)} of its texts, are out of the student's vocabulary of {len(tokenizer):,}",
        "choose student.vocabulary.unit teacher or hashed, which know every word; or subwords and teacher_words beside its own; or give --data.unlabelled",
        {"unknown_share": share, "texts_share": touched, "vocabulary": len(tokenizer)},
    )


def _scripts(texts: Sequence[str]) -> dict[str, float]:
    """Return each script's share of the letters, the commonest first.

    A script is the first word of its letters' Unicode names.
    """
    counts: Counter[str] = Counter()
    for character, n in Counter(unicodedata.normalize("NFKC", "".join(texts))).items():
        if character.isalpha():
            counts[unicodedata.name(character, "unnamed").split()[0]] += n
    total = max(sum(counts.values()), 1)
    return {script: n / total for script, n in counts.most_common()}


def _written(tokenizer: Any) -> list[str]:
    """Return a vocabulary's entries as text; byte-level entries become characters."""
    return [
        tokenizer.convert_tokens_to_string([token])
        for token in tokenizer.get_vocab()
        if token not in tokenizer.all_special_tokens
    ]
