"""The stages before the students: data, adapted and fine-tuned teacher, transfer set, logits."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from distillkit import pipeline
from distillkit.augment.method import Models
from distillkit.augment.taggers import load_tagger, own_tagger
from distillkit.data.checked import fingerprint, fingerprint_or_name
from distillkit.data.content import texts_of
from distillkit.data.corrections import count_corrections, read_corrections
from distillkit.data.files import whole_file
from distillkit.data.gold import label_summary
from distillkit.data.normal import normal_rows
from distillkit.data.readers import source_files
from distillkit.data.segmenters import own_segmenter
from distillkit.data.tables import mask_of, read_blocks, read_table, spread_rows, write_table
from distillkit.errors import InputError
from distillkit.pipeline.raw_text import settle_raw_text
from distillkit.pipeline.student_choice import settle_student
from distillkit.pipeline.task import DATA_VERSION, NO_DATA, settle_columns
from distillkit.pipeline.teacher import ADAPT_VERSION, LABEL_VERSION, TEACHER_VERSION
from distillkit.pipeline.transfer_set import TRANSFER_VERSION
from distillkit.processes import log
from distillkit.recipe import (
    ColumnsConfig,
    DataConfig,
    EndpointConfig,
    LabelConfig,
    Recipe,
    StudentConfig,
    dump,
)
from distillkit.recipe.kinds import resolve as resolve_reference
from distillkit.runs.asked import ask_service, check_service
from distillkit.runs.first_labels import (
    ANSWERS,
    FIRST_LABELS,
    check_first_labels,
    with_first_labels,
)
from distillkit.runs.folder import RunFolder, Summary, relative
from distillkit.runs.given import check_given_labels, logit_labels, refuse_wrong_order
from distillkit.student.embeddings import check_vector_file
from distillkit.teacher.checkpoint import SCRATCH, load_config_of, resolve
from distillkit.teacher.label import Labeller
from distillkit.training.optimizers import check_optimizer
from distillkit.training.precision import pick_device
from distillkit.training.precision import resolve as resolve_precision
from distillkit.training.scores import REACH

_TIMED_ROWS = 256


@dataclass(frozen=True)
class Taught:
    """What everything after the teacher starts from."""

    columns: ColumnsConfig  # of the tables in `path`
    path: dict[str, str]  # of train, dev, test, unlabelled
    tables: dict[str, str]  # fingerprints of those that are there
    data: Summary
    teacher: Summary
    model: str  # folder of the fine-tuned teacher
    adapted: Summary | None  # None: the recipe has no text to adapt to


def with_data(recipe: Recipe) -> Recipe:
    """Settle the columns, the raw text and the student that a recipe does not name, and log why.

    Raises:
        InputError: The training data cannot be read.
    """
    if recipe.data.logits:
        log(
            "data: the logits are given; the teacher gives word vectors, and a score to compare with"
        )
        data, augment = replace(recipe.data, unlabelled=()), replace(recipe.augment, n_iter=0)
        recipe = replace(recipe, data=data, augment=augment)
    if not recipe.data.train and not recipe.data.labels:
        raise InputError(NO_DATA)
    data, found = settle_columns(recipe.data)
    data, why = settle_raw_text(data)
    student, chosen = settle_student(data, recipe.student)
    for line in (found and f"data: {found}", why and f"data: {why}", chosen):
        if line:
            log(line)
    return replace(recipe, data=data, student=student)


def teach(recipe: Recipe, home: RunFolder, saved: Path) -> Taught:
    """Save the recipe; bring `data`, `adapted` (with adapt.text only) and `teacher` up to date."""
    weights = _encoder(recipe)
    sources, text = _fingerprints(_sources(recipe.data)), _fingerprints(recipe.adapt.text.sources)
    with whole_file(saved) as partial:
        partial.write_text(dump(recipe), encoding="utf-8")
    columns = ColumnsConfig(text_pair="text_pair" if recipe.data.columns.text_pair else "")
    path = {
        split: str(home.folder / "data" / f"{split}.parquet")
        for split in ("train", "dev", "test", "unlabelled")
    }
    prepared = _data(recipe, home, sources)
    check_given_labels(recipe, prepared)
    if recipe.label.endpoint.url:  # a service's descriptions are of these labels
        recipe.label.meanings(list(prepared["labels"]["train"]))
    tables = {split: fingerprint(Path(path[split])) for split in prepared["rows"]}
    inputs = {name: tables[name] for name in ("train", "dev")} | {"model": weights}
    adapted = _adapted(recipe, home, text, weights) if text else None
    here = DataConfig(task=recipe.data.task, train=path["train"], dev=path["dev"], columns=columns)
    config = recipe.teacher.for_rows(prepared["rows"]["train"])
    model = config.model
    if adapted is not None:
        inputs |= home.keys("adapted")
        model = str(home.folder / "adapted" / "model")

    answers = None
    if prepared.get("first_labels", {}).get("log_probabilities"):
        answers = home.folder / FIRST_LABELS / ANSWERS
        inputs |= home.keys(FIRST_LABELS)

    def teacher(out: Path) -> Mapping[str, Any]:
        own = replace(config, model=model)
        return pipeline.train_teacher(here, own, out / "model", recipe.seed, answers=answers)

    how = asdict(config) | {"training": config.training.settings()}
    scale = far_scores(recipe, prepared)
    if recipe.data.task == "regression":  # at first a teacher's answers kept their scale
        scale.append("a line fits dev")
    settings = [how, [recipe.data.task, asdict(columns)], recipe.seed, *scale]
    taught = relative(home.stage("teacher", settings, inputs, teacher, version=TEACHER_VERSION))
    finished = str(home.folder / "teacher" / "model")
    return Taught(columns, path, tables, prepared, taught, finished, adapted)


def far_scores(recipe: Recipe, data: Summary) -> list[str]:
    """Return what belongs to the settings of a stage that learns scores standardised.

    At first they were learnt as they are.
    """
    scores = data["labels"]["train"] if recipe.data.task == "regression" else {}
    far = max(map(abs, scores.values()), default=0.0) > REACH
    return ["scores are standardised"] if far else []


def _encoder(recipe: Recipe) -> str:
    """Check that the teacher's encoder is there and wide enough; return its fingerprint.

    Raises:
        InputError: It is not, or the student asks for wider word vectors.
    """
    start, adapt = recipe.teacher.model, recipe.adapt
    scratch = start == SCRATCH and adapt.text.sources
    checkpoint = start if scratch else resolve(start)
    config = (
        load_config_of(start)
        if not scratch
        else SimpleNamespace(
            model_type="bert",
            num_hidden_layers=adapt.scratch.layers,
            hidden_size=adapt.scratch.hidden_size,
        )
    )
    if (refuse := recipe.student.of_kind.check_teacher) is not None:
        resolve_reference(refuse)(recipe.student, config)
    width = config.hidden_size
    if recipe.student.embeddings.asks_teacher:
        recipe.student.check_width(width)
    return fingerprint_or_name(checkpoint)


def _data(recipe: Recipe, home: RunFolder, sources: str) -> Summary:
    inputs, said, source = {"data's sources": sources}, {}, recipe.data
    if recipe.data.labels:
        source, said["first_labels"] = with_first_labels(recipe, home, sources)
        inputs |= home.keys(FIRST_LABELS)

    def data(out: Path) -> Summary:
        tables = pipeline.read_data(source, recipe.seed)
        if "text_pair" in tables["train"].column_names and not recipe.data.columns.text_pair:
            raise InputError(
                f"{recipe.data.train}: a table of pairs; set data.columns.text_pair to text_pair"
            )
        for split, table in tables.items():
            write_table(table, out / f"{split}.parquet")
        labelled = {split: table for split, table in tables.items() if split != "unlabelled"}
        _say_leaks(labelled)
        if recipe.data.task == "classification":
            _say_absent(labelled)
        file = recipe.data.corrections
        corrections = {"corrections": count_corrections(read_corrections(file))} if file else {}
        return {
            "rows": {split: len(table) for split, table in tables.items()},
            "labels": {split: label_summary(table) for split, table in labelled.items()},
            **said,
            **corrections,
        }

    settings = [recipe.data.settings(), recipe.seed]
    return home.stage("data", settings, inputs, data, version=DATA_VERSION)


def _say_absent(tables: Mapping[str, pa.Table]) -> None:
    """Log which labels of train no dev row has: the best epoch is chosen without them."""
    train, dev = (set(tables[split]["label"].unique().to_pylist()) for split in ("train", "dev"))
    if absent := sorted(train - dev - {None}):
        more = " ..." if len(absent) > 5 else ""
        log(
            f"data: no dev row has the label {', '.join(map(repr, absent[:5]))}{more}: dev scores say nothing of it"
        )


def _say_leaks(tables: Mapping[str, pa.Table]) -> None:
    """Log how many dev and test rows training has, too, case and white space aside."""
    train = set(normal_rows(tables["train"]))
    for split in ("dev", "test"):
        rows = normal_rows(tables[split]) if split in tables else []
        if leaks := sum(row in train for row in rows):
            log(
                f"data: {leaks:,} of {len(rows):,} {split} rows are also in train: the {split} scores are too high; take them out of one"
            )


def _adapted(recipe: Recipe, home: RunFolder, text: str, weights: str) -> Summary:
    adapt, seed = recipe.adapt, recipe.seed
    read = {
        "adapt.text.sources": text,
        "adapt.masking.similar": fingerprint_or_name(adapt.masking.similar),
        "model": weights,
        **own_segmenter(adapt.text.segmenter),
    }

    def adapted(out: Path) -> Mapping[str, Any]:
        return pipeline.adapt_teacher(adapt, recipe.teacher.model, out / "model", seed)

    settings = [adapt.settings(), seed]
    return relative(home.stage("adapted", settings, read, adapted, version=ADAPT_VERSION))


def with_variants(recipe: Recipe, task: Taught) -> Recipe:
    """Settle how many variants of a text a recipe makes, and that the teacher labels them.

    Of a recipe without labels a service has labelled the first texts alone.
    """
    label = replace(recipe.label, endpoint=EndpointConfig()) if recipe.data.labels else recipe.label
    augment = recipe.augment.for_rows(task.data["rows"]["train"])
    return replace(recipe, label=label, augment=augment)


def label_transfer_set(
    recipe: Recipe, home: RunFolder, task: Taught, models: Models
) -> tuple[Summary, str]:
    """Bring the stages `transfer` and `logits` up to date.

    Args:
        recipe: How the transfer set is made, and labelled.
        home: The run's folder.
        task: What `teach` left there.
        models: From `look_ahead`.

    Returns:
        What the transfer set yielded, and its path.
    """
    transfer_set = str(home.folder / "transfer" / "transfer.parquet")
    recipe = with_variants(recipe, task)
    given, service = recipe.data.logits, recipe.label.endpoint.url

    def train() -> pa.Table:
        return read_table(task.path["train"], task.columns, task=recipe.data.task)

    def transfer(out: Path) -> Mapping[str, Any]:
        held_out = [task.path[split] for split in ("dev", "test") if split in task.data["rows"]]
        extra = [task.path["unlabelled"]] if "unlabelled" in task.data["rows"] else []
        return pipeline.augment(
            "" if given else task.path["train"],
            out / "transfer.parquet",
            recipe.augment,
            task.columns,
            held_out,
            [given] if given else extra,
            recipe.seed,
            task=recipe.data.task,
            teacher=recipe.teacher.model,
            engine=recipe.engine,
            workers=recipe.workers,
        )

    def asked(out: Path) -> Summary:
        labels, train = task.teacher["labels"], task.tables["train"]
        return ask_service(
            recipe, home.folder, transfer_set, task.columns, labels, train, out / "store"
        )

    def logits(out: Path) -> Summary:
        if service:
            return {key: value for key, value in asked(out).items() if key != "labelled_now"}
        if not given:
            minutes = _minutes(recipe.label, task, transfer_set, counts["rows"])
            log(f"logits: the teacher reads {counts['rows']:,} rows, which takes about {minutes}")
        # Summed up over all of the store, so that a killed and resumed run says the same as an
        # undisturbed one.
        summary = pipeline.label(
            transfer_set,
            out / "store",
            "" if given else task.model,
            recipe.label,
            task.columns,
            task=recipe.data.task,
            logits=given,
            labels=means,
            engine=recipe.engine,
            workers=recipe.workers,
        )
        if given:  # whose texts have no labels there
            refuse_wrong_order(recipe, train(), out / "store")
        return {key: value for key, value in summary.items() if key != "labelled_now"}

    means = logit_labels(recipe, train()) if given else ()
    kind = [recipe.data.task, asdict(task.columns)]
    settings = [recipe.augment.settings(), kind, models.fingerprints(), recipe.seed]
    elsewhere = {"data.logits": _fingerprints([given])} if given else {}
    inputs = task.tables | elsewhere | own_tagger(recipe.augment.tagger)
    counts = relative(home.stage("transfer", settings, inputs, transfer, version=TRANSFER_VERSION))
    before = home.keys("transfer") if service else home.keys("teacher", "transfer")
    if service:
        before |= {"labels": str(task.teacher["labels"])}
    if given:
        before |= {"labels": str(means)}
    _check_proportion(recipe, counts["rows"])
    home.stage("logits", recipe.label.settings(), before, logits, version=LABEL_VERSION)
    return counts, transfer_set


def _check_proportion(recipe: Recipe, rows: int) -> None:
    """Refuse a transfer set that is larger than its recipe says.

    Raises:
        InputError: It is.
    """
    if rows <= recipe.label.max_rows:
        return
    varied = " --augment.no-vary-unlabelled," if recipe.augment.vary_unlabelled else ""
    raise InputError(
        f"the transfer set has {rows:,} rows for the teacher to read, more than label.max_rows, {recipe.label.max_rows:,}: "
        f"give{varied} a smaller --augment.n-iter or less unlabelled text, or --label.max-rows {rows} if you mean it"
    )


def _minutes(config: LabelConfig, task: Taught, transfer_set: str, rows: int) -> str:
    """Estimate in words how long the teacher takes for so many rows, from the first few."""
    table = read_table(transfer_set, task.columns, labels="ignored")
    few = spread_rows(table, _TIMED_ROWS)
    teacher = Labeller(task.model, config, mask_of(table))
    teacher(few.slice(0, 32))  # the first call is slower
    began = time.monotonic()
    teacher(few)
    seconds = (time.monotonic() - began) / len(few) * rows
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def look_ahead(recipe: Recipe) -> Models:
    """Check at once what a stage would only find hours later; return the models of the mix.

    Raises:
        InputError: The student does not fit the data, its vectors are not there, or the tagger or
            what the mix needs is not to be had, or the loss asks for what the task has no meaning
            for, or a precision or optimizer for another device.
    """
    recipe.loss.check_task(recipe.data.task)
    if other := recipe.loss.teacher_weights().keys() - {"teacher"}:
        raise InputError(
            f"loss.teachers has {min(other)}, but a run has one, teacher: leave it out, or label and train by distillkit label and train-student"
        )
    check_service(recipe)
    check_first_labels(recipe)
    _check_precision(recipe)
    for section, training in (
        ("teacher.training", recipe.teacher.training),
        ("training", recipe.training),
    ):
        check_optimizer(training, section)
    recipe.student.check_fits(
        pairs=bool(recipe.data.columns.text_pair), source="the data, by data.columns.text_pair,"
    )
    _check_vectors(recipe.student)
    if recipe.augment.n_iter:
        load_tagger(recipe.augment.tagger, _first_texts(recipe.data))
    return pipeline.models_of(
        recipe.augment, recipe.teacher.model, recipe.data.columns, recipe.data.unlabelled
    )


def _first_texts(data: DataConfig) -> list[str]:
    """Return a few texts, of which a tagger `auto` sees the language."""
    if not data.train:
        return []
    blocks = read_blocks(
        data.train, data.columns, task=data.task, labels="ignored", missing="drop", rows=100
    )
    return texts_of(next(blocks))[0]


def _check_vectors(student: StudentConfig) -> None:
    vectors = student.embeddings
    if vectors.file:
        check_vector_file(vectors.file)
    elif vectors.encoder:
        try:
            width = load_config_of(vectors.encoder).hidden_size
        except InputError as error:
            raise InputError(f"student.embeddings.source {error}") from None
        student.check_width(width)


def _check_precision(recipe: Recipe) -> None:
    device = pick_device()
    precisions = {
        "teacher.training": recipe.teacher.training.precision,
        "label": recipe.label.precision,
        "training": recipe.training.precision,
    }
    for name, precision in precisions.items():
        try:
            resolve_precision(precision, device)
        except InputError as error:
            raise InputError(f"{name}.{error}") from None


def _sources(data: DataConfig) -> list[str]:
    sources = (data.train, data.dev, data.test, *data.unlabelled, data.corrections)
    return [source for source in sources if source]


def _fingerprints(sources: Sequence[str]) -> str:
    """Fingerprint sources; a hub's data set, or one elsewhere, is known by its name alone."""

    def known_by(source: str) -> str:
        if source.startswith("datasets:"):
            folder = Path(source.split(":")[1])
            return f"{source} {fingerprint(folder)}" if folder.is_dir() else source
        if "://" in source:
            return source
        return fingerprint(*(cast(Path, file) for file in source_files(source)))

    return "-".join(map(known_by, sources))
