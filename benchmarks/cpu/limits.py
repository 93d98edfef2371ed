"""What this CPU can do at most, measured here: products of bits a second, and bytes a second of reading."""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from time import perf_counter

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from quantarray.cpu.isa import NAME
from quantarray.cpu.micro import LANES, TILE, count_tile, lay_out

_WORDS = 64  # of a run: 16 KiB of weights, which stay in L1
_TRIES = 15
_SUMS = 8
_VPOPCNTDQ = NAME == "avx512" and llvmlite.binding.get_host_cpu_features().get("avx512vpopcntdq", False)


@intrinsic
def _count_registers(typingctx, repeats):
    """`repeats` times 8 steps of and, popcount, add on 512 bits that are in registers already.

    In assembly, since LLVM would see that each step is like the last one.
    """

    llvmlite.binding.initialize_native_asmparser()

    def codegen(context, builder, signature, args):
        sums = [f"zmm{8 + i}" for i in range(_SUMS)]
        steps = [f"vpandq %zmm0, %zmm1, %zmm{16 + i}" for i in range(_SUMS)]
        steps += [f"vpopcntq %zmm{16 + i}, %zmm{16 + i}" for i in range(_SUMS)]
        steps += [f"vpaddq %zmm{16 + i}, %{name}, %{name}" for i, name in enumerate(sums)]
        code = "\n".join(["1:", *steps, "dec $0", "jnz 1b"])
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        spoilt = ",".join(f"~{{zmm{i}}}" for i in (0, 1, *range(8, 24)))
        return builder.call(ir.InlineAsm(kind, code, f"=r,0,{spoilt},~{{flags}}", side_effect=True), args)

    return types.int64(types.int64), codegen


@njit(nogil=True, error_model="numpy")
def _registers(repeats):
    return _count_registers(repeats)


@njit(nogil=True, error_model="numpy")
def _count(words, origins, weights, runs, counts, repeats):
    for _ in range(repeats):
        count_tile(words, 0, origins, 0, weights, 0, runs, 0, 1, 0, counts)


@njit(nogil=True, error_model="numpy")
def _read(x, repeats):
    """A read-only pass; eight sums, so that it waits for memory and not for an addition."""
    total = np.zeros(8, np.uint64)
    for _ in range(repeats):
        for i in range(0, x.size - 63, 64):
            for j in range(8):
                for lane in range(8):
                    total[j] ^= x[np.uint64(i + 8 * lane + j)]
    return total


def _fastest(work, threads):
    """Seconds of the fastest of several tries of work(thread) on all threads at once."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        times = []
        for _ in range(_TRIES):
            start = perf_counter()
            list(pool.map(work, range(threads)))
            times.append(perf_counter() - start)
    return min(times)


@lru_cache
def products(threads):
    """Products of bits a second: and, popcount and add of registers, or the inner loop on L1 without VPOPCNTDQ."""
    if _VPOPCNTDQ:
        repeats = 200_000
        return threads * repeats * _SUMS * 512 / _fastest(lambda t: _registers(repeats), threads)
    return inner_loop(threads)


@lru_cache
def inner_loop(threads):
    """Products of bits a second of the package's own inner loop, its operands in L1."""
    rng, repeats = np.random.default_rng(0), 3_000
    words = rng.integers(0, 1 << 64, TILE * _WORDS, np.uint64)
    weights = lay_out(rng.integers(0, 1 << 64, (_WORDS, LANES), np.uint64))
    origins, runs = np.arange(TILE) * _WORDS, np.array([[0, 0, _WORDS]])
    counts = [np.zeros((TILE, LANES), np.int64) for _ in range(threads)]
    seconds = _fastest(lambda t: _count(words, origins, weights, runs, counts[t], repeats), threads)
    return threads * repeats * TILE * LANES * _WORDS * 64 / seconds


@lru_cache
def reading(nbytes, threads):
    """Bytes a second of reading `nbytes` again and again, a part of them on each thread."""
    parts = [np.ones(max(64, nbytes // threads // 8), np.uint64) for _ in range(threads)]
    repeats = max(1, (1 << 24) // nbytes)
    seconds = _fastest(lambda t: _read(parts[t], repeats), threads)
    return sum(part.nbytes for part in parts) * repeats / seconds


def seconds(case, threads):
    """(least seconds of a case, "products" or "bytes"): whichever of its work takes longer."""
    size = min(1 << 28, max(1 << 14, case.nbytes))
    counting, moving = case.products / products(threads), case.nbytes / reading(size, threads)
    return max((counting, "products"), (moving, "bytes"))
