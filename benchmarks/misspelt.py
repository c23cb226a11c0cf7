"""Accuracy of models on texts in which some words are misspelt.

python benchmarks/misspelt.py dev.parquet "hashed n-grams=students/hashed-1,students/hashed-2" ...

A misspelt word has two letters swapped, or one left out, added or changed, each as likely. Words of one letter stay.
A model's figure is the mean over all its folders (a seed each) of the mean over three draws of the words.
"""

import argparse
import random
import string
from statistics import mean

import pandas as pd
from tables import save_results

from distillkit import pipeline
from distillkit.measure.report import table

SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
DRAWS = 3


def main() -> None:
    """Print the table in Markdown, and save it as runs/misspelt.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dev", help="Parquet with the columns text and label")
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER,FOLDER,...")
    asked = parser.parse_args()
    dev = pd.read_parquet(asked.dev)
    texts = {share: [misspelt(dev.text, share, draw) for draw in range(DRAWS)] for share in SHARES}
    rows = []
    for name, _, folders in (model.partition("=") for model in asked.models):
        row: dict[str, str | list[float]] = {"model": name}
        for share in SHARES:
            row[f"{100 * share:.0f} %"] = [
                100
                * mean(
                    pipeline.evaluate(folder, dev.assign(text=drawn))["accuracy"]
                    for drawn in texts[share]
                )
                for folder in folders.split(",")
            ]
        rows.append(row)
    shown = [
        [f"{mean(cell):.1f}" if isinstance(cell, list) else cell for cell in row.values()]
        for row in rows
    ]
    print(table([list(rows[0]), *shown]))
    save_results(
        "misspelt", f"dev accuracy by share of misspelt words, {len(dev)} rows", [1, 2, 3], rows
    )


def misspelt(texts: pd.Series, share: float, seed: int) -> list[str]:
    """Return texts in which so large a share of the words is misspelt."""
    draw = random.Random(seed)
    return [
        " ".join(typo(word, draw) if draw.random() < share else word for word in text.split())
        for text in texts
    ]


def typo(word: str, draw: random.Random) -> str:
    """Return a word with one mistake."""
    if len(word) < 2:
        return word
    place, letter = draw.randrange(len(word) - 1), draw.choice(string.ascii_lowercase)
    before, one, two, after = word[:place], word[place], word[place + 1], word[place + 2 :]
    return before + draw.choice([two + one, two, letter + one + two, letter + two]) + after


if __name__ == "__main__":
    main()
