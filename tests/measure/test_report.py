import numpy as np
import pytest

from distillkit.measure.metrics import (
    classification_metrics,
    multi_label_metrics,
    regression_metrics,
)
from distillkit.measure.report import comparison_table, metrics_table, narrow, table


def cells(markdown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]


def scores(accuracy):
    return {"accuracy": accuracy, "macro_f1": accuracy / 2, "agreement": 1 - accuracy / 4}


def result(*splits, models=("majority", "tfidf", "student_gold", "student", "teacher")):
    found = {name: dict.fromkeys(splits, scores(0.5 + i / 100)) for i, name in enumerate(models)}
    parameters = {"total": 1_234_567, "without_embeddings": 963_002}
    found["student"] |= {"parameters": parameters, "megabytes": 4.94}
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


def test_a_label_with_a_line_end_is_one_line_of_a_table():
    shown = table([["label", "rows"], ["very\ngood | bad", "7"]])
    assert shown.splitlines()[-1] == "| very good \\| bad |    7 |"
    assert narrow(shown, 12)


@pytest.mark.parametrize("splits", [("dev",), ("dev", "test")])
def test_the_comparison_has_a_row_a_model_from_majority_to_teacher(splits):
    markdown = comparison_table(result(*splits), {"student": 1.234, "teacher": 20.0})
    assert_aligned(markdown)
    head, _, *rows = cells(markdown)
    titles = ["majority class", "TF-IDF + logistic regression"]
    titles += ["student on gold labels", "student, distilled", "teacher"]
    assert [row[0] for row in rows] == titles
    names = [f"{s} {m}" for s in splits for m in ("accuracy", "macro-F1")]
    assert head[1 : 1 + 2 * len(splits)] == names
    student = dict(zip(head, rows[3], strict=True))
    assert student[f"{splits[-1]} accuracy"] == "53.0"
    assert student[f"{splits[-1]} macro-F1"] == "26.5"
    assert (student["parameters"], student["without embeddings"]) == ("1,234,567", "963,002")
    assert (student["MB"], student["ms a sentence"]) == ("4.9", "1.23")
    assert rows[4][-1] == "20.00"
    assert rows[0][-4:] == [""] * 4
    # A model that was left out has no row.
    markdown = comparison_table(result("dev", models=("majority", "student", "teacher")), {})
    assert_aligned(markdown)
    found = [row[0] for row in cells(markdown)[2:]]
    assert found == ["majority class", "student, distilled", "teacher"]


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
    logits, gold = np.array([[1.0, -1], [1, 1]]), np.array([[1.0, 0], [0, 1]])
    figures, classes = metrics_table(multi_label_metrics(logits, gold, ["a", "b"])).split("\n\n")
    wanted = "2 rows  micro_f1 0.8000  macro_f1 0.8333  exact_match 0.5000  calibration_error "
    assert figures.startswith(wanted)
    assert cells(classes)[2] == ["a", "0.500", "1.000", "0.667", "1"]
    columns = np.array([[1.0], [3]]), np.array([1.0, 2]), np.array([[0.0], [1]])
    wanted = "2 rows  pearson 1.0000  spearman 1.0000  mse 0.5000  mae 0.5000  agreement 1.0000"
    assert metrics_table(regression_metrics(*columns)) == wanted


def test_the_comparison_has_the_scores_of_its_task():
    models = {
        name: {"dev": {"pearson": 0.5, "spearman": 0.25, "agreement": 0.75, "mse": 1.0}}
        for name in ("majority", "tfidf", "teacher")
    }
    head, _, *rows = cells(comparison_table({"models": models}, {}))
    assert head[:4] == ["model", "dev Pearson", "dev Spearman", "agreement"]
    assert [row[0] for row in rows] == ["mean score", "TF-IDF + ridge regression", "teacher"]
    assert rows[0][1:4] == ["50.0", "25.0", "75.0"]


def test_a_table_wider_than_the_terminal_is_cut_into_several_with_the_first_column():
    rows = [["model", "one", "two | a", "three"], ["x", "1", "2", "3"], ["yy", "4", "5", "6"]]
    text = f"before\n\n{table(rows)}\n\nafter"
    assert narrow(text, None) == narrow(text, 80) == text
    parts = [table([[row[0], *row[a:b]] for row in rows]) for a, b in ((1, 2), (2, 3), (3, 4))]
    assert narrow(text, 18) == "\n\n".join(["before", *parts, "after"])
