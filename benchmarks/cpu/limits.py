"""Measure the most that this CPU can do: products of bits a second, and bytes read a second."""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from time import perf_counter, sleep

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from quantarray.core.format import empty_lines
from quantarray.cpu.llvm.vectors import LANES, PAIR, TILE
from quantarray.cpu.llvm.views import Counted, Limits, Planes, Rows, RunSpan, View
from quantarray.cpu.popcount.bands import BAND, BLOCKS, IN_BANDS, WIDE, count_band, empty_band
from quantarray.cpu.popcount.count_tile import count_tile, lay_out, mask_counts
from quantarray.cpu.popcount.tiles import IN_REGISTERS, Places, Product
from quantarray.cpu.runtime.isa import NAME
from quantarray.kernels.operands import Left, Plan

_WORDS = 32  # of a run: at most 16 KiB of weights, which stay in L1
_TRIES = 60
_SUMS = 8
_ALL = np.uint64(2**64 - 1)
_AVX512 = NAME in ("avx512bw", "avx512", "amx")
_VPOPCNTDQ = NAME in ("avx512", "amx")


def _loop(builder, steps, operands, spoilt):
    """Build an assembly loop of `steps`, in which operand $0 counts rounds down: LLVM would merge equal rounds."""
    llvmlite.binding.initialize_native_asmparser()
    i64 = ir.IntType(64)
    kind = ir.FunctionType(
        i64 if len(operands) == 1 else ir.LiteralStructType([i64] * len(operands)), [i64] * len(operands)
    )
    places = ",".join(["=r"] * len(operands) + [str(i) for i in range(len(operands))])
    code = "\n".join(["1:", *steps, "dec $0", "jnz 1b"])
    return builder.call(ir.InlineAsm(kind, code, f"{places},{spoilt},~{{flags}}", side_effect=True), operands)


def _spoilt(registers):
    return ",".join(f"~{{zmm{i}}}" for i in registers)


@intrinsic
def _count_registers(typingctx, repeats):
    """`repeats` times 8 steps of and, popcount, add on 512 bits that are in registers already."""

    def codegen(context, builder, signature, args):
        steps = []
        for i in range(_SUMS):
            steps += [f"vpandq %zmm0, %zmm1, %zmm{16 + i}", f"vpopcntq %zmm{16 + i}, %zmm{16 + i}"]
            steps += [f"vpaddq %zmm{16 + i}, %zmm{8 + i}, %zmm{8 + i}"]
        return _loop(builder, steps, args, _spoilt((0, 1, *range(8, 24))))

    return types.int64(types.int64), codegen


@intrinsic
def _count_halves(typingctx, repeats):
    """`repeats` times 8 steps of exclusive or, majority, popcount, add: both halves of words of twice the channels."""

    def codegen(context, builder, signature, args):
        steps = []
        for i in range(_SUMS):
            steps += [f"vpxord %zmm0, %zmm1, %zmm{16 + i}", f"vpternlogd $$0xe8, %zmm2, %zmm3, %zmm{16 + i}"]
            steps += [f"vpopcntd %zmm{16 + i}, %zmm{16 + i}", f"vpaddd %zmm{16 + i}, %zmm{8 + i}, %zmm{8 + i}"]
        return _loop(builder, steps, args, _spoilt((0, 1, 2, 3, *range(8, 24))))

    return types.int64(types.int64), codegen


@intrinsic
def _read_lines(typingctx, address, lines):
    """Load 8 cache lines at a time; the sum of nothing."""

    def codegen(context, builder, signature, args):
        steps = [f"vmovdqu64 {64 * i}($1), %zmm{8 + i}" for i in range(8)] + ["add $$512, $1"]
        registers = _loop(builder, steps, [args[1], args[0]], _spoilt(range(8, 16)) + ",~{memory}")
        return builder.extract_value(registers, 0)

    return types.int64(types.uint64, types.int64), codegen


@njit(nogil=True, error_model="numpy")
def _registers(repeats):
    return _count_registers(repeats)


@njit(nogil=True, error_model="numpy")
def _halves(repeats):
    return _count_halves(repeats)


@njit(nogil=True, error_model="numpy")
def _count_pair(words, origins, weights, runs, limits, masks, rows, repeats):
    for _ in range(repeats):
        planes, span = Planes(words, 0, 1, 0), RunSpan(runs, 0, 1)
        pair = Counted(planes, View(origins, 0), Rows(weights, 0, _WORDS * LANES), span, 0)
        mask_counts(pair, Limits(limits, 0, np.uint64(0), _ALL), Rows(masks, 0, 1), View(rows, 0), PAIR)


@njit(nogil=True, error_model="numpy")
def _count(words, origins, weights, runs, counts, repeats):
    for _ in range(repeats):
        count_tile(View(words, 0), View(origins, 0), View(weights, 0), RunSpan(runs, 0, 1), 0, counts)


