"""Test files that run in processes of their own, beside the other tests: most tests leave all but one core idle.

A test module names them in `BESIDE`, by test: arguments of pytest and what the environment has more. They start when
the tests are collected, the last one first, as many at a time as there are cores to spare. The tests that ask for them
come after all others, and run here what has not begun by then.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from paths import ROOT

_pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))
_started, _running = {}, []


def wanted(item):
    """Return what a collected test asks for, or None."""
    return getattr(getattr(item, "module", None), "BESIDE", {}).get(item.name)  # doctests have no module


def start(items):
    """Start what the collected tests ask for."""
    for item in reversed(items):
        if wanted(item) is not None:
            _started[item.nodeid] = _pool.submit(_run, *wanted(item))


def stop():
    """End what still runs, when the tests end early."""
    _pool.shutdown(wait=False, cancel_futures=True)
    for process in _running:
        process.kill()


def result(request):
    """Return a test's ended process, with `returncode` and `stdout`."""
    started = _started[request.node.nodeid]
    return _run(*wanted(request.node)) if started.cancel() else started.result()


def _run(arguments, more):
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(command, env=os.environ | more, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        _running.append(process)
        done = subprocess.CompletedProcess(command, 0, process.communicate()[0])
        _running.remove(process)
    done.returncode = process.returncode
    return done
