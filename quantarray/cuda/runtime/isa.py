"""Choose the units that multiply bits: the best of a compute capability, or what `QUANTARRAY_CUDA` asks for.

Tensor cores multiply bits by `and` from compute capability 8.0 on. 7.5 has exclusive or only; since 10.0 the
instruction is made of 8 to 16 products of bytes. 9.0 alone has one for four warps too, which is faster where windows
are long. Bits are multiplied a pair of planes at a time, bytes once for all pairs: from some number of pairs on, codes
are expanded to bytes. This file needs no CUDA package: `quantarray info` asks it.
"""

from __future__ import annotations

import os

from ...core.errors import DeviceError

VARIABLE = "QUANTARRAY_CUDA"
TILE = "QUANTARRAY_CUDA_TILE"  # for measuring: which of a kernel's tiles
UNITS = {
    "popc": "words are anded and their ones counted, on the ordinary units",
    "bmma": "products of integers on binary tensor cores, where they fill one",
    "wgmma": "products of integers on binary tensor cores, four warps at once where windows are long",
    "imma": "codes of up to 8 bits become bytes, and are multiplied on int8 tensor cores, where planes have many pairs",
}
_BMMA = (8, 0), (10, 0)  # the first compute capability, and the first after the last
_WGMMA = (9, 0)
_IMMA = (8, 0)
PLANES = 8  # that a byte holds
FEW_ROWS = 16  # pixels at most whose weights are read once, by `popcount/few_rows.py`
# Clocks of a quarter of a multiprocessor for 16 pixels by 8 channels by 256 elements, by the first number of the
# compute capability: of a pair of planes, or for `imma` of all pairs. 8 and 10 are from the published rates of an A100
# and an RTX 5090 [derived]; 9 is from what an H200 reaches at 8192^3 (docs/measurements/gpu.md), but for `imma`, which
# nobody has timed: it is put at 8 pairs of `wgmma`
_CLOCKS = {
    7: {"popc": 256},
    8: {"popc": 256, "bmma": 8, "imma": 64},
    9: {"popc": 256, "bmma": 19, "wgmma": 11, "imma": 88},
    10: {"popc": 256, "imma": 128},
}
_ROWS, _WORDS = 16, 4  # of one instruction on bits
# Words of a window from which `wgmma` wins: a whole stage. An H200 measured 33 for kernels and tiles of then; for those
# of now, 16 are predicted (docs/decisions/0032-tiles-by-the-grid.md)
_LONG = 16
# Pairs of planes times rows, of fewer rows than an instruction has, that are counted (docs/kernels/few_rows.md). One
# takes 16 of the clocks above, so 64 take as many as 2 to 4 of the least tiles of `imma`, which have 64 rows [derived]
_FEW = 64


def asked() -> str:
    """Return the units that the environment asks for, or ""."""
    name = os.environ.get(VARIABLE, "")
    if name and name not in UNITS:
        raise DeviceError(f"{VARIABLE} must be one of {', '.join(UNITS)}, or unset, got {name!r}")
    return name


def asked_tile(count: int) -> int | None:
    """Return which of `count` tiles of a tensor-core kernel the environment asks for, largest first, or None."""
    name = os.environ.get(TILE, "")
    if not name:
        return None
    if not name.isdecimal() or int(name) >= count:
        raise DeviceError(f"{TILE} must be a number from 0 to {count - 1}, or unset, got {name!r}")
    return int(name)


def best(capability: tuple[int, int]) -> str:
    """Return the fastest units of a compute capability, or those asked for."""
    name, has_bmma = asked(), _BMMA[0] <= capability < _BMMA[1]
    if name == "bmma" and not has_bmma:
        raise _lacking(name, "8.0 to 9.x, whose tensor cores multiply bits", capability)
    if name == "wgmma" and capability != _WGMMA:
        raise _lacking(name, "9.0, the only one with its instruction", capability)
    if name == "imma" and not _has_imma(capability):
        raise _lacking(name, "8.0 or above, whose tensor cores multiply bytes", capability)
    if name:
        return name
    if capability == _WGMMA:
        return "wgmma"
    return "bmma" if has_bmma else "imma" if _has_imma(capability) else "popc"


def _has_imma(capability: tuple[int, int]) -> bool:
    return capability >= _IMMA


def multiplies_bytes(capability: tuple[int, int], planes: int) -> bool:
    """True where images of bytes are multiplied as they are, by weights of so many planes."""
    return asked() in ("", "imma") and _has_imma(capability) and planes <= PLANES


def _lacking(name: str, needed: str, capability: tuple[int, int]) -> DeviceError:
    return DeviceError(
        f"{VARIABLE}={name} needs a GPU of compute capability {needed}; this one has {capability[0]}.{capability[1]}; "
        f"unset {VARIABLE}, or use popc"
    )


def units(capability: tuple[int, int], rows: int, words: int, planes_x: int = 1, planes_w: int = 1) -> str:
    """Return the units for a product of `rows` pixels by windows of `words` words, of so many planes a side.

    Few rows of few planes stay with popc: they wait for memory and their launch, whoever counts. So do more planes
    than a byte holds where `imma` is asked for.
    """
    return _cheapest(capability, rows, words, planes_x, planes_w, max(planes_x, planes_w) <= PLANES)


def units_of_bits(capability: tuple[int, int], rows: int, words: int) -> str:
    """Return the units for a product of bits that stay bits: `units` without `imma`."""
    return _cheapest(capability, rows, words, 1, 1, False)


def _cheapest(capability: tuple[int, int], rows: int, words: int, planes_x: int, planes_w: int, fits: bool) -> str:
    name = best(capability)
    if asked():
        return name if name != "imma" or fits else "popc"
    pairs, clocks = planes_x * planes_w, _CLOCKS[min(capability[0], max(_CLOCKS))]
    few = rows < _ROWS and planes_w <= PLANES and rows * pairs <= _FEW
    worth = {
        "popc": True,
        "bmma": rows >= _ROWS and words >= _WORDS,
        "wgmma": words >= _LONG and not few,
        "imma": fits and not few,
    }
    costs = {units: n * (1 if units == "imma" else pairs) for units, n in clocks.items() if worth[units]}
    return min(costs, key=lambda units: (costs[units], units != "imma"))


def multiplies_windows(capability: tuple[int, int]) -> bool:
    """True if depthwise products run on tensor cores, which multiply bytes; unless popc is asked for."""
    return _has_imma(capability) and asked() != "popc"
