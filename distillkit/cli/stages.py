"""The commands of single stages, one function of `distillkit.pipeline` each."""

import codecs
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, Suppress, arg

from distillkit.cli.command import Columns, Command, TaskKind
from distillkit.cli.places import BUNDLE, STUDENT, TEACHER, columns_of, model_in
from distillkit.errors import ICONV, InputError
from distillkit.processes import log, terminal_width
from distillkit.recipe import (
    AdaptConfig,
    AugmentConfig,
    ColumnsConfig,
    DataConfig,
    Engine,
    LabelConfig,
    Recipe,
    StudentConfig,
    StudentJob,
    TeacherConfig,
    load_config,
)
from distillkit.recipe.bounds import Seed

_WORDS_SHOWN = 8  # of an explanation, on a terminal


def _teacher(name: str, _: dict[str, str]) -> dict[str, Any]:
    return {"teacher_name": name, "teacher": load_config("teachers", name, TeacherConfig())}


def _student(name: str, _: dict[str, str]) -> dict[str, Any]:
    return {"student_name": name, "student": load_config("students", name, StudentConfig())}


def _encoder(name: str, _: dict[str, str]) -> dict[str, Any]:
    return {"teacher_name": name, "model": load_config("teachers", name, TeacherConfig()).model}


@dataclass(frozen=True)
class TrainTeacher(Command):
    """Fine-tune an encoder on labelled text; keep the epoch that is best on dev.

    Example: distillkit train-teacher minilm-l6 --data.train embedded:reviews/train --data.dev
    embedded:reviews/dev --output runs/teacher
    """

    teacher_name: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A teacher's name on the shelf, or a .yaml file; its values are the defaults below."""
    output: Path
    """Folder for the fine-tuned checkpoint."""
    data: DataConfig = field(default_factory=DataConfig)
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    seed: Seed = 1
    """Seed of the new head, the order of rows, dropout."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""

    shelf_word = "teacher_name"
    from_shelf = _teacher

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline

        return pipeline.train_teacher(
            self.data, self.teacher, self.output, self.seed, resume=self.resume
        )


@dataclass(frozen=True)
class AdaptTeacher(Command):
    """Adapt an encoder to text of the task's domain, or train a small one from scratch.

    Example: distillkit adapt-teacher minilm-l6 --adapt.text.sources reviews.txt --output
    runs/adapted
    """

    teacher_name: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A teacher's name on the shelf, or a .yaml file: its model is where this starts
    (scratch-small: from nothing)."""
    output: Path
    """Folder for the adapted checkpoint, which train-teacher takes as --teacher.model."""
    model: str = ""
    """The checkpoint to start from, in place of the teacher's: a folder, package:NAME, a hub name,
    or scratch."""
    adapt: AdaptConfig = field(default_factory=AdaptConfig)
    seed: Seed = 1
    """Seed of new heads, the order of rows, masks (of held-out rows, too), dropout."""
    resume: bool = True
    """Continue from the checkpoints of a killed training; --no-resume starts over."""

    shelf_word = "teacher_name"
    from_shelf = _encoder

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline

        return pipeline.adapt_teacher(
            self.adapt, self.model, self.output, self.seed, resume=self.resume
        )


