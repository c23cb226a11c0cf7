"""What `distillkit tune` searches: the hyperparameters that a student has, and their ranges."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from distillkit.errors import InputError, say_renamed
from distillkit.recipe import Recipe

# By hyperparameter; the sampling weight of an origin or rule is `sampling_weights.<name>`.
Parameters = Mapping[str, float]

RATE = "sampling_weights."
_FACTOR = 4.0  # without a range, the recipe's learning rate is divided and multiplied by this
# Names of version 0.1, which its studies hold.
_RENAMED = {
    "knobs": "hyperparameters",
    "width": "embedding_dimension",
    "origins": "sampling_weights",
}
_AT_LEAST = {"learning_rate": 0, "sampling_weights": 0, "vocabulary_size": 3}


@dataclass(frozen=True)
class SearchConfig:
    """What is searched, and between which ends, LOW HIGH, both included."""

    hyperparameters: tuple[str, ...] = ()
    """Which of the following to search, by name; none: all that the student has. The others stay as
    in the recipe."""
    hidden_size: tuple[int, int] = (50, 300)
    """student.hidden_size, of kinds that have one (of a fresh transformer multiples of 64)."""
    layers: tuple[int, int] = (1, 2)
    """student.layers, of kinds that can have several."""
    embedding_dimension: tuple[int, int] = (50, 300)
    """student.embeddings.dimension, unless the vectors are a file's; with an encoder's vectors at
    most its hidden size."""
    vocabulary_size: tuple[int, int] = (2000, 30000)
    """student.vocabulary.size, unless the vocabulary is the teacher's; at most the transfer set's
    own words."""
    learning_rate: tuple[float, float] = (0.0, 0.0)
    """training.learning_rate; 0 0: a quarter of the recipe's to four times that."""
    sampling_weights: tuple[float, float] = (0.0, 2.0)
    """training.sampling_weights of each origin and rule of the transfer set, against 1 for an
    original; all are then scaled so that an epoch stays as long as it is."""

    def with_new_names(self) -> "SearchConfig":
        """Return the same search without old names in `hyperparameters`."""
        for name in self.hyperparameters:
            if name in _RENAMED:
                say_renamed("search.hyperparameters", name, _RENAMED[name])
        return replace(self, hyperparameters=tuple(map(new_name, self.hyperparameters)))

    def as_before(self) -> dict[str, Any]:
        """Return the settings by their names of version 0.1, which the keys of trials hold."""
        old = {new: name for name, new in _RENAMED.items()}
        named = {old.get(name, name): ends for name, ends in asdict(self).items()}
        return named | {"knobs": [old.get(name, name) for name in self.hyperparameters]}


@dataclass(frozen=True)
class Hyperparameter:
    """The range of one setting.

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
        on_step = not self.whole or (value - self.low) % self.step == 0
        return self.low <= value <= self.high and on_step


@dataclass(frozen=True)
class Bounds:
    """What data and teacher allow of any range.

    Attributes:
        states: Hidden size of the encoder that gives the word vectors.
        teacher_layers: Layers of the teacher.
        words: Entries of the vocabulary of the recipe's own student.
        rates: Origins and rules of the transfer set whose sampling weights may be searched.
    """

    states: int
    teacher_layers: int
    words: int
    rates: tuple[str, ...]


def new_name(name: str) -> str:
    """Return today's name of a setting or parameter that version 0.1 may have written."""
    head, dot, rest = name.partition(".")
    return _RENAMED.get(head, head) + dot + rest


def hyperparameters_of(recipe: Recipe) -> list[str]:
    """List the hyperparameters that a recipe's student has."""
    student, settings = recipe.student, recipe.student.of_kind.settings
    cut = not student.reads_words and student.hidden_size == 0  # cut from the teacher
    has = {
        "hidden_size": "hidden_size" in settings and not cut,
        "layers": "layers" in settings,
        "embedding_dimension": student.reads_words and not student.embeddings.file,
        "vocabulary_size": student.reads_words and student.vocabulary.unit != "teacher",
        "learning_rate": True,
        "sampling_weights": True,
    }
    return [name for name, there in has.items() if there]


def check_search(recipe: Recipe, search: SearchConfig) -> None:
    """Refuse empty ranges, and hyperparameters that the recipe's student does not have.

    Raises:
        InputError: There is one.
    """
    ranges = {name: ends for name, ends in asdict(search).items() if name != "hyperparameters"}
    known = hyperparameters_of(recipe)
    for name in search.hyperparameters:
        if name not in known:
            kind = recipe.student.kind
            why = f"means nothing to this {kind}" if name in ranges else "is no hyperparameter"
            raise InputError(
                f"search.hyperparameters has {name}, which {why}: expected some of {', '.join(known)}"
            )
    for name, (low, high) in ranges.items():
        least = _AT_LEAST.get(name, 1)
        if not least <= low <= high < float("inf"):
            raise InputError(
                f"search.{name} is {low} {high}: expected LOW HIGH, LOW {least} or more, HIGH no less"
            )
    if search.learning_rate[1] and not search.learning_rate[0]:
        raise InputError(
            f"search.learning_rate is {_shown(search.learning_rate)}: expected LOW above 0, for it is searched by factors; or 0 0"
        )


