"""What README and docs show: their code runs, commands and options exist, links lead somewhere."""

import ast
import contextlib
import importlib
import importlib.util
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from distillkit import cli
from distillkit.data.tables import read_table
from distillkit.pipeline import StudentJob, train_student
from distillkit.recipe import (
    ColumnsConfig,
    EmbeddingConfig,
    LossConfig,
    StudentConfig,
    TrainingConfig,
)

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *sorted({*ROOT.glob("*/README.md"), *ROOT.glob("benchmarks/*.md")}),
    ROOT / "CHANGELOG.md",
]
README = PAGES[0].read_text(encoding="utf-8")
# Of torchrun, Ray, pip and our benchmarks; and sections of which every key is an option.
OTHERS = """--address --column --compress --epochs --glove --head --help-all --json --loss --max-restarts --millions
--nnodes --no-build-isolation --nproc-per-node --pieces --rdzv-backend --rdzv-endpoint --results --search --shutdown-timeout
--teacher.training --training --widths"""


def blocks(page, language):
    """Return a page's fenced blocks of a language; what is indented counts as `sh`."""
    found = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    if language == "sh":
        indented = re.findall(
            r"(?:^ {4}.*\n)+", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.M
        )
        found += [re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in indented]
    return found


def commands(page):
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in re.split(" [|] ", line.partition(" #")[0])]
    found = [re.match(r"(?:.venv/bin/)?distillkit (.*)", part) for part in parts]
    return [shlex.split(one[1].partition(" < ")[0]) for one in found if one]


