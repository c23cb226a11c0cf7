"""Multi-label and regression from end to end: every stage, every command, with a teacher of two layers."""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from transformers import AutoConfig

from distillkit import pipeline, runs
from distillkit.cli import main
from distillkit.data.logits import read_store
from distillkit.demo import demo_service
from distillkit.errors import InputError
from distillkit.ladder import ladder
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    CompressConfig,
    DataConfig,
    EmbeddingConfig,
    EvaluationConfig,
    LabelConfig,
    LossConfig,
    Recipe,
    ShipConfig,
    StudentConfig,
    TeacherConfig,
    TrainingConfig,
    dump,
)
from distillkit.report import write_report

pytestmark = pytest.mark.slow

SCORES = {
    "good": 3,
    "great": 4,
    "fine": 2,
    "bright": 2.5,
    "bad": -2,
    "awful": -4,
    "dull": -1,
    "weak": -1.5,
}


def scored(table):
    """Pairs whose second text has one word that decides the score."""
    rows = (
        (text, next(SCORES[word] for word in text.split() if word in SCORES))
        for text in table["text"].to_pylist()
    )
    return [{"a": "this score is dull .", "b": text, "score": score} for text, score in rows]


def labelled(table):
    """Texts with the label "kind", "unkind" or, every sixth with its word left out, none: what an encoder of width 16 can learn."""
    rows = []
    for number, row in enumerate(table.to_pylist()):
        words = row["text"].split()
        bare = number % 6 == 0
        text = " ".join(words[:-2] + words[-1:]) if bare else row["text"]
        rows.append(
            {
                "text": text,
                "label": [] if bare else ["kind" if row["label"] == "positive" else "unkind"],
            }
        )
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def recipe_of(data, encoder, kind, loss):
    return Recipe(
        data=data,
        teacher=TeacherConfig(
            encoder,
            24,
            TrainingConfig(epochs=40, batch_size=16, learning_rate=5e-3, precision="fp32"),
        ),
        augment=AugmentConfig(n_iter=3),
        label=LabelConfig(precision="fp32", shard_rows=50),
        student=StudentConfig(
            kind=kind, hidden_size=8, head_size=8, embeddings=EmbeddingConfig(dimension=8)
        ),
        training=TrainingConfig(
            epochs=25, batch_size=16, learning_rate=2e-2, weight_decay=0.0, precision="fp32"
        ),
        loss=loss,
        evaluation=EvaluationConfig(gold_epochs=3, latency_sentences=2),
    )


@pytest.fixture(scope="module")
def tables(train_table, dev_table):
    """Training and dev rows about the same subjects: 123 and 21."""
    table = pa.concat_tables([train_table, dev_table])
    in_dev = pa.array([number % 7 == 1 for number in range(len(table))])
    return table.filter(pa.compute.invert(in_dev)), table.filter(in_dev)


@pytest.fixture(scope="module")
def regression(tmp_path_factory, encoder_folder, tables):
    folder = tmp_path_factory.mktemp("regression")
    data = DataConfig(
        task="regression",
        train=write(folder / "train.jsonl", scored(tables[0])),
        dev=write(folder / "dev.jsonl", scored(tables[1])),
        columns=ColumnsConfig("a", "b", "score"),
    )
    ship = ShipConfig(compress=CompressConfig(embeddings="int8", weights="int8"))
    recipe = replace(
        recipe_of(data, encoder_folder, "siamese-bilstm", LossConfig(alpha=0.3)), ship=ship
    )
    return folder, recipe, runs.run(recipe, folder / "run")


@pytest.fixture(scope="module")
def multi_label(tmp_path_factory, encoder_folder, tables):
    folder = tmp_path_factory.mktemp("multi-label")
    data = DataConfig(
        task="multi-label",
        train=write(folder / "train.jsonl", labelled(tables[0])),
        dev=write(folder / "dev.jsonl", labelled(tables[1])),
    )
    loss = LossConfig("soft", alpha=0.5, temperature=3.0)
    recipe = recipe_of(data, encoder_folder, "bilstm", loss)
    return folder, recipe, runs.run(recipe, folder / "run")


