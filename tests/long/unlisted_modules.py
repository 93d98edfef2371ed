"""Random PyTorch modules with layers and code of rare kinds are refused by name, or equal in every code."""

from __future__ import annotations

import re

import numpy as np

from .modules import prepare
from .proof import Proof


def run(rng: np.random.Generator) -> str:
    """Draw a module and convert it: "equal", or "refused" in lines that name the rare parts, and none besides."""
    from torch_compared import compare
    from torch_unlisted import module, unlisted_paths

    import quantarray as qa

    net, x = module(rng)
    kinds = {path: type(part).__name__ for path, part in net.named_modules()}
    try:
        graph = qa.nn.from_torch(net, x[:1])
    except ValueError as error:
        head, *lines = str(error).splitlines()
        named = [re.fullmatch(r"  (\S+) \((\w+)\): .{10,}", line) for line in lines]
        if not head.startswith("from_torch: ") or not lines or not all(named):
            raise
        for match in named:
            path, kind = match.groups()
            assert kinds.get(path) == kind and path in unlisted_paths(net), f"refused a listed part: {match[0]}"
        print(error)
        return "refused"
    compare(net, x if graph.inputs[0].batched else x[:1], graph)
    return "equal" if unlisted_paths(net) else "equal, no rare part"


PROOF = Proof(run, 2000, prepare=prepare, stretch=100)
