"""Put rows of float32 values side by side, as a launch of a network's plan: copies by NumPy would part it."""

from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 16  # values that are worth a parallel region
_RUN = 1 << 13  # values of a task, or a short row


def join(x, first, out):
    if not x.size:
        return
    chunks = max(1, x.shape[1] // _RUN)
    threads.run(_copy_runs, (x, first, out, chunks), len(x) * chunks, threads.workers(x.size, _LEAST))


@Kernel
def _copy_runs(x, at, out, chunks, first, last):
    for task in range(first, last):
        row, chunk = task // chunks, task % chunks
        begin, end = chunk * _RUN, x.shape[1] if chunk + 1 == chunks else (chunk + 1) * _RUN
        source, to = x[row, begin:end], out[row, at + begin : at + end]
        for i in range(len(source)):
            to[i] = source[i]
