"""`distillkit.distill` and `load`: frames, lists and models in memory, and what is wrong with them."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import distillkit
from distillkit import api, pipeline, runs
from distillkit.compress.run import compress
from distillkit.data.columns import find_columns
from distillkit.data.files import HeldError, hold
from distillkit.data.memory import source_of
from distillkit.data.readers import read_rows
from distillkit.errors import InputError
from distillkit.ladder import ladder
from distillkit.pipeline import Classifier, StudentJob
from distillkit.pipeline.student_choice import settle_student
from distillkit.recipe import (
    AugmentConfig,
    ColumnsConfig,
    CompressConfig,
    CompressJob,
    DataConfig,
    EmbeddingConfig,
    StudentConfig,
    TrainingConfig,
    load_config,
    load_recipe,
)
from distillkit.runtime import Predictor
from distillkit.teacher.checkpoint import load_classifier


@pytest.fixture(scope="module")
def sections(tiny_recipe):
    """The tiny recipe as keywords of `distill`, without its data."""
    plain = yaml.safe_load(yaml.safe_dump(json.loads(json.dumps(asdict(tiny_recipe)))))
    return {name: part for name, part in plain.items() if name not in ("data", "adapt")}


@pytest.fixture(scope="module")
def frames(tiny_recipe):
    sources = (tiny_recipe.data.train, tiny_recipe.data.dev)
    return [pd.read_csv(source, sep="\t", quoting=3) for source in sources]


@pytest.fixture(scope="module")
def run(frames, sections, tmp_path_factory):
    train, dev = (frame.rename(columns={"text": "Review", "label": "stars"}) for frame in frames)
    folder = tmp_path_factory.mktemp("api") / "run"
    return distillkit.distill(train, dev, unlabelled=[], output=folder, **sections)


def test_a_frame_gives_what_the_command_gives_for_the_same_file(run, finished_run):
    assert (run.folder / "result.json").read_bytes() == (finished_run / "result.json").read_bytes()


def test_a_run_answers_shows_its_scores_and_can_be_loaded(run, dev_table):
    texts = dev_table["text"].to_pylist()
    found = run.predict(texts)
    assert run.predict(texts[0])["label"] == found[0]["label"]
    assert distillkit.load(run.folder).predict(texts) == found
    right = [a["label"] == b for a, b in zip(found, dev_table["label"].to_pylist(), strict=True)]
    assert run.scores.loc["student", ("dev", "accuracy")] == np.mean(right)
    assert list(run.scores.index) == list(run.result["models"])
    assert "next: " in repr(run).splitlines()[-1]
    assert "<table" in run._repr_html_()


def test_lists_of_three_are_pairs(pair_table, monkeypatch, tmp_path):
    monkeypatch.setattr("distillkit.api.run_recipe", lambda recipe, folder: recipe)
    lists = tuple(pair_table[name].to_pylist() for name in ("text", "text_pair", "label"))
    recipe = distillkit.distill(lists, output=tmp_path / "run")
    assert recipe.data.columns == ColumnsConfig(text_pair="text_pair")
    assert recipe.augment.mix.self_pairs > 0
    section = {"data": DataConfig(dev_fraction=0.2)}
    recipe = distillkit.distill(lists, output=tmp_path / "run", **section)
    assert recipe.data.columns == ColumnsConfig(text_pair="text_pair")


@pytest.mark.slow
def test_lists_a_dataset_and_a_fine_tuned_model_are_taken(
    frames, sections, classifier_folder, tmp_path
):
    train, dev = frames
    names = sorted(set(train["label"]))
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)}
    )
    numbered = train.assign(label=[names.index(label) for label in train["label"]])
    sections = sections | {"teacher": load_classifier(classifier_folder)}
    sections["evaluation"] = {"gold_epochs": 0}
    run = distillkit.distill(
        datasets.Dataset.from_pandas(numbered, features=features, preserve_index=False),
        (list(dev["text"]), list(dev["label"])),
        unlabelled=["a plot is new .", "the cast was good ."],
        output=tmp_path / "run",
        **sections,
    )
    assert run.result["data"]["rows"] == {"train": len(train), "dev": len(dev), "unlabelled": 2}
    assert set(run.result["data"]["labels"]["train"]) == set(names)


def test_a_dataset_in_memory_and_on_the_disk_give_the_same_rows(tmp_path):
    kind = datasets.ClassLabel(names=["bad", "good"])
    rows = {"text": ["a", "b", "c"], "label": [1, -1, None], "all": [[0, 1], [], [1]]}
    features = {"text": datasets.Value("string"), "label": kind, "all": datasets.Sequence(kind)}
    one = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    one.save_to_disk(tmp_path / "saved")
    on_disk = [row for _, row in read_rows(f"datasets:{tmp_path / 'saved'}:test")]
    assert pq.read_table(source_of(one, "test")).to_pylist() == on_disk
    assert [row["label"] for row in on_disk] == ["good", None, None]
    assert [row["all"] for row in on_disk] == [["bad", "good"], [], ["good"]]


def test_paths_and_numbers_of_numpy_are_settings_as_any_other(tmp_path):
    (tmp_path / "mine.yml").write_text("kind: textcnn\n")
    recipe = api._recipe(
        {
            "data": {"train": "a.csv", "corrections": Path("b.csv")},
            "student": tmp_path / "mine.yml",
            "training": {"learning_rate": np.float64(1e-3), "epochs": np.int64(3)},
        }
    )
    assert (recipe.data.corrections, recipe.student.kind) == ("b.csv", "textcnn")
    assert (recipe.training.learning_rate, recipe.training.epochs) == (1e-3, 3)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (pd.DataFrame({"text": [], "label": []}), "^train: no rows$"),
        (
            pd.DataFrame({"text": ["a", "b"], "label": ["x", None]}),
            r"train\.parquet row 2: .*label",
        ),
        (
            pd.DataFrame({"text": ["a", "b"], "label": [["x"], ["y"]]}),
            r"row 1: .*label.*multi-label",
        ),
        (pd.DataFrame({"text": ["a", "b"], "label": ["x", "x"]}), "one class|one label|only"),
        (pd.DataFrame({"text": [1, 2], "label": ["x", "y"]}), r"row 1: .*text"),
        (
            pd.DataFrame({"text": ["a", 2], "label": ["x", "y"]}),
            "several types in one column, expected one type",
        ),
        (pd.DataFrame({"words": ["a", "b"], "label": ["x", "y"]}), "no column 'text'"),
        (
            (["a", "b"], ["x"]),
            r"train: lists of unequal length \(2 of text, 1 of label\); expected one of each",
        ),
        (
            pd.DataFrame([["a", "x", "x"], ["b", "y", "y"]], columns=["text", "label", "label"]),
            "train: the frame has the column 'label' twice",
        ),
        (7, "train: int; expected a pandas DataFrame"),
        ((["a\ud800", "b"], ["x", "y"]), "train: a value that no column can hold.*surrogates"),
        (
            pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"], "more": [{}, {}]}),
            "train: a column cannot be written, leave it out",
        ),
        (
            pd.DataFrame({"text": ["a", "b"], "label": ["x", "y"], "more": [2**70, 1]}),
            "train: a value that no column can hold",
        ),
    ],
)
def test_data_that_cannot_be_used_are_refused_in_a_line(train, said, sections, tmp_path):
    with pytest.raises(InputError, match=said) as error:
        distillkit.distill(train, output=tmp_path / "run", **sections)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_dev_label_that_train_has_not_and_a_wrong_keyword_are_refused(frames, tmp_path):
    train, dev = frames
    with pytest.raises(InputError, match="great"):
        distillkit.distill(train, dev.assign(label="great"), output=tmp_path / "run")
    with pytest.raises(InputError, match=r"minilm-l66.*did you mean 'minilm-l6'"):
        distillkit.distill(train, teacher="minilm-l66", output=tmp_path / "run")
    with pytest.raises(InputError, match=r"distill: unknown key 'augment.n_itr'; did you mean"):
        distillkit.distill(train, dev, output=tmp_path / "run", augment={"n_itr": 1})
    assert not (tmp_path / "run").exists()


def test_columns_are_found_by_their_names_unless_several_may_be_meant():
    def found(*names, **given):
        return find_columns(names, ColumnsConfig(**given))[0]

    assert found("Text", "STARS") == ColumnsConfig("Text", "", "STARS")
    assert found("id", "premise", "hypothesis", "label") == ColumnsConfig("premise", "hypothesis")
    assert found("review", "comment", "label").text == "text"
    assert found("text", "label", "stars") == ColumnsConfig()
    assert found("review", "label", text="body").text == "body"  # what is given is meant
    assert found("text", "target", "gold", text_pair="target").label == "label"  # one column is one


def test_a_recipe_finds_the_columns_of_its_file_and_saves_what_it_found(
    tiny_recipe, train_table, tmp_path, capsys
):
    from dataclasses import replace

    source = tmp_path / "mine.csv"
    train_table.to_pandas().rename(columns={"text": "review"}).to_csv(source, index=False)
    data = replace(tiny_recipe.data, train=str(source), dev="")
    runs.run(replace(tiny_recipe, data=data), tmp_path / "run")
    assert f"data: {source}: text is review\n" in capsys.readouterr().err
    assert load_recipe(str(tmp_path / "run" / "recipe.yaml")).data.columns.text == "review"


@pytest.mark.slow
def test_every_stage_takes_rows_in_memory_and_says_what_it_made(
    frames, classifier_folder, tmp_path
):
    train, dev = (frame.rename(columns={"text": "Review", "label": "stars"}) for frame in frames)
    config = AugmentConfig(n_iter=1)
    made = pipeline.augment(train, tmp_path / "transfer.parquet", config, held_out=[dev])
    assert made.rows == made["rows"] == made.original + made.augmented
    assert repr(made).startswith("TransferSet(output=")
    train.to_csv(tmp_path / "train.csv", index=False)
    dev.to_csv(tmp_path / "dev.csv", index=False)
    again = [tmp_path / "again.parquet", config]
    pipeline.augment(str(tmp_path / "train.csv"), *again, held_out=[str(tmp_path / "dev.csv")])
    assert again[0].read_bytes() == Path(made.output).read_bytes()
    transfer_set = datasets.Dataset.from_parquet(made.output)
    labelled = pipeline.label(pd.read_parquet(made.output), tmp_path / "store", classifier_folder)
    assert labelled.distinct == made.rows
    short = TrainingConfig(epochs=8, batch_size=8, learning_rate=1e-2)
    job = StudentJob(
        transfer_set,
        (list(dev["Review"]), list(dev["stars"])),
        tmp_path / "student",
        StudentConfig(hidden_size=8, embeddings=EmbeddingConfig("random", 8)),
        logits=tmp_path / "store",
        training=short,
    )
    student = pipeline.train_student(job)
    scores = pipeline.evaluate(student.output, dev)
    assert (scores.rows, scores.accuracy) == (len(dev), student.dev_accuracy)
    assert student.dev_score == student.dev_accuracy
    bundle = pipeline.export(student.output, tmp_path / "bundle", list(dev["Review"]))
    assert bundle.parity["rows"] > len(dev)
    rounded = CompressConfig(weights="int8")
    small = compress(CompressJob(student.output, tmp_path / "small", dev, rounded))
    assert small.megabytes < bundle.megabytes


def test_logits_in_memory_teach_as_those_of_the_model_they_came_from(
    frames, classifier_folder, tmp_path
):
    train, _ = frames
    model = Classifier(classifier_folder)
    given = train.assign(logits=list(model.logits(list(train["text"])).tolist()))
    found = pipeline.label(train, tmp_path / "given", logits=given, labels=model.labels)
    asked = pipeline.label(train, tmp_path / "asked", classifier_folder)
    assert found.accuracy_on_labelled == asked.accuracy_on_labelled
    assert found.labels == asked.labels


@pytest.mark.slow
def test_logits_from_anywhere_teach_in_place_of_the_teachers(
    frames, sections, classifier_folder, tmp_path, capsys
):
    train, dev = frames
    model = Classifier(classifier_folder)
    texts = [*train["text"], "the cast was good .", dev["text"][0]]
    turned = 1 - 2 * model.logits(texts)[:, ::-1]  # what the teacher does not answer
    given = pd.DataFrame({"text": texts, "logits": turned.tolist()})
    with pytest.raises(InputError, match="its logits are of a, b, c, but train has"):
        distillkit.distill(
            train,
            dev,
            logits=given,
            output=tmp_path / "wrong",
            **sections | {"data": {"logit_labels": ["a", "b", "c"]}},
        )
    swapped = given.assign(logits=[row[::-1] for row in given["logits"]])
    with pytest.raises(
        InputError,
        match=r"rather of positive, negative; name their labels in the order of the logits",
    ):
        distillkit.distill(train, dev, logits=swapped, output=tmp_path / "swapped", **sections)
    more = given.assign(logits=[[*row, 0.0] for row in given["logits"]])
    with pytest.raises(
        InputError, match="its logits are of negative, positive, neutral, but train"
    ):
        distillkit.distill(
            train,
            dev,
            logits=more,
            output=tmp_path / "more",
            **sections | {"data": {"logit_labels": ["negative", "positive", "neutral"]}},
        )
    assert not list((tmp_path / "more").glob("teacher/*"))
    run = distillkit.distill(train, dev, logits=given, output=tmp_path / "run", **sections)
    counts = run.result["transfer_set"]
    assert counts["rows"] + counts["leaks"] == len(set(texts))
    learned = pa.concat_tables(
        map(pq.read_table, run.folder.glob("logits/store/*/shard-*.parquet"))
    )
    expected = dict(zip(texts, turned, strict=True))
    want = [expected[text] for text in learned["text"].to_pylist()]
    assert np.allclose(learned["logits"].to_pylist(), want, atol=0.01)
    assert not set(learned["text"].to_pylist()) & set(dev["text"])
    assert "the logits are given" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"data\.logits: a ladder compares"):
        ladder(load_recipe(str(run.folder / "recipe.yaml")), run.folder)


def test_the_texts_choose_the_student_unless_it_is_named(tiny_recipe, pair_table, tmp_path):
    def chosen(texts, student):
        source = source_of((texts, ["x"] * len(texts)), "train", tmp_path)
        return settle_student(DataConfig(train=source), student)

    auto = StudentConfig("auto")
    new = [f"word{i} is here" for i in range(100)]
    known = ["the film is good"] * 100
    assert chosen(new, auto)[0] == load_config("students", "bilstm-subwords", StudentConfig())
    assert chosen(known, auto)[0] == load_config("students", "bilstm", StudentConfig())
    assert "0.0 % of the words" in chosen(known, auto)[1]
    assert chosen(new, StudentConfig()) == (StudentConfig(), "")
    pairs = DataConfig(
        train=source_of(pair_table, "train", tmp_path), columns=ColumnsConfig(text_pair="text_pair")
    )
    assert settle_student(pairs, auto)[0].kind == "interaction-bilstm"


def test_a_recipe_without_a_student_has_the_chosen_one(tmp_path):
    def student(text):
        (tmp_path / "mine.yaml").write_text(text)
        return load_recipe(str(tmp_path / "mine.yaml")).student

    assert student("seed: 2\n") == student("student: auto\n") == StudentConfig("auto")
    assert student("student: {hidden_size: 7}\n") == StudentConfig(hidden_size=7)
    assert student("student: {use: auto}\n").kind == "auto"
    with pytest.raises(InputError, match=r"mine\.yaml:1: .*student\.kind is auto, .* name a kind"):
        student("student: {kind: auto, hidden_size: 7}\n")


def test_load_takes_a_bundle_and_a_checkpoint(classifier_folder, tmp_path):
    pipeline.export(classifier_folder, tmp_path / "bundle")
    bundle, model = distillkit.load(tmp_path / "bundle"), distillkit.load(classifier_folder)
    assert (type(bundle), type(model)) == (Predictor, Classifier)
    texts = ["the film was great .", "a plot is weak ."]
    assert [a["label"] for a in bundle.predict(texts)] == [a["label"] for a in model.predict(texts)]


def test_distill_leaves_a_folder_that_another_holds(tmp_path, monkeypatch):
    rows = ([f"the film number {i} is good" for i in range(40)], ["x", "y"] * 20)
    with hold(tmp_path / "run"), pytest.raises(HeldError, match="is writing it"):
        api.distill(rows, teacher="minilm-l6", output=tmp_path / "run")
    assert not (tmp_path / "run" / "given").exists()  # which the other may be reading
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="distill works in one process"):
        api.distill(rows, output=tmp_path / "run")


def test_load_refuses_a_run_without_a_student(tmp_path):
    (tmp_path / "student").mkdir()
    (tmp_path / "recipe.yaml").write_text("seed: 1\n")
    with pytest.raises(InputError, match="the run has no student yet"):
        distillkit.load(tmp_path)


@pytest.mark.slow
def test_a_script_needs_no_guard_around_its_main_part(frames, sections, tmp_path):
    script = tmp_path / "mine.py"
    frames[0].to_json(tmp_path / "rows.json")
    (tmp_path / "sections.json").write_text(json.dumps(sections | {"workers": 2, "unlabelled": []}))
    script.write_text(
        "import json, distillkit, pandas as pd\n"
        "run = distillkit.distill(pd.read_json('rows.json'), output='run',"
        " **json.load(open('sections.json')))\n"
        "print(run.predict('the film was great .')['label'])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] in set(frames[0]["label"])


@pytest.mark.parametrize("form", ["pandas", "arrow", "numpy", None])
def test_a_dataset_of_any_format_is_read_whole(tmp_path, form):
    rows = {"text": ["a", "b"], "label": ["x", "y"]}
    one = datasets.Dataset.from_dict(rows).with_format(form, columns=["label"])
    assert pq.read_table(source_of(one, "train")).to_pydict() == rows


def test_arrays_as_labels_are_lists_also_where_they_are_empty():
    frame = pd.DataFrame({"text": ["a", "b"], "label": [np.array([]), np.array(["x"])]})
    assert pq.read_table(source_of(frame, "train"))["label"].to_pylist() == [[], ["x"]]
    lists = (["a", "b"], torch.tensor([0, 1]))
    assert pq.read_table(source_of(lists, "train"))["label"].to_pylist() == [0, 1]


@pytest.mark.parametrize("rows", [[("a", "x")], [{"text": "a", "label": "x"}]])
def test_a_list_of_rows_is_told_to_become_a_frame(rows):
    with pytest.raises(InputError, match=r"^train: a list of \w+s; expected a frame, as of pandas"):
        source_of(rows, "train")


def test_sections_may_be_the_objects_that_are_exported(tmp_path, monkeypatch, frames):
    monkeypatch.setattr("distillkit.api.run_recipe", lambda recipe, folder: recipe)
    sections = {
        "data": DataConfig(dev_fraction=0.2),
        "augment": AugmentConfig(n_iter=2),
        "training": TrainingConfig(steps=7),
    }
    recipe = distillkit.distill(frames[0], output=tmp_path / "run", **sections)
    assert recipe.data.dev_fraction == 0.2
    assert (recipe.augment, recipe.training) == (sections["augment"], sections["training"])


def test_a_model_without_its_tokenizer_is_asked_for_it(tmp_path, classifier_folder, frames):
    model = load_classifier(classifier_folder)[0]
    with pytest.raises(InputError, match=r"teacher is a \w+; expected .* or \(model, tokenizer\)"):
        distillkit.distill(frames[0], teacher=model, output=tmp_path / "run")
