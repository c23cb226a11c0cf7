"""A bundle answers without torch, and one that is not whole is refused in a line."""

import io
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import distillkit
from distillkit import pipeline
from distillkit.cli import main
from distillkit.errors import InputError
from distillkit.runtime import Predictor
from distillkit.runtime.answers import check_finite, softmax
from distillkit.runtime.bundle import Manifest, described, read_bundle, write_bundle
from distillkit.runtime.predictor import parts_of

GOLDEN = Path(__file__).parent.parent / "golden" / "0.1" / "bundle"
TEXTS = [
    "the film was great .",
    "a plot is weak .",
    "",
    "nothing known here",
    "the cast was bad . " * 40,
]


@pytest.fixture(scope="module")
def folder(classifier_folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("bundles") / "teacher"
    pipeline.export(classifier_folder, target)
    return target


@pytest.fixture
def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "bundle")


@pytest.fixture(scope="module")
def wanted(classifier_folder):
    return list(pipeline.predict(classifier_folder, [(text, None) for text in TEXTS]))


def _same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert {**ours, "probabilities": None} == {**theirs, "probabilities": None}
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-6)


def test_answers_are_those_of_the_model_in_torch(folder, wanted):
    predictor = Predictor(folder)
    _same(predictor.stream((text, None) for text in TEXTS), wanted)
    _same(predictor.stream(((text, None) for text in TEXTS), batch_rows=1), wanted)
    labels = [answer["label"] for answer in wanted]
    assert [answer["label"] for answer in predictor.predict(TEXTS)] == labels
    assert (predictor.labels, predictor.task) == (["negative", "positive"], "classification")
    assert predictor.logits([]).shape == (0, 2)


def test_a_transformer_takes_pairs_and_single_texts_in_one_stream(folder, classifier_folder):
    film = "the film was great ."
    rows = [(film, None), (film, "a plot is weak ."), ("", "bad"), ("bad", None)]
    _same(Predictor(folder).stream(rows), pipeline.predict(classifier_folder, rows))


def test_threads_may_ask_at_once(folder):
    predictor = Predictor(folder)
    alone = [predictor.logits([text]) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: predictor.logits([TEXTS[i % len(TEXTS)]]), range(200)))
    for i, logits in enumerate(found):
        assert np.array_equal(logits, alone[i % len(TEXTS)])


