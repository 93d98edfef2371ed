"""Public calls by chapter: `OPS[name](draw)` draws operands and gives the call, or the call and NumPy's equivalent.

A name is that of the public function, perhaps with a note after a space where there are several forms of the call.
"""

from . import layers, making, outside, products, reducing, refused, searching, shapes, values

OPS = {
    **making.OPS, **shapes.OPS, **values.OPS, **reducing.OPS, **searching.OPS, **products.OPS, **layers.OPS,
    **outside.OPS,
}  # fmt: skip
WEIGHTS = {**outside.WEIGHTS, **products.WEIGHTS, **layers.WEIGHTS}
TOO_LARGE = refused.CALLS
