"""Count what a run of the suite costs: CPU seconds of each folder of tests, and versions of kernels.

`--cpu-seconds` prints both. A run fails if its processes asked for more than `VERSIONS`, as only `--full` could: each
costs some user's first call 0.2 s (docs/measurements/suite.md).
"""

import os
from collections import Counter

import pytest

from quantarray.cpu.runtime.on_disk import KernelCache

VERSIONS = 1150  # the suite has 711 on a CPU with AVX2, more on one with AVX-512 or AMX
_before = os.times()
_seconds = Counter()
_versions = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Note the CPU seconds since the report before: user and system, here and in processes that have ended."""
    global _before
    report = yield
    now = os.times()
    report.seconds = [now[i] + now[i + 1] - _before[i] - _before[i + 1] for i in (0, 2)]
    report.full = item.get_closest_marker("full") is not None
    _before = now
    return report


def pytest_runtest_logreport(report):
    if not hasattr(report, "seconds"):  # of a process that crashed
        return
    kind = os.path.dirname(report.nodeid.split("::")[0]) + " (full)" * report.full
    for where, seconds in zip(("here", "started"), report.seconds, strict=True):
        _seconds[kind, where] += seconds


def _noting(key_of):
    """Wrap the method that makes a version's key, to be loaded or stored: note (function, key)."""

    def noted(cache, *args):
        key = key_of(cache, *args)
        _versions.add((f"{cache._py_func.__module__}.{cache._py_func.__qualname__}", key))
        return key

    return noted


KernelCache._index_key = _noting(KernelCache._index_key)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _versions.update(map(tuple, getattr(node, "workeroutput", {}).get("versions", ())))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of the processes of a run
        session.config.workeroutput["versions"] = sorted(_versions)
    elif len(_versions) > VERSIONS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if config.option.cpu_seconds:
        kinds = Counter()
        for (kind, _), seconds in _seconds.items():
            kinds[kind] += seconds
        terminalreporter.section("CPU seconds: in tests' processes, in processes that they started")
        for kind, _ in kinds.most_common():
            terminalreporter.line(f"{_seconds[kind, 'here']:8.0f} {_seconds[kind, 'started']:8.0f}  {kind}")
        terminalreporter.line(f"{kinds.total():8.0f} in all; {len(_versions):,} versions of kernels")
    if len(_versions) > VERSIONS:
        terminalreporter.line(f"FAILED: {len(_versions):,} versions of kernels, more than {VERSIONS:,}", red=True)
