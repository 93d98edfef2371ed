"""Numba kernels for CPUs, in folders by what they compute; `quantarray.kernels.contract` has their interface."""

from .runtime import isa as isa  # before anything is compiled
from .runtime import notice as notice
