"""Augmentation methods by name: one file each, and nothing else knows their names.

Their modules load neither torch nor a model before a method is used.
"""

from dataclasses import asdict

from distillkit.augment.method import Method
from distillkit.augment.methods.generated import GENERATED
from distillkit.augment.methods.markov import MARKOV
from distillkit.augment.methods.neighbours import NEIGHBOURS
from distillkit.augment.methods.pairs import PAIRS
from distillkit.augment.methods.rules import RULES
from distillkit.augment.methods.self_pairs import SELF_PAIRS
from distillkit.augment.methods.sentences import SENTENCES
from distillkit.errors import InputError
from distillkit.recipe import AugmentConfig

# Their order is part of the bytes of a transfer set: add new ones at the end.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (RULES, NEIGHBOURS, SENTENCES, GENERATED, MARKOV, PAIRS, SELF_PAIRS)
}


def methods_of(config: AugmentConfig) -> list[Method]:
    """Return the methods with a sampling weight above 0.

    Raises:
        InputError: A weight names no method.
    """
    weights = asdict(config.mix)
    unknown = next((name for name in weights if name not in METHODS), None)
    if unknown is not None:
        raise InputError(
            f"augment.mix.{unknown}: no such augmentation method; there is {', '.join(METHODS)}"
        )
    return [method for name, method in METHODS.items() if weights.get(name)]
