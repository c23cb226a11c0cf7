"""`distillkit report`: the page's figures, its escaping, its size, and the page in a browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from distillkit import cli
from distillkit.data.tables import read_table, with_mask, write_table
from distillkit.errors import InputError
from distillkit.recipe import ColumnsConfig
from distillkit.report import charts, write_report
from distillkit.report.figures import transfer_rows
from distillkit.report.page import confusion, inline_json, shown

# Labels and texts that would break a page which does not escape them.
LABELS = ["</script ><img src=x onerror=boom()>", "\"'&amp; b\u202eidi"]
HOSTILE = [
    "</script><script>boom()</script> film",
    "<!-- \"'><b onclick=boom()>& &lt; {{ 7 * 7 }} {% raw %}",
    "\u202eright to left\u2066 \u0007 \ufeff film",
    "wide" * 3000,
]


class Page(HTMLParser):
    """The elements of a page and the text in its tables."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags, self.cells, self.scripts = [], [], []
        self.feed(self.source)
        self.figures = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        tag = self.tags[-1][0] if self.tags else ""
        (self.scripts if tag == "script" else self.cells).append(data)


@pytest.fixture(scope="module")
def reported(finished_run, tmp_path_factory):
    """A run, and its page."""
    folder = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(finished_run, folder)
    assert cli.main(["report", str(folder)]) == 0
    return folder, Page(folder / "report.html")


