"""A product by and-popcount and a shortcut that is added to it: by tensor cores in one launch, whose epilogue adds."""

import numpy as np

from ..epilogue import added
from ..epilogue.finish import changes
from ..epilogue.shortcut import add_shortcut
from ..runtime import launch
from . import tiles
from .conv import TENSOR_CORES, conv, job, units_of


def conv_added(x, fixed, shortcut, finish, sums, over, out):
    dense, codes = sums.view(np.int32), out.size > 0
    asked = job(x, fixed, out if codes else dense)
    if asked is None:
        return
    (shape, terms, product, result), w, units = asked, fixed.w, units_of(asked, fixed)
    if units in TENSOR_CORES:
        last, form = added.prepared(shape, product, shortcut, finish, changes(finish), dense, over, codes)
        TENSOR_CORES[units].run(shape, terms, x.words, w.words, tiles.taps(fixed.plan), last, result, form)
        return
    values = dense if sums.size else launch.scratch((shape.rows, w.groups * w.group_lanes), np.int32)
    conv(x, fixed, values)
    add_shortcut(values, shortcut, finish, sums, over, out)
