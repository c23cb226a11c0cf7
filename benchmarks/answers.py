"""Measure what a run's bundle says of its answers: rejection, label sets, calibration.

python benchmarks/answers.py runs/quickstart --foreign news=news.txt captions=captions.tsv@sentence

Rejection: the rule is fitted as a run does it, with WordNet's rows drawn by each seed. Dev and test
are cut into halves 100 times: one half gives the threshold, the other is held-out own text. Label
sets and temperature: fitted on one half of dev and measured on the other, both ways.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.special import softmax
from scipy.stats import binom

from distillkit.data.content import texts_of
from distillkit.data.foreign import foreign_texts
from distillkit.data.gold import gold_of
from distillkit.data.readers import read_rows
from distillkit.data.tables import read_table
from distillkit.measure.metrics import expected_calibration_error
from distillkit.measure.rejection import REFUSED, fit_rejection
from distillkit.measure.report import table
from distillkit.measure.statistics import coverage_floors, cross_scaled, fit_temperature
from distillkit.recipe import ColumnsConfig, load_recipe
from distillkit.runtime import Predictor
from distillkit.runtime.answers import confidence, own_scores

_SPLITS = 100
COVERAGES = ("0.80", "0.90", "0.95")


def main() -> None:
    """Print the tables in Markdown; of pairs rejection is not measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--foreign", nargs="*", default=[], metavar="NAME=FILE[@COLUMN]")
    parser.add_argument("--rows", type=int, default=500, help="of each file, at most")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    predictor = Predictor(asked.run / "bundle.zip")
    parts = {
        file.stem: read_table(str(file), ColumnsConfig())
        for file in sorted((asked.run / "data").glob("*.parquet"))
        if file.stem != "unlabelled"
    }
    if "text_pair" not in parts["dev"].column_names:
        source = load_recipe(str(asked.run / "recipe.yaml")).data.train
        rejection(predictor, parts, source, asked)
    logits = predictor.logits(*texts_of(parts["dev"]))
    gold = gold_of(parts["dev"], predictor.labels, "classification")
    coverage(logits, gold, asked.seeds)
    calibration(logits, gold, asked.seeds)


def rejection(
    predictor: Predictor, parts: dict[str, pa.Table], source: str, asked: argparse.Namespace
) -> None:
    """Print the percentage of rows refused by kind, and of plainer scores at the same own rate."""
    texts = {name: np.array(texts_of(part)[0], object) for name, part in parts.items()}
    rest = np.concatenate([found for name, found in texts.items() if name != "train"])
    own = predictor.words(texts["train"].tolist())
    kinds = {}
    for given in asked.foreign:
        name, file = given.split("=", 1)
        file, _, column = file.partition("@")
        found = np.array([row[column or "text"] for _, row in read_rows(file)], object)
        draw = np.random.default_rng(0).permutation(len(found))[: asked.rows]
        kinds[name] = found[draw].tolist()
    kinds["own text, shuffled words"] = [
        " ".join(np.random.default_rng(i).permutation(text.split()))
        for i, text in enumerate(rest[: asked.rows])
    ]
    columns = ("rule", "rule without WordNet", "energy", "largest probability")
    kinds = {"own text, held out": rest.tolist(), **kinds}
    words = {name: predictor.words(rows) for name, rows in kinds.items()}
    plain = {name: _plain(predictor.logits(rows)) for name, rows in kinds.items()}
    refused = np.zeros((asked.seeds, len(kinds), len(columns)))
    for seed in range(asked.seeds):
        foreign = {k: predictor.words(v) for k, v in foreign_texts(source, seed=seed).items()}
        fewer = {kind: rows for kind, rows in foreign.items() if kind != "wordnet"}
        rules = [
            fit_rejection(own, found, words["own text, held out"]) for found in (foreign, fewer)
        ]
        for column in range(len(columns)):
            scores = [
                own_scores(words[name], rules[column] or {})
                if column < 2
                else plain[name][column - 2]
                for name in kinds
            ]
            refused[seed, :, column] = _refused(scores, seed)
    lines = [["% refused", *columns]]
    for name, found in zip(kinds, refused.mean(axis=0), strict=True):
        lines.append([name, *(f"{100 * value:.1f}" for value in found)])
    print(table(lines), "\n")


def _refused(scores: list[np.ndarray], seed: int) -> np.ndarray:
    """Return the share of each kind below a threshold, (K,); the first kind is the own text.

    The threshold is that of one half of the own text, whose other half counts; the mean of 100
    such splits.
    """
    own, *others = scores
    shares = []
    for split in range(_SPLITS):
        order = np.random.default_rng([seed, split]).permutation(len(own))
        dev, test = np.split(own[order], [len(own) // 2])
        floor = np.sort(dev)[int(REFUSED * (len(dev) + 1)) - 1]
        shares.append([(part < floor).mean() for part in (test, *others)])
    return np.mean(shares, axis=0)


def _plain(logits: np.ndarray) -> list[np.ndarray]:
    """Return energy (its negative, Liu et al. 2020) and largest probability, (N,) each."""
    return [np.logaddexp.reduce(logits.astype(float), axis=1), confidence(logits)]


def coverage(logits: np.ndarray, gold: np.ndarray, seeds: int) -> None:
    """Print how many rows have their label in the set, and how large the sets are."""
    lines = [["coverage wanted", "found, by seed", "95 % interval of the count", "labels a set"]]
    for wanted in COVERAGES:
        shares, sizes = [], []
        for seed in range(seeds):
            half = np.random.default_rng(seed).permutation(len(gold)) % 2 == 0
            held, size = 0, 0
            for fit in (half, ~half):
                temperature = fit_temperature(logits[fit], gold[fit])
                floor = coverage_floors(logits[fit] / temperature, gold[fit])[wanted]
                p = softmax(logits[~fit] / temperature, axis=1)
                sets = (p >= floor) | (p == p.max(axis=1, keepdims=True))
                held += sets[np.arange(len(sets)), gold[~fit]].sum()
                size += sets.sum()
            shares.append(held / len(gold))
            sizes.append(size / len(gold))
        low, high = binom.interval(0.95, len(gold), float(wanted))
        lines.append(
            [
                wanted,
                ", ".join(f"{share:.3f}" for share in shares),
                f"{low / len(gold):.3f} to {high / len(gold):.3f}",
                f"{np.mean(sizes):.2f}",
            ]
        )
    print(table(lines), "\n")


def calibration(logits: np.ndarray, gold: np.ndarray, seeds: int) -> None:
    """Print calibration errors, and what perfectly calibrated answers would show by chance."""
    scaled = [softmax(cross_scaled(logits, gold, seed=seed), axis=1) for seed in range(seeds)]
    by_chance = []
    for draw in range(200):
        rng = np.random.default_rng(draw)
        p = scaled[draw % seeds]
        drawn = (p.cumsum(axis=1) > rng.random((len(p), 1))).argmax(axis=1)
        by_chance.append(expected_calibration_error(p, drawn))
    before = expected_calibration_error(softmax(logits.astype(float), axis=1), gold)
    after = ", ".join(f"{100 * expected_calibration_error(p, gold):.1f}" for p in scaled)
    low, high = 100 * np.quantile(by_chance, [0.05, 0.95])
    chance = f"{100 * np.mean(by_chance):.1f} ({low:.1f} to {high:.1f})"
    head = ["rows", "calibration error before, %", "after, by seed", "perfect, by chance (90 %)"]
    print(table([head, [str(len(gold)), f"{100 * before:.1f}", after, chance]]))


if __name__ == "__main__":
    main()
