"""`quantarray info [FILE]`: what this machine runs on, or what a file holds."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numpy as np

from .. import __version__
from ..backends.registry import first_gpu
from ..core.errors import DeviceError
from ..core.machine import cpu_name
from ..cpu import isa
from ..cpu.runtime import threads
from ..cuda.runtime import isa as cuda_isa
from . import output, stored

FEATURES = ("popcnt", "avx2", "avx512f", "avx512vpopcntdq", "amx-int8", "neon")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("info", help="say what this machine or a file holds", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="a file of arrays, of a network, or of GGUF")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    parser.set_defaults(command=info)


def info(args: argparse.Namespace) -> int:
    """Run `quantarray info`."""
    if args.file is None:
        facts = machine()
        output.print_json(facts) if args.json else print(output.lines(facts))
        return 0
    stored.describe(args.file, args.json)
    return 0


def machine() -> dict[str, Any]:
    """Return versions, processor, kernels, threads and GPU."""
    features = llvmlite.binding.get_host_cpu_features()
    return {
        "versions": {
            "quantarray": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
        },
        "cpu": {
            "name": cpu_name(),
            "target": llvmlite.binding.get_host_cpu_name(),
            "features": [name for name in FEATURES if features.get(name)],
        },
        "kernels": kernels(isa.NAME, {name for name in FEATURES if features.get(name)}),
        "threads": {
            "count": numba.get_num_threads(),
            "pool": str(threads.described()),  # type: ignore[no-untyped-call]
            "layer": thread_layer(),
        },
        "gpu": gpu(),
    }


def kernels(name: str, features: set[str]) -> str:
    """Say which kernels run on this CPU, and why."""
    if name == "avx2":
        how = "half-bytes looked up by byte shuffles, 32 channels at once (vpshufb), as this CPU has no vector popcount"
    elif name == "amx":
        how = "int8 products of 16 x 16 x 64 (tdpbusd), once a first one was right; the rest as for avx512"
    elif name == "avx512":
        how = "ctpop on vectors of 8 x 64 bits, one instruction (avx512vpopcntdq)"
    elif name == "avx512bw":
        how = "half-bytes of two pixels looked up by byte shuffles, 64 channels at once (vpshufb), as this CPU has no "
        how += "vector popcount"
    elif name == "neon":
        how = "counts of bytes, 16 channels at once (cnt)"
    else:
        how = "ctpop on vectors, for which LLVM uses bit arithmetic"
    if "amx-int8" in features and name == "avx512":
        why = f"{isa.VARIABLE} asks for none" if os.environ.get(isa.VARIABLE) else isa.why_no_matrix_unit()
        how += f"; its matrix unit is not used: {why}"
    return f"{name}: {how}; QUANTARRAY_CPU={', '.join(isa.SETS)} forces one"


def gpu() -> dict[str, str] | str:
    """Describe the first GPU and how it multiplies bits, or say why there is none."""
    try:
        name, capability = first_gpu("info")
    except DeviceError as error:
        return f"none: {str(error).removeprefix('info: ')}"
    try:
        chosen = cuda_isa.best(capability)
        how = f"{chosen}: {cuda_isa.UNITS[chosen]}; {cuda_isa.VARIABLE}={', '.join(cuda_isa.UNITS)} forces one"
    except DeviceError as error:
        how = f"none: {error}"
    from ..cuda.runtime import on_disk  # which needs numba-cuda

    compiled: str = on_disk.described()
    version = ".".join(map(str, capability))
    return {"name": name, "compute capability": version, "kernels": how, "compiled": compiled}


def thread_layer() -> str:
    """Say which threading layer Numba runs on, for loops of other packages."""
    try:
        return str(numba.threading_layer())  # type: ignore[attr-defined]
    except ValueError:
        return "not started; chosen by the first parallel kernel"
