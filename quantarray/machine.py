"""The machine that a process runs on, as far as times of kernels depend on it."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path


@cache
def facts() -> dict[str, str]:
    """Processor, micro-kernels, a digest of the features that Numba compiles for, and versions.

    `target` is LLVM's name of the processor: virtual machines may call several generations by one name.
    """
    import llvmlite.binding
    import numba  # not with the package: it takes longer to import than all the rest

    from . import __version__
    from .cpu import isa

    return {
        "cpu": cpu_name(),
        "target": llvmlite.binding.get_host_cpu_name(),
        "kernels": isa.NAME,
        "features": hashlib.sha256(" ".join(sorted(isa.FEATURES)).encode()).hexdigest()[:16],
        "quantarray": __version__,
        "numba": numba.__version__,
    }


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/quantarray, in ~/.cache where that is not set; in %LOCALAPPDATA% on Windows."""
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "quantarray"


def cpu_name() -> str:
    """The processor's name as the system has it, or its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or platform.machine()
    return platform.processor() or platform.machine()
