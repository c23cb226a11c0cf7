"""README's code runs as it stands, and its commands are ones that the command line knows."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    found = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found, f"README has no {language} block"
    return found


def commands():
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    parts = [part.strip() for line in lines for part in line.partition("#")[0].split("|")]
    return [shlex.split(part)[1:] for part in parts if part.startswith("distillkit ")]


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
    """README's blocks; the one that distils takes minutes."""
    return [
        pytest.param(block, marks=[pytest.mark.slow] if "distill(" in block else [])
        for block in blocks("python")
    ]


@pytest.mark.parametrize("block", python_blocks())
def test_python_runs_as_it_stands(block, student_folder, monkeypatch):
    monkeypatch.chdir(student_folder)
    exec(block, {"__name__": "__main__"})


@pytest.mark.parametrize("args", commands(), ids=lambda args: args[0])
def test_commands_parse(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(blocks("yaml")[0])
    if "--help" in args:
        with pytest.raises(SystemExit) as stop:
            cli.parse(args[0], args[1:])
        assert stop.value.code == 0
    else:
        assert isinstance(cli.parse(args[0], args[1:]), cli.COMMANDS[args[0]])


def test_every_command_is_in_readme():
    assert {args[0] for args in commands()} | {"list"} == set(cli.COMMANDS)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", "".join(blocks("sh")), re.MULTILINE)) <= targets


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_the_wheel_carries_the_shelves_and_the_data(tmp_path):
    pytest.importorskip("hatchling")
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
