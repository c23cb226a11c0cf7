"""What `distillkit tune` searches: the settings that mean something to a student, and between which ends."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from distillkit.errors import InputError
from distillkit.recipe import Recipe

# by knob; how often rows of an origin or rule are seen is `origins.<name>`
Parameters = Mapping[str, float]

RATE = "origins."
_FACTOR = 4.0  # the recipe's learning rate, divided and multiplied by this, where no range is given


@dataclass(frozen=True)
class SearchConfig:
    """What is searched, and between which ends, LOW HIGH, both included."""

    knobs: tuple[str, ...] = ()
    """Which of the following to search, by name; none: all that mean something to the student. What
    is left out stays as the recipe has it."""
    hidden_size: tuple[int, int] = (50, 300)
    """student.hidden_size, of kinds that have one (of a fresh transformer multiples of 64)."""
    layers: tuple[int, int] = (1, 2)
    """student.layers, of kinds that can have several."""
    width: tuple[int, int] = (50, 300)
    """student.embeddings.dimension, unless the vectors are a file's; a teacher's are no wider than its
    states."""
    vocabulary_size: tuple[int, int] = (2000, 30000)
    """student.vocabulary.size, unless the vocabulary is the teacher's; no more than the transfer
    set's own words."""
    word_dropout: tuple[float, float] = (0.0, 0.3)
    """student.word_dropout; of students with word vectors of their own."""
    learning_rate: tuple[float, float] = (0.0, 0.0)
    """training.learning_rate; 0 0: a quarter of the recipe's to four times that."""
    origins: tuple[float, float] = (0.0, 2.0)
    """How often an epoch has rows of each origin and rule of the transfer set (training.sampling_weights),
    for once a row as it was given; then all alike are scaled so that an epoch stays as long as it
    is."""


@dataclass(frozen=True)
class Knob:
    """One setting's range.

    Attributes:
        low, high: Both included.
        whole: Whole numbers alone.
        log: Searched by factors rather than by differences.
        step: Between two whole numbers.
    """

    low: float
    high: float
    whole: bool = False
    log: bool = False
    step: int = 1

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and (
            not self.whole or (value - self.low) % self.step == 0
        )


@dataclass(frozen=True)
class Bounds:
    """What data and teacher leave of any range.

    Attributes:
        states: Numbers in a state of the teacher's.
        teacher_layers: Layers of the teacher.
        words: Entries that the vocabulary of the recipe's own student has.
        rates: Origins and rules of the transfer set whose rows may be seen more or less often.
    """

    states: int
    teacher_layers: int
    words: int
    rates: tuple[str, ...]


def knobs_of(recipe: Recipe) -> list[str]:
    """List the knobs that mean something to a recipe's student."""
    student, settings = recipe.student, recipe.student.of_kind.settings
    cut = not student.reads_words and student.hidden_size == 0  # as wide as the teacher
    has = {
        "hidden_size": "hidden_size" in settings and not cut,
        "layers": "layers" in settings,
        "width": student.reads_words
        and (student.embeddings.asks_teacher or student.embeddings.source == "random"),
        "vocabulary_size": student.reads_words and student.vocabulary.unit != "teacher",
        "word_dropout": student.reads_words,
        "learning_rate": True,
        "origins": True,
    }
    return [name for name, means in has.items() if means]


def check_search(recipe: Recipe, search: SearchConfig) -> None:
    """Refuse ranges that are none, and knobs that mean nothing to the recipe's student.

    Raises:
        InputError: There is one.
    """
    ranges = {name: ends for name, ends in asdict(search).items() if name != "knobs"}
    known = knobs_of(recipe)
    for name in search.knobs:
        if name not in known:
            why = f"means nothing to this {recipe.student.kind}" if name in ranges else "is no knob"
            raise InputError(
                f"search.knobs has {name}, which {why}: expected some of {', '.join(known)}"
            )
    for name, (low, high) in ranges.items():
        least = {"word_dropout": 0, "learning_rate": 0, "origins": 0, "vocabulary_size": 3}.get(
            name, 1
        )
        if not least <= low <= high < float("inf"):
            raise InputError(
                f"search.{name} is {low} {high}: expected LOW HIGH, LOW {least} or more, HIGH no less"
            )
    if not search.word_dropout[1] < 1:
        raise InputError(
            f"search.word_dropout is {_shown(search.word_dropout)}: expected HIGH less than 1"
        )
    if search.learning_rate[1] and not search.learning_rate[0]:
        raise InputError(
            f"search.learning_rate is {_shown(search.learning_rate)}: expected LOW above 0, for it is searched by factors; or 0 0"
        )


