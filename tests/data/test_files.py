"""Files and folders are whole or absent, and a disk's refusal is one line."""

import contextlib
import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distillkit.data.checked import (
    check_sealed,
    fingerprint,
    read_array,
    read_arrow,
    save_array,
    seal,
    write_array,
    write_arrow,
)
from distillkit.data.files import (
    HeldError,
    check_writable,
    disk_errors,
    hold,
    replaceable,
    whole_file,
    whole_folder,
)
from distillkit.errors import InputError, Unfinished
from distillkit.runs import RunFolder


def check_replaceable(folder, *ours):
    with replaceable(folder, *ours):
        pass


def everything_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_whole_file_appears_only_at_the_end(tmp_path):
    target = tmp_path / "new" / "a.txt"
    with whole_file(target) as partial:
        partial.write_text("done")
        assert not target.exists()
    assert target.read_text() == "done"
    assert everything_below(tmp_path) == ["new", "new/a.txt"]


def test_whole_file_replaces_the_old_one(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with whole_file(tmp_path / "a.txt") as partial:
        partial.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


# KeyboardInterrupt: what Ctrl-C raises is no Exception.
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [["a"], []], ids=["old", "nothing"])
def test_whole_file_leaves_nothing_behind_and_the_old_one_alone(tmp_path, error, before):
    for name in before:
        (tmp_path / name).write_text("old")

    def fail():
        with whole_file(tmp_path / "a") as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert everything_below(tmp_path) == before
    assert all((tmp_path / name).read_text() == "old" for name in before)


def test_whole_folder_appears_only_at_the_end(tmp_path):
    target = tmp_path / "new" / "model"
    with whole_folder(target) as partial:
        (partial / "w").write_text("done")
        assert not target.exists()
    assert everything_below(tmp_path) == ["new", "new/model", "new/model/w"]


def test_whole_folder_replaces_the_old_one_and_all_that_was_in_it(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "stale").write_text("old")
    with whole_folder(tmp_path / "model") as partial:
        (partial / "w").write_text("new")
    assert everything_below(tmp_path) == ["model", "model/w"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [["model", "model/w"], []], ids=["old", "nothing"])
def test_whole_folder_leaves_nothing_behind_and_the_old_one_alone(tmp_path, error, before):
    if before:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "w").write_text("old")

    def fail():
        with whole_folder(tmp_path / "model") as partial:
            (partial / "w").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert everything_below(tmp_path) == before
    assert not before or (tmp_path / "model" / "w").read_text() == "old"


def _parts(what):
    return {f"{name}.npy": what for name in ("a", "b", "sub__c")}


OLD = {**_parts("old"), "student.yaml": "", "stage.json": '{"key": "", "summary": {}}'}
CHANGES = ("rename", "replace", "unlink", "rmdir")  # of os: all that replacing a folder does


def _stop_at(number, act):
    """Make the change of that number, counted from 1, do something else."""
    left = [number]

    def changed(real):
        def change(*args, **kwargs):
            left[0] -= 1
            if not left[0]:
                act()
            return real(*args, **kwargs)

        return change

    return {name: changed(getattr(os, name)) for name in CHANGES}


def _killed(write, number):
    """Run `write` in a process that dies at that change; say whether it did."""
    child = os.fork()
    if not child:
        for name, change in _stop_at(number, lambda: os._exit(9)).items():
            setattr(os, name, change)
        try:
            write()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def _write(target):
    def write():
        with whole_folder(target) as partial:
            make(partial, **_parts("new"), **{"student.yaml": ""})

    return write


def _write_stage(target):
    def build(out):
        make(out, **_parts("new"))
        return {}

    return lambda: RunFolder(target.parent).stage(target.name, "settings", {}, build, version=1)