@dataclass(frozen=True)
class Augment(Command):
    """Build a transfer set by the rules of Tang et al. 2019 and the methods of augment.mix.

    Example: distillkit augment embedded:reviews/train runs/transfer.parquet --held-out
    embedded:reviews/dev embedded:reviews/test
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Training text: a file, embedded:NAME/SPLIT or datasets:NAME[:CONFIG]:SPLIT."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Parquet file to write."""
    held_out: tuple[str, ...] = ()
    """Dev and test sources: no added row equals one of theirs."""
    unlabelled: tuple[str, ...] = ()
    """More text; cut into sentences with --augment.mix.sentences, varied only with
    --augment.vary-unlabelled."""
    teacher: str = ""
    """Encoder that neighbours and pairs ask where they do not name another: a folder,
    package:NAME, a hub name, or a run's folder."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """What a label is: one class a text, any number of labels, or a number."""
    config: Annotated[AugmentConfig, arg(name="augment")] = field(
        default_factory=lambda: Recipe().augment
    )
    engine: Engine = "local"
    """local: processes of this machine; ray: a Ray cluster (pip install 'distillkit[ray]'). The
    bytes written are the same."""
    workers: int = 0
    """Processes; 0: one per core, fewer for few texts."""
    seed: Seed = 1
    """Seed of everything random."""

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline

        return pipeline.augment(**vars(self) | {"teacher": model_in(self.teacher, TEACHER)})


@dataclass(frozen=True)
class Label(Command):
    """Give every row of a table the teacher's logits: a checkpoint's, a file's, or a service's.

    The same command resumes after an interruption. Several processes may work on one store, but one
    alone asks a service.

    Example: distillkit label runs/transfer.parquet runs/logits --teacher runs/teacher
    """

    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """A transfer set, or any text; rows with a label are used to check the teacher."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Folder of the logit store; an existing one grows by what is new."""
    teacher: str = ""
    """Checkpoint of a fine-tuned classifier: a folder, package:NAME, or a hub name."""
    logits: str = ""
    """In place of a teacher, logits from anywhere: a .parquet or .jsonl file with text and logits,
    a list of numbers a row."""
    labels: tuple[str, ...] = ()
    """What the logits of that file mean, or what a service chooses from, in their order; none: what
    the file says, or else the source's labels. With --teacher, a zero-shot model (entailment, or
    sentence vectors) chooses from them."""
    endpoint: str = ""
    """In place of a teacher, the address of an OpenAI-compatible service, as in
    http://localhost:8000/v1; short for --label.endpoint.url."""
    model: str = ""
    """The service's name of the model; short for --label.endpoint.model."""
    dry_run: bool = False
    """Say how many calls, tokens and how much money a service would take, and ask nothing."""
    name: str = "teacher"
    """The teacher's folder in the store, which may hold several teachers side by side."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    """What the logits of that file are for: one class a text, any number of labels, or a number; a
    teacher says it itself."""
    config: Annotated[LabelConfig, arg(name="label")] = field(default_factory=LabelConfig)
    engine: Engine = "local"
    """local: this process, and all others on the same store; ray: actors on a Ray cluster (pip
    install 'distillkit[ray]')."""
    workers: int = 0
    """Actors on Ray; 0: one per GPU; without GPUs, one per CPU except one."""

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline

        teacher = model_in(self.teacher, TEACHER)
        columns = columns_of(teacher, self.source, self.columns)
        return pipeline.label(**vars(self) | {"teacher": teacher, "columns": columns})


@dataclass(frozen=True, kw_only=True)
class TrainStudent(StudentJob, Command):
    """Train a student on a transfer set and its logits; keep the epoch that is best on dev.

    Example: distillkit train-student bilstm --transfer-set runs/transfer.parquet --logits
    runs/logits --teacher runs/teacher --dev embedded:reviews/dev --output runs/student
    """

    student_name: Annotated[str, Positional, arg(metavar="STUDENT")]
    """A student's name on the shelf, or a .yaml file; its values are the defaults below."""
    columns: Columns = field(default_factory=ColumnsConfig)
    task: TaskKind = "classification"
    vocabulary_from: Annotated[str, Suppress] = ""
    progress: Annotated[str, Suppress] = "student"

    shelf_word = "student_name"
    from_shelf = _student

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline

        return pipeline.train_student(replace(self, teacher=model_in(self.teacher, TEACHER)))


@dataclass(frozen=True)
class Evaluate(Command):
    """Measure a student or teacher on labelled text.

    Example: distillkit evaluate runs/quickstart/student/model embedded:reviews/test --teacher
    runs/quickstart/teacher/model
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier, a bundle, or a run's folder."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Labelled data."""
    teacher: str = ""
    """Another classifier, to report agreement with."""
    columns: Columns = field(default_factory=ColumnsConfig)

    tells = True

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline
        from distillkit.measure.report import metrics_table, narrow

        model, teacher = model_in(self.model, BUNDLE, STUDENT), model_in(self.teacher, TEACHER)
        columns = columns_of(model, self.source, self.columns)
        report = pipeline.evaluate(model, self.source, columns, teacher)
        sys.stderr.write(narrow(metrics_table(report), terminal_width()) + "\n")
        return report


