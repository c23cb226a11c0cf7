"""The commands that take a model out of the workshop."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from tyro.conf import Positional, arg

from distillkit.cli.command import Columns, Command
from distillkit.cli.places import BUNDLE, STUDENT, TEACHER, columns_of, model_in
from distillkit.errors import InputError
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, CompressConfig, CompressJob
from distillkit.runtime.bundle import is_bundle
from distillkit.serve.limits import Limits


@dataclass(frozen=True)
class Export(Command):
    """Write a model as an ONNX Runtime bundle, without torch, and compare their answers first.

    Example: distillkit export runs/quickstart/student/model runs/quickstart/bundle --source
    embedded:reviews/dev
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier with a fast tokenizer, student or teacher; a
    run's folder means its student."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Folder to write; with --one-file a file."""
    source: str = ""
    """Texts or pairs to compare both on, beside some that are made to be hard."""
    one_file: bool = False
    """Write one file in place of a folder."""
    int8: bool = False
    """Compute in int8: faster for wide models. Logits then differ from torch's by more than 0.0001;
    the summary says by how much."""
    overwrite: bool = False
    """Replace a finished bundle of another model, or one with another temperature or a threshold."""
    js: bool = False
    """Write a folder for web pages and Node: runtime in JavaScript, types, bundle, example page.
    MODEL may be a bundle; a run's folder means its bundle.zip."""
    dev: str = ""
    """Labelled rows that training has not seen: the temperature and the label sets are fitted on
    them."""
    columns: Columns = field(default_factory=ColumnsConfig)

    def __call__(self) -> Mapping[str, Any]:
        from distillkit import pipeline

        if self.js:
            return self._javascript()
        model = model_in(self.model, STUDENT)
        columns = columns_of(model, self.source or self.dev, self.columns)
        given = {name: value for name, value in vars(self).items() if name != "js"}
        return pipeline.export(**given | {"model": model, "columns": columns})

    def _javascript(self) -> dict[str, Any]:
        """Write the package from a bundle as it is; of any other model make the bundle first."""
        from distillkit import pipeline
        from distillkit.pipeline.javascript import write_javascript

        model = model_in(self.model, BUNDLE, STUDENT)
        for name in ("int8", "one_file"):
            if getattr(self, name):
                raise InputError(
                    f"--{name.replace('_', '-')}: --js writes a folder that computes in fp32; leave it out"
                )
        if is_bundle(Path(model)):
            for name in ("dev", "source"):
                if getattr(self, name):
                    raise InputError(
                        f"--{name}: {model} is a bundle, which --js takes as it is; export a checkpoint"
                    )
            return write_javascript(Path(model), self.target)
        with TemporaryDirectory() as work:
            bundle = Path(work) / BUNDLE
            columns = columns_of(model, self.source or self.dev, self.columns)
            pipeline.export(model, bundle, self.source, columns, one_file=True, dev=self.dev)
            return write_javascript(bundle, self.target)


@dataclass(frozen=True, kw_only=True)
class Compress(CompressJob, Command):
    """Make a model smaller, in measured steps, and retrain it as it will be stored.

    Example: distillkit compress runs/student runs/small --dev dev.tsv --transfer-set
    runs/transfer.parquet --logits runs/logits --max-mb 1 --max-drop 0.5
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    output: Annotated[Path, Positional, arg(metavar="OUTPUT")]
    settings: Annotated[CompressConfig, arg(name="compress")] = field(
        default_factory=CompressConfig
    )
    columns: Columns = field(default_factory=ColumnsConfig)

    tells = True

    def __call__(self) -> dict[str, Any]:
        from distillkit.compress.report import steps_table
        from distillkit.compress.run import compress

        model = model_in(self.model, STUDENT)
        columns = columns_of(model, self.dev, self.columns)
        result = compress(replace(self, model=model, columns=columns))
        log(f"\n{steps_table(result)}\n\n{self.output / 'compress.json'}")
        return {"output": str(self.output), "steps": result["steps"]}


@dataclass(frozen=True)
class Bench(Command):
    """Measure what models cost to serve, in torch and in ONNX Runtime: size, memory, start, speed.

    Example: distillkit bench runs/quickstart/student/model runs/quickstart/teacher/model --source
    embedded:reviews/dev
    """

    models: Annotated[tuple[str, ...], Positional, arg(metavar="MODEL...")]
    """Classifiers (folder, package:NAME, hub name), bundles or runs' folders; the last form of the last one is
    what all are compared with."""
    source: str
    """Texts or pairs to answer, yours if you can."""
    output: Path = Path("runs/bench")
    """Folder for bench.json, bench.md and bench.svg."""
    forms: tuple[str, ...] = ("torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8")
    """Forms to measure of a checkpoint; a bundle is measured as it is."""
    batch_sizes: tuple[int, ...] = (1, 8, 32, 256)
    """Rows per call."""
    threads: tuple[int, ...] = ()
    """Threads per call; none: 1, and all cores."""
    rows: int = 500
    """Rows of the source to measure, at most."""
    columns: Columns = field(default_factory=ColumnsConfig)

    tells = True

    def __call__(self) -> dict[str, Any]:
        from distillkit.bench.run import bench

        if not self.models:
            raise InputError("bench: name one model or more, such as a run's folder")
        models = tuple(model_in(model, STUDENT) for model in self.models)
        columns = columns_of(models[0], self.source, self.columns)
        result = bench(**vars(self) | {"models": models, "columns": columns})
        first = f"{result['threads'][0]} x {self.batch_sizes[0]}"
        rates = {
            form["name"]: round(form["speed"][first]["rows_per_second"], 1)
            for form in result["forms"]
        }
        return {"output": str(self.output), "rows_per_second": rates}


@dataclass(frozen=True)
class Cascade(Command):
    """Find the confidence below which a student's teacher is asked; keep it in the bundle.

    Example: distillkit cascade runs/bundle runs/teacher embedded:reviews/dev --deferral-rate 0.2
    """

    student: Annotated[str, Positional, arg(metavar="STUDENT")]
    """A bundle, which is given the threshold; or a checkpoint, which is only measured."""
    teacher: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A bundle or a checkpoint with the same labels."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Labelled dev rows."""
    accuracy: float = 0.0
    """Wanted, in percent, at the least deferral rate. Without this and --deferral-rate, the
    teacher's own."""
    deferral_rate: float = 0.0
    """Largest fraction of rows that may go to the teacher, 0 to 1, with the best accuracy."""
    output: Path = Path("runs/cascade")
    """Folder for cascade.json, cascade.md and cascade.svg."""
    columns: Columns = field(default_factory=ColumnsConfig)

    tells = True

    def __call__(self) -> dict[str, Any]:
        from distillkit.cascade import cascade

        student = model_in(self.student, BUNDLE, STUDENT)
        found = {
            "student": student,
            "teacher": model_in(self.teacher, TEACHER),
            "columns": columns_of(student, self.source, self.columns),
        }
        result = cascade(**vars(self) | found)
        shown = (
            "threshold",
            "temperature",
            "accuracy",
            "deferral_rate",
            "held_out",
            "student_accuracy",
            "teacher_accuracy",
            "milliseconds",
        )
        return {"output": str(self.output), **{key: result[key] for key in shown}}


