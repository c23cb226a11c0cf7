"""Faults at random moments of a command, each drawn from a seed: kills, a failing disk, damaged files.

A command runs in a process of its own. An audit hook counts what it does to files below its folder and
acts at one of these moments. Then the command is repeated without a fault.
"""

import atexit
import ctypes
import errno
import filecmp
import itertools
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path

import psutil

_KILLS = ("kill", "interrupt")
KINDS = (
    *("kill", "kill twice", "interrupt", "full", "full in C", "broken", "read-only"),
    *("vanish", "clock", "flip", "cut"),
)
Ran = tuple[int, str]  # a command's status, and what it said


@dataclass(frozen=True)
class Command:
    """What is hit.

    Attributes:
        output: What the repeated command must give: a file or folder.
        words: The command line; a word that is a name in the harness's `base` is an input.
        kinds: The faults it is hit with.
        grows: The output appears bit by bit, and each part whole.
        others: Pattern of the command line of its other processes, one of which may die.
        ranks: Processes under torchrun; 1: without it.
        every: It takes long, so it is hit in every so many rounds only, from the first one on.
    """

    output: str
    words: str
    kinds: tuple[str, ...] = KINDS
    grows: bool = False
    others: str = ""
    ranks: int = 1
    every: int = 1


_AUGMENT = Command(
    "transfer.parquet",
    "augment texts.txt transfer.parquet --augment.tagger pattern --augment.n-iter 3 --workers 1",
)
_LABEL = Command(
    "logits",
    "label set.parquet logits --teacher teacher --label.precision fp32 --label.shard-rows 40",
    grows=True,
)
_TEACHER = Command(
    "taught",
    "train-teacher minilm-l6 --data.train train.tsv --data.dev dev.tsv --output taught "
    "--teacher.model encoder --teacher.training.epochs 2 --teacher.training.batch-size 16 "
    "--teacher.training.checkpoint-steps 3 --teacher.training.precision fp32",
)
COMMANDS = {
    "augment": _AUGMENT,
    "label": _LABEL,
    "train-student": Command(
        "student",
        "train-student bilstm --transfer-set set.parquet --logits store --dev dev.tsv --output student "
        "--student.hidden-size 8 --student.head-size 8 --student.embeddings.source random "
        "--student.embeddings.dimension 8 --training.epochs 3 --training.batch-size 16 "
        "--training.checkpoint-steps 4 --training.precision fp32",
    ),
    "train-teacher": _TEACHER,
    "adapt-teacher": Command(
        "adapted",
        "adapt-teacher minilm-l6 --model encoder --adapt.text.sources texts.txt --output adapted "
        "--adapt.text.max-tokens 16 --adapt.text.workers 1 --adapt.training.epochs 1 "
        "--adapt.training.batch-size 16 --adapt.training.checkpoint-steps 3 "
        "--adapt.training.precision fp32",
    ),
    "compress": Command(
        "small",
        "compress trained small --dev dev.tsv --compress.weights int8 --compress.embeddings int8",
    ),
    "export": Command("bundle", "export trained bundle --dev dev.tsv"),
    "run": Command(
        "runs",
        "run recipe.yaml --data.train train.tsv --data.dev dev.tsv --teacher.model encoder",
        grows=True,
    ),
    "augment in two processes": replace(
        _AUGMENT,
        words=_AUGMENT.words.replace("--workers 1", "--workers 2"),
        kinds=("another dies", *_KILLS, "read-only"),
        others="LokyProcess",
    ),
    "train-teacher on torchrun": replace(
        _TEACHER, kinds=("another dies",), others="forkserver", ranks=2
    ),
    "augment on Ray": replace(
        _AUGMENT,
        words=f"{_AUGMENT.words} --engine ray",
        kinds=("another dies", *_KILLS),
        others="^ray::_(answer|Actor)",
        every=4,
    ),
    "label on Ray": replace(
        _LABEL,
        words=f"{_LABEL.words} --engine ray --workers 1",
        kinds=("another dies", *_KILLS),
        others="^ray::_(answer|Actor)",
        every=4,
    ),
}
PATIENCE = 600  # seconds until a command is said to hang
_ENDING = 120  # seconds in which the processes of a command that has ended end too
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
_CODES = {"full": errno.ENOSPC, "broken": errno.EIO, "read-only": errno.EROFS}
# Files whose content only a checksum knows; text such as dev.tsv means what it says.
_DAMAGED = ("*.parquet", "*.safetensors", "tokenizer.json", "*.arrow", "*.npy")
# They say how long something took.
_TIMED = ("compress.json", "compress.md", "stage.json", "report.html")
_SUBREAPER = 36  # of prctl: orphans of a process become its children


