"""Build networks, measure memory, and let contenders take turns."""

from pathlib import Path
from statistics import median

import numpy as np

from ..cpu.rounds import say
from .contenders import CONTENDERS, OURS, image_shape
from .worker import NetworkWorker

ARCHITECTURES = (
    "lfc",
    "cnv",
    "xnor_alexnet",
    "bireal_resnet18",
    "bireal_resnet34",
    "quicknet",
    "dorefa_resnet18",
    "dorefa_mobilenet_v2",
    "tinier_yolo",
)  # fmt: skip


def build(case, folder, names, settings):
    """Write the files of each contender, where they are not there, and compile our kernels; return {name: why not}."""
    (architecture, arguments), absent = case, {}
    stem, threads = str(Path(folder) / architecture), max(settings.threads)
    for name in names:
        if not all(path.exists() for path in CONTENDERS[name].files(stem)):
            say(f"{architecture}: {name} writes its network")
            absent |= _asked(name, threads, [("build", stem, architecture, arguments)])
    if OURS in names and OURS not in absent:  # Numba keeps kernels on disk: the processes that are measured load them
        say(f"{architecture}: kernels are compiled")
        shape = image_shape(architecture, arguments)[1:]
        absent |= _asked(OURS, threads, [("prepare", stem, (n, *shape), settings.threads) for n in settings.batches])
    return absent


def _asked(name, threads, messages):
    """{} after requests to a process of its own, or {name: why not}."""
    worker = NetworkWorker(name, threads)
    try:
        why = worker.start()
        for message in messages if why is None else ():
            done, answer = worker.ask(*message)
            if not done:
                why = answer
                break
        return {} if why is None else {name: why}
    finally:
        worker.stop()


class WrongError(AssertionError):
    """A result that cannot be: nothing of the case is timed."""


def measured(case, folder, names, settings, quiet):
    """Return the rows of a case, one a batch; `absent` in each says who does not take part and why.

    case: (architecture, arguments). settings: batches, threads, rounds, seconds of a turn. Raises `WrongError`.
    """
    architecture, arguments = case
    absent = build(case, folder, names, settings)
    if OURS in absent:
        raise WrongError(f"{architecture}: {absent[OURS]}")
    shape, stem = image_shape(architecture, arguments), str(Path(folder) / architecture)
    workers, memory, rows = [], {}, []
    try:
        for name in names:
            if name in absent:
                continue
            say(f"{architecture}: memory of {name}")
            worker = NetworkWorker(name, max(settings.threads))
            workers.append(worker)
            why = worker.start()
            if why is None:
                done, answer = worker.ask("memory", stem, shape, max(settings.threads))
                why = None if done else answer
            if why is None:
                memory[name] = answer
            else:
                workers.remove(worker)
                worker.stop()
                absent[name] = why
        for batch in settings.batches:
            say(f"{architecture}: batch {batch}")
            rows.append(_row(architecture, (batch, *shape[1:]), stem, workers, settings, quiet, dict(absent), memory))
    finally:
        for worker in workers:
            worker.stop()
    return rows


def _row(architecture, shape, stem, workers, settings, quiet, absent, memory):
    results, turns = {}, []
    for worker in workers:
        done, answer = worker.ask("prepare", stem, shape, settings.threads)
        if done:
            results[worker.name] = answer[settings.threads[0]]
            turns += [(worker, n) for n in settings.threads]
        elif worker.name == OURS:
            raise WrongError(f"{architecture}, batch {shape[0]}: {answer}")
        else:
            absent[worker.name] = answer
    _compare(architecture, results)
    times, before = {(worker.name, n): [] for worker, n in turns}, quiet.disturbed
    for i in range(settings.rounds):
        for worker, n in turns[:: 1 if i % 2 == 0 else -1]:
            quiet.wait()
            done, answer = worker.ask("time", n, settings.seconds)
            if done:
                times[worker.name, n].append(answer)
            else:
                absent[worker.name] = answer
    by_order = None
    for worker in workers:
        if worker.name == OURS:
            quiet.wait()
            done, by_order = worker.ask("orders", stem, shape, settings.threads[0], settings.seconds)
            if not done:
                raise WrongError(f"{architecture}, batch {shape[0]}: {by_order}")
    seconds = {}
    for (name, n), blocks in times.items():
        if name not in absent:
            every = [s for block in blocks for s in block]
            each = {"median": median(map(median, blocks)), "p99": float(np.quantile(every, 0.99)), "calls": len(every)}
            seconds.setdefault(name, {})[str(n)] = each
    return {
        "case": f"{architecture}, batch {shape[0]}",
        "architecture": architecture,
        "batch": shape[0],
        "image": list(shape[1:]),
        "seconds": seconds,
        "orders": by_order,
        "memory": memory,
        "absent": absent,
        "turns": {"all": settings.rounds * len(turns), "disturbed": quiet.disturbed - before},
    }


def _compare(architecture, results):
    """Raise `WrongError` for results that are not finite, or of other shapes than ours."""
    for name, result in results.items():
        if not np.isfinite(result).all():
            raise WrongError(f"{architecture}: {name}: a score is not finite")
        if OURS in results and result.shape != results[OURS].shape:
            raise WrongError(f"{architecture}: {name}: {result.shape} scores, ours are {results[OURS].shape}")
