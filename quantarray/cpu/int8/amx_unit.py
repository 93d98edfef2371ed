"""Find the matrix unit that multiplies bytes in this process, and what it changes for `costs.py`.

A unit that is to be used has to show first, once a process, that its products are right; `amx_trial.py` has it do so in
another process before, where nobody asked for it.
"""

import numpy as np

from ..llvm.vectors import LANES
from ..llvm.views import ByteWeights, Rows, RunSpan
from ..runtime import isa
from ..runtime.jit import entry
from . import dot_amx, dot_tile
from .dot_amx import dot_rows
from .interface import QUAD

_WORDS, _PIXELS = 3, 48  # two tiles of pixels at once, and one
_QUADS = 16  # of a word


@entry
def _multiply(unit, codes, stride, weights, fresh, totals):
    apart, beside = weights.size // 2, totals.size // 2
    spans = np.array([[0, 0, _QUADS], [_QUADS, _QUADS, apart // (LANES * QUAD) - _QUADS]])
    rows, blocks, sums = Rows(codes, 0, stride), ByteWeights(weights, 0, apart, 2), Rows(totals, 0, beside)
    dot_rows(unit, rows, _PIXELS, blocks, RunSpan(spans, 0, 2), fresh, sums)


def wrong(unit, multiply=_multiply):
    """Count the sums of a product, with the largest bytes among its operands, that differ from NumPy's."""
    rng, stride = np.random.default_rng(0), 64 * (_WORDS + 1)
    codes = rng.choice(np.array([0, 1, 127, 128, 255], np.uint8), (_PIXELS, stride))
    weights = rng.choice(np.array([-128, -1, 0, 1, 127], np.int8), (2, 64 * _WORDS // QUAD, LANES, QUAD))
    codes[0], weights[0, :, 0] = 255, -128
    totals = np.full((2, _PIXELS, LANES), -1, np.int32)
    multiply(unit, codes.reshape(-1), stride, weights.reshape(-1).view(np.uint8), True, totals)
    multiply(unit, codes.reshape(-1), stride, weights.reshape(-1).view(np.uint8), False, totals)
    quads = codes[:, : 64 * _WORDS].reshape(_PIXELS, -1, QUAD).astype(np.int64)
    expected = 2 * np.einsum("pqk,bqlk->bpl", quads, weights.astype(np.int64))
    return int((totals != expected).sum())


def find_unit():
    """Return the unit to pass to kernels, or None."""
    if isa.NAME == isa.EMULATED:
        return dot_amx.EmulatedTiles()
    if isa.NAME != "amx":
        return None
    unit = dot_amx.Tiles()
    if count := wrong(unit):
        raise ImportError(
            f"quantarray: AMX gave {count} wrong sums in a first product; please report this with the output of "
            f"`quantarray info`, and set {isa.VARIABLE}=avx512 to multiply by vector instructions"
        )
    return unit


UNIT = find_unit()
COUNTS_BY_SHUFFLES = UNIT is None and isa.COUNTING == "avx512bw"  # costs are in what counting by shuffles takes
_chosen = dot_tile if UNIT is None else dot_amx
DOTS = UNIT is not None or dot_tile.dot_tile is not None
DOT_PASSES, DOT_WIDE, DOT_ALONE = _chosen.DOT_PASSES, _chosen.DOT_WIDE, _chosen.DOT_ALONE
DOT_COPY, DOT_EXPAND = getattr(_chosen, "DOT_COPY", 0), getattr(_chosen, "DOT_EXPAND", 0)
