"""The notebooks: stored without outputs, their commands parse, and their cells run in order."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from distillkit import cli

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def sources(path):
    """Return what each code cell runs; a command that goes over several lines is one."""
    return [re.sub(r"\\\n\s*", "", "".join(cell["source"])) for cell in code_cells(path)]


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["pairs", "tutorial"]


@each_notebook
def test_a_notebook_is_stored_without_outputs(path):
    for cell in code_cells(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


@each_notebook
def test_commands_of_a_notebook_parse(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.yaml", "pairs.yaml"):
        (tmp_path / name).write_text("seed: 1\n")
    lines = re.findall(r"^!.*distillkit (.*)$", "\n".join(sources(path)), re.M)
    shown = [shlex.split(line) for line in lines]
    assert shown
    for name, *options in shown:
        assert isinstance(cli.parse(name, options), cli.COMMANDS[name])


# Of every run: the last of two equal options counts, and no figure is asked for.
SHORT = (
    " --teacher.training.epochs 1 --training.steps 150 --augment.n-iter 2 --evaluation.gold-epochs 1"
    " --evaluation.latency-sentences 20 --ship.compress.embeddings int8 --ship.compress.weights int8"
)


def run_command(line):
    """Run a `!` line as a notebook does, with the distillkit that is tested; a failure ends it."""
    line += SHORT if "distillkit run " in line else ""
    line = re.sub(r"\bdistillkit (?=[a-z])", f"{shlex.quote(sys.executable)} -m distillkit ", line)
    subprocess.run(line, shell=True, check=True)


@pytest.mark.slow
@each_notebook
def test_the_cells_of_a_notebook_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__", "run_command": run_command}
    for source in sources(path):
        source = re.sub(r"^!(.*)$", lambda m: f"run_command({m[1]!r})", source, flags=re.M)
        exec(compile(source, path.name, "exec"), names)
    assert names["answers"]
    assert all(answer["label"] in answer["probabilities"] for answer in names["answers"])
    assert len(list(tmp_path.glob("runs/*/bundle.zip"))) == 1
