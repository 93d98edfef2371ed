"""Tensors to packed arrays and back, and a packed tensor that a module's state_dict holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..arrays import checks
from ..arrays.array import QuantArray, validate
from ..core.dtypes import Array, Constants, DType
from ..core.errors import FormatError
from ..ops.quantize.quantization import quantize as quantize_array
from ..ops.words import conversion
from ..quantizers.base import Quantizer
from .tracers import refuse_script, refuse_tracers

_NAMES = ("scale", "offset", "table")


def quantize(x: torch.Tensor, quantizer: Quantizer | None = None, axis: int = -1, **settings: Any) -> QuantArray:
    """Quantise a tensor's values, which no gradient follows: `quantarray.quantize(x.detach(), quantizer, axis, ..)`.

    A float32, float16 or float64 tensor on the CPU is read in place, in any strides; bfloat16 is widened. One on a
    GPU is packed there. settings: `scale_axis`, `group`, `bits` and the others of `quantarray.quantize`.

    >>> import quantarray as qa, torch
    >>> w = torch.tensor([[1.0, -3.0], [0.5, 0.5]], requires_grad=True)
    >>> qa.torch.quantize(w, qa.Sign(scale=True), scale_axis=0).dequantize().tolist()
    [[2.0, -2.0], [0.5, 0.5]]
    """
    if not isinstance(x, (torch.Tensor, torch.fx.Proxy)):
        raise TypeError(f"quantize: x must be a torch.Tensor, got {checks.kind(x)}; quantarray.quantize takes arrays")
    refuse_tracers("quantize", x)
    return quantize_array(x.detach(), quantizer, axis, **settings)


def dequantize(q: QuantArray, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the values as a tensor, float32, or int32 where levels are integers without a scale.

    out: a tensor of q's shape and on its device, which takes them and is returned: of that type, float32, float16 or
    bfloat16. TypeError for another.

    >>> import quantarray as qa, torch
    >>> out = torch.empty(3)
    >>> qa.torch.dequantize(qa.quantize([0.5, -1.5, 1.0], qa.Sign(scale=True)), out=out)
    tensor([ 1., -1.,  1.])
    """
    checks.packed("dequantize", "q", q)
    refuse_tracers("dequantize", out)
    if out is None:
        values = conversion.dequantize(q)
        if q.device != "cpu":
            return torch.utils.dlpack.from_dlpack(values)
        return torch.from_numpy(np.ascontiguousarray(values))
    if not isinstance(out, torch.Tensor):
        raise TypeError(
            f"dequantize: out must be a torch.Tensor, got {checks.kind(out)}; q.dequantize(out=) takes arrays"
        )
    conversion.dequantize(q, out)
    torch.autograd.graph.increment_version(out)
    return out


