"""The files of a command that measures."""

import json
import sys

from distillkit.measure.results import write_results


def _write(folder):
    def draw(figure):
        figure.subplots().set_xlabel("milliseconds")

    write_results("bench", folder, {"name": "großes Modell"}, "| a |\n|---|", (4, 4), draw)
    return {path.name for path in folder.iterdir()}


def test_a_command_writes_its_json_table_and_picture(tmp_path, capsys):
    assert _write(tmp_path) == {"bench.json", "bench.md", "bench.svg"}
    assert json.loads((tmp_path / "bench.json").read_text()) == {"name": "großes Modell"}
    assert (tmp_path / "bench.md").read_text() == "| a |\n|---|\n"
    drawn = (tmp_path / "bench.svg").read_bytes()
    assert b"milliseconds" in drawn
    assert capsys.readouterr().err == f"\n| a |\n|---|\n\n{tmp_path / 'bench.json'}\n"
    _write(tmp_path)
    assert (tmp_path / "bench.svg").read_bytes() == drawn  # without a date


def test_without_matplotlib_all_but_the_picture_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert _write(tmp_path) == {"bench.json", "bench.md"}
    assert "bench: no picture" in (said := capsys.readouterr().err)
    assert "pip install 'distillkit[plots]'" in said
