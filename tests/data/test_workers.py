"""Work shared out among processes: results in order, mistakes as they were raised."""

import os
import signal
from functools import partial

import numpy as np
import pytest

from distillkit.data.workers import _answer, each, processes
from distillkit.errors import InputError, Unfinished


def power(exponent, base):
    return base**exponent


def place(_):
    return os.getpid()


def die(limit, number):
    if number == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def refuse(limit, number):
    if number == limit:
        raise InputError(f"row {number}: too large")
    return number


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 30])
def test_results_come_in_the_order_of_the_items(workers, count):
    found = each(partial(power, 2), range(count), workers=workers)
    assert list(found) == [n * n for n in range(count)]


def test_one_worker_is_this_process_and_several_are_others():
    assert set(each(place, range(4), workers=1)) == {os.getpid()}
    assert os.getpid() not in set(each(place, range(4), workers=2))
    # no process is started for one thing
    assert set(each(place, range(1), workers=2)) == {os.getpid()}


def test_one_worker_does_nothing_before_it_is_asked():
    done = []
    found = each(done.append, [1, 2, 3])
    assert done == []
    next(found)
    assert done == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_arguments_and_results_may_be_arrays(workers):
    for n, found in enumerate(each(np.arange, [0, 1, 2, 3], workers=workers)):
        assert found.tolist() == list(range(n))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_is_raised_as_it_was(workers):
    with pytest.raises(InputError, match=r"^row 3: too large$"):
        list(each(partial(refuse, 3), range(8), workers=workers))


@pytest.mark.parametrize("wanted", [1, 3, 64])
def test_as_many_processes_as_wanted(wanted):
    assert processes(wanted, 1) == processes(wanted, 1000) == wanted


@pytest.mark.parametrize("kind", [Unfinished, InputError])
def test_an_error_that_travels_as_a_value_still_says_whether_work_is_kept(kind):
    def fail(_):
        raise kind("said")

    said, error = _answer(fail, 0)
    assert (said, type(error), str(error)) == (False, kind, "said")


def test_without_a_wish_each_process_has_four_things_to_do_and_a_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    assert [processes(0, items) for items in (0, 1, 4, 7, 8, 11, 12, 1000)] == [
        1,
        1,
        1,
        1,
        2,
        2,
        3,
        3,
    ]
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert processes(0, 1000) == 2
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processes(0, 1000) == 1


def test_a_worker_that_dies_is_an_error_of_one_line_and_the_next_call_works():
    with pytest.raises(InputError, match=r"a worker process died, .*run the same command again"):
        list(each(partial(die, 3), range(8), workers=2))
    assert list(each(partial(die, 9), range(8), workers=2)) == list(range(8))
