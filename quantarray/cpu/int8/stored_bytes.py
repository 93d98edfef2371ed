"""Codes as bytes between two kernels that multiply bytes, instead of planes that one packs and the next expands.

Words are then uint64[1 rows 8 * words], a byte a code and zeros after the channels; a kernel sees it by the one plane
for several bits. A plan of a network decides it (`quantarray/nn/plan/stored_bytes.py`).
"""

import numpy as np

from ...kernels.operands import Cuts, Finish, Left, Right, Taps
from ..bits.look_up import _look_up
from ..epilogue.elementwise import _elementwise
from ..epilogue.finish import codes_are_ranks
from ..reduction.pool import _pool_rows
from .amx_unit import UNIT
from .winograd import _winograd_range, small_bytes_of_levels

# Planes: of fewer, storing and expanding them takes no longer than more memory does. Of 4, bytes gained 12 % of a
# network without a matrix unit, and lost 2 % with one
LEAST = 4 if UNIT is None else 5


def codes_read(kernel, arguments, held):
    """Return the words of codes that a launch of a kernel may read as bytes."""
    if not kernel.of_bytes:
        return []
    if kernel is _look_up:
        return [a for a in arguments[:2] if len(a) > 1]
    if kernel is _pool_rows:
        words, *_, places, _ = arguments
        return [words] if len(words) > 1 and not places else []
    if kernel is _winograd_range and small_bytes_of_levels.py_func(held.arguments[0].w.terms)[2]:
        return []  # it counts the bits of pixels
    x = next((one for one in arguments if isinstance(one, Left)), None)
    if x is None:
        return []
    planes, dtype = x.words.shape[0], x.words.dtype
    whole = dtype == np.uint64 and planes > 1 and x.terms[:, :2].tolist() == [[0, planes]]
    return [x.words] if whole else []


def codes_written(kernel, arguments, held):
    """Return the words of codes that a launch of a kernel may write as bytes; None where it may not."""
    *_, out = (one for one in arguments if isinstance(one, np.ndarray))
    if not kernel.of_bytes or out.ndim != 3 or out.shape[0] < LEAST:
        return None
    if kernel is _look_up:
        return out
    if kernel is _pool_rows:
        *_, places, _ = arguments
        return None if places else out  # numbers of taps are codes of their own
    if kernel is _elementwise:
        *_, limits, _, _, _, _, _ = arguments
        return out if len(limits) == (1 << len(out)) - 1 else None
    operands = held.arguments[0] if kernel.takes else arguments  # of a product, what is held
    groups = [one.groups for one in operands if isinstance(one, Right)]
    copies = [len(one.values) for one in operands if isinstance(one, Taps)]
    (last,) = (one for one in operands if isinstance(one, (Finish, Cuts)))
    ranks = isinstance(last, Cuts) or codes_are_ranks.py_func(last.thresholds, last.toggles)
    return out if ranks and all(number == 1 for number in (*groups, *copies)) else None