@njit(nogil=True, error_model="numpy")
def _count_band(product, places, band, repeats):
    for _ in range(repeats):
        count_band(product, places, len(places.sizes), 0, BLOCKS, 0, band)


@njit(nogil=True, error_model="numpy")
def _read(x, repeats):
    """Read x `repeats` times, one element at a time, and return the sum of all reads."""
    total = np.uint64(0)
    for _ in range(repeats):
        for i in range(x.size):
            total += x[i]
    return total


@njit(nogil=True, error_model="numpy")
def _read_wide(address, lines, repeats):
    for _ in range(repeats):
        _read_lines(address, lines)


def _fastest(work, threads):
    """Run work(thread) on all threads at once, several times, and return the seconds of the fastest run."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        times = []
        for _ in range(_TRIES):
            sleep(0.002)  # spread over a tenth of a second and more, so that some tries meet a quiet machine
            start = perf_counter()
            list(pool.map(work, range(threads)))
            times.append(perf_counter() - start)
    return min(times)


def products(threads):
    """Measure products of bits a second on all threads: `threads` times one thread's, as counting shares no memory."""
    return threads * _of_a_thread()


@lru_cache
def _of_a_thread():
    """Measure one thread's products of bits a second: the faster of register popcounts and the package's inner loop."""
    return max(_of_registers(_halves, 1024), inner_loop()) if _VPOPCNTDQ else inner_loop()


@lru_cache
def popcounts():
    """Measure one thread's products of bits a second with one popcount for each word; 0 without vector popcounts.

    The package's inner loop is faster, because it adds bits before it counts them.
    """
    return _of_registers(_registers, 512) if _VPOPCNTDQ else 0


def _of_registers(loop, step):
    """Measure products a second of a loop whose rounds have `_SUMS` steps of `step` products each."""
    repeats = 200_000
    return repeats * _SUMS * step / _fastest(lambda t: loop(repeats), 1)


@lru_cache
def inner_loop():
    """Measure products of bits a second of the package's inner loop on one thread, with operands in L1 or L2."""
    if IN_BANDS:
        return _bands()
    rng, repeats = np.random.default_rng(0), 3_000
    words, lanes = rng.integers(0, 1 << 64, TILE * _WORDS, np.uint64), PAIR if IN_REGISTERS else LANES
    weights = empty_lines((lanes // LANES, _WORDS, LANES))
    weights[:] = lay_out(rng.integers(0, 1 << 64, weights.shape, np.uint64))
    origins, runs = np.arange(TILE) * _WORDS, np.array([[0, 0, _WORDS]])
    if IN_REGISTERS:
        loop, outputs = _count_pair, (np.zeros(PAIR, np.int32), np.zeros(TILE, np.uint64), np.arange(TILE))
    else:
        loop, outputs = _count, (np.zeros((TILE, LANES), np.int64),)
    seconds = _fastest(lambda t: loop(words, origins, weights, runs, *outputs, repeats), 1)
    return repeats * TILE * lanes * _WORDS * 64 / seconds


def _bands():
    """Measure products of bits a second of the inner loop on a band of tiles, half of whose operands are in L2."""
    rng, repeats = np.random.default_rng(0), 30
    words = rng.integers(0, 1 << 64, (1, BAND * TILE * _WORDS), np.uint64)
    weights = lay_out(rng.integers(0, 1 << 64, (1, BLOCKS, _WORDS, LANES), np.uint64))
    origins, zeros = np.arange(BAND * TILE).reshape(BAND, TILE) * _WORDS, np.zeros(BAND, np.int64)
    plan = Plan(origins, zeros + TILE, zeros, origins[0], np.array([0, 1]), np.array([[0, 0, _WORDS]]), 0, 1)
    places, band = Places(origins, origins, zeros, zeros + TILE), empty_band(words, weights, plan.counts[:1], BAND, 1)
    x, w = (Left(a, None, None, None, 0, False) for a in (words, weights))  # of which words alone are read
    seconds = _fastest(lambda t: _count_band(Product(x, w, plan), places, band, repeats), 1)
    return repeats * BAND * TILE * WIDE * _WORDS * 64 / seconds


@lru_cache
def reading(nbytes, threads):
    """Measure bytes read a second, if `threads` threads read their parts of `nbytes` again and again."""
    parts = [np.ones(max(1, nbytes // threads // 512) * 64, np.uint64) for _ in range(threads)]
    size = sum(part.nbytes for part in parts)
    repeats = max(1, (1 << 25) // size)

    def work(t):
        if _AVX512:
            _read_wide(parts[t].ctypes.data, parts[t].nbytes // 512, repeats)
        else:
            _read(parts[t], repeats)

    return size * repeats / _fastest(work, threads)


def seconds(case, threads):
    """(least seconds of a case, "products" or "bytes"): whichever of its work takes longer."""
    size = min(1 << 28, max(1 << 14, case.nbytes))
    counting, moving = case.products / products(threads), case.nbytes / reading(size, threads)
    return max((counting, "products"), (moving, "bytes"))
