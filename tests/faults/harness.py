"""Faults at random moments of a command, each drawn from a seed: kills, a failing disk, damaged files.

A command runs in a process of its own. An audit hook counts what it does to files below its folder and
acts at one of these moments. Then the command is repeated without a fault.
"""

import errno
import filecmp
import io
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

# What the repeated command must give, and what it reads: a copy of `base` has them.
COMMANDS = {
    "augment": (
        "transfer.parquet",
        "augment texts.txt transfer.parquet --augment.tagger pattern --augment.n-iter 3 --workers 1",
    ),
    "label": (
        "logits",
        "label set.parquet logits --teacher teacher --label.precision fp32 --label.shard-rows 40",
    ),
    "train-student": (
        "student",
        "train-student bilstm --transfer-set set.parquet --logits store --dev dev.tsv --output student "
        "--student.hidden-size 8 --student.head-size 8 --student.embeddings.source random "
        "--student.embeddings.dimension 8 --training.epochs 3 --training.batch-size 16 "
        "--training.checkpoint-steps 4 --training.precision fp32",
    ),
    "compress": (
        "small",
        "compress trained small --dev dev.tsv --compress.weights int8 --compress.embeddings int8",
    ),
}
KINDS = ("kill", "kill twice", "interrupt", "full", "full in C", "broken", "vanish", "flip", "cut")
INPUTS = ("texts.txt", "dev.tsv", "set.parquet", "store", "trained", "teacher")
Ran = tuple[int, str, int]  # a command's status, what it said, and how many file events it had
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
# Files whose content only a checksum knows; text such as dev.tsv means what it says.
_DAMAGED = ("*.parquet", "*.safetensors", "tokenizer.json", "*.arrow", "*.npy")


@dataclass(frozen=True)
class Fault:
    """One of KINDS in one of COMMANDS, at a share of the command's file events."""

    command: str
    kind: str
    moment: float
    seed: int


def draw_faults(count: int, seed: int) -> list[Fault]:
    """Draw faults, the commands and the kinds in turn, so that few cover many."""
    rng, commands = random.Random(seed), list(COMMANDS)
    return [
        Fault(
            commands[i % len(commands)],
            KINDS[(i + i // len(commands)) % len(KINDS)],
            rng.random(),
            rng.getrandbits(32),
        )
        for i in range(count)
    ]


class Harness:
    """Undisturbed results, to which disturbed ones are compared.

    Args:
        base: Folder with texts.txt, dev.tsv, set.parquet, store, trained and teacher; read only.
        work: An empty folder.
    """

    def __init__(self, base: Path, work: Path) -> None:
        self.base, self.work = base, work
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["distillkit.pipeline", "distillkit.cli"])
        self.events: dict[str, int] = {}
        for name in COMMANDS:
            status, said, seen = self._run(name, self._copy(name))
            assert status == 0, said
            self.events[name] = seen

    def _copy(self, name: str) -> Path:
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder / "here")
        return folder

    def _run(self, name: str, folder: Path, *fault: object) -> Ran:
        """Run a command; return its status, what it said, and how many file events it had."""
        ours, theirs = self._context.Pipe()
        arguments = COMMANDS[name][1].split(), folder, theirs, *fault
        process = self._context.Process(target=_child, args=arguments)
        process.start()
        theirs.close()
        try:
            said, seen = ours.recv()
        except EOFError:
            said, seen = "", 0
        process.join()
        return process.exitcode or 0, said, seen

    def check(self, fault: Fault) -> str:
        """Do a fault and repeat the command; return what went wrong, or ""."""
        name, output = fault.command, COMMANDS[fault.command][0]
        folder = self._copy(f"{name}-again")
        said = (self._damaged if fault.kind in ("flip", "cut") else self._hit)(fault, folder)
        if wrong := next((text for code, text, _ in said if _is_wrong(code, text)), ""):
            return f"not one line: {wrong}"
        if said[-1][0]:
            return f"status {said[-1][0]} when repeated: {said[-1][1]}"
        known = {output, *(path.name for path in self.base.iterdir())}
        left = sorted({path.name for path in folder.joinpath("here").iterdir()} - known)
        if left:
            return f"left behind: {left}"
        return "" if self._same(name, folder) else f"{output} differs"

    def _hit(self, fault: Fault, folder: Path) -> list[Ran]:
        """Run the command with a fault, or two, and without."""
        rng, events = random.Random(fault.seed), self.events[fault.command]
        said, at = [], 1 + int(fault.moment * events)
        for _ in range(1 + (fault.kind == "kill twice")):
            kind = fault.kind.removesuffix(" twice")
            said.append(self._run(fault.command, folder, kind, at, rng.getrandbits(16)))
            if (folder / "here" / COMMANDS[fault.command][0]).exists() and fault.command != "label":
                assert self._same(fault.command, folder), "half-written under its final name"
            at = 1 + rng.randrange(events)
        if fault.kind == "vanish":
            self._restore(folder)
        return [*said, self._run(fault.command, folder)]

    def _damaged(self, fault: Fault, folder: Path) -> list[Ran]:
        """Damage an input, or what a killed command left, and run the command."""
        rng, name = random.Random(fault.seed), fault.command
        if rng.random() < 0.5:
            self._run(name, folder, "kill", 1 + int(fault.moment * self.events[name]))
        path = self._damage(fault.kind, folder, rng)
        said = [self._run(name, folder)]
        restored = self._restore(folder)
        if said[0][0] == 1:  # A refusal names the file. The mend: bring it back, or remove it.
            assert path.name in said[0][1] or path.parent.name in said[0][1], said[0][1]
            if not restored and path.exists():
                shutil.rmtree(path.parent) if "checkpoint" in str(path) else path.unlink()
            said.append(self._run(name, folder))
        return said

    def _same(self, name: str, folder: Path) -> bool:
        return same(folder / "here", self.work / name / "here", COMMANDS[name][0])

    def _damage(self, kind: str, folder: Path, rng: random.Random) -> Path:
        found = sorted(path for name in _DAMAGED for path in folder.rglob(name) if path.is_file())
        words = COMMANDS[folder.name.removesuffix("-again")][1].split()
        unused = {path.name for path in self.base.iterdir()} - {*words}
        path = rng.choice([path for path in found if not unused & {*path.parts}])
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        if kind == "flip":
            content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content if kind == "flip" else content[:place])
        return path

    def _restore(self, folder: Path) -> bool:
        """Bring damaged or vanished inputs back; say whether there were any."""
        changed = False
        for path in self.base.rglob("*"):
            copy = folder / "here" / path.relative_to(self.base)
            if path.is_file() and not (copy.is_file() and filecmp.cmp(path, copy, shallow=False)):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
                changed = True
        return changed