def _start_again(target, write):
    if write is _write:
        check_replaceable(target, "student.yaml")
    else:
        RunFolder(target.parent).kept(target.name, "", {}, version=1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("write", [_write, _write_stage])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder_whole(tmp_path, write):
    ends = []
    for number in range(1, 30):
        target = make(tmp_path / f"{number}" / "model", **OLD)
        killed = _killed(write(target), number)
        _start_again(target, write)
        found = {path.stem: path.read_text() for path in target.rglob("*.npy")}
        assert found in ({name: new for name in "abc"} for new in ("old", "new"))
        ends.append(found["a"])
        _write(target)()
        assert not list(target.parent.glob(".*.replaced*"))
        if not killed:
            break
    assert ends == sorted(ends, reverse=True)  # once it is the new one, it stays that
    assert {*ends} == {"old", "new"}


@pytest.mark.parametrize("write", [_write, _write_stage])
def test_a_refusal_of_the_disk_at_any_step_leaves_a_whole_folder(tmp_path, monkeypatch, write):
    def refuse():
        raise OSError(errno.EIO, "mine")

    for number in range(1, 10):
        target = make(tmp_path / f"{number}" / "model", **OLD)
        with monkeypatch.context() as patch, contextlib.suppress(OSError, InputError):
            for name, change in _stop_at(number, refuse).items():
                patch.setattr(os, name, change)
            write(target)()
        found = {path.stem: path.read_text() for path in target.rglob("*.npy")}
        assert found in ({name: new for name in "abc"} for new in ("old", "new"))


def test_an_output_that_is_a_link_is_replaced_where_it_points(tmp_path):
    make(tmp_path / "disk" / "model", **OLD)
    (tmp_path / "model").symlink_to(tmp_path / "disk" / "model")
    _write_stage(tmp_path / "model")()
    check_replaceable(tmp_path / "model", "stage.json")
    _write(tmp_path / "model")()
    assert (tmp_path / "model").is_symlink()
    assert everything_below(tmp_path / "disk") == [
        "model",
        *(f"model/{name}" for name in ("a.npy", "b.npy", "student.yaml", "sub", "sub/c.npy")),
    ]


def test_stages_of_two_runs_that_are_links_to_one_disk_do_not_meet(tmp_path):
    for run in "ab":
        make(tmp_path / "disk" / f"{run}-student", **{"stage.json": '{"key": ""}'})
        (tmp_path / run).mkdir()
        (tmp_path / run / "student").symlink_to(tmp_path / "disk" / f"{run}-student")

    def first(out):
        make(out, **{"a.npy": "a"})
        _write_stage(tmp_path / "b" / "student")()
        return {}

    RunFolder(tmp_path / "a").stage("student", "settings", {}, first, version=1)
    assert (tmp_path / "a" / "student" / "a.npy").read_text() == "a"


def test_a_stage_killed_before_its_renaming_is_not_built_again(tmp_path, monkeypatch):
    built = []

    def build(out):
        built.append(out)
        return {"rows": 3}

    def stop(*_):
        raise KeyboardInterrupt

    def stage(settings="settings"):
        return RunFolder(tmp_path).stage("student", settings, {}, build, version=1)

    with monkeypatch.context() as patch:
        patch.setattr("distillkit.runs.folder.replace_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            stage()
    assert stage() == {"rows": 3}
    assert len(built) == 1
    stage("others")
    assert len(built) == 2


def test_a_stage_keeps_what_is_done_when_the_disk_is_full_and_nothing_after_a_mistake(tmp_path):
    for error, kept in ((OSError(errno.ENOSPC, "full"), True), (InputError("wrong"), False)):

        def build(out, error=error):
            (out / "shard").write_text("done")
            with disk_errors(out):
                raise error

        with pytest.raises(InputError):
            RunFolder(tmp_path).stage("logits", "settings", {}, build, version=1)
        assert (tmp_path / ".logits.partial" / "shard").exists() == kept


def test_an_old_folder_that_cannot_be_removed_is_no_failed_write(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EBUSY, "busy")

    target = make(tmp_path / "model", **OLD)
    with monkeypatch.context() as patch:
        patch.setattr("distillkit.data.files.remove_folder", refuse)
        _write(target)()
    assert (target / "a.npy").read_text() == "new"
    _start_again(target, _write)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_users_own_file_in_an_earlier_result_is_not_lost(tmp_path):
    target = make(tmp_path / "model", **{"student.yaml": "", "training__log.jsonl": ""})
    check_replaceable(target, "student.yaml")
    make(target, **{"stage.json": '{"key": ""}', "training__notes.txt": "mine"})
    with pytest.raises(InputError, match=r"training/notes\.txt: is no file of an earlier result"):
        check_replaceable(target, "student.yaml")
    with pytest.raises(InputError, match=r"training/notes\.txt: is no file of an earlier result"):
        _write_stage(target)()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk_is_one_line_that_names_the_target(tmp_path):
    with (
        pytest.raises(
            Unfinished,  # of which a stage keeps what is done
            match=r"a\.txt: no space left on the disk; free some and run the same command again$",
        ),
        disk_errors(tmp_path / "a.txt"),
        open("/dev/full", "w") as stream,
    ):
        stream.write("a")


def test_full_disk_is_known_by_its_words_where_a_library_hides_the_number(tmp_path):
    with pytest.raises(Unfinished, match="no space left on the disk"), disk_errors(tmp_path):
        raise RuntimeError("I/O error: No space left on device (os error 28)")


def test_a_disk_that_does_not_answer_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match=r"a: the disk does not answer \(Input/output error\)"),
        disk_errors(tmp_path / "a"),
    ):
        raise OSError(errno.EIO, "mine")


