"""Random PyTorch modules become graphs that are equal to them in every code; `from_torch` refuses at most 2 %."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from .proof import Proof

sys.path.insert(0, str(Path(__file__).parents[1] / "with_torch"))


def prepare() -> None:
    """Let PyTorch run on one thread."""
    import torch

    torch.set_num_threads(1)


def run(rng: np.random.Generator) -> str:
    """Draw a module, convert it and compare: "equal", or "refused" by name."""
    from torch_compared import compare
    from torch_modules import module

    import quantarray as qa

    net, x = module(rng)
    try:
        graph = qa.nn.from_torch(net, x[:1])
    except ValueError as error:
        if not str(error).startswith("from_torch: "):
            raise
        print(error)
        return "refused"
    compare(net, x, graph)
    return "equal"


def verdict(counts: dict[str, int]) -> str | None:
    """Check that at least 98 % load."""
    refused, total = counts.get("refused", 0), sum(counts.values())
    return f"{refused} of {total} modules are refused, more than 2 %" if refused > 0.02 * total else None


PROOF = Proof(run, 2000, prepare=prepare, stretch=100, verdict=verdict)
