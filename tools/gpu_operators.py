"""Generate docs/gpu-operators.md: which operations of graphs and which kernels of functions run on a GPU, and by what.

python -m tools.gpu_operators > docs/gpu-operators.md
"""

from __future__ import annotations

from quantarray.backends.registry import KERNELS
from quantarray.nn.operators import OPERATORS
from tools.kernels_of import kernels_of

_HEAD = """# Operations of networks on a GPU

`net.to_device("cuda")` moves a graph: what `qa.nn.load`, `qa.nn.from_torch`, `qa.nn.from_state` and `qa.nn.models`
return. It lists the operations of the network that no GPU runs before it moves anything ([how to](gpu.md#networks)).
`python -m tools.gpu_operators > docs/gpu-operators.md` generates this page from the records of operations, and a test
checks that it is up to date.

- **kernels**: CUDA kernels, whose integers, codes and float32 results are the CPU's to the bit. Products of large
  float32 matrices are the exception: those are CuPy's, as on the CPU they are NumPy's.
- **CuPy**: on arrays of the GPU. Correctly rounded operations (+, -, *, /, comparisons, moves) give what NumPy gives.
  exp, log, tanh and their like may differ in the last bits, and so do sums of floats, which are added in another order.
- **the CPU alone**: a network with one of these is refused by name.

Operands that Python reads, such as axes, stay on the CPU; they have to be constants. A NaN that a quantiser meets on a
GPU is no error, and indices are not checked, as nothing waits for the GPU.
"""
_FUNCTIONS = """
## Functions of arrays

All functions of packed arrays run on a GPU but for two, which raise `DeviceError`: `map_reduce` with dense arrays
there, or with more than 8 bits together, and adjoints of convolutions by gradients of floats. Where NumPy arrays are
taken beside packed ones, arrays on their GPU are, too: operands of `+`, `*` and comparisons, `bias=`, indices, masks,
scales, thresholds. The host looks at those, so the call copies them and waits for the GPU; give NumPy arrays where that
is too slow.

The kernels below have no CUDA form. Most do faster what other kernels do, and a GPU runs those.

| | kernels |
|---|---|
"""
_KERNELS = {"AveragePool", "GlobalAveragePool", "Conv", "MatMul", "Gemm", "Concat"}  # of float32


def _where(name: str) -> str:
    operator = OPERATORS[name]
    if not operator.gpu:
        return "the CPU alone"
    return "kernels" if operator.packed or name in _KERNELS else "CuPy"


def page() -> str:
    """Return the page."""
    lists = {
        where: sorted(n for n in OPERATORS if _where(n) == where) for where in ("kernels", "CuPy", "the CPU alone")
    }
    rows = [f"| {where} | {', '.join(f'`{n}`' for n in names)} |" for where, names in lists.items()]
    both = kernels_of("cuda")
    alone = [name for name in KERNELS if name not in both]
    kernels = [
        f"| {where} | {', '.join(f'`{n}`' for n in names)} |"
        for where, names in (("CUDA and the CPU", both), ("the CPU alone", alone))
    ]
    return "\n".join([_HEAD, "| runs by | operations |", "|---|---|", *rows, _FUNCTIONS + "\n".join(kernels), ""])


if __name__ == "__main__":
    print(page(), end="")
