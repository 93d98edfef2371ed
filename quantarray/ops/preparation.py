"""Calls made ready once: what does not depend on the words of x is kept on the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import tuning
from ..array import QuantArray
from ..dtypes import Array


def kept(
    op: str, device: str, x: Any, w: QuantArray, given: tuple[Any, ...], bias: Array | None, build: Callable[..., Any]
) -> Any:
    """What `build(device, x, w, bias, *given)` makes, once for x of one form, and `given` and the bias the same."""
    shift = None if bias is None else (bias.dtype, bias.tobytes())
    mark = tuning.mark() if tuning.state.used else None
    form = x.form if isinstance(x, QuantArray) else (x.dtype, x.shape)
    key = (op, mark, form, given, tuple(map(type, given)), shift)  # True is not 1 here, though the two are equal
    try:
        found = w.found(key)
    except TypeError:  # something that was given has no hash
        return tuning.prepared(op, device, x, w, given, bias, build)
    return w.cached(key, tuning.prepared, op, device, x, w, given, bias, build) if found is None else found
