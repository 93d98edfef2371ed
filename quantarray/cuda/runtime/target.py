"""Numba's CUDA target as numba-cuda has it, which replaces the one inside Numba, on every version of NumPy.

All that the package takes of it is imported here: its successor, numba-cuda-mlir, has other modules.
"""

import numba_cuda as numba_cuda  # takes the place of the CUDA target inside Numba, which is deprecated
import numpy as np
from numba import cuda as cuda
from numba.core import config as config
from numba.cuda import cgutils as cgutils
from numba.cuda import libdevice as libdevice
from numba.cuda import types as types
from numba.cuda.core.errors import RequireLiteralValue as RequireLiteralValue
from numba.cuda.extending import intrinsic as intrinsic

from ...backends import diagnosis

_REMOVED = "row_stack"  # from NumPy in 2.5; numba-cuda up to 0.30.4 overloads it


def import_overloads():
    """Import what numba-cuda else imports when it compiles its first kernel, under every version of NumPy.

    For that moment NumPy has the function that it no longer has; no kernel calls it.
    """
    if config.ENABLE_CUDASIM or hasattr(np, _REMOVED):
        return
    setattr(np, _REMOVED, np.vstack)
    try:
        import numba.cuda.np.arrayobj  # noqa: F401  # its overloads
    finally:
        delattr(np, _REMOVED)


def driver():
    """Import Numba's layer over the driver, which its simulator does not have."""
    from numba.cuda.cudadrv import driver

    return driver


diagnosis.check_target("CUDA kernels", cuda.__file__)
import_overloads()
