"""Why a GPU can't be used, in one message with the cause and the fix. The CPU needs nothing of this."""

from __future__ import annotations

from functools import cache
from typing import Any

from .errors import DeviceError

INSTALL = "pip install 'quantarray[cuda13]'"
_STAY = "or stay on the device 'cpu'"
_LEAST = 7, 0  # compute capability: warp votes and shuffles that name their lanes
_LEAST_OF_CUDA13 = 7, 5  # for which the compilers of that toolkit still make code
_CUPY = "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"
_PTX, _NO_ROOM = "UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_OUT_OF_MEMORY"


@cache
def version_of(distribution: str) -> str | None:
    """The version of an installed distribution."""
    from importlib import metadata  # takes longer to import than this package's own files

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_wheels(op: str) -> None:
    """DeviceError where CuPy is installed twice, or for another major version of CUDA than the toolkit's wheels."""
    found = [name for name in _CUPY if version_of(name)]
    again = f"pip uninstall -y {' '.join(found)}, then {INSTALL}, {_STAY}"
    if len(found) > 1:
        raise DeviceError(
            f"{op}: {' and '.join(found)} are installed, which write to the same folder and break each other; {again}"
        )
    toolkit = version_of("cuda-toolkit")
    made_for = found[0].removeprefix("cupy-cuda").removesuffix("x") if found else ""
    if toolkit and made_for.isdigit() and made_for != toolkit.partition(".")[0]:
        raise DeviceError(f"{op}: {found[0]} is installed beside the wheels of CUDA {toolkit}; {again}")


def check_driver(op: str, runtime: Any) -> None:
    """DeviceError where there is no driver, or one that is older than what compiles kernels."""
    try:
        driver = int(runtime.driverGetVersion())
    except Exception:  # CuPy's own classes, which only an import of it would name
        driver = 0
    if not driver:
        raise DeviceError(
            f"{op}: there is no NVIDIA driver; install one, in a container start it with GPUs (docker run --gpus all), "
            f"{_STAY}"
        )
    toolkit = version_of("cuda-toolkit")
    if toolkit:
        major, minor = (int(n) for n in toolkit.split(".")[:2])
        if driver < 1000 * major + 10 * minor:
            raise DeviceError(_old_driver(op, f"{driver // 1000}.{driver % 1000 // 10}", f"{major}.{minor}"))


def _old_driver(op: str, driver: str, toolkit: str) -> str:
    return (
        f"{op}: the driver is for CUDA {driver} and refuses what the toolkit's wheels of CUDA {toolkit} compile; "
        f"install a driver for CUDA {toolkit} or newer, {_STAY}"
    )


def count(op: str, runtime: Any) -> int:
    """How many GPUs there are, at least one, or what CUDA says instead."""
    try:
        found = int(runtime.getDeviceCount())
        if not found:
            raise RuntimeError("it sees none; CUDA_VISIBLE_DEVICES may hide them")
    except Exception as error:
        raise DeviceError(f"{op}: no GPU can be used: {error}; see that nvidia-smi lists it, {_STAY}") from None
    return found


def check_capability(op: str, runtime: Any, number: int) -> None:
    """DeviceError where a GPU is older than the kernels' instructions."""
    found = runtime.getDeviceProperties(number)
    name, capability = found["name"], (found["major"], found["minor"])
    toolkit = version_of("cuda-toolkit")
    least = _LEAST_OF_CUDA13 if toolkit and int(toolkit.partition(".")[0]) >= 13 else _LEAST
    if capability < least:
        title = name.decode() if isinstance(name, bytes) else name
        compiler = "" if least == _LEAST else f" with the wheels of CUDA {toolkit}"
        raise DeviceError(
            f"{op}: cuda:{number}, {title}, has compute capability {capability[0]}.{capability[1]}, and kernels need "
            f"{least[0]}.{least[1]} or later{compiler}; choose another GPU, {_STAY}"
        )


def of_memory(what: str, free: int | None = None, total: int | None = None) -> MemoryError:
    """For an allocation on a GPU that found no room."""
    left = "" if free is None else f": {free:,} of its {total:,} bytes are free"
    return MemoryError(
        f"there is no room on the GPU for {what}{left}; take the work in parts, or give back what CuPy keeps with "
        f"cupy.get_default_memory_pool().free_all_blocks()"
    )


def of_driver(what: str, error: Exception) -> Exception | None:
    """What to raise for an error of Numba's calls of the driver; None where the cause is not known."""
    said = str(error)
    if _PTX in said:  # of a toolkit that is no wheel, or the version of the driver would have been seen
        return DeviceError(_old_driver(what, "an older version", version_of("cuda-toolkit") or "a newer one"))
    return of_memory(what) if _NO_ROOM in said else None
