"""`distillkit push`: what goes out, what the card says, and a hub on this machine that takes it."""

import base64
import json
import re
import shutil
import threading
from contextlib import redirect_stdout
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import distillkit
from distillkit import pipeline, runs
from distillkit.cli import main
from distillkit.errors import InputError
from distillkit.ladder import ladder
from distillkit.push import _on_hub, _without_paths, push
from distillkit.recipe import (
    AdaptConfig,
    AugmentConfig,
    ColumnsConfig,
    DataConfig,
    EmbeddingConfig,
    EvaluationConfig,
    GeneratedConfig,
    LabelConfig,
    MaskingConfig,
    NeighboursConfig,
    PairsConfig,
    Recipe,
    StudentConfig,
    TeacherConfig,
    TextConfig,
    TrainingConfig,
    dump,
    load_recipe,
)
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import read_bundle, write_bundle
from distillkit.teacher.checkpoint import resolve

CHECKPOINT = ["config.json", "model.safetensors", "student.yaml"]
CHECKPOINT += ["tokenizer.json", "tokenizer_config.json"]
BUNDLE = ["bundle/manifest.json", "bundle/model.onnx", "bundle/tokenizer.json"]
FILES = sorted([*CHECKPOINT, "README.md", "recipe.yaml", "result.json"])


def _tsv(path, table):
    rows = ["\t".join(map(str, row.values())) for row in table.to_pylist()]
    path.write_text("\n".join(["\t".join(table.column_names), *rows]) + "\n")
    return str(path)


def _quick(recipe):
    """Return a recipe with less training: cards hold whatever was measured."""
    return replace(
        recipe,
        teacher=replace(recipe.teacher, training=replace(recipe.teacher.training, epochs=12)),
        augment=replace(recipe.augment, n_iter=2),
        training=replace(recipe.training, epochs=2),
        evaluation=replace(recipe.evaluation, gold_epochs=1),
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory, tiny_recipe, encoder_folder, train_table):
    """A finished run with a test set, a local teacher and two rows of a ladder."""
    folder = tmp_path_factory.mktemp("secret-home")
    shutil.copytree(encoder_folder, folder / "my-encoder")
    for source in (tiny_recipe.data.train, tiny_recipe.data.dev):
        shutil.copy(source, folder)
    _tsv(folder / "test.tsv", train_table.slice(0, 60))
    (folder / "vectors.txt").write_text("good 1 0 0 1\nbad 0 1 1 0\n")
    vectors = EmbeddingConfig(source=str(folder / "vectors.txt"), dimension=4)
    recipe = _quick(tiny_recipe)
    recipe = replace(
        recipe,
        data=DataConfig(**{name: str(folder / f"{name}.tsv") for name in ("train", "dev", "test")}),
        teacher=replace(recipe.teacher, model=str(folder / "my-encoder")),
        student=StudentConfig(hidden_size=4, head_size=4, embeddings=vectors),
    )
    runs.run(recipe, folder / "runs" / "tiny")
    ladder(recipe, folder / "runs" / "tiny", ["majority"], 1)
    return folder


@pytest.fixture(scope="module")
def result(home):
    return json.loads((home / "runs" / "tiny" / "result.json").read_text())


@pytest.fixture
def run(home, tmp_path):
    """A copy of the run that a test may damage."""
    return Path(shutil.copytree(home / "runs" / "tiny", tmp_path / "runs" / "tiny"))


