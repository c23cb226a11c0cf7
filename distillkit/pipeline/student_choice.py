"""Which student a task gets where its recipe names none."""

from collections.abc import Sequence

from distillkit.data.content import texts_of
from distillkit.data.own_tables import raw_columns
from distillkit.data.tables import read_blocks
from distillkit.data.words import is_unsegmented, split_words
from distillkit.recipe import DataConfig, StudentConfig, load_config
from distillkit.recipe.student import AUTO_STUDENT

# A word vocabulary that lacks this share of dev's words costs accuracy: see `doctor.text`.
NEW_WORDS = 0.02
_SAMPLE = 20_000  # texts


def choose_student(texts: Sequence[str], *, pairs: bool) -> tuple[str, str]:
    """Choose a student of the shelf by the training texts; return its name and the reason.

    Args:
        texts: Training texts; of pairs both in one.
        pairs: Whether they are pairs.
    """
    if pairs:
        return (
            "interaction-bilstm",
            "the words of each text attend to those of the other; decomposable is faster, siamese-bilstm-subwords keeps a vector a text",
        )
    if is_unsegmented(texts):
        return "bilstm", "the paper's; its words are characters, and few of them are new"
    share = _new_words([split_words(text) for text in texts[:_SAMPLE]])
    found = f"{100 * share:.1f} % of the words in a held-out tenth of the rows occur nowhere else"
    if share > NEW_WORDS:
        return "bilstm-subwords", f"reads new words as parts: {found}"
    return "bilstm", f"the paper's: only {found}"


def settle_student(data: DataConfig, student: StudentConfig) -> tuple[StudentConfig, str]:
    """Say which student is trained where `student` is `auto`; return it and the reason in a line.

    Raises:
        InputError: The training data cannot be read.
    """
    source = data.train or (data.unlabelled[0] if data.labels else "")
    if student.kind != AUTO_STUDENT or not source:
        return student, ""
    columns = data.columns if data.train else raw_columns(source, data.columns)
    blocks = read_blocks(
        source,
        columns,
        task=data.task,
        labels="ignored",
        or_canonical=True,
        missing=data.missing,
        rows=_SAMPLE,
    )
    texts, seconds = texts_of(next(blocks))
    if seconds is not None:
        texts = [f"{first} {second}" for first, second in zip(texts, seconds, strict=True)]
    name, why = choose_student(texts, pairs=seconds is not None)
    return load_config("students", name, StudentConfig()), f"student: {name}, {why}"


def _new_words(rows: Sequence[Sequence[str]]) -> float:
    """Return the share of the words of every tenth row that stand in none of the other rows."""
    known = {word.lower() for i, row in enumerate(rows) if i % 10 for word in row}
    held_out = [word.lower() for row in rows[::10] for word in row]
    return sum(word not in known for word in held_out) / max(len(held_out), 1)
