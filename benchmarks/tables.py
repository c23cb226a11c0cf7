"""Make the tables of README, docs and benchmarks from the files in results/, and count their figures.

python benchmarks/tables.py

`<!-- results: NAME -->` above a table names its file. The table's head stays as the page has it and
chooses the columns. Rows without the first column are left out, so that a page can show a few.

A list in a row holds scores by seed, `{"mean": ..., "sd": ...}` those whose seeds were not kept. Under
its own heading it is "88.4, sd 0.6"; "gold: mean" shows a part of the row's "gold", and "mean" alone
of its "seeds". `{FILE/ID/HEADING}` in a text is that cell of another file's row. "bold" lists the
headings under which the first number is bold.
"""

import json
import platform
import re
import shlex
import subprocess
import sys
from datetime import date
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]
TABLE = re.compile(r"^<!-- results: (\S+) -->\n(\|.*\n)(\|[-:| ]+\|\n)((?:\|.*\n)*)", re.MULTILINE)
VIEW = re.compile(r"(?:(.+): )?(seed \d|seeds 1, 2, 3|mean|sd|mean \(sd\))")


def results(name: str) -> dict[str, Any]:
    """Return a file of results/: what was measured, by which command, and its rows."""
    # A Decimal keeps the digits that were measured: 90.0 stays 90.0.
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)


def cell(row: dict[str, Any], heading: str) -> str:
    """Return what a row has under a heading."""
    value, part, view = row.get(heading), "mean, sd", VIEW.fullmatch(heading)
    if value is None and view:
        value, part = row.get(view[1] or "seeds"), view[2]
    if isinstance(value, list | dict):
        return _scores(value, part)
    if isinstance(value, str):
        return re.sub(r"\{([^{}/]+)/([^{}/]+)/([^{}]+)\}", _referred, value)
    return "" if value is None else f"{value:,}"


def _referred(reference: re.Match[str]) -> str:
    file, name, heading = reference.groups()
    (row,) = (row for row in results(file)["rows"] if row.get("id") == name)
    found = cell(row, heading)
    if not found:
        raise KeyError(reference[0])
    return found


def _scores(scores: list[Any] | dict[str, Any], part: str) -> str:
    if isinstance(scores, dict):
        average, spread = f"{scores['mean']}", f"{scores['sd']}"
    else:
        shown = [f"{one}" if isinstance(one, int) else f"{one:.1f}" for one in scores]
        if part == "seeds 1, 2, 3":
            return ", ".join(shown)
        if part.startswith("seed "):
            return "".join(shown[int(part[5:]) - 1 : int(part[5:])])
        if len(scores) < 2:
            return ""
        average, spread = f"{mean(scores):.1f}", f"{stdev(scores):.1f}"
    return {"mean": average, "sd": spread, "mean (sd)": f"{average} ({spread})"}.get(
        part, f"{average}, sd {spread}"
    )


def made(page: str) -> tuple[str, int]:
    """Return a page with its tables made anew, and how many cells with a figure they have."""
    figures = 0

    def table(found: re.Match[str]) -> str:
        nonlocal figures
        name, head, rule, _ = found.groups()
        headings = [one.strip() for one in re.split(r"(?<!\\)\|", head.strip()[1:-1])]
        text = f"<!-- results: {name} -->\n{head}{rule}"
        for row in (row for row in results(name)["rows"] if headings[0] in row):
            cells = [cell(row, heading) for heading in headings]
            figures += sum(bool(re.match(r"[-+*]*\d", one)) for one in cells[1:])
            for i, heading in enumerate(headings):
                if heading in row.get("bold", []):
                    cells[i] = re.sub(r"^[\d.,]*\d", r"**\g<0>**", cells[i])
            text += "|" + "|".join(f" {one} " if one else " " for one in cells) + "|\n"
        return text

    return TABLE.sub(table, page), figures


def save_results(name: str, what: str, seeds: list[int], rows: list[dict[str, Any]]) -> None:
    """Write runs/NAME.json, a file for results/, with the command, commit and machine it comes from.

    Args:
        name: Of the file.
        what: One line: the measure, the data, the number of rows.
        seeds: Of the scores in lists; empty: no seed matters.
        rows: A cell by heading.
    """
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True)
    versions = [f"{package} {version(package)}" for package in ("torch", "transformers")]
    about = {
        "what": what,
        "command": shlex.join(["python", *sys.argv]),
        "commit": commit.strip(),
        "date": f"{date.today()}",
        "machine": ", ".join([cpu[1] if cpu else platform.machine(), *versions]),
        "seeds": seeds,
    }
    text = ",\n".join(
        f" {json.dumps(key)}: {json.dumps(about[key], ensure_ascii=False)}" for key in about
    )
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    path = Path("runs") / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{\n{text},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def keyed(lines: list[list[str]]) -> list[dict[str, Any]]:
    """Return the rows of a table that was printed, by its head."""
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def main() -> None:
    """Write the tables of all pages, and print the count of figures in them."""
    count = 0
    for path in PAGES:
        text, figures = made(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        count += figures
    print(f"{count:,} figures are made from {len(list(RESULTS.glob('*.json')))} files of results/")


if __name__ == "__main__":
    main()
