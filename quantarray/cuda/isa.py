"""Which units of a GPU multiply bits: what its compute capability has, or what `QUANTARRAY_CUDA` asks for.

| name | how | on |
|---|---|---|
| popc | and, and a count of ones, on the ordinary units | every GPU |
| bmma | binary tensor cores, an instruction a product of 16 x 8 x 256 bits | compute capability 8.0 to 9.x |

Compute capability 7.5 multiplies bits by exclusive or only; from 10.0 on the instruction is 8 to 16 products of bytes.
"""

from __future__ import annotations

import os

from ..errors import DeviceError

VARIABLE = "QUANTARRAY_CUDA"
NAMES = ("popc", "bmma")
_FIRST, _BEHIND = (8, 0), (10, 0)
_ROWS, _WORDS = 16, 4  # of one instruction


def asked() -> str:
    """What the environment asks for, or nothing."""
    name = os.environ.get(VARIABLE, "")
    if name and name not in NAMES:
        raise DeviceError(f"{VARIABLE} must be one of {', '.join(NAMES)}, or unset, got {name!r}")
    return name


def best(capability: tuple[int, int]) -> str:
    """The fastest units of a compute capability, or those asked for."""
    name, there = asked(), _FIRST <= capability < _BEHIND
    if name == "bmma" and not there:
        raise DeviceError(
            f"{VARIABLE}=bmma needs a GPU of compute capability 8.0 to 9.x, whose tensor cores multiply bits; this one "
            f"has {capability[0]}.{capability[1]}; unset {VARIABLE}, or use popc"
        )
    return name or ("bmma" if there else "popc")


def units(capability: tuple[int, int], rows: int, words: int) -> str:
    """The same for a product of `rows` pixels by windows of `words` words.

    One that does not fill an instruction waits for memory and for its launch, whoever counts.
    """
    name = best(capability)
    return name if asked() or (rows >= _ROWS and words >= _WORDS) else "popc"
