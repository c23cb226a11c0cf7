"""The model card of a run's student: what the run knows, and nothing that it does not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from distillkit.measure.ladder import ladder_tables
from distillkit.measure.report import SCORE_NAMES, comparison_table, table
from distillkit.recipe import SCORES, Recipe, TrainingConfig

# What a hub calls our scores; it has other names for two.
_HUB_METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "f1",
    "micro_f1": "f1",
    "exact_match": "exact_match",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
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
        unknown: Share of dev's tokens that the student's vocabulary has not; None: it has no
            unknown word.
        hub_teacher: The teacher's name where that is one on the hub, or "".
        hub_data: Names of the data sets that are on the hub.
        ladder: What `ladder.json` holds, where it is of this recipe.
        bundle: Where there is one: its `dev` metrics, agreement with the checkpoint for one with a
            teacher; the `largest` difference of a logit; `megabytes`.
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
        """The splits that the run measured, the one that says most last."""
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
    """Write the card: metadata for the hub, and what a reader should know before using the student."""
    sections = {
        "Use": _use(about),
        "Figures": _figures(about),
        "Ladder": _ladder(about),
        "Data": _data(about),
        "Teacher": _teacher(about),
        "Transfer set": _transfer_set(about),
        "Training": _training(about),
        "Limits": "\n".join(f"* {line}" for line in _limits(about)),
        "The same again": _again(about),
    }
    parts = [f"# {about.name.partition('/')[2]}", _introduction(about)]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return ModelCard(f"---\n{_metadata(about).to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n")


def _metadata(about: About) -> ModelCardData:
    recipe, student = about.recipe, about.result["models"]["student"]
    scores = [key for key in SCORE_NAMES if key in student["dev"]]
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
        eval_results=[_eval_result(about, split, key) for split in about.splits for key in scores],
    )


def _eval_result(about: About, split: str, key: str) -> EvalResult:
    source = _source(about.recipe, split)
    name = (
        source.removeprefix("datasets:").partition(":")[0]
        if source.startswith("datasets:")
        else source
    )
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
    return source or f"{100 * recipe.data.dev_fraction:g} % of {recipe.data.train}"


def _introduction(about: About) -> str:
    rows, models = "pair of texts" if about.pairs else "text", about.result["models"]
    what = {
        "classification": f"one of {len(about.labels)} labels",
        "multi-label": f"any number of {len(about.labels)} labels",
        "regression": "a score",
    }[about.recipe.data.task]
    named = f": {_names(about.labels)}" if about.recipe.data.task != "regression" else ""
    times = models["teacher"]["parameters"]["total"] / models["student"]["parameters"]["total"]
    return (
        f"A student of kind `{about.recipe.student.kind}`, distilled by distillkit from `{about.recipe.teacher.model}`, which has {times:.1f} times its "
        f"parameters. It gives each {rows} {what}{named}.\n\nThis card was written by `distillkit push` from the figures of the run that made the student; "
        "what the run does not know is not in it."
    )


def _use(about: About) -> str:
    # Without top_k the pipeline says the likeliest label alone.
    every = ", top_k=None" if about.recipe.data.task == "multi-label" else ""
    torch = [
        *(["import distillkit  # pip install 'distillkit[train]'"] if about.own_kind else []),
        "from transformers import pipeline",
        "",
        f'classify = pipeline("text-classification", "{about.name}"{every})',
        'print(classify({"text": "One text.", "text_pair": "Another."}))'
        if about.pairs
        else 'print(classify("A text."))',
    ]
    blocks = [_code(torch)]
    if about.bundle:
        given = '["One text."], ["Another."]' if about.pairs else '["A text."]'
        blocks += [
            f"Without torch, by ONNX Runtime: {_bundle(about.bundle, SCORES[about.recipe.data.task])}",
            _code(
                [
                    "from distillkit.runtime import Predictor  # pip install 'distillkit[runtime]' huggingface_hub",
                    "from huggingface_hub import snapshot_download",
                    "",
                    f'predictor = Predictor(snapshot_download("{about.name}", allow_patterns="bundle/*") + "/bundle")',
                    f"print(predictor.predict({given}))",
                ]
            ),
        ]
    return "\n\n".join(blocks)


def _bundle(bundle: Mapping[str, Any], score: str) -> str:
    dev = bundle["dev"]
    other = (
        ""
        if bundle["largest"] <= _SAME
        else "another model than the checkpoint beside it, a compressed one for example, so that no other figure here is of it; "
    )
    return (
        f"`bundle/`, {bundle['megabytes']:.1f} MB, {other}dev {SCORE_NAMES[score]} {_percent(dev[score])}, agreement with the checkpoint "
        f"{_percent(dev['agreement'])}, no logit further from its than {bundle['largest']:.2g}:"
    )


def _code(lines: list[str]) -> str:
    return "\n".join(["```python", *lines, "```"])


def _figures(about: About) -> str:
    last = about.splits[-1]
    rows = " and ".join(
        f"{about.result['models']['student'][split]['rows']:,} {split} rows"
        for split in about.splits
    )
    agreement = (
        "correlation with the teacher's scores"
        if about.recipe.data.task == "regression"
        else "rows answered as the teacher does"
    )
    caption = f"On {rows}, of one run with one seed ({about.result['seed']}); scores and agreement times 100. Agreement: {agreement}, on {last}."
    if about.latency:
        caption += " Milliseconds: the median, one row at a time, tokenising included, on the machine of the run."
    if "student_gold" in about.result["models"]:
        caption += " The student on gold labels is the same network with the same start, without a teacher's answers."
    return f"{comparison_table(dict(about.result), dict(about.latency))}\n\n{caption}"


def _ladder(about: About) -> str:
    if about.ladder is None:
        return ""
    rungs, level = about.ladder["rungs"], about.ladder["bootstrap"]["level"]
    return (
        f"{ladder_tables(rungs, about.splits)}\n\nThe same recipe over the seeds above; means over them. `- gold`: the difference to the student on gold "
        f"labels, with a paired bootstrap interval of {100 * level:.0f} % ({about.ladder['bootstrap']['resamples']:,} resamples). These students are not the "
        "one in this repository."
    )


def _data(about: About) -> str:
    data = about.recipe.data
    sources = {
        "train": data.train,
        **{split: _source(about.recipe, split) for split in ("dev", "test")},
        "unlabelled": ", ".join(data.unlabelled),
    }
    rows = [["split", "source", "rows", "scores" if data.task == "regression" else "labels"]]
    for split, count in about.result["data"]["rows"].items():
        labels = about.result["data"]["labels"].get(split, {})
        few = list(labels.items())[:_FEW]
        said = ", ".join(
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.3g}"
            for name, value in few
        )
        rows.append(
            [split, sources[split], f"{count:,}", said + (", ..." if len(labels) > _FEW else "")]
        )
    return table(rows)


def _teacher(about: About) -> str:
    teacher, config = about.recipe.teacher, about.teacher_config
    size = about.result["models"]["teacher"]
    return (
        f"`{teacher.model}` ({config['model_type']}, {size['parameters']['total']:,} parameters, {size['megabytes']:.1f} MB), fine-tuned on the training rows: "
        f"{_lesson(teacher.training)}, texts cut after {teacher.max_tokens} tokens; {_best(about, 'teacher')}. {_adapted(about)}"
        "Its weights are not in this repository."
    )


def _adapted(about: About) -> str:
    found = about.result.get("adapted")
    if not found:
        return ""
    text, before, after = (
        found["text"]["train"],
        found["held_out"]["before"],
        found["held_out"]["after"],
    )
    return (
        f"Before that it went on with its pre-training on {text['documents']:,} documents without labels ({text['tokens']:,} tokens, "
        f"{about.recipe.adapt.masking.strategy} masks): on text held out its loss fell from {before['loss']:.2f} to {after['loss']:.2f}. "
    )


def _transfer_set(about: About) -> str:
    augment, counts = about.recipe.augment, about.result["transfer_set"]
    origins = {
        name: counts.get(name, 0) for name in ("original", "unlabelled", "generated", "augmented")
    }
    said = ", ".join(f"{n:,} {name}" for name, n in origins.items() if n)
    text = (
        f"{counts['rows']:,} rows, each with the teacher's answer: {said}. {counts['duplicates']:,} duplicates were dropped, and {counts['leaks']:,} "
        "rows that equal a dev or test row."
    )
    rates = {
        "mask": ("words masked", augment.p_mask),
        "pos": ("words replaced by their part of speech", augment.p_pos),
        "ngram": (f"texts cut to an n-gram of at most {augment.max_ngram} words", augment.p_ng),
        "infill": ("words filled in by a masked language model", augment.infill.p),
        "neighbour": ("words replaced by a nearest neighbour", augment.neighbours.p),
        "swap": ("sides of a pair exchanged", None),
    }
    rules = {name: rates[name] for name in counts.get("rules", {})}
    if not rules:
        return text
    rows = [["rule", "rate", "rows with it"]]
    rows += [
        [what, "" if rate is None else f"{rate:g}", f"{counts['rules'][name]:,}"]
        for name, (what, rate) in rules.items()
    ]
    return f"{text} {augment.n_iter} variants were drawn from each text.\n\n{table(rows)}"


def _training(about: About) -> str:
    student, loss = about.recipe.student, about.recipe.loss
    start = (
        f"word vectors from `{student.embeddings.source}`, {student.embeddings.width} wide; "
        if student.reads_words
        else ""
    )
    kinds = {
        "mse": "squared distance of the logits",
        "soft": f"soft targets at temperature {loss.temperature:g}",
    }
    what = f"{kinds[loss.kind]}, alpha {loss.alpha:g}" + (
        f" to {loss.alpha_end:g}" if loss.alpha_end >= 0 else ""
    )
    return f"{start}{_lesson(about.recipe.training)}; loss: {what}; {_best(about, 'student')}. Every setting is in `recipe.yaml`."


def _lesson(training: TrainingConfig) -> str:
    rows = training.batch_size * training.accumulation_steps
    epochs = "1 epoch" if training.epochs == 1 else f"{training.epochs} epochs"
    return f"{epochs}, {rows} rows a step, {training.optimizer}, learning rate {training.learning_rate:g} ({training.schedule})"


def _best(about: About, model: str) -> str:
    trained, score = about.result["training"][model], SCORES[about.recipe.data.task]
    return f"kept: epoch {trained['best_epoch']}, by dev {SCORE_NAMES[score]} ({_percent(trained[f'dev_{score}'])})"


def _limits(about: About) -> list[str]:
    recipe, task = about.recipe, about.recipe.data.task
    split, score = about.splits[-1], SCORES[task]
    student = about.result["models"]["student"][split]
    # Of one seed the splits may disagree about who is better: all are said.
    gaps = "; ".join(_gaps(about, which, score) for which in reversed(about.splits))
    lines = [f"{SCORE_NAMES[score][0].upper()}{SCORE_NAMES[score][1:]} {gaps}."]
    if task == "regression":
        lines.append(
            f"Its scores' correlation with its teacher's is {_percent(student['agreement'])} (times 100); its squared error is {student['mse']:.3g}."
        )
    else:
        lines.append(
            f"It answers otherwise than its teacher on {_percent(1 - student['agreement'])} % of the {split} rows."
        )
    spread = ""
    if task == "classification":
        half = 1.96 * (student["accuracy"] * (1 - student["accuracy"]) / student["rows"]) ** 0.5
        spread = f": that number of rows alone leaves its accuracy uncertain by {_percent(half)} points either way (95 %)"
    lines.append(f"The figures are of {student['rows']:,} {split} rows and one seed{spread}.")
    chosen = "The epoch that is kept was chosen on dev, so that dev figures flatter it"
    lines.append(f"{chosen}." if split == "test" else f"{chosen}; there was no test set.")
    if "classes" in student:
        name, worst = min(student["classes"].items(), key=lambda item: item[1]["f1"])
        lines.append(
            f"It is worst at the label {json.dumps(name, ensure_ascii=False)}: F1 {_percent(worst['f1'])}, {worst['rows']:,} {split} rows."
        )
        lines.append(
            f"Its probabilities are {_percent(student['calibration_error'])} points off on average (expected calibration error, {split})."
        )
    if task == "classification":
        lines.append("Every text is given one of its labels, also where none fits.")
    return [*lines, *_reads(about), *_not_measured(about, recipe)]


def _gaps(about: About, split: str, score: str) -> str:
    models = {name: model[split] for name, model in about.result["models"].items()}
    others = {
        "teacher": "its teacher",
        "student_gold": "the same network on gold labels",
        "tfidf": "TF-IDF",
    }
    found = models["student"][score]
    gaps = [
        f"{_gap(found - models[name][score])} {title}"
        for name, title in others.items()
        if name in models
    ]
    return f"on {split}: {_percent(found)}, {', '.join(gaps)}"


def _reads(about: About) -> list[str]:
    """Say what the student does not see of a text."""
    student = about.recipe.student
    kind = student.of_kind
    lines = [
        f"Of {'a pair' if about.pairs else 'a text'} it reads {about.max_tokens} of its own tokens; {_percent(about.truncated)} % of the dev rows are longer."
    ]
    if about.unknown is not None:
        lines.append(
            f"{_percent(about.unknown)} % of dev's tokens are unknown to its vocabulary of {about.config['vocab_size']:,}."
        )
    if kind.limits:
        lines.append(kind.limits.format(longest_kernel=max(student.kernel_sizes)))
    if kind.reads == "pairs":
        lines.append("It reads the two texts apart, and compares no more than one vector of each.")
    if student.reads_words and student.vocabulary.unit not in ("teacher", "hashed"):
        lines.append(
            "Its vocabulary is made of words of the training text, and can be read in `tokenizer.json`."
        )
    return lines


def _not_measured(about: About, recipe: Recipe) -> list[str]:
    text = "Text of another kind, time or language than its data's was not measured"
    return [
        f"{text}; nor was bias towards groups of people, nor what misspelling or attack does to it."
    ]


def _again(about: About) -> str:
    data, vectors = about.recipe.data, about.recipe.student.embeddings
    named = [data.train, data.dev, data.test, *data.unlabelled]
    named += [] if about.hub_teacher else [about.recipe.teacher.model]
    named += [] if vectors.asks_teacher or vectors.source == "random" else [vectors.source]
    files = [
        source
        for source in named
        if source and not source.startswith(("embedded:", "datasets:", "package:"))
    ]
    needs = (
        f"; it expects {', '.join(f'`{name}`' for name in files)} in the folder where it is started"
        if files
        else ""
    )
    return f"`recipe.yaml` is the whole experiment, made with distillkit {about.result['distillkit']}{needs}:\n\n```sh\ndistillkit run recipe.yaml\n```"


def _names(labels: list[str]) -> str:
    return ", ".join(labels[:_FEW]) + (", ..." if len(labels) > _FEW else "")


def _gap(difference: float) -> str:
    points = f"{100 * abs(difference):.1f}"
    return (
        "level with"
        if points == "0.0"
        else f"{points} points {'above' if difference > 0 else 'below'}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
