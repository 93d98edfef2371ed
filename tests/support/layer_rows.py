"""Random layers in a row, and a batch that the first of them takes."""

import numpy as np
from hypothesis import strategies as st

import quantarray as qa
from quantarray import nn

LEVELS = [(-1, 1), (-1, 0, 1), (0, 1), (0, 1, 2, 3), (-2, -1, 0, 1), (-3, -1, 1, 3), (0, 1, 4), range(8), range(-8, 8)]


class Row:
    """A list of layers that grows; x is what they give for the batch so far."""

    def __init__(self, draw):
        self.draw, self.layers = draw, []
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.nchw = draw(st.booleans())
        self.data_format = "NCHW" if self.nchw else "NHWC"
        self.input = self.x = self._batch()

    def _batch(self):
        c, h, w = self.draw(st.integers(1, 6)), self.draw(st.integers(3, 7)), self.draw(st.integers(3, 7))
        shape = (2, c, h, w) if self.nchw else (2, h, w, c)
        kind = self.draw(st.sampled_from(["codes", "codes", "int8", "uint8"]))
        if kind != "codes":
            return self.rng.integers(-128 if kind == "int8" else 0, 128 if kind == "int8" else 256, shape).astype(kind)
        return self.codes(shape, 1 if self.nchw else 3)

    def codes(self, shape, axis):
        levels = self.draw(st.sampled_from(LEVELS))
        return qa.encode(self.rng.choice(levels, shape), values=levels, axis=axis)

    def add(self, layer):
        self.layers.append(layer)
        self.x = layer(self.x)

    @property
    def channels(self):
        return self.x.shape[1 if self.nchw or self.x.ndim == 2 else -1]

    def thresholds(self, channels, spread):
        """Draw thresholds of all channels or of each, of either direction, to levels of any order."""
        count = self.draw(st.integers(1, 4))
        each = self.draw(st.booleans())
        values = np.sort(self.rng.integers(-spread, spread, (channels if each else 1, count)), axis=1)
        if self.draw(st.booleans()):
            values = values + np.float32(0.5)
        flags = [self.rng.random(channels) < 0.5 if each else bool(self.draw(st.booleans())) for _ in range(2)]
        low = int(self.draw(st.integers(-3, 3)))
        into = [None, qa.integers(range(low, low + count + 1)), qa.integers(sorted(range(0, 2 * count + 1, 2)))]
        into = [*into, qa.integers(*range(count, -1, -1)), qa.integers(*[k * k for k in range(count + 1)])]
        pick = self.draw(st.integers(0, len(into) - 1))
        by_rank = self.draw(st.booleans())
        return qa.Thresholds(values if each else values[0], per_channel=None if each else False, greater=flags[0],
                             strict=flags[1], into=into[pick], by_rank=by_rank)  # fmt: skip

    def requantize(self, channels, spread):
        return self.thresholds(channels, spread) if self.draw(st.booleans()) else None

    def conv(self):
        draw = self.draw
        c = self.channels
        groups = draw(st.sampled_from([g for g in (1, 2, 3, c) if c % g == 0]))
        outputs, kernel = groups * draw(st.integers(1, 3)), draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (1, 3)]))
        shape = (outputs, c // groups, *kernel) if self.nchw else (outputs, *kernel, c // groups)
        weight = self.codes(shape, 1 if self.nchw else 3)
        options = {"groups": groups, "padding": draw(st.sampled_from([0, 1, "same", ((1, 0), (0, 2))]))}
        options["stride"] = 1 if options["padding"] == "same" else draw(st.sampled_from([1, 2, (1, 2)]))
        options["flip_kernel"] = draw(st.booleans())
        if draw(st.booleans()):
            options["pad_value"] = draw(st.integers(-2, 2))
        if min(self.size) >= 5:
            options["dilation"] = draw(st.integers(1, 2))
        if draw(st.booleans()):
            options["bias"] = self.rng.integers(-9, 9, outputs)
        spread = 4 * c * kernel[0] * kernel[1]
        self.add(nn.Conv2d(weight, data_format=self.data_format, requantize=self.requantize(outputs, spread),
                           **options))  # fmt: skip

    @property
    def size(self):
        return self.x.shape[2:] if self.nchw else self.x.shape[1:3]

    def pool(self):
        real = not isinstance(self.x, qa.QuantArray) and self.x.dtype.kind == "f"  # sums of which no file has exactly
        layer = self.draw(st.sampled_from([nn.MaxPool2d, nn.MaxPool2d if real else nn.AvgPool2d]))
        options = {"stride": self.draw(st.sampled_from([None, 1, 2])), "padding": self.draw(st.integers(0, 1))}
        if layer is nn.AvgPool2d:
            options["requantize"] = self.requantize(self.channels, 4)
        self.add(layer(2, data_format=self.data_format, **options))

    def dense(self):
        k, outputs = int(np.prod(self.x.shape[1:])), self.draw(st.integers(1, 6))
        weight = self.codes((outputs, k), 1)
        bias = self.rng.integers(-9, 9, outputs) if self.draw(st.booleans()) else None
        self.add(nn.Dense(weight, self.requantize(outputs, 2 * k), bias=bias))

    def map(self):
        levels = np.array(self.x.dtype.levels)
        values = self.rng.permutation(levels) if self.draw(st.booleans()) else levels**2 % 17 - 1
        table = dict(zip(levels.tolist(), values.tolist(), strict=True))
        self.add(nn.Map(lambda v: np.array([table[int(i)] for i in v.ravel()]).reshape(v.shape),
                        of=self.x.dtype if self.draw(st.booleans()) else None))  # fmt: skip

    def threshold(self):
        axis = 1 if self.nchw and self.x.ndim == 4 else -1
        self.add(nn.Threshold(self.thresholds(self.channels, 20), axis=axis))


@st.composite
def rows(draw):
    """(Sequential, batch)."""
    row = Row(draw)
    for _ in range(draw(st.integers(1, 4))):
        packed = isinstance(row.x, qa.QuantArray)
        small = packed or row.x.dtype in (np.int8, np.uint8)
        able = ["pool"] * (row.x.ndim == 4 and min(row.size) >= 2)
        able += ["conv", "conv"] * (row.x.ndim == 4 and small and min(row.size) >= 3)
        able += ["map"] * packed + ["threshold"] * (not packed)
        if not able:
            break
        getattr(row, draw(st.sampled_from(able)))()
    if not isinstance(row.x, qa.QuantArray) and row.x.dtype not in (np.int8, np.uint8):
        row.threshold()
    if row.x.ndim == 4 and draw(st.booleans()):
        row.add(nn.GlobalAvgPool(data_format=row.data_format, requantize=row.requantize(row.channels, 4)))
    if isinstance(row.x, qa.QuantArray) and row.x.axis == row.x.ndim - 1 and draw(st.booleans()):
        row.dense()
    if row.x.ndim == 2 and not isinstance(row.x, qa.QuantArray) and draw(st.booleans()):
        row.add(qa.Affine(row.rng.normal(size=row.x.shape[1]), row.rng.normal(size=row.x.shape[1])))
    return nn.Sequential(row.layers), row.input
