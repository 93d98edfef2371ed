"""A case from start to end: each contender is prepared and its output compared, then they take turns."""

import os
import shutil
import subprocess
from unittest.mock import patch

import quantarray as qa
from quantarray.backends.diagnosis import version_of

from ..cpu.contenders import OURS
from ..cpu.rounds import unequal
from . import clock, contenders, limits

_ASKED = "clocks.sm,clocks.mem,power.draw,temperature.gpu"


class LostError(RuntimeError):
    """A kernel has failed so that nothing runs any more in this process."""


def described(xp):
    """Describe the device, the driver and the versions of the packages."""
    properties = xp.cuda.runtime.getDeviceProperties(0)
    name = properties["name"]
    return {
        "device": name.decode() if isinstance(name, bytes) else name,
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "driver": xp.cuda.runtime.driverGetVersion(),
        "cupy": xp.__version__,
        **{name: version_of(name) for name in ("numba-cuda", "torch")},
        "quantarray": qa.__version__,
    }


def measured(case, xp, rounds, rates):
    """(the row of a case, lines of what is wrong of ours). A peer that fails, or is wrong, is absent and says why."""
    entries, absent, wrong, expected = {}, {}, [], contenders.expected(case)
    for title, make in contenders.makers(case, xp).items():
        try:
            entry = make()
            with patch.dict(os.environ, entry.environment):
                outputs = entry.read(entry.call()), entry.read(entry.moved())
                how = next(filter(None, (unequal(expected, y, entry.tolerance) for y in outputs)), None)
        except Exception as error:
            how = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
            _check_context(xp, case, title, how)
            absent[title] = how
            if title == OURS:
                wrong.append(f"gpu: {case.name}: {title}: {how}")
            continue
        if how is None:
            entries[title] = entry
        else:
            absent[title] = f"wrong: {how}"
            wrong += [f"gpu: {case.name}: {title} is wrong: {how}"] if contenders.is_ours(title) else []
    try:
        times, no_graph = clock.times(xp, entries, rounds)
    except Exception as error:
        _check_context(xp, case, "timing", str(error))
        times, no_graph, wrong = {}, {}, [*wrong, f"gpu: {case.name}: timing: {type(error).__name__}: {error}"]
    row = {
        "case": case.name,
        "seconds": times,
        "absent": absent,
        "without_graph": no_graph,
        "limit": limits.least_seconds(case, *rates),
        "operations": 2 * case.products,
        "bytes": case.nbytes,
        "rates": rates,
        "clocks": clocks(),
    }
    del entries
    _give_back(xp)
    return row, wrong


def _check_context(xp, case, title, how):
    """Raise LostError if the context can run nothing more: after an invalid access or a kernel that did not end."""
    try:
        xp.cuda.runtime.deviceSynchronize()
    except Exception as error:
        raise LostError(
            f"{case.name}: {title}: {how}; nothing runs any more in this process ({error}); run the others with "
            f"--suite or --only"
        ) from None


def _give_back(xp):
    """Free the memory that CuPy and PyTorch hold unused, since the other library may need it."""
    xp.get_default_memory_pool().free_all_blocks()
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def clocks():
    """Ask nvidia-smi for clocks, temperature and power just after a case; None if it is missing or fails."""
    if not shutil.which("nvidia-smi"):
        return None
    done = subprocess.run(
        ["nvidia-smi", "--id=0", f"--query-gpu={_ASKED}", "--format=csv,noheader"], capture_output=True, text=True
    )
    return dict(zip(_ASKED.split(","), done.stdout.strip().split(", "), strict=False)) if not done.returncode else None
