"""Train on compressed activations: `compressed_activations` makes a context from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..arrays import checks
from ..core.format import WORD_BITS
from . import arena
from .compression import OP, Compression
from .rounding import Rounding
from .saving import Rules
from .sensitivity import Allocation

# ActNN's: nothing; 4 bits but for batch norms; 4 bits for all; 2 bits for all, allocated
_LEVELS: dict[str, tuple[int | None, bool]] = {"L0": (None, True), "L1": (4, False), "L2": (4, True), "L3": (2, True)}
_LEVELS["L4"] = _LEVELS["L3"]
_ALLOCATED = frozenset(("L3", "L4"))


def compressed_activations(
    bits: int = 2,
    *,
    level: str | None = None,
    model: torch.nn.Module | None = None,
    layers: Mapping[Any, int | None] | None = None,
    allocate: bool = False,
    offload: bool = False,
    group: int = 256,
    seed: int = 0,
    least: int = 1024,
    mmap_threshold: int | None = None,
    norm_error: float | None = None,
) -> Compression:
    """Pack the tensors that autograd saves for the backward pass, for any model: ActNN (arXiv 2104.14129) and GACT.

    Of each saved tensor, only what the function's backward pass reads is kept. Masks are exact, a bit an element: of
    ReLU, clamp, hardtanh, threshold, hardsigmoid, abs, maximum, dropout, straight-through estimators; max pooling has a
    byte an index. Values to which gradients are proportional, as in products, are rounded stochastically in groups, as
    `Grouped` does: gradients are unbiased. Smooth functions such as GELU, softmax and log_softmax have at least 8 bits.
    Some values are left alone: those that are compared with other saved values, as in amax, or divided by; queries and
    keys of fused attention; and all that is saved by functions that docs/saved-tensors.md does not list, such as a
    program's own. The forward pass and the loss do not change.

    Left alone: parameters and other leaves, which the graph holds anyway, buffers of modules, tensors under `least`
    elements, expanded ones, integers, float64, what other losses save, sparse, nested, quantised and other tensors
    without plain memory, and tensors that are neither on the CPU nor on an NVIDIA GPU, which needs the extra `cuda13`.
    A tensor that several products save is packed once, and one that any function needs as it is
    is not packed for others besides.

    bits: 1 to 8. level: ActNN's "L0" (nothing), "L1" (4 bits, batch norms exact), "L2" (4 bits), "L3" (2 bits,
    `allocate`) or "L4" (L3 with `offload`) instead of `bits`.

    allocate: inputs of convolutions and other products have `bits` on average, each sample of each tensor 1 to 8 of its
    own, b_i. They minimise sum_i C_i / (2**b_i - 1)**2, which bounds the variance of the weights' gradients: C_i = sum
    over groups of n * (max - min)**2 / 4, times the running squared norm of the gradient of the product, of steps
    before. The norm is the sample's if `batch(sample_ids)` names it, else the mean of the batch; `measure(loss)`
    replaces what it says about layers. All else, such as inputs of norms, and layers in `layers=` keep their bits, as
    their errors spread to the layers before. So do a GPU's tensors.

    offload: words of a GPU's tensors, which are packed there, wait in page-locked host memory until the backward pass
    reads them. Words of CPU tensors are in host memory anyway: it does not change them.

    Memory of the CPU: words are in memory mappings of their own. At the end of the `with` block, if packing saved
    256 MiB in it, and where the process has grown by 128 MiB while tensors are packed and unpacked, the free pages of
    the C library's heap are returned to the system by `malloc_trim`; elsewhere than with glibc nothing happens. For a
    CPU, this is ActNN's L5.
    mmap_threshold: bytes from which on glibc maps each block by itself (`mallopt(M_MMAP_THRESHOLD)`); it holds for all
    of the process from then on.

    norm_error: inputs of norms on a CPU get the fewest bits, from the layer's on, with which the root mean square error
    of the normalised values is at most this. It is measured in the first step and in each 64th. Layers in `layers=`
    have the bits that these say. `report.errors` has what was measured.

    layers: {name or class of a module: bits, or None to leave what it saves alone}, which modules inside inherit; names
    are those of `model.named_modules()`. seed: 0 to 2**32 - 1. Random numbers continue if the same context is entered
    again: make one, and enter it each step.

    Raises ValueError for wrong bits, and for NaN and infinities: in the forward pass, or for tensors on a GPU, where
    values of 1e30 and more are refused too, at the end of the `with` block, before which nothing waits for the GPU.
    RuntimeError in the backward pass where a saved tensor was changed in place, and for PyTorch before 2.7.

    >>> import quantarray as qa, torch
    >>> x, w = torch.ones(4, 1024), torch.ones(8, 1024, requires_grad=True)
    >>> compression = qa.torch.compressed_activations(bits=2)
    >>> with compression:
    ...     loss = torch.nn.functional.linear(x, w).relu().sum()
    >>> loss.backward()
    >>> compression.report.before, compression.report.after, w.grad[0, 0].item()
    (16512, 648, 4.0)
    """
    if not hasattr(torch._C._autograd.SavedTensor, "data"):
        raise RuntimeError(
            f"{OP}: needs PyTorch 2.7 or later, which says what hooks have packed, got {torch.__version__}"
        )
    norms = True
    chosen: int | None = None
    if level is not None:
        chosen, norms = _LEVELS[checks.choice(OP, "level", level, tuple(_LEVELS))]
        allocate, offload = allocate or level in _ALLOCATED, offload or level == "L4"
    else:
        chosen = checks.integer(OP, "bits", bits, 1, 8)
    rules = Rules(checks.integer(OP, "least", least, 0), norms, bool(offload))
    by_layer = {} if layers is None else dict(layers)
    _check_layers(by_layer, model)
    group = checks.integer(OP, "group", group, 1)
    allocation = None
    if allocate and chosen is not None:
        if group % WORD_BITS:
            raise ValueError(f"{OP}: allocate needs a group that is a multiple of {WORD_BITS}, got {group}")
        allocation = Allocation(chosen)
    if norm_error is not None and not checks.number(OP, "norm_error", norm_error) > 0:
        raise ValueError(f"{OP}: norm_error must be above 0, got {norm_error}")
    if mmap_threshold is not None:
        arena.map_from(checks.integer(OP, "mmap_threshold", mmap_threshold, 1))
    rounding = Rounding(group, checks.integer(OP, "seed", seed, 0, 2**32 - 1), allocation, norm_error)
    return Compression(chosen, rules, rounding, model, by_layer)


def _check_layers(layers: Mapping[Any, int | None], model: torch.nn.Module | None) -> None:
    names = set() if model is None else {name for name, _ in model.named_modules() if name}
    for key, value in layers.items():
        if value is not None:
            checks.integer(OP, f"bits of the layer {key!r}", value, 1, 8)
        if isinstance(key, str) and model is None:
            raise ValueError(f"{OP}: layers by name, such as {key!r}, need model=, whose named_modules() they are of")
        if isinstance(key, str) and key not in names:
            raise ValueError(f"{OP}: model has no module {key!r}")
