"""LAMB: the optimizer, and a module for each way to compute its step."""

from distillkit.training.lamb.optimizer import Lamb, Path

__all__ = ["Lamb", "Path"]