@dataclass(frozen=True)
class Predict(Command):
    """Answer texts, one JSON line each: text, label or labels and probabilities, or score.

    Example: echo 'I would go again tomorrow.' | distillkit predict runs/quickstart/student/model
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier, a bundle, or a run's folder."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")] = "-"
    """A source, or - for stdin: one text a line, the two texts of a pair split by a tab."""
    teacher: str = ""
    """With a bundle that distillkit cascade gave a threshold: the teacher's bundle, asked where the
    student is not sure."""
    reject: bool = False
    """With a bundle that has a rejection rule: also say which texts are unlike the training text
    (rejected), and answer null to them."""
    coverage: float = 0.0
    """With a classification bundle: also give `labels`, a set that holds the right one in this share
    of rows, as in 0.95; 0: none."""
    explain: bool = False
    """Add to each word its share in the answer: what the answer loses without it, -1 to 1."""
    columns: Columns = field(default_factory=ColumnsConfig)

    def __call__(self) -> Iterator[dict[str, Any]]:
        from distillkit.runtime.bundle import is_bundle

        model = model_in(self.model, BUNDLE, STUDENT)
        # A person at a terminal wants each answer at once; a pipe wants them fast.
        batch_rows = 1 if self.source == "-" and sys.stdin.isatty() else 64
        if is_bundle(Path(model)):  # needs neither torch nor transformers
            from distillkit.runtime import Predictor

            teacher = Predictor(self.teacher) if self.teacher else None
            predictor = Predictor(model, teacher=teacher)
            options: Any = {"reject": self.reject, "coverage": self.coverage}
            predictor.check(**options)
            rows = self._rows(model, predictor.manifest.pairs)
            return predictor.stream(rows, batch_rows, explained=self.explain, **options)
        if self.teacher:
            raise InputError(
                f"--teacher: {model} is not a bundle; distillkit export writes one, distillkit cascade gives it a threshold"
            )
        if self.reject or self.coverage:
            raise InputError(
                f"--{'reject' if self.reject else 'coverage'}: {model} is not a bundle; distillkit run writes one that has what it takes"
            )
        if (
            find_spec("torch") is None
            and not model.startswith("package:")
            and not Path(model).exists()
        ):
            raise InputError(
                f"{model}: no such folder or file; expected a distillkit export bundle (other models need torch: pip install 'distillkit[train]')"
            )
        from distillkit import pipeline

        return pipeline.predict(model, self._rows(model), batch_rows, explained=self.explain)

    def readable(self, results: Iterator[dict[str, Any]]) -> Iterator[str]:
        """Write an answer a line: what is answered, how probable it is, and the text.

        Below it stand the words that weigh most, if they are asked for.
        """
        for row in results:
            answer = row.get("label", row.get("score", ", ".join(row.get("labels") or ())))
            share = row.get("probabilities", {}).get(answer)
            shown = f"{answer:.4g}" if isinstance(answer, float) else answer
            if row.get("rejected"):
                shown = "(rejected)"
            elif "label" in row and "labels" in row:
                shown = f"{answer} of {{{', '.join(row['labels'])}}}"
            text = "\t".join(row[name] for name in ("text", "text_pair") if name in row)
            yield f"{shown}  {'' if share is None else f'{share:.2f}  '}{text}"
            words = [*row.get("words", ()), *row.get("words_pair", ())]
            if words:
                words.sort(key=lambda word: -abs(word["share"]))
                most = (f"{word['word']} {word['share']:+.2f}" for word in words[:_WORDS_SHOWN])
                yield "    " + ", ".join(most)

    def _rows(self, model: str, pairs: bool | None = None) -> Iterable[tuple[str, str | None]]:
        """Return the rows to answer; `pairs`: what the model takes, None for either."""
        if self.source == "-":
            return _stdin_rows(pairs)
        place = Path(self.source)
        if ":" not in self.source and place.suffix and not place.exists():  # without pyarrow, too
            raise InputError(
                f"{self.source}: no such file or folder; expected a source, or - for stdin"
            )
        from distillkit.data.content import paired, texts_of
        from distillkit.data.scratch import TEMPORARY
        from distillkit.data.tables import blocks_of, read_table

        columns = columns_of(model, self.source, self.columns)
        table = read_table(self.source, columns, labels="ignored", scratch=TEMPORARY)
        return (row for block in blocks_of(table) for row in paired(*texts_of(block)))


def _stdin_rows(pairs: bool | None) -> Iterator[tuple[str, str | None]]:
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        raw = raw if number > 1 else raw.removeprefix(codecs.BOM_UTF8)
        try:
            line = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(
                f"stdin:{number}: byte {error.start + 1} of the line is not UTF-8; convert the text first, {ICONV}"
            ) from None
        if number == 1 and line.startswith("{") and line.endswith("}"):
            log(
                "stdin:1: looks like JSON, and is answered as the text that it is; give a .jsonl file in place of - to have its fields read"
            )
        text, _, pair = line.partition("\t")
        if pairs is not None and pairs != bool(pair):
            wanted = (
                "pairs, their two texts split by a tab"
                if pairs
                else "single texts, and this line has a tab; replace it by a blank"
            )
            raise InputError(f"stdin:{number}: this model answers {wanted}")
        yield text, pair or None
