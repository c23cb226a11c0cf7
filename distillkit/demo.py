"""`distillkit demo`: student, teacher and their cascade answer what is typed on one page."""

import sys
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

from distillkit import pipeline
from distillkit.data.content import texts_of
from distillkit.data.gold import gold_of
from distillkit.data.tables import read_table, spread_rows
from distillkit.errors import InputError
from distillkit.measure.deferral import teachers_accuracy
from distillkit.recipe import ColumnsConfig
from distillkit.report.page import live_part, template
from distillkit.runs.finished import finished
from distillkit.runs.folder import BUNDLE
from distillkit.runtime import Predictor
from distillkit.serve.app import Service
from distillkit.serve.limits import Limits
from distillkit.serve.server import listen

_ROWS = 500  # of dev, at most, that a threshold is chosen on


def demo(run: str | Path, *, port: int = 0, browser: bool = True) -> dict[str, int]:
    """Serve a run's page to this machine alone until SIGTERM or SIGINT, and open it.

    Args:
        run: Folder of a finished run, with bundle and teacher.
        port: 0: any that is free.
        browser: Open the page; it is said on stderr where it is.

    Returns:
        How many requests were answered, and their rows.

    Raises:
        InputError: The run has no bundle or no teacher, or the port is taken.
    """
    service = demo_service(Path(run))

    def ready(address: str) -> None:
        sys.stderr.write(f"distillkit: {run} answers at {address}; Ctrl-C stops it\n")
        if browser:
            Thread(target=webbrowser.open, args=[address], daemon=True).start()

    return listen(service, "127.0.0.1", port, ready)


def demo_service(run: Path) -> Service:
    """Return the service of a run's demo: its page, and the teacher's answers.

    Raises:
        InputError: As `demo`.
    """
    bundle, teacher = run / BUNDLE, run / "teacher" / "model"
    for place, mend in (
        (run / "recipe.yaml", "distillkit run RECIPE makes a run"),
        (teacher, f"without it the student answers alone: distillkit serve {run}"),
        (bundle, f"distillkit export {run} {bundle} --one-file makes it"),
    ):
        if not place.exists():
            raise InputError(f"{run}: it has no {place.relative_to(run)}; {mend}")
    finished(run)
    student, live = Predictor(bundle), live_part(run)
    rule = _rule(student, run, str(teacher)) if student.task == "classification" else None
    if rule:  # what is shown of the student's confidence is what decides
        student.manifest = replace(student.manifest, temperature=rule["temperature"])
    student.manifest = replace(student.manifest, pairs=live["pairs"])
    models = _Models(student, pipeline.Classifier(str(teacher)), in_page=bool(live["bundle"]))
    page = template("demo").render(
        name=run.resolve().name, task=student.task, live=live, demo={"rule": rule}
    )
    return Service(models, Limits(threads=1, batch_rows=1, batch_wait_ms=0, max_rows=1), page)


def _rule(student: Predictor, run: Path, teacher: str) -> dict[str, Any]:
    """Return the cascade's rule: the manifest's, or else the one that dev gives."""
    if student.manifest.cascade:
        return student.manifest.cascade | {"source": f"kept in {BUNDLE}"}
    dev = spread_rows(read_table(str(run / "data" / "dev.parquet"), ColumnsConfig()), _ROWS)
    gold = gold_of(dev, student.labels, "classification")
    theirs, _ = pipeline.classify(teacher, dev, "dev", student.labels)
    temperature = student.manifest.temperature
    rule = teachers_accuracy(student.logits(*texts_of(dev)), theirs, gold, temperature)
    return rule | {"source": f"the lowest with the teacher's accuracy on {len(dev)} dev rows"}


class _Models:
    """The teacher, and the student where it cannot answer in the page, as the service asks them."""

    def __init__(self, student: Predictor, teacher: pipeline.Classifier, *, in_page: bool) -> None:
        self.manifest = student.manifest
        self._asked: dict[str, Predictor | pipeline.Classifier] = {"teacher": teacher}
        if not in_page:
            self._asked["student"] = student

    def predict(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, /
    ) -> list[dict[str, Any]]:
        """Return one text's answers by model, each with the milliseconds it took."""
        found = {}
        for name, model in self._asked.items():
            began = time.perf_counter()
            (answer,) = model.predict(texts, text_pairs)
            found[name] = answer | {"ms": 1000 * (time.perf_counter() - began)}
        return [found]