def space_of(
    recipe: Recipe, search: SearchConfig, bounds: Bounds
) -> tuple[dict[str, Knob], list[str]]:
    """Return what is searched.

    Args:
        recipe: The student's kind, and what is not searched.
        search: Which knobs, in which ranges.
        bounds: What is possible.

    Returns:
        The space by knob; and why other knobs are not in it, a line each: nothing is left of their
        range, or one value.

    Raises:
        InputError: The same, of a knob that was asked for by name; or nothing is left to search.
    """
    space, why = {}, []
    for name in knobs_of(recipe):
        if search.knobs and name not in search.knobs:
            continue
        for knob_name, knob in _knobs(name, recipe, search, bounds).items():
            if knob.low < knob.high:
                space[knob_name] = knob
                continue
            left = (
                f"{knob.low:g} alone"
                if knob.low == knob.high
                else f"nothing, for {_limit(name, recipe, bounds)}"
            )
            said = f"search.{name} is {_shown(getattr(search, name))}, which leaves {left}"
            if name in search.knobs:
                raise InputError(f"{said}: give another range, or leave it out of search.knobs")
            why.append(f"{said}; the recipe's stays")
    if not space:
        raise InputError("search: no knob has more than one value: widen a range")
    return space, why


def _knobs(name: str, recipe: Recipe, search: SearchConfig, bounds: Bounds) -> dict[str, Knob]:
    student, (low, high) = recipe.student, getattr(search, name)
    if name == "origins":
        return {f"{RATE}{rate}": Knob(low, high) for rate in bounds.rates}
    if name == "learning_rate":
        own = recipe.training.learning_rate
        return {
            name: Knob(low, high, log=True)
            if high
            else Knob(own / _FACTOR, own * _FACTOR, log=True)
        }
    if name == "word_dropout":
        return {name: Knob(low, high)}
    if name == "hidden_size" and (step := student.of_kind.hidden_step) > 1:
        return {name: Knob(-(-low // step) * step, high // step * step, True, step=step)}
    if name == "layers":
        return {
            name: Knob(low, high if student.reads_words else min(high, bounds.teacher_layers), True)
        }
    if name == "vocabulary_size":
        return {name: _sizes(recipe, search, bounds)}
    if name == "width" and student.embeddings.asks_teacher:
        # PCA has no more components than the words of the smallest vocabulary, which its special
        # tokens are no part of.
        searched = "vocabulary_size" in (search.knobs or knobs_of(recipe))
        words = min(bounds.words, _sizes(recipe, search, bounds).low) if searched else bounds.words
        high = min(high, bounds.states, int(words) - 3)
    return {name: Knob(low, high, True, log=True)}


def _sizes(recipe: Recipe, search: SearchConfig, bounds: Bounds) -> Knob:
    vocabulary, (low, high) = recipe.student.vocabulary, search.vocabulary_size
    # With room for more entries than there are it is the same vocabulary; hashed n-grams fill any
    # table.
    if vocabulary.unit != "hashed" and bounds.words < vocabulary.size:
        high = min(high, bounds.words)
    return Knob(
        max(low, 2 * vocabulary.subwords), high, True, log=True
    )  # at least half of it words


def _limit(name: str, recipe: Recipe, bounds: Bounds) -> str:
    kind = recipe.student.of_kind
    return {
        "hidden_size": f"a {kind.name}'s is a multiple of {kind.hidden_step}",
        "layers": f"the teacher has {bounds.teacher_layers}",
        "width": f"the teacher's states have {bounds.states} numbers, and no vocabulary may have fewer words",
        "vocabulary_size": f"the transfer set has {bounds.words} words, and subwords take at most half of a vocabulary",
    }[name]


def own_parameters(recipe: Recipe, space: Mapping[str, Knob], words: int) -> dict[str, float]:
    """Return where a recipe's own student stands, which may be outside of the space; `words` is as in `Bounds`."""
    student, times = recipe.student, recipe.training.weight_of()
    size = student.vocabulary.size
    own: dict[str, float] = {
        "hidden_size": student.hidden_size,
        "layers": student.layers,
        "width": student.embeddings.dimension,
        "vocabulary_size": size if student.vocabulary.unit == "hashed" else min(size, words),
        "word_dropout": student.word_dropout,
        "learning_rate": recipe.training.learning_rate,
    }
    return {
        name: times.get(name.removeprefix(RATE), 1.0) if name.startswith(RATE) else own[name]
        for name in space
    }


def with_parameters(recipe: Recipe, parameters: Parameters, origins: tuple[str, ...]) -> Recipe:
    """Return a recipe with a trial's settings.

    Args:
        recipe: What stays.
        parameters: By knob.
        origins: For `training.sampling_weights`.
    """
    given = {
        name: parameters[name]
        for name in ("hidden_size", "layers", "word_dropout")
        if name in parameters
    }
    embeddings, vocabulary, training = (
        recipe.student.embeddings,
        recipe.student.vocabulary,
        recipe.training,
    )
    if "width" in parameters:
        embeddings = replace(embeddings, dimension=int(parameters["width"]))
    if "vocabulary_size" in parameters:
        vocabulary = replace(vocabulary, size=int(parameters["vocabulary_size"]))
    if "learning_rate" in parameters:
        training = replace(training, learning_rate=parameters["learning_rate"])
    student = replace(recipe.student, **given, embeddings=embeddings, vocabulary=vocabulary)  # type: ignore[arg-type]
    return replace(recipe, student=student, training=replace(training, sampling_weights=origins))


def _shown(ends: tuple[float, float]) -> str:
    return f"{ends[0]} {ends[1]}"
