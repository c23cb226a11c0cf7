"""The story, one function a stage, each of the same name as its command.

    text -> adapt_teacher
    labelled text -> train_teacher -> augment -> label -> train_student -> evaluate / predict

`distillkit.runs.run` chains them. Every function takes sources (files, `embedded:` or `datasets:`
names) and folders, and answers with a summary that can be printed as JSON.
"""

from distillkit.pipeline.answers import Classifier, classify, evaluate, predict
from distillkit.pipeline.export import export
from distillkit.pipeline.student import train_student
from distillkit.pipeline.task import read_data
from distillkit.pipeline.teacher import adapt_teacher, label, train_teacher
from distillkit.pipeline.transfer_set import augment, models_of
from distillkit.recipe import StudentJob

__all__ = [
    "Classifier",
    "StudentJob",
    "adapt_teacher",
    "augment",
    "classify",
    "evaluate",
    "export",
    "label",
    "models_of",
    "predict",
    "read_data",
    "train_student",
    "train_teacher",
]