def test_other_failure_of_the_system_stays_what_it_is(tmp_path):
    with pytest.raises(OSError, match="mine") as caught, disk_errors(tmp_path):
        raise OSError(errno.ENOENT, "mine")
    assert not isinstance(caught.value, InputError)


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
@pytest.mark.parametrize("below", ["a", "deep/a"])
def test_target_below_a_file_is_one_line(tmp_path, whole, below):
    (tmp_path / "file").write_text("")

    def write():
        with whole(tmp_path / "file" / below):
            pass

    with pytest.raises(InputError, match="cannot be written"):
        write()


def test_whole_file_over_a_folder_is_one_line(tmp_path):
    (tmp_path / "a").mkdir()

    def write():
        with whole_file(tmp_path / "a") as partial:
            partial.write_text("new")

    with pytest.raises(InputError, match="a: cannot be written"):
        write()
    assert everything_below(tmp_path) == ["a"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_files_have_the_mode_that_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with whole_folder(tmp_path / "model") as partial:
            (partial / "sub").mkdir()
            for name in ("w", "sub/w"):
                (partial / name).touch(0o600)
            (partial / "sub" / "link").symlink_to(__file__)
        with whole_file(tmp_path / "w") as partial:
            partial.touch(0o600)
    finally:
        os.umask(before)
    for name in ("w", "model/w", "model/sub/w"):
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
    assert everything_below(tmp_path) == [
        "model",
        "model/sub",
        "model/sub/link",
        "model/sub/w",
        "model/w",
        "w",
    ]


@pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="needs a folder in which nobody can make anything"
)
@pytest.mark.parametrize("below", ["a", "nope/a"])
def test_target_that_cannot_be_made_is_one_line(below):
    target = Path("/proc", below)

    def write(whole):
        with whole(target):
            pass

    for check in (
        check_writable,
        check_replaceable,
        lambda _: write(whole_file),
        lambda _: write(whole_folder),
    ):
        with pytest.raises(
            InputError, match=f"^{target}: cannot be written: No such file or directory$"
        ):
            check(target)


def test_a_read_only_disk_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match="cannot be written: Read-only file system"),
        disk_errors(tmp_path),
    ):
        raise OSError(errno.EROFS, "mine")


def test_asking_whether_a_target_can_be_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target in (Path("a"), Path("new/deep/a"), tmp_path / "b"):
        check_writable(target)
        check_replaceable(target, "x")
    assert everything_below(tmp_path) == []
    Path("file").touch()
    with pytest.raises(InputError, match="file: is a file"):
        check_replaceable(Path("file"), "x")
    with pytest.raises(InputError, match="file/a: cannot be written: Not a directory"):
        check_writable(Path("file/a"))


def make(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def test_fingerprint_follows_content_and_not_place_or_time(tmp_path):
    one, two = make(tmp_path / "one", a="1", sub__b="2"), make(tmp_path / "two", sub__b="2", a="1")
    os.utime(two / "a", (0, 0))
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize(
    "other", [{"a": "1"}, {"a": "1", "b": "3"}, {"a": "1", "c": "2"}, {"a": "12", "b": ""}]
)
def test_fingerprint_sees_a_file_gone_changed_renamed_or_cut_elsewhere(tmp_path, other):
    assert fingerprint(make(tmp_path / "one", a="1", b="2")) != fingerprint(
        make(tmp_path / "two", **other)
    )


def test_fingerprint_leaves_hidden_files_out(tmp_path):
    folder = make(tmp_path / "one", a="1")
    before = fingerprint(folder)
    make(folder, **{".stage.partial": "x", "sub__.DS_Store": "y"})
    assert fingerprint(folder) == before


def test_fingerprint_of_a_file_is_not_moved_by_its_name(tmp_path):
    folder = make(tmp_path, a="1", b="1", c="2")
    assert fingerprint(folder / "a") == fingerprint(folder / "b") != fingerprint(folder / "c")


def test_what_a_killed_process_left_half_written_is_swept_away_by_the_next(tmp_path):
    target = tmp_path / "a.parquet"
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, sys; from pathlib import Path; from distillkit.data.files import whole_file\n"
            "with whole_file(Path(sys.argv[1])) as p: p.write_text('half'); os.kill(os.getpid(), 9)",
            str(target),
        ],
        check=False,
    )
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    here = left.name.split(".")[3].partition("-")[0]
    other = left.with_name(f".a.parquet.{here}-{os.getpid()}0x.partial")  # not a name of ours
    mine = left.with_name(f".a.parquet.{here}-{os.getppid()}.partial")  # a process at work
    for path in (other, mine):
        path.touch()
    with whole_file(target) as partial:
        partial.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, other, mine])


