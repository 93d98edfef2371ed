"""Any function of several arrays, reduced over axes in one pass: by counts of codes, or compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.exchange import is_on_gpu
from ...backends.kernel_choice import Stage, Way, pick
from ...core.code_values import level_values
from ...core.dtypes import Array
from ...core.errors import DeviceError
from ...core.hints import Axes, Number, Values
from ..counting.histograms import Field, Job, field, fold, pair
from ..counting.reducers import Extreme, IntegerSum, RealSum
from .one_pass import one_pass
from .reductions import axes, restored

_NAMES = ("sum", "mean", "min", "max", "prod", "any", "all")
_COUNTED = ("sum", "mean", "min", "max")
_MOST_BITS = 8  # of all arrays together: 256 pairs of codes are counted

Named = Literal["sum", "mean", "min", "max", "prod", "any", "all"]
Reduction = Named | tuple[Number, Callable[[Any, Any], Any]]  # .. or (start value, function of two numbers)
Reductions = Reduction | Sequence[Reduction]  # .. one for each result of f


@overload
def map_reduce(
    f: Callable[..., tuple[Any, ...]],
    *arrays: QuantArray | Values,
    axis: Axes | None = None,
    reduce: Reductions = "sum",
    keepdims: bool = False,
    out: Any = None,
    alpha: Number = 1,
    beta: Number = 0,
) -> tuple[Array, ...]: ...
@overload
def map_reduce(
    f: Callable[..., Array],
    *arrays: QuantArray | Values,
    axis: Axes | None = None,
    reduce: Reductions = "sum",
    keepdims: bool = False,
    out: Any = None,
    alpha: Number = 1,
    beta: Number = 0,
) -> Array: ...
def map_reduce(
    f: Callable[..., Any],
    *arrays: QuantArray | Values,
    axis: Axes | None = None,
    reduce: Reductions = "sum",
    keepdims: bool = False,
    out: Any = None,
    alpha: Number = 1,
    beta: Number = 0,
) -> Array | tuple[Array, ...]:
    """out = alpha * (the sum over `axis` of f(x, y, ..)) + beta * out; no f(x, y, ..) of an element is stored.

    arrays: packed ones of any bits, and dense ones of bools, integers or floats, or numbers, which broadcast to one
    shape; at least one is packed. f is a function of each element by itself and may return a tuple: all its results
    share the one pass.

    reduce: "sum", "mean", "min", "max", "prod", "any" or "all", or (start, g), whose g(a, v) joins two numbers in any
    order and whose start changes none; one for all results, or a sequence of one for each. Integers and bools of f give
    int64, exact; floats float64; means are float64, "any" and "all" bool.

    f is called in one of two ways, which `explain` names:

    - where one or two arrays, all packed on the same axis, have at most 8 bits together and each reduction is a sum,
      mean, min or max, f gets the levels, int64 or float64 arrays, once: codes are counted, not looked up.
    - else Numba compiles f, once for a signature, and keeps it on disk. It gets an int64 or a float64 number of each
      array. Captured numbers, arrays and attributes of modules are constants of the compiled code: pass what changes
      from call to call as an operand, or f is compiled again.

    Sums of floats have one order, whatever the threads (docs/kernels/map_reduce.md). `out` is a writeable array, or a
    tuple of them for a tuple; it is returned. It is not read where beta is 0.

    Raises TypeError where Numba does not compile f, OverflowError where integers may not fit int64, ValueError for
    shapes that do not broadcast and for the mean, min or max of no elements, DeviceError for arrays on a GPU that
    cannot be counted.

    Mean and variance of each channel of a batch, in one call; then the sums of a batch norm's backward pass:

    >>> import numpy as np, quantarray as qa
    >>> q = qa.encode([[0, 1], [2, 3], [0, 1], [2, 3]], values=range(4))
    >>> mean, square = qa.map_reduce(lambda x: (x, x * x), q, axis=0, reduce="mean")
    >>> mean, square - mean**2
    (array([1., 2.]), array([1., 1.]))
    >>> dy = np.float32([[1, 2], [3, 4], [5, 6], [7, 8]])
    >>> qa.map_reduce(lambda dy, x: (dy, dy * x), dy, q, axis=0)
    (array([16., 20.]), array([20., 44.]))
    """
    op = "map_reduce"
    checks.function(op, "f", f)
    operands = [a if isinstance(a, QuantArray) else _dense(op, i, a) for i, a in enumerate(arrays)]
    if not any(isinstance(a, QuantArray) for a in operands):
        raise TypeError(f"{op}: one of the arrays must be a QuantArray, got {_kinds(arrays)}; NumPy reduces dense ones")
    listed = _reductions(op, reduce)
    keep = checks.flag(op, "keepdims", keepdims)
    factors = checks.number(op, "alpha", alpha), checks.number(op, "beta", beta)
    try:
        shape = np.broadcast_shapes(*(a.shape for a in operands))
    except ValueError:
        raise ValueError(f"{op}: shapes must broadcast to one, got {_kinds(arrays)}") from None
    over = axes(op, len(shape), axis)
    n = math.prod(shape[d] for d in over)
    for reduction in listed:
        if not n and reduction in ("mean", "min", "max"):
            raise ValueError(f"{op}: no elements have no {reduction}: {shape} over axis {axis}")
    if pick(_PASS, (operands, listed)) == COUNTED:
        results, is_tuple = _counted(op, f, [a for a in operands if isinstance(a, QuantArray)], listed, over, n)
    else:
        results, is_tuple = one_pass(op, f, lambda count: _each(op, listed, reduce, count), operands, shape, over)
    shaped = [restored(result, over, keep) for result in results]
    if out is None and factors == (1, 0):
        return tuple(shaped) if is_tuple else shaped[0]
    targets = out if is_tuple and out is not None else (out,) * len(shaped)
    if not isinstance(targets, (tuple, list)) or len(targets) != len(shaped):
        raise TypeError(f"{op}: out must be a tuple of {len(shaped)} arrays, as f returns one, got {checks.kind(out)}")
    pairs = list(zip(shaped, targets, strict=True))
    places = [None if target is None else _target(op, target, result) for result, target in pairs]
    values = [_blended(op, result, place, *factors) for result, place in zip(shaped, places, strict=True)]
    for value, place in zip(values, places, strict=True):  # once all of them fit
        if place is not None:
            with np.errstate(over="ignore"):
                np.copyto(place, value, casting="same_kind")
    stored = [value if target is None else target for value, target in zip(values, targets, strict=True)]
    return tuple(stored) if is_tuple else stored[0]


def _dense(op: str, i: int, value: Any) -> Array:
    """Check for numbers that int64 or float64 holds."""
    if is_on_gpu(value):
        raise DeviceError(f"{op}: array {i} is dense and on a GPU, where no kernel reads it; move it to the CPU")
    a = checks.numbers(op, f"array {i}", value)
    if a.dtype == np.uint64:
        raise TypeError(f"{op}: array {i} must fit int64 or float64, got uint64; .astype(np.int64) converts it")
    return a


def _kinds(arrays: Sequence[Any]) -> str:
    listed = (f"packed {a.shape}" if isinstance(a, QuantArray) else checks.kind(a) for a in arrays)
    return ", ".join(listed) or "none"


def _reductions(op: str, reduce: Any) -> list[Any]:
    """Return the reductions, one for all results or one for each."""
    single = isinstance(reduce, str) or _is_pair(reduce)
    listed = [reduce] if single or not isinstance(reduce, (tuple, list)) else list(reduce)
    for one in listed:
        if not _is_pair(one):
            checks.choice(op, "reduce", one, _NAMES)
    if not listed:
        raise ValueError(f"{op}: reduce must name a reduction, got {reduce!r}")
    return listed


def _is_pair(reduce: Any) -> bool:
    """True for a start value, a number, and a function."""
    pair = isinstance(reduce, tuple) and len(reduce) == 2 and callable(reduce[1])
    number = pair and isinstance(reduce[0], (bool, int, float, np.bool_, np.integer, np.floating))
    return number and (isinstance(reduce[0], (float, np.floating)) or -(2**63) <= int(reduce[0]) < 2**63)


def _each(op: str, listed: list[Any], reduce: Any, count: int) -> list[Any]:
    """Return a reduction for each result of f."""
    if isinstance(reduce, str) or _is_pair(reduce):
        return listed * count
    if len(listed) != count:
        raise ValueError(f"{op}: reduce must be one for all results of f or one for each, {count}, got {len(listed)}")
    return listed


def _not_counted(problem: tuple[list[QuantArray | Array], list[Any]]) -> str:
    """Say why codes are not counted, or ""."""
    operands, listed = problem
    packed = [a for a in operands if isinstance(a, QuantArray)]
    if len(packed) < len(operands):
        return "an array is dense"
    if len(packed) > 2:
        return f"there are {len(packed)} arrays"
    if any(reduction not in _COUNTED for reduction in listed):
        return "a reduction is none of " + ", ".join(_COUNTED)
    if sum(q.bits for q in packed) > _MOST_BITS:
        return f"the arrays have {sum(q.bits for q in packed)} bits together, more than {_MOST_BITS}"
    if len({(q.axis - q.ndim, q.shape[q.axis]) for q in packed}) > 1:
        return "the arrays are packed on different axes, or one is repeated along it"
    return ""


COUNTED, COMPILED = "counts of codes", "compiled"
_PASS = Stage("how f is reduced", (Way(COUNTED, _not_counted), Way(COMPILED, lambda problem: "")))


def _counted(
    op: str, f: Callable[..., Any], packed: list[QuantArray], listed: list[Any], over: tuple[int, ...], n: int
) -> tuple[list[Array], bool]:
    """Call f of levels, and reduce it by counts of the codes."""
    bits = sum(q.bits for q in packed)
    joined = field(packed[0]) if len(packed) == 1 else pair(op, packed[0], packed[1], np.concatenate, bits)
    inputs, group = _levels(joined, packed)
    mapped = f(*inputs)
    if isinstance(mapped, tuple) and not mapped:
        raise TypeError(f"{op}: f must return a number or a tuple of numbers, got an empty tuple")
    results = mapped if isinstance(mapped, tuple) else (mapped,)
    reductions = listed * len(results) if len(listed) == 1 else _each(op, listed, listed, len(results))
    jobs = [
        _job(op, _table(op, t, inputs, packed), reduction, n)
        for t, reduction in zip(results, reductions, strict=True)
    ]  # fmt: skip
    return fold(joined, over, group, jobs), isinstance(mapped, tuple)


def _blended(op: str, result: Array, target: Array | None, alpha: float, beta: float) -> Array:
    """alpha * result + beta * target, which fits it if there is one. Raises OverflowError for integers beyond int64."""
    if target is None and beta:
        raise TypeError(f"{op}: beta is a factor of out, got beta {beta} and no out")
    most = _most(alpha, result) + (_most(beta, target) if target is not None else 0)
    if most >= 2**63:
        raise OverflowError(f"{op}: alpha * result + beta * out may reach {most}, beyond int64; pass floats as factors")
    value = alpha * result
    if target is not None and beta:
        value = value + beta * (target.astype(np.int64) if target.dtype.kind in "iu" else target)
    if target is None:
        scaled: Array = np.asarray(value)[()]
        return scaled
    whole = np.asarray(value)
    if not np.can_cast(whole.dtype, target.dtype, "same_kind"):
        raise TypeError(f"{op}: out must hold {whole.dtype}, got {target.dtype}; pass an array of floats")
    if target.dtype.kind in "iu" and whole.size:
        ends = np.iinfo(target.dtype)
        if whole.min() < ends.min or whole.max() > ends.max:
            raise OverflowError(f"{op}: results from {whole.min()} to {whole.max()} do not fit out's {target.dtype}")
    return whole


def _most(factor: float, a: Array) -> int:
    """Return a bound of |factor * a| where both are integers; 0 where floats cannot overflow."""
    whole = isinstance(factor, (int, np.integer)) and np.asarray(a).dtype.kind in "iu" and np.size(a)
    return abs(int(factor)) * max(abs(int(np.max(a))), abs(int(np.min(a)))) if whole and factor else 0


def _target(op: str, out: Any, result: Array) -> Array:
    """View `out` as a writeable array of the result's shape."""
    try:
        target = out if isinstance(out, np.ndarray) else np.asarray(out) if hasattr(out, "__dlpack__") else None
    except (TypeError, RuntimeError):  # of a GPU, of bfloat16, or one that requires a gradient
        target = None
    fits = target is not None and target.shape == np.shape(result) and target.dtype.kind in "biuf"
    if target is None or not fits or not target.flags.writeable:
        raise TypeError(
            f"{op}: out must be a writeable array of bools, integers or floats on the CPU, of shape "
            f"{np.shape(result)}, got {checks.kind(out)}"
        )
    return target


