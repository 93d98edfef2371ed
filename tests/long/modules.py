"""Random PyTorch modules become graphs that are equal to them in every code; `from_torch` refuses at most 2 %."""

from __future__ import annotations

import contextlib
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
    """Draw a module, convert it for an example of one sample or of three, and compare it for a batch of four.

    Half of the modules are of two axes and one output, and treat each sample alike. The others compute with the batch,
    have several outputs, or one or three axes; a graph of those may hold for the example's batch alone, and says so.
    """
    from torch_batches import wide
    from torch_compared import compare
    from torch_modules import module

    import quantarray as qa

    plain = rng.random() < 0.5
    net, x, mixes = (*module(rng), False) if plain else wide(rng)
    example = x[: int(rng.choice([1, 3]))]
    try:
        graph = qa.nn.from_torch(net, example)
    except ValueError as error:
        if not str(error).startswith("from_torch: "):
            raise
        print(error)
        return "refused" if plain else "refused, of another kind"
    if not graph.inputs[0].batched:
        assert mixes and graph.batch_note, graph.batch_note
        compare(net, example, graph)
        with contextlib.suppress(ValueError):
            graph(x.numpy())
            raise AssertionError("a graph of one batch takes another")
        return "equal at the batch of the example"
    compare(net, x, graph)
    return "equal"


def verdict(counts: dict[str, int]) -> str | None:
    """Check that at least 98 % load."""
    refused, total = counts.get("refused", 0), sum(counts.values()) // 2  # half of them are plain
    return f"{refused} of some {total} plain modules are refused, more than 2 %" if refused > 0.02 * total else None


PROOF = Proof(run, 2000, prepare=prepare, stretch=100, verdict=verdict)
