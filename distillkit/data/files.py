"""Files and folders that are whole or absent, and have one writer at a time.

Each is written under a temporary name, then renamed. `hold` lets one process at a time make it.
`data.checked` has the checksums that tell when one was damaged.
"""

import contextlib
import glob
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from distillkit.errors import InputError, Unfinished, disk_error, disk_failed
from distillkit.processes import rank

SUMS = "checksums.json"
_ASIDE = ".replaced.partial"  # ends the name of a folder while another takes its place

# Names of all files that distillkit, transformers and tokenizers write into a result's folder.
_RESULTS = (
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab*.json", "vocab.txt", "*_vocab.json", "merges.txt", "*.model", "*.spm", "*.tiktoken"),
    *("bpe.codes", "dict.txt", "emoji.json", "normalizer.json", "word_*.json", "byte_maps.json"),
    *("student.yaml", "teacher.yaml", "adapt.yaml", "recipe.yaml", "distillkit.json", "pairs"),
    *("log.jsonl", "events.out.tfevents.*", "stage.json", "key", "*.parquet", "*.npy"),
    *("latency.json", "report.md", "manifest.json", "*.onnx", "bundle.zip", "compress.*", SUMS),
    *("distillkit.js", "distillkit.d.ts", "index.html", "package.json"),
    *(".DS_Store", ".nfs*"),
)


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full disk, or a target that cannot be made, into one line.

    Raises:
        Unfinished: The disk is full, or does not answer.
        InputError: `target` cannot be written.
    """
    try:
        yield
    except Exception as error:
        # Another missing file is not the target's error.
        nowhere = (
            isinstance(error, FileNotFoundError)
            and error.filename2 is None
            and error.filename in _made(target)
        )
        if isinstance(error, InputError) or not (line := disk_error(error, target, absent=nowhere)):
            raise
        raise (Unfinished if disk_failed(error) else InputError)(line) from None


class HeldError(InputError):
    """Another process is writing the same file or folder."""


@contextlib.contextmanager
def hold(target: Path, *, wait: bool = False) -> Iterator[None]:
    """Let one process at a time make a file or folder; remove what dead ones left half-written.

    The lock is a hidden file beside the target. The system releases it with the process, however
    that ends.

    Args:
        target: May be absent, or a link to a folder.
        wait: Wait for the other process.

    Raises:
        HeldError: Another process holds it, and `wait` is False.
        InputError: Nothing can be made there.
    """
    place = _place(target)
    path = place.with_name(f".{place.name}.lock")
    new = [folder for folder in (place, *place.parents) if not folder.exists()]
    lock = FileLock(path)
    try:
        with disk_errors(target):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=-1 if wait else 0)
            except Timeout:
                if not path.exists():
                    check_writable(place)  # filelock tries a folder again that takes no file
                who = "another process"
                with contextlib.suppress(OSError):
                    who = path.read_text(encoding="utf-8") or who
                raise HeldError(
                    f"{target}: {who} is writing it; wait for it, or choose another name"
                ) from None
            path.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
            recover_folder(place)
            partials = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}-\d+\.partial")
            for old in place.parent.glob(f".{glob.escape(place.name)}.*.partial"):
                if partials.fullmatch(old.name):  # the lock is ours, so its writer is dead
                    _remove(old)
        yield
    finally:
        if lock.is_locked:
            # Removed while it is held: filelock takes no lock on a file that has lost its name.
            try:
                path.unlink(missing_ok=True)
            finally:
                lock.release()
        for folder in new:  # nothing came of it
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `target` if the block succeeds, and vanishes if not."""
    partial = _partial(target)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        try:
            mode = _mode(partial)
            yield partial
            _give(partial, mode)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target` if the block succeeds and vanishes if not.

    A folder that is there is replaced as by `replace_folder`. Where `target` is a link, the folder
    that it points to is replaced.
    """
    place = _place(target)
    partial = _partial(place)
    with disk_errors(target):
        _sweep(place.parent)
        recover_folder(place)
        try:
            partial.mkdir(parents=True)
            mode = _mode(partial / ".mode")
            yield partial
            for path in partial.rglob("*"):
                _give(path, mode)
            replace_folder(partial, place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def replace_folder(new: Path, target: Path) -> None:
    """Rename a finished folder to `target`, in place of a folder that may be there.

    The old folder is renamed aside, the new one is renamed in, then the old one is removed. After
    a kill at any point `recover_folder` leaves the old or the new folder, whole; after an error
    either is there at once.

    Args:
        new: Beside `target`, on the same disk.
        target: No link.
    """
    old = _aside(target)
    recover_folder(target)
    if target.is_dir():
        os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        recover_folder(target)
        raise
    if old.is_dir():
        with contextlib.suppress(OSError):  # the new folder is in place; the next start cleans up
            remove_folder(old)


def recover_folder(target: Path) -> None:
    """Finish what a kill interrupted in `replace_folder`: the old folder is back, or is removed."""
    old = _aside(target)
    shutil.rmtree(_gone(old), ignore_errors=True)
    if not old.is_dir():
        return
    if target.exists():
        remove_folder(old)
    else:
        os.rename(old, target)


def recover_folders(parent: Path) -> None:
    """Call `recover_folder` for all that `replace_folder` left in a folder."""
    for old in parent.glob(f".*{_ASIDE}"):
        recover_folder(old.with_name(old.name[1:].removesuffix(_ASIDE)))


def remove_folder(folder: Path) -> None:
    """Remove a folder so that a kill half-way leaves no part of it under its name."""
    gone = _gone(folder)
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}{_ASIDE}")


def _gone(folder: Path) -> Path:
    return folder.with_name(f".{folder.name.lstrip('.')}.removed.partial")


def check_writable(target: Path) -> None:
    """Refuse a file or folder that cannot be made, before the work that it is for.

    Raises:
        InputError: The folder that it is to be in cannot be made or written.
    """
    try:
        above = next(folder for folder in target.absolute().parents if folder.exists())
        # A name of its own: several processes may ask at once.
        os.rmdir(tempfile.mkdtemp(prefix=_partial(above / target.name).name, dir=above))
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def replaceable(folder: Path, *ours: str) -> Iterator[None]:
    """Hold a folder that is to be written; refuse to replace one with a user's own files.

    Args:
        folder: To be written; it may be absent or empty.
        *ours: An earlier result has one of these files. None: the folder must be empty.

    Raises:
        InputError: The folder holds other files, is a file or a mount point, cannot be made, or
            another process is writing it.
    """
    if rank():  # process 0 writes
        yield
        return
    check_writable(_place(folder))
    if folder.is_file():
        raise InputError(f"{folder}: is a file; choose a new or empty folder")
    if _place(folder).is_mount():
        raise InputError(f"{folder}: is a mount point; choose a folder inside it")
    with hold(folder):
        if folder.is_dir() and any(folder.iterdir()):
            if not any((folder / name).is_file() for name in ours):
                raise InputError(
                    f"{folder}: holds other files, which would be lost; choose a new or empty folder"
                )
            check_foreign(folder)
        yield


def check_foreign(folder: Path) -> None:
    """Refuse to replace a result folder to which a user has added files.

    Raises:
        InputError: A file's name is none of `_RESULTS`.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(fnmatch(path.name, name) for name in _RESULTS):
            raise InputError(
                f"{path}: is no file of an earlier result, and would be lost with its folder; "
                "move it away, or choose another folder"
            )


def _made(target: Path) -> list[str]:
    """Return what has to be made for a target."""
    return [str(path) for path in (_partial(target), *target.parents)]


def _mode(absent: Path) -> int:
    """Return a new file's mode by the umask; some libraries write theirs for the user alone."""
    absent.touch()
    mode = absent.stat().st_mode
    absent.unlink()
    return mode


def _give(path: Path, mode: int) -> None:
    if path.is_file() and not path.is_symlink() and path.stat().st_mode != mode:
        path.chmod(mode & 0o777)


def _place(target: Path) -> Path:
    return target.resolve() if target.is_symlink() else target


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.{_here()}-{os.getpid()}.partial")


@cache
def _here() -> str:
    """Name this start of this machine, and this container: a process number means nothing elsewhere."""
    found = platform.node()
    with contextlib.suppress(OSError):  # Linux alone
        found += Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")
        found += os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(found.encode()).hexdigest()[:8]


@cache
def _sweep(folder: Path) -> None:
    """Remove the half-written files that dead processes of this machine left in a folder."""
    for old in folder.glob(f".*.{_here()}-*.partial"):
        pid = old.name.removesuffix(".partial").rpartition("-")[2]
        if pid.isdigit() and not _alive(int(pid)):
            _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def cache_folder(name: str) -> Path:
    """Return a cache folder: `name` in `$DISTILLKIT_CACHE`, or in the user's own cache."""
    root = os.environ.get("DISTILLKIT_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME", "~/.cache"), "distillkit"
    )
    return Path(root, name).expanduser()
