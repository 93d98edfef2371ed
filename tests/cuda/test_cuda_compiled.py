"""Compile and assemble every CUDA kernel, and check which instructions it consists of."""

import inspect
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from cuda_compile import TARGETS, assemble, disassemble, launches, link, needs_toolkit, opcodes
from sass import Code
from strategies import PRODUCTS, products_by

import quantarray as qa
from quantarray.backends.registry import kernel
from quantarray.kernels.operands import ADD, ADD_OTHER, AFFINE, DIV, MAX, MUL, OFFSET, PRELU, SUB, Chain, Shortcut
from quantarray.ops.products import bit_sliced, calls, depthwise_taps, epilogue, pooling, residual, select
from quantarray.ops.products.lanes import GroupLanes

pytestmark = [
    pytest.mark.full,
    needs_toolkit,
    pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="the simulator compiles nothing"),
]

LINKED = (9, 0)
REGISTERS, SHARED, MOST_SHARED = 65536, 48 << 10, 227 << 10  # that a block may have; shared bytes unasked and asked


@dataclass(frozen=True)
class Case:
    """Hold a call of a twin, and what must hold of each kernel that it launches."""

    name: str
    call: object
    registers: int  # at most
    needs: tuple = ()  # opcodes that must be there, in one of them
    lacks: tuple = ()  # and that must not
    shared: int = 0  # bytes at most
    floats: bool = False  # may store floats
    fused: bool = False  # sums of products may be rounded once
    targets: tuple = TARGETS
    linked_local: int = 0  # bytes that nvJitLink spills
    outside: int = 0  # bytes that spill outside of the loop with the first opcode of `needs`

    def __repr__(self):
        return self.name


def words(*shape):
    return np.zeros(shape, np.uint64)


def lined(dtype, *shape):
    """Return zeros that begin at a multiple of 16 bytes."""
    size = np.dtype(dtype).itemsize * int(np.prod(shape))
    room = np.zeros(size + 16, np.uint8)
    first = -room.ctypes.data % 16
    return room[first : first + size].view(dtype).reshape(shape)


