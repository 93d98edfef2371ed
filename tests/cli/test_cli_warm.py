"""`quantarray warm`: the list is that of the pages, its calls run, and no function is compiled twice."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from numba.core.dispatcher import Dispatcher
from paths import ROOT

from quantarray.cli import main, usual_calls, warm
from tools import usual_calls as script

NAMES = [call["from"] for call in usual_calls.listed()]


def call(capsys, *args):
    status = main([str(a) for a in args])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_list_is_what_the_script_writes():
    how = "python -m tools.usual_calls > quantarray/data/usual_calls.json"
    assert usual_calls.listed() == script.calls(), how
    assert len(set(NAMES)) == len(NAMES) and "README.md, ten lines" in NAMES and "quantarray demo" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_call_runs(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Dispatcher, "compile", Dispatcher.compile)  # put back afterwards
    monkeypatch.chdir(tmp_path)
    usual_calls.main(name, str(tmp_path))
    result = json.loads(capsys.readouterr().out)
    assert result["compiled"] >= 0 and result["seconds"] > 0


def test_figures(capsys, monkeypatch):
    each = count(1)
    monkeypatch.setattr(warm, "_run", lambda name, folder: {"compiled": next(each), "seconds": 0.5})
    total = len(NAMES) * (len(NAMES) + 1) // 2
    status, out, err = call(capsys, "warm")
    assert (status, err) == (0, "") and out.startswith(f"compiled {total} functions for ")
    assert f"{len(NAMES) / 2:.1f} s of CPU time" in out
    monkeypatch.setattr(warm, "_run", lambda name, folder: {"compiled": 0, "seconds": 0.5})
    assert call(capsys, "warm")[1].startswith(f"nothing to compile: what {len(NAMES)} usual calls need on ")
    facts = json.loads(call(capsys, "warm", "--json")[1])
    assert facts.keys() == {"calls", "compiled", "seconds", "cpu_seconds", "kernels"}
    assert (facts["calls"], facts["compiled"], facts["cpu_seconds"]) == (len(NAMES), 0, len(NAMES) / 2)


def test_a_call_that_fails_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(usual_calls, "listed", lambda: [{"from": "no such call", "code": ""}])
    status, out, err = call(capsys, "warm")
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert err.startswith("quantarray: error: warm: the usual call 'no such call' failed: ")


def test_modules_of_the_working_folder_are_not_imported(tmp_path):
    """As where `quantarray` is a program: calls once ran a json.py of the folder that it was called in."""
    (tmp_path / "json.py").write_text("raise SystemExit('json.py of the working folder')")
    code = f"import sys; sys.path[:] = {[str(ROOT), *filter(None, sys.path)]!r}; from quantarray.cli import warm; "
    code += f"print(warm._run({NAMES[0]!r}, {str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


SOURCE = """
import time
from numba import njit

@njit(cache=True)
def inner(x):
    return x + 1

@njit(cache=True)
def outer(x):
    return inner(x) * 2 if x else inner(x)
"""
RUN = """
import sys
from pathlib import Path
from numba.core import event
from quantarray.cli import usual_calls
counted = usual_calls._Count()
usual_calls._share_compilation(Path(sys.argv[1]))
import shared
with event.install_listener("numba:compile", counted):
    assert shared.outer(3) == 8 and shared.outer(2.0) == 6.0
print(counted.compiled)
"""


@pytest.mark.full
def test_processes_compile_each_function_once(tmp_path):
    """Two types of two functions are four compilations, in three processes together."""
    (tmp_path / "shared.py").write_text(SOURCE)
    (tmp_path / "locks").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    command = [sys.executable, "-c", RUN, str(tmp_path / "locks")]

    def run(_):
        return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(run, range(3))) == 4
    assert run(0) == 0