SHOWN = [(path.name, args) for path in PAGES for args in commands(path.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def student_folder(tmp_path_factory, train_table, dev_table):
    """A small student where README's quickstart leaves its own."""
    tmp_path = tmp_path_factory.mktemp("readme")
    for name, rows in (("train", train_table), ("dev", dev_table)):
        text = "".join(f"{row['text']}\t{row['label']}\n" for row in rows.to_pylist())
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + text)
    reviews = read_table("embedded:reviews/train", ColumnsConfig()).slice(0, 200)
    reviews.to_pandas().to_csv(tmp_path / "train.csv", index=False)
    folder = tmp_path / "runs" / "quickstart" / "student" / "model"
    student = StudentConfig(
        hidden_size=4, head_size=4, embeddings=EmbeddingConfig(source="random", dimension=4)
    )
    train_student(
        StudentJob(
            str(tmp_path / "train.tsv"),
            str(tmp_path / "dev.tsv"),
            folder,
            student,
            loss=LossConfig(alpha=1.0),
            training=TrainingConfig(epochs=1),
        )
    )
    return tmp_path


def python_blocks():
    """README's blocks, and those of docs/python.md that stand alone; one distils."""
    alone = (
        (ROOT / "docs" / "python.md").read_text(encoding="utf-8").partition("## In transformers")
    )
    return [
        pytest.param(block, marks=[pytest.mark.slow] if "distill(" in block else [])
        for block in [*blocks(README, "python"), *blocks(alone[2], "python")]
    ]


@pytest.mark.parametrize("block", python_blocks())
def test_python_runs_as_it_stands(block, student_folder, monkeypatch):
    # The real encoder and every stage, with fewer rows and steps: no figure is asked for.
    for name, value in (
        ("recipe.teacher.TEACHER_STEPS", 60),
        ("recipe.training.STUDENT_STEPS", 200),
        ("recipe.augment.LEAST_VARIANTS", 2),
        ("recipe.augment.MOST_VARIANTS", 4),
        ("pipeline.raw_text.AUTO_RAW_ROWS", 100),
        ("compress.run._TRIAL_STEPS", 10),
    ):
        monkeypatch.setattr(f"distillkit.{name}", value)
    monkeypatch.chdir(student_folder)
    exec(block, {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("page", "args"), SHOWN, ids=lambda one: one if isinstance(one, str) else one[0]
)
def test_commands_parse(page, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = blocks(README, "yaml")[0]
    for name in ("mine.yaml", "runs/quickstart/tune/best.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(recipe)
    labelled = "".join(f"it was the one of {i},{'good' if i % 2 else 'bad'}\n" for i in range(40))
    (tmp_path / "train.csv").write_text(f"text,label\n{labelled}")
    if "--help" in args:
        with pytest.raises(SystemExit) as stop:
            cli.parse(args[0], args[1:])
        assert stop.value.code == 0
    else:
        assert isinstance(cli.parse(args[0], args[1:]), cli.COMMANDS[args[0]])


def test_every_command_is_shown():
    assert {args[0] for _, args in SHOWN} | {"list"} == set(cli.COMMANDS)


def test_every_option_that_is_named_exists():
    known = io.StringIO()
    for name in cli.COMMANDS:
        with contextlib.redirect_stdout(known), contextlib.suppress(SystemExit):
            cli.parse(name, ["--help-all"])
    known = set(re.findall(r"--[a-z][\w.-]*", known.getvalue() + OTHERS))
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        named = {one.rstrip(".") for one in re.findall(r"(?<![\w-])--[a-z][\w.-]*", page)}
        assert named - known == set(), path.name


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"^make (\w+)", "".join(blocks(README, "sh")), re.MULTILINE)
    assert named
    assert set(named) <= targets


@pytest.fixture(scope="module")
def figures():
    """What makes tables and pictures, which is not installed."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("tables"), importlib.import_module("pictures")
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_are_made_from_the_result_files(path, figures):
    page = path.read_text(encoding="utf-8")
    assert figures[0].made(page)[0] == page, "python benchmarks/tables.py"
    marks = re.findall("^<!-- results:", page, re.MULTILINE)
    assert len(marks) == len(figures[0].TABLE.findall(page)), "a comment without a table below it"


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_table_with_a_column_of_figures_names_its_file(path):
    page = path.read_text(encoding="utf-8")
    for before in re.findall(r"(.*)\n\|.*\n\|[-:|]*-:[-:|]*\n", page):
        assert re.fullmatch("<!-- results: .* -->", before), before


def test_pictures_are_drawn_from_the_result_files(figures):
    for name, picture in figures[1].pictures().items():
        drawn = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert drawn == picture, "python benchmarks/pictures.py"


def test_every_result_file_says_what_was_measured_how_and_is_shown():
    text = "".join(path.read_text(encoding="utf-8") for path in LINKED)
    files = sorted(ROOT.glob("benchmarks/results/*.json"))
    assert {file.stem for file in files} == set(re.findall(r"(?m)^<!-- results: (.*) -->$", text))
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        assert list(found)[:6] == ["what", "command", "commit", "date", "machine", "seeds"]
        assert all(found[key] for key in found if key != "seeds"), file.name
        assert re.fullmatch("[0-9a-f]{7,}", found["commit"]), file.name


def anchors(path):
    """Return a page's headings as GitHub names them in an address."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    page = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^):\s]+)\)|src=\"([^\":]+)\"", page):
        file, _, heading = "".join(link).partition("#")
        place = path.parent / file if file else path
        assert place.exists(), link
        assert not heading or heading in anchors(place), link


@pytest.fixture(scope="module")
def messages():
    spec = importlib.util.spec_from_file_location("messages", ROOT / "docs" / "messages.py")
    sys.modules["messages"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = module.messages()  # both take seconds, and the page asks for them too
    tests = module.tests_of(known)
    module.messages, module.tests_of = lambda: known, lambda _: tests
    return module


def test_the_page_of_messages_has_what_every_error_says(messages):
    page = " ".join(messages.page().replace("\\", "").split())
    for path in (ROOT / "distillkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and "InputError(" in ast.unparse(node)[:20]:
                parts = [p for arg in node.exc.args for p in getattr(arg, "values", [arg])]
                words = [part.value for part in parts if isinstance(part, ast.Constant)]
                said = [word for word in words if isinstance(word, str)]
                assert said or not words
                assert all(" ".join(word.split()) in page for word in said), (path, said)


def test_half_of_all_messages_have_a_test_of_their_own(messages):
    known = messages.messages()
    tests = messages.tests_of(known)
    assert sum(map(bool, tests.values())) > len(known) / 2
    (one,) = [message for message in known if message.shown.startswith("<path> uses itself")]
    assert tests[one] == ["tests/test_recipe.py::test_a_file_that_uses_itself_is_refused"]


@pytest.mark.slow
def test_the_site_has_every_page_and_no_dead_link(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / "docs" / path.stem / "index.html").is_file()
    options = (tmp_path / "docs" / "reference" / "commands" / "index.html").read_text()
    assert all(f'id="{name}"' in options for name in cli.COMMANDS)
    keys = (tmp_path / "docs" / "reference" / "recipe" / "index.html").read_text()
    assert "Probability" in keys
    assert 'id="augmentmarkov"' in keys
    errors = (tmp_path / "docs" / "reference" / "errors" / "index.html").read_text()
    assert "<em>path</em> uses it" in errors


@pytest.mark.slow
def test_the_wheel_carries_the_shelves_and_the_data(tmp_path):
    shutil.copytree(
        ROOT,
        tmp_path / "src",
        ignore=shutil.ignore_patterns(".git", ".venv*", "runs", ".*_cache", ".hypothesis"),
    )
    code = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=tmp_path / "src",
        check=True,
        capture_output=True,
    )
    wheel = next(tmp_path.glob("*.whl"))
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    code = (
        "from distillkit import shelf; from distillkit.data.tables import read_table; from distillkit.recipe import ColumnsConfig;"
        "print(*shelf.entries('recipes'));"
        "print(len(read_table('embedded:reviews/train', ColumnsConfig())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
    )
    assert "quickstart" in done.stdout.splitlines()[0].split()
    assert (tmp_path / "site" / "distillkit" / "py.typed").is_file()
    assert done.stdout.splitlines()[1] == "2600"
    assert (tmp_path / "site" / "distillkit" / "measure" / "card.md.j2").is_file()
    assert (tmp_path / "site" / "distillkit" / "py.typed").is_file()
    assert sorted(
        path.name for path in (tmp_path / "site").iterdir() if not path.name.endswith(".dist-info")
    ) == ["distillkit"]


def test_each_deliberate_mistake_still_has_its_place_in_the_code():
    mistakes = yaml.safe_load((ROOT / "benchmarks" / "mistakes.yaml").read_text())
    for mistake in mistakes:
        code = (ROOT / mistake["file"]).read_text(encoding="utf-8")
        assert code.count(mistake["old"]) == 1, mistake["name"]
