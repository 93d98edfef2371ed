"""Predict the time of kernels as they are built: the table of `docs/measurements/gpu-predicted.md`. Nothing runs.

A call of a public function, on the stand-in for CuPy, gives its launches with their grids and arrays; ptxas gives
registers and machine code. The time of a launch is the greatest of these, after 2 us for the launch itself:

    bytes       bytes of its arrays / bandwidth of memory, or of L2 where all arrays of the call fit
    tiles       bytes that tiles read from L2 / its bandwidth
    products    products of the main loop * trips * clocks of one
    warps       instructions of a warp * clocks from one to its next, which are more the more warps a scheduler has

python tests/support/cuda_predict.py            prints both tables: rows that were measured, and goals
python tests/support/cuda_predict.py WORD ..    prints the rows whose names contain a word, with each launch
"""

import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import getclosurevars
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

import fake_cupy
import numpy as np
import pytest
from cuda_compile import assemble, disassemble, launches
from sass import Code

import quantarray as qa
from quantarray.backends.registry import kernel
from quantarray.cuda.runtime import isa
from quantarray.cuda.runtime import launch as runtime
from quantarray.cuda.tensor_cores.stages import Parts
from quantarray.quantizers.grouped import DIGITS

TARGET, CAPABILITY = (9, 0, "a"), (9, 0)
# An H200
SMS, QUARTERS, CLOCK = 132, 4, 1.98e9
MEMORY, L2_RATE, L2_BYTES = 4.8e12, 5.5e12, 50e6  # bytes a second, bytes
THREADS, BLOCKS, REGISTERS, SHARED = 2048, 32, 65536, 227 << 10  # of a multiprocessor
RESERVED = 1024  # bytes of shared memory that each block takes besides its own
LAUNCH = 2e-6  # seconds, in a graph
# Clocks from an instruction of a warp to its next, and more for each warp of its scheduler: Nsight Compute saw an
# instruction every 3.2 clocks of a scheduler with 1.5 warps, and every 1.9 with 4.2 (28x28x128, batch 32, two tiles)
APART, EACH = 3.0, 1.18
LANES, BITS = 32, 64
# Clocks of a quarter of a multiprocessor, and products of two bits (two bytes of IMMA) of one instruction of a warp.
# Dense int8 is 1,979 TOPS of an H100; `mma` reaches 0.63 of it on 9.0 [R, arXiv 2402.13499], b1 is 8 times int8 by
# wgmma and half of that by mma (`benchmarks/gpu/limits.py`); 16 popcounts are counted a clock.
CLOCKS = {"POPC": 8, "BMMA": 8, "IMMA": 4 / 0.63, "BGMMA": 128}
PRODUCTS = {"POPC": 32 * LANES, "BMMA": 16 * 8 * 256, "IMMA": 16 * 8 * 32, "BGMMA": 16 * 256 * 256}
OF_TILES = {"integer_tile": "POPC", "bmma_tile": "BMMA", "wgmma_tile": "BGMMA", "imma_tile": "IMMA"}
DEPTH = {"POPC": 8, "BMMA": 4, "BGMMA": 16, "IMMA": 2}  # words of a stage