@pytest.mark.slow
def test_students_are_made_without_the_packages_of_bundles():
    code = (
        "import sys; sys.modules |= dict.fromkeys(('onnxruntime', 'onnx', 'onnxscript'));"
        "from distillkit import doctor, ladder, pipeline, runs; from distillkit.tune import study;"
        "print(pipeline.train_student.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "train_student\n", done.stderr


def test_the_command_answers_from_a_bundle_without_torch(folder, wanted):
    code = (
        "import sys; from distillkit.cli import main; main(sys.argv[1:]);"
        "print(sorted({'torch', 'transformers', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "predict", str(folder)],
        input="".join(f"{text}\n" for text in TEXTS),
        capture_output=True,
        text=True,
        check=True,
    )
    *answers, loaded = done.stdout.splitlines()
    _same([json.loads(line) for line in answers], wanted)
    assert loaded == "[]"


def _needed(name, extras=()):
    """Return the installed packages that a package with extras needs, and their own needs."""
    found, todo = {}, [(name, tuple(extras))]
    while todo:
        name, extras = todo.pop()
        distribution = metadata.distribution(name)
        found[canonicalize_name(name)] = distribution
        for text in distribution.requires or ():
            wanted = Requirement(text)
            meant = wanted.marker is None or any(
                wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if meant and canonicalize_name(wanted.name) not in found:
                todo.append((wanted.name, tuple(wanted.extras)))
    return found


def _site(place, extra):
    """Fill a folder with just what `pip install 'distillkit[EXTRA]'` installs."""
    packages = _needed("distillkit", [extra])
    assert {"onnxruntime", "tokenizers", "numpy"} < set(packages)
    assert not {"torch", "transformers", "pyarrow", "scipy", "scikit-learn"} & set(packages)
    (place / "distillkit").symlink_to(Path(distillkit.__file__).parent)
    for distribution in packages.values():
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (place / top).exists():
                (place / top).symlink_to(distribution.locate_file(top))
    return place


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """What answers from a bundle, and no more."""
    return _site(tmp_path_factory.mktemp("site"), "runtime")


def _alone(site, code, *arguments, **options):
    ours = f"sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(site)!r}]"
    command = [sys.executable, "-I", "-S", "-c", f"import sys; {ours}; {code}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


COMMAND = "from distillkit.cli import main; sys.exit(main(sys.argv[1:]))"


def test_what_the_runtime_extra_installs_is_enough_to_answer_and_no_more(
    site, folder, wanted, tmp_path
):
    typed = "".join(f"{text}\n" for text in TEXTS)
    done = _alone(site, COMMAND, "predict", str(folder), input=typed)
    assert done.returncode == 0, done.stderr
    _same([json.loads(line) for line in done.stdout.splitlines()], wanted)
    code = f"from distillkit.runtime import Predictor; print(Predictor({str(folder)!r}).labels)"
    assert _alone(site, code).stdout == "['negative', 'positive']\n"
    (tmp_path / "in.txt").write_text("good\n\nbad\n")
    for arguments, reason in (
        (["augment", "embedded:reviews/train", "out.parquet"], r"augment needs \w+: .*\[train\]'"),
        (["serve", folder], r"serve needs \w+: pip install 'distillkit\[serve\]'"),
        (["predict", f"{folder}x"], f"{folder}x: no such folder or file; expected a distillkit ex"),
        (["predict", folder, "gone.tsv"], "gone.tsv: no such file"),
        (["predict", folder, tmp_path / "in.txt"], r"predict needs \w+: pip install"),
        (["predict", tmp_path], r"predict needs \w+: pip install"),
    ):
        done = _alone(site, COMMAND, *map(str, arguments), cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert re.match(f"distillkit: {reason}", done.stderr)


def test_what_the_serve_extra_installs_is_enough(tmp_path, folder):
    code = (
        "from distillkit.runtime import Predictor; import uvicorn, distillkit.serve.server;"
        "from distillkit.serve.app import Service; from distillkit.serve.limits import Limits;"
        f"service = Service(Predictor({str(folder)!r}), Limits(threads=1)); print('torch' in sys.modules)"
    )
    done = _alone(_site(tmp_path, "serve"), code)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
def test_one_file_is_the_same_bundle_and_the_same_bytes_each_time(
    classifier_folder, tmp_path, folder, exported_graphs
):
    for name in ("one", "two"):
        exported_graphs.clear()
        pipeline.export(classifier_folder, tmp_path / name, one_file=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    one = Predictor(tmp_path / "one").logits(TEXTS)
    assert np.array_equal(one, Predictor(folder).logits(TEXTS))


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_missing_a_cut_and_a_changed_file_are_refused(copied, name):
    data = (copied / name).read_bytes()
    (copied / name).write_bytes(data[:-1])
    size = len(data)
    with pytest.raises(
        InputError, match=f"{name}: {size - 1} bytes, and manifest.json says {size}"
    ):
        Predictor(copied)
    (copied / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InputError, match=rf"{name}: its SHA-256 is not what manifest.json says"):
        Predictor(copied)
    (copied / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        Predictor(copied)


KEYS = '"task": "regression", "labels": [], "max_tokens": 1, "pairs": null, "pad_id": 0'


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"format": 1',
        "[]",
        "{}",
        f'{{{KEYS}, "files": []}}',
        f'{{{KEYS}, "files": {{"a": {{}}}}}}',
    ],
)
def test_a_broken_manifest_is_refused(copied, text):
    (copied / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json: .*expected"):
        Predictor(copied)


def _changed(copied, **values):
    place = copied / "manifest.json"
    said = json.loads(place.read_text())
    del said["sha256"]
    place.write_text(Manifest(**said | values).text())


def test_a_manifest_that_does_not_fit_is_refused(copied):
    tokenizer = json.loads((copied / "manifest.json").read_text())["files"]["tokenizer.json"]
    for labels in (["x"], ["x", "y", "z"], []):
        _changed(copied, labels=labels)
        said = rf"manifest\.json has {len(labels)} labels, and model\.onnx answers 2"
        with pytest.raises(InputError, match=said):
            Predictor(copied)
    for values, said in (
        ({"format": 2}, "format 2, and this version reads 1"),
        ({"format": 1, "files": {"tokenizer.json": tokenizer}}, r"lists no model\.onnx"),
        ({"files": {}}, r"lists no tokenizer\.json"),
    ):
        _changed(copied, **values)
        with pytest.raises(InputError, match=said):
            Predictor(copied)


def test_a_temperature_softens_the_probabilities_and_no_logits(folder, copied, wanted):
    _changed(copied, temperature=2.0)
    cool, warm = Predictor(folder), Predictor(copied)
    assert (warm.logits(TEXTS) == cool.logits(TEXTS)).all()
    for text, found in zip(TEXTS, warm.predict(TEXTS), strict=True):
        halved = softmax(cool.logits([text]) / 2)[0]
        assert list(found["probabilities"].values()) == pytest.approx(halved.tolist(), abs=1e-6)
    assert "temperature" not in json.loads((folder / "manifest.json").read_text())  # older readers


RULE = {
    "weights": {"the": 1.0, "film": 2.0, "was": 1.0},
    "rare": -1.0,
    "threshold": 0.5,
    "own_refused": 0.0,
    "foreign_refused": {},
}


def test_text_unlike_the_training_text_is_refused_only_where_it_is_asked(copied, capsys):
    _changed(copied, rejection=RULE)
    predictor, plain = Predictor(copied), Predictor(copied).predict(TEXTS)
    assert "rejected" not in plain[0]
    found = predictor.predict(TEXTS, reject=True)
    # (1 + 2 + 1 - 2) / sqrt(5) is above the threshold; the empty text has no word.
    assert [answer["rejected"] for answer in found] == [False, True, True, True, True]
    assert found[0] == plain[0] | {"rejected": False}
    assert found[1] == plain[1] | {"rejected": True, "label": None}
    pair = predictor.predict(["the film was"], ["a b c d e f"], reject=True)[0]
    assert pair["rejected"]
    assert predictor.words(["The FILM, 电影"]) == [["the", "film", ",", "电", "影"]]
    file = copied / "texts.txt"
    file.write_text("a plot is weak .\n")
    assert main(["predict", str(copied), str(file), "--reject"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["rejected"], row["label"]) == (True, None)


def test_label_sets_have_the_label_and_grow_with_the_coverage(copied, capsys):
    _changed(copied, coverage={"0.50": 0.9, "0.90": 0.4, "0.99": 0.0})
    predictor = Predictor(copied)
    for coverage, floor in ((0.3, 0.9), (0.5, 0.9), (0.6, 0.4), (0.9, 0.4), (0.99, 0.0)):
        for answer in predictor.predict(TEXTS, coverage=coverage):
            wanted = {name for name, share in answer["probabilities"].items() if share >= floor}
            assert set(answer["labels"]) == wanted | {answer["label"]}
    file = copied / "texts.txt"
    file.write_text("a plot is weak .\n")
    assert main(["predict", str(copied), str(file), "--coverage", "0.99"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == ["negative", "positive"]
    for coverage in (0.995, -1.0):
        with pytest.raises(InputError, match=r"expected above 0 and at most 0\.99"):
            predictor.predict(TEXTS, coverage=coverage)


def test_a_bundle_without_rule_or_sets_says_so_in_a_line(folder, copied, capsys):
    for option, said in (("--reject", "no rejection rule"), ("--coverage=0.9", "no label sets")):
        for command in ("predict", "serve"):
            assert main([command, str(folder), option]) == 1
            assert said in capsys.readouterr().err.splitlines()[-1]
    _changed(copied, cascade={"temperature": 1.0, "threshold": 0.5}, coverage={"0.50": 0.9})
    with pytest.raises(InputError, match="leave teacher out"):
        Predictor(copied, teacher=Predictor(folder)).predict(TEXTS, coverage=0.5)
    assert {"coverage", "rejection"}.isdisjoint(json.loads((folder / "manifest.json").read_text()))


def test_export_fits_confidence_on_labelled_rows(classifier_folder, dev_table, tmp_path, capsys):
    dev = tmp_path / "dev.jsonl"
    rows = dev_table.to_pandas()
    rows.loc[0, "label"] = rows["label"][rows["label"] != rows["label"][0]].iloc[0]
    rows.to_json(dev, orient="records", lines=True)
    target = tmp_path / "bundle"
    assert main(["export", classifier_folder, str(target), "--dev", str(dev)]) == 0
    manifest = Predictor(target).manifest
    assert manifest.temperature != 1
    assert "0.95" in manifest.coverage
    few = tmp_path / "few.jsonl"
    few.write_text("".join(f"{line}\n" for line in dev.read_text().splitlines()[:3]))
    assert main(["export", classifier_folder, str(tmp_path / "few"), "--dev", str(few)]) == 0
    assert "no temperature: dev has 3 rows, fewer than 20" in capsys.readouterr().err
    assert Predictor(tmp_path / "few").manifest.temperature == 1
    dev.write_text('{"text": "the film was great .", "label": "strange"}\n')
    assert main(["export", classifier_folder, str(tmp_path / "b"), "--dev", str(dev)]) == 1
    assert "strange" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "b").exists()


def test_a_graph_that_cannot_be_loaded_is_refused_by_name(copied):
    manifest, files = read_bundle(copied)
    files["model.onnx"] = b"not a graph"
    write_bundle(copied, replace(manifest, files=described(files)), files, one_file=False)
    with pytest.raises(
        InputError, match=r"model\.onnx: expected a graph that ONNX Runtime .* loads"
    ):
        Predictor(copied)


def test_what_is_no_bundle_is_refused(tmp_path, folder, capsys):
    with pytest.raises(InputError, match="no such folder or file"):
        Predictor(tmp_path / "gone")
    with pytest.raises(InputError, match=r"no manifest\.json"):
        Predictor(tmp_path)
    # A bundle in one file is an ordinary ZIP archive.
    whole = Path(shutil.make_archive(str(tmp_path / "whole"), "zip", folder))
    Predictor(whole)
    (tmp_path / "cut").write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(InputError, match="expected a whole bundle"):
        Predictor(tmp_path / "cut")
    assert main(["predict", str(tmp_path / "cut")]) == 1
    assert "expected a whole bundle" in capsys.readouterr().err


def test_single_texts_are_no_pairs(folder, copied):
    _changed(copied, pairs=False)
    with pytest.raises(InputError, match="this model answers single texts"):
        Predictor(copied).logits(["a"], ["b"])
    with pytest.raises(InputError, match="only a siamese model has vectors"):
        Predictor(folder).vectors(["a"])
    vectors = np.zeros((1, 4), np.float32)
    with pytest.raises(InputError, match="only a siamese model compares vectors"):
        Predictor(folder).compare(vectors, vectors)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("good",), "texts: expected a list of texts, found one text"),
        ((["good"], "good"), "text_pairs: expected a list of texts, found one text"),
        (([None],), r"texts\[0\]: expected a text, found NoneType"),
        ((["good", 1],), r"texts\[1\]: expected a text, found int"),
        (({"text": "good"},), "texts: expected a list of texts, found a dict; give its column"),
        ((pd.DataFrame({"text": ["good"]}),), "texts: expected a list of texts, found a DataFrame"),
        ((["good", "bad"], ["good", None]), r"text_pairs\[1\]: expected a text, found NoneType"),
        ((["good", "bad"], ["good"]), "text_pairs: 1 for 2 texts"),
        ((["good"], ["good", "bad"]), "text_pairs: 2 for 1 texts"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(folder, given, reason):
    for ask in (Predictor(folder).predict, Predictor(folder).logits):
        with pytest.raises(InputError, match=f"^{reason}"):
            ask(*given)


def test_a_series_is_read_by_place_not_by_its_index(folder, classifier_folder):
    texts = ["the film was great", "a plot — awful", "the cast was bad", "a bright café"]
    series = pd.Series(texts, index=[2, 0, 3, 1])
    in_torch = pipeline.answers.Classifier(classifier_folder)
    for model in (Predictor(folder), Predictor(GOLDEN), in_torch):
        assert model.explain(series) == model.explain(texts)
        assert np.array_equal(model.logits(series[series != texts[0]]), model.logits(texts[1:]))
    for model in (Predictor(folder), in_torch):
        assert model.explain(iter(texts)) == model.explain(texts)
    pairs = Predictor(folder).logits(series, series.iloc[::-1])
    assert np.array_equal(pairs, Predictor(folder).logits(texts, texts[::-1]))


def test_logits_that_are_no_numbers_are_refused_by_all_that_answers(
    damaged, folder, tmp_path, capsys
):
    rows = "the film was good .\tpositive\nthe film was awful .\tnegative\n"
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + 5 * rows)
    places = damaged / "model", damaged / "bundle", tmp_path / "dev.tsv", tmp_path / "out"
    model, bundle, dev, out = map(str, places)
    for command in (
        ["predict", model, dev],
        ["predict", bundle, dev],
        ["evaluate", model, dev],
        ["cascade", bundle, str(folder), dev, "--output", out],
        ["cascade", str(folder), model, dev, "--output", out],
        ["export", model, out, "--source", dev],
    ):
        assert main(command) == 1, command
        said = capsys.readouterr()
        assert "NaN" not in said.out
        line = said.err.splitlines()[-1]
        assert re.match(r"distillkit: .*a logit (is|of row 2 .* by) nan", line)
    for ask in (Predictor(bundle).predict, Predictor(bundle).logits):
        assert len(ask(["good"])) == 1
        for texts in (["awful"], ["good", "awful"]):
            with pytest.raises(InputError, match=r"a logit is nan, .*'awful'"):
                ask(texts)
    with pytest.raises(InputError, match="is -inf"):
        check_finite("model", np.array([[0.0, -np.inf]], np.float32), ["a"])


def test_a_full_group_does_not_wait_for_the_next_row(folder):
    def typed():
        yield "good", None
        pytest.fail("asked for a second row before the first was answered")

    assert next(Predictor(folder).stream(typed(), batch_rows=1))["text"] == "good"


def test_a_line_of_stdin_that_is_of_the_other_kind_is_named_and_a_blank_one_is_answered(
    copied, monkeypatch, capsys
):
    def ask(pairs, given):
        _changed(copied, pairs=pairs)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        status = main(["predict", str(copied)])
        return status, capsys.readouterr()

    status, said = ask(False, b"good\n\nbad\n")
    assert status == 0
    assert [json.loads(line)["text"] for line in said.out.splitlines()] == ["good", "", "bad"]
    status, said = ask(False, b"good\n\nbad\tgood\n")
    assert status == 1
    assert said.err.splitlines()[-1].startswith("distillkit: stdin:3: this model answers single")


def test_a_target_that_cannot_be_written_is_refused_before_the_model_is_read(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        pipeline.export("no-such-model", tmp_path / "file" / "bundle")
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        pipeline.export("no-such-model", tmp_path / "file" / "bundle", one_file=True)
    with pytest.raises(InputError, match="is a folder, and --one-file writes a file"):
        pipeline.export("no-such-model", tmp_path, one_file=True)


def test_a_graph_that_answers_otherwise_is_not_written(classifier_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["distillkit.pipeline.export"], "PARITY", 1e-12)
    with pytest.raises(InputError, match="not written: a logit of row"):
        pipeline.export(classifier_folder, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_not_replaced(classifier_folder, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        pipeline.export(classifier_folder, tmp_path)


def test_export_says_what_it_wrote(classifier_folder, tmp_path, capsys):
    output = tmp_path / "b"
    asked = ["export", classifier_folder, str(output), "--source", "embedded:reviews/dev"]
    assert main(asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["output"] == str(output)
    assert said["parity"]["rows"] > 300
    files = [file.read_bytes() for file in output.iterdir()]
    assert said["megabytes"] == sum(map(len, files)) / 1e6
    assert not [data for data in files if b".py" in data]  # nor where the machine keeps its code


@pytest.mark.slow
def test_in_int8_answers_are_near_and_it_is_said_how_near(
    classifier_folder, wanted, tmp_path, capsys, monkeypatch
):
    args = ["export", classifier_folder, str(tmp_path / "b"), "--source", "embedded:reviews/dev"]
    args.append("--int8")
    assert main(args) == 0
    parity = json.loads(capsys.readouterr().out)["parity"]
    assert 1e-4 < parity["relative"] < 0.2
    predictor = Predictor(tmp_path / "b")
    assert predictor.manifest.made_from["arithmetic"] == "int8"
    assert predictor.manifest.parity == parity
    logits = predictor.logits(TEXTS)
    rounded = [answer["probabilities"]["positive"] for answer in predictor.predict(TEXTS)]
    whole = [answer["probabilities"]["positive"] for answer in wanted]
    assert 0 < np.abs(np.subtract(rounded, whole)).max() < 0.1
    assert logits.shape == (len(TEXTS), 2)
    half = parity["relative"] / 2
    monkeypatch.setattr(sys.modules["distillkit.pipeline.export"], "INT8_PARITY", half)
    args[2] = str(tmp_path / "refused")
    assert main(args) == 1
    assert "% is allowed; export it without --int8" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()


def test_parts_are_of_like_length_and_bounded():
    lengths = [5000, 3, 1, 2000, 2000, 2000, 3]
    parts = list(parts_of(lengths))
    assert sorted(row for part in parts for row in part) == list(range(7))
    assert parts == [[2, 1, 6], [3, 4], [5], [0]]
