"""Diagnosis of a GPU that can't be used: one message with the cause and the fix. The CPU needs nothing of this."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ..core.errors import DeviceError
from ..core.forks import no_fork

_STAY = "or stay on the device 'cpu'"
_LEAST = 7, 0  # compute capability: warp votes and shuffles that name their lanes
_LEAST_OF_CUDA13 = 7, 5  # for which the compilers of that toolkit still make code
_CUPY = "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x"
_LATEST = 13
# The compiler's wheel and nvJitLink's, by the version of CUDA that there is an extra for; PyTorch brings the linker of
# its own version, which may be the other one
_WHEELS = {12: ("nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12"), 13: ("nvidia-nvvm", "nvidia-nvjitlink")}
# What errors of a launch say: the driver has to compile PTX that it does not know, nvJitLink is older than what it is
# given, a library is missing, there is no memory
_PTX, _OUTDATED = "UNSUPPORTED_PTX_VERSION", ("ERROR_OUTDATED_LIBRARY", "Unsupported .version")
_MISSING, _NO_ROOM = "Failure finding", "CUDA_ERROR_OUT_OF_MEMORY"


@cache
def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution."""
    with no_fork:
        from importlib import metadata  # takes longer to import than this package's own files

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def install() -> str:
    """Return the line that installs what a GPU needs, for the CUDA version of the toolkit's wheels if there are any."""
    if version_of("cuda-toolkit"):
        return _extra(_toolkit())
    return f"{_extra(_LATEST)} (with a driver before 580, cuda12)"


def check_wheels(op: str) -> None:
    """Raise DeviceError where wheels of CUDA are installed that don't go together."""
    wheels = [name for name in _CUPY if version_of(name)]
    again = f"{_without_cupy(wheels)}{install()}, {_STAY}"
    if len(wheels) > 1:
        raise DeviceError(
            f"{op}: {' and '.join(wheels)} are installed, which write to the same folder and break each other; {again}"
        )
    toolkit = version_of("cuda-toolkit")
    made_for = wheels[0].removeprefix("cupy-cuda").removesuffix("x") if wheels else ""
    if toolkit and made_for.isdigit() and made_for != toolkit.partition(".")[0]:
        raise DeviceError(f"{op}: {wheels[0]} is installed beside the wheels of CUDA {toolkit}; {again}")
    compiler, linker = map(version_of, _WHEELS[_toolkit()])
    if compiler and linker and _minor(linker) < _minor(compiler):
        older = f", or a toolkit that is not newer (pip install 'cuda-toolkit=={'.'.join(linker.split('.')[:2])}.*')"
        raise DeviceError(_old_linker(op, f" {linker}", f" {compiler}", older))


def check_target(op: str, imported: str) -> None:
    """Raise DeviceError where `numba.cuda`, imported from that file, is the target inside Numba and not numba-cuda's.

    numba-cuda redirects the import by a .pth file, which Python reads in its own site-packages only.
    """
    if "numba_cuda" not in Path(imported).parts:
        raise DeviceError(
            f"{op}: numba.cuda comes from {imported} and not from numba-cuda, whose .pth file Python has not read: it "
            f"reads none in a folder of pip install --target or of PYTHONPATH; install into a virtual environment, or "
            f"call site.addsitedir(FOLDER) before the first import of numba, {_STAY}"
        )


