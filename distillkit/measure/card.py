"""The model card of a run's student: what the run knows, and nothing that it does not."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from distillkit.measure.ablation import ablations_in, ladder_tables
from distillkit.measure.closing import interval
from distillkit.measure.report import (
    SCORE_NAMES,
    beside,
    comparison_table,
    not_gold,
    percent,
    score_names,
    table,
)
from distillkit.recipe import SCORES, LossConfig, Recipe
from distillkit.recipe.kinds import LOSSES, load_methods
from distillkit.recipe.places import places_of

# The hub's names of our scores.
_HUB_METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "f1",
    "micro_f1": "f1",
    "exact_match": "exact_match",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
_TEMPLATE = Path(__file__).with_suffix(".md.j2")
_FEW = 20  # labels that a card names
_SAME = 1e-4  # the most that a logit of a bundle that is merely exported differs by


@dataclass(frozen=True)
class About:
    """What a card is written from.

    Attributes:
        name: OWNER/NAME on the hub.
        recipe: The run's, without the paths of its machine.
        result: What `result.json` holds.
        latency: Median milliseconds a row, by model; empty: not timed.
        labels: C names.
        config: The student's `config.json`.
        teacher_config: The teacher's.
        max_tokens: Where the student's input is truncated.
        truncated: Share of dev's rows that are longer.
        unknown: Share of dev's tokens that are out of the student's vocabulary; None: none can be.
        hub_teacher: The teacher's name, if it is on the hub, or "".
        hub_data: Names of the data sets that are on the hub.
        ladder: What `ladder.json` holds, if it is of this recipe.
        bundle: Its `dev` metrics, the `largest` difference of a logit from the checkpoint's, its
            `megabytes`, and whether it is what the run `shipped`.
    """

    name: str
    recipe: Recipe
    result: Mapping[str, Any]
    latency: Mapping[str, float]
    labels: list[str]
    config: Mapping[str, Any]
    teacher_config: Mapping[str, Any]
    max_tokens: int
    truncated: float
    unknown: float | None
    hub_teacher: str = ""
    hub_data: list[str] = field(default_factory=list)
    ladder: Mapping[str, Any] | None = None
    bundle: Mapping[str, Any] | None = None

    @property
    def splits(self) -> list[str]:
        """The splits that the run measured; test is last."""
        return [split for split in ("dev", "test") if split in self.result["models"]["student"]]

    @property
    def pairs(self) -> bool:
        """Whether rows are pairs."""
        return bool(self.recipe.data.columns.text_pair)

    @property
    def own_kind(self) -> bool:
        """Whether the checkpoint is of a class that `import distillkit` brings."""
        return str(self.config["model_type"]).startswith("distillkit")


def model_card(about: About) -> ModelCard:
    """Write the card: metadata for the hub, and what to know before using the student."""
    return ModelCard.from_template(_metadata(about), str(_TEMPLATE), **_values(about))


def _metadata(about: About) -> ModelCardData:
    recipe, student = about.recipe, about.result["models"]["student"]
    scores = [key for key in SCORE_NAMES if key in student["dev"]]
    measured = [] if not_gold(about.result) else about.splits
    return ModelCardData(
        model_name=about.name.partition("/")[2],
        library_name="distillkit" if about.own_kind else "transformers",
        pipeline_tag="text-classification",
        language="en" if recipe.data.train.startswith("embedded:") else None,
        base_model=about.hub_teacher or None,
        datasets=about.hub_data or None,
        tags=[
            "distillkit",
            "distillation",
            recipe.student.kind,
            *(["onnx"] if about.bundle else []),
        ],
        metrics=list(dict.fromkeys(_HUB_METRICS[key] for key in scores)),
        eval_results=[_eval_result(about, split, key) for split in measured for key in scores],
    )


def _eval_result(about: About, split: str, key: str) -> EvalResult:
    source = _source(about.recipe, split)
    name = source
    if source.startswith("datasets:"):
        name = source.split(":")[1]
    return EvalResult(
        task_type="text-classification",
        dataset_type=name,
        dataset_name=source,
        dataset_split=split,
        metric_type=_HUB_METRICS[key],
        metric_name=SCORE_NAMES[key],
        metric_value=about.result["models"]["student"][split][key],
    )


def _source(recipe: Recipe, split: str) -> str:
    source = recipe.data.test if split == "test" else recipe.data.dev
    return source or f"{100 * recipe.data.dev_fraction:g} % of {_train(recipe)}"


def _train(recipe: Recipe) -> str:
    label = recipe.label
    return recipe.data.train or f"the texts that {label.zero_shot or label.endpoint.model} labelled"


def _values(about: About) -> dict[str, Any]:
    """Return what the template's prose needs."""
    recipe, result = about.recipe, about.result
    task, split, models = recipe.data.task, about.splits[-1], result["models"]
    student = models["student"][split]
    teacher_size, size = (models[name]["parameters"]["total"] for name in ("teacher", "student"))
    measured = (f"{models['student'][s]['rows']:,} {s} rows" for s in about.splits)
    return vars(about) | {
        "title": about.name.partition("/")[2],
        "pairs": about.pairs,
        "own_kind": about.own_kind,
        "task": task,
        "score": SCORES[task],
        "score_name": score_names(result)[SCORES[task]],
        "split": split,
        "models": models,
        "student": student,
        "times": teacher_size / size,
        "labels": f"{len(about.labels)} labels: {_first([*map(_code, about.labels)])}",
        "merely_exported": _SAME,
        "results": comparison_table(dict(result), dict(about.latency)),
        "measured": " and ".join(measured),
        "ladder_tables": about.ladder and ladder_tables(ablations_in(about.ladder), about.splits),
        "data": _data(about),
        "transfer": result["transfer_set"],
        "origins": _origins(result["transfer_set"]),
        "methods": _methods(about),
        "method_sentences": _method_sentences(about),
        "loss": _loss(recipe.loss),
        # The splits may disagree about which model is better, so the card has all of them.
        "gaps": "; ".join(_gaps(about, which) for which in reversed(about.splits)),
        "bounds": interval(SCORES[recipe.data.task], student),
        "worst": _worst(student),
        "reads": _reads(about),
        "needed": ", ".join(f"`{name}`" for name in _needed(about)),
    }


