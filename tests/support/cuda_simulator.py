"""Numba's CUDA simulator with what it lacks: warp votes and shuffles, and barriers as strict as a GPU's.

Numba's own runs a block's threads as threads of Python, polls them, and lets a barrier pass once all that are still
alive have come to it. Here they are greenlets that run one after the other from barrier to barrier, always in the same
order, thirty times as fast; a thread that waits where another has left or waits for something else is an error.
Set NUMBA_ENABLE_CUDASIM=1 before numba is imported, then call `install()`.
"""

import itertools
import sys
from math import prod
from typing import ClassVar

import numpy as np
from bulk_models import BulkModels
from greenlet import getcurrent, greenlet
from numba.cuda import libdevice
from numba.cuda.simulator import kernel, kernelapi
from tensor_models import Models
from warpgroup_models import WarpgroupModels

from quantarray.cuda.tensor_cores import bulk, ptx, warpgroup


class Thread(greenlet):
    """A thread of a block."""

    def __init__(self, block, place, index):
        super().__init__(self._run)
        self.block, self.blockIdx, self.threadIdx = block, kernelapi.Dim3(*place), kernelapi.Dim3(*index)
        x, y, _ = block.shape
        self.thread_id = index[0] + x * (index[1] + y * index[2])

    def _run(self, *args):
        self.block.function(*args)
        return None, None

    def wait(self, what, value=None):
        """Let the others come to the barrier `what`; at that of a warp, what each of its lanes gave is given back."""
        return self.block.scheduler.switch((what, value))


class Block:
    """A block of threads that runs them; used instead of numba.cuda.simulator.kernel.BlockManager."""

    def __init__(self, function, grid, shape, debug):
        self.function, self.shape = function, shape

    def run(self, place, *args):
        self.scheduler = getcurrent()
        threads = [Thread(self, place, index) for index in itertools.product(*map(range, self.shape))]
        threads.sort(key=lambda thread: thread.thread_id)
        self.warps = [threads[first : first + 32] for first in range(0, len(threads), 32)]
        arrived = [self._advance(warp, *args) for warp in self.warps]
        while arrived[0] is not None:
            arrived = [self._advance(warp) for warp in _same("block", arrived) and self.warps]
        _same("block", arrived)

    def _advance(self, warp, *args):
        """Run a warp to the next barrier of the block, or its end (None)."""
        while True:
            arrived, values = zip(*[thread.switch(*args) for thread in warp], strict=True)
            if _same("warp", arrived)[0] != "warp":
                return arrived[0]
            args = (Exchanged(values),)


def _same(group, arrived):
    if len(set(arrived)) > 1:
        raise RuntimeError(f"threads of a {group} wait at different barriers: {arrived}")
    return arrived


class Exchanged(tuple):
    """A tuple of one value from each lane of a warp, the same object in each lane."""

    def once(self, make):
        """Call `make` on it for the first lane that comes; return the same result to the others."""
        if not hasattr(self, "result"):
            self.result = make(self)
        return self.result


def _exchange(value):
    """(this thread's lane, what every lane of its warp gave)."""
    me = getcurrent()
    return me.thread_id % 32, me.wait("warp", value)


def _ballot(predicates):
    return sum(bool(bit) << lane for lane, bit in enumerate(predicates))


def _alike(values):
    """Return, for each value, a ballot of the lanes that gave it."""
    return {value: _ballot([other == value for other in values]) for value in set(values)}


class Module(kernelapi.FakeCUDAModule):
    """A stand-in for `cuda` inside a simulated kernel."""

    @property
    def threadIdx(self):
        return getcurrent().threadIdx

    @property
    def blockIdx(self):
        return getcurrent().blockIdx

    def syncthreads(self):
        getcurrent().wait("block")

    def syncwarp(self, mask=None):
        getcurrent().wait("warp")

    def ballot_sync(self, mask, predicate):
        return _exchange(predicate)[1].once(_ballot)

    def shfl_xor_sync(self, mask, value, lanes):
        lane, shown = _exchange(value)
        return shown[lane ^ lanes]

    def match_any_sync(self, mask, value):
        return _exchange(value)[1].once(_alike)[value]


