"""Types of the public functions, as mypy and pyright see them in a user's script.

`typed/right.py` has no error and runs, each type compared with what comes; in `typed/wrong.py` both checkers find the
error on each line that is marked, and no other.
"""

import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from paths import ROOT, TESTS

import quantarray as qa

HERE = TESTS / "typed"
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"


def mypy(folder):
    """Lines with errors, by file name."""
    (folder / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    options = ["--config-file", folder / "mypy.ini", "--cache-dir", folder / "cache", "--no-error-summary"]
    out = run([sys.executable, "-m", "mypy", *options, RIGHT, WRONG], cwd=ROOT)
    return [(Path(file).name, int(line)) for file, line in re.findall(r"^(.+?\.py):(\d+): error", out, re.M)]


def pyright(folder):
    """Lines with errors, by file name."""
    settings = {"include": [str(HERE)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", folder, "--pythonpath", sys.executable, "--outputjson"]
    out = run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})  # as an installed package is found
    errors = [d for d in json.loads(out)["generalDiagnostics"] if d["severity"] == "error"]
    return [(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in errors]


def run(command, **settings):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **settings)
    assert done.returncode in (0, 1), done.stderr + done.stdout
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_checkers_pass_what_is_right_and_find_what_is_wrong(checker, tmp_path):
    lines = WRONG.read_text().splitlines()
    marked = {i for i, line in enumerate(lines, 1) if line.endswith("# error")}
    errors = checker(tmp_path)
    assert [line for file, line in errors if file == RIGHT.name] == []
    seen = {line for file, line in errors if file == WRONG.name}
    assert [lines[i - 1] for i in sorted(marked - seen)] == [], "missed"
    assert [lines[i - 1] for i in sorted(seen - marked)] == [], "false alarms"
    assert marked


def test_the_script_runs_and_gets_what_its_types_say():
    runpy.run_path(str(RIGHT))


# What returns anything: of indices the number of axes decides, of a row of any callables the last one, of `predict` the
# network and whether its data are arrays or files
ANYTHING = {
    "QuantArray.__getitem__",
    "QuantArray.__array_ufunc__",
    "QuantArray.__array_function__",
    "Sequential.__call__",
    "Sequential.predict",
    "Network.predict",
    "Graph.predict",
    "load",  # an array, or a dict of arrays: what the file holds, as of numpy.load
}


def functions():
    """Public functions, and public and special methods of public classes, by name."""
    for namespace in (qa, qa.linalg, qa.nn, qa.testing):
        for name in namespace.__all__:
            public = getattr(namespace, name)
            if inspect.isfunction(public):
                yield name, public
            for base in getattr(public, "__mro__", ()):
                for n, f in vars(base).items() if base.__module__.startswith("quantarray") else ():
                    if inspect.isfunction(f) and (n[0] != "_" or n.endswith("__")):
                        yield f"{name}.{n}".replace("CuQuantArray", "QuantArray"), f


def signatures(function):
    return [inspect.signature(f) for f in typing.get_overloads(function) or [function]]


def test_no_public_function_returns_anything():
    loose = {n for n, f in functions() for s in signatures(f) if s.return_annotation == "Any"}
    assert loose == ANYTHING


def test_choices_are_literals():
    """Arguments that take a few words, of which a checker can tell a misspelt one."""
    words = {"data_format", "padding", "side", "mode", "bitorder", "indexing", "reduce"}
    free = {(n, p.name) for n, f in functions() for s in signatures(f) for p in s.parameters.values()
            if p.name in words and p.annotation in ("str", "Any")}  # fmt: skip
    assert not free
