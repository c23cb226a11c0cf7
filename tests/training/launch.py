"""Start real processes, as a user would."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file

# Seconds until processes that wait for each other are given up. A loaded machine takes many times
# what an idle one does, so this bounds a deadlock and measures nothing.
PATIENCE = 1200
WORKER = Path(__file__).with_name("worker.py")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def torchrun(*arguments, processes=2, **environment):
    """Run `torchrun --nproc-per-node ... ARGUMENTS` to its end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port), *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | ENVIRONMENT | environment,
    )


def train(folder, *configurations, processes=2, start=torchrun):
    """Train a tiny model for each configuration on several processes.

    Returns:
        For each configuration a list, by process, of what worker.py left: its JSON, with the final
        `weights`.
    """
    done = start(WORKER, folder, json.dumps(configurations), processes=processes)
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        [_found(folder, i, rank) for rank in range(processes)] for i in range(len(configurations))
    ]


def losses(found):
    """Return the mean loss of every forward pass, from the parts that each process saw."""
    steps = {}
    for process in found:
        for number, (rows, loss) in enumerate(process["passes"]):
            steps.setdefault(number, {})[tuple(rows)] = loss
    return [
        sum(len(rows) * loss for rows, loss in parts.items()) / sum(map(len, parts))
        for _, parts in sorted(steps.items())
    ]


def _found(folder, i, rank):
    found = json.loads((folder / f"{i}-{rank}.json").read_text())
    weights = folder / f"{i}-{rank}.safetensors"
    return found | ({"weights": load_file(weights)} if weights.is_file() else {})
