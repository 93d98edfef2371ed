"""The number of threads that CPU kernels use."""

from __future__ import annotations

from typing import Any

from ..arrays import checks
from ..core.forks import no_fork
from ..core.numba_threads import start


def set_num_threads(n: Any) -> None:
    """Let CPU kernels of the calling Python thread use up to n threads; all that the process may use at first.

    Numba's number is meant: kernels of other packages that use Numba follow it, and the environment variable
    NUMBA_NUM_THREADS is the most it can be. Results never depend on it. Raises ValueError beyond that.

    >>> import quantarray as qa
    >>> before = qa.get_num_threads()
    >>> qa.set_num_threads(1)
    >>> qa.get_num_threads()
    1
    >>> qa.set_num_threads(before)
    """
    op = "set_num_threads"
    wanted = checks.integer(op, "n", n, 1)
    with no_fork:
        import numba  # not with the package: it takes longer to import than all the rest

        most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        if wanted > most:
            raise ValueError(f"{op}: n must be at most {most}, got {n}; set NUMBA_NUM_THREADS before the first import")
        start()
        numba.set_num_threads(wanted)


def get_num_threads() -> int:
    """Return how many threads CPU kernels use that are called from this Python thread.

    >>> import quantarray as qa
    >>> qa.get_num_threads() >= 1
    True
    """
    with no_fork:
        import numba

        start()
        return int(numba.get_num_threads())
