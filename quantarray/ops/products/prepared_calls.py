"""Calls made ready once: what does not depend on the words of x is kept on the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Any, Protocol

from ...arrays.array import QuantArray
from ...arrays.layouts import layouts_of
from ...backends.registry import common_device, device_of
from ...core.dtypes import Array


class Tuner(Protocol):
    """A chooser of kernels by measurement: `autotune` installs itself as the one there is."""

    def mark(self) -> Any:
        """Return what a prepared call depends on besides its operands."""

    def prepared(
        self, op: str, device: str, x: Any, w: QuantArray, given: tuple[Any, ...], bias: Array | None,
        build: Callable[..., Any],
    ) -> Any:  # fmt: skip
        """Return `build(device, x, w, bias, *given)`, made with the kernel that was measured as the fastest."""


_tuners: list[Tuner] = []


def install(tuner: Tuner) -> None:
    """Ask `tuner` about every call that is prepared from now on."""
    _tuners[:] = [tuner]


@dataclass(frozen=True, slots=True)
class _Latest:
    """The latest call by some weights: the next is most often the same, which is seen without a hash of its options."""

    given: tuple[Any, ...]
    rest: tuple[Any, ...]
    call: Any


def kept(op: str, x: Any, w: QuantArray, given: tuple[Any, ...], bias: Array | None, build: Callable[..., Any]) -> Any:
    """Return `build(device, x, w, bias, *given)`, made once for x of one form, and `given` and the bias the same.

    DeviceError where x and w lie on different devices.
    """
    shift = None if bias is None else (bias.dtype, bias.tobytes())
    tuner = _tuners[0] if _tuners else None
    mark = None if tuner is None else tuner.mark()
    form = x._form if isinstance(x, QuantArray) else (x.dtype, x.shape, device_of(x))
    rest = mark, form, shift
    layouts = w._cache
    latest: _Latest | None = None if layouts is None else layouts.entries.get(op)
    if latest is not None and all(map(is_, given, latest.given)) and rest == latest.rest:
        return latest.call
    device = common_device(op, x=x, w=w)
    key = (op, rest, given, tuple(map(type, given)))  # True is not 1 here, though the two are equal
    try:
        hash(key)
    except TypeError:  # an argument has no hash
        return _prepared(tuner, op, device, x, w, given, bias, build)
    call = w._cached(key, _prepared, tuner, op, device, x, w, given, bias, build)
    layouts_of(w).alias(op, _Latest(given, rest, call), key)
    return call


def _prepared(
    tuner: Tuner | None, op: str, device: str, x: Any, w: QuantArray, given: tuple[Any, ...], bias: Array | None,
    build: Callable[..., Any],
) -> Any:  # fmt: skip
    if tuner is None:
        return build(device, x, w, bias, *given)
    return tuner.prepared(op, device, x, w, given, bias, build)
