"""Measure products of bytes a second that one thread's VNNI instructions make."""

import llvmlite.binding
from numba import njit, types
from numba.extending import intrinsic

from ..cpu.limits import _fastest, _loop, _spoilt

_SUMS, _REPEATS, _PRODUCTS = 16, 200_000, 64  # registers of sums, more than latency times rate; products of 512 bits


@intrinsic
def _multiply_registers(typingctx, repeats):
    """`repeats` times 16 steps of vpdpbusd on registers: sums += 4 products of bytes in each of 16 lanes."""

    def codegen(context, builder, signature, args):
        steps = [f"vpdpbusd %zmm0, %zmm1, %zmm{16 + i}" for i in range(_SUMS)]
        return _loop(builder, steps, args, _spoilt(range(16, 16 + _SUMS)))

    return types.int64(types.int64), codegen


@njit(nogil=True, error_model="numpy")
def _multiply(repeats):
    return _multiply_registers(repeats)


def vnni():
    """Measure products a second of one thread; 0 on CPUs without VNNI of 512 bits."""
    if not llvmlite.binding.get_host_cpu_features().get("avx512vnni"):
        return 0
    return _REPEATS * _SUMS * _PRODUCTS / _fastest(lambda t: _multiply(_REPEATS), 1)
