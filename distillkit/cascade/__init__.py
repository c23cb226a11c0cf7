"""A cascade: the student answers where it is confident, its teacher answers the rest."""

from distillkit.cascade.run import cascade

__all__ = ["cascade"]