def check_driver(op: str, runtime: Any) -> None:
    """Raise DeviceError where there is no driver, or one that cannot run what the toolkit's wheels make.

    Kernels are machine code when nvJitLink has linked them, and a driver runs that of all toolkits of its major
    runs. Without nvJitLink they are PTX, and a driver compiles none of a newer toolkit than its own.
    """
    try:
        driver = int(runtime.driverGetVersion())
    except Exception:  # CuPy's own classes, which only an import of it would name
        driver = 0
    if not driver:
        raise DeviceError(
            f"{op}: there is no NVIDIA driver; install one, in a container start it with GPUs (docker run --gpus all), "
            f"{_STAY}"
        )
    toolkit, runs = version_of("cuda-toolkit"), (driver // 1000, driver % 1000 // 10)
    if toolkit and runs[0] < _minor(toolkit)[0]:
        wheels = [name for name in _CUPY if version_of(name)]
        older = f", or {_without_cupy(wheels)}{_extra(runs[0])}" if runs[0] in _WHEELS else ""
        raise DeviceError(
            f"{op}: the driver is for CUDA {runs[0]}.{runs[1]} and runs nothing that wheels of CUDA {toolkit} make; "
            f"install a driver for CUDA {_minor(toolkit)[0]} or newer{older}, {_STAY}"
        )
    if toolkit and runs < _minor(toolkit) and not version_of(_WHEELS[_toolkit()][1]):
        raise DeviceError(_old_driver(op, f"for CUDA {runs[0]}.{runs[1]}", toolkit, f"{runs[0]}.{runs[1]}.*"))


def _toolkit() -> int:
    """Return the CUDA version of the toolkit's wheels, as far as there is an extra for it, or the latest."""
    major = _minor(version_of("cuda-toolkit") or str(_LATEST))[0]
    return major if major in _WHEELS else _LATEST


def _extra(cuda: int) -> str:
    return f"pip install 'quantarray[cuda{cuda}]'"


def _without_cupy(wheels: list[str]) -> str:
    """Say how to remove these wheels first: pip leaves CuPy for one CUDA version in place beside that for another."""
    return f"pip uninstall -y {' '.join(wheels)}, then " if wheels else ""


def _minor(version: str) -> tuple[int, ...]:
    """Split off the major and minor version."""
    return tuple(int(n) for n in version.split(".")[:2])


def _old_driver(op: str, driver: str, toolkit: str, version: str) -> str:
    return (
        f"{op}: the driver, {driver}, has to compile what CUDA {toolkit} makes, and it is too old for that; let "
        f"nvJitLink do it (pip install -U {_WHEELS[_toolkit()][1]}), or take the driver's own toolkit (pip install "
        f"'cuda-toolkit=={version}'), or a newer driver, {_STAY}"
    )


def _old_linker(op: str, linker: str = "", compiler: str = "", older: str = "") -> str:
    return (
        f"{op}: nvJitLink{linker} is older than the compiler{compiler}, whose code it refuses; "
        f"pip install -U {_WHEELS[_toolkit()][1]}{older}, {_STAY}"
    )


def count(op: str, runtime: Any) -> int:
    """Count the GPUs, at least one, or raise what CUDA says instead."""
    try:
        gpus = int(runtime.getDeviceCount())
        if not gpus:
            raise RuntimeError("it sees none; CUDA_VISIBLE_DEVICES may hide them")
    except Exception as error:
        raise DeviceError(f"{op}: no GPU can be used: {error}; see that nvidia-smi lists it, {_STAY}") from None
    return gpus


def check_capability(op: str, runtime: Any, number: int) -> None:
    """Raise DeviceError where a GPU is older than the kernels' instructions."""
    properties = runtime.getDeviceProperties(number)
    name, capability = properties["name"], (properties["major"], properties["minor"])
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
    """Describe an allocation on a GPU that had no room."""
    left = "" if free is None else f": {free:,} of its {total:,} bytes are free"
    return MemoryError(
        f"there is no room on the GPU for {what}{left}; take the work in parts, or give back what CuPy keeps with "
        f"cupy.get_default_memory_pool().free_all_blocks()"
    )


def of_driver(what: str, error: Exception) -> Exception | None:
    """Return the error to raise for one of Numba's launches or its compiler; None where the cause is not known."""
    said = str(error)
    if _PTX in said:  # of a toolkit that is no wheel, or the version of the driver would have been seen
        return DeviceError(_old_driver(what, "of an older version", version_of("cuda-toolkit") or "of now", "13.0.*"))
    if any(part in said for part in _OUTDATED):
        return DeviceError(_old_linker(what))
    if _MISSING in said:
        library = said.partition(_MISSING)[2].split(":")[0].strip(' "')
        return DeviceError(
            f"{what}: the CUDA toolkit's {library} is not found; install it with {install()}, or let CUDA_HOME name "
            f"the toolkit's folder, {_STAY}"
        )
    return of_memory(what) if _NO_ROOM in said else None
