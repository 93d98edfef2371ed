"""Every CUDA kernel compiles, assembles, and is made of the instructions that it is meant to be made of."""

import os
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
from cuda_compile import TARGETS, assemble, launches, needs_toolkit

import quantarray as qa
from quantarray.device import kernel
from quantarray.ops import pooling, products, thresholding
from quantarray.ops.lanes import GroupLanes

pytestmark = [
    needs_toolkit,
    pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="the simulator compiles nothing"),
]


@dataclass(frozen=True)
class Case:
    """A call of a twin, and what must hold of each kernel that it launches."""

    name: str
    call: object
    registers: int  # at most
    needs: tuple = ()  # opcodes that must be there, in one of them
    lacks: tuple = ()  # and that must not
    shared: int = 0  # bytes at most
    floats: bool = False  # may store floats

    def __repr__(self):
        return self.name


def words(*shape):
    return np.zeros(shape, np.uint64)


def finish(channels, count, planes, real):
    lanes = GroupLanes(channels)
    return thresholding.finish(None, channels, real, lanes=lanes)._replace(
        thresholds=lanes(np.zeros((count, channels), np.float64 if real else np.int64)),
        flip=np.zeros(-(-channels // 32), np.uint32),
        toggles=words(count + 1, planes),
    )


def call(name, *args):
    return lambda: kernel("cuda", name)(*args)


def encode(dtype):
    table = np.zeros((1, 1, 3), dtype)
    args = np.zeros((2, 65), dtype), table, np.zeros((1, 1, 4), np.uint8), np.zeros(2, np.int64), 65, np.zeros(1, bool)
    return call("encode", *args, words(2, 2, 2))


def public(name, function):
    """A call of a public function with the CUDA twin in place of its kernel `name`."""

    def run():
        def twin(device, asked):
            return kernel("cuda" if asked == name else device, asked)

        with patch.object(products, "kernel", twin), patch.object(pooling, "kernel", twin):
            function()

    return run


def product(values, outputs, requantize=None, name="conv"):
    """A 3x3 convolution of 64 channels."""
    x, w = qa.encode(np.ones((1, 3, 3, 64), int), values), qa.encode(np.ones((outputs, 3, 3, 64), int), (-1, 1))
    if name == "conv_real":
        w = w * np.float32(0.5)
    return public(name, lambda: qa.conv2d(x, w, padding=1, requantize=requantize))


def depthwise(scale=None, requantize=None):
    x, w = qa.encode(np.ones((1, 3, 3, 64), int), range(4)), qa.encode(np.ones((64, 3, 3, 1), int), (-1, 1), axis=0)
    w = w if scale is None else w * np.float32(scale)
    return public("depthwise", lambda: qa.conv2d(x, w, padding=1, groups=64, requantize=requantize))


def max_pool(bits):
    x = qa.from_codes(np.ones((1, 4, 4, 64), int), getattr(qa, f"uint{bits}"))
    return public("max_pool", lambda: qa.max_pool2d(x, 2))


CASES = [
    Case("pack", call("pack", np.zeros((3, 65), np.uint8), words(2, 3, 2)), 32, ("VOTE",)),
    Case("unpack", call("unpack", words(2, 3, 2), np.zeros((3, 65), np.uint8)), 40, ("STG",)),
    Case("encode float32", encode(np.float32), 48, ("VOTE", "FSETP"), ("DSETP",)),
    Case("encode float64", encode(np.float64), 48, ("VOTE", "DSETP")),
    Case("threshold int64", call("threshold", np.zeros((3, 65), np.int64), finish(65, 3, 2, False), words(2, 3, 2)),
         48, ("VOTE",), ("DSETP", "FSETP")),
    Case("threshold float64", call("threshold", np.zeros((3, 65)), finish(65, 3, 2, True), words(2, 3, 2)),
         48, ("VOTE", "DSETP")),
    Case("conv_weights", call("conv_weights", words(2, 65, 9), 1, words(2, 3, 9, 32)), 64, ("LDS",), shared=8448),
    *[Case(f"conv to int32, {outputs} channels", product(range(4), outputs), 128, ("POPC",), ("DSETP",), 43648)
      for outputs in (32, 64, 128)],
    Case("conv to codes", product(range(4), 128, qa.Thresholds([0, 5, 9])), 128, ("POPC", "VOTE"), ("DSETP",), 43648),
    *[Case(f"conv_real to float32, {outputs} channels", product(range(4), outputs, name="conv_real"), 128,
           ("POPC", "DMUL", "DADD"), ("DFMA",), 40064, floats=True) for outputs in (32, 64)],
    Case("conv_real to codes", product(range(4), 64, qa.Thresholds([0.0, 5.0, 9.0]), "conv_real"), 160,
         ("POPC", "VOTE", "DMUL", "DADD"), ("DFMA",), 40064),
    Case("depthwise to int32", depthwise(), 72, ("STG",), ("DSETP", "DADD")),
    Case("depthwise to codes", depthwise(requantize=qa.Thresholds([0, 5, 9])), 80, ("VOTE",), ("DSETP", "DADD")),
    Case("depthwise to float32", depthwise(0.5), 128, ("DMUL", "DADD"), floats=True),
    Case("depthwise to codes of floats", depthwise(0.5, qa.Thresholds([0.5])), 128, ("DMUL", "DADD", "VOTE")),
    Case("max_pool of 1 bit", max_pool(1), 48, ("LOP3",)),
    Case("max_pool of 8 bits", max_pool(8), 96, ("LOP3",)),
    Case("recode", call("recode", words(2, 3, 2), np.zeros((1, 1, 4), np.uint32), np.zeros(3, int), 65, words(3, 3, 2)),
         48, ("VOTE",)),
    Case("rebit", call("rebit", words(3, 2, 2), 65, 0, 26, words(3, 5, 1)), 64, ("SHF",)),
    Case("place of a run", call("place", [(words(3, 2), 5, 1, 70)], words(3, 2)), 40, ("SHF",)),
    Case("place of a step", call("place", [(words(3, 2), 5, 2, 30)], words(3, 1)), 40, ("VOTE",)),
    Case("spread", call("spread", words(3, 2), 3, words(3, 6)), 40, ("VOTE",)),
    Case("gather", call("gather", words(3, 2), 100, np.zeros((1, 65), int), words(3, 2)), 40, ("VOTE",)),
    Case("gather_rows", call("gather_rows", words(2, 2, 5, 3, 1), np.zeros((2, 4, 3, 9), int), words(2, 2, 4, 3, 1)),
         56, ("VOTE",)),
    Case("nearest", call("nearest", words(50, 3), words(9, 3), np.zeros((2, 9, 5), int)), 64,
         ("POPC", "ATOMS", "ATOMG"), ("DSETP",), 1024),
    Case("repack", call("repack", words(2, 40, 3, 2), words(2, 70, 3, 1)), 64, ("VOTE",)),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_instructions(case, target, monkeypatch):
    with launches(monkeypatch) as found:
        case.call()
    made = {kernel.py_func.__name__: assemble(kernel, signature, target) for kernel, signature in found}
    for name, one in made.items():
        print(f"{case}, {name}, sm_{target[0]}{target[1]}: {one.registers} registers, {one.shared} bytes shared, "
              f"{sum(one.instructions.values())} instructions")  # fmt: skip
        assert one.local == 0, "registers spill to memory, or an array of registers lies there"
        assert one.registers <= case.registers and one.shared <= case.shared
        assert [opcode for opcode in case.lacks if one.count(opcode)] == []
        assert "fma.rn.f" not in one.ptx
        assert case.floats or "st.global.f" not in one.ptx
    assert [opcode for opcode in case.needs if not any(one.count(opcode) for one in made.values())] == []
