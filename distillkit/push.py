"""`distillkit push`: a run's student on a Hugging Face hub, with a card of the run's metrics."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import validate_repo_id

from distillkit import pipeline
from distillkit.data.checked import read_json
from distillkit.data.content import texts_of
from distillkit.data.files import SUMS, replaceable, whole_folder
from distillkit.data.gold import gold_of
from distillkit.data.labels import labels_of
from distillkit.data.tables import read_table
from distillkit.doctor.text import check_student_vocabulary, check_truncation
from distillkit.errors import InputError
from distillkit.measure.card import About, model_card
from distillkit.measure.cost import megabytes
from distillkit.measure.metrics import metrics
from distillkit.pipeline.export import parity_of
from distillkit.processes import log
from distillkit.recipe import ColumnsConfig, Recipe, dump, load_recipe
from distillkit.recipe.places import Sort, places_of, with_places
from distillkit.runs import Summary, at_work, dumped, settled
from distillkit.runs.evaluation import evaluation_folder
from distillkit.runs.finished import finished
from distillkit.runs.folder import BUNDLE as SHIPPED
from distillkit.runtime.bundle import read_bundle, write_bundle
from distillkit.teacher.checkpoint import (
    SCRATCH,
    load_classifier,
    max_tokens_of,
    names_a_path,
    task_of,
)

BUNDLE = "bundle"


def push(
    run: Path,
    repo: str,
    *,
    bundle: Path | None = None,
    private: bool = False,
    to: Path | None = None,
) -> Summary:
    """Put a run's student on a hub in one commit: checkpoint, bundle, recipe, result, model card.

    No data, no logits, no teacher's weights and no training logs go out. Of a path only the last
    part goes out.

    Args:
        run: Folder of a finished run.
        repo: OWNER/NAME on the hub, made if it is not there; HF_ENDPOINT says which hub.
        bundle: What `distillkit export` or `compress` wrote; None: the run's folder `bundle`, if
            there is one, which must answer as the run's student does, or else what the run ships.
        private: Make the repository a private one.
        to: Folder to write in place of pushing.

    Returns:
        `files`, and `output` or `repo`, `commit` (its address).

    Raises:
        InputError: The run is not finished, the bundle is another student's, the name is not one,
            or the hub refuses or cannot be reached.
    """
    _check_name(repo)
    if to is not None:
        with replaceable(to), whole_folder(to) as folder:
            return {"output": str(to), "files": _gather(run, repo, bundle, folder)}
    with tempfile.TemporaryDirectory() as name:
        files = _gather(run, repo, bundle, Path(name))
        return {"repo": repo, "commit": _upload(Path(name), files, repo, private), "files": files}


def _check_name(repo: str) -> None:
    try:
        validate_repo_id(repo)
        fits = "/" in repo
    except HFValidationError:
        fits = False
    if not fits:
        raise InputError(
            f"{repo!r}: not a name on a hub; expected OWNER/NAME, of letters, digits, '-', '_' and '.'"
        )


def _gather(run: Path, repo: str, bundle: Path | None, folder: Path) -> list[str]:
    """Fill a folder with all files that go out; return their names."""
    if not (run / "recipe.yaml").is_file():
        raise InputError(
            f"{run}: no recipe.yaml; expected a run's folder, as distillkit run leaves it: runs/NAME"
        )
    with at_work(run):
        recipe, result = finished(run)
        shown = _without_paths(recipe, run)
        _copy_student(run, shown, folder)
        (folder / "result.json").write_text(dumped(_without_folders(result, shown)), "utf-8")
        columns = ColumnsConfig(text_pair="text_pair" if recipe.data.columns.text_pair else "")
        dev = read_table(str(run / "data" / "dev.parquet"), columns, task=recipe.data.task)
        teacher = recipe.teacher.model
        about = About(
            name=repo,
            recipe=shown,
            result=result,
            latency=read_json(evaluation_folder(run) / "latency.json"),
            teacher_config=read_json(run / "teacher" / "model" / "config.json"),
            **_student(run / "student" / "model", dev),
            hub_teacher=teacher if _on_hub(teacher, run) else "",
            hub_data=_hub_data(recipe, run),
            ladder=_ladder(run, recipe, result),
            bundle=_copy_bundle(bundle, run, folder / BUNDLE, dev),
        )
    model_card(about).save(folder / "README.md")
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _copy_student(run: Path, shown: Recipe, folder: Path) -> None:
    for file in (run / "student" / "model").iterdir():  # a hub has checksums of its own
        if file.is_file() and not file.name.startswith(".") and file.name != SUMS:
            shutil.copyfile(file, folder / file.name)
    (folder / "student.yaml").write_text(dump(shown.student), encoding="utf-8")
    (folder / "recipe.yaml").write_text(dump(shown), encoding="utf-8")


def _student(model: Path, dev: pa.Table) -> dict[str, Any]:
    """Describe a checkpoint for its card, with the shares of dev that it cannot read."""
    network, tokenizer = load_classifier(str(model))
    (texts, pairs), limit = texts_of(dev), max_tokens_of(network, tokenizer)
    longer = check_truncation("student", tokenizer, texts, pairs, limit).metrics["rows_share"]
    known = check_student_vocabulary(tokenizer, [*texts, *(pairs or [])]).metrics
    return {
        "labels": labels_of(network),
        "config": read_json(model / "config.json"),
        "max_tokens": limit,
        "truncated": longer,
        "unknown": None if tokenizer.unk_token_id is None else known["unknown_share"],
    }


def _ladder(run: Path, recipe: Recipe, result: Summary) -> Summary | None:
    """Read the run's ladder, if it is one of this recipe."""
    if not (run / "ladder" / "ladder.json").is_file():
        return None
    climbed = load_recipe(str(run / "ladder" / "recipe.yaml"))
    climbed = settled(climbed, result["data"]["rows"]["train"], result["transfer_set"]["rows"])
    if replace(climbed, engine=recipe.engine, workers=recipe.workers) != recipe:
        log(
            f"push: {run / 'ladder'} was made with other settings than the run; the card leaves it out"
        )
        return None
    return read_json(run / "ladder" / "ladder.json")