def space_of(
    recipe: Recipe, search: SearchConfig, bounds: Bounds
) -> tuple[dict[str, Hyperparameter], list[str]]:
    """Return what is searched.

    Args:
        recipe: The student's kind, and what is not searched.
        search: Which hyperparameters, in which ranges.
        bounds: What is possible.

    Returns:
        The space by name, and a line for each hyperparameter with fewer than two possible values,
            which is skipped.

    Raises:
        InputError: A hyperparameter asked for by name has fewer than two possible values, or none
            is left to search.
    """
    space, why = {}, []
    asked = search.hyperparameters
    for name in hyperparameters_of(recipe):
        if asked and name not in asked:
            continue
        for full_name, found in _ranges(name, recipe, search, bounds).items():
            if found.low < found.high:
                space[full_name] = found
                continue
            left = (
                f"{found.low:g} alone"
                if found.low == found.high
                else f"nothing, for {_limit(name, recipe, bounds)}"
            )
            said = f"search.{name} is {_shown(getattr(search, name))}, which leaves {left}"
            if name in asked:
                raise InputError(
                    f"{said}: give another range, or leave it out of search.hyperparameters"
                )
            why.append(f"{said}; the recipe's stays")
    if not space:
        raise InputError("search: no hyperparameter has more than one value: widen a range")
    return space, why


def _ranges(
    name: str, recipe: Recipe, search: SearchConfig, bounds: Bounds
) -> dict[str, Hyperparameter]:
    """Return the range of a hyperparameter; of sampling weights one for each origin and rule."""
    low, high = getattr(search, name)
    if name == "sampling_weights":
        return {f"{RATE}{rate}": Hyperparameter(low, high) for rate in bounds.rates}
    return {name: _range(name, low, high, recipe, search, bounds)}


def _range(
    name: str, low: float, high: float, recipe: Recipe, search: SearchConfig, bounds: Bounds
) -> Hyperparameter:
    student, own = recipe.student, recipe.training.learning_rate
    if name == "learning_rate":
        ends = (low, high) if high else (own / _FACTOR, own * _FACTOR)
        return Hyperparameter(*ends, log=True)
    if name == "hidden_size" and (step := student.of_kind.hidden_step) > 1:
        return Hyperparameter(-(-low // step) * step, high // step * step, True, step=step)
    if name == "layers":
        most = high if student.reads_words else min(high, bounds.teacher_layers)
        return Hyperparameter(low, most, True)
    if name == "vocabulary_size":
        return _sizes(recipe, search, bounds)
    if name == "embedding_dimension" and student.embeddings.source != "random":
        # PCA has at most as many components as the smallest vocabulary has words, without its three
        # special tokens.
        searched = "vocabulary_size" in (search.hyperparameters or hyperparameters_of(recipe))
        words = min(bounds.words, _sizes(recipe, search, bounds).low) if searched else bounds.words
        high = min(high, bounds.states, int(words) - 3)
    return Hyperparameter(low, high, True, log=True)


def _sizes(recipe: Recipe, search: SearchConfig, bounds: Bounds) -> Hyperparameter:
    vocabulary, (low, high) = recipe.student.vocabulary, search.vocabulary_size
    # More entries than there are words change nothing. Hashed n-grams fill any table.
    if vocabulary.unit != "hashed" and bounds.words < vocabulary.size:
        high = min(high, bounds.words)
    # At least half of the entries are words.
    return Hyperparameter(max(low, 2 * vocabulary.subwords), high, True, log=True)


def _limit(name: str, recipe: Recipe, bounds: Bounds) -> str:
    kind = recipe.student.of_kind
    return {
        "hidden_size": f"a {kind.name}'s is a multiple of {kind.hidden_step}",
        "layers": f"the teacher has {bounds.teacher_layers}",
        "embedding_dimension": f"the encoder's states have {bounds.states} numbers, and no vocabulary may have fewer words",
        "vocabulary_size": f"the transfer set has {bounds.words} words, and subwords take at most half of a vocabulary",
    }[name]


def own_parameters(
    recipe: Recipe, space: Mapping[str, Hyperparameter], words: int
) -> dict[str, float]:
    """Return the parameters of a recipe's own student, which may lie outside of the space.

    Args:
        recipe: Of that student.
        space: What is searched.
        words: As in `Bounds`.
    """
    student, weights = recipe.student, recipe.training.weight_of()
    size = student.vocabulary.size
    own: dict[str, float] = {
        "hidden_size": student.hidden_size,
        "layers": student.layers,
        "embedding_dimension": student.embeddings.dimension,
        "vocabulary_size": size if student.vocabulary.unit == "hashed" else min(size, words),
        "learning_rate": recipe.training.learning_rate,
    }
    return {
        name: weights.get(name.removeprefix(RATE), 1.0) if name.startswith(RATE) else own[name]
        for name in space
    }


def with_parameters(recipe: Recipe, parameters: Parameters, weights: tuple[str, ...]) -> Recipe:
    """Return a recipe with a trial's settings.

    Args:
        recipe: What stays.
        parameters: By hyperparameter.
        weights: For `training.sampling_weights`.
    """
    student = recipe.student
    changes: dict[str, Any] = {}
    training = replace(recipe.training, sampling_weights=weights)
    for name, value in parameters.items():
        if name == "embedding_dimension":
            changes["embeddings"] = replace(student.embeddings, dimension=int(value))
        elif name == "vocabulary_size":
            changes["vocabulary"] = replace(student.vocabulary, size=int(value))
        elif name == "learning_rate":
            training = replace(training, learning_rate=value)
        elif not name.startswith(RATE):
            changes[name] = value
    return replace(recipe, student=replace(student, **changes), training=training)


def _shown(ends: tuple[float, float]) -> str:
    return f"{ends[0]} {ends[1]}"
