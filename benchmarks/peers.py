"""Programs beside each other: a process of each is started, prepares a case, and calls it in its turn."""

import os
import sys

from quantarray.core.machine import cpu_name

from .cpu.contenders import OURS
from .gpu.record import Record


def announced(op, worker_of, names, setup, path):
    """Print which programs there are, and return ({program: version}, the record of rows in the file `path`).

    Exits where ours does not run, or where the file is of another machine.
    """
    workers, absent = started(worker_of, names, setup)
    versions = {worker.name: worker.version for worker in workers}
    stop(workers)
    if OURS in absent:
        sys.exit(f"{op}: {absent[OURS]}")
    print("  ".join(f"{name} {text}" for name, text in versions.items()), flush=True)
    for name, why in absent.items():
        print(f"without {name}: {why}", flush=True)
    machine = {"cpu": cpu_name(), "cpus": os.cpu_count(), "threads": setup.threads, "versions": versions}
    try:
        return versions, Record(path, machine)
    except ValueError as error:
        sys.exit(f"{op}: {error}")


def started(worker_of, names, setup):
    """([workers that run], {program: why it does not}), each `worker_of(name, threads)`."""
    workers, absent = [], {}
    for name in names:
        worker = worker_of(name, setup.threads)
        done, answer = worker.ask("start", setup)
        if done:
            worker.version = answer
            workers.append(worker)
        else:
            worker.stop()
            absent[name] = answer
    return workers, absent


def stop(workers):
    for worker in workers:
        worker.stop()


def results_and_times(workers, case, setup, args, right):
    """Prepare a case in all workers and let them take turns: ({program: facts}, {program: least seconds}, {program:
    why it has none}).

    There are no times where `right(facts)` is false for any. Of `args`: rounds, and seconds of a turn.
    """
    facts, absent, times = {}, {}, {}
    for worker in workers:
        done, answer = worker.ask("prepare", case, setup)
        (facts if done else absent)[worker.name] = answer
    turns = [worker for worker in workers if worker.name in facts] if all(map(right, facts.values())) else []
    for i in range(args.rounds):
        for worker in turns[:: 1 if i % 2 == 0 else -1]:
            done, answer = worker.ask("time", args.seconds)
            if done:
                times.setdefault(worker.name, []).append(answer)
            else:
                absent[worker.name] = answer
    return facts, {name: min(each) for name, each in times.items() if name not in absent}, absent


def milliseconds(seconds):
    """
    >>> milliseconds(0.0002564), milliseconds(0.0123), milliseconds(1.2345), milliseconds(None)
    ('0.256', '12.3', '1,234', '')
    """
    if seconds is None:
        return ""
    ms = seconds * 1e3
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 9.995 else f"{ms:.1f}" if ms < 99.95 else f"{ms:,.0f}"
