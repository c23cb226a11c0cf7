"""Files that are whole or absent: written under a temporary name, then renamed."""

import contextlib
import errno
import glob
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from distillkit.errors import InputError
from distillkit.processes import without_foreign_bars

_ASIDE = ".replaced.partial"  # ends the name of a folder while another takes its place

# Names of all files that distillkit, transformers and tokenizers write into a result's folder.
_RESULTS = (
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab*.json", "vocab.txt", "*_vocab.json", "merges.txt", "*.model", "*.spm", "*.tiktoken"),
    *("bpe.codes", "dict.txt", "emoji.json", "normalizer.json", "word_*.json", "byte_maps.json"),
    *("student.yaml", "teacher.yaml", "adapt.yaml", "recipe.yaml", "distillkit.json", "pairs"),
    *("log.jsonl", "events.out.tfevents.*", "stage.json", "key", "*.parquet", "*.npy"),
    *("latency.json", "report.md", "manifest.json", "*.onnx", "bundle.zip", "compress.*"),
    *(".DS_Store", ".nfs*"),
)


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full disk, or a target that cannot be made, into one line.

    Raises:
        InputError: The disk is full, or `target` cannot be written.
    """
    try:
        yield
    except Exception as error:
        # safetensors and tokenizers raise classes of their own, with the system's words inside.
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if full or "No space left on device" in str(error) or "File too large" in str(error):
            raise InputError(
                f"{target}: no space left on the disk; free some and run the same command again"
            ) from None
        # What else is absent is no fault of the target's.
        nowhere = (
            isinstance(error, FileNotFoundError)
            and error.filename2 is None
            and error.filename in _made(target)
        )
        refused = isinstance(
            error, PermissionError | IsADirectoryError | NotADirectoryError | FileExistsError
        )
        if nowhere or refused or getattr(error, "errno", None) == errno.EROFS:
            raise InputError(
                f"{target}: cannot be written: {getattr(error, 'strerror', error)}"
            ) from None
        raise


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
    place = target.resolve() if target.is_symlink() else target
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
        probe = _partial(above / target.name)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from None


def check_replaceable(folder: Path, *ours: str) -> None:
    """Refuse to replace a folder that holds a user's own files, or that cannot be written.

    Args:
        folder: To be written; it may be absent or empty.
        *ours: An earlier result has one of these files. None: the folder must be empty.

    Raises:
        InputError: The folder holds other files, is a file or a mount point, or cannot be made.
    """
    place = folder.resolve() if folder.is_symlink() else folder
    check_writable(place)
    recover_folder(place)
    if folder.is_file():
        raise InputError(f"{folder}: is a file; choose a new or empty folder")
    if place.is_mount():
        raise InputError(f"{folder}: is a mount point; choose a folder inside it")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not any((folder / name).is_file() for name in ours):
        raise InputError(
            f"{folder}: holds other files, which would be lost; choose a new or empty folder"
        )
    check_foreign(folder)


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


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.{platform.node()}-{os.getpid()}.partial")


@cache
def _sweep(folder: Path) -> None:
    """Remove the half-written files that dead processes of this machine left in a folder."""
    for old in folder.glob(f".*.{glob.escape(platform.node())}-*.partial"):
        pid = old.name.removesuffix(".partial").rpartition("-")[2]
        if pid.isdigit() and not _alive(int(pid)):
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink(missing_ok=True)


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


def write_arrow(table: pa.Table, target: Path) -> None:
    """Write a table between two steps of a job, whole or not at all."""
    with (
        whole_file(target) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    """Read what `write_arrow` wrote."""
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def fingerprint(*paths: Path) -> str:
    """Return a SHA-256 over files, and over those below folders, sorted, without hidden ones."""
    digest = hashlib.sha256()
    for path in paths:
        inside = (
            sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
            if path.is_dir()
            else [path]
        )
        for file in inside:
            digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def save_pretrained(folder: Path, *parts: Any) -> None:
    """Save a model and its tokenizer as transformers does."""
    with without_foreign_bars():
        for part in parts:
            part.save_pretrained(folder)
