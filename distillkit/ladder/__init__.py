"""`distillkit ladder`: an ablation study of a recipe's student, with several seeds."""

from distillkit.ladder.run import ladder

__all__ = ["ladder"]