def _copy_bundle(
    given: Path | None, run: Path, target: Path, dev: pa.Table
) -> dict[str, Any] | None:
    """Copy a bundle and measure the copy on dev; what was exported must answer as the student."""
    exported, model = run / BUNDLE, run / "student" / "model"
    # The run's own, in its folder, may have been given a threshold by `cascade`.
    own = next((path for path in (exported, run / SHIPPED) if path.exists()), None)
    bundle = given or own or run / "ship" / SHIPPED
    if not bundle.exists() and given is None:
        return None
    from distillkit.runtime import Predictor

    manifest, files = read_bundle(bundle)
    target.mkdir()
    write_bundle(target, manifest, files, one_file=False)
    texts, pairs = texts_of(dev)
    task, (student, labels) = task_of(str(model)), pipeline.classify(str(model), dev, "dev")
    if (manifest.labels, manifest.task) != (labels, task):
        raise InputError(
            f"{bundle}: is of another task, or has other labels than {model} ({', '.join(labels)}); give a bundle of that checkpoint"
        )
    logits = Predictor(target).logits(texts, pairs)
    largest = float(np.abs(logits - student).max())
    if bundle == exported and given is None and largest > parity_of(student):
        raise InputError(
            f"{bundle}: does not answer as {model} does; export that again (distillkit export {model} {bundle}), or say --bundle to push it as it is"
        )
    score = metrics(
        task, logits / manifest.temperature, gold_of(dev, labels, task), labels, student
    )
    return {
        "dev": score,
        "largest": largest,
        "megabytes": megabytes(target),
        "shipped": given is None and bundle != exported,
    }