@dataclass(frozen=True)
class Serve(Command):
    """Answer over HTTP from a bundle, in batches, until SIGTERM or Ctrl-C.

    Example: distillkit serve runs/quickstart/bundle
    """

    bundle: Annotated[str, Positional, arg(metavar="BUNDLE")]
    """What distillkit run, compress or export wrote; a run's folder means its bundle."""
    teacher: str = ""
    """With a bundle that distillkit cascade gave a threshold: the teacher's bundle, asked where the
    student is not confident."""
    reject: bool = False
    """Refuse texts unlike the training text, as distillkit predict does."""
    coverage: float = 0.0
    """Also answer with label sets of that coverage, as distillkit predict does; 0: none."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0: at all."""
    port: int = 8000
    """0: any that is free; the line on stderr says which."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that a request's Host may have, beside this machine's own; none: any, or this machine's
    own where --host is a loopback address."""
    limits: Annotated[Limits, arg(name="")] = field(default_factory=Limits)

    def __call__(self) -> dict[str, int]:
        from distillkit.serve.server import serve

        return serve(**vars(self) | {"bundle": model_in(self.bundle, BUNDLE, "bundle")})


@dataclass(frozen=True)
class Demo(Command):
    """Open a page where a run's student, its teacher and their cascade answer what is typed.

    Example: distillkit demo runs/quickstart
    """

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Folder of a finished run with bundle.zip and teacher: runs/NAME."""
    port: int = 0
    """Port, for this machine alone; 0: any free one."""
    browser: bool = True
    """Open the page in the browser; the line on stderr says where it is."""

    def __call__(self) -> dict[str, int]:
        from distillkit.demo import demo

        return demo(**vars(self))


@dataclass(frozen=True)
class Push(Command):
    """Put a run's student on a Hugging Face hub, with a model card of the run's own metrics.

    Example: distillkit push runs/quickstart OWNER/NAME --to runs/quickstart-hub
    """

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Folder of a finished run: runs/NAME."""
    repo: Annotated[str, Positional, arg(metavar="REPO")]
    """OWNER/NAME on the hub, made where there is none; HF_ENDPOINT says which hub, hf auth login or
    HF_TOKEN who you are."""
    bundle: Path | None = None
    """A bundle of distillkit export or compress; none: RUN/bundle, or else RUN/bundle.zip."""
    private: bool = False
    """Create the repository as private."""
    to: Path | None = None
    """Write here in place of pushing: a new folder, to be looked at; nothing leaves the machine."""

    def __call__(self) -> dict[str, Any]:
        from distillkit.push import push

        return push(**vars(self))


@dataclass(frozen=True)
class Report(Command):
    """Write a finished run's report.html: one page with its evidence, which needs no network.

    Example: distillkit report runs/quickstart
    """

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Folder of a finished run: runs/NAME."""

    def __call__(self) -> dict[str, str]:
        from distillkit.report import write_report

        return {"output": str(write_report(self.run))}
