"""Functions of elements one after the other, and codes of the result: a thread takes a value through all steps."""

from functools import cache

import numpy as np

from ...kernels.operands import ADD, ADD_OTHER, AFFINE, DIV, MAX, MIN, MUL, PRELU, RSUB, SUB
from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import place_of_lane, put_code


def elementwise(x, other, chain, limits, flip, nan, values, out):
    if not x.size:
        return
    halves = launch.halves(out) if out.size else nan.reshape(1, 1, -1)
    signs = launch.resident(np.ascontiguousarray(flip).view(np.uint32))
    grid, block = launch.rows_by_halves(len(x), -(-x.shape[1] // LANES))
    forms = bool(chain.scale.size), bool(other.size), bool(chain.other_scale.size), bool(values.size), bool(out.size)
    constants = (launch.resident(a if a.size else np.zeros((1,) * a.ndim, a.dtype)) for a in chain)
    launch.run(
        _kernel(len(chain.steps), *forms), grid, block, x, other if other.size else x, *constants,
        launch.resident(limits), signs, nan, values if values.size else x, halves,
    )  # fmt: skip


@inline
def _scaled(value, factor):
    return np.float32(libdevice.dmul_rn(np.float64(value), factor))


@inline
def _stepped(kind, v, k, following, second):
    """Take a step, each rounded by itself: a fused product and sum would be rounded once; comparisons leave NaN as
    it is."""
    if kind == ADD:
        return libdevice.fadd_rn(v, k)
    if kind == SUB:
        return libdevice.fadd_rn(v, -k)
    if kind == RSUB:
        return libdevice.fadd_rn(k, -v)
    if kind == MUL:
        return libdevice.fmul_rn(v, k)
    if kind == DIV:
        return libdevice.fdiv_rn(v, k)
    if kind == MAX:
        return k if v <= k else v
    if kind == MIN:
        return k if v >= k else v
    if kind == PRELU:
        return libdevice.fmul_rn(v, k) if v < np.float32(0) else v
    if kind == ADD_OTHER:
        return libdevice.fadd_rn(v, second)
    if kind == AFFINE:  # the product of two float32 is exact in float64
        return np.float32(libdevice.dadd_rn(libdevice.dmul_rn(np.float64(v), np.float64(k)), np.float64(following)))
    return v


@cache
def _kernel(count, scaled, added, other_scaled, stored, encoded):
    """Make a kernel for each number of steps, and for the operands and results that there are."""

    @cuda.jit
    def apply(x, other, scale, other_scale, steps, constants, limits, flip, nan, values, out):
        lane, half, row, step = place_of_lane()
        rows, channels = x.shape
        channel = half * LANES + lane
        while row < rows:
            code = np.uint32(0)
            if channel < channels:
                v = _scaled(x[row, channel], scale[channel]) if scaled else np.float32(x[row, channel])
                second = np.float32(0)
                if added:
                    value = other[row, channel]
                    second = _scaled(value, other_scale[channel]) if other_scaled else np.float32(value)
                for i in range(count):
                    following = constants[min(i + 1, count - 1), channel]
                    v = np.float32(_stepped(steps[i], v, constants[i, channel], following, second))
                if stored:
                    values[row, channel] = v
                if encoded:
                    if v != v:
                        nan[0] = True
                    down = ((flip[0, half] >> np.uint32(lane)) & np.uint32(1)) != 0
                    for t in range(limits.shape[0]):
                        if (not (v <= limits[t, channel])) != down:
                            code += np.uint32(1)
            if encoded:
                put_code(code, lane, out, row, half)
            row += step

    return apply