def finish(channels, count, planes, real):
    lanes = GroupLanes(channels)
    return epilogue.finish(None, channels, real, lanes=lanes)._replace(
        thresholds=lanes(np.zeros((count, channels), np.float64 if real else np.int64)),
        flip=np.zeros(-(-channels // 32), np.uint32),
        toggles=words(count + 1, planes),
    )


def call(name, *args):
    return lambda: kernel("cuda", name)(*args)


def lines(name, table, out, folds=1):
    """Return a call of a kernel of `scan` for lines along the packed axis or along folds."""
    floor = (0.0,) if name == "argmax" else ()
    return call(name, words(2, 3, folds, 2), 65, table, np.zeros(1, int), 65, *floor, folds > 1, out)


def encode_grouped(dtype):
    constant = np.ones((2, 1), np.float32)
    return call("encode_grouped", np.zeros((2, 65), dtype), constant, constant, np.zeros(2, int), 1, 65,
                np.zeros(3, np.uint32), words(2, 2, 2))  # fmt: skip


def encode_groups(dtype):
    return call("encode_groups", lined(dtype, 1, 700), 256, 8, np.zeros(3, np.uint32), np.zeros(1, bool),
                np.zeros((2, 3), np.float32), words(2, 1, 11))  # fmt: skip


def encode(dtype, after=1, planes=2, length=65, groups=1):
    table = np.zeros((1, groups, 2**planes - 1), np.float64 if dtype is np.float64 else np.float32)
    codes, row = np.arange(2**planes, dtype=np.uint8)[None, None].repeat(groups, 1), np.zeros(2 * after, np.int64)
    x, out = lined(dtype, 2, length, after), words(planes, 2 * after, -(-length // 64))
    return call("encode", x, table, codes, row, -(-length // groups), np.zeros(1, bool), out)


def decode(bits, dtype, groups=1):
    tables = np.zeros((1, groups, 2**bits), dtype)
    return call("decode_levels", lined(np.uint64, bits, 3, 4), tables, np.zeros(1, int), 256 // groups,
                lined(dtype, 3, 256))  # fmt: skip


def decode_uniform(bits, dtype, group=256):
    constants = np.ones((3, -(-256 // group)), np.float32)
    return call("decode_uniform", lined(np.uint64, bits, 3, 4), constants, constants, group, lined(dtype, 3, 256))


def public(name, function):
    """Return a call of a public function with the CUDA twin instead of its kernel `name`."""

    def run():
        def twin(device, asked):
            return kernel("cuda" if asked == name else device, asked)

        none = [
            patch.object(module, "has_kernel", lambda device, name: False)
            for module in (bit_sliced, depthwise_taps, select)
        ]
        chosen = products_by(name) if name in PRODUCTS else nullcontext()
        with (
            patch.object(calls, "kernel", twin), patch.object(pooling, "kernel", twin),
            patch.object(residual, "kernel", twin), none[0], none[1], none[2], chosen,
        ):  # fmt: skip
            function()

    return run


def elementwise(dtype, steps, planes=0, scaled=False, other=False):
    """Return a call of a chain of all steps to values, or to codes."""
    floats = np.ones((len(steps), 128), np.float32)
    chain = Chain(*(np.ones(65 * on) for on in (scaled, False)), np.array(steps), floats)
    limits, flip = np.zeros((2**planes - 1, 128 * (planes > 0)), np.float32), words(2, 2)
    second = np.zeros((3, 65) if other else (0, 0), np.float32)
    stored = np.zeros((0, 0) if planes else (3, 65), np.float32)
    return call("elementwise", np.zeros((3, 65), dtype), second, chain, limits, flip, np.zeros(8, bool), stored,
                words(planes, 3, 2) if planes else words(0, 0, 0))  # fmt: skip


def pool_values(dtype, counts):
    grid = np.array([(3, 2, 1, 1)] * 3)
    return call("pool_values", np.zeros((2, 1, 9, 9, 65), dtype), grid, counts, np.zeros(65, np.uint32),
                np.zeros((2, 1, 4, 4, 65), dtype))  # fmt: skip


def float_product(channels, groups=1):
    form = np.array([(2, 1, 9, 9, channels), (81 * channels, 0, 9 * channels, channels, 1), (2, 1, 9, 9, 0)])
    grid = np.array([(1, 1, 1, 0), (3, 1, 1, 1), (3, 1, 1, 1)])
    return call("float_product", np.zeros(2 * 81 * channels, np.float32), form, grid,
                np.zeros((9 * channels // groups, 66), np.float32), np.zeros(66, np.float32),
                np.zeros((162, 66), np.float32))  # fmt: skip


WEIGHTS = {1: (-1, 1), 2: range(-2, 2), 4: range(-8, 8), 8: range(-128, 128)}  # levels, by bits


def product(values, outputs, requantize=None, name="conv", channels=64, bits_w=1):
    """Return a call of a 3x3 convolution of 64 channels."""
    x, w = (qa.encode(np.ones((n, 3, 3, channels), int), v) for n, v in ((2, values), (outputs, WEIGHTS[bits_w])))
    if name == "conv_real":
        w = w * np.float32(0.5) + np.float32(0.25)  # an offset of w keeps the product with floats
    return public(name, lambda: qa.conv2d(x, w, padding=1, requantize=requantize))


SHORTCUTS = {
    **{name: np.zeros((2, 3, 3, 128), name) for name in ("int8", "int32", "float32")},
    "1 bit": qa.from_codes(np.zeros((2, 3, 3, 128), int), qa.bipolar),
    "2 bits": qa.from_codes(np.zeros((2, 3, 3, 128), int), qa.uint2),
    "scaled 1 bit": qa.from_codes(np.zeros((2, 3, 3, 128), int), qa.bipolar) * np.float32(0.5),
}


def added(values, shortcut, requantize=None, stored=False, channels=64):
    """Return a call of a 3x3 convolution whose last step adds a shortcut."""
    x, w = (qa.encode(np.ones((n, 3, 3, channels), int), v) for n, v in ((2, values), (128, (-1, 1))))
    how = {"padding": 1, "residual": SHORTCUTS[shortcut], "requantize": requantize, "return_sum": stored}

    def run():
        unchecked = lambda device, shape, dtype: np.zeros(0, dtype)  # noqa: E731  # as where sums are known to fit
        with patch.object(residual, "zeros", unchecked):
            public("conv_added", lambda: qa.conv2d(x, w, **how))()

    return run


def dense(values, outputs, requantize=None, length=512, bits_w=1, rows=30):
    """Return a call of a matrix product."""
    x, w = (qa.encode(np.ones((n, length), int), v) for n, v in ((rows, values), (outputs, WEIGHTS[bits_w])))
    return public("conv", lambda: qa.linear(x, w, requantize=requantize))


def few_windows():
    x, w = qa.encode(np.ones((1, 2, 2, 64), int), range(4)), qa.encode(np.ones((64, 3, 3, 64), int), WEIGHTS[4])
    public("conv", lambda: qa.conv2d(x, w, padding=1))()


def on_tensor_cores(units, capability, tile, *args, call=product, splits=1, **kwargs):
    """Return a call of the product by a kernel of tensor cores, in one of its tiles, over so many blocks."""

    def run():
        module = import_module(f"quantarray.cuda.tensor_cores.{units}")
        with (
            patch.dict(os.environ, QUANTARRAY_CUDA=units),
            patch("quantarray.cuda.runtime.launch.capability", lambda: capability),
            patch.object(module, "tile_for", lambda *shape: (module.TILES[tile], splits)),
        ):
            call(*args, **kwargs)()

    return run


def image(channels, outputs, requantize=None):
    """Return a call of a 7x7 convolution of bytes by weights of 4 bits, which the CPU's kernel can multiply, too."""
    x, w = np.ones((1, 9, 9, channels), np.uint8), qa.encode(np.ones((outputs, 7, 7, channels), int), WEIGHTS[4])
    return public("dot", lambda: qa.conv2d(x, w, padding=3, stride=2, requantize=requantize))


bmma, wgmma = partial(on_tensor_cores, "bmma", (8, 0)), partial(on_tensor_cores, "wgmma", (9, 0))
imma = partial(on_tensor_cores, "imma", (8, 0))
BMMA = {"needs": ("BMMA", "LDSM", "LDGSTS"), "lacks": ("DSETP", "IMMA"), "targets": ((8, 0),)}
CODES = BMMA | {"needs": (*BMMA["needs"], "SHFL")}
WGMMA = {
    "needs": ("BGMMA", "LDGSTS", "FENCE", "UBLKCP", "SYNCS"),
    "lacks": ("DSETP", "BMMA", "IMMA"),
    "targets": ((9, 0, "a"),),
}
IMMA = {"needs": ("IMMA", "LDSM", "STS"), "lacks": ("DSETP", "BMMA"), "targets": ((8, 0), (12, 0))}
IMMA_CODES = IMMA | {"needs": (*IMMA["needs"], "SHFL")}
SPLIT = "ATOMG", "MEMBAR"
WGMMA_CODES = WGMMA | {"needs": (*WGMMA["needs"], "SHFL")}


def depthwise(scale=None, requantize=None, levels=range(4), capability=(7, 0)):
    x, w = qa.encode(np.ones((1, 3, 3, 64), int), levels), qa.encode(np.ones((64, 3, 3, 1), int), (-1, 1), axis=0)
    if scale is not None:
        w = w * np.float32(scale) + np.float32(0.25)  # an offset of w keeps thresholds of floats
    run = public("depthwise", lambda: qa.conv2d(x, w, padding=1, groups=64, requantize=requantize))

    def on_gpu():
        with patch("quantarray.cuda.runtime.launch.capability", lambda: capability):
            run()

    return on_gpu


by_bytes = partial(depthwise, capability=(8, 0))
BY_BYTES = {"needs": ("IMMA", "LDSM"), "shared": 65536, "targets": (*TARGETS, (9, 0, "a"))}


def search(capability, length, asked=9, rows=50):
    """Return a call of `nearest` on tensor cores."""

    def run():
        with patch("quantarray.cuda.runtime.launch.capability", lambda: capability):
            call("nearest", words(rows, length), words(asked, length), np.zeros((2, asked, 5), int))()

    return run


def sliced(threshold=0):
    x, w = qa.encode(np.ones((1, 3, 3, 64), int), (-1, 1)), qa.encode(np.ones((64, 3, 3, 1), int), (-1, 1), axis=0)

    def run():
        with patch.object(bit_sliced, "kernel", lambda device, name: kernel("cuda", name)):
            qa.conv2d(x, w.copy(), padding=1, groups=64, requantize=qa.Thresholds([threshold]))

    return run


def max_pool(bits, places=False):
    x = qa.from_codes(np.ones((1, 4, 4, 64), int), getattr(qa, f"uint{bits}"))
    return public("max_pool", lambda: qa.max_pool2d(x, 2, return_indices=places))


SETS = np.array([[-1, 0], [0, 1]])
PARTS = 6  # of the cases, each of which one process compiles
CASES = [
    *[Case(f"pack to {planes} bits{which}", call("pack", lined(np.uint8, 3, length), words(planes, 3, 2)), 48, (),
           ("VOTE",))
      for planes in (1, 2, 8) for length, which in ((65, ""), (64, ", whole lines"))],
    Case("unpack", call("unpack", words(2, 3, 2), np.zeros((3, 65), np.uint8)), 40, ("STG",)),
    *[Case(f"unpack {planes} bits, whole lines", call("unpack", lined(np.uint64, planes, 3, 2),
           lined(np.uint8, 3, 128)), 72, ("LDG", "STG"), ("VOTE",)) for planes in (1, 8)],
    *[Case(f"encode {name} to {planes} bits", encode(dtype, planes=planes), 80, needs, ("DSETP",), shared)
      for name, dtype in (("float32", np.float32), ("float16", np.float16), ("bfloat16", np.uint16),
                          ("uint8", np.uint8))
      for planes, needs, shared in ((1, ("VOTE", "FSETP"), 0), (2, ("VOTE", "FSETP"), 0), (3, ("FSETP", "LDS"), 8224))],
    *[Case(f"encode float64 to {planes} bits", encode(np.float64, planes=planes), 80, ("DSETP",), (), shared)
      for planes, shared in ((1, 0), (2, 0), (3, 8256))],
    *[Case(f"encode float32 to {planes} bits, whole lines", encode(np.float32, planes=planes, length=128), 80,
           ("FSETP", "STS", "LDS"), ("DSETP", "VOTE"), 8192 + (4 << planes)) for planes in (4, 8)],
    Case("encode float32 to 8 bits, in groups", encode(np.float32, planes=8, length=128, groups=2), 96,
         ("FSETP", "STS"), ("DSETP", "VOTE"), 8192),
    Case("encode float32 across", encode(np.float32, 50), 96, ("FSETP",), ("DSETP", "VOTE"), 16),
    Case("encode uint8 across, 8 bits", encode(np.uint8, 50, 8), 96, ("FSETP",), ("DSETP", "VOTE"), 1024),
    Case("threshold int64", call("threshold", np.zeros((3, 65), np.int64), finish(65, 3, 2, False), words(2, 3, 2)),
         48, ("VOTE",), ("DSETP", "FSETP")),
    Case("threshold float64", call("threshold", np.zeros((3, 65)), finish(65, 3, 2, True), words(2, 3, 2)),
         48, ("VOTE", "DSETP")),
    Case("add_shortcut of bytes",
         call("add_shortcut", np.zeros((3, 65), np.int32),
              Shortcut(np.zeros((3, 65), np.int8), np.zeros(1, int), np.zeros(2, int)), finish(65, 3, 2, False),
              np.zeros((3, 65), np.int32), np.zeros(1, int), words(2, 3, 2)),
         56, ("VOTE",), ("DSETP", "FSETP")),
    Case("add_shortcut of codes to floats",
         call("add_shortcut", np.zeros((3, 65), np.float32), Shortcut(words(2, 3, 2), np.zeros(4), np.zeros(2)),
              finish(65, 3, 2, True), np.zeros((3, 65), np.float32), np.zeros(1, int), words(2, 3, 2)),
         64, ("VOTE", "DADD"), floats=True),
    Case("conv_weights", call("conv_weights", words(2, 65, 9), 1, words(2, 3, 9, 32)), 64, ("LDS",), shared=8448),
    *[Case(f"conv to int32, {outputs} channels", product(range(4), outputs), 128, ("POPC",), ("DSETP",), 43648)
      for outputs in (32, 64, 128)],
    Case("conv to codes", product(range(4), 128, qa.Thresholds([0, 5, 9])), 128, ("POPC", "VOTE"), ("DSETP",), 43648),
    Case("few rows: 1 of bits to int32", dense((-1, 1), 4096, rows=1), 128, ("POPC", "SHFL"), ("DSETP",), 4352),
    Case("few rows: 1 of 8 bits by 4 to int32", dense(range(256), 4096, rows=1, bits_w=4), 128, ("POPC", "SHFL"),
         ("DSETP",), 4352),
    Case("few rows: 8 of bits to 1 bit", dense((-1, 1), 4096, qa.Thresholds([0]), rows=8), 128, ("POPC", "VOTE"),
         ("DSETP",), 8448),
    Case("few rows: 8 of 2 bits by 8 to codes", dense(range(4), 32, qa.Thresholds([0, 5, 9]), rows=8, bits_w=8), 128,
         ("POPC", "VOTE"), ("DSETP",), 8448),
    Case("few rows: 4 of windows, 2 bits by 4, to int32", few_windows, 128, ("POPC",), ("DSETP",), 8448),
    Case("bmma of bits to int32, dense", bmma(0, (-1, 1), 128, call=dense), 255, **BMMA, shared=44800),
    Case("bmma of bits to 1 bit, dense", bmma(0, (-1, 1), 128, qa.Thresholds([0]), call=dense), 255, **CODES,
         shared=44800),
    Case("bmma of bits to int32", bmma(0, (-1, 1), 128, channels=128), 255, **BMMA, shared=44800),
    Case("bmma to int32, 128 x 128", bmma(0, range(4), 128), 255, **BMMA, shared=44800),
    Case("bmma to int32, 128 x 128, pairs of words", bmma(0, range(4), 128, channels=128), 255, **BMMA,
         shared=44800),
    Case("bmma to codes, 128 x 128", bmma(0, range(4), 128, qa.Thresholds([0, 5, 9])), 255, **CODES,
         shared=44800),
    Case("bmma to int32, 128 x 128 by 8 warps", bmma(1, range(4), 128), 176, **BMMA, shared=44800),
    Case("bmma to codes, 128 x 128 by 8 warps", bmma(1, range(4), 128, qa.Thresholds([0, 5, 9])), 176, **CODES,
         shared=44800),
    *[Case(f"bmma of bits to 1 bit, {sizes}", bmma(tile, (-1, 1), 128, qa.Thresholds([0]), channels=128), most, **CODES,
           shared=44800)
      for sizes, tile, most in (("128 x 128 by 8 warps", 1, 128), ("128 x 64", 2, 128), ("64 x 128", 3, 128),
                                ("64 x 64", 4, 96), ("64 x 32", 5, 72))],
    Case("bmma to int32, 128 x 64", bmma(2, range(4), 64), 168, **BMMA, shared=34560),
    Case("bmma to codes, 128 x 64", bmma(2, range(4), 64, qa.Thresholds([0, 5, 9])), 168, **CODES,
         shared=34560),
    Case("bmma to int32, 64 x 128", bmma(3, range(4), 128), 128, **BMMA, shared=34560),
    Case("bmma to codes, 64 x 128", bmma(3, range(4), 128, qa.Thresholds([0, 5, 9])), 128, **CODES, shared=34560),
    Case("bmma to int32, 64 x 64", bmma(4, range(4), 64), 128, **BMMA, shared=23552),
    Case("bmma to codes, 64 x 64", bmma(4, range(4), 64, qa.Thresholds([0, 5, 9])), 128, **CODES, shared=23552),
    Case("bmma to int32, 64 x 32", bmma(5, range(4), 32), 128, **BMMA, shared=17920),
    Case("bmma to codes, 64 x 32", bmma(5, range(4), 32, qa.Thresholds([0, 5, 9])), 128, **CODES,
         shared=17920),
    *[Case(f"bmma of bits to 1 bit, tile {tile}, split", bmma(tile, (-1, 1), 128, qa.Thresholds([0]), splits=2), 255,
           **CODES | {"needs": (*CODES["needs"], *SPLIT)}, shared=44816) for tile in range(6)],
    Case("wgmma of bits to int32, dense", wgmma(0, (-1, 1), 256, call=dense), 255, **WGMMA, shared=200320),
    Case("wgmma of bits to 1 bit, dense", wgmma(0, (-1, 1), 256, qa.Thresholds([0]), call=dense), 255, **WGMMA_CODES,
         shared=200320),
    Case("wgmma of bits to int32", wgmma(0, (-1, 1), 256, channels=128), 255, **WGMMA, shared=200320),
    Case("wgmma to int32, 128 x 256", wgmma(0, range(4), 256), 255, **WGMMA, shared=200320),
    Case("wgmma to int32, 128 x 256, pairs of words", wgmma(0, range(4), 256, channels=128), 255, **WGMMA,
         shared=200320),
    Case("wgmma to codes, 128 x 256", wgmma(0, range(4), 256, qa.Thresholds([0, 5, 9])), 255, **WGMMA_CODES,
         shared=200320),
    Case("wgmma to int32, 128 x 128", wgmma(1, range(4), 128), 232, **WGMMA, shared=167552),
    Case("wgmma to codes, 128 x 128", wgmma(1, range(4), 128, qa.Thresholds([0, 5, 9])), 232, **WGMMA_CODES,
         shared=167552),
    Case("wgmma to int32, 64 x 128", wgmma(2, range(4), 128), 208, **WGMMA, shared=76288),
    Case("wgmma to codes, 64 x 128", wgmma(2, range(4), 128, qa.Thresholds([0, 5, 9])), 208, **WGMMA_CODES,
         shared=76288),
    *[Case(f"wgmma of bits to 1 bit, {sizes}", wgmma(tile, (-1, 1), 128, qa.Thresholds([0]), channels=128), most,
           **WGMMA_CODES, shared=76288) for sizes, tile, most in (("64 x 128", 2, 168), ("64 x 64", 3, 128))],
    Case("wgmma to int32, 64 x 64", wgmma(3, range(4), 64), 168, **WGMMA, shared=51584),
    Case("wgmma to codes, 64 x 64", wgmma(3, range(4), 64, qa.Thresholds([0, 5, 9])), 168, **WGMMA_CODES,
         shared=51584),
    Case("wgmma to int32, 64 x 32", wgmma(4, range(4), 32), 168, **WGMMA, shared=51584),
    Case("wgmma to codes, 64 x 32", wgmma(4, range(4), 32, qa.Thresholds([0, 5, 9])), 168, **WGMMA_CODES,
         shared=51584),
    *[Case(f"wgmma of bits to 1 bit, tile {tile}, split", wgmma(tile, (-1, 1), 256, qa.Thresholds([0]), splits=2), 255,
           **WGMMA_CODES | {"needs": (*WGMMA_CODES["needs"], *SPLIT)}, shared=200336) for tile in range(5)],
    Case("imma of 2 by 8 bits to int32, dense", imma(0, range(4), 128, call=dense, bits_w=8), 128, **IMMA,
         shared=68608, linked_local=16),
    Case("imma of 4 by 4 bits to codes", imma(0, range(16), 128, qa.Thresholds([0, 5, 9]), bits_w=4), 128, **IMMA_CODES,
         shared=68608),
    Case("imma of 8 by 8 bits to int32", imma(0, range(256), 128, bits_w=8), 255, **IMMA, shared=68608),
    Case("imma of 4 by 4 bits to int32, 128 x 64", imma(1, range(16), 64, bits_w=4), 200, **IMMA, shared=52224),
    Case("imma of 4 by 4 bits to codes, 64 x 64", imma(2, range(16), 64, qa.Thresholds([0, 5, 9]), bits_w=4), 128,
         **IMMA_CODES, shared=34304),
    Case("imma of 4 by 4 bits to codes, 64 x 32", imma(3, range(16), 32, qa.Thresholds([0, 5, 9]), bits_w=4), 128,
         **IMMA_CODES, shared=26112),
    *[Case(f"imma of 4 by 8 bits to int32, tile {tile}, split", imma(tile, range(16), 128, bits_w=8, splits=2), 255,
           **IMMA | {"needs": (*IMMA["needs"], *SPLIT)}, shared=68624) for tile in range(4)],
    Case("imma of images of 3 channels to 1 bit, 128 x 64", imma(1, 3, 64, qa.Thresholds([0]), call=image), 255,
         **IMMA_CODES, shared=52224),
    Case("imma of images of 4 channels to int32, 64 x 64", imma(2, 4, 64, call=image), 255, **IMMA, shared=34304),
    Case("dot_weights", call("dot_weights", words(2, 65, 9), 1, words(2, 3, 9, 32)), 64, ("LDS", "LOP3"), shared=8448),
    *[Case(f"conv_real to float32, {outputs} channels", product(range(4), outputs, name="conv_real"), 128,
           ("POPC", "DMUL", "DADD"), ("DFMA",), 40064, floats=True) for outputs in (32, 64)],
    *[Case(f"bmma and a shortcut of int32 to both, tile {tile}",
           bmma(tile, (-1, 1), "int32", qa.Thresholds([0]), True, call=added, channels=128), most, **CODES,
           shared=44800, outside=160)
      for tile, most in enumerate((255, 128, 128, 128, 96, 72))],
    *[Case(f"bmma and a shortcut of {kind} to bits, tile {tile}",
           bmma(tile, (-1, 1), kind, qa.Thresholds([0]), call=added, channels=128), 255, **CODES,
           shared=44800, outside=288)
      for kind, tile in (("1 bit", 2), ("2 bits", 0), ("float32", 1), ("scaled 1 bit", 1))],
    Case("bmma and a shortcut of int8 to int32", bmma(1, (-1, 1), "int8", call=added, channels=128), 128, **BMMA,
         shared=44800, outside=64),
    *[Case(f"wgmma and a shortcut of {kind} to both, tile {tile}",
           wgmma(tile, (-1, 1), kind, qa.Thresholds([0]), True, call=added, channels=128), 255, shared=200320,
           outside=160, **WGMMA_CODES)
      for kind, tile in (("1 bit", 0), ("int32", 1), ("1 bit", 2), ("1 bit", 3), ("int32", 4))],
    Case("imma and a shortcut of float32 to bits",
         imma(0, (-1, 1), "float32", qa.Thresholds([0]), call=added, channels=128), 128, **IMMA_CODES,
         shared=68608, outside=288),
    Case("conv_real to codes", product(range(4), 64, qa.Thresholds([0.0, 5.0, 9.0]), "conv_real"), 160,
         ("POPC", "VOTE", "DMUL", "DADD"), ("DFMA",), 40064),
    Case("depthwise to int32", depthwise(), 72, ("STG",), ("DSETP", "DADD")),
    Case("depthwise to codes", depthwise(requantize=qa.Thresholds([0, 5, 9])), 80, ("VOTE",), ("DSETP", "DADD")),
    Case("depthwise to float32", depthwise(0.5), 128, ("DMUL", "DADD"), floats=True),
    Case("depthwise to codes of floats", depthwise(0.5, qa.Thresholds([0.5])), 128, ("DMUL", "DADD", "VOTE")),
    Case("depthwise of 1 bit to int32 by bytes", by_bytes(levels=(-1, 1)), 128, lacks=("DADD",), **BY_BYTES),
    Case("depthwise of 4 bits to int32 by bytes", by_bytes(levels=range(16)), 128, lacks=("DADD",), **BY_BYTES),
    Case("depthwise of 1 bit to 1 bit by bytes", by_bytes(requantize=qa.Thresholds([0]), levels=(-1, 1)), 128,
         lacks=("DADD",), **BY_BYTES),
    Case("depthwise of 4 bits to 4 bits by bytes", by_bytes(requantize=qa.Thresholds(range(15)), levels=range(16)),
         128, lacks=("DADD",), **BY_BYTES),
    Case("depthwise to float32 by bytes", by_bytes(0.5), 208, floats=True, **BY_BYTES),
    Case("depthwise to codes of floats by bytes", by_bytes(0.5, qa.Thresholds([0.5])), 208, **BY_BYTES),
    Case("sliced, 4 planes", sliced(), 64, ("LOP3",), ("POPC",)),
    Case("turn", call("turn", words(2, 3), 4, words(2, 4, 3)), 40, ("SHF",)),
    Case("max_pool of 1 bit", max_pool(1), 48, ("LOP3",)),
    Case("max_pool of 8 bits", max_pool(8), 96, ("LOP3",)),
    Case("max_pool of 1 bit with places", max_pool(1, places=True), 56, ("LOP3",)),
    Case("recode", call("recode", words(2, 3, 2), words(1, 3, 2), np.zeros((1, 1, 8), np.uint32), np.zeros(3, int), 65,
         65, words(3, 3, 2)), 56, ("VOTE",)),
    *[Case(f"total of {kind.__name__}, {planes} bits",
           call("total", words(planes, 3, 5, 2), 65, np.zeros((1, 2**planes), kind), np.zeros(1, int), 325,
                np.zeros(3, np.float32)), 96, needs, shared=16384, floats=True)
      for kind, needs in ((np.int64, ()), (np.float64, ("DMUL", "DADD"))) for planes in (2, 8)],
    *[Case(f"extremes of {np.dtype(kind).name}", call("extremes", np.zeros((3, 65), kind), np.zeros((2, 3, 2))), 48,
           ("SHFL",) if kind is np.int8 else ("SHFL", "VOTE"), () if kind is np.float64 else ("DADD", "DSETP"),
           floats=True) for kind in (np.float16, np.float32, np.float64, np.int8)],
    *[Case(f"sums of {np.dtype(kind).name}, {cuts} cuts, power {power}", call("sums", np.zeros((3, 65), kind), 256,
           np.zeros((3, cuts)), np.zeros(3), power, np.zeros((2, 3, cuts + 1, 1))), most, ("SHFL", "DADD"), ("DFMA",),
           floats=True)
      for kind, cuts, power, most in ((np.float32, 0, 0, 48), (np.float64, 2, 2, 48), (np.float32, 8, 1, 48))],
    *[Case(f"below of {np.dtype(kind).name}", call("below", np.zeros((3, 65), kind), 256, np.zeros(2, int),
           np.zeros((2, 5)), np.zeros((4, 2, 5))), 48, ("SHFL", "DADD"), ("DFMA",), floats=True)
      for kind in (np.float32, np.float64)],
    Case("rebit", call("rebit", words(3, 2, 2), 65, 0, 26, words(3, 5, 1)), 64, ("SHF",)),
    Case("place of a run", call("place", [(words(3, 2), 5, 1, 70)], words(3, 2)), 40, ("SHF",)),
    Case("place of a step", call("place", [(words(3, 2), 5, 2, 30)], words(3, 1)), 40, ("VOTE",)),
    Case("spread", call("spread", words(3, 2), 3, words(3, 6)), 40, ("VOTE",)),
    Case("gather", call("gather", words(3, 2), 100, np.zeros((1, 65), int), words(3, 2)), 40, ("VOTE",)),
    Case("gather_rows", call("gather_rows", words(2, 2, 5, 3, 1), np.zeros((2, 4, 3, 9), int), words(2, 2, 4, 3, 1)),
         56, ("VOTE",)),
    Case("nearest", call("nearest", words(50, 3), words(9, 3), np.zeros((2, 9, 5), int)), 64,
         ("POPC", "ATOMS", "ATOMG"), ("DSETP",), 1024),
    Case("nearest by bmma", search((8, 0), 16, 64, 1 << 14), 168, ("BMMA", "LDSM", "ATOMG", "ATOMS"),
         ("DSETP", "IMMA"), 44800, targets=((8, 0), (9, 0, "a"))),
    Case("nearest by wgmma", search((9, 0), 64), 168, ("BGMMA", "ATOMG", "ATOMS"), ("DSETP", "BMMA"), 200320,
         targets=((9, 0, "a"),)),
    Case("encode_grouped float32", encode_grouped(np.float32), 64, ("VOTE", "DADD")),
    Case("encode_grouped float64", encode_grouped(np.float64), 64, ("VOTE", "DADD")),
    Case("encode_groups float32", encode_groups(np.float32), 96, ("STS", "SHFL", "DADD"), ("VOTE",), 8192, True),
    Case("encode_groups float64", encode_groups(np.float64), 96, ("STS", "SHFL", "DADD"), ("VOTE",), 8192, True),
    Case("decode_uniform to float32", decode_uniform(2, np.float32), 64, ("DMUL", "DADD"), floats=True),
    Case("decode_uniform to float32, in groups", decode_uniform(2, np.float32, 128), 64, ("DMUL", "DADD"),
         floats=True),
    Case("decode_uniform to bfloat16, in groups of 12", decode_uniform(2, np.uint16, 12), 72, ("DMUL", "DADD")),
    Case("decode_uniform to float16", decode_uniform(8, np.float16), 80, ("DMUL", "DADD")),
    *[Case(f"decode_levels of {bits} bits to float32", decode(bits, np.float32), 80, ("LDS",), ("DMUL",), 1024)
      for bits in (1, 4, 8)],
    Case("decode_levels of 8 bits to float16", decode(8, np.float16), 80, ("LDS",), ("DMUL",), 1024),
    Case("decode_levels in groups", decode(4, np.float32, groups=2), 80, ("LDG",), ("DMUL", "LDS")),
    Case("count", call("count", words(2, 3, 5, 2), 0, 100, 40, SETS, np.zeros((2, 3, 3), int)), 64,
         ("POPC", "SHFL"), ("DSETP",)),
    Case("count_lanes", call("count_lanes", words(2, 3, 5, 2), SETS, np.zeros((2, 3, 65), int)), 64, ("LOP3",)),
    Case("argmax", lines("argmax", np.zeros((1, 1, 4)), np.zeros((3, 1), int)), 64, ("SHFL", "DSETP"),
         floats=True),
    Case("argmax along folds", lines("argmax", np.zeros((1, 1, 4)), np.zeros((3, 65), int), 5), 64, ("DSETP",),
         floats=True),
    Case("cumulate int64", lines("cumulate", np.zeros((1, 1, 4), int), np.zeros((3, 1, 65), np.int32)), 64,
         ("LDS",), ("DADD",), 2048),
    Case("cumulate float64", lines("cumulate", np.zeros((1, 1, 4)), np.zeros((3, 1, 65), np.float32)), 64,
         ("LDS", "DADD"), (), 2048, floats=True),
    Case("cumulate along folds", lines("cumulate", np.zeros((1, 1, 4)), np.zeros((3, 5, 65), np.float32), 5), 64,
         ("DADD",), floats=True),
    Case("argsort", lines("argsort", np.zeros((1, 1, 4), int), np.zeros((3, 1, 65), int)), 64, ("MATCH",)),
    Case("argsort along folds", lines("argsort", np.zeros((1, 1, 4), int), np.zeros((3, 5, 65), int), 5), 64),
    Case("sort", lines("sort", np.zeros((1, 1, 4), np.uint8), words(2, 3, 1, 2)), 64, ("MATCH", "VOTE")),
    Case("elementwise of int32 to float32", elementwise(np.int32, [ADD, SUB, MUL, MAX, PRELU], scaled=True), 64,
         ("DMUL", "FMUL", "FADD"), floats=True),  # an FFMA is part of a quotient
    Case("elementwise with a quotient", elementwise(np.float32, [DIV]), 64, floats=True),
    Case("elementwise of float32 to codes", elementwise(np.float32, [AFFINE, OFFSET, ADD_OTHER], 2, other=True), 64,
         ("DADD", "VOTE"), ("DFMA",)),
    *[Case(f"pool_values, {what}", pool_values(dtype, counts), 96, needs, floats=True)
      for what, dtype, counts, needs in (
          ("largest float32", np.float32, np.empty(0, np.float32), ("FSETP",)),
          ("largest int32", np.int32, np.empty(0, np.float32), ()),
          ("means", np.float32, np.ones(16, np.float32), ("FADD",)),
          ("means of whole images", np.float32, np.ones(16), ("DADD",)))],
    Case("row_product", call("row_product", *[np.zeros((3, 100), np.float32)] * 2, np.zeros((3, 3), np.float32)), 48,
         ("FFMA", "SHFL"), floats=True, fused=True),
    Case("group_product", call("group_product", np.zeros((3, 128), np.int8), np.zeros((3, 4), np.float32),
         np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32), words(4, 5, 2), np.zeros((5, 4), np.float32),
         np.zeros((5, 4), np.float32), 1, 32, 32, np.zeros((3, 5), np.float32)), 80, ("FFMA", "SHFL"), floats=True,
         fused=True),
    Case("float_product", float_product(64), 96, ("FFMA",), floats=True, fused=True),
    Case("float_product of groups", float_product(6, 3), 96, ("FFMA",), floats=True, fused=True),
    Case("join", call("join", np.zeros((3, 65), np.float32), 4, np.zeros((3, 99), np.float32)), 32, floats=True),
    Case("put_channels_last", call("put_channels_last", np.zeros((2, 3, 70), np.uint8),
         np.zeros((2, 70, 3), np.uint8)), 40),
    Case("repack", call("repack", words(2, 40, 3, 2), words(2, 70, 3, 1)), 64, ("VOTE",)),
]  # fmt: skip


def made(case, target, monkeypatch):
    """Return each kernel that the case launches, with its machine code for `target`."""
    with launches(monkeypatch) as kernels:
        case.call()
    assert kernels, "a call that launches nothing"
    make = link if target == LINKED else assemble
    return [(launched, make(launched.kernel, launched.signature, target)) for launched in kernels]


@pytest.mark.parametrize("target", [*TARGETS, (9, 0, "a"), LINKED], ids=["sm_80", "sm_120", "sm_90a", "linked"])
@pytest.mark.parametrize("part", range(PARTS))
def test_code(part, target, monkeypatch):
    """Check the code of ptxas and of nvJitLink, which optimises once more: opcodes, registers, memory.

    A part of the cases at once, as the disassembler takes half a second to start.
    """
    cases = [case for case in CASES[part::PARTS] if target == LINKED or target in case.targets]
    compiled = [made(case, target, monkeypatch) for case in cases]
    codes = [one.code for kernels in compiled for _, one in kernels]
    listed, wrong = iter(opcodes(codes, (9, 0, "a") if target == LINKED else target)), []
    for case, kernels in zip(cases, compiled, strict=True):
        used = set().union(*(next(listed) for _ in kernels))
        wrong += [f"{case}: no {opcode}" for opcode in case.needs if opcode not in used]
        wrong += [f"{case}: {opcode}" for opcode in case.lacks if opcode in used]
        for launched, one in kernels:
            print(f"{case}, {launched.kernel.py_func.__name__}: {one.registers} registers, "
                  f"{one.shared + launched.shared} bytes shared, {len(one.code)} of code")  # fmt: skip
            wrong += [f"{case}: {fault}" for fault in faults(case, launched, one, target)]
    assert wrong == []


def faults(case, launched, one, target):
    """Yield what is wrong with a kernel of a case."""
    shared = one.shared + launched.shared
    if one.local > case.outside + (case.linked_local if target == LINKED else 0):
        yield f"{one.local} bytes of registers spill to memory, or an array of registers is there"
    elif one.local and case.outside:
        loop = Code.read(disassemble(one.code, (9, 0, "a") if target == LINKED else target)).loop_of(case.needs[0])
        if any(instruction.opcode in ("LDL", "STL") for instruction in loop):
            yield "registers spill in the main loop"
    if one.registers > case.registers or shared > case.shared:
        yield f"{one.registers} registers, {shared} bytes shared"
    if "Potential Performance Loss" in one.log:
        yield "products that wait for each other"
    if ("fma.rn.f" in one.ptx and not case.fused) or ("st.global.f" in one.ptx and not case.floats):
        yield "floats are fused or stored"
    if target == LINKED:
        together = launched.threads * -(-one.registers // 8) * 8
        if launched.threads > 1024 or together > REGISTERS or one.shared > SHARED or shared > MOST_SHARED:
            yield "a block that cannot be launched"


@pytest.mark.parametrize(
    ("name", "form"), [("mma", "m16n8k256"), ("mma_bytes", "m16n8k32"), ("mma_signed", "m16n8k32")]
)
def test_operands_of_mma(name, form):
    """Check that registers of sums, rows and columns reach the instruction in the order of `tensor.mma`'s arguments."""
    from numba import cuda, types

    from quantarray.cuda.tensor_cores import ptx as tensor

    mma = getattr(tensor, name)

    @cuda.jit
    def once(out):
        out[0], out[1], out[2], out[3] = mma(101, 102, 103, 104, 105, 106, 107, 108, 109, 110)

    ptx = assemble(once, (types.int32[::1],), (8, 0)).ptx
    held = dict(re.findall(r"mov\.[bsu]32\s+(%r\d+), (\d+);", ptx))
    operands = re.findall(r"%r\d+", re.search(rf"mma\.sync\.aligned\.{form}\.row\.col.*?;", ptx, re.DOTALL)[0])
    d, constants = operands[:4], [held[register] for register in operands[4:]]
    assert constants == ["105", "106", "107", "108", "109", "110", "101", "102", "103", "104"]
    stored = re.findall(r"st\.global\.[bsu]32\s+\[%rd\d+(?:\+(\d+))?\], (%r\d+);", ptx)
    assert {int(at or 0) // 4: register for at, register in stored} == dict(enumerate(d))


def test_operands_of_merge_and_of_sums_of_bytes():
    """Check the operands of LOP3, whose table 0xE4 takes the first where the third has ones, else the second."""
    from numba import cuda, types

    from quantarray.cuda.tensor_cores import ptx as tensor

    @cuda.jit
    def once(out):
        out[0] = tensor.merge(0x55555555, np.uint64(101 << 32 | 102), np.uint64(103 << 32 | 104))
        out[1] = np.uint64(tensor.add_bytes(np.int32(105), np.uint32(106)))

    ptx = assemble(once, (types.uint64[::1],), (8, 0)).ptx
    held = dict(re.findall(r"mov\.[bsu]32\s+(%r\d+), (\d+);", ptx))
    merged = re.findall(rf"lop3\.b32 %r\d+, (%r\d+), (%r\d+), {0x55555555}, 0xE4;", ptx)
    assert [[held[register] for register in pair] for pair in merged] == [["102", "104"], ["101", "103"]]
    four, total = re.search(rf"dp4a\.u32\.u32 %r\d+, (%r\d+), {0x01010101}, (%r\d+);", ptx).groups()
    assert (held[four], held[total]) == ("106", "105")
    truth = [(0xE4 >> i) & 1 for i in range(8)]
    assert truth == [(i >> 2 if i & 1 else i >> 1) & 1 for i in range(8)]


def test_operands_of_wgmma():
    """Check that sums and both descriptors reach the instruction in the order of the arguments of `warpgroup.mma`. In
    a descriptor is an address within shared memory.
    """
    from numba import cuda, types

    from quantarray.cuda.tensor_cores import descriptors, warpgroup

    mma, fence_sums, collect = warpgroup.mma(8), warpgroup.fence_sums(8), warpgroup.collect(8)

    @cuda.jit
    def once(out, numbers):
        held = cuda.shared.array(0, np.uint64, alignment=16)
        sums = cuda.local.array((1, 1, 2, 2), np.int32)
        for side in range(2):
            for e in range(2):
                sums[0, 0, side, e] = 101 + 2 * side + e
        fence_sums(sums)
        mma(sums, np.uint64(105), np.uint64(106))
        warpgroup.commit()
        collect(sums)
        for side in range(2):
            for e in range(2):
                out[2 * side + e] = sums[0, 0, side, e]
        numbers[0] = descriptors.descriptor(descriptors.begin(held, 5), 1)

    ptx = assemble(once, (types.int32[::1], types.uint64[::1]), (9, 0, "a")).ptx
    constants = dict(re.findall(r"mov\.[bsu](?:32|64)\s+(%rd?\d+), (\d+);", ptx))
    instruction = re.search(r"wgmma\.mma_async.*?b1\.b1\.and\.popc \{(.*?)\}, (%rd\d+), (%rd\d+), 1;", ptx)
    d = instruction[1].split(", ")
    assert [constants[register] for register in (*d, instruction[2], instruction[3])] == [
        "101",
        "102",
        "103",
        "104",
        "105",
        "106",
    ]
    stored = re.findall(r"st\.global\.[bsu]32\s+\[%rd\d+(?:\+(\d+))?\], (%r\d+);", ptx)
    assert {int(at or 0) // 4: register for at, register in stored} == dict(enumerate(d))
    start = re.search(r"mov\.u64\s+(%rd\d+), _cudapy_smem_\d+;\s+add\.s64\s+%rd\d+, \1, 40;", ptx)
    assert start, "not the address of element 5 within shared memory"
    assert re.search(r"and\.b64\s+%rd\d+, %rd\d+, 262128;\s+shr\.u64\s+%rd\d+, %rd\d+, 4;", ptx)
    assert re.search(rf"or\.b64\s+%rd\d+, %rd\d+, {1 << 62 | 64 << 32};", ptx)


def test_each_kernel_has_a_name_of_its_own_on_disk(monkeypatch):
    """All of them have one, and no other kernel, nor other types of arguments, has the same."""
    from quantarray.cuda.runtime import launch, on_disk

    named = {}
    for case in CASES:
        with launches(monkeypatch) as listed:
            case.call()
        for one in listed:
            text = on_disk.text_of(one.kernel, tuple(map(launch._form, one.args)), LINKED)
            assert named.setdefault(text, (one.kernel, one.signature)) == (one.kernel, one.signature)
    assert len(named) > 150


def test_kernels_are_typed_once_and_ask_for_their_shared_memory(monkeypatch):
    """Check which shared memory is asked of the driver, for the kernel that is launched; both are stand-ins here."""
    from numba.cuda.cudadrv import driver
    from numba.cuda.dispatcher import CUDADispatcher

    from quantarray.cuda.runtime import driver as starter
    from quantarray.cuda.runtime import launch

    asked, ran, typed, default = [], [], [], 48 << 10

    class Kernel:
        handle = "handle"

        def __init__(self, overloads):
            self.overloads = overloads

        def specialize(self, *args):
            typed.append(args)
            return Kernel(args)

    monkeypatch.setattr(launch, "_driver", lambda: True)
    monkeypatch.setattr(starter, "current_gpu", lambda: 1)
    monkeypatch.setattr(starter, "enter", lambda gpu: None)
    monkeypatch.setattr(starter, "start", lambda *how: ran.append(how))
    monkeypatch.setattr(starter, "handle_of", lambda kernel: kernel.overloads)
    monkeypatch.setattr(launch, "_function", lambda kernel, args: (None, kernel.specialize(*args)))
    monkeypatch.setattr(driver, "driver", SimpleNamespace(cuKernelSetAttribute=lambda *args: asked.append(args)))
    kernel, names = Kernel({}), driver.binding.CUfunction_attribute
    for args, shared, tiled in (((5, 6), default, False), ((7, 8), default, False), ((7, 8.0), default + 1, True)):
        launch.run(kernel, (128, 1), (32, 1), *args, shared=shared, tiled=tiled)
    assert typed == [(5, 6), (7, 8.0)], "arguments of one form are typed once"
    assert asked == [
        (names.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100, "handle", 1),
        (names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, default + 1, "handle", 1),
    ]
    how = (128, 1), (32, 1)
    assert ran == [
        ((5, 6), *how, default, (5, 6)), ((5, 6), *how, default, (7, 8)), ((7, 8.0), *how, default + 1, (7, 8.0)),
    ]  # fmt: skip
    assert set(inspect.signature(CUDADispatcher.specialize).parameters) == {"self", "args"}
