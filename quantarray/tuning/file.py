"""File of `autotune`: JSON with a table of rows for each machine that has written to it.

    {"format": "quantarray autotune", "version": 1,
     "tables": [{"machine": {"cpu": .., "kernels": "avx512", ..},
                 "rows": [{"op": "conv2d", "x": "uint2 1x56x56x64", "w": .., "options": "padding=1", "threads": 2,
                           "us": {"conv": 181.2, "dot": 163.9}, "kernel": "dot", "model": "dot"}, ..]}, ..]}

Tables of other machines are neither used nor lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ..core.errors import FormatError
from ..core.forks import no_fork
from ..core.machine import cache_folder, cpu_name
from ..core.version import __version__
from ..io.files import whole
from ..io.foreign import reason
from .results import Problem, Row

MAGIC, VERSION = "quantarray autotune", 1
LONGEST = 1e12  # microseconds of a call; JSON may have integers that no float holds
_NAME = "autotune.json"
Table = dict[tuple[int, Problem], Row]


def default_path() -> Path:
    """Return autotune.json in `cache_folder`."""
    return cache_folder() / _NAME


@cache
def this_machine() -> dict[str, str]:
    """Describe this machine: processor, micro-kernels, a digest of the features that Numba compiles for, and versions.

    `target` is LLVM's name of the processor: virtual machines may call several generations by one name.
    """
    with no_fork:
        import llvmlite.binding
        import numba  # not with the package: it takes longer to import than all the rest

        from ..cpu.runtime import isa

    return {
        "cpu": cpu_name(),
        "target": llvmlite.binding.get_host_cpu_name(),
        "kernels": isa.NAME,
        "features": hashlib.sha256(" ".join(sorted(isa.FEATURES)).encode()).hexdigest()[:16],
        "quantarray": __version__,
        "numba": numba.__version__,
    }


def read(op: str, path: Path) -> Table:
    """Read the rows for this machine, of all numbers of threads; none where there is no file. FormatError for any
    other."""
    return _rows(_tables(op, path), this_machine())


def merge(op: str, path: Path, rows: Iterable[Row]) -> None:
    """Add rows to those of this machine in a file, replacing those of the same problems; whole or not at all."""
    with alone(Path(os.path.realpath(path)).parent):  # of the target, as another process may use another link
        tables = _tables(op, path)
        both = _rows(tables, this_machine()) | {(row.threads, row.problem): row for row in rows}
        others = [table for table in tables if table["machine"] != this_machine()]
        mine = {"machine": this_machine(), "rows": [row.to_json() for row in both.values()]}
        merged = {"format": MAGIC, "version": VERSION, "tables": [*others, mine]}
        whole(op, path, lambda file: _write(file, json.dumps(merged, indent=1)))


def _write(file: Path, text: str) -> None:
    file.write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let other processes that write to the folder wait, where the system has such locks; else the last one wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked child has the descriptor too
        os.close(descriptor)


def _tables(op: str, path: Path) -> list[dict[str, Any]]:
    """Return the file's tables, every row of which is sound."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != MAGIC:
            raise ValueError(f"it does not say {MAGIC!r}")
        version = content.get("version")
        if type(version) is not int or version != VERSION:
            raise ValueError(f"it has version {version!r}, this library reads version {VERSION}")
        tables: list[dict[str, Any]] = content["tables"]
        for table in tables:
            _rows([table], table["machine"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"{op}: {path} is not a whole file of tuned kernels: {reason(error)}; delete it or name another"
        ) from error
    return tables


def _rows(tables: list[dict[str, Any]], machine: dict[str, str]) -> Table:
    rows_of_machine = (_row(row) for table in tables if table["machine"] == machine for row in table["rows"])
    return {(row.threads, row.problem): row for row in rows_of_machine}


def _row(stored: dict[str, Any]) -> Row:
    problem = Problem(*(stored[name] for name in Problem._fields))
    row = Row(problem, *(stored[name] for name in Row._fields[1:]))
    sound = all(isinstance(text, str) for text in problem) and type(row.threads) is int and isinstance(row.us, dict)
    times = row.us.values() if sound else ()
    if not sound or not all(type(us) in (int, float) and 0 < us < LONGEST for us in times):
        raise ValueError(f"a row must have texts, threads and microseconds, got {stored}")
    if not {row.kernel, row.model} <= row.us.keys():
        raise ValueError(f"no time of {row.kernel!r} or {row.model!r} in {stored}")
    return row
