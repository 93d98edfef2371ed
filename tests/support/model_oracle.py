"""Oracle: the steps of a model on values, by NumPy: sums of integers in int64, everything else in float32."""

import numpy as np
from float_products import summed
from numpy.lib.stride_tricks import sliding_window_view

from quantarray.nn.models.recipe import integers_of


class Value:
    """A value: integers times a scale (float64), or float32 values without one; `shape` is that of one sample."""

    def __init__(self, values, scale=None):
        self.raw, self.scale = values, scale
        self.shape = values.shape[1:]

    @property
    def floats(self):
        if self.scale is None:
            return self.raw
        scale = np.asarray(self.scale, np.float64)
        scale = scale.reshape(-1, *(1,) * (self.raw.ndim - 2)) if scale.ndim else scale
        return (self.raw * scale).astype(np.float32)


class Oracle:
    """A stand-in for `Recipe`: computes as it is called. `images` is what the models are run on."""

    images = None

    def __init__(self, model, parameters):
        self.parameters = parameters

    def input(self, shape, name="images"):
        assert self.images.shape[1:] == shape
        return Value(self.images.astype(np.int64), np.float64(np.float32(1 / 255)))

    def centred(self, x):
        return Value(x.floats * np.float32(2) - np.float32(1))

    def conv(self, x, name, outputs, kernel, stride=1, padding=None, groups=1, weights=1, bias=False):
        padding = kernel // 2 if padding is None else padding
        w = self.parameters(f"{name}.weight", (outputs, x.shape[0] // groups, kernel, kernel), None)
        if weights in ("bytes", "float"):
            out = Value(convolved(x.floats, floats_of(w, weights), stride, padding, groups))
        else:
            whole, scale = integers_of(w, weights)
            sums = convolved(x.raw, whole.astype(np.int64), stride, padding, groups)
            out = Value(sums, x.scale * scale.astype(np.float64))
        return Value(out.floats + self.parameters(f"{name}.bias", (outputs,), None)[:, None, None]) if bias else out

    def linear(self, x, name, outputs, weights=1, bias=False):
        x = self.flatten(x)
        w = self.parameters(f"{name}.weight", (outputs, x.shape[0]), None)
        if weights in ("bytes", "float"):
            out = Value(summed(x.floats, floats_of(w, weights).T))
        else:
            whole, scale = integers_of(w, weights)
            out = Value(x.raw @ whole.astype(np.int64).T, x.scale * scale.astype(np.float64))
        return Value(out.floats + self.parameters(f"{name}.bias", (outputs,), None)) if bias else out

    def norm(self, x, name, epsilon=1e-5):
        names = ("weight", "bias", "running_mean", "running_var")
        g, b, m, v = (
            self.parameters(f"{name}.{n}", x.shape[:1], None).reshape(-1, *(1,) * (len(x.shape) - 1)) for n in names
        )
        return Value(g * (x.floats - m) / np.sqrt(v + np.float32(epsilon)) + b)

    def sign(self, x):
        return Value(np.where(x.floats >= 0, 1, -1), np.float64(1))

    def codes(self, x, bits):
        if bits == 1:
            return self.sign(x)
        scale = np.float32(1 / (2**bits - 1))
        clipped = np.minimum(np.maximum(x.floats, np.float32(0)), np.float32(1))
        return Value(np.clip(np.rint(clipped / scale), 0, 2**bits - 1).astype(np.int64), np.float64(scale))

    def narrow(self, x, bits):
        if bits == 1:
            return self.sign(x)
        most = 2 ** (bits - 1) - 1
        scale = np.float32(1 / most)
        return Value(np.clip(np.rint(x.floats / scale), -most, most).astype(np.int64), np.float64(scale))

    def relu(self, x):
        return Value(np.maximum(x.floats, np.float32(0)))

    def max_pool(self, x, size, stride, padding=0):
        least = np.iinfo(np.int64).min if x.raw.dtype.kind == "i" else -np.inf
        positive = x.scale is None or np.all(np.asarray(x.scale) > 0)
        raw, scale = (x.raw, x.scale) if positive else (x.floats, None)
        return Value(windows(raw, size, stride, padding, least).max(axis=(-2, -1)), scale)

    def avg_pool(self, x, size, stride):
        from quantarray.nn.operators import OPERATORS

        a = {"kernel_shape": (size, size), "strides": (stride, stride), "pads": (0,) * 4, "ceil_mode": 1}
        return Value(OPERATORS["AveragePool"].run(a, x.floats))

    def global_pool(self, x):
        if x.scale is None:
            from quantarray.nn.operators import OPERATORS

            return Value(OPERATORS["GlobalAveragePool"].run({}, x.raw).reshape(len(x.raw), -1))
        return Value(x.raw.sum(axis=(2, 3)), x.scale / np.prod(x.shape[1:]))

    def flatten(self, x):
        return Value(x.raw.reshape(len(x.raw), -1), x.scale)

    def add(self, x, y):
        return Value(x.floats + y.floats)

    def concat(self, *x):
        return Value(np.concatenate([t.floats for t in x], axis=1))

    def pad(self, x, width, value):
        assert x.scale == 1
        return Value(
            np.pad(x.raw, [(0, 0), (0, 0), (width, width), (width, width)], constant_values=int(value)), x.scale
        )

    def graph(self, output, name="scores"):
        return output.floats


def floats_of(w, kind):
    if kind == "float":
        return w
    whole, scale = integers_of(w, kind)
    return (whole * scale.reshape(-1, *(1,) * (w.ndim - 1))).astype(np.float32)


def windows(x, size, stride, padding, fill):
    sides = padding if isinstance(padding, tuple) else (padding, padding)
    padded = np.pad(x, [(0, 0), (0, 0), sides, sides], constant_values=fill)
    return sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def convolved(x, w, stride, padding, groups):
    """Convolve in int64 by windows; float images in order, those of several groups by the package's NumPy operators."""
    seen = windows(x, w.shape[2], stride, padding, 0)
    n, _, height, width = seen.shape[:4]
    if x.dtype.kind == "f" and groups == 1:
        rows = seen.transpose(0, 2, 3, 4, 5, 1).reshape(n * height * width, -1)
        sums = summed(rows, w.transpose(2, 3, 1, 0).reshape(-1, len(w)))
        return sums.reshape(n, height, width, len(w)).transpose(0, 3, 1, 2)
    if x.dtype.kind == "f":
        from quantarray.nn.operators import OPERATORS

        a = {"kernel_shape": w.shape[2:], "strides": (stride, stride), "pads": (padding,) * 4, "group": groups}
        return OPERATORS["Conv"].run(a, x, w)
    seen = seen.reshape(n, groups, -1, *seen.shape[2:])
    taps = w.reshape(groups, -1, *w.shape[1:])
    out = np.einsum("ngchwij,gocij->ngohw", seen, taps, optimize=True)
    return out.reshape(n, len(w), height, width)