def test_a_regression_over_pairs_is_learnt_and_evaluated(regression):
    folder, _, result = regression
    models = {name: model["dev"] for name, model in result["models"].items()}
    assert models["teacher"]["pearson"] > 0.9
    assert models["student"]["pearson"] > 0.9
    assert models["student"]["agreement"] > 0.8
    assert models["majority"]["pearson"] == 0
    assert models["student"]["mse"] < models["majority"]["mse"]
    assert models["student"]["rows"] == 21
    assert result["data"]["labels"]["train"] == {
        "least": -4,
        "mean": pytest.approx(0.3699187),
        "most": 4,
    }
    assert result["training"]["teacher"]["dev_pearson"] == pytest.approx(
        models["teacher"]["pearson"], abs=1e-4
    )
    report = (folder / "run" / "evaluation" / "report.md").read_text()
    assert "dev Pearson | dev Spearman" in report
    assert "mean score" in report
    assert "TF-IDF + ridge regression" in report


def test_several_labels_are_learnt_and_evaluated(multi_label):
    folder, _, result = multi_label
    models = {name: model["dev"] for name, model in result["models"].items()}
    assert models["teacher"]["micro_f1"] > 0.8
    assert models["student"]["micro_f1"] > 0.8
    assert models["student"]["micro_f1"] > models["majority"]["micro_f1"]
    assert list(models["student"]["classes"]) == ["kind", "unkind"]
    assert result["data"]["labels"]["train"] == {"unkind": 53, "kind": 49}
    report = (folder / "run" / "evaluation" / "report.md").read_text()
    assert "dev micro-F1 | dev macro-F1 | dev exact match" in report
    assert "commonest labels" in report


@pytest.mark.parametrize(
    ("run", "kind", "head", "labels", "type_"),
    [
        ("regression", "regression", "none", ["score"], pa.float64()),
        (
            "multi_label",
            "multi_label_classification",
            "sigmoid",
            ["kind", "unkind"],
            pa.list_(pa.string()),
        ),
    ],
)
def test_models_store_and_tables_say_what_they_are_for(run, kind, head, labels, type_, request):
    folder = request.getfixturevalue(run)[0] / "run"
    for model in ("teacher", "student", "student-gold"):
        config = AutoConfig.from_pretrained(folder / model / "model")
        assert (config.problem_type, list(config.id2label.values())) == (kind, labels)
    manifest = read_store(folder / "logits" / "store")["teacher"]
    assert (manifest["head"], manifest["labels"]) == (head, labels)
    transfer = pq.read_table(folder / "transfer" / "transfer.parquet")
    assert transfer.schema.field("label").type == type_
    original = pa.compute.equal(transfer["origin"], "original")
    assert transfer.filter(original)["label"].null_count == 0
    assert transfer.filter(pa.compute.invert(original))["label"].null_count > 50
    assert len(transfer) - transfer["label"].null_count == pa.compute.sum(original).as_py()


def titles(folder):
    lines = (folder / "run" / "ladder" / "ladder.md").read_text().splitlines()
    return {line.split("|")[1].strip() for line in lines if line}


