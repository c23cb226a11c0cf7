"""transformers loads every kind of student, whichever import comes first."""

import subprocess
import sys

import pytest
from transformers import AutoConfig, AutoModelForSequenceClassification

from distillkit.recipe.kinds import load_kinds
from distillkit.student.register import kind_of_model, network_of, register

LOAD = """
from transformers import AutoModelForSequenceClassification
import sys
for folder in sys.argv[1:]:
    print(type(AutoModelForSequenceClassification.from_pretrained(folder)).__name__)
"""
TRANSFORMER = {
    "model_type": "bert",
    "vocab_size": 5,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 4,
}
OURS = {name: kind for name, kind in load_kinds().items() if kind.network is not None}


def untrained(kind):
    model = network_of(kind)
    own = (
        {"vocab_size": 3, "embedding_size": 2}
        if kind.from_teacher is None
        else {"encoder": TRANSFORMER}
    )
    return model(model.config_class(head_size=2, **own))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of a checkpoint of every kind, by the name of its class."""
    models = [untrained(kind) for kind in OURS.values()]
    folders = {type(model).__name__: tmp_path_factory.mktemp("kind") for model in models}
    for model in models:
        model.save_pretrained(folders[type(model).__name__])
    return folders


def first_words(code, saved):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, saved.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_a_fresh_process_loads_every_kind_and_importing_distillkit_alone_loads_no_torch(saved):
    alone = "import sys, distillkit; assert not {'torch', 'transformers'} & set(sys.modules)"
    assert first_words(alone + LOAD, saved) == list(saved)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "import distillkit.student.build",
        "import distillkit\nimport transformers.models.bert.modeling_bert",
        "import transformers.models.bert.modeling_bert\nimport distillkit",
        "from transformers import AutoModelForSequenceClassification\nimport distillkit",
    ],
)
def test_a_fresh_process_loads_every_kind_whichever_import_comes_first(first, saved):
    assert first_words(first + LOAD, saved) == list(saved)


@pytest.mark.slow
def test_a_configuration_is_asked_for_before_any_model(saved):
    code = "import sys\nfrom distillkit.teacher.checkpoint import load_config_of\nfor f in sys.argv[1:]: print(load_config_of(f).architectures[0])"
    assert first_words(code, saved) == list(saved)


@pytest.mark.parametrize("name", OURS)
def test_the_auto_classes_know_every_kind_and_registering_twice_is_once(name):
    register()
    register()
    model = untrained(OURS[name])
    config = AutoConfig.for_model(**model.config.to_diff_dict())
    assert type(config) is type(model.config)
    assert type(AutoModelForSequenceClassification.from_config(config)) is type(model)
    assert kind_of_model(model).name == name
