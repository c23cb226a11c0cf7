"""Checks of the text against both vocabularies: script, unknown tokens, pieces a word, truncation."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from distillkit.data.batches import encode
from distillkit.data.words import is_unsegmented, split_characters, split_words
from distillkit.doctor.findings import Finding, Severity, graded, percent

_UNTRUNCATED = 1 << 20
# Shares of the teacher's tokens that are its unknown token, and pieces a word (or a character,
# where words are not set apart).
UNKNOWN, MANY_UNKNOWN = 0.01, 0.05
PIECES, MANY_PIECES = 1.8, 2.6
# The teacher's vocabulary hardly has letters of a script below this share; one of a hundred
# languages may well have no more than 1 %.
SCRIPT = 0.002
# SST-2 students that did not know 4.7 % of dev's tokens agreed with their teacher on 90.8 % of its
# rows; with pieces for them on 92.1 %.
STUDENT_UNKNOWN, STUDENT_MANY_UNKNOWN = 0.02, 0.3
TRUNCATED = 0.05


def check_teacher_tokenizer(tokenizer: Any, texts: Sequence[str], model: str) -> Finding:
    """Check that a teacher can read the data: script, unknown tokens, pieces a word.

    Args:
        tokenizer: The teacher's.
        texts: A sample of the data.
        model: Named in the findings.
    """
    unsegmented = is_unsegmented(texts)
    split, unit = (split_characters, "character") if unsegmented else (split_words, "word")
    ids = [
        token
        for row in tokenizer(list(texts), add_special_tokens=False, truncation=False).input_ids
        for token in row
    ]
    units = sum(len(split(text)) for text in texts)
    unknown = (
        ids.count(tokenizer.unk_token_id) / max(len(ids), 1)
        if tokenizer.unk_token_id is not None
        else 0.0
    )
    pieces = len(ids) / max(units, 1)
    own, theirs = _scripts(texts), _scripts(_written(tokenizer))
    script, share = next(iter(own.items()), ("", 0.0))
    known = theirs.get(script, 0.0)
    grades: list[Severity] = [
        graded(unknown, UNKNOWN, MANY_UNKNOWN),
        graded(pieces, PIECES, MANY_PIECES),
    ]
    if script and known < SCRIPT:
        grades.append("warning")
    worst: Severity = "error" if "error" in grades else "warning" if "warning" in grades else "fine"
    return Finding(
        "teacher-language",
        worst,
        f"{percent(share)} of the data's letters are {script.title() or 'of no script'}, {percent(known)} of {model}'s vocabulary is; "
        f"{percent(unknown)} of its tokens are unknown to it, {pieces:.2f} pieces a {unit}",
        ""
        if worst == "fine"
        else "choose a teacher that was pre-trained on this language (distillkit list) and, for cased text, of this case",
        {
            "script": script,
            "script_share": share,
            "vocabulary_share": known,
            "unknown_share": unknown,
            "pieces_a_unit": pieces,
            "unit": unit,
        },
    )


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
    return Finding(
        f"truncation-{who}",
        graded(rows, TRUNCATED),
        f"{percent(rows)} of the rows are longer than the {who}'s {max_tokens} tokens, which loses {percent(lost)} of the text; "
        f"99 % of the rows have at most {enough}",
        ""
        if rows < TRUNCATED
        else f"raise {who}.max_tokens to {enough}, where the model takes as many" + _sides(who),
        {
            "rows_share": rows,
            "text_share": lost,
            "max_tokens": max_tokens,
            "tokens_99_percent": enough,
        },
    )


def _sides(who: str) -> str:
    return (
        "; the teacher sees what the student does not, so that it cannot follow"
        if who == "student"
        else ""
    )


def check_student_vocabulary(tokenizer: Any, dev: Sequence[str]) -> Finding:
    """Check how much of dev the student's own vocabulary knows.

    Args:
        tokenizer: Built from training and unlabelled text as the recipe says.
        dev: Dev texts, of pairs both sides.
    """
    rows = [row for row in tokenizer(list(dev), truncation=False).input_ids if row]
    unknown = [sum(token == tokenizer.unk_token_id for token in row) for row in rows]
    share = sum(unknown) / max(sum(map(len, rows)), 1)
    touched = sum(n > 0 for n in unknown) / max(len(rows), 1)
    severity = graded(share, STUDENT_UNKNOWN, STUDENT_MANY_UNKNOWN)
    return Finding(
        "student-vocabulary",
        severity,
        f"{percent(share)} of dev's tokens, in {percent(touched)} of its texts, are unknown to the student's {len(tokenizer):,} entries",
        ""
        if severity == "fine"
        else "choose student.vocabulary.unit teacher or hashed, which know every word; or pieces and teacher_words beside its own; or give --data.unlabelled",
        {"unknown_share": share, "texts_share": touched, "vocabulary": len(tokenizer)},
    )


def _scripts(texts: Sequence[str]) -> dict[str, float]:
    """Return the share of each script among the letters, the commonest first; a script is the first word of its letters' Unicode names."""
    counts: Counter[str] = Counter()
    for character, n in Counter(unicodedata.normalize("NFKC", "".join(texts))).items():
        if character.isalpha():
            counts[unicodedata.name(character, "unnamed").split()[0]] += n
    total = max(sum(counts.values()), 1)
    return {script: n / total for script, n in counts.most_common()}


def _written(tokenizer: Any) -> list[str]:
    """Return the entries of a vocabulary as they are read: byte-level entries turned back into characters."""
    return [
        tokenizer.convert_tokens_to_string([token])
        for token in tokenizer.get_vocab()
        if token not in tokenizer.all_special_tokens
    ]