def test_a_ladder_of_scores(regression, capsys):
    folder, recipe, run = regression
    few = replace(recipe, training=replace(recipe.training, epochs=6))
    result = ladder(few, folder / "run", ablations=["majority", "tfidf", "gold", "full"], seeds=2)
    assert list(result["ablations"]) == ["majority", "tfidf", "gold", "full", "teacher"]
    for name in ("majority", "tfidf", "teacher"):
        found, evaluated = result["ablations"][name]["dev"], run["models"][name]["dev"]
        assert {
            key: found[key] for key in ("pearson", "spearman", "mse", "agreement")
        } == pytest.approx(
            {key: evaluated[key] for key in ("pearson", "spearman", "mse", "agreement")}
        )
    full = result["ablations"]["full"]
    assert full["seeds"] == list(map(int, full["dev"]["pearson_by_seed"])) == [1, 2]
    assert full["dev"]["pearson"] > 0.5
    assert full["dev"]["difference"]["mean"] == pytest.approx(
        full["dev"]["pearson"] - result["ablations"]["gold"]["dev"]["pearson"]
    )
    assert {"mean score", "TF-IDF + ridge regression", "student, full transfer set"} <= titles(
        folder
    )
    (folder / "recipe.yaml").write_text(dump(few))
    command = [
        "ladder",
        str(folder / "recipe.yaml"),
        "--output",
        str(folder / "run"),
        "--seeds",
        "2",
        "--ablations",
    ]
    capsys.readouterr()
    assert main([*command, "tfidf"]) == 0
    line = json.loads(capsys.readouterr().out)
    keys = ("pearson", "pearson_sd", "difference")
    assert line["ablations"]["full"]["dev"] == {key: full["dev"][key] for key in keys}
    assert main([*command, "hard"]) == 1  # a score is no answer but itself
    assert (
        "--ablations hard: this recipe's ladder has majority, tfidf, frozen, gold, originals"
        in capsys.readouterr().err
    )


def test_a_ladder_of_several_labels(multi_label, monkeypatch):
    folder, recipe, run = multi_label
    labels = {}
    train_student = pipeline.train_student

    def watched(job):
        labels[job.progress] = pq.read_table(job.transfer_set)["label"].to_pylist()
        return train_student(job)

    monkeypatch.setattr(pipeline, "train_student", watched)
    few = replace(recipe, training=replace(recipe.training, epochs=10))
    result = ladder(
        few, folder / "run", ablations=["majority", "tfidf", "gold", "hard", "full"], seeds=1
    )
    for name in ("majority", "tfidf", "teacher"):
        found, evaluated = result["ablations"][name]["dev"], run["models"][name]["dev"]
        assert {
            key: found[key] for key in ("micro_f1", "exact_match", "agreement")
        } == pytest.approx(
            {key: evaluated[key] for key in ("micro_f1", "exact_match", "agreement")}
        )
    hard = result["ablations"]["hard"]["dev"]
    assert labels["hard-seed-1"] == [None] * len(
        labels["full-seed-1"]
    )  # so that the loss takes the teacher's
    assert hard["micro_f1"] > 0.8  # and it has learnt them
    assert hard["micro_f1_sd"] is None
    assert 0 <= hard["mcnemar_p"] <= 1
    assert [] in labels["gold-seed-1"]
    assert {"commonest labels", "student, teacher's hard labels"} <= titles(folder)


