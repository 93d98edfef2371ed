"""Decide if a matrix unit may be used unasked: by its first product on a machine, in a separate process.

Its kernels were written without one (docs/decisions/0010). An instruction that the processor refuses ends a process,
and nothing in that process can find out before. So another one goes first, and a file remembers how it ended.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import llvmlite
import numba

from ...core.machine import cache_folder, cpu_name
from ...core.version import __version__

TEXT = "quantarray: trying the matrix unit of this CPU, once\n"
RIGHT, WRONG = "products are right", "products are wrong"
SECONDS = 120  # some 2 are usual
_PRODUCT = f"""
import sys
sys.path[:] = {{path!r}}
from quantarray.cpu.int8.amx_unit import UNIT, wrong
print({WRONG!r} if wrong(UNIT) else {RIGHT!r})
"""


def verdict(name, features, variable, code=_PRODUCT):
    """Say why the kernels called `name` are not used on this machine, or "" where their first product was right.

    `variable` names the environment variable that asks a process for them.
    """
    path = _remembered(name, features)
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(path.read_text("utf-8"))["verdict"])
    if not _is_python(sys.executable):
        return "there is no Python to try them in a process of its own"
    answer = _try(name, variable, code)
    with suppress(OSError):  # where no file can be written, kernels are compiled each time too
        _keep(path, {"kernels": name, "cpu": cpu_name(), "verdict": answer})
    return answer


def _remembered(name, features):
    """Return the file of the verdict for this machine, and for what compiles and runs on it."""
    key = [name, cpu_name(), sorted(features), __version__, numba.__version__, llvmlite.__version__]
    return cache_folder() / f"{name}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"


def _is_python(executable):
    """False in an application that has frozen or embedded its Python: it would start itself."""
    return not getattr(sys, "frozen", False) and "python" in Path(executable or "").name.lower()


def _try(name, variable, code):
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(TEXT)
    command = [sys.executable, "-I", "-c", code.format(path=sys.path)]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {variable: name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"a first product took more than {SECONDS} s"
    except OSError as error:
        return f"a first product could not be tried: {error}"
    said = done.stdout.strip().splitlines()
    if done.returncode == 0 and said[-1:] == [RIGHT]:
        return ""
    if done.returncode < 0:
        return f"a first product was ended by {signal.Signals(-done.returncode).name}"
    return f"a first product failed: {(said or done.stderr.strip().splitlines() or ['without a word'])[-1]}"


def _keep(path, record):
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
