"""Which student a teacher's own behaviour speaks for."""

from distillkit.doctor.findings import Finding, percent
from distillkit.doctor.order import RUN, Movement
from distillkit.recipe.kinds import load_kinds

# Points of accuracy, 0 to 1, that the order of words may be worth and a student without it still be
# the best buy: half a dev margin.
WORTH = 0.02
# Of the answers that shuffling changes, the share that shuffling runs of words may change: below
# it, order matters near by alone.
NEAR = 0.5
# Of pairs: where the teacher is so many points above TF-IDF, it sees by reading both texts together
# what two finished vectors do not say. Students of two texts read apart stay five points behind it
# on QQP (a gap of 9.6) and eleven on MRPC (10), and none on SICK (5.6).
TOGETHER = 0.08


def advise(moved: dict[str, Movement], gap: float, *, pairs: bool, asked: str) -> Finding:
    """Choose the kind of student that loses least for its price.

    Args:
        moved: What `order.word_order` measured.
        gap: The teacher's accuracy less that of TF-IDF and logistic regression, -1 to 1.
        pairs: Whether the task is of pairs.
        asked: The kind that the recipe names.

    Returns:
        The kind, in `figures`, with the reason. It is a rule of thumb: docs/doctor.md has what it
        was tried on.
    """
    plain, shuffled, runs = (moved[kind] for kind in ("plain", "shuffled", "runs"))
    lost = plain.accuracy - shuffled.accuracy
    # Either is more than order is worth: TF-IDF lacks the teacher's knowledge too, and a teacher is
    # lost in shuffled text that it never saw.
    worth = max(min(gap, lost), 0.0)
    measured = f"the teacher loses {100 * lost:.1f} points on shuffled words and is {100 * gap:.1f} above TF-IDF"
    reach = f"answers changed by shuffling words: {percent(shuffled.flips)}, by shuffling runs of {RUN}: {percent(runs.flips)}"
    if pairs and gap >= TOGETHER:
        need, why = (
            "together",
            f"what counts is how the two texts fit, and it alone reads both together: {measured}",
        )
    elif pairs and worth <= WORTH < gap:
        # One word often decides, and a mean of word vectors blurs it: on SICK that costs five
        # points which no order is worth.
        need, why = (
            "order",
            f"it keeps the single word that two texts differ in, which a mean of vectors does not: {measured}",
        )
    elif worth <= WORTH:
        need, why = (
            "no order",
            f"the order of words is worth at most {100 * worth:.1f} points: {measured}",
        )
    elif runs.flips <= NEAR * shuffled.flips:
        need, why = (
            "near order",
            f"order is worth up to {100 * worth:.1f} points, most of it near by: {measured}; {reach}",
        )
    else:
        need, why = (
            "order",
            f"order is worth up to {100 * worth:.1f} points, and not near by alone: {measured}; {reach}",
        )
    kind = next(
        name for name, of in load_kinds().items() if of.suits == need and of.fits(pairs=pairs)
    )
    do = (
        ""
        if kind == asked
        else f"try {kind} beside the recipe's {asked}; distillkit list shows the students"
    )
    return Finding(
        "student",
        "fine",
        f"{kind}: {why}",
        do,
        {"kind": kind, "order_worth": worth, "lost_shuffled": lost, "gap": gap},
    )
