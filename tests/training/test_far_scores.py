"""Scores far from 0."""

import numpy as np
import torch

from distillkit import pipeline
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    LossConfig,
    StudentConfig,
    StudentJob,
    TrainingConfig,
)
from distillkit.training.scores import rescale, scale_of


def test_only_scores_beyond_reach_are_standardised():
    assert scale_of(torch.tensor([[-8.0], [3.0], [float("nan")]])) == (0.0, 1.0)
    assert scale_of(torch.tensor([1990.0, 2010.0, float("nan")])) == (2000.0, 10.0)
    assert scale_of(torch.tensor([[9.0], [9.0]])) == (9.0, 1.0)
    assert scale_of(torch.tensor([float("nan")])) == (0.0, 1.0)


def test_a_rescaled_model_answers_with_the_scores():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    x = torch.randn(5, 3)
    standardised = model(x)
    rescale(model, 2000.0, 10.0)
    torch.testing.assert_close(model(x), 2000 + 10 * standardised)


def test_a_student_learns_years(tmp_path):
    words, rng = ["late", "early", "old", "new", "plain"], np.random.default_rng(1)
    texts = [" ".join(rng.choice(words, 5)) for _ in range(300)]
    years = [2000 + 5.0 * (t.split().count("late") - t.split().count("early")) for t in texts]
    rows = "".join(f"{text}\t{year}\n" for text, year in zip(texts, years, strict=True))
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + rows)
    source, columns = str(tmp_path / "train.tsv"), ColumnsConfig()
    pipeline.train_student(
        StudentJob(
            source,
            source,
            tmp_path / "student",
            StudentConfig("static", head_size=8, embeddings=EmbeddingConfig("random", 8)),
            loss=LossConfig(alpha=1.0),
            training=TrainingConfig(epochs=60, batch_size=32, learning_rate=1e-2, precision="fp32"),
            columns=columns,
            task="regression",
        )
    )
    found = pipeline.evaluate(tmp_path / "student", source, columns)
    assert found.mae < 1.5  # of raw scores it would miss hundreds of years after as many steps
