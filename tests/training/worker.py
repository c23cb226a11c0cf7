"""Started by torchrun: trains a tiny model once for each configuration it is given, and leaves what came of it in a folder.

    torchrun ... worker.py OUT '[{"strategy": "ddp", ...}, ...]'

For each configuration, by its place i, and each process: OUT/i-RANK.json with what it computed
(`passes`: the rows of every forward pass whose loss it saw, and the mean loss over them), the dev
scores, the final logits of the dev rows; and OUT/i-RANK.safetensors with the final weights. What
`fit` refused is in `error`.

Beside the fields of TrainingConfig a configuration may have `model`: linear or a transformers model
type; `layers`, `heads`, `dropout` of the latter; `n` and `dev`: rows; `frozen`: the start of the
names of parameters that stay as they are; `checkpoints`: a folder; `stop`: be told to end at the
first `epoch` or `report`, or at the last process's second `pass`; `saved`: a folder for the trained
model; `pause`: seconds that a forward pass takes longer.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from distillkit.data.batches import Encoded
from distillkit.errors import InputError, Preempted
from distillkit.processes import rank, world
from distillkit.recipe import TrainingConfig
from distillkit.training.callbacks import Callback
from distillkit.training.checkpoints import Checkpoints
from distillkit.training.inference import predict_logits
from distillkit.training.loop import fit
from distillkit.training.plan import FitPlan

VOCABULARY, CLASSES = 40, 3


class Linear(nn.Module):
    """Mean of embeddings, two layers, logits."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.dense = nn.Linear(16, 16)
        self.out = nn.Linear(16, CLASSES)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[:, :, None]
        mean = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        return SimpleNamespace(logits=self.out(torch.relu(self.dense(mean))))


class Stop(Callback):
    """Has this process told to end, as a cluster would."""

    def __init__(self, at):
        self.at = at

    def report(self, record):
        if self.at == "report":
            os.kill(os.getpid(), signal.SIGTERM)

    def epoch(self, record):
        if self.at == "epoch":
            os.kill(os.getpid(), signal.SIGTERM)


def build(model="linear", layers=2, heads=4, dropout=0.0):
    torch.manual_seed(7)
    if model == "linear":
        return Linear()
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 64,
    }
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    if model == "electra":
        sizes["embedding_size"] = 16
    if model == "distilbert":
        sizes = {"dim": 32, "n_layers": layers, "n_heads": heads, "hidden_dim": 64}
        drops = {"dropout": dropout, "attention_dropout": dropout, "seq_classif_dropout": dropout}
    config = AutoConfig.for_model(
        model,
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        num_labels=CLASSES,
        pad_token_id=0,
        **sizes,
        **drops,
    )
    return AutoModelForSequenceClassification.from_config(config)


def rows(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 10, (n,), generator=generator)
    ids = torch.randint(
        1, VOCABULARY, (int(lengths.sum()),), generator=generator, dtype=torch.int32
    )
    return Encoded(ids, None, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]), 0)


def train(
    model="linear",
    n=256,
    dev=24,
    frozen=None,
    checkpoints=None,
    stop=None,
    saved=None,
    pause=0.0,
    **options,
):
    shape = {name: options.pop(name) for name in ("layers", "heads", "dropout") if name in options}
    network = build(model, **shape)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(frozen is None or not name.startswith(frozen))
    gold = torch.arange(n) % CLASSES
    passes = []

    def loss(batch, logits):
        found = nn.functional.cross_entropy(logits, gold.to(logits.device)[batch])
        passes.append([batch.tolist(), found.item()])
        time.sleep(pause)
        if stop == "pass" and len(passes) == 2 and rank() == world() - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    config = TrainingConfig(**{"precision": "fp32", "warmup_fraction": 0.0} | options)
    dev = rows(dev, seed=1)
    kept = None if checkpoints is None else Checkpoints(Path(checkpoints))
    score = lambda logits: float(logits[:, 0].mean())  # noqa: E731
    watching = [] if stop is None else [Stop(stop)]
    result = fit(
        network,
        FitPlan(
            rows(n),
            loss,
            config,
            5,
            "worker",
            dev=dev,
            score=score,
            checkpoints=kept,
            callbacks=watching,
        ),
    )
    logits = predict_logits(network, dev)
    if saved is not None and rank() == 0:
        network.save_pretrained(saved)
    return network, {
        "passes": passes,
        "history": result.history,
        "best_epoch": result.best_epoch,
        "logits": logits.tolist(),
        "ordinary": all(type(p) is nn.Parameter for p in network.parameters()),
    }


def main(out, configurations):
    for i, options in enumerate(json.loads(configurations)):
        name = f"{i}-{rank()}"
        try:
            network, found = train(**options)
            save_file(
                {key: value.clone() for key, value in network.state_dict().items()},
                out / f"{name}.safetensors",
            )
        except (InputError, Preempted) as error:
            found = {"error": str(error)}
        (out / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2])