def _data(about: About) -> str:
    data = about.recipe.data
    sources = {split: _source(about.recipe, split) for split in ("dev", "test")}
    sources |= {"train": _train(about.recipe), "unlabelled": ", ".join(data.unlabelled)}
    rows = [["split", "source", "rows", "scores" if data.task == "regression" else "labels"]]
    for split, count in about.result["data"]["rows"].items():
        labels = about.result["data"]["labels"].get(split, {})
        said = [
            f"{_code(name)} {value:,}" if isinstance(value, int) else f"{name} {value:.3g}"
            for name, value in labels.items()
        ]
        rows.append([split, sources[split], f"{count:,}", _first(said)])
    return table(rows)


def _origins(counts: Mapping[str, Any]) -> str:
    names = ("original", "unlabelled", "generated", "augmented")
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts.get(name))


def _methods(about: About) -> str:
    """Return the table of the augmentation methods that the transfer set has rows of, or ""."""
    augment, counts = about.recipe.augment, about.result["transfer_set"].get("rules", {})
    rates = {
        "mask": ("words masked", f"{augment.p_mask:g}"),
        "pos": ("words replaced by their part of speech", f"{augment.p_pos:g}"),
        "ngram": (
            f"texts cut to an n-gram of at most {augment.max_ngram} words",
            f"{augment.p_ng:g}",
        ),
        "neighbour": ("words replaced by a nearest neighbour", f"{augment.neighbours.p:g}"),
        "swap": ("sides of a pair exchanged", ""),
        "self": ("a text beside its own variant", ""),
        "other": ("changed by a method that is not distillkit's own", ""),
    }
    # A run of an older distillkit may have rows of a method that is gone.
    rows = [[*rates.get(name, (name, "")), f"{count:,}"] for name, count in counts.items()]
    return table([["augmentation method", "rate", "rows with it"], *rows]) if rows else ""


def _method_sentences(about: About) -> list[str]:
    weights = asdict(about.recipe.augment.mix)
    return [method.sentence for name, method in load_methods().items() if weights.get(name)]


def _loss(loss: LossConfig) -> str:
    matched = LOSSES[loss.kind].card.format(temperature=loss.temperature)
    return f"{matched}, alpha {loss.alpha:g}"


def _gaps(about: About, split: str) -> str:
    score = SCORES[about.recipe.data.task]
    scores = {name: model[split][score] for name, model in about.result["models"].items()}
    found = scores["student"]
    others = {
        "teacher": "its teacher",
        "student_gold": "the same network on gold labels",
        "tfidf": "TF-IDF",
    }
    names = [name for name in others if name in scores]
    gaps = [f"{beside(found - scores[name])} {others[name]}" for name in names]
    return f"on {split}: {', '.join([percent(found), *gaps])}"


def _worst(student: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the label of dev with the lowest F1, its metrics and its name in quotes."""
    seen = [item for item in student.get("classes", {}).items() if item[1]["rows"]]
    if not seen:
        return None
    name, metrics = min(seen, key=lambda item: item[1]["f1"])
    return {"name": json.dumps(name, ensure_ascii=False), **metrics}


def _reads(about: About) -> list[str]:
    """Return what the student does not see of a text, a sentence each."""
    student, lines = about.recipe.student, []
    kind = student.of_kind
    if kind.limits:
        lines.append(kind.limits.format(longest_kernel=max(student.kernel_sizes)))
    if student.reads_words and student.vocabulary.unit not in ("teacher", "hashed"):
        words = "words of the training text and can be read in `tokenizer.json`"
        lines.append(f"Its vocabulary consists of {words}.")
    return lines


def _needed(about: About) -> list[str]:
    """Return the files and folders that the recipe expects to find."""
    recipe, vectors = about.recipe, about.recipe.student.embeddings
    named = [name for sort, name in places_of(recipe) if sort != "model"]
    named += [] if about.hub_teacher else [name for _, name in places_of(recipe.teacher)]
    named += [str(vectors.file)] if vectors.file else []
    elsewhere = ("embedded:", "datasets:", "package:")
    return [name for name in named if not name.startswith(elsewhere)]


def _code(name: str) -> str:
    """Return a label's name as code, which no reader of Markdown takes for a tag or two names."""
    return f"`{' '.join(name.split()).replace('`', chr(0x2BC))}`"


def _first(names: list[str]) -> str:
    return ", ".join(names[:_FEW]) + (", ..." if len(names) > _FEW else "")