@dataclass(frozen=True)
class Fault:
    """One of KINDS in one of COMMANDS, at a share of the command's file events."""

    command: str
    kind: str
    moment: float
    seed: int


def draw_faults(count: int, seed: int) -> list[Fault]:
    """Draw faults, the commands and the kinds in turn, so that few cover many."""
    rng = random.Random(seed)
    hit = (
        (name, command.kinds[(place + turn // command.every + seed) % len(command.kinds)])
        for turn in itertools.count()
        for place, (name, command) in enumerate(COMMANDS.items())
        if turn % command.every == 0
    )
    return [Fault(*one, rng.random(), rng.getrandbits(32)) for one in itertools.islice(hit, count)]


class Harness:
    """Undisturbed results, to which disturbed ones are compared.

    Args:
        base: Folder with what the commands read: texts.txt, train.tsv, dev.tsv, recipe.yaml,
            set.parquet, store, trained, teacher and encoder; read only.
        work: An empty folder.
    """

    def __init__(self, base: Path, work: Path) -> None:
        self.base, self.work = base, work
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.faults.preload"])
        forkserver.ensure_running()
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)
        self._events: dict[str, int] = {}

    def events(self, name: str) -> int:
        """Run a command undisturbed, once; return how many file events it has."""
        if name not in self._events:
            seen = self._context.RawArray("q", 3)
            status, said = self._run(name, self._copy(name), seen)
            assert status == 0, said
            self._events[name] = seen[0]
        return self._events[name]

    def _copy(self, name: str) -> Path:
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder / "here")
        return folder

    def _run(self, name: str, folder: Path, seen: object = None, *fault: object) -> Ran:
        """Run a command to its end, and to that of all processes that it has started."""
        ours, theirs = self._context.Pipe(duplex=False)
        seen = seen or self._context.RawArray("q", 3)
        before = _children()
        process = self._context.Process(
            target=_child, args=(COMMANDS[name], folder, theirs, seen, *fault)
        )
        process.start()
        theirs.close()
        said = _listen(process, ours)
        left = _children() - before
        left = {one for one in psutil.wait_procs(left, _ENDING)[1] if one.is_running()}
        orphans = [one.cmdline() for one in left]
        for one in left:
            one.kill()
        assert not orphans, f"still running: {orphans}"
        return process.exitcode or 0, said

    def check(self, fault: Fault) -> str:
        """Do a fault and repeat the command; return what went wrong, or ""."""
        name, command = fault.command, COMMANDS[fault.command]
        self.events(name)
        folder = self._copy(f"{name}-again")
        said = (self._damaged if fault.kind in ("flip", "cut") else self._hit)(fault, folder)
        if wrong := next((one[1] for one in said if _is_wrong(command, *one)), ""):
            return f"not one line: {wrong}"
        if said[-1][0]:
            return f"status {said[-1][0]} when repeated: {said[-1][1]}"
        known = {command.output, *(path.name for path in self.base.iterdir())}
        left = sorted({path.name for path in folder.joinpath("here").iterdir()} - known)
        if left:
            return f"left behind: {left}"
        return "" if self._same(name, folder) else f"{command.output} differs"

    def _hit(self, fault: Fault, folder: Path) -> list[Ran]:
        """Run the command with a fault, or two, and without."""
        rng, name = random.Random(fault.seed), fault.command
        command, events = COMMANDS[name], self.events(name)
        said, at = [], 1 + int(fault.moment * events)
        for _ in range(1 + (fault.kind == "kill twice")):
            kind = fault.kind.removesuffix(" twice")
            said.append(self._run(name, folder, None, kind, at, rng.getrandbits(16)))
            if (folder / "here" / command.output).exists() and not command.grows:
                assert self._same(name, folder), "half-written under its final name"
            at = 1 + rng.randrange(events)
        if fault.kind == "vanish":
            self._restore(folder)
        return [*said, self._run(name, folder)]

    def _damaged(self, fault: Fault, folder: Path) -> list[Ran]:
        """Damage an input, or what a killed command left, and run the command."""
        rng, name = random.Random(fault.seed), fault.command
        moment = fault.moment
        while rng.random() < 0.5 or not self._damageable(folder):
            self._run(name, folder, None, "kill", 1 + int(moment * self.events(name)))
            moment = rng.random()
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
        return same(folder / "here", self.work / name / "here", COMMANDS[name].output)

    def _damageable(self, folder: Path) -> list[Path]:
        found = sorted(path for name in _DAMAGED for path in folder.rglob(name) if path.is_file())
        words = COMMANDS[folder.name.removesuffix("-again")].words.split()
        unused = {path.name for path in self.base.iterdir()} - {*words}
        return [path for path in found if not unused & {*path.parts}]

    def _damage(self, kind: str, folder: Path, rng: random.Random) -> Path:
        path = rng.choice(self._damageable(folder))
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
            if path.is_file() and path.parent.name != "training" and path.name not in _TIMED
        }

    return files(one) == files(other)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _listen(process: multiprocessing.Process, pipe: object) -> str:
    """Return what a process says until it ends."""
    said, sources = [], [process.sentinel, pipe]
    while (ready := wait(sources, PATIENCE)) != [process.sentinel]:
        if not ready:
            process.kill()
            raise AssertionError(f"does not end: {b''.join(said).decode()}")
        said.append(os.read(pipe.fileno(), 1 << 16))
        if not said[-1]:
            sources.remove(pipe)
    process.join()
    pipe.close()
    return b"".join(said).decode(errors="replace")


