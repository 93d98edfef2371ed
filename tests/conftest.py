"""Choose which tests run, by how many processes, and set up the property tests.

`python -m pytest` leaves out tests marked `full`: other instruction sets, CUDA in its simulator and by its machine
code, peaks of memory, type checkers, kernels compiled from scratch, threads, forks and signals in processes of their
own. Of a test function with many cases it runs a sample, the same one every time, unless the cases are the functions,
kernels, pages or errors that there are. `--full` runs all, and so does naming files; with QUANTARRAY_CASES=16
at most so many cases of a function. Two processes take their tests from one queue.

`--cpu-seconds` prints what each folder of tests took of the CPU, in its own process and in those that it started.

Three hypothesis profiles: "ci" of `--full` tries 50 examples a test, the same ones every time. "short" of other runs,
and of kernels compiled for other CPUs than this one, tries 10. With the environment variable QUANTARRAY_EXAMPLES=2000
the profile "long" tries 2000, new ones every time; what it finds is kept in .hypothesis and tried again first. 10 and
50 choose the other two, and no other number is accepted.
"""

import os
import random
from collections import defaultdict
from itertools import islice

import pytest
import suite_cost
from hypothesis import HealthCheck, settings

from quantarray.cpu.runtime.schedule import NOTHING, Kernel, types_of

# What doctests would import: two make this a process of another CPU; proofs, which `python -m tests.long` runs;
# scripts for type checkers, one of them wrong
collect_ignore = ["support/tile_processor.py", "support/avx512_emulated.py", "long", "typed"]
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # the first example of a test may compile kernels
settings.register_profile("short", max_examples=10, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=_SLOW)

_PROCESSES = 2  # each of whose calls may take all cores
_SAMPLE = 16  # cases of a test function that a run without --full takes
_WHOLE = tuple(f"tests/{folder}/" for folder in ("backends", "core", "cuda", "docs", "package"))  # cases are names
os.environ.setdefault("QUANTARRAY_QUIET", "1")  # commands that tests start compile where no kernels are on disk


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the tests marked `full`, too")
    parser.addoption("--cpu-seconds", action="store_true", help="print the CPU seconds of each folder of tests")


def pytest_configure(config):
    if hasattr(config, "workerinput"):  # whose options are those of the command line
        config.option.full = config.workerinput["full"]
    examples = os.environ.get("QUANTARRAY_EXAMPLES", "50" if config.option.full else "10")
    settings.load_profile({"10": "short", "50": "ci", "2000": "long"}[examples])
    config.pluginmanager.register(suite_cost)  # for doctests of the package too, which are not under this folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["full"] = node.config.option.full


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks
def pytest_cmdline_main(config):
    if hasattr(config, "workerinput"):
        return
    if config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        config.option.full = True
    elif config.pluginmanager.hasplugin("xdist") and config.option.numprocesses is None:
        config.option.numprocesses, config.option.dist = _PROCESSES, "worksteal"


def pytest_collection_modifyitems(config, items):
    items.sort(key=_rank)
    most = os.environ.get("QUANTARRAY_CASES")
    if most or not config.option.full:
        if most:
            taken = _sampled(items, int(most), ())
        else:
            taken = _sampled([item for item in items if item.get_closest_marker("full") is None], _SAMPLE, _WHOLE)
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = [item for item in items if item in taken]
    items[:] = _stretches(items, getattr(config, "workerinput", {}).get("workercount", 1))


def _rank(item):
    """Order tests by their time: processes take tests from each other at the end of a run, but not a part of one."""
    if item.nodeid.startswith("tests/cuda/test_cuda_simulated.py"):
        return 0
    return 1 if item.get_closest_marker("full") else 2


def _stretches(items, workers):
    """Order tests so that each process, which gets a stretch of them, begins with some of the longest."""
    longest = [item for item in items if not _rank(item)]
    others, ordered = iter(items[len(longest) :]), []
    for i in range(workers):
        count = (len(items) - len(ordered)) // (workers - i)
        first = longest[i::workers]
        ordered += [*first, *islice(others, max(0, count - len(first)))]
    return [*ordered, *others]


def _sampled(items, most, whole):
    """Return tests, of each function at most so many cases, but for those in folders whose cases are names."""
    cases, taken = defaultdict(list), set()
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    for function, found in cases.items():
        all_of = len(found) <= most or function.startswith(whole)
        taken.update(found if all_of else random.Random(function).sample(found, most))
    return taken


@pytest.fixture(autouse=True, scope="session")
def types_of_a_kind():
    """Arguments of one kind, of a kernel, have one type; it is not looked at where a kind is given."""
    called, types = Kernel.__call__, {}

    def looked_at(kernel, arguments, kind, tasks, pieces, workers, deal, held=NOTHING):
        if kind is not None:
            of = held.type, types_of(arguments)
            assert types.setdefault((kernel, kind), of) == of
        called(kernel, arguments, kind, tasks, pieces, workers, deal, held)

    Kernel.__call__ = looked_at
    yield
    Kernel.__call__ = called
