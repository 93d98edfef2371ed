"""Networks from PyTorch modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .graph import Graph


def from_torch(
    module: Any,
    example: Any,
    *,
    forwards: Mapping[type, Callable[..., Any]] | None = None,
    quantize: Mapping[str, Any] | None = None,
) -> Graph:
    """Convert a PyTorch module to a graph that runs on packed integers.

        network = qa.nn.from_torch(model, torch.zeros(1, 3, 32, 32))
        scores = network(images)  # NumPy arrays, float32 [n 3 32 32]

    module: a `torch.nn.Module` (`pip install quantarray[torch]`). It is called in evaluation mode, and left unchanged.
    example: a tensor, or a tuple of those that `forward` takes; only its shape and dtype matter.
    forwards: functions `forward(layer, *inputs)` that replace the `forward` of a type of module (and its
    subclasses), for layers whose code cannot be recorded.
    quantize: choices for layers of floats, quantised after training: `{"weights": 4, "activations": 8, "calibration":
    images, "keep": ("conv1", "head.*")}`. Weights get 1 to 8 bits with a scale for each output, activations 1 to 8 bits
    with a step from the batch `calibration`, tensors or NumPy arrays; layers whose path matches a pattern of `keep`
    stay floats. With `"activations": None` the weights of linear layers alone are quantised, without a batch, and have
    a scale for each output, or for each `"group": 32` along its inputs; their products are those of floats by values.

    Quantisers are recognised by what they compute: any function that gives at most 256 levels in even steps, such as
    sign with a straight-through gradient, DoReFa, LSQ, PACT or ternary weights, or few uneven ones, such as LQ-Nets'
    and ABC-Net's. A module with `pointwise = True` is taken as one function of a number. Batch norms, biases and
    activations between a product and a quantiser become thresholds, found by running the module's own functions. What
    does not quantise runs in NumPy on floats, and `Graph.summary` marks it. The batch may have any length unless an
    operation mixes samples or computes with their number; then it must have the example's, and errors for other batches
    name the operation.

    Raises ValueError that lists each part that cannot be taken: module path, type, and reason.
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError("from_torch: needs PyTorch; install it with pip install 'quantarray[torch]'") from None
    from .torch.loading import load_module

    return load_module(module, example, forwards or {}, quantize)
