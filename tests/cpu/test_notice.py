"""The line that says that kernels are compiled: after a second of it, once, wherever stderr goes."""

import io
from types import SimpleNamespace

import pytest

from quantarray.cpu.runtime import notice


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets, stderr that it reads, and a notice that nobody else calls."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(notice, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    monkeypatch.delenv(notice.VARIABLE, raising=False)
    now.stderr = io.StringIO()
    monkeypatch.setattr(notice, "sys", now)
    now.notice = notice.Notice()
    return now


def compiled(clock, seconds, *inner, module="quantarray.cpu.bits.pack"):
    """Compile a function that takes so many seconds, after others that it calls."""
    data = {"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))}
    clock.notice.on_start(SimpleNamespace(data=data))
    for one in inner:
        compiled(clock, one, module=module)
    clock.seconds += seconds
    clock.notice.on_end(SimpleNamespace(data=data))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([], False),
        ([(0.5,)], False),
        ([(1.5,)], True),
        ([(0.4,), (0.4,)], False),
        ([(0.4,), (0.4,), (0.4,)], True),  # a person waits for all of them
        ([(0.1, 0.3, 0.3, 0.2)], False),
        ([(0.1, 0.3, 0.3, 0.5)], True),
        ([(5,), (5, 5)], True),
    ],
)
def test_it_is_said_once_after_a_second(times, said, clock):
    for one in times:
        compiled(clock, *one)
        clock.seconds += 60  # what runs between does not count
    assert clock.stderr.getvalue() == notice.TEXT * said


def test_it_is_said_while_the_rest_compiles(clock):
    data = {"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__="quantarray.cpu.bits.pack"))}
    clock.notice.on_start(SimpleNamespace(data=data))
    compiled(clock, 1.5)
    assert clock.stderr.getvalue() == notice.TEXT  # the outer function is not done


def test_others_and_quiet_and_no_stderr(clock, monkeypatch):
    compiled(clock, 5, module="scipy.special")
    assert clock.stderr.getvalue() == ""
    monkeypatch.setenv(notice.VARIABLE, "1")
    compiled(clock, 5)
    assert clock.stderr.getvalue() == ""
    monkeypatch.delenv(notice.VARIABLE)
    closed = io.StringIO()
    closed.close()
    for nowhere in (None, SimpleNamespace(write=fail, flush=fail), closed):
        clock.notice.shown = False
        clock.stderr = nowhere
        compiled(clock, 5)


def fail(*_):
    raise OSError("closed")


def test_functions_without_a_module(clock):
    """As `exec` makes them in a namespace without a name."""
    compiled(clock, 5, module=None)
    assert not clock.stderr.getvalue()
