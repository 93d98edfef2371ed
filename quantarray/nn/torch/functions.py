"""Functions of one value, element by element: recorded calls, run again on probes to learn what they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...core.dtypes import Array
from ..onnx.laws import Tensor, scaling
from .recording import Call, Var, needed, variables

_LIKE = "ones_like zeros_like full_like fill copy _to_copy index_put bucketize".split()
_LIKE += "hardtanh elu celu selu softplus leaky_relu hardsigmoid hardswish rsub relu6 mish floor_divide".split()
_LIKE += "_prelu_kernel prelu".split()
NORMS = "native_batch_norm _native_batch_norm_legit_no_training cudnn_batch_norm _batch_norm_no_update".split()
FAKE = "fake_quantize_per_tensor_affine fake_quantize_per_tensor_affine_cachemask".split()
FAKE += "fake_quantize_per_channel_affine fake_quantize_per_channel_affine_cachemask".split()
DECOMPOSED = [f"{op}_per_{kind}" for op in ("quantize", "dequantize") for kind in ("tensor", "channel")]  # of pt2e


POOL, ALIAS, RESHAPE = "max pool", "alias", "reshaped"  # calls that conversion adds: on probes they give what they take


def pointwise(call: Call) -> bool:
    """Tell if each element of the result depends on one element of each operand, and the channel, alone."""
    if call.function is None:
        return False
    if call.op == "index_put":
        mask = call.args[1]
        return len(mask) == 1 and isinstance(mask[0], Var) and mask[0].shape == call.args[0].shape
    if call.op in NORMS:
        return _stored(call)
    return call.op in _LIKE or call.op in FAKE or decomposed(call) or torch.Tag.pointwise in call.function.tags


def decomposed(call: Call) -> bool:
    """Tell if a call is a step of fake quantisation as exported graphs have it: to integers, or back to floats."""
    return call.op in DECOMPOSED and call.function._schema.name.startswith("quantized_decomposed::")


def _stored(call: Call) -> bool:
    """Tell if a batch norm takes stored statistics, not those of its input."""
    of_input = call.args[5] is True and call.op in ("native_batch_norm", "cudnn_batch_norm")
    return not of_input and isinstance(call.args[3], Var) and not call.args[3].depends


def affine_of(call: Call) -> tuple[Array, Array]:
    """Return factor and offset by channel of a batch norm, as PyTorch computes them for contiguous arrays."""
    x, weight, bias, mean, var = call.args[:5]
    epsilon = call.args[-1] if call.op != "_batch_norm_no_update" else call.args[6]
    m, v = mean.tensor.numpy(), var.tensor.numpy()
    kind = m.dtype.type
    factor = 1 / np.sqrt(v + kind(epsilon))
    if weight is not None:
        factor = factor * weight.tensor.detach().numpy()
    offset = -m.astype(np.float64) * factor + (0 if bias is None else bias.tensor.detach().numpy().astype(np.float64))
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    return factor.reshape(shape), offset.astype(m.dtype).reshape(shape)


@dataclass(frozen=True, eq=False)
class Function:
    """A value as calls on a base: `root` is the base's variable in the calls, `out` that of the result."""

    base: Tensor
    root: Var
    calls: tuple[Call, ...]
    out: Var

    def then(self, call: Call) -> Function:
        """Return the function with one more call."""
        return replace(self, calls=(*self.calls, call), out=call.results[0])

    def merged(self, other: Function) -> Function | None:
        """Return this function with the calls of another; None if the base, the pools or the reshapes differ."""
        ours, others = ([id(c) for c in (*f.pools, *f.reshapes)] for f in (self, other))
        if self.base is not other.base or ours != others:
            return None
        calls = self.calls + tuple(c for c in other.calls if not any(c is k for k in self.calls))
        return replace(self, calls=calls)

    @property
    def pools(self) -> list[Call]:
        """Return the calls that take the largest element of each window."""
        return [c for c in self.calls if c.op == POOL]

    @property
    def reshapes(self) -> list[Call]:
        """Return the calls that reshape what they take."""
        return [c for c in self.calls if c.op == RESHAPE]

    def split(self) -> tuple[Function, Call, tuple[Call, ...]]:
        """Return the part before the first reshape, the reshape, and the calls after it."""
        at = next(i for i, c in enumerate(self.calls) if c.op == RESHAPE)
        call = self.calls[at]
        return replace(self, calls=self.calls[:at], out=call.args[0]), call, self.calls[at + 1 :]

    @property
    def before_pools(self) -> Function:
        """Return the part of the function before its first pool."""
        at = next(i for i, c in enumerate(self.calls) if c.op == POOL)
        return replace(self, calls=self.calls[:at], out=self.calls[at].args[0])

    @property
    def out_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the result."""
        return np.dtype(str(self.out.dtype).split(".")[-1])

    def needed(self) -> list[Call]:
        """Return the calls that the result needs, in order."""
        return needed(self.calls, [self.out])

    def cuts(self) -> list[tuple[Function, tuple[Call, ...]]]:
        """Return each split of the function in two of one value: the first part, and the calls of the second."""
        calls, parts = self.needed(), []
        for i in range(1, len(calls)):
            out, end = calls[i - 1].results[0], tuple(calls[i:])
            before = {self.root.index} | {r.index for c in calls[:i] for r in c.results}
            if {v.index for c in end for v in _vars_of(c)} & before <= {out.index}:
                parts.append((replace(self, calls=tuple(calls[:i]), out=out), end))
        return parts

    def scaled(self) -> Tensor | None:
        """Return the value as integers times a scale if its calls multiply the base by constants only."""
        scale = self.base.pure
        if scale is None:
            return None
        value, ndim = self.root, len(self.base.shape)
        for call in self.calls:
            if call.op not in ("mul", "div", "_to_copy", ALIAS) or call.kwargs.get("rounding_mode"):
                return None
            first, other = (*call.args, 1.0)[:2]
            if call.op == "mul" and other is value:
                first, other = other, first
            if first is not value or (isinstance(other, Var) and other.depends):
                return None
            factor = np.asarray(other.tensor.detach().numpy() if isinstance(other, Var) else other, np.float64)
            if factor.ndim > ndim or not np.isfinite(factor).all() or (factor == 0).any():
                return None
            scale = scale * factor if call.op == "mul" else scale / factor
            value = call.results[0]
        if self.out_dtype.kind != "f" or value is not self.out:
            return None
        return replace(self.base, dtype=self.out_dtype, chain=(scaling(scale, self.out_dtype),))

    @property
    def constants(self) -> list[Var]:
        """Return the constants of all calls."""
        results = {self.root.index} | {r.index for c in self.calls for r in c.results}
        return [v for c in self.calls for v in _vars_of(c) if v.index not in results]

    def evaluate(self, values: Array) -> Array:
        """Run the calls on values of the base, of as many axes, with channels where constants have them."""
        x = values
        for link in self.base.chain:
            x = link(x)
        known = {self.root.index: torch.from_numpy(np.array(x, self.base.dtype))}
        with torch.no_grad():
            for call in self.calls:
                got = _run(call, known)
                for var, tensor in zip(call.results, got if isinstance(got, (tuple, list)) else (got,), strict=False):
                    known[var.index] = tensor
        return np.asarray(known[self.out.index].numpy())

    def varying(self) -> int | None:
        """Return the axis of channels that constants differ along, -1 if along none, None if along several.

        After a reshape only constants of one number are known to fit the base.
        """
        if self.reshapes and any(math.prod(v.shape) > 1 for c in self.split()[2] for v in _vars_of(c) if not v.depends):
            return None
        ndim, axes = len(self.base.shape), set()
        links = [link for link in self.base.chain if link.op != "Gather"]
        chains = [np.asarray(a).shape for link in links for a in link.operands if a is not None]
        along = [c for c in self.calls if c.op in NORMS or "per_channel" in c.op]  # of vectors, along an axis
        norms = [v for c in (*along, *(c for c in self.calls if c.op == "bucketize")) for v in _vars_of(c)]
        for shape in [*chains, *(v.shape for v in self.constants if not any(v is n for n in norms))]:
            if len(shape) > ndim:
                return None
            axes |= {ndim - len(shape) + i for i, n in enumerate(shape) if n > 1}
        axes |= {int(c.args[3]) % ndim if "per_channel" in c.op else 1 for c in along}
        if len(axes) > 1 or 0 in axes:
            return None
        return axes.pop() if axes else -1


def _vars_of(call: Call) -> list[Var]:
    return variables((call.args, call.kwargs))


def _run(call: Call, known: dict[int, Any]) -> Any:
    if call.op in (POOL, ALIAS, RESHAPE):
        return known[call.args[0].index]
    if call.op in NORMS:
        factor, offset = affine_of(call)
        x = known[call.args[0].index].numpy()
        return torch.from_numpy((x.astype(np.float64) * factor + offset).astype(x.dtype))
    args, kwargs = (_filled(part, known) for part in (call.args, call.kwargs))
    return call.function(*args, **kwargs)


def _filled(tree: Any, known: dict[int, Any]) -> Any:
    if isinstance(tree, Var):
        return known.get(tree.index, tree.tensor)
    if isinstance(tree, tuple):
        return [_filled(t, known) for t in tree]
    return {k: _filled(t, known) for k, t in tree.items()} if isinstance(tree, dict) else tree
