"""What a ladder trains: its ablation rows, their transfer sets, and the pace of each student."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from distillkit.data.tables import take_rows
from distillkit.measure.ablation import TITLES
from distillkit.recipe import AugmentConfig, LossConfig, MixConfig, Recipe, TrainingConfig
from distillkit.recipe.kinds import load_methods

_RULES: dict[str, dict[str, Any]] = {
    "no-mask": {"p_mask": 0.0},
    "no-pos": {"p_pos": 0.0},
    "no-ngram": {"p_ng": 0.0},
}


@dataclass(frozen=True)
class Lesson:
    """What a student of an ablation row learns from, and for how long."""

    ablation: str
    variant: str  # transfer set of its rows
    vocabulary: str  # transfer set of its words
    loss: LossConfig
    rows: int  # distinct rows to learn from
    epochs: int
    shown: int  # rows an epoch
    own_epochs: float  # of the recipe's own student
    steps: int = 0  # as many as that one takes, where rows have weights; 0: the epochs say it

    @property
    def gold(self) -> bool:
        """Whether it learns from gold labels, without a teacher."""
        return self.ablation == "gold"

    def training(self, recipe: Recipe) -> TrainingConfig:
        """Return how its student is trained: patience lasts as many steps as the recipe's."""
        own = recipe.training
        patience = math.ceil(own.patience * self.epochs / self.own_epochs)
        return replace(own.by_epochs(self.epochs), patience=patience, steps=self.steps)


def ablations_of(recipe: Recipe) -> list[str]:
    """List the ablation rows of a recipe's ladder, the simplest first."""
    variants = transfer_variants(recipe)
    known = {"majority", "tfidf", "frozen", "gold", "teacher", *variants}
    # A regression teacher's answer is its score, which `full` learns.
    if recipe.data.task != "regression":
        known.add("hard")
    if variants["full"].n_iter or variants["full"].swap:
        known.add("originals")
    others = [name for name in variants if name not in TITLES]  # of methods not distillkit's own
    order = [*TITLES]
    order[order.index("no-swap") : order.index("no-swap")] = others
    return [name for name in order if name in known]


def transfer_variants(recipe: Recipe) -> dict[str, AugmentConfig]:
    """Return how each transfer set of the ladder is made, by the ablation row named after it.

    `full` has no unlabelled text. Each rule, method of the mix and swapping of pairs is removed
    from it in turn, where something else is left. `in-domain` is the recipe's own.
    """
    full = _without_unlabelled(recipe.augment)
    variants = {"full": full}
    if full.n_iter:
        methods = [method for method, weight in asdict(full.mix).items() if weight]
        rules = [name for name, (rate,) in _RULES.items() if full.mix.rules and asdict(full)[rate]]
        if len(rules) > 1:
            variants |= {name: replace(full, **_RULES[name]) for name in rules}
        if len(methods) > 1:
            variants |= {
                f"no-{method}": replace(full, mix=replace(full.mix, **{method: 0.0}))
                for method in methods
            }
        if full.swap and recipe.data.columns.text_pair:
            variants["no-swap"] = replace(full, swap=False)
    if recipe.data.unlabelled:
        variants["in-domain"] = recipe.augment
    return variants


def _without_unlabelled(augment: AugmentConfig) -> AugmentConfig:
    weights, methods = asdict(augment.mix), load_methods().values()
    cut = [method.name for method in methods if method.origin == "unlabelled"]
    off = {name: 0.0 for name in cut if name in weights}
    if not any((weights | off).values()):  # the mix had only rows of unlabelled text
        return replace(augment, n_iter=0, mix=MixConfig(), vary_unlabelled=False)
    return replace(augment, mix=replace(augment.mix, **off), vary_unlabelled=False)


def pace(recipe: Recipe, recipe_rows: int, rows: int) -> tuple[int, int]:
    """Spread the steps of the recipe's own student over other rows.

    Args:
        recipe: Its epochs, and the most epochs (`evaluation.gold_epochs`) for fewer rows.
        recipe_rows: Of the recipe's own transfer set.
        rows: To learn from.

    Returns:
        Epochs, and rows shown in each. Fewer rows repeat within an epoch, more are sampled.
    """
    shown = recipe.training.rows_shown(recipe_rows)
    own = max(1, round(shown / recipe_rows))
    # One epoch more would leave some rows out.
    epochs = max(own, min(max(own, recipe.evaluation.gold_epochs), shown // rows))
    return epochs, round(shown / epochs)


def weighted_steps(recipe: Recipe, rows: int, drawn: float) -> int:
    """Return the optimizer steps of the recipe's own student, whose rows have sampling weights.

    Args:
        recipe: The student's training.
        rows: Of its transfer set.
        drawn: Of these in an epoch, by their weights.
    """
    training = recipe.training.for_rows(rows)
    batch = training.batch_size * training.accumulation_steps
    return training.steps or training.epochs * math.ceil(round(drawn) / batch)


def repeated(table: pa.Table, rows: int, seed: int) -> pa.Table:
    """Return so many rows of a table: all of it as often as it fits, and a sample for the rest."""
    rest = np.random.default_rng(seed).permutation(len(table))[: rows % len(table)]
    return pa.concat_tables([table] * (rows // len(table)) + [take_rows(table, np.sort(rest))])