def same(one: Path, other: Path, output: str) -> bool:
    """Say whether two outputs have the same files with the same bytes; how long it took may differ."""

    def files(folder: Path) -> dict[str, bytes]:
        place = folder / output
        found = [place] if place.is_file() else place.rglob("*")
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in found
            if path.is_file() and path.parent.name != "training" and path.stem != "compress"
        }

    return files(one) == files(other)


def _child(argv: list[str], folder: Path, pipe: object, *fault: object) -> None:
    from distillkit.cli import main

    os.chdir(folder / "here")
    os.environ |= {"DISTILLKIT_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    said, seen = io.StringIO(), [0]
    with redirect_stdout(said), redirect_stderr(said):
        _install(seen, *fault)
        try:
            status = main(argv)
        except BaseException:
            traceback.print_exc()
            status = 70
        seen, count = [-(10**9)], seen[0]
    pipe.send((said.getvalue(), count))
    pipe.close()
    os._exit(status)


def _is_wrong(status: int, said: str) -> bool:
    return status == 70 or "Traceback" in said or (status == 1 and said.count("distillkit: ") != 1)


def _install(seen: list[int], kind: str = "", at: int = 0, number: int = 0) -> None:
    if kind == "full in C":  # what C and Rust write is no event; a limit stops them
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))
        return
    here, done = os.getcwd(), []

    def hook(event: str, args: tuple) -> None:
        if event not in _EVENTS or isinstance(args[0], int) or done:
            return
        path = os.fsdecode(args[0])
        if not os.path.abspath(path).startswith(here):
            return
        seen[0] += 1
        reads = event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if at and seen[0] >= at and not (reads and kind == "full"):
            done.append(True)
            _act(kind, path, number)

    sys.addaudithook(hook)


def _act(kind: str, path: str, number: int) -> None:
    if kind in ("kill", "interrupt"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGINT)
    elif kind == "vanish":
        there = [name for name in INPUTS if os.path.exists(name)]
        os.rename(there[number % len(there)], f"../gone-{number}")
    else:
        code = errno.ENOSPC if kind == "full" else errno.EIO
        raise OSError(code, os.strerror(code), path)
