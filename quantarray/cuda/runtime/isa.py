"""Choose the units that multiply bits: the best of a compute capability, or what `QUANTARRAY_CUDA` asks for.

Tensor cores multiply bits by `and` from compute capability 8.0 on. 7.5 has exclusive or only; since 10.0 the
instruction is made of 8 to 16 products of bytes. 9.0 alone has one for four warps too, which is faster where windows
are long. This file needs no CUDA package: `quantarray info` asks it.
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
}
_BMMA = (8, 0), (10, 0)  # the first compute capability, and the first after the last
_WGMMA = (9, 0)
_ROWS, _WORDS = 16, 4  # of one instruction
# Words of a window from which `wgmma` wins, on an H200 (docs/measurements/gpu.md): 64 words 1.24 to 2.4 times, 36 words
# 1.01 to 1.08, 32 words 0.83 to 0.87. With one row it takes a quarter of the time of `popc` too.
_LONG = 33


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
    return name or ("wgmma" if capability == _WGMMA else "bmma" if has_bmma else "popc")


def _lacking(name: str, needed: str, capability: tuple[int, int]) -> DeviceError:
    return DeviceError(
        f"{VARIABLE}={name} needs a GPU of compute capability {needed}; this one has {capability[0]}.{capability[1]}; "
        f"unset {VARIABLE}, or use popc"
    )


def units(capability: tuple[int, int], rows: int, words: int) -> str:
    """Return the units for a product of `rows` pixels by windows of `words` words.

    One that does not fill an instruction stays with popc: it waits for memory and its launch, whoever counts.
    """
    name = best(capability)
    if asked():
        return name
    if name == "wgmma":
        if words >= _LONG:
            return name
        name = "bmma"
    return name if rows >= _ROWS and words >= _WORDS else "popc"
