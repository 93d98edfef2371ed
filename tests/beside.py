"""Test files that run in processes of their own, beside the other tests: most tests leave all but one core idle.

A test module names them in `BESIDE`, by test: arguments of pytest and what the environment has more. They start when
the tests are collected, as many at a time as there are cores to spare; `result` waits for one.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))
_started, _running = {}, []


def start(items):
    """Start what the collected tests ask for."""
    for item in items:
        found = getattr(getattr(item, "module", None), "BESIDE", {}).get(item.name)  # doctests have no module
        if found is not None:
            _started[item.nodeid] = _pool.submit(_run, *found)


def stop():
    """End what still runs, when the tests end early."""
    _pool.shutdown(wait=False, cancel_futures=True)
    for process in _running:
        process.kill()


def result(request):
    """What became of a test's process: with `returncode` and `stdout`."""
    return _started[request.node.nodeid].result()


def _run(arguments, more):
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(
        command, env=os.environ | more, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True
    ) as process:
        _running.append(process)
        made = subprocess.CompletedProcess(command, 0, process.communicate()[0])
        _running.remove(process)
    made.returncode = process.returncode
    return made
