"""Reduce a function of several arrays in one pass: words are decoded, and the function called, in registers.

The text of the kernel is written for the operands (`map_reduce_text.py`), and compiled once for a function.
"""

import numpy as np
from numba import types
from numba.core.errors import NumbaError

from ...core.bounded_cache import Kept
from ...kernels.one_pass import Accumulator, Dense, accumulators
from ..llvm.masks import put_affine, put_plane
from ..llvm.vectors import prefer_wide
from ..runtime import threads, user_functions
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .map_reduce_text import SEGMENT, arguments_of, text_of

_LEAST = 1 << 14  # elements that are worth a parallel region
_KINDS = (False, np.float64), (True, np.int64)
_plans = Kept(64)


def map_reduce(op, f, reductions, operands, rows, out):
    integers = tuple(_is_integer(one) for one in operands)
    function, described = user_functions.called(f, len(operands))
    results, is_tuple = _results(op, function, integers)
    wanted = reductions(len(results))
    steps, joins, described = _steps(op, wanted, results, described)
    flat = [one for result in steps for one in result]
    text = text_of(operands, steps, is_tuple, rows.lanes)
    run = _kernel(text, described, (f, *wanted), function, joins)
    starts = [np.array([one.start for one in flat if one.integer is whole], kind) for whole, kind in _KINDS]
    shape = (rows.results.number * rows.blocks, *(() if rows.lanes else (rows.length,)))
    floats, whole = (np.empty((len(start), *shape), start.dtype) for start in starts)
    columns = 1 if rows.lanes else -(-rows.length // SEGMENT)
    size = rows.results.number * rows.folds.number * rows.length
    tasks = rows.results.number * rows.blocks
    numbers = rows.length, rows.folds.number, tasks, rows.pieces, rows.each, rows.blocks, columns
    passed = (
        *arguments_of(operands),
        *rows.results,
        *rows.folds,
        *numbers,
        *starts,
        floats.reshape(-1),
        whole.reshape(-1),
    )
    try:
        threads.run(run, passed, tasks * columns, threads.workers(size, _LEAST))
    except MemoryError:  # the only error that a kernel reports, also of f
        raise ValueError(
            f"{op}: f raised an error for some elements (an assertion, an index), or there is no memory for a kernel's "
            f"buffers; call f on numbers to see which"
        ) from None
    parts = {False: iter(floats), True: iter(whole)}
    for result in steps:
        shaped = (rows.results.number, rows.blocks, *shape[1:])
        out.append([(one, next(parts[one.integer]).reshape(shaped)) for one in result])
    out.append(is_tuple)


def _is_integer(operand):
    values = operand.values if isinstance(operand, Dense) else getattr(operand, "table", None)
    return values is None or values.dtype.kind in "biu"


def _kind(integer):
    return types.int64 if integer else types.float64


def _results(op, function, integers):
    """Return (True for each result that is an integer, whether there is a tuple of them)."""
    result = _type(op, "f", function, integers)
    listed = tuple(result.types) if isinstance(result, types.BaseTuple) else (result,)
    for one in listed:
        if not isinstance(one, (types.Integer, types.Boolean, types.Float)) or one == types.uint64:
            fix = "; np.int64(..) or a float holds it" if one == types.uint64 else ""
            raise TypeError(f"{op}: f must return a number or a tuple of numbers, got Numba's type {one}{fix}")
    if not listed:
        raise TypeError(f"{op}: f must return a number or a tuple of numbers, got an empty tuple")
    return [not isinstance(one, types.Float) for one in listed], isinstance(result, types.BaseTuple)


def _type(op, name, function, integers):
    takes = tuple(map(_kind, integers))
    try:
        return user_functions.result_of(function, takes)
    except NumbaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        shown = next((line for line in lines if "Failed in" not in line), "")
        raise TypeError(
            f"{op}: {name} must be a function that Numba compiles for one number of each array, here "
            f"({', '.join(map(str, takes))}): {shown[:200]}; write it with numbers, math and NumPy's functions of them"
        ) from None


def _steps(op, wanted, results, described):
    """Return the accumulators of each result, the functions that they call, and the description of all functions."""
    steps, joins = [], {}
    for number, (reduction, integer) in enumerate(zip(wanted, results, strict=True)):
        if isinstance(reduction, str):
            steps.append(accumulators(reduction, integer))
            continue
        start, function = reduction
        name = f"join{number}"
        joins[name], text = user_functions.called(function, 2)
        described = None if None in (described, text) else f"{described} {text}"
        whole = integer and not isinstance(start, (float, np.floating))
        whole = whole and not isinstance(
            _type(op, f"the function of reduce[{number}]", joins[name], (True, True)), types.Float
        )
        result = _type(op, f"the function of reduce[{number}]", joins[name], (whole, whole))
        if not isinstance(result, (types.Integer, types.Boolean, types.Float)):
            raise TypeError(f"{op}: the function of reduce[{number}] must return a number, got Numba's type {result}")
        cast = "np.int64" if whole else "np.float64"
        steps.append(
            [
                Accumulator(
                    whole,
                    f"{cast}({{t}})",
                    (int if whole else float)(start),
                    f"{cast}({name}(a, v))",
                    _each(joins[name]),
                )
            ]
        )
    return steps, joins, described


def _each(function):
    """Return a function of arrays that calls one of numbers."""

    def joined(a, v):
        pairs = zip(a.ravel(), v.ravel(), strict=True)
        return np.array([function(*pair) for pair in pairs], a.dtype).reshape(a.shape)

    return joined


def _kernel(text, described, functions, function, joins):
    """Return the kernel of a text and of functions, told apart by what they do, or as objects."""
    key = text, described or functions
    run = _plans.get(key)
    if run is None:
        run = Kernel(
            user_functions.compiled(
                __file__,
                text,
                "run",
                described,
                f=function,
                seek=_seek,
                advance=_advance,
                prefer_wide=prefer_wide,
                put_affine=put_affine,
                put_plane=put_plane,
                **joins,
            )
        )
        _plans.keep(key, run)
    return run


@inline
def _seek(number, lengths, steps, digits, place):
    """Add to `place` where row `number` is, and set its index."""
    for d in range(lengths.size - 1, -1, -1):
        digits[d] = number % lengths[d]
        number //= lengths[d]
        for column in range(place.size):
            place[column] += digits[d] * steps[d, column]


@inline
def _advance(lengths, steps, digits, place):
    """Step to the next row."""
    for d in range(lengths.size - 1, -1, -1):
        digits[d] += 1
        for column in range(place.size):
            place[column] += steps[d, column]
        if digits[d] < lengths[d]:
            break
        digits[d] = 0
        for column in range(place.size):
            place[column] -= steps[d, column] * lengths[d]
