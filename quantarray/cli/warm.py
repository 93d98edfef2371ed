"""`quantarray warm`: compile what calls usually need, on all cores, so that no later call waits for it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..core.progress import Progress
from ..cpu import isa
from ..ops.threads import get_num_threads
from . import output, usual_calls


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("warm", help="compile the kernels that calls usually need", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(command=warm)


def warm(args: argparse.Namespace) -> int:
    """Run `quantarray warm`. What is compiled already is loaded from disk, so that a second run compiles nothing."""
    began = time.monotonic()
    names = [call["from"] for call in usual_calls.listed()]
    with TemporaryDirectory() as folder, Progress(len(names), "usual calls compiled") as bar:
        results = []
        for done, result in _finished(names, Path(folder)):
            results += [result] if result else []
            bar.update(done)
    compiled = sum(result["compiled"] for result in results)
    cpu = sum(result["seconds"] for result in results)
    facts = {
        "calls": len(names),
        "compiled": compiled,
        "seconds": time.monotonic() - began,
        "cpu_seconds": cpu,
        "kernels": isa.NAME,
    }
    if args.json:
        output.print_json(facts)
    elif compiled:
        took = f"in {facts['seconds']:.1f} s, {cpu:.1f} s of CPU time"
        print(f"compiled {compiled} functions for {isa.NAME} {took}; later processes load them from disk")
    else:
        print(f"nothing to compile: what {len(names)} usual calls need on {isa.NAME} is on disk")
    return 0


def _finished(names: list[str], folder: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Run each call in a process of its own, on all cores; yield how many are done, at least once a second."""
    with ThreadPoolExecutor(get_num_threads()) as pool:
        pending = {pool.submit(_run, name, folder) for name in names}
        try:
            while pending:
                done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                count = len(names) - len(pending)
                yield count, None
                for future in done:
                    yield count, future.result()
        finally:  # after an error or an interrupt nothing more begins
            pool.shutdown(cancel_futures=True)


def _run(name: str, folder: Path) -> dict[str, Any]:
    code = f"import sys; sys.path[:] = {sys.path!r}; from {usual_calls.__name__} import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", code, name, str(folder)]  # `-m` would import files of the working folder
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise OSError(f"warm: the usual call {name!r} failed: {(ended.stderr.splitlines() or ['without a word'])[-1]}")
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result
