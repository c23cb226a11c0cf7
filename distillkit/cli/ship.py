"""The commands that take a model out of the workshop."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from distillkit.cli.command import Command
from distillkit.cli.stages import Columns
from distillkit.recipe import ColumnsConfig, CompressConfig, LossConfig, Recipe, TrainingConfig


@dataclass
class Export:
    """Write a model as an ONNX Runtime bundle, without torch, and compare their answers first.

    Example: distillkit export runs/quickstart/student/model runs/quickstart/bundle --source
    embedded:reviews/dev
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier with a fast tokenizer, student or
    teacher."""
    target: Annotated[Path, Positional, arg(metavar="TARGET")]
    """Folder to write; with --one-file a file."""
    source: str = ""
    """Texts or pairs to compare both on, beside some that are made to be hard."""
    one_file: bool = False
    """Write one file in place of a folder."""
    int8: bool = False
    """Compute in int8: faster for wide models, and no longer within 0.0001 of torch; how far away
    is said."""
    columns: Columns = field(default_factory=ColumnsConfig)


@dataclass
class Compress:
    """Make a model smaller, in measured steps, and retrain it as it will be stored.

    Example: distillkit compress runs/student runs/small --dev dev.tsv --transfer-set
    runs/transfer.parquet --logits runs/logits --max-mb 1 --max-drop 0.5
    """

    model: Annotated[str, Positional, arg(metavar="MODEL")]
    """Folder, package:NAME or hub name of a classifier with a fast tokenizer, student or
    teacher."""
    output: Annotated[Path, Positional, arg(metavar="OUTPUT")]
    """Folder for bundle.zip, a checkpoint with the same answers, and the metrics."""
    dev: str
    """Labelled rows, on which each step is measured."""
    transfer_set: str = ""
    """What says which tokens are used, and what the model is trained on again."""
    logits: Path | None = None
    """The store that distillkit label wrote for the transfer set; none: no training."""
    max_mb: float = 0.0
    """Size of bundle.zip in MB (10^6 bytes) that is wanted; what to lose is chosen then."""
    max_drop: float = 0.0
    """Points of the dev score that may be lost with --max-mb; 0: as many as it takes."""
    compress: CompressConfig = field(default_factory=CompressConfig)
    training: TrainingConfig = field(default_factory=lambda: replace(Recipe().training, epochs=1))
    loss: LossConfig = field(default_factory=LossConfig)
    columns: Columns = field(default_factory=ColumnsConfig)
    seed: int = 1
    """Draws order, dropout, and what curvature is taken on."""
    resume: bool = True
    """Go on from the checkpoints that a killed training left; --no-resume starts over."""


def _compress(command: Compress) -> dict[str, Any]:
    from distillkit.compress.run import CompressJob, compress

    result = compress(
        CompressJob(
            command.model,
            command.output,
            command.dev,
            command.compress,
            command.transfer_set,
            command.logits,
            command.loss,
            command.training,
            command.columns,
            command.max_mb,
            command.max_drop,
            command.seed,
            command.resume,
        )
    )
    return {"output": str(command.output), "steps": result["steps"]}


@dataclass
class Bench:
    """Measure what models cost to serve, in torch and in ONNX Runtime: size, memory, start, speed.

    Example: distillkit bench runs/quickstart/student/model runs/quickstart/teacher/model --source
    embedded:reviews/dev
    """

    models: Annotated[tuple[str, ...], Positional, arg(metavar="MODEL...")]
    """Classifiers (folder, package:NAME, hub name) or bundles; the last is what the others are
    compared with."""
    source: str
    """Texts or pairs to answer, yours if you can."""
    output: Path = Path("runs/bench")
    """Folder for bench.json, bench.md and bench.svg."""
    forms: tuple[str, ...] = ("torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8")
    """Of models that are no bundles."""
    batch_sizes: tuple[int, ...] = (1, 8, 32, 256)
    """Rows a call."""
    threads: tuple[int, ...] = ()
    """Of each call; none: 1, and all cores."""
    rows: int = 500
    """Of the source, at most."""
    columns: Columns = field(default_factory=ColumnsConfig)


def _bench(command: Bench) -> dict[str, Any]:
    from distillkit.bench.run import bench

    result = bench(
        command.models,
        command.source,
        command.output,
        command.columns,
        forms=command.forms,
        batch_sizes=command.batch_sizes,
        threads=command.threads,
        rows=command.rows,
    )
    first = f"{result['threads'][0]} x {command.batch_sizes[0]}"
    rates = {
        form["name"]: round(form["speed"][first]["rows_per_second"], 1) for form in result["forms"]
    }
    return {"output": str(command.output), "rows_per_second": rates}


@dataclass
class Cascade:
    """Find the confidence below which a student's teacher is asked; keep it in the bundle.

    Example: distillkit cascade runs/bundle runs/teacher embedded:reviews/dev --share 0.2
    """

    student: Annotated[str, Positional, arg(metavar="STUDENT")]
    """A bundle, which is given the threshold; or a checkpoint, which is only measured."""
    teacher: Annotated[str, Positional, arg(metavar="TEACHER")]
    """A bundle or a checkpoint with the same labels."""
    source: Annotated[str, Positional, arg(metavar="SOURCE")]
    """Labelled dev rows."""
    accuracy: float = 0.0
    """Wanted, in percent, with as few rows to the teacher as can be; with neither this nor --share
    the teacher's own."""
    share: float = 0.0
    """Of the rows that may go to the teacher, 0 to 1, with the best accuracy."""
    output: Path = Path("runs/cascade")
    """Folder for cascade.json and cascade.svg."""
    columns: Columns = field(default_factory=ColumnsConfig)