def test_evaluate_and_predict_ask_the_model_for_its_task(regression, multi_label, capsys):
    folder = regression[0]
    student, teacher = (str(folder / "run" / name / "model") for name in ("student", "teacher"))
    columns = ["--data.columns.text", "a", "--data.columns.text-pair", "b"]
    dev = str(folder / "dev.jsonl")
    assert (
        main(
            [
                "evaluate",
                student,
                dev,
                *columns,
                "--data.columns.label",
                "score",
                "--teacher",
                teacher,
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert json.loads(out) == regression[2]["models"]["student"]["dev"]
    assert "\n21 rows  pearson 0.9" in f"\n{err}"
    assert main(["predict", student, dev, *columns]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert set(rows[0]) == {"text", "text_pair", "score"}
    great, awful = (
        next(row["score"] for row in rows if word in row["text_pair"])
        for word in ("great", "awful")
    )
    assert great > 2
    assert awful < -2

    folder = multi_label[0]
    student, dev = str(folder / "run" / "student" / "model"), str(folder / "dev.jsonl")
    assert main(["evaluate", student, dev]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["micro_f1"] == multi_label[2]["models"]["student"]["dev"]["micro_f1"]
    assert "| kind" in err
    rows = list(
        pipeline.predict(student, [("the cast was great .", None), ("the cast is awful .", None)])
    )
    assert [row["labels"] for row in rows] == [["kind"], ["unkind"]]
    assert all(0 <= p <= 1 for row in rows for p in row["probabilities"].values())


def test_stages_take_a_task_from_the_command_line(regression, tmp_path, capsys):
    source, target = tmp_path / "train.tsv", tmp_path / "transfer.parquet"
    source.write_text(
        "text\tlabel\nthe film is good .\tkind; past\nthe film was bad .\tpast\nthe cast is bad .\t\n"
    )
    task = ["--data.task", "multi-label", "--data.columns.label-separator", ";"]
    assert main(["augment", str(source), str(target), "--augment.n-iter", "0", *task]) == 0
    assert pq.read_table(target)["label"].to_pylist() == [["kind", "past"], ["past"], []]
    # Gold labels alone: nobody but the flag says what they are.
    student = [
        "train-student",
        "bilstm",
        "--transfer-set",
        str(source),
        "--dev",
        str(source),
        "--output",
        str(tmp_path / "s"),
    ]
    tiny = [
        "--training.epochs",
        "0",
        "--student.hidden-size",
        "4",
        "--student.embeddings.source",
        "random",
        "--student.embeddings.dimension",
        "4",
    ]
    assert main([*student, *tiny, "--loss.alpha", "1", *task]) == 0
    assert AutoConfig.from_pretrained(tmp_path / "s").problem_type == "multi_label_classification"
    # Logits of a file have no model either.
    store = [
        str(tmp_path / "store"),
        "--logits",
        str(tmp_path / "z.jsonl"),
        "--data.columns.text",
        "a",
        "--data.columns.text-pair",
        "b",
    ]
    scores = [json.loads(line) for line in (regression[0] / "dev.jsonl").read_text().splitlines()]
    write(
        tmp_path / "z.jsonl",
        [{"text": row["a"], "text_pair": row["b"], "logits": [row["score"]]} for row in scores],
    )
    dev = [str(regression[0] / "dev.jsonl"), *store, "--data.columns.label", "score"]
    capsys.readouterr()
    assert main(["label", *dev, "--data.task", "regression"]) == 0
    assert json.loads(capsys.readouterr().out)["pearson_on_labelled"] == pytest.approx(1)
    assert read_store(tmp_path / "store")["teacher"]["head"] == "none"


def test_a_source_of_another_task_is_refused(regression, multi_label):
    student = str(multi_label[0] / "run" / "student" / "model")
    with pytest.raises(
        InputError, match=r"its labels are of a regression task, expected multi-label"
    ):
        pipeline.evaluate(student, str(regression[0] / "run" / "data" / "dev.parquet"))
    table = pa.table({"text": ["a", "b"], "label": ["x", "y"]})
    with pytest.raises(
        InputError,
        match=r"here: its labels are of a classification task, the model is for multi-label",
    ):
        pipeline.classify(student, table, "here")


def test_a_regression_never_softens(regression, tmp_path):
    _, recipe, _ = regression
    with pytest.raises(InputError, match=r"loss\.kind is soft, but the task is regression"):
        runs.run(replace(recipe, loss=LossConfig("soft")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("run", ["regression", "multi_label"])
def test_a_report_has_the_parts_that_the_task_has(run, request):
    folder, _, result = request.getfixturevalue(run)
    page = write_report(folder / "run").read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)">', page)
    parts = ["live", "models", "learning", "rows", "labels", "slices", "transfer", "made"]
    assert [name for name in sections if name != "ladder"] == parts  # another test may make one
    text = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page)[1]
    assert json.loads(text)["models"] == result["models"]
    score = "Pearson" if run == "regression" else "micro-F1"
    assert f"% {score} on 21 dev rows" in page.replace("\u00a0", " ")


@pytest.mark.parametrize("run", ["regression", "multi_label"])
def test_a_demo_without_confidence_has_no_cascade(run, request):
    folder, _, _ = request.getfixturevalue(run)
    texts = {"texts": ["a"], "text_pairs": ["b"]} if run == "regression" else {"texts": ["a"]}
    with TestClient(demo_service(folder / "run")) as client:
        assert 'class="cascade"' not in client.get("/").text
        (answer,) = client.post("/predict", json=texts).json()["answers"]
    assert ("score" if run == "regression" else "labels") in answer["teacher"]
