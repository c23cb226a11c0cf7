"""Which of the processes that were started together this one is."""

import os


def rank() -> int:
    """Return this process's number among those of torchrun or horovodrun; 0 where it is alone."""
    return int(os.environ.get("RANK", os.environ.get("HOROVOD_RANK", "0")))


def world() -> int:
    """Return how many processes were started together."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("HOROVOD_SIZE", "1")))
