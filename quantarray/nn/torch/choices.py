"""Post-training choices for layers of floats: bits of weights and activations, steps from a calibration batch."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...arrays.array import QuantArray
from ...core.dtypes import Array, integers
from ...ops.creation.creation import from_codes
from ..onnx.blocked_weights import packed_integers
from ..onnx.laws import Constant
from .recording import Call, Var

_KEYS = ("weights", "activations", "calibration", "keep", "group")
_MOST = 1 << 18  # values of an activation that a quantile is taken of
_QUANTILE = 0.999  # of magnitudes, for fewer than 8 bits; 8 bits hold all of them


@dataclass(frozen=True)
class Choices:
    """A choice of 1 to 8 bits for `weights` and `activations` of float layers; those that `keep` matches stay floats.

    activations: None for weights of linear layers alone, with a scale for each output or each `group` along its inputs.
    values: the calibration batch's value of each variable that a layer takes.
    """

    weights: int
    activations: int | None
    keep: tuple[str, ...]
    values: Mapping[int, Any]
    group: int | None = None

    def applies(self, call: Call) -> bool:
        """Tell if a layer is to be quantised."""
        return not any(fnmatch.fnmatchcase(call.path, pattern) for pattern in self.keep)

    def activation(self, x: Var, result: Var, path: str) -> Call:
        """Return the call that quantises a layer's input, with a step for all of it."""
        values, bits = self.values[x.index].detach().flatten().to(torch.float32), self.activations or 8
        if not torch.isfinite(values).all():
            raise ValueError(
                f"from_torch: what the layer {path!r} takes of quantize['calibration'] holds NaN or infinity, of which "
                "no step can be taken; leave such samples out"
            )
        unsigned = bool((values >= 0).all())
        some = values.abs()[:: max(1, values.numel() // _MOST)]
        top = float(values.abs().max() if bits == 8 else some.quantile(_QUANTILE)) or 1.0
        if bits == 1 and not unsigned:
            mean = float(some.mean()) or 1.0
            function: Any = _Sign(mean)
            return Call("one bit", "", function, (x,), {}, (result,), path)
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        fake = torch.ops.aten.fake_quantize_per_tensor_affine.default
        return Call("fake_quantize_per_tensor_affine", "", fake, (x, top / high, 0, low, high), {}, (result,), path)

    def weight(self, w: Array, axis: int) -> Constant:
        """Return weights as integers times a scale for each output, along `axis`."""
        others = tuple(i for i in range(w.ndim) if i != axis)
        wide = w.astype(np.float64)
        if self.weights == 1:
            scale = np.abs(wide).mean(axis=others, keepdims=True)
            whole = np.where(wide >= 0, 1, -1)
        else:
            most = 2 ** (self.weights - 1) - 1
            scale = np.abs(wide).max(axis=others, keepdims=True) / most
            whole = np.rint(wide / np.where(scale == 0, 1, scale)).astype(np.int64)
        scale = np.where(scale == 0, 1, scale)
        return Constant((whole * scale).astype(w.dtype), whole, scale)

    def packed(self, w: Array, path: str) -> QuantArray | None:
        """Return weights [o k] of a linear layer in groups, packed; None if they are none."""
        if not w.size:
            return None
        if not np.isfinite(w).all():
            raise ValueError(f"from_torch: weights of the layer {path!r} hold NaN or infinity, which have no levels")
        k = w.shape[1]
        group = min(self.group or k, k)
        starts = np.arange(0, k, group)
        sizes, most = np.abs(w.astype(np.float64)), 2 ** (self.weights - 1) - 1
        if self.weights == 1:
            scale = np.add.reduceat(sizes, starts, axis=1) / np.diff([*starts, k])
        else:
            scale = np.maximum.reduceat(sizes, starts, axis=1) / most
        scale = scale.astype(np.float32)
        scale = np.where(scale == 0, np.float32(1), scale)
        along = group if len(starts) > 1 else None
        if self.weights == 1:
            return from_codes((w >= 0).astype(np.uint8), integers(-1, 1), 1, scale=scale, group=along)
        each = np.repeat(scale, group, axis=1)[:, :k]
        return packed_integers(np.rint(w / each.astype(np.float64)).astype(np.int64), scale, along)


@dataclass(frozen=True)
class _Sign:
    """mean where x >= 0, else -mean."""

    mean: float
    tags: tuple[Any, ...] = (torch.Tag.pointwise,)

    def __call__(self, x: Any) -> Any:
        return torch.where(x >= 0, self.mean, -self.mean)


def checked(quantize: Any, examples: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Return the options of `quantize=` with their defaults; raise TypeError or ValueError for others."""
    if not isinstance(quantize, Mapping):
        raise TypeError(
            f"from_torch: quantize= must be a dict such as {{'weights': 4, 'activations': 8, 'calibration': images}}, "
            f"got {type(quantize).__name__}"
        )
    for key in quantize:
        if key not in _KEYS:
            raise ValueError(f"from_torch: quantize= has {key!r}; it takes {', '.join(_KEYS)}")
    options = {"weights": 8, "activations": 8, "keep": (), "group": None, **quantize}
    alone = options["activations"] is None
    for key in ("weights",) if alone else ("weights", "activations"):
        if type(options[key]) is not int or not 1 <= options[key] <= 8:
            raise ValueError(f"from_torch: quantize[{key!r}] must be an integer from 1 to 8, got {options[key]!r}")
    group = options["group"]
    if group is not None and (type(group) is not int or group < 1 or not alone):
        raise ValueError(
            f"from_torch: quantize['group'] must be a positive integer, beside 'activations': None, got {group!r}; "
            "products of integers have a scale for each output"
        )
    batch = options.get("calibration", () if alone else None)
    if batch is None:
        raise ValueError("from_torch: quantize= needs 'calibration', a batch of inputs that steps are taken from")
    listed: Sequence[Any] = batch if isinstance(batch, tuple) else (batch,)
    inputs = [torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else x for x in listed]
    if not alone and (len(inputs) != len(examples) or not all(isinstance(x, torch.Tensor) for x in inputs)):
        several = f"a tuple of {len(examples)}, as the example"
        raise TypeError(f"from_torch: quantize['calibration'] must be an array or a tensor, or {several}")
    if not alone:
        inputs = [_batch_like(x, example) for x, example in zip(inputs, examples, strict=True)]
    keep = options["keep"]
    return {**options, "calibration": tuple(inputs), "keep": (keep,) if isinstance(keep, str) else tuple(keep)}


def _batch_like(x: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Return a calibration batch in the type of the example; raise ValueError if it cannot be one."""
    if x.is_floating_point() and example.is_floating_point():
        x = x.to(example.dtype)
    if x.dtype != example.dtype or x.ndim != example.ndim or not x.numel() or not x.any():
        shape = ", ".join(map(str, ("n", *example.shape[1:])))
        only_zeros = " of zeros alone" if x.numel() and not x.any() else ""
        raise ValueError(
            f"from_torch: quantize['calibration'] must be samples as the example, {example.dtype} ({shape}), got "
            f"{x.dtype} {tuple(x.shape)}{only_zeros}"
        )
    return x


def check_kept(keep: Iterable[str], paths: Iterable[str]) -> None:
    """Raise ValueError for a pattern that matches no module: a layer meant to stay float would be quantised."""
    names = list(paths)
    for pattern in keep:
        if not fnmatch.filter(names, pattern):
            near = difflib.get_close_matches(pattern, names, 3, 0.0)
            raise ValueError(
                f"from_torch: quantize['keep'] has {pattern!r}, which matches no path of the module; it has "
                f"{', '.join(map(repr, near))}"
            )
