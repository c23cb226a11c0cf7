"""Which kind of student fits what was measured of the teacher."""

from distillkit.doctor.findings import Finding, percent
from distillkit.doctor.order import RUN, Movement
from distillkit.recipe.kinds import load_kinds

# Points of accuracy, 0 to 1, that word order may gain while a student without it is still the best
# buy: half a dev margin.
ORDER_GAIN = 0.02
# Answers changed by shuffling runs of words, as a share of those changed by shuffling words. At
# most this share means that only local order matters.
NEAR = 0.5


def advise(moved: dict[str, Movement], gap: float, *, pairs: bool, asked: str) -> Finding:
    """Choose the kind of student that loses least for its price.

    Args:
        moved: What `order.word_order` measured.
        gap: The teacher's accuracy less that of TF-IDF and logistic regression, -1 to 1.
        pairs: Whether the task is of pairs.
        asked: The kind that the recipe names.

    Returns:
        The kind, in `metrics`, with the reason. It is a rule of thumb: docs/doctor.md has what it
        was tried on.
    """
    lost = moved["plain"].accuracy - moved["shuffled"].accuracy
    # Both overstate what order gains: TF-IDF lacks the teacher's knowledge too, and the teacher
    # never saw shuffled text.
    gain = max(min(gap, lost), 0.0)
    need, why = _need(moved, gain, pairs)
    kind = next(
        name for name, of in load_kinds().items() if of.suits == need and of.fits(pairs=pairs)
    )
    measured = f"the teacher loses {100 * lost:.1f} points on shuffled words and is {100 * gap:.1f} above TF-IDF"
    beside = f"try {kind} beside the recipe's {asked}; distillkit list shows the students"
    return Finding(
        "student",
        "fine",
        f"{kind}: {why}; {measured}",
        "" if kind == asked else beside,
        {"kind": kind, "order_gain": gain, "lost_shuffled": lost, "gap": gap},
    )


def _need(moved: dict[str, Movement], gain: float, pairs: bool) -> tuple[str, str]:
    """Return what the student has to see of a text, as a kind's `suits` names it, and why."""
    if pairs:
        faster = "" if gain > ORDER_GAIN else "; word order gains little, so try decomposable, too"
        return "together", f"it reads the two texts together, at a BiLSTM's price{faster}"
    if gain <= ORDER_GAIN:
        return "no order", f"word order gains at most {100 * gain:.1f} points"
    shuffled, runs = moved["shuffled"].flips, moved["runs"].flips
    reach = f"answers changed by shuffling words: {percent(shuffled)}, by shuffling runs of {RUN}: {percent(runs)}"
    if runs <= NEAR * shuffled:
        return (
            "near order",
            f"order gains up to {100 * gain:.1f} points, most of it near by; {reach}",
        )
    return "order", f"order gains up to {100 * gain:.1f} points, and not near by alone; {reach}"