class Shared(kernelapi.FakeCUDAShared):
    """A model of shared memory: the array without a size begins 16 bytes after a multiple of 1024, the worst place."""

    def __init__(self, size):
        super().__init__(0)
        room = np.full(size + 2048, 0xBA, np.uint8)
        first = (16 - room.ctypes.data) % 1024  # right after a multiple, where most is lost up to the next
        self.without_size = room[first : first + size]

    def array(self, shape, dtype, alignment=None):
        if shape == 0:
            return self.without_size.view(dtype)
        code, line = sys._getframe(1).f_code, sys._getframe(1).f_lineno
        if (code, line) not in self._allocations:
            self._allocations[code, line] = np.empty(shape, dtype)
        return self._allocations[code, line]


class InPlace(kernel.InOut):
    """An array in the memory that the kernel reads: the simulator would copy all of them there and back."""

    def to_device(self, retr, stream=0):
        return self.value


def _as_on_a_gpu(configure):
    """Configure a kernel for a grid, which must be of a size that a GPU launches."""

    def configured(self, configuration):
        result = configure(self, configuration)
        grid, threads = result.grid_dim, prod(result.block_dim)
        assert min(grid) > 0 and max(grid[1:]) < 1 << 16 and 0 < threads <= 1024, f"no GPU launches {configuration}"
        return result

    return configured


class Swapped:
    """A context that puts the simulated `cuda` into a function's module, until the launched kernel ends.

    Numba's own counts, under a lock, who is in a module, at each call of each device function: a quarter of all time.
    """

    _put: ClassVar = []

    def __init__(self, function, fake):
        self.names, self.fake, self.outermost = function.__globals__, fake, not self._put

    @staticmethod
    def direct(call):
        """Wrap `call` of a kernel or device function: not asked where the module's `cuda` is in place already."""

        def called(self, *args):
            context = kernel._kernel_context
            inside = context is not None and self.fn.__globals__.get("cuda", context) is context
            return self.fn(*args) if inside else call(self, *args)

        return called

    def __enter__(self):
        real = self.names.get("cuda", self.fake)
        if real is not self.fake or self.outermost:
            self._put.append((self.names, real))
            self.names["cuda"] = self.fake

    def __exit__(self, *error):
        while self.outermost and self._put:
            names, real = self._put.pop()
            names["cuda"] = real


def install():
    kernel.FakeCUDAKernel.__getitem__ = _as_on_a_gpu(kernel.FakeCUDAKernel.__getitem__)
    kernel.FakeCUDAKernel.__call__ = Swapped.direct(kernel.FakeCUDAKernel.__call__)
    kernel.BlockManager, kernel.FakeCUDAModule, kernel.InOut = Block, Module, InPlace
    kernel.swapped_cuda_module = Swapped
    kernelapi.FakeCUDAShared = Shared
    models = Models(getcurrent, _exchange)
    _put(ptx, models)
    _put(bulk, BulkModels(models))
    _put(warpgroup, WarpgroupModels(models, lambda: kernel._get_kernel_context().shared.without_size))
    libdevice.dmul_rn, libdevice.dadd_rn, libdevice.byte_perm = np.multiply, np.add, _byte_perm
    libdevice.fmul_rn, libdevice.fadd_rn, libdevice.fmaf_rn = np.multiply, np.add, _fused
    libdevice.fdiv_rn = libdevice.ddiv_rn = np.divide
    libdevice.floor, libdevice.ceil = np.floor, np.ceil
    libdevice.float_as_int = lambda x: np.float32(x).view(np.int32)
    libdevice.int_as_float = lambda x: np.int32(x).view(np.float32)
    libdevice.half2float = lambda bits: np.float32(np.int16(bits).view(np.float16))
    libdevice.float2half_rn = lambda x: np.float16(x).view(np.int16)


def _fused(x, y, z):
    """x * y + z of float32, rounded once: a sum in float64 is rounded to odd, which a second rounding does not see."""
    product, z = np.float64(x) * np.float64(y), np.float64(z)
    total = product + z
    if np.isfinite(total):
        back = total - product
        error = (product - (total - back)) + (z - back)
        if error and not total.view(np.int64) & 1:
            total = np.nextafter(total, np.copysign(np.inf, error))
    return np.float32(total)


def _byte_perm(x, y, selector):
    """bytes[i] = the byte of x and y, numbered from the lowest, that the i-th 4 bits of the selector name."""
    bytes_of = np.array([x, y], np.int32).view(np.uint8)
    return bytes_of[[selector >> 4 * i & 7 for i in range(4)]].view(np.int32)[0]


def _put(module, models):
    """Replace the module's functions by the models' of the same name."""
    for name in models.NAMES:
        setattr(module, name, getattr(models, name))