def _levels(f: Field, arrays: list[QuantArray]) -> tuple[list[Array], int | None]:
    """Return levels [codes of x, codes of y, *axes], each with 1 for the other's codes, in groups that suit both."""
    varying = [q.group for q in arrays if q.group is not None]
    group = math.gcd(*varying) if varying else None
    inputs = []
    for i, q in enumerate(arrays):
        values = level_values(q.dtype, q.constants)
        dims = values.shape[1:] or (1,) * q.ndim
        values = values.reshape(len(values), *(1,) * (len(f.shape) - q.ndim), *dims)
        if values.shape[1 + f.axis] > 1 and q.group is not None and group is not None:
            starts = np.arange(0, f.shape[f.axis], group)
            values = values.take(starts // q.group, axis=1 + f.axis)
        values = values.astype(np.int64 if values.dtype == np.int64 else np.float64)
        lead = [1] * len(arrays)
        lead[i] = len(values)
        inputs.append(values.reshape(*lead, *values.shape[1:]))
    return inputs, group


def _table(op: str, result: Any, inputs: list[Array], arrays: list[QuantArray]) -> Array:
    """Tabulate a function's values of the joined codes, int64 or float64."""
    value = checks.numbers(op, "the result of f", result)
    if value.dtype == np.uint64 and value.size and int(value.max()) >= 2**63:
        raise OverflowError(f"{op}: f returned {value.max()}, which int64 does not hold; let f return floats")
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    try:
        value = np.broadcast_to(value, shape).astype(np.float64 if value.dtype.kind == "f" else np.int64)
    except ValueError:
        raise ValueError(
            f"{op}: f must return arrays of the shape of its arguments, {shape}, got {value.shape}"
        ) from None
    for i, q in enumerate(arrays):  # codes that do not occur
        last = value.take([-1], axis=i)
        value = np.concatenate([value, np.repeat(last, 2**q.bits - value.shape[i], axis=i)], axis=i)
    # the first array's planes are the low bits of a joined code
    value = np.swapaxes(value, 0, len(arrays) - 1)
    return value.reshape(2 ** sum(q.bits for q in arrays), *value.shape[len(arrays) :])


def _job(op: str, table: Array, reduce: str, n: int) -> Job:
    real = table.dtype == np.float64
    if reduce in ("min", "max"):
        return Extreme(table, table.dtype, reduce == "max")
    over = n if reduce == "mean" else None
    if real:
        return RealSum(table, np.float64, over)
    most = max(abs(int(table.max())), abs(int(table.min()))) if table.size else 0
    if most * n >= 2**63:
        raise OverflowError(f"{op}: sums of {n} values of f up to {most} may not fit int64; let f return floats")
    return IntegerSum(table, np.int64 if over is None else np.float64, over)
