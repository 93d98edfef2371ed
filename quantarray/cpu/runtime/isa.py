"""Choose the instruction set that kernels are written for: the best of this CPU, or the one that `QUANTARRAY_CPU`
names.

`QUANTARRAY_CPU=portable`, `neon`, `avx2` or `avx512bw` also keeps Numba from using more than that, so that a machine of
today shows what an older one would do. It is read once, and works only where Numba has compiled nothing before. `amx`
is used unasked once its first product on the machine was right (docs/decisions/0010); `amx-emulated` is for tests: the
kernels for AMX on any CPU, with tiles in memory.
"""

import ctypes
import os
import platform

import llvmlite.binding
from numba.core import config

from . import amx_trial

VARIABLE = "QUANTARRAY_CPU"
_AVX512 = "avx512f", "avx512bw", "avx512dq", "avx512vl"
# name: (what the CPU must have, Numba's CPU name, whether Numba may use all features of this machine)
SETS = {
    "portable": ((), "generic", False),
    "neon": (("neon",), None, True),
    "avx2": (("avx2",), "haswell", False),
    "avx512bw": (_AVX512, "skylake-avx512", False),
    "avx512": ((*_AVX512, "avx512vpopcntdq"), None, True),
    "amx": ((*_AVX512, "avx512vpopcntdq", "avx512vnni", "amx-tile", "amx-int8"), None, True),
}
EMULATED = "amx-emulated"
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # Linux on x86-64


def _features():
    """Return the names of the CPU features that Numba compiles for."""
    if config.CPU_FEATURES is not None:
        return {name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+")}
    return {name for name, present in llvmlite.binding.get_host_cpu_features().items() if present}


def refusal():
    """Return why the system does not let this process use tile registers, or "". Threads and forks inherit the
    permission.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"it is not known how to ask {platform.system()} for the registers of AMX"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0:
        return ""
    return f"Linux does not give this process the registers of AMX: {os.strerror(ctypes.get_errno())}"


def why_no_matrix_unit() -> str:
    """Return why AMX is not used unasked on a CPU that has it, or ""."""
    return refusal() or amx_trial.verdict("amx", _features(), VARIABLE)


def _force(name):
    known = ", ".join(SETS)
    if name == EMULATED:
        return name
    if name not in SETS:
        raise ImportError(f"quantarray: {VARIABLE} must be one of {known}, got {name!r}")
    needed, cpu, everything = SETS[name]
    host = {feature for feature, present in llvmlite.binding.get_host_cpu_features().items() if present}
    if missing := [feature for feature in needed if feature not in host]:
        raise ImportError(
            f"quantarray: {VARIABLE}={name} needs a CPU with {', '.join(missing)}; unset it, or use portable"
        )
    if name == "amx" and (why := refusal()):
        raise ImportError(f"quantarray: {VARIABLE}={name}: {why}; unset it, or use avx512")
    if not everything:
        config.CPU_NAME = cpu if platform.machine() in ("x86_64", "AMD64") or cpu == "generic" else None
        config.CPU_FEATURES = ""
    return name


def _best():
    """Return the last set whose features Numba may use; one with a matrix unit must have passed its first product."""
    features = _features()
    usable = [name for name, (needed, _, _) in SETS.items() if features.issuperset(needed)]
    return usable[-2] if usable[-1] == "amx" and why_no_matrix_unit() else usable[-1]


NAME = _force(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _best()
# Whose kernels count: tiles in memory leave that to what this CPU has, as both have one cache of compiled kernels
COUNTING = _best() if NAME == EMULATED else NAME
FEATURES = frozenset(_features())
# LLVM's names of CPUs that multiply 128 bytes by VNNI in the time in which they count 8 words; others multiply 64
_FAST_DOTS = "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids"
FAST_DOTS = NAME == "avx512" and llvmlite.binding.get_host_cpu_name() in _FAST_DOTS
