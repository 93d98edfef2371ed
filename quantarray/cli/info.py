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
from ..arrays.array import QuantArray
from ..backends.registry import first_gpu
from ..core.errors import DeviceError, FormatError
from ..core.machine import cpu_name
from ..cpu.runtime import isa, threads
from ..cuda.runtime import isa as cuda_isa
from ..io.container import load
from ..nn import load_network
from ..tuning import autotune
from . import output

FEATURES = ("popcnt", "avx2", "avx512f", "avx512vpopcntdq", "amx-int8", "neon")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("info", help="say what this machine or a file holds", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="a quantarray container or a network of plain integers")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    parser.set_defaults(command=info)


def info(args: argparse.Namespace) -> int:
    """The command."""
    if args.file is None:
        facts = machine()
        output.print_json(facts) if args.json else print(_text(facts))
        return 0
    if args.file.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"info: the file must end in .npz or .safetensors, got {str(args.file)!r}")
    try:
        q = load(args.file)
    except FormatError as not_container:
        _network(args, not_container)
    else:
        facts = container(q)
        output.print_json(facts) if args.json else print(f"{args.file}\n{_text(facts)}")
    return 0


def machine() -> dict[str, Any]:
    """Versions, processor, kernels, threads and GPU."""
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
        "autotune": autotuned(),
        "threads": {
            "count": numba.get_num_threads(),
            "pool": str(threads.described()),  # type: ignore[no-untyped-call]
            "layer": thread_layer(),
        },
        "gpu": gpu(),
    }


def kernels(name: str, features: set[str]) -> str:
    """Which kernels run here, and why."""
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


def autotuned() -> str:
    """Whether kernels are chosen by measurements."""
    named, found = os.environ.get(autotune.VARIABLE), autotune.known()
    if not named:
        return (
            f"no table: the cost model chooses; {autotune.VARIABLE}=PATH takes one, `quantarray tune NET.npz` makes one"
        )
    return f"{found} calls measured on this CPU, from {autotune.VARIABLE}={named}; the cost model chooses for others"


def gpu() -> dict[str, str] | str:
    """The first GPU and how bits are multiplied there, or why there is none."""
    try:
        name, capability = first_gpu("info")
    except DeviceError as error:
        return f"none: {str(error).removeprefix('info: ')}"
    try:
        chosen = cuda_isa.best(capability)
        how = f"{chosen}: {cuda_isa.UNITS[chosen]}; {cuda_isa.VARIABLE}={', '.join(cuda_isa.UNITS)} forces one"
    except DeviceError as error:
        how = f"none: {error}"
    return {"name": name, "compute capability": ".".join(map(str, capability)), "kernels": how}


def thread_layer() -> str:
    """Say which threading layer Numba runs on, for loops of other packages."""
    try:
        return str(numba.threading_layer())  # type: ignore[attr-defined]
    except ValueError:
        return "not started; chosen by the first parallel kernel"


def container(q: QuantArray) -> dict[str, Any]:
    """The fields of an array's repr."""
    constants = {name: list(a.shape) for name, a, _ in q.constants.items()}
    return {
        "shape": list(q.shape),
        "dtype": str(q.dtype),
        "bits": q.bits,
        "axis": q.axis,
        "group": q.group,
        "constants": constants,
        "bytes": q.nbytes,
        "float32 bytes": 4 * q.size,
        "digest": q.digest(),
    }


def _network(args: argparse.Namespace, not_container: FormatError) -> None:
    try:
        network = load_network(args.file)
    except FormatError as not_plain:
        # The reasons come behind the last mention of the file, which the message names once
        reasons = (str(e).partition(f"{args.file} ")[2] or str(e) for e in (not_container, not_plain))
        raise FormatError(f"info: {args.file} " + "; and it ".join(reasons)) from not_plain
    plain, rows = network.plain, output.layer_rows(network)
    if args.json:
        facts = {"network": plain.name, "input": list(plain.input.shape[1:]), "samples": len(plain.input)}
        output.print_json(facts | {"classes": plain.classes, "layers": rows})
        return
    print(output.heading(plain))
    print(output.layer_table(rows))
    print(f"samples: {len(plain.input)}, {'with' if plain.labels is not None else 'without'} labels")
    if plain.input_text:
        print(f"input: {plain.input_text}")


def _text(facts: dict[str, Any]) -> str:
    """Facts as lines; a dictionary inside becomes one line."""
    width = max(map(len, facts))
    return "\n".join(f"{name.ljust(width)}  {_value(value)}" for name, value in facts.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return " x ".join(map(str, value)) if all(isinstance(v, int) for v in value) else " ".join(value) or "none"
    return str(value)