@pytest.fixture(scope="module")
def pushed(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pushed") / "out"
    push(home / "runs" / "tiny", "me/tiny", to=folder)
    return folder


def _files(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def _without(name):
    return lambda run: (run / name).unlink()


def _edited(name, old, new):
    def edit(run):
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return edit


@pytest.fixture(scope="module")
def card(pushed):
    return (pushed / "README.md").read_text()


def _section(card, title):
    return card.partition(f"## {title}\n")[2].partition("\n## ")[0]


def _table(card, title):
    """The rows of the first table of a section, by their first cell."""
    lines = _section(card, title).partition("\n|")[2].partition("\n\n")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def _run_block(block, folder):
    """Run Python code of a card, the hub's name of the model replaced by a folder."""
    download = 'snapshot_download("me/tiny", allow_patterns="bundle/*")'
    with redirect_stdout(StringIO()) as printed:
        exec(block.replace(download, repr(str(folder))).replace("me/tiny", str(folder)), {})
    return printed.getvalue()


def test_student_recipe_metrics_and_card_go_out_and_nothing_else(pushed, home):
    assert _files(pushed) == FILES
    answers = []
    for folder in (pushed, home / "runs" / "tiny" / "student" / "model"):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        with torch.inference_mode():
            answers.append(model(**tokenizer("the film is good .", return_tensors="pt")).logits)
    assert torch.equal(*answers)


def test_metadata_are_the_metrics_of_the_result(pushed, result):
    data = ModelCard.load(pushed / "README.md").data
    student = result["models"]["student"]
    assert {
        (one.dataset_split, one.metric_name): one.metric_value for one in data.eval_results
    } == {
        (split, name): student[split][key]
        for split in ("dev", "test")
        for name, key in (("accuracy", "accuracy"), ("macro-F1", "macro_f1"))
    }
    assert {one.dataset_name for one in data.eval_results} == {"dev.tsv", "test.tsv"}
    assert (data.library_name, data.pipeline_tag) == ("distillkit", "text-classification")
    assert data.model_name == "tiny"
    assert {"distillkit", "distillation", "bilstm"} <= set(data.tags)
    # The teacher is a local folder, the data are local files, and the language is unknown.
    assert (data.base_model, data.datasets, data.language) == (None, None, None)


def test_tables_are_the_metrics_of_the_result(card, home, result):
    rows = _table(card, "Results")
    for title, name in (
        ("student, distilled", "student"),
        ("teacher", "teacher"),
        ("student on gold labels", "student_gold"),
    ):
        model = result["models"][name]
        assert rows[title]["dev accuracy"] == f"{100 * model['dev']['accuracy']:.1f}"
        assert rows[title]["test accuracy"] == f"{100 * model['test']['accuracy']:.1f}"
        assert rows[title]["parameters"] == f"{model['parameters']['total']:,}"
    counted = {name: row["rows"] for name, row in _table(card, "Data").items()}
    assert counted == {"train": "96", "dev": "48", "test": "60"}
    counts = result["transfer_set"]
    parts = f"{counts['rows']:,} rows: 96 original, {counts['augmented']} augmented."
    assert f"The teacher answered {parts}" in card
    masked = _table(card, "Transfer set")["words masked"]
    assert (masked["rate"], masked["rows with it"]) == ("0.1", str(counts["rules"]["mask"]))
    ladder = json.loads((home / "runs" / "tiny" / "ladder" / "ladder.json").read_text())[
        "ablations"
    ]
    rows = _table(card, "Ladder")
    assert rows["teacher"]["accuracy"] == f"{100 * ladder['teacher']['dev']['accuracy']:.1f}"
    assert list(rows) == ["majority class", "teacher"]


def test_limits_are_the_metrics_of_the_result(card, result):
    limits, models = _section(card, "Limits"), result["models"]
    dev = 100 * (models["student"]["dev"]["accuracy"] - models["student_gold"]["dev"]["accuracy"])
    said = f"{abs(dev):.1f} points {'above' if dev > 0 else 'below'}" if dev else "level with"
    found = f"{100 * models['student']['dev']['accuracy']:.1f}"
    assert re.search(rf"; on dev: {found}, [^;]*{said} the same network on gold labels", limits)
    student, teacher = models["student"]["test"], models["teacher"]["test"]
    gap = 100 * (teacher["accuracy"] - student["accuracy"])
    assert gap > 0
    line = f"{100 * student['accuracy']:.1f}, {gap:.1f} points below its teacher"
    assert f"Accuracy on test: {line}" in limits
    assert f"{100 - 100 * student['agreement']:.1f} % of the test rows" in limits
    # Training texts lack three words of dev's subjects: acting, cast and score.
    assert re.search(r"[1-9][\d.]* % of dev's tokens are out of its vocabulary", limits)
    assert "It reads the first 128 tokens of a text.\n  0.0 % of the dev rows are longer" in limits


def test_a_ladder_whose_lengths_follow_from_the_rows_as_the_runs_is_in_the_card(
    run, tmp_path, capsys
):
    rows = json.loads((run / "result.json").read_text())["transfer_set"]["rows"]
    by_rows = TrainingConfig(epochs=-1)
    for name, length in (("recipe.yaml", by_rows.for_rows(rows).steps), ("ladder/recipe.yaml", 0)):
        spec = yaml.safe_load((run / name).read_text())
        spec["training"] |= {"epochs": -1, "steps": length, "batch_size": by_rows.batch_size}
        (run / name).write_text(yaml.safe_dump(spec))
    push(run, "me/tiny", to=tmp_path / "out")
    assert "Ladder" in (tmp_path / "out" / "README.md").read_text()
    assert "other settings" not in capsys.readouterr().err


def test_a_ladder_of_other_settings_is_not_in_the_card(run, tmp_path, capsys):
    _edited("ladder/recipe.yaml", "n_iter: 2", "n_iter: 3")(run)
    push(run, "me/tiny", to=tmp_path / "out")
    assert "## Ladder" not in (tmp_path / "out" / "README.md").read_text()
    assert "was made with other settings than the run" in capsys.readouterr().err


def test_code_of_the_card_runs_as_it_stands(run, tmp_path):
    pipeline.export(str(run / "student" / "model"), run / "bundle")
    push(run, "me/tiny", to=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "another model than the checkpoint" not in card
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert re.search("negative|positive", _run_block(block, tmp_path / "out"))


@pytest.fixture(scope="module")
def teacher_bundle(home, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle") / "teacher"
    pipeline.export(str(home / "runs" / "tiny" / "teacher" / "model"), folder)
    return folder


def test_no_path_of_this_machine_goes_out(run, home, teacher_bundle, tmp_path):
    out = tmp_path / "out"
    push(run, "me/tiny", bundle=teacher_bundle, to=out)
    local = [home, tmp_path, Path.cwd(), Path(distillkit.__file__).parent, "site-packages"]
    assert _files(out) == sorted([*FILES, *BUNDLE])
    for name in _files(out):
        found = (out / name).read_bytes()
        assert not [path for path in local if str(path).encode() in found], name
    texts = ["the film is good .", "a plot seems weak ."]
    ours, theirs = (Predictor(place).logits(texts) for place in (out / "bundle", teacher_bundle))
    assert (ours == theirs).all()


def test_a_bundle_of_another_model_is_taken_only_if_it_is_named_and_says_so(
    run, teacher_bundle, tmp_path, result
):
    shutil.copytree(teacher_bundle, run / "bundle")
    said = r"bundle: does not answer as .*student/model does; export that again"
    with pytest.raises(InputError, match=said):
        push(run, "me/tiny", to=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    push(run, "me/tiny", bundle=run / "bundle", to=tmp_path / "out")
    models = result["models"]
    accuracy = 100 * models["teacher"]["dev"]["accuracy"]
    agreement = 100 * models["student"]["dev"]["agreement"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "It holds another model than the checkpoint beside it" in card
    said = f"dev accuracy is {accuracy:.1f}, its agreement with the checkpoint {agreement:.1f}."
    assert said in card
    manifest, files = read_bundle(teacher_bundle)
    manifest = replace(manifest, labels=["yes", "no"])
    write_bundle(tmp_path / "other.zip", manifest, files, one_file=True)
    with pytest.raises(
        InputError, match=r"has other labels than .* \(negative, positive\); give a bundle"
    ):
        push(run, "me/tiny", bundle=tmp_path / "other.zip", to=tmp_path / "none")


@pytest.fixture(scope="module")
def score_pairs(tmp_path_factory, tiny_recipe, pair_table):
    """A finished run of pairs with scores, without gold student, test set or latency."""
    folder = tmp_path_factory.mktemp("pairs")
    good = ("good", "great", "fine", "bright")
    scores = [float(sum(word in text for word in good)) for text in pair_table["text"].to_pylist()]
    table = pair_table.set_column(2, "label", pa.array(scores))
    table = table.take(np.random.default_rng(0).permutation(len(table)))
    recipe = replace(
        _quick(tiny_recipe),
        data=DataConfig(
            train=_tsv(folder / "train.tsv", table),
            dev=_tsv(folder / "dev.tsv", table.slice(0, 40)),
            task="regression",
            columns=ColumnsConfig(text_pair="text_pair"),
        ),
        student=replace(
            tiny_recipe.student,
            kind="siamese-static",
            hidden_size=StudentConfig().hidden_size,
            vocabulary=replace(tiny_recipe.student.vocabulary, unit="teacher"),
        ),
        evaluation=EvaluationConfig(gold_epochs=0, latency_sentences=0),
    )
    runs.run(recipe, folder / "runs" / "scores")
    return folder / "runs" / "scores"


def test_card_of_pairs_with_scores(score_pairs, tmp_path):
    push(score_pairs, "me/scores", to=tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    data = ModelCard.load(tmp_path / "out" / "README.md").data
    student = json.loads((score_pairs / "result.json").read_text())["models"]["student"]["dev"]
    assert {one.metric_type: one.metric_value for one in data.eval_results} == {
        "pearsonr": student["pearson"],
        "spearmanr": student["spearman"],
    }
    assert "gives each pair of texts a score." in text
    assert "Milliseconds" not in text
    assert "gold labels" not in text
    for limit in ("means nothing to it", "reads the two texts apart", "There was no test set."):
        assert limit in text
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "score" in _run_block(block.replace("me/scores", "me/tiny"), tmp_path / "out")


def test_a_card_names_the_score_that_chose_the_epoch(score_pairs, tmp_path):
    run = shutil.copytree(score_pairs, tmp_path / "run")
    saved = run / "recipe.yaml"
    saved.write_text(saved.read_text().replace("best_by: score", "best_by: spearman"))
    result = json.loads((run / "result.json").read_text())
    for model in result["training"].values():
        model["dev_spearman"] = model.pop("dev_pearson")
    (run / "result.json").write_text(json.dumps(result))
    push(run, "me/scores", to=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert re.search(r"The kept epoch is \d+, by dev Spearman \(-?[\d.]+\)", card)


def test_saved_recipe_is_one_that_runs_where_the_files_lie(
    home, pushed, card, result, tmp_path, monkeypatch
):
    needed = ["train.tsv", "dev.tsv", "test.tsv", "my-encoder", "vectors.txt"]
    assert ", ".join(f"`{name}`" for name in needed) in card
    for name in needed:
        (tmp_path / name).symlink_to(home / name)
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(str(pushed / "recipe.yaml"))
    runs.look_ahead(recipe)
    assert resolve(recipe.teacher.model) == "my-encoder"
    tables = pipeline.read_data(recipe.data, recipe.seed)
    assert {split: len(table) for split, table in tables.items()} == result["data"]["rows"]
    was = load_recipe(str(home / "runs" / "tiny" / "recipe.yaml"))
    assert replace(recipe, data=was.data, teacher=was.teacher, student=was.student) == was


def test_paths_become_names_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "bert").mkdir(parents=True)
    recipe = Recipe(
        data=DataConfig(
            train="/home/ada/a/rows.tsv",
            dev="b/rows.tsv",
            test="datasets:nyu-mll/glue:mrpc:test",
            unlabelled=(
                "s3://bucket/more.txt",
                "embedded:reviews/unlabelled",
                "datasets:/home/ada/saved:train",
                "wordnet:/home/ada/wordnet",
            ),
            corrections="/home/ada/right.csv",
        ),
        adapt=AdaptConfig(
            text=TextConfig(sources=("/home/ada/film.txt",), cache="/home/ada/cache"),
            masking=MaskingConfig(strategy="macbert", similar="/home/ada/like.tsv"),
        ),
        label=LabelConfig(zero_shot="/home/ada/nli"),
        teacher=TeacherConfig(model="models/bert"),
        augment=AugmentConfig(
            tagger="spacy:/home/ada/tagger",
            generated=GeneratedConfig(model="openai-community/gpt2"),
            neighbours=NeighboursConfig(vectors="/home/ada/glove.txt"),
            pairs=PairsConfig(model="/home/ada/sentences"),
        ),
        student=StudentConfig(embeddings=EmbeddingConfig(source="../glove.txt")),
    )
    shown = _without_paths(recipe, tmp_path / "runs" / "x")
    data, augment = shown.data, shown.augment
    assert (data.train, data.dev, data.test) == (
        "train/rows.tsv",
        "dev/rows.tsv",
        recipe.data.test,
    )
    assert data.unlabelled[:2] == ("more.txt", "embedded:reviews/unlabelled")
    assert data.unlabelled[2:] == ("datasets:saved:train", "wordnet")
    assert (shown.label.zero_shot, augment.pairs.model) == ("nli", "sentences")
    adapt = shown.adapt
    assert (adapt.text.sources, adapt.text.cache) == (("film.txt",), "cache")
    assert (adapt.masking.similar, augment.neighbours.vectors) == ("like.tsv", "glove.txt")
    scratch = replace(recipe, teacher=TeacherConfig(model="scratch"))
    assert _without_paths(scratch, tmp_path / "runs" / "x").teacher.model == "scratch"
    assert not _on_hub("scratch", tmp_path / "runs" / "x")
    assert (shown.teacher.model, augment.generated.model) == (
        "bert",
        recipe.augment.generated.model,
    )
    assert (augment.tagger, augment.neighbours.vectors) == ("spacy:tagger", "glove.txt")
    assert shown.student.embeddings.source == "glove.txt"
    for given, left in {"package:minilm": "package:minilm", "/home/ada/minilm": "minilm"}.items():
        student = StudentConfig(embeddings=EmbeddingConfig(given))
        other = _without_paths(replace(recipe, student=student), tmp_path / "runs" / "x")
        assert other.student.embeddings.source == left
    assert not re.search("home|bucket|models/", dump(shown))
    assert _without_paths(Recipe(), tmp_path / "runs" / "x") == Recipe()


MISSING = "its stage {} is missing; distillkit run .*recipe.yaml --output .*tiny"
NEWER = "its recipe or stages are newer than its result.json"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without("data/stage.json"), MISSING.format("data")),
        (_without("student-gold/stage.json"), MISSING.format("student-gold")),
        (_without("evaluation/stage.json"), MISSING.format("evaluation")),
        # A stage that is being repeated.
        (lambda run: (run / ".transfer.partial").mkdir(), MISSING.format("transfer")),
        (_edited("recipe.yaml", "head_size: 4", "head_size: 5"), NEWER),
        (_edited("result.json", '"accuracy": ', '"accuracy": 1'), NEWER),
        (_without("result.json"), "its result.json is missing"),
        (_without("recipe.yaml"), "no recipe.yaml; expected a run's folder"),
    ],
)
def test_a_run_whose_metrics_may_not_be_its_students_is_refused(run, damage, said, tmp_path):
    damage(run)
    with pytest.raises(InputError, match=said):
        push(run, "me/tiny", to=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["tiny", "a/b/c", "me/", "me/a b", ""])
def test_a_name_that_is_none_is_refused(name, home, tmp_path):
    with pytest.raises(InputError, match="expected OWNER/NAME"):
        push(home / "runs" / "tiny", name, to=tmp_path / "out")


def test_a_folder_that_holds_something_is_left_alone(home, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        push(home / "runs" / "tiny", "me/tiny", to=tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


class _Hub(ThreadingHTTPServer):
    """What a push meets of a hub: one repository, its files, and a record of the requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.status, self.message = 200, ""  # another status: of every answer
        self.there, self.private, self.tokens = False, False, set()
        self.files, self.commits = {}, []

    def create(self, body):
        if self.there:
            return 409, {"url": f"{self.address}/me/tiny"}
        self.there, self.private = True, json.loads(body).get("visibility") == "private"
        return 200, {"url": f"{self.address}/me/tiny"}

    def validate_yaml(self, body):
        return 200, {"errors": [], "warnings": []}

    def preupload(self, body):
        as_is = {"uploadMode": "regular", "shouldIgnore": False}
        return 200, {"files": [as_is | {"path": one["path"]} for one in json.loads(body)["files"]]}

    def commit(self, body):
        lines = [json.loads(line) for line in body.splitlines()]
        self.commits.append(lines)
        for line in lines:
            if line["key"] == "file":
                self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del self.files[line["value"]["path"]]
        return 200, {"commitUrl": f"{self.address}/me/tiny/commit/1", "commitOid": "1"}


class _Answer(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def _say(self, status, answer):
        if self.server.status != 200:
            status, answer = self.server.status, {"error": self.server.message}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server
        if self.path.partition("?")[0] != "/api/models/me/tiny" or not hub.there:
            return self._say(404, {"error": ""})
        names = [{"rfilename": name} for name in hub.files]
        return self._say(200, {"id": "me/tiny", "private": hub.private, "siblings": names})

    def do_POST(self):
        hub, body = self.server, self.rfile.read(int(self.headers["Content-Length"]))
        hub.tokens.add(self.headers["Authorization"])
        answers = {
            "create": hub.create,
            "validate-yaml": hub.validate_yaml,
            "preupload": hub.preupload,
            "commit": hub.commit,
        }
        return self._say(*answers[self.path.removesuffix("/main").rpartition("/")[2]](body))


@pytest.fixture
def hub(monkeypatch):
    server = _Hub()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    # huggingface_hub reads HF_ENDPOINT and HF_HUB_OFFLINE when it is imported.
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "of-a-test")
    yield server
    server.shutdown()
    server.server_close()


def test_all_files_are_one_commit(hub, home, pushed, capsys):
    assert main(["push", str(home / "runs" / "tiny"), "me/tiny", "--private"]) == 0
    printed = json.loads(capsys.readouterr().out)
    commit = f"{hub.address}/me/tiny/commit/1"
    assert printed == {"repo": "me/tiny", "commit": commit, "files": FILES}
    assert hub.files == {name: (pushed / name).read_bytes() for name in FILES}
    assert (len(hub.commits), hub.private, hub.tokens) == (1, True, {"Bearer of-a-test"})


def test_a_later_push_takes_the_bundle_of_an_earlier_one_away_and_leaves_the_owners_files(
    hub, home
):
    hub.there = True
    hub.files = {"bundle/model.onnx": b"old", "picture.png": b"mine", "README.md": b"old"}
    push(home / "runs" / "tiny", "me/tiny")
    assert sorted(hub.files) == sorted([*FILES, "picture.png"])
    assert hub.files["README.md"].startswith(b"---\n")
    assert len(hub.commits) == 1


def test_nothing_private_goes_to_a_public_repository(hub, home):
    hub.there = True
    with pytest.raises(InputError, match="is there already, and public"):
        push(home / "runs" / "tiny", "me/tiny", private=True)
    assert not hub.commits


TOKEN = "no token, or one that may not write there; hf auth login, or HF_TOKEN"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, f"refuses (401): {TOKEN}"),
        (403, f"refuses (403): {TOKEN}"),
        (429, "answers 429: too much of it"),
    ],
)
def test_a_refusal_is_one_line(hub, home, capsys, status, said):
    hub.status, hub.message = status, "too much of it"
    assert main(["push", str(home / "runs" / "tiny"), "me/tiny"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"distillkit: me/tiny: {hub.address} {said}"


def test_a_hub_that_is_not_there_is_one_line(hub, home, capsys):
    hub.shutdown()
    hub.server_close()
    assert main(["push", str(home / "runs" / "tiny"), "me/tiny"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"distillkit: me/tiny: {hub.address} cannot be reached: " in said


def test_offline_is_said(hub, home, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        push(home / "runs" / "tiny", "me/tiny")