def _cascade(command: Cascade) -> dict[str, Any]:
    from distillkit.cascade import cascade

    result = cascade(
        command.student,
        command.teacher,
        command.source,
        command.output,
        command.columns,
        accuracy=command.accuracy,
        share=command.share,
    )
    shown = (
        "threshold",
        "temperature",
        "accuracy",
        "share",
        "held_out",
        "student_accuracy",
        "teacher_accuracy",
        "milliseconds",
    )
    return {"output": str(command.output), **{key: result[key] for key in shown}}


@dataclass
class Serve:
    """Answer over HTTP from a bundle, in batches, until SIGTERM or Ctrl-C.

    Example: distillkit serve runs/quickstart/bundle
    """

    bundle: Annotated[str, Positional, arg(metavar="BUNDLE")]
    """What distillkit export wrote."""
    teacher: str = ""
    """With a bundle that distillkit cascade gave a threshold: the teacher's bundle, asked where the
    student is not confident."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0: at all."""
    port: int = 8000
    """0: any that is free; the line on stderr says which."""
    threads: int = 0
    """Calls of the model at once, of one thread each; 0: as many as there are cores."""
    batch_rows: int = 64
    """Rows a call, of one request or several."""
    batch_wait_ms: float = 2.0
    """How long a request waits for others to share its call."""
    max_rows: int = 256
    """Of a request."""
    max_body_kb: int = 256
    """Of a request, in units of 1,024 bytes."""
    max_waiting: int = 1024
    """Rows that may wait for a call, and requests at once; what comes beyond is refused with
    503."""


def _serve(command: Serve) -> dict[str, int]:
    from distillkit.serve.app import Limits
    from distillkit.serve.server import serve

    limits = Limits(
        command.threads,
        command.batch_rows,
        command.batch_wait_ms,
        command.max_rows,
        command.max_body_kb,
        command.max_waiting,
    )
    return serve(
        command.bundle, teacher=command.teacher, host=command.host, port=command.port, limits=limits
    )


@dataclass
class Push:
    """Put a run's student on a Hugging Face hub, with a model card of the run's own metrics.

    Example: distillkit push runs/quickstart OWNER/NAME --to runs/quickstart-hub
    """

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Folder of a finished run: runs/NAME."""
    repo: Annotated[str, Positional, arg(metavar="REPO")]
    """OWNER/NAME on the hub, made where there is none; HF_ENDPOINT says which hub, hf auth login or
    HF_TOKEN who you are."""
    bundle: Path | None = None
    """What distillkit export or compress wrote; none: RUN/bundle, where there is one."""
    private: bool = False
    """A repository that is made is a private one."""
    to: Path | None = None
    """Write here in place of pushing: a new folder, to be looked at; nothing leaves the machine."""


def _push(command: Push) -> dict[str, Any]:
    from distillkit.push import push

    return push(
        command.run, command.repo, bundle=command.bundle, private=command.private, to=command.to
    )


def _export(command: Export) -> dict[str, Any]:
    from distillkit import pipeline

    return pipeline.export(
        command.model,
        command.target,
        command.source,
        command.columns,
        one_file=command.one_file,
        int8=command.int8,
    )


COMMANDS: dict[str, Command] = {
    "export": Command(Export, _export),
    "compress": Command(Compress, _compress),
    "bench": Command(Bench, _bench),
    "cascade": Command(Cascade, _cascade),
    "serve": Command(Serve, _serve),
    "push": Command(Push, _push),
}