@pytest.fixture(scope="module")
def hostile(finished_run, tmp_path_factory):
    """The page of a run with labels and dev texts as nobody wants them."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    shutil.copytree(finished_run, folder)
    renamed = dict(zip(("negative", "positive"), LABELS, strict=True))
    for path in folder.rglob("*.json"):
        text = path.read_text()
        for name, label in renamed.items():
            text = text.replace(f'"{name}"', json.dumps(label))
        path.write_text(text)
    train = read_table(str(folder / "data" / "train.parquet"), ColumnsConfig())
    labels = pa.array([renamed[label] for label in train["label"].to_pylist()])
    write_table(train.set_column(1, "label", labels), folder / "data" / "train.parquet")
    dev = pa.table({"text": HOSTILE, "label": LABELS * 2})
    write_table(dev, folder / "data" / "dev.parquet")
    return Page(write_report(folder))


def test_the_figures_are_those_of_the_run(reported):
    folder, page = reported
    result = json.loads((folder / "result.json").read_text())
    assert {name: page.figures[name] for name in result} == result
    dev = result["models"]["student"]["dev"]
    assert f"scores {100 * dev['accuracy']:.1f}\u00a0% accuracy on 48 dev rows" in page.source
    counts = [int(cell) for cell in re.findall(r'aria-label="(\d+) rows of', page.source)]
    assert counts == [count for row in dev["confusion"] for count in row]
    whole = page.figures["coverage"][0]
    assert whole["coverage"] == 1
    assert whole["accuracy"] == pytest.approx(dev["accuracy"])
    by_label = [one for one in page.figures["slices"] if one["group"] == "label"]
    for one in by_label:
        assert one["student"] == pytest.approx(dev["classes"][one["part"]]["recall"])
        assert one["rows"] == dev["classes"][one["part"]]["rows"]
    before = page.figures["reliability"]["before"]
    assert sum(rows for *_, rows in before) == 48
    assert sum(right * rows for _, right, rows in before) == pytest.approx(dev["accuracy"] * 48)


def test_a_part_without_rows_is_left_out(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    texts = ["good", "bad", "a film " * 5, "a plot " * 5]  # a quartile between 1 and 10 words
    dev = pa.table({"text": texts, "label": ["negative", "positive"] * 2})
    write_table(dev, tmp_path / "run" / "data" / "dev.parquet")
    page = Page(write_report(tmp_path / "run"))
    by_length = [one for one in page.figures["slices"] if one["group"] == "length"]
    assert [(one["part"], one["rows"]) for one in by_length] == [
        ("1 to 4 words", 2),
        ("10 to 10 words", 2),
    ]


def test_the_page_is_small_and_asks_for_nothing(reported):
    folder, page = reported
    assert (folder / "report.html").stat().st_size < 2_000_000
    addresses = [
        value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "href")
    ]
    assert all(value.startswith(("#", "data:")) for value in addresses)
    assert "://" not in re.sub(r"<pre.*?</pre>", "", page.source, flags=re.S)
    sections = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert sections == [
        *("models", "learning", "calibration", "confusion", "rows", "slices"),
        *("transfer", "made"),  # nobody doubts a label of this run
    ]


def test_a_label_that_both_models_contradict_is_listed_first(reported, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(reported[0], folder)
    for split in ("dev", "train"):
        path = folder / "data" / f"{split}.parquet"
        table = read_table(str(path), ColumnsConfig())
        labels = table["label"].to_pylist()
        labels[5] = "negative" if labels[5] == "positive" else "positive"
        turned = table.set_column(1, "label", pa.array(labels))
        write_table(turned, path)
        text = table["text"][5].as_py()
        page = write_report(folder).read_text()
        doubts = page[page.index('id="doubts"') :]
        first = doubts[doubts.index(f'<tr data-split="{split}">') :]
        first = first[: first.index("</tr>")]
        assert text in first
        assert float(re.search(r'<td class="n">([\d.]+)', first)[1]) > 50


def test_a_mask_word_of_ones_own_is_a_changed_word(tmp_path):
    row = {"text": "a <m> film", "origin": "augmented", "rules": "mask", "changed": [1]}
    made = pa.Table.from_pylist([row | {"start": 0, "stop": 3}])
    write_table(with_mask(made, "<m>"), tmp_path / "t.parquet")
    (found,) = transfer_rows(tmp_path / "t.parquet")
    assert ("<m>", True) in found["texts"][0]


def test_whatever_a_text_holds_is_text(hostile):
    tags = {tag for tag, _ in hostile.tags}
    assert not {"img", "b"} & tags
    assert [tag for tag, _ in hostile.tags].count("script") == 2
    assert not any(name.startswith("on") for _, attrs in hostile.tags for name in attrs)
    held = "".join(hostile.cells)
    assert HOSTILE[0] in held
    assert HOSTILE[1] in held
    assert "⟨U+202E⟩right to left⟨U+2066⟩ ⟨U+0007⟩ ⟨U+FEFF⟩ film" in held
    assert not re.search("[\u202e\u2066\ufeff\u0007]", hostile.source)
    assert "wide" * 100 + " …" in held
    assert "wide" * 101 not in hostile.source
    assert list(hostile.figures["models"]["student"]["dev"]["classes"]) == LABELS
    assert "<" not in hostile.scripts[0]


def test_what_json_cannot_hold_is_null():
    assert json.loads(inline_json({"a": [float("nan"), 1.0, "<&>\u2028"]})) == {
        "a": [None, 1.0, "<&>\u2028"]
    }


def test_a_lone_surrogate_can_be_written():
    assert shown("a\ud800").encode() == "a⟨U+D800⟩".encode()


def test_a_ladder_of_fewer_splits_than_the_run_is_shown(reported, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(reported[0], folder)
    (folder / "ladder").mkdir()
    gap = {"mean": 0.1, "low": 0.05, "high": 0.15}
    row = {"title": "full <b>", "seeds": [1], "cost": {"rows": 10}}
    rows = {"full": row | {"dev": {"accuracy": 0.8, "difference": gap}}}
    (folder / "ladder" / "ladder.json").write_text(json.dumps({"ablations": rows}))
    page = write_report(folder).read_text(encoding="utf-8")
    ladder = page[page.index('<section id="ladder">') : page.index('<section id="calibration">')]
    assert "+5.0 to +15.0" in ladder
    assert "full &lt;b&gt;" in ladder
    assert "<b>" not in ladder


@pytest.mark.parametrize("labels", [5, 40])
def test_many_labels_have_their_commonest_confusions_alone(labels):
    counts = [[i * labels + j for j in range(labels)] for i in range(labels)]
    found = {"classes": {f"label {i}": {} for i in range(labels)}, "confusion": counts}
    shown = confusion({"models": {"student": {"dev": found}}}, "dev")
    if labels == 5:
        assert shown["counts"] == counts
        assert shown["pairs"] == []
    else:
        assert shown["counts"] == []
        assert shown["pairs"][0] == (40 * 39 + 38, "label 39", "label 38")
        assert len(shown["pairs"]) == 40


def test_no_label_of_a_chart_lies_on_another():
    points = [charts.Point(f"model {i}", 1.0 + i, 80 + 0.01 * i, 79, 81) for i in range(15)]
    drawn = charts.scatter(points, "many", "ms", "accuracy")
    places = re.findall(r'<text x="279.0" y="([\d.]+)"', drawn)
    heights = sorted(map(float, places))
    assert len(heights) == 15
    assert min(b - a for a, b in pairwise(heights)) >= 13.9
    assert heights[0] > 0
    assert heights[-1] < charts.HEIGHT


def test_a_curve_of_one_point_is_seen():
    drawn = charts.lines({"loss": [(1, 0.5, 0)], "dev": [(1, 0.5, 0), (2, 0.4, 0)]}, "", "", "")

    assert re.findall(r'<circle class="(\w+)"', drawn) == ["c0"]


def test_a_folder_that_is_no_finished_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"not a finished run: it has no recipe.yaml"):
        write_report(tmp_path)


def test_a_run_that_is_being_done_again_has_no_report(finished_run, tmp_path):
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    (run / ".evaluation.partial").mkdir()
    with pytest.raises(
        InputError, match="not finished: its stage evaluation is missing; distillkit"
    ):
        write_report(run)
    (run / ".evaluation.partial").rmdir()
    result = json.loads((run / "result.json").read_text())
    result["models"]["student"]["dev"]["accuracy"] = 0.123
    (run / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match=r"its recipe or stages are newer than its result\.json"):
        write_report(run)


# It uses the page as a reader would, and leaves what it saw in the title.
_READER = """
<script>
{
const seen = {};
const shownRows = (id) => [...document.querySelectorAll(`#${id} tbody tr`)].filter((row) => !row.hidden);
seen.disagree = shownRows("answers").length;
const form = document.querySelector('form[data-table="answers"]');
form.elements.kind.value = "";
form.dispatchEvent(new Event("input"));
seen.all = shownRows("answers").length;
const heads = document.querySelectorAll("#answers th");
heads[4].querySelector("button").click();
const sure = () => shownRows("answers").map((row) => Number(row.cells[4].textContent));
seen.rising = sure().every((value, i, all) => i === 0 || all[i - 1] <= value);
heads[4].querySelector("button").click();
seen.falling = sure().every((value, i, all) => i === 0 || all[i - 1] >= value);
seen.sort = heads[4].getAttribute("aria-sort");
form.elements.sought.value = "GOOD";
form.dispatchEvent(new Event("input"));
seen.good = shownRows("answers").length;
const cell = document.querySelector("button[data-gold]");
cell.click();
seen.cell = [Number(cell.textContent), shownRows("answers").length];
const slider = document.getElementById("threshold");
const said = document.getElementById("covered").textContent;
slider.value = 0;
slider.dispatchEvent(new Event("input"));
seen.slider = [said !== document.getElementById("covered").textContent, document.getElementById("covered").textContent];
seen.asked = performance.getEntriesByType("resource").map((entry) => entry.name);
seen.wide = document.documentElement.scrollWidth <= innerWidth;
document.title = JSON.stringify(seen);
}
</script>
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_works_in_a_browser(reported, tmp_path, width):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    page = tmp_path / "page.html"
    page.write_text(reported[1].source.replace("</body>", _READER + "</body>"), encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    flags += ["--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND"]
    flags += [f"--window-size={width},900", f"--user-data-dir={tmp_path}/u"]
    command = [browser, *flags, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout)[1]
    seen = json.loads(title.replace("&amp;", "&"))
    assert seen["all"] == 48 > seen["disagree"]
    assert seen["good"] == 6
    assert seen["rising"]
    assert seen["falling"]
    assert seen["sort"] == "descending"
    assert seen["cell"][0] == seen["cell"][1] > 0
    assert seen["slider"][0]
    assert "answers 100.0 % of the rows" in seen["slider"][1]
    assert seen["wide"]
    assert seen["asked"] == []