def _child(command: Command, folder: Path, pipe: object, seen: object, *fault: object) -> None:
    os.chdir(folder / "here")
    os.environ |= {"DISTILLKIT_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    for number, name in enumerate(("stdout", "stderr"), 1):
        os.dup2(pipe.fileno(), number)
        setattr(sys, name, os.fdopen(number, "w", buffering=1))
    pipe.close()
    run = _main if command.ranks == 1 else _torchrun
    status = run(command, os.getpid(), seen, *fault)
    seen[1] = True
    threading._shutdown()  # as Python ends, which a process of multiprocessing does in part
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def _main(command: Command, root: int, seen: object, *fault: object) -> int:
    from distillkit.cli import main

    _install(command, root, seen, *fault)
    try:
        return main(command.words.split())
    except BaseException:
        traceback.print_exc()
        return 70


def _torchrun(command: Command, *arguments: object) -> int:
    """Do what torchrun does, with processes that have imported torch."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        *(1, 1, command.ranks),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork",
    )
    try:
        elastic_launch(config, _rank)(command, *arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _rank(command: Command, root: int, seen: object, *fault: object) -> None:
    status = _main(command, root, seen, *fault)
    seen[2] = True
    if status:
        sys.exit(status)


def _is_wrong(command: Command, status: int, said: str) -> bool:
    """Say whether an error is not one line; of processes under torchrun each has its own."""
    if command.ranks > 1:
        return False
    return status == 70 or "Traceback" in said or (status == 1 and said.count("distillkit: ") != 1)


def _install(
    command: Command, root: int, seen: object, kind: str = "", at: int = 0, number: int = 0
) -> None:
    """Count file events in `seen[0]`; act at one of them, and set `seen[1]`.

    `seen[2]` is set when a rank has done its work. torch's launcher of functions hangs if it dies
    after that, which torchrun, as a launcher of commands, does not.
    """
    if kind == "full in C":  # what C and Rust write is no event; a limit stops them
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))
        return
    here = os.getcwd()

    def hook(event: str, args: tuple) -> None:
        if event not in _EVENTS or isinstance(args[0], int) or seen[1]:
            return
        path = os.fsdecode(args[0])
        if not os.path.abspath(path).startswith(here):
            return
        seen[0] += 1
        reads = event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if at and seen[0] >= at and not (reads and kind in ("full", "read-only")):
            seen[1] = kind != "read-only"  # which lasts
            _act(command, root, seen, kind, path, number)

    sys.addaudithook(hook)


def _act(command: Command, root: int, seen: object, kind: str, path: str, number: int) -> None:
    if kind in _CODES:
        raise OSError(_CODES[kind], os.strerror(_CODES[kind]), path)
    if kind in _KILLS:
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGINT)
    elif kind == "vanish":
        inputs = {*command.words.split()} - {command.output}
        there = sorted(name for name in inputs if os.path.exists(name))
        os.rename(there[number % len(there)], f"../gone-{number}")
    elif kind == "clock":
        real, jump = time.time, (number - 2**15) * 3600.0  # up to 3.7 years
        time.time = lambda: real() + jump
        time.time_ns = lambda: int(1e9 * time.time())
    else:
        arguments = (command.others, root, seen, number)
        threading.Thread(target=_kill_another, args=arguments, daemon=True).start()


def _kill_another(others: str, root: int, seen: object, number: int) -> None:
    """Kill one of the command's other processes, within a second after there is any."""
    rng = random.Random(number)
    while True:
        found = []
        for process in psutil.Process(root).children(recursive=True):
            with suppress(psutil.Error):
                if re.search(others, " ".join(process.cmdline())):
                    found.append(process)
        if found:
            time.sleep(rng.random())
            with suppress(psutil.Error):
                if not seen[2]:
                    rng.choice(found).kill()
            return
        time.sleep(0.02)
