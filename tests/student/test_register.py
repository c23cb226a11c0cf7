import subprocess
import sys

import pytest
from transformers import AutoConfig, AutoModelForSequenceClassification

from distillkit.student.pruned import (
    PrunedTransformerConfig,
    PrunedTransformerForSequenceClassification,
)
from distillkit.student.register import WORD_KINDS, register
from distillkit.student.transformer import (
    SiameseTransformerConfig,
    SiameseTransformerForSequenceClassification,
)

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


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of a checkpoint of every kind, by the name of its class."""
    models = [
        model(config(vocab_size=3, embedding_size=2, head_size=2))
        for config, model in WORD_KINDS.values()
    ]
    models.append(
        SiameseTransformerForSequenceClassification(
            SiameseTransformerConfig(TRANSFORMER, head_size=2)
        )
    )
    models.append(
        PrunedTransformerForSequenceClassification(
            PrunedTransformerConfig(TRANSFORMER, heads=[2, 1])
        )
    )
    folders = {type(model).__name__: tmp_path_factory.mktemp("kind") for model in models}
    for model in models:
        model.save_pretrained(folders[type(model).__name__])
    return folders


@pytest.mark.parametrize(
    "first",
    [
        "import transformers\nimport distillkit",
        "import distillkit\nimport transformers",
        "import distillkit.student.build",
        "import distillkit.pipeline",
        "import distillkit\nimport transformers.models.bert.modeling_bert",
        "import transformers.models.bert.modeling_bert\nimport distillkit",
        "from transformers import AutoModelForSequenceClassification\nimport distillkit",
    ],
)
def test_a_fresh_process_loads_every_kind_whichever_import_comes_first(first, saved):
    done = subprocess.run(
        [sys.executable, "-c", first + LOAD, *map(str, saved.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == list(saved), done.stderr


def test_a_configuration_is_asked_for_before_any_model(saved):
    code = "import sys\nfrom distillkit.teacher.checkpoint import load_config_of\nfor f in sys.argv[1:]: print(load_config_of(f).architectures[0])"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, saved.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == list(saved), done.stderr


def test_importing_distillkit_alone_loads_neither_torch_nor_transformers():
    code = "import sys, distillkit; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("kind", sorted(WORD_KINDS))
def test_the_auto_classes_know_every_kind_and_registering_twice_is_once(kind):
    register()
    register()
    config_class, model_class = WORD_KINDS[kind]
    config = AutoConfig.for_model(
        config_class.model_type, vocab_size=3, embedding_size=2, head_size=2
    )
    assert type(config) is config_class
    assert type(AutoModelForSequenceClassification.from_config(config)) is model_class