def _without_paths(recipe: Recipe, run: Path) -> Recipe:
    """Return a recipe in which every path of this machine is its last part alone."""
    sources = {name for sort, name in places_of(recipe) if sort == "source"}

    def shown(sort: Sort, setting: str, name: str) -> str:
        if sort == "source":
            return _shown_source(name, setting, sources, run)
        return _shown_model(name, run) if sort == "model" else _last(name)

    recipe = with_places(recipe, shown)
    adapt, tagger = recipe.adapt, recipe.augment.tagger
    text = replace(adapt.text, cache=_last(adapt.text.cache))
    tagger = f"spacy:{_last(tagger)}" if tagger.startswith("spacy:") else tagger
    return replace(
        recipe,
        adapt=replace(adapt, text=text),
        augment=replace(recipe.augment, tagger=tagger),
    )


def _without_folders(result: Summary, shown: Recipe) -> Summary:
    """Return a result in which a zero-shot teacher is named as the recipe that goes out names it."""
    first, name = result["data"].get("first_labels"), shown.label.zero_shot
    if not first or not name:
        return result
    first = {**first, "by": name, "dev_by": name if first["dev_by"] else ""}
    return {**result, "data": {**result["data"], "first_labels": first}}


def _shown_model(name: str, run: Path) -> str:
    """Return a checkpoint's name: of a path its last part alone."""
    return name if name.startswith("package:") or _on_hub(name, run) else _last(name)


def _shown_source(name: str, split: str, others: set[str], run: Path) -> str:
    """Return a data source's name without the folders of this machine."""
    if name.startswith("embedded:") or not name:
        return name
    if name.startswith("wordnet:"):
        return "wordnet"
    if name.startswith("datasets:"):
        _, dataset, *rest = name.split(":")
        dataset = dataset if _on_hub(dataset, run) else _last(dataset)
        return ":".join(["datasets", dataset, *rest])
    # The split keeps apart two files of one name.
    twice = any(_last(other) == _last(name) for other in others - {name})
    return f"{split}/{_last(name)}" if twice else _last(name)


def _last(path: str) -> str:
    return Path(path).name


def _on_hub(name: str, run: Path) -> bool:
    """Say whether a checkpoint or data set is the hub's: named as one, and not on this machine."""
    if name == SCRATCH or name.startswith("package:") or names_a_path(name):
        return False
    # A run usually starts here or in the folder that holds its runs/.
    return not any((folder / name).exists() for folder in (Path(), run.resolve().parent.parent))


def _hub_data(recipe: Recipe, run: Path) -> list[str]:
    sources = [name for _, name in places_of(recipe)]
    named = [source.split(":")[1] for source in sources if source.startswith("datasets:")]
    return list(dict.fromkeys(name for name in named if _on_hub(name, run)))


def _upload(folder: Path, files: list[str], repo: str, private: bool) -> str:
    """Commit a folder's files; return the commit's address."""
    api = HfApi()
    with _hub_errors(repo, api.endpoint):
        api.create_repo(repo, private=private, exist_ok=True)
        there = api.model_info(repo)
        if private and not there.private:
            raise InputError(
                f"{repo}: is there already, and public; make it private in its settings, or choose another name"
            )
        # An earlier push's bundle would answer as another student.
        held = {file.rfilename for file in there.siblings or []}
        gone = [name for name in held if name.startswith(f"{BUNDLE}/") and name not in files]
        operations = [
            *(CommitOperationDelete(name) for name in sorted(gone)),
            *(CommitOperationAdd(name, folder / name) for name in files),
        ]
        # upload_folder would make several commits of large folders.
        return api.create_commit(repo, operations, commit_message="distillkit push").commit_url


@contextmanager
def _hub_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Turn what the hub's client raises into one line."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise InputError(
            f"{repo}: HF_HUB_OFFLINE is set; unset it to push, or write to a folder: --to FOLDER"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise InputError(
                f"{repo}: {endpoint} refuses ({status}): no token, or one that may not write there; hf auth login, or HF_TOKEN"
            ) from None
        what = " ".join((error.server_message or str(error)).split())[:300]
        raise InputError(f"{repo}: {endpoint} answers {status}: {what}") from None
    except HTTPError as error:
        raise InputError(
            f"{repo}: {endpoint} cannot be reached: {' '.join(str(error).split())[:300]}"
        ) from None
