"""Numba kernels for CPUs. The contract is `quantarray.kernels.contract`; a file here has one kernel and its driver."""

from . import isa as isa  # before anything is compiled
from . import notice as notice
