"""Public calls by chapter: `OPS[name](draw)` draws operands and gives the call, or the call and NumPy's way.

A name is that of the public function, perhaps with a note behind a space where there are several ways to call it.
"""

from . import layers, making, outside, products, reducing, refused, searching, shapes, values

OPS = {
    **making.OPS, **shapes.OPS, **values.OPS, **reducing.OPS, **searching.OPS, **products.OPS, **layers.OPS,
    **outside.OPS,
}  # fmt: skip
WEIGHTS = {**outside.WEIGHTS, **products.WEIGHTS, **layers.WEIGHTS}
TOO_LARGE = refused.CALLS
