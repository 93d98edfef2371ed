"""The class of proofs: a module of this package has a `PROOF`, whose cases are functions of a seed and a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Proof:
    """`run(rng)` makes and checks a case: it raises where the case is wrong, and returns what to count it as.

    A case draws everything from its rng, so that a seed and a number repeat it. It runs in a worker process of its own,
    with `environment` set before anything is imported, after `prepare()`. A worker that takes more than `seconds` for
    a case is killed and the case counted as a hang. The run as a whole fails where `verdict(counts)` names a reason.
    """

    run: Callable[[np.random.Generator], str | None]
    count: int  # cases of the whole proof
    seconds: float = 120.0  # includes what is compiled
    stretch: int = 2000  # cases of a worker, after which it is noted how far the run has come
    prepare: Callable[[], None] = lambda: None
    environment: dict[str, str] = field(default_factory=dict)
    verdict: Callable[[dict[str, int]], str | None] = lambda counts: None


def generator(seed: int, number: int) -> np.random.Generator:
    """Build the generator of all random numbers of a case."""
    return np.random.default_rng([seed, number])