def ceil(a, b):
    return -(-a // b)


class Counted(NamedTuple):
    """List what a warp does: its main loop, a loop inside that runs several times in each trip, what they are for."""

    loop: Code
    trips: float = 1
    opcode: str = ""  # of products
    read: float = 0  # bytes that the tiles of a block read
    inner: Code = Code()
    times: int = 1

    def of_trips(self, count):
        """Add count(loop) up over all trips."""
        return self.trips * (count(self.loop) + (self.times - 1) * (count(self.inner) if self.inner else 0))


@dataclass(frozen=True)
class Predicted:
    """A launch, what it takes of the machine, and the seconds of each limit."""

    launched: object
    fits: bool  # in L2, all arrays of the call

    @property
    def name(self):
        return self.launched.kernel.py_func.__name__

    @cached_property
    def assembled(self):
        return assemble(self.launched.kernel, self.launched.signature, TARGET)

    @cached_property
    def code(self):
        return Code.read(disassemble(self.assembled.code, TARGET))

    @property
    def warps(self):
        return ceil(self.launched.threads, LANES)

    @property
    def together(self):
        """Count the blocks that share a multiprocessor."""
        registers = self.warps * ceil(self.assembled.registers, 8) * 8 * LANES
        shared = self.assembled.shared + self.launched.shared + RESERVED
        by_threads, by_shared = THREADS // self.launched.threads, (SHARED + RESERVED) // shared
        return max(1, min(BLOCKS, by_threads, REGISTERS // registers, by_shared))

    @cached_property
    def nbytes(self):
        return sum(a.nbytes for a in arrays_of(self.launched.args))

    @cached_property
    def work(self):
        """Return what a warp does: see `Counted`."""
        if self.name in OF_TILES:
            return self._of_tile(OF_TILES[self.name])
        if self.name == "depthwise_tile":
            shape, loop = self.launched.args[0], self.code.loop_of("IMMA")
            walked = ceil(shape.halves, max(1, self.launched.blocks // ceil(shape.rows, shape.tile)))
            return Counted(loop, shape.pairs * shape.digits * walked, "IMMA")
        return self._of_few_rows() if self.name == "few_rows" else self._of_stream()

    @property
    def splits(self):
        """Count the blocks that share a tile."""
        parts = self.launched.args[-1]
        return parts.sums.shape[1] if isinstance(parts, Parts) else 1

    def _of_tile(self, opcode):
        """Count the stages of a tile of `size` pixels by `all_blocks` of 32 channels, over all pairs of planes."""
        shape, terms, _, right, _, offsets = self.launched.args[:6]
        of = getclosurevars(self.launched.kernel.py_func).nonlocals
        size, blocks = of["size"], of.get("all_blocks", of.get("blocks"))
        columns = shape.groups * ceil(shape.group_blocks, blocks)
        walked = ceil(columns, self.launched.blocks // (self.splits * ceil(shape.rows, size)))
        # wgmma reads images of stages, and bytes of an image have offsets of another unit
        words, depth = offsets.shape[1] if opcode == "BGMMA" else right.shape[2], DEPTH[opcode]
        words = ceil(ceil(words, depth), self.splits) * depth
        loop, read = self.code.loop_of(opcode), 8 * words * (size + blocks * LANES)
        pairs = terms.planes_x * terms.planes_w
        if opcode == "IMMA":
            pairs, read = 1, 8 * words * (size * terms.planes_x + blocks * LANES * terms.planes_w)
        of_loop = PRODUCTS[opcode] * loop.count(opcode) * self.warps
        if opcode == "BGMMA":  # the loop has the products of a whole stage, and those of parts of one
            of_loop = size * blocks * LANES * BITS * depth
        trips = size * blocks * LANES * words * BITS * pairs * walked / of_loop
        return Counted(loop, trips, opcode, read * (1 if opcode == "IMMA" else pairs) * walked)

    def _of_few_rows(self):
        """Count the loads of a warp, and within each of them the planes of pixels."""
        shape, terms, _, right = self.launched.args[:4]
        tile = getclosurevars(self.launched.kernel.py_func).nonlocals
        walked = ceil(shape.groups * ceil(shape.group_lanes, tile["channels"]), self.launched.grid[1])
        planes = self.code.loop_of("POPC")
        loads = min((loop for loop in self.code.loops() if set(planes) < set(loop)), key=len)
        return Counted(
            loads, ceil(right.shape[2], tile["depth"] * tile["step"]) * walked, "POPC", 0, planes, terms.planes_x
        )

    def _of_stream(self):
        """Count the trips of the loop that moves most bytes, at least one, if it moves those of the largest array."""
        loop = max(self.code.loops(), key=_bytes_moved, default=self.code)
        if not _bytes_moved(loop):
            return Counted(self.code)
        largest = max(a.nbytes for a in arrays_of(self.launched.args))
        once = _bytes_moved(loop) * LANES * self.warps * self.launched.blocks
        return Counted(loop, max(1, largest / once))

    @property
    def is_rough(self):
        """True if loops inside a loop that streams are counted once, whether they run more often or not at all."""
        loop, opcode = self.work.loop, self.work.opcode
        inside = (loop[0].at <= other[0].at and other[-1].at < loop[-1].at for other in self.code.loops())
        return not opcode and self.limit != "bytes" and any(inside)

    @property
    def issued(self):
        """Count the instructions of a warp: those of its loop, and the code before it; of products, after it too.

        Loops inside a loop that streams are counted once, and subroutines, which divide 64-bit integers, not at all.
        """
        work = self.work
        ends = [one.at for one in self.code if one.opcode == "EXIT"]
        rest = [one for one in self.code if one.at <= ends[-1] and not work.loop[0].at <= one.at <= work.loop[-1].at]
        if not work.opcode:
            others = {one.at for other in self.code.loops() for one in other}
            rest = [one for one in rest if one.at < work.loop[0].at and one.at not in others]
            return work.trips * len(work.loop) + len(rest)
        if hasattr(self.launched.args[6], "bounds"):  # atomics, and what is around them, run where a row is near
            after = self.code.after(work.loop)
            rest = rest[: len(rest) - len(after) + after.longest("ATOMG", most=False)]
        count = work.of_trips(lambda loop: loop.longest(work.opcode)) + len(rest)
        if self.splits == 1:
            return count
        after = (loop for loop in self.code.loops() if loop[0].at > work.loop[-1].at)
        join = max(after, key=lambda loop: loop.count("LDG"))
        return count + (self.splits - 2) * len(join)  # sums of a block that shares the tile, each time

    @cached_property
    def products(self):
        """Return the clocks of a quarter of a multiprocessor for the products of a warp."""
        opcode = self.work.opcode
        return self.work.of_trips(lambda loop: _of_trip(loop, opcode)) * CLOCKS[opcode] if opcode else 0

    @cached_property
    def limits(self):
        """Return the seconds of each limit."""
        busiest = ceil(self.launched.blocks, SMS)
        of_quarter = busiest * ceil(self.warps, QUARTERS)
        return {
            "bytes": self.nbytes / (L2_RATE if self.fits else MEMORY),
            "tiles": self.work.read * busiest / (L2_RATE / SMS),
            "products": of_quarter * self.products / CLOCK,
            "warps": self.issued * (APART * ceil(busiest, self.together) + EACH * of_quarter) / CLOCK,
        }

    @property
    def bound(self):
        """Return the seconds of its bytes or of its products, whichever is more, on busy multiprocessors."""
        products = self.launched.blocks * self.warps * self.products / (SMS * QUARTERS * CLOCK)
        return max(self.limits["bytes"], products)

    @property
    def limit(self):
        return max(self.limits, key=self.limits.get)

    @property
    def seconds(self):
        return LAUNCH + self.limits[self.limit]


def _of_trip(loop, opcode):
    """Count the products of a trip; of wgmma 4, of n channels each, where a part of a stage has a branch of its own."""
    if opcode != "BGMMA":
        return loop.count(opcode)
    first = next(one for one in loop if one.opcode == opcode)
    return 4 * int(re.search(r"64x(\d+)x256", first.name + first.operands)[1]) / 256


def _bytes_moved(code):
    """Count the bytes that a lane loads from global memory in some code, or stores there if these are more."""
    sizes = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
    moved = {"LDG": 0, "STG": 0}
    for one in code:
        if one.opcode in moved:
            moved[one.opcode] += next((sizes[part] for part in one.name.split(".") if part in sizes), 4)
    return max(moved.values())


def arrays_of(args):
    """List the arrays of arguments, those of named tuples too, each once."""
    listed = {}
    for a in args:
        if isinstance(a, tuple):
            listed |= {id(one): one for one in arrays_of(a)}
        elif getattr(a, "ndim", 0):
            listed[id(a)] = a
    return list(listed.values())


@contextmanager
def stand_in(units="", tile=""):
    """Yield the list of launches of calls inside, on the stand-in for CuPy, as an H200 would have them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(isa.VARIABLE, units)
        patched.setenv(isa.TILE, tile)
        with launches(patched) as listed, fake_cupy.arrays():
            with (
                patch.object(runtime, "capability", lambda: CAPABILITY),
                patch.object(runtime, "address", lambda a: getattr(a, "held", a).ctypes.data),
                patch.object(runtime, "_move", lambda a: fake_cupy.ndarray(np.array(a))),
                patch.object(runtime, "scratch", lambda shape, dtype: fake_cupy.zeros(shape, dtype)),
                patch.object(runtime, "_equal", {}),
                patch.object(fake_cupy, "empty", fake_cupy.zeros, create=True),
            ):
                yield listed


def predict(make, units="", tile=""):
    """Return a `Predicted` for each launch of the second of two calls: the first lays weights out."""
    with stand_in(units, tile) as listed:
        call = make()
        call()
        del listed[:]
        call()
        fits = sum(a.nbytes for a in arrays_of(one.args for one in listed)) <= L2_BYTES
        return [Predicted(one, fits) for one in listed]


# Work


LAWS = {1: qa.bipolar, 2: qa.uint2, 4: qa.uint4, 8: qa.uint8}
SIGNED = {1: qa.bipolar, 2: qa.int2, 4: qa.int4, 8: qa.int8}


def codes(shape, dtype):
    return qa.empty(shape, dtype).to_device("cuda")


def conv(batch, size, channels, outputs, taps=3, bits_x=1, bits_w=1, stride=1, groups=1, to_codes=True):
    """Make a convolution whose results have the bits of x, or are int32."""

    def make():
        x = codes((batch, size, size, channels), LAWS[bits_x])
        w = codes((outputs, taps, taps, channels // groups), SIGNED[bits_w])
        cuts = np.tile(np.arange((1 << bits_x) - 1), (outputs, 1))
        law = qa.Thresholds(cuts, into=LAWS[bits_x]) if to_codes else None
        return lambda: qa.conv2d(x, w, padding=taps // 2, stride=stride, groups=groups, requantize=law)

    return make


def depthwise(batch, size, channels, bits, to_codes=True):
    def make():
        x = codes((batch, size, size, channels), LAWS[bits])
        w = qa.empty((channels, 3, 3, 1), SIGNED[bits], axis=0).to_device("cuda")
        cuts = np.tile(np.arange((1 << bits) - 1), (channels, 1))
        law = qa.Thresholds(cuts, into=LAWS[bits]) if to_codes else None
        return lambda: qa.conv2d(x, w, padding=1, groups=channels, requantize=law)

    return make


def product(m, k, n, bits_w=1, bits_x=1):
    def make():
        x, w = codes((m, k), SIGNED[bits_x]), codes((n, k), SIGNED[bits_w])
        return lambda: qa.linear(x, w)

    return make


def first_layer():
    x = fake_cupy.zeros((64, 224, 224, 3), np.uint8)
    w = codes((64, 7, 7, 3), qa.int8)
    law = qa.Thresholds(np.zeros((64, 1), np.int64), into=qa.bipolar)
    return lambda: qa.conv2d(x, w, padding=3, stride=2, requantize=law)


def packing(bits):
    def make():
        x = fake_cupy.zeros((1 << 13, 1 << 13), np.float32)
        return lambda: qa.quantize(x, qa.Sign() if bits == 1 else qa.Uniform(bits, step=0.1))

    return make


def unpacking(bits):
    def make():
        q = codes((1 << 13, 1 << 13), LAWS[bits])
        return lambda: q.dequantize()

    return make


def rounding(bits, group=256):
    """Round as `qa.torch.compressed_activations` does, at random, with a bfloat16 step and level for each group."""

    def make():
        x, wrong = fake_cupy.zeros((1, 1 << 26), np.float32), fake_cupy.zeros((1,), np.bool_)
        constants = fake_cupy.zeros((2, x.size // group), np.float32)
        words = fake_cupy.zeros((bits, 1, x.size // BITS), np.uint64)
        key, digits = np.ones(3, np.uint32), DIGITS["bfloat16"]
        return lambda: kernel("cuda", "encode_groups")(x, group, digits, key, wrong, constants, words)

    return make


def restoring(bits, group=256):
    def make():
        out = fake_cupy.zeros((1, 1 << 26), np.float32)
        low, step = (fake_cupy.zeros((1, out.size // group), np.float32) for _ in range(2))
        words = fake_cupy.zeros((bits, 1, out.size // BITS), np.uint64)
        return lambda: kernel("cuda", "decode_uniform")(words, low, step, group, out)

    return make


def search(asked):
    def make():
        base = codes((10**6, 1024), qa.uint1)
        queries = base[:asked]
        return lambda: qa.top_k(queries, base, 10)

    return make


@dataclass(frozen=True)
class Work:
    """A row: a call, and its microseconds, measured on an H200 or a goal."""

    name: str
    make: object
    us: float
    units: str = ""  # that are asked for, and their tile, as at the time of the measurement
    tile: str = ""
    kernel: str = ""  # whose name ends so, of which alone the time is


MEASURED = (
    Work("pack 256 MB to 1 bit", packing(1), 68),
    Work("pack 256 MB to 2 bits", packing(2), 84),
    Work("first layer, 64 images", first_layer, 26329, "popc"),
    Work("3x3 40x40x96->160, 16", conv(16, 40, 96, 160), 19.4, "bmma", "0"),
    Work("3x3 20x20x320, 8, int32", conv(8, 20, 320, 320, to_codes=False), 8.6, "wgmma"),
    Work("3x3 12x12x384, 64", conv(64, 12, 384, 384), 17.9, "wgmma", "0"),
    Work("1x1 28x28x512->128, 32", conv(32, 28, 512, 128, 1), 11.3, "bmma", "4"),
    Work("3x3/2 56x56x128->256, 16", conv(16, 56, 128, 256, stride=2), 10.6, "bmma", "0"),
    Work("5x5 24x24x100->75, 7", conv(7, 24, 100, 75, 5), 7.8, "wgmma", "4"),
    Work("3x3 28x28x128, 32", conv(32, 28, 128, 128), 11.5, "bmma", "0"),
    *(
        Work(f"3x3 28x28x128, 32 in {size}", conv(32, 28, 128, 128), us, "bmma", tile)
        for size, tile, us in (("128 x 64", "2", 10.9), ("64 x 64", "4", 15.0), ("64 x 32", "5", 16.0))
    ),
    Work("3x3 W2A2 12x12x384, 64", conv(64, 12, 384, 384, bits_x=2, bits_w=2), 46.6, "wgmma", "0"),
    Work("3x3 W4A4 20x20x320, 8", conv(8, 20, 320, 320, bits_x=4, bits_w=4), 70.9, "wgmma", "4"),
    Work("depthwise 56x56x192, 16, W4A4", depthwise(16, 56, 192, 4), 1313, "popc"),
    Work("3000x5000x3000 W1A1", product(3000, 5000, 3000), 31, "wgmma", "0"),
    Work("3000x5000x3000 W2A8", product(3000, 5000, 3000, 2, 8), 218, "wgmma", "0"),
    Work("3000x5000x3000 W4A8", product(3000, 5000, 3000, 4, 8), 383, "wgmma", "0"),
    Work("64x4096x11008 W1A1", product(64, 4096, 11008), 14, "wgmma"),
    Work("64x4096x11008 W2A8", product(64, 4096, 11008, 2, 8), 92, "wgmma"),
    Work("64x4096x11008 W4A8", product(64, 4096, 11008, 4, 8), 165, "wgmma"),
    Work("1x4096x4096 W1A1", product(1, 4096, 4096), 9.8, "wgmma", "4"),
    Work("1x4096x4096 W2A8", product(1, 4096, 4096, 2, 8), 83, "wgmma", "4"),
    Work("1x4096x4096 W4A8", product(1, 4096, 4096, 4, 8), 141, "wgmma", "4"),
    Work("8x4096x4096 W1A1", product(8, 4096, 4096), 9.3, "wgmma", "4"),
    Work("8192^3 W1A1 by wgmma", product(8192, 8192, 8192), 197, "wgmma", "0"),
    Work("8192^3 W1A1 by bmma", product(8192, 8192, 8192), 346, "bmma", "0"),
    Work("8192^3 W1A1 by popc", product(8192, 8192, 8192), 6420, "popc"),
)
GOALS = (
    Work("first layer 7x7/2x3->64, 224x224, 64 images to bits", first_layer, 100),
    Work("3000x5000x3000 W1A1", product(3000, 5000, 3000), 15),
    Work("3000x5000x3000 W2A8", product(3000, 5000, 3000, 2, 8), 75),
    Work("3000x5000x3000 W4A8", product(3000, 5000, 3000, 4, 8), 75),
    Work("64x4096x11008 W2A8", product(64, 4096, 11008, 2, 8), 10),
    Work("64x4096x11008 W4A8", product(64, 4096, 11008, 4, 8), 12),
    Work("1x4096x4096 W1A1", product(1, 4096, 4096), 4),
    Work("1x4096x4096 W2A8", product(1, 4096, 4096, 2, 8), 5),
    Work("1x4096x4096 W4A8", product(1, 4096, 4096, 4, 8), 6),
    Work("3x3 W2A2 12x12x384, 64 images", conv(64, 12, 384, 384, bits_x=2, bits_w=2), 20),
    Work("3x3 W4A4 20x20x320, 8 images", conv(8, 20, 320, 320, bits_x=4, bits_w=4), 10),
    Work("depthwise 3x3 56x56x192, 16 images, W1A1", depthwise(16, 56, 192, 1), 6),
    Work("depthwise 3x3 56x56x192, 16 images, W4A4", depthwise(16, 56, 192, 4), 10),
    Work("1x1 28x28x512->128, 32 images", conv(32, 28, 512, 128, 1), 6),
    Work("3x3 28x28x128 W1A1, 32 images", conv(32, 28, 128, 128), 7),
    *(Work(f"pack 256 MB of float32 as {bits}-bit codes", packing(bits), us)
      for bits, us in ((1, 75), (2, 80), (4, 85), (8, 95))),
    *(Work(f"unpack {bits}-bit codes to 256 MB of float32", unpacking(bits), us)
      for bits, us in ((1, 75), (2, 80), (4, 85), (8, 95))),
    # 1.6 and 2.2 ms for the 5 GB that ResNet-50 saves for 64 images of 224x224
    *(Work(f"round 256 MB of float32 in groups, {bits} bits", rounding(bits), 86) for bits in (2, 4)),
    *(Work(f"restore groups of {bits} bits to 256 MB of float32", restoring(bits), 118) for bits in (2, 4)),
    *(Work(f"products of top_k, 1M x 1024 bits, {asked:,} asked", search(asked), us, kernel="_tile")
      for asked, us in ((1, 100), (100, 200), (10_000, 20_000))),
)  # fmt: skip


def total(work):
    """Return the launches of a row, of one kernel where it names one, and their microseconds."""
    launched = [one for one in predict(work.make, work.units, work.tile) if one.name.endswith(work.kernel)]
    return launched, 1e6 * sum(one.seconds for one in launched)


def cell(us):
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"


def factor(a, b):
    return max(a, b) / min(a, b)


def row(work):
    """Return the cells of a row: its name, microseconds measured or asked for, bound, prediction, limit and result."""
    launched, us = total(work)
    longest = max(launched, key=lambda one: one.seconds)
    bound, limit = 1e6 * sum(one.bound for one in launched), f"{longest.limit} of `{longest.name}`"
    if work in MEASURED:
        result = f"{us / work.us:.2f}" + ("" if factor(us, work.us) <= WITHIN else ", missed")
    else:
        met = "open" if any(one.is_rough for one in launched) else "met"
        result = f"missed, {us / work.us:.2f} times" if us > work.us else met
    return work.name, f"{work.us:,}", cell(bound), cell(us), limit, len(launched), result


def table(works, head):
    """Format rows as Markdown."""
    lines = [head, ["---"] * len(head), *map(row, works)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def show(work):
    """Print each launch of a row, and its limits."""
    launched, us = total(work)
    print(f"{work.name}: {work.us:,} us, predicted {cell(us)}")
    for one in launched:
        work = one.work
        limits = ", ".join(f"{name} {1e6 * seconds:.2f}" for name, seconds in one.limits.items())
        print(
            f"    {one.name}: {one.launched.blocks} blocks of {one.launched.threads} threads, {one.together} at once, "
            f"{one.assembled.registers} registers, {work.trips:.1f} trips of {len(work.loop)}, {one.nbytes:,} bytes; "
            f"us: {limits}"
        )


WITHIN = 1.5
COMMON = "bound, us", "predicted, us", "limit of the longest launch", "launches"
HEADS = ("work", "measured, us", *COMMON, "predicted / measured"), ("work", "goal, us", *COMMON, "result")


if __name__ == "__main__":
    if sys.argv[1:]:
        for work in (*MEASURED, *GOALS):
            if any(word in work.name for word in sys.argv[1:]):
                show(work)
    else:
        print(table(MEASURED, HEADS[0]), table(GOALS, HEADS[1]), sep="\n\n")
