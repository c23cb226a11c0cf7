"""Time the runtime in JavaScript beside the one in Python, row by row, and compare their answers.

python benchmarks/javascript.py runs/quickstart/bundle.zip FILE --column sentence --rows 2000

Both answer one row a call, on one thread; the first 100 calls warm up. Needs Node.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from tables import keyed, save_results

from distillkit.data.content import texts_of
from distillkit.data.tables import read_table
from distillkit.measure.report import table
from distillkit.pipeline.javascript import RUNTIME
from distillkit.recipe import ColumnsConfig
from distillkit.runtime import Predictor

ASK = """
import { load } from "%s";
import { readFileSync } from "node:fs";
const began = performance.now();
const student = await load(readFileSync(process.argv[1]));
const loaded = performance.now() - began;
const texts = JSON.parse(readFileSync(process.argv[2]));
for (const text of texts.slice(0, 100)) student.logits(text);
const times = [], logits = [], ids = [];
for (const text of texts) {
  const start = performance.now();
  const found = student.logits(text);
  times.push(performance.now() - start);
  logits.push(Array.from(found));
  ids.push(student.tokenizer.encode(text).ids);
}
console.log(JSON.stringify({ loaded, times, logits, ids }));
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("source")
    parser.add_argument("--column", default="text")
    parser.add_argument("--rows", type=int, default=2000)
    given = parser.parse_args()
    columns = ColumnsConfig(text=given.column)
    rows = read_table(given.source, columns, labels="ignored").slice(0, given.rows)
    texts = texts_of(rows)[0]
    predictor = Predictor(given.bundle)
    for text in texts[:100]:
        predictor.logits([text])
    times, logits = [], []
    for text in texts:
        began = time.perf_counter()
        logits.append(predictor.logits([text])[0])
        times.append(1000 * (time.perf_counter() - began))
    with tempfile.TemporaryDirectory() as work:
        place = Path(work) / "texts.json"
        place.write_text(json.dumps(texts), encoding="utf-8")
        script = ASK % (RUNTIME / "distillkit.js").as_uri()
        command = ["node", "--input-type=module", "-e", script, given.bundle, str(place)]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    same = sum(
        ours == predictor._texts.rows([text]).ids[0]
        for text, ours in zip(texts, found["ids"], strict=True)
    )
    largest = np.abs(np.array(found["logits"]) - np.array(logits)).max()
    lines = [["runtime", "p50, ms a row", "p95, ms a row"]]
    for name, taken in (("ONNX Runtime, Python", times), ("JavaScript, Node", found["times"])):
        lines.append([name, *(f"{np.quantile(taken, q):.3f}" for q in (0.5, 0.95))])
    print(table(lines))
    save_results("javascript", "milliseconds a row of a bundle", [], keyed(lines))
    print(
        f"{len(texts):,} rows: tokens equal in {same:,}, largest difference of a logit {largest:.1e}"
    )
    size = (RUNTIME / "distillkit.js").stat().st_size
    print(f"loaded in {found['loaded']:.0f} ms; the script has {size:,} bytes")


if __name__ == "__main__":
    main()
