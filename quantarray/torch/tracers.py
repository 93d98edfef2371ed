"""Refuse tracers of PyTorch: codes are computed outside of PyTorch, so a trace would hold those of its example."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._dynamo import trace_rules

Function = TypeVar("Function", bound=Callable[..., Any])
_FIX = (
    "pass the module to quantarray.nn.from_torch(module, example), which gives a network of NumPy arrays, and save "
    "that as .qa or .onnx"
)


def uncompiled(function: Function) -> Function:
    """Return a function that `torch.compile` calls between two graphs; a whole graph is refused with the likely fix."""
    why = f"quantarray.torch: a quantiser is computed outside of PyTorch; leave out fullgraph=True, or {_FIX}"
    disabled: Function
    try:
        disabled = torch.compiler.disable(function, reason=why)
    except TypeError:  # PyTorch before 2.7
        disabled = torch.compiler.disable(function)
    return disabled


def eagerly(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that does nothing in compiled code, which would end its graph at each module."""

    def outside_of_graphs(*args: Any) -> None:
        if not torch.compiler.is_compiling():
            hook(*args)

    return outside_of_graphs


def skip(package: str, modules: str) -> None:
    """Let `torch.compile` run modules of a package as they are, without the calls that `disable` puts around each."""
    for module in modules.split():
        trace_rules.add(f"{package}.{module}")


skip("quantarray", "arrays backends core cpu cuda kernels ops quantizers")


@uncompiled
def refuse_tracers(op: str, *tensors: Any) -> None:
    """Raise RuntimeError where PyTorch traces or transforms what is called, with the likely fix.

    Tensors tell of transforms of `torch.func` and of `torch.fx`; the others are modes of the process or the thread.
    """
    onnx = sys.modules.get("torch.onnx")
    if onnx is not None and onnx.is_in_onnx_export():
        raise RuntimeError(f"{op}: PyTorch cannot write quantisers to an ONNX file; {_FIX}")
    name = _tracer(tensors)
    if name == "torch.func":
        raise RuntimeError(
            f"{op}: torch.func cannot transform a quantiser, which reads the numbers of a tensor; take gradients by "
            "torch.autograd.grad, and call it on a batch instead of vmap"
        )
    if name is not None:
        raise RuntimeError(f"{op}: {name} cannot trace a quantiser, whose codes would be those of the example; {_FIX}")


def refuse_script(module: torch.nn.Module) -> None:
    """Raise RuntimeError: TorchScript compiles Python code, and kernels of packed arrays are not of PyTorch."""
    raise RuntimeError(f"{type(module).__name__}: torch.jit.script cannot compile a quantiser; {_FIX}")


def _tracer(tensors: tuple[Any, ...]) -> str | None:
    if any(isinstance(x, torch.fx.Proxy) for x in tensors):
        return "torch.fx.symbolic_trace"
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return "torch.jit.trace"
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if proxies is not None and proxies.get_proxy_mode() is not None:
        return "torch.export.export or make_fx"
    if any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in tensors if isinstance(x, torch.Tensor)):
        return "torch.func"
    return None
