"""The machine that a process runs on: its processor, and where the package keeps what it learnt about it."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/quantarray, in ~/.cache where that is not set; in %LOCALAPPDATA% on Windows."""
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "quantarray"


def cpu_name() -> str:
    """Return the processor's name as the system has it, or its architecture."""
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
