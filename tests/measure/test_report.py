import numpy as np
import pytest

from distillkit.measure.metrics import (
    classification_metrics,
    multi_label_metrics,
    regression_metrics,
)
from distillkit.measure.report import comparison_table, metrics_table, table


def cells(markdown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]


def scores(accuracy):
    return {"accuracy": accuracy, "macro_f1": accuracy / 2, "agreement": 1 - accuracy / 4}


def result(*splits, models=("majority", "tfidf", "student_gold", "student", "teacher")):
    found = {
        name: {split: scores(0.5 + i / 100) for split in splits} for i, name in enumerate(models)
    }
    found["student"] |= {
        "parameters": {"total": 1_234_567, "without_embeddings": 963_002},
        "megabytes": 4.94,
    }
    return {"models": found}


def assert_aligned(markdown):
    lines = markdown.splitlines()
    bars = [[i for i, character in enumerate(line) if character == "|"] for line in lines]
    assert len({len(line) for line in lines}) == 1
    assert all(places == bars[0] for places in bars)
    assert set(lines[1]) <= set("|-:")


def test_a_table_is_aligned_markdown_with_numbers_to_the_right():
    assert table([["model", "n"], ["a", "1,000"], ["long name", "7"]]).splitlines() == [
        "| model     |     n |",
        "|-----------|------:|",
        "| a         | 1,000 |",
        "| long name |     7 |",
    ]


@pytest.mark.parametrize("splits", [("dev",), ("dev", "test")])
def test_the_comparison_has_a_row_a_model_from_majority_to_teacher(splits):
    markdown = comparison_table(result(*splits), {"student": 1.234, "teacher": 20.0})
    assert_aligned(markdown)
    head, _, *rows = cells(markdown)
    assert [row[0] for row in rows] == [
        "majority class",
        "TF-IDF + logistic regression",
        "student on gold labels",
        "student, distilled",
        "teacher",
    ]
    assert head[1 : 1 + 2 * len(splits)] == [
        f"{s} {m}" for s in splits for m in ("accuracy", "macro-F1")
    ]
    student = dict(zip(head, rows[3], strict=True))
    assert student[f"{splits[-1]} accuracy"] == "53.0"
    assert student[f"{splits[-1]} macro-F1"] == "26.5"
    assert (student["parameters"], student["without embeddings"]) == ("1,234,567", "963,002")
    assert (student["MB"], student["ms a sentence"]) == ("4.9", "1.23")
    assert rows[4][-1] == "20.00"
    assert rows[0][-4:] == [""] * 4


def test_a_model_that_was_left_out_has_no_row():
    markdown = comparison_table(result("dev", models=("majority", "student", "teacher")), {})
    assert_aligned(markdown)
    assert [row[0] for row in cells(markdown)[2:]] == [
        "majority class",
        "student, distilled",
        "teacher",
    ]


def test_the_metrics_of_one_model_are_figures_classes_and_confusion():
    report = classification_metrics(np.eye(2)[[0, 1, 1]], np.array([0, 1, 0]), ["bad", "very good"])
    figures, classes, confusion = metrics_table(report).split("\n\n")
    assert figures.startswith("3 rows  accuracy 0.6667  macro_f1 0.6667")
    assert_aligned(classes)
    assert_aligned(confusion)
    assert cells(classes)[2] == ["bad", "1.000", "0.500", "0.667", "2"]
    assert cells(classes)[3] == ["very good", "0.500", "1.000", "0.667", "1"]
    assert cells(confusion)[0] == ["gold \\ found", "bad", "very good"]
    assert cells(confusion)[2:] == [["bad", "1", "1"], ["very good", "0", "1"]]


def test_several_labels_have_no_confusion_and_scores_no_classes():
    several = multi_label_metrics(
        np.array([[1.0, -1], [1, 1]]), np.array([[1.0, 0], [0, 1]]), ["a", "b"]
    )
    figures, classes = metrics_table(several).split("\n\n")
    assert figures.startswith(
        "2 rows  micro_f1 0.8000  macro_f1 0.8333  exact_match 0.5000  calibration_error "
    )
    assert cells(classes)[2] == ["a", "0.500", "1.000", "0.667", "1"]
    scores = metrics_table(
        regression_metrics(np.array([[1.0], [3]]), np.array([1.0, 2]), np.array([[0.0], [1]]))
    )
    assert (
        scores
        == "2 rows  pearson 1.0000  spearman 1.0000  mse 0.5000  mae 0.5000  agreement 1.0000"
    )


def test_the_comparison_has_the_scores_of_its_task():
    models = {
        name: {"dev": {"pearson": 0.5, "spearman": 0.25, "agreement": 0.75, "mse": 1.0}}
        for name in ("majority", "tfidf", "teacher")
    }
    head, _, *rows = cells(comparison_table({"models": models}, {}))
    assert head[:4] == ["model", "dev Pearson", "dev Spearman", "agreement"]
    assert [row[0] for row in rows] == ["mean score", "TF-IDF + ridge regression", "teacher"]
    assert rows[0][1:4] == ["50.0", "25.0", "75.0"]
