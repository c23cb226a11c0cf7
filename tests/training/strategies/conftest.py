"""Real processes for all strategies that share out the model itself: to start them takes longer than what they compute.

Fixtures, each configurations by name and then what `launch.train` returns of them: `one` process;
`two` processes, of each strategy; `again`: fresh processes that go on where those of `two` were
interrupted.
"""

import shutil

import pytest

from tests.training.launch import train

# Gradients are longer than max_grad_norm from the first step on.
BERT = {
    "model": "bert",
    "batch_size": 16,
    "epochs": 2,
    "learning_rate": 1e-3,
    "n": 160,
    "max_grad_norm": 0.05,
}
# 80 steps; Adam would not mind gradients that are all twice as long.
STEPS = BERT | {"n": 320, "epochs": 4, "optimizer": "sgd", "learning_rate": 0.3}
BF16 = STEPS | {"precision": "bf16", "epochs": 1}
LAMB = BERT | {
    "optimizer": "lamb",
    "learning_rate": 1e-2,
    "batch_size": 4,
    "accumulation_steps": 4,
    "n": 158,
    "epochs": 1,
}
UNEVEN = BERT | {
    "n": 163,
    "batch_size": 9,
    "dev": 1000,
}  # AdamW; the last batch has one row
SAME = {"steps": STEPS, "lamb": LAMB, "uneven": UNEVEN}
OWN = {
    "fsdp": {
        "linear": STEPS | {"model": "linear", "epochs": 3},
        "frozen": BERT | {"frozen": "bert.embeddings", "epochs": 1},
        "bf16": BF16,
    },
    "tensor-parallel": {
        "distilbert": BERT | {"model": "distilbert", "epochs": 1},
        "bf16": BF16,
        "dropout": BERT | {"dropout": 0.1, "epochs": 1},
        "student": {"model": "linear"},
        "one-head": BERT | {"heads": 1},
    },
    "pipeline": {
        "electra": BERT | {"model": "electra", "layers": 3, "epochs": 1},
        "distilbert": BERT | {"model": "distilbert", "epochs": 1},
        "bf16": BF16,
        "frozen": BERT | {"frozen": "bert.embeddings", "epochs": 1},
        "student": {"model": "linear"},
        "one-layer": BERT | {"layers": 1},
        "all-frozen": BERT | {"frozen": "bert.e"},
    },
}
REFUSED = {"student", "one-head", "one-layer", "all-frozen", "dropout"}
RESUMED = "resumed"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def two(runs):
    configurations = {}
    for strategy, own in OWN.items():
        stopped = UNEVEN | {"checkpoints": str(runs / strategy), "stop": "report"}
        own = (
            own
            | SAME
            | {"steps": STEPS | {"saved": str(runs / f"{strategy}-steps")}, "stopped": stopped}
        )
        configurations |= {(strategy, name): own[name] | {"strategy": strategy} for name in own}
    found = train(_made(runs / "two"), *configurations.values())
    shutil.copytree(runs / "fsdp", runs / "fsdp-alone")
    return dict(zip(configurations, found, strict=True))


@pytest.fixture(scope="session")
def again(runs, two):
    found = train(
        _made(runs / "again"),
        *(UNEVEN | {"strategy": name, "checkpoints": str(runs / name)} for name in OWN),
    )
    return dict(zip(OWN, found, strict=True))


@pytest.fixture(scope="session")
def one(runs, two):
    configurations = SAME | {
        name: own[name] for own in OWN.values() for name in own if name not in REFUSED
    }
    configurations |= {RESUMED: UNEVEN | {"checkpoints": str(runs / "fsdp-alone")}}
    return dict(
        zip(
            configurations,
            train(_made(runs / "one"), *configurations.values(), processes=1),
            strict=True,
        )
    )


def _made(folder):
    folder.mkdir()
    return folder
