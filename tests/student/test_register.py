import subprocess
import sys

import pytest
from transformers import AutoConfig, AutoModelForSequenceClassification

from distillkit.student.register import WORD_KINDS, register

LOAD = """
from transformers import AutoModelForSequenceClassification
import sys
print(type(AutoModelForSequenceClassification.from_pretrained(sys.argv[1])).__name__)
"""


@pytest.mark.parametrize(
    "first",
    [
        "import transformers\nimport distillkit",
        "import distillkit\nimport transformers",
        "import distillkit.student.build",
        "import distillkit.pipeline",
    ],
)
def test_a_fresh_process_loads_a_student_whichever_import_comes_first(first, tmp_path):
    config, model = WORD_KINDS["siamese-bilstm"]
    model(config(vocab_size=3, embedding_size=2, head_size=2)).save_pretrained(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", first + LOAD, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == model.__name__, done.stderr


def test_importing_distillkit_alone_loads_neither_torch_nor_transformers():
    code = "import sys, distillkit; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("kind", sorted(WORD_KINDS))
def test_the_auto_classes_know_every_kind_and_registering_twice_is_once(kind):
    register()
    register()
    config_class, model_class = WORD_KINDS[kind]
    config = AutoConfig.for_model(config_class.model_type, vocab_size=3, embedding_size=2, head_size=2)
    assert type(config) is config_class
    assert type(AutoModelForSequenceClassification.from_config(config)) is model_class
