"""Accuracy against calls: a fine-tuned encoder plays a paid service that labels the training texts.

python benchmarks/service.py trec-bilstm --options --data.train trec6/train.tsv

The service is a process of this machine that answers by HTTP, as a language model does: with the
log-probabilities of all labels, of the likeliest two (`top-2`), or with the label alone (`hard`). It is the
recipe's teacher, fine-tuned on the training rows. `distillkit run` has the training texts without labels,
asks about some of them, and makes a student. Finished runs stay in runs/service/NAME, so it can be stopped
and started again. runs/service-NAME.json has every seed's figures, as a file for benchmarks/results/.
"""

import argparse
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
from tables import save_results

from distillkit import pipeline
from distillkit.cli import parse
from distillkit.data.logits import join_logits, joined_labels
from distillkit.data.tables import read_table, write_table
from distillkit.measure.report import table
from distillkit.recipe import ColumnsConfig, EndpointConfig, Recipe
from distillkit.runs import Taught, at_work, run, teach
from distillkit.runtime.answers import softmax

LEAST = 1e-9
FEW = 0.2  # share of the calls


def service(shares: Mapping[str, Sequence[float]], port: int) -> ThreadingHTTPServer:
    """Return a server of chat completions that knows each text's probabilities of the C labels."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = body["messages"][0]["content"]
            found = shares[prompt.rpartition("Text: ")[2].removesuffix("\nLabel:")]
            listed = [
                {"token": chr(ord("A") + i), "logprob": float(np.log(max(found[i], LEAST)))}
                for i in np.argsort(found)[::-1].tolist()
            ]
            choice: dict[str, Any] = {"message": {"content": listed[0]["token"]}}
            if body["model"] != "hard":
                top = listed[: 2 if body["model"] == "top-2" else None]
                choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": top}]}
            data = json.dumps({"choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def answers_of(task: Taught, recipe: Recipe, folder: Path) -> tuple[pa.Table, np.ndarray]:
    """Label the training texts; return them, and their probabilities (N, C)."""
    store = folder / "store"
    pipeline.label(task.path["train"], store, task.model, recipe.label, task.columns)
    rows = read_table(task.path["train"], task.columns)
    order = [joined_labels(store).index(name) for name in task.teacher["labels"]]
    return rows, softmax(join_logits(rows, store)[:, order])


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--name", default="", help="folder below runs/service; empty: the recipe's")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.5, 1])
    parser.add_argument("--answers", nargs="+", default=["all", "top-2", "hard"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the runs")
    # A run's settings have the address: to go on, give the same one.
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of distillkit run")
    given = parser.parse_args()
    name = given.name or Path(given.recipe).stem
    recipe: Recipe = parse("run", [given.recipe, *given.options]).settings  # type: ignore[attr-defined]
    recipe = replace(recipe, data=replace(recipe.data, unlabelled=()))
    folder = Path("runs") / "service" / name
    with at_work(folder) as home:
        task = teach(recipe, home, folder / "recipe.yaml")
        labels = tuple(task.teacher["labels"])
        rows, shares = answers_of(task, recipe, folder)
    texts = folder / "texts.parquet"
    write_table(rows.select(["text"]), texts)
    server = service(dict(zip(rows["text"].to_pylist(), shares, strict=True)), given.port)
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for share in sorted({*given.shares, 1.0}, reverse=True):  # all calls are the yardstick
        calls = round(share * len(rows))
        # Answers of other forms are compared where few are paid for.
        for answers in given.answers if share == FEW else given.answers[:1]:
            for seed in given.seeds:
                here = replace(
                    recipe,
                    seed=seed,
                    data=replace(
                        recipe.data,
                        train="",
                        labels=labels,
                        test="",
                        dev=task.path["dev"],
                        unlabelled=(str(texts),),
                        columns=ColumnsConfig(),
                    ),
                    label=replace(
                        recipe.label,
                        budget=calls if share < 1 else 0,
                        endpoint=EndpointConfig(
                            url=f"http://127.0.0.1:{given.port}/v1", model=answers
                        ),
                    ),
                    evaluation=replace(recipe.evaluation, gold_epochs=0),
                    ship=replace(recipe.ship, form="none"),
                )
                models = run(here, folder / f"{answers}-{calls}-{seed}")["models"]
                found.setdefault((answers, calls), []).append(
                    {who: 100 * models[who]["dev"]["accuracy"] for who in ("teacher", "student")}
                )
    server.shutdown()
    whole = mean(one["student"] for one in found[given.answers[0], len(rows)])
    saved: list[dict[str, Any]] = [
        {
            "answers": answers,
            "calls": calls,
            "student": [round(one["student"], 2) for one in cells],
            "teacher": [round(one["teacher"], 2) for one in cells],
            "of all calls": f"{100 * mean(one['student'] for one in cells) / whole:.1f} %",
        }
        for (answers, calls), cells in found.items()
    ]
    print(table([list(saved[0]), *([str(value) for value in row.values()] for row in saved)]))
    save_results(f"service-{name}", "accuracy against calls", given.seeds, saved)


if __name__ == "__main__":
    main()