def start(code, *arguments, **options):
    """Start Python with some code that has `files` imported, and wait until it has said a word."""
    command = [sys.executable, "-c", f"import sys; from pathlib import Path\n{code}", *arguments]
    process = subprocess.Popen(
        [*options.get("before", ()), *command],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline()
    return process


WRITES = """from distillkit.data.files import hold, whole_file
with hold(Path(sys.argv[1])), whole_file(Path(sys.argv[1])) as partial:
    partial.write_text("its"); print("ready", flush=True); sys.stdin.read()"""


def test_the_second_process_is_told_who_writes_the_folder_and_a_killed_one_lets_go(tmp_path):
    target = tmp_path / "new" / "model"
    other = start(WRITES, str(target))
    with pytest.raises(HeldError, match=rf"new/model: process {other.pid} on .* is writing it"):
        check_replaceable(target)
    assert len(everything_below(tmp_path / "new")) == 2  # its lock, and what it writes
    other.kill()
    other.communicate()
    check_replaceable(target)
    assert everything_below(tmp_path) == ["new"]


def test_a_lock_that_was_waited_for_is_never_held_by_two(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with hold(tmp_path / "a", wait=True):
                inside.append(0)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*most} == {1}
    assert everything_below(tmp_path) == []


def test_what_is_half_written_in_another_container_is_left_alone(tmp_path):
    unshare = ["unshare", "--pid", "--fork"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False).returncode
    ):
        pytest.skip("needs unshare, and the right to it")
    writes = WRITES.replace("hold(Path(sys.argv[1])), ", "")  # without the lock
    other = start(writes, str(tmp_path / "a"), before=unshare)
    with whole_file(tmp_path / "b") as partial:
        partial.write_text("mine")
    other.communicate("")
    assert other.returncode == 0
    assert (tmp_path / "a").read_text() == "its"


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, (place, place))  # another time than before, however coarse the clock is


@pytest.mark.parametrize("form", ["arrow", "npy"])
def test_any_flipped_bit_or_cut_of_a_work_file_is_one_line(tmp_path, form):
    path = tmp_path / f"a.{form}"
    if form == "arrow":
        write_arrow(pa.table({"text": ["a", "bc"]}), path)
        read = read_arrow
        assert read(path)["text"].to_pylist() == ["a", "bc"]
    else:
        write_array(np.arange(9), path)
        read = read_array
        assert read(path).tolist() == list(range(9))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole)
        flip(path, place)
        with pytest.raises(InputError, match=rf"a\.{form}: cannot be read.*run the same command"):
            read(path)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=rf"a\.{form}: cannot be read"):
            read(path)


def test_a_sealed_file_that_has_changed_or_is_gone_is_one_line(tmp_path):
    folder = make(
        tmp_path, **{"model.safetensors": "abc", "tokenizer.json": "d", "config.json": "e"}
    )
    check_sealed(folder)  # as earlier versions wrote it
    seal(folder)
    (folder / "config.json").write_text("mine")
    check_sealed(folder)
    flip(folder / "model.safetensors", 1)
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read.*its checksum"):
        check_sealed(folder)
    (folder / "model.safetensors").write_text("abc")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot be read.*No such file"):
        check_sealed(folder)


def test_an_array_that_the_disk_has_no_room_for_says_so(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file may be cut short as on a full disk, in the midst of the numbers.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with (
            pytest.raises(OSError, match="File too large") as refused,
            (tmp_path / "a.npy").open("wb") as sink,
        ):
            save_array(np.zeros(1_000_000), sink)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused.value.errno == errno.EFBIG  # numpy's own error has no number


def test_many_may_ask_at_once_whether_a_file_can_be_written(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: check_writable(tmp_path / "shard.parquet"), range(2000)))
    assert not list(tmp_path.iterdir())