class PackedTensor(torch.nn.Module):
    """A packed array as buffers of a module: `state_dict`, `torch.save`, `torch.load(weights_only=True)` and
    `copy.deepcopy` hold it.

    Words and constants are integer buffers, so that `.half()` and `.to(torch.bfloat16)` leave them as they are. The
    state says the law, and `load_state_dict` takes one of any shape and law. Calling the module gives the values.

    >>> import quantarray as qa, torch
    >>> layer = torch.nn.Module()
    >>> layer.w = qa.torch.to_torch(qa.quantize([[1.0, -3.0]], qa.Sign(scale=True)))
    >>> sorted(layer.state_dict()), layer.w()
    (['w._extra_state', 'w.scale', 'w.words'], tensor([[ 2., -2.]]))
    """

    words: torch.Tensor
    __prepare_scriptable__ = refuse_script

    def __init__(self, q: QuantArray) -> None:
        super().__init__()
        if checks.packed("PackedTensor", "q", q).device != "cpu":
            raise TypeError(f"PackedTensor: q must be on the CPU, got {q.device}; move it with .to_device('cpu')")
        self._hold(q)

    @property
    def array(self) -> QuantArray:
        """Return the packed array, whose words and constants are the buffers' memory. Buffers must be on the CPU."""
        return _array(self._law, {name: getattr(self, name) for name in ("words", *_NAMES)})

    def dequantize(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the values as a tensor, written to `out` if that is given."""
        refuse_tracers("PackedTensor", self.words)
        return dequantize(self.array, out)

    def forward(self) -> torch.Tensor:
        """Return the values as a new tensor, without a gradient."""
        return self.dequantize()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the law in plain Python: kind, bits, levels, shape, axis, group, scheme."""
        return dict(self._law)

    def set_extra_state(self, state: Any) -> None:
        """Take the law of a state, whose buffers `load_state_dict` has taken before."""

    def extra_repr(self) -> str:
        """Describe the array in the module's repr."""
        return f"{tuple(self._law['shape'])}, {_dtype(self._law)}"

    def _hold(self, q: QuantArray) -> None:
        dtype = q.dtype
        self._law: dict[str, Any] = {
            "kind": dtype.kind, "bits": dtype.bits, "n_levels": dtype.n_levels,
            "levels": None if dtype.levels is None else list(dtype.levels), "name": dtype.name,
            "shape": list(q.shape), "axis": q.axis, "group": q.group, "scheme": q.scheme,
        }  # fmt: skip
        stored = {name: a for name, a, _ in q.constants.items()}
        self.register_buffer("words", torch.from_numpy(np.array(q.words.view(np.int64))))
        for name in _NAMES:
            a = stored.get(name)
            kind: Any = None if a is None else np.int16 if a.dtype == np.uint16 else np.int32
            self.register_buffer(name, None if a is None else torch.from_numpy(np.array(a).view(kind)))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Replace the buffers instead of copying into them: their shapes depend on the law."""
        law = state_dict.get(f"{prefix}_extra_state")
        if law is not None and f"{prefix}words" in state_dict:
            tensors = {name: state_dict.get(prefix + name) for name in ("words", *_NAMES)}
            known = self._checked(law, prefix)
            for name, tensor in tensors.items():
                if not isinstance(tensor, torch.Tensor) and (tensor is not None or name == "words"):
                    raise FormatError(f"load_state_dict: {prefix}{name} must be a tensor, got {checks.kind(tensor)}")
            try:
                validate(_array(known, {k: None if t is None else t.cpu() for k, t in tensors.items()}))
            except (ValueError, TypeError, RuntimeError) as error:
                raise FormatError(f"load_state_dict: {prefix}words and their law do not fit: {error}") from None
            for name, tensor in tensors.items():
                setattr(self, name, None if tensor is None else tensor.detach().to(self.words.device).clone())
            self._law = dict(law)
        super()._load_from_state_dict(state_dict, prefix, *args)  # type: ignore[arg-type]

    def _checked(self, law: Any, prefix: str) -> dict[str, Any]:
        if not isinstance(law, dict) or set(law) != set(self._law) or not isinstance(law["name"], str):
            raise FormatError(f"load_state_dict: {prefix}_extra_state is not the law of a PackedTensor")
        return law


def _array(law: Mapping[str, Any], buffers: Mapping[str, torch.Tensor | None]) -> QuantArray:
    """View buffers as an array."""
    scale, offset, table = (_constant(buffers[name]) for name in _NAMES)
    words = buffers["words"]
    assert words is not None
    view = words.detach().numpy().view(np.uint64)
    constants = Constants(scale, offset, table, law["group"])
    return QuantArray(view, _dtype(law), tuple(law["shape"]), law["axis"], constants, law["scheme"])


def _constant(buffer: torch.Tensor | None) -> Array | None:
    if buffer is None:
        return None
    a: Array = buffer.detach().numpy().view(np.uint16 if buffer.dtype == torch.int16 else np.float32)
    a.setflags(write=False)
    return a


def _dtype(law: Mapping[str, Any]) -> DType:
    levels = None if law["levels"] is None else tuple(law["levels"])
    return DType(law["kind"], law["bits"], law["n_levels"], levels, law["name"])


def to_torch(q: QuantArray) -> PackedTensor:
    """Return a packed array as a module with buffers, which a parent module registers by assignment.

    >>> import quantarray as qa, torch
    >>> packed = qa.torch.to_torch(qa.encode([[1, -1]], values=(-1, 1)))
    >>> qa.array_equal(packed.array, qa.encode([[1, -1]], values=(-1, 1))), packed
    (True, PackedTensor((1, 2), bipolar))
    """
    return PackedTensor(q)
