"""Layers: convolutions, pooling, thresholds, and the classes of `qa.nn`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw
from .products import FACTORS

WORK = 2**28


def image(d: Draw, bits: int = 4, law: Any = None) -> Any:
    n, h, w, c = d.between(1, 4), d.length(128), d.length(128), d.length(512)
    while n * h * w * c > 2**21:
        h, w, c = max(1, h // 2), max(1, w // 2), max(1, c // 2)
    return d.array(shape=(n, h, w, c), axis=3, law=law or d.dtype(bits, FACTORS), vary=0, groups=0)


def _weight(d: Draw, x: Any, size: int, groups: int = 1) -> Any:
    outputs = d.length(256)
    n = x.shape[0] * x.shape[1] * x.shape[2] * x.shape[3] * size * size
    outputs = max(1, min(outputs, WORK // max(1, n)))
    shape = (outputs, size, size, x.shape[3] // groups)
    return d.array(shape=shape, axis=3, law=d.dtype(4, FACTORS), vary=0, groups=0)


def thresholds(d: Draw, channels: int) -> Any:
    count, each = d.between(1, 3), d.flag(0.3)
    if each:
        return qa.Thresholds(np.sort(d.contents.integers(-40, 40, (channels, count)), axis=1))
    return qa.Thresholds(np.sort(d.choices.integers(-40, 40, count))[None].repeat(channels, 0))


def _conv2d(d: Draw) -> Any:
    x, size, nchw = image(d), d.among(1, 2, 3, 5), d.flag(0.2)
    w = _weight(d, x, size)
    options: dict[str, Any] = {"padding": d.between(size // 2, 3), "stride": d.among(1, 1, 2, (2, 1))}
    options["dilation"] = d.among(1, 1, 2) if d.flag(0.2) else 1
    options["padding"] = max(options["padding"], size) if options["dilation"] == 2 else options["padding"]
    if d.flag(0.2):
        options["requantize"] = thresholds(d, w.shape[0])
    if nchw:
        return lambda: qa.conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), data_format="NCHW", **options)
    return lambda: qa.conv2d(x, w, **options)


def _grouped(d: Draw) -> Any:
    groups, each = d.among(2, 4, 8), d.among(1, 2, 16, 64)
    n, h, w = 1, d.length(64), d.length(64)
    law = d.dtype(2, ("bipolar", "ternary", "uint"))
    x = d.array(shape=(n, h, w, groups * each), axis=3, law=law)
    weight = d.array(shape=(groups * d.among(1, 2), 3, 3, each), axis=3, law=law)
    return lambda: qa.conv2d(x, weight, padding=1, groups=groups)


def _depthwise(d: Draw) -> Any:
    x = image(d, 2)
    c = x.shape[3]
    w = d.array(shape=(c, 3, 3, 1), axis=0, law=d.dtype(2, ("bipolar", "ternary", "uint", "scaled")), vary=0, groups=0)
    return lambda: qa.conv2d(x, w, padding=1, groups=c)


def _adjoint(d: Draw, axes: int, of: str) -> Any:
    """Draw the gradient of a convolution in its images or in its weights, of packed operands."""
    x, size = image(d, 2)[:2, :24, :24], d.between(1, 3)
    x = {1: x[:, 0], 2: x, 3: x[:1, None]}[axes]
    outputs, law = d.among(1, 5, 64), (qa.ternary, False)
    taps = (min(size, n) for n in x.shape[1:-1])
    w = d.array(shape=(outputs, *taps, x.shape[-1]), axis=axes + 1, law=law, groups=0)
    lengths = tuple(n - k + 1 for n, k in zip(x.shape[1:-1], w.shape[1:-1], strict=True))
    g = d.array(shape=(len(x), *lengths, outputs), axis=axes + 1, law=law, groups=0)
    call = getattr(qa, f"conv{axes}d_{of}_adjoint")
    return lambda: call(*((g, w) if of == "data" else (x, g)), size=(x if of == "data" else w).shape[1:-1])


def _of_axes(d: Draw, axes: int, transposed: bool) -> Any:
    """Draw a convolution of lines or volumes, or a transposed one of one to three axes, as a function or a layer."""
    x, size = image(d, 2)[:2, :24, :24], d.between(1, 3)
    x = {1: x[:, 0], 2: x, 3: x[:1, None]}[axes]
    outputs = max(1, min(d.length(64), WORK // max(1, x.size * size**axes)))
    taps = (size,) * axes if axes < 3 else (1, size, size)
    w = d.array(shape=(outputs, *taps, x.shape[-1]), axis=-1, law=d.dtype(2, FACTORS), vary=0, groups=0)
    options: dict[str, Any] = {"padding": "same", "stride": d.between(1, 2)}
    if d.flag(0.2):
        options["requantize"] = thresholds(d, outputs)
    if d.flag(0.3):
        options["data_format"] = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[axes]
        order = (0, axes + 1, *range(1, axes + 1))
        x, w = x.transpose(*order), w.transpose(*order)
    name = f"{'conv_transpose' if transposed else 'conv'}{axes}d"
    if d.flag(0.3):
        layer = getattr(qa.nn, name.title().replace("_", "").replace("D", "d"))
        return lambda: layer(w, **options)(x)
    return lambda: getattr(qa, name)(x, w, **options)


def _residual(d: Draw) -> Any:
    """Draw a shortcut of codes or bytes, by itself or in a convolution."""
    x = image(d, 2)[:2, :24, :24]
    other = x if d.flag(0.5) else d.dense(d.among(np.int8, np.int16, np.int32, np.float32), x.shape, -50, 50)
    options: dict[str, Any] = {}
    if d.flag(0.6):
        options = {"requantize": thresholds(d, x.shape[3]), "return_sum": d.flag(0.5)}
    if d.flag(0.3):
        return lambda: qa.nn.Add(**options)([x, other])
    if d.flag(0.4) or x.size * x.shape[3] > WORK:
        return lambda: qa.add_residual(x, other, **options)
    w = d.array(shape=(x.shape[3], 1, 1, x.shape[3]), axis=3, law=d.dtype(2, ("bipolar", "ternary")), vary=0, groups=0)
    return lambda: qa.conv2d(x, w, residual=other, **options)


def _channels(d: Draw) -> Any:
    """Cut, shuffle and join channels."""
    x, groups = image(d, 4), d.among(1, 2, 3, 4)
    x = x[..., : x.shape[-1] // groups * groups]
    if d.flag(0.3):
        return lambda: qa.channel_shuffle(x, groups)
    layers = [qa.nn.ChannelShuffle(groups), qa.nn.Split(groups), qa.nn.Concat()]
    return lambda: qa.nn.Sequential(layers)(x)


def _first(d: Draw) -> Any:
    """Draw a convolution of an image of bytes, as a first layer has it."""
    n, h, w, c = 1, d.length(256), d.length(256), d.among(1, 3)
    x = d.dense(d.among(np.uint8, np.int8), (n, h, w, c), 0, 100)
    weight = d.array(shape=(d.length(64), 3, 3, c), axis=3, law=d.dtype(2, ("bipolar", "ternary")), vary=0, groups=0)
    return lambda: qa.conv2d(x, weight, padding=1)


def _pooled(d: Draw, bits: int, axes: int) -> tuple[Any, int, dict[str, Any], str]:
    """Draw an image of one to three axes, the length of a window, its arguments and the number of axes."""
    x, size = image(d, bits), d.between(1, 3)
    x = {1: x[:, 0], 2: x, 3: x[:1, None]}[axes]
    options: dict[str, Any] = {"ceil_mode": d.flag(0.3), "padding": size // 2}
    if axes == 3:
        options["padding"] = "same"
    if d.flag(0.2):
        options["stride"] = d.between(1, 3)
    if d.flag(0.3):
        options["data_format"] = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[axes]
        x = x.transpose(0, axes + 1, *range(1, axes + 1))
    return x, size, options, f"pool{axes}d"


def _max_pool(d: Draw, axes: int) -> Any:
    x, size, options, name = _pooled(d, 8, axes)
    if d.flag(0.3):
        options["return_indices"] = True
    if d.flag(0.2):
        return lambda: getattr(qa.nn, f"Max{name.capitalize()}")(size, **options)(x)
    return lambda: getattr(qa, f"max_{name}")(x, size, **options)


def _avg_pool(d: Draw, axes: int) -> Any:
    x, size, options, name = _pooled(d, 4, axes)
    options["count_include_pad"] = d.flag(0.3)
    if d.flag(0.3):
        channels = x.shape[1 if "data_format" in options else -1]
        options["requantize"] = qa.Thresholds([[0.5]] * channels)
    if d.flag(0.2):
        return lambda: getattr(qa.nn, f"Avg{name.capitalize()}")(size, **options)(x)
    return lambda: getattr(qa, f"avg_{name}")(x, size, **options)


def _thresholds(d: Draw) -> Any:
    """Draw a call of thresholds on a dense array."""
    shape, kind = d.shape(d.among(1, 2, 3), 2**22), d.among(np.int32, np.int64, np.float32)
    x = d.dense(kind, shape, -50, 50)
    t = (
        qa.Thresholds(np.sort(d.choices.integers(-40, 40, (1, d.between(1, 7)))).repeat(shape[-1], 0))
        if shape[-1] and shape[-1] < 2**10
        else qa.Thresholds([0])
    )
    return lambda: (t(x), t.channels, t == t, hash(t))


def _fold_batchnorm(d: Draw) -> Any:
    n, bits = d.length(2**10), d.between(1, 4)
    gamma, beta, mean = (d.contents.standard_normal(n) for _ in range(3))
    into = qa.Sign() if bits == 1 else qa.Uniform(bits, step=0.5)
    d.operand(gamma)
    return lambda: qa.fold_batchnorm(gamma, beta, mean, np.ones(n), into=into).values


def _fold(d: Draw) -> Any:
    n, bits = d.length(2**8), d.between(1, 4)
    slope, end = d.contents.random(n), d.among(10, 300, 2**20)
    into = qa.Sign() if bits == 1 else qa.Uniform(bits, step=0.5)
    d.operand(slope)
    return lambda: qa.fold(lambda v: np.where(v < 0, slope * v, v), into=into, of=range(-end, end)).values


def _network(d: Draw) -> Any:
    x = image(d, 1, (qa.bipolar, False))
    first = d.array(shape=(64, 3, 3, x.shape[3]), axis=3, law=(qa.bipolar, False))
    h, w = x.shape[1] // 2, x.shape[2] // 2
    if not h or not w:
        return lambda: qa.nn.Conv2d(first, padding=1)(x)
    last = d.array(shape=(10, h * w * 64), axis=1, law=(qa.bipolar, False))
    conv = qa.nn.Conv2d(first, padding=1, requantize=qa.Thresholds([[0]] * 64))
    layers = [conv, qa.nn.MaxPool2d(2), qa.nn.Dense(last)] if last.shape[1] == h * w * 64 else [conv]

    def call() -> Any:
        y = x
        for layer in layers:
            y = layer(y)
        return y

    return call


def _layers(d: Draw) -> Any:
    """Draw a convolution of any arguments, thresholds, a function of levels and a pool, as one `Sequential`."""
    x = image(d, 2)[:1, :32, :32]  # the dense results between layers are no operands, to which memory is compared
    options: dict[str, Any] = {"padding": 1, "dilation": 1 + d.flag(0.2), "flip_kernel": d.flag(0.2)}
    w, nchw = _weight(d, x, 3), d.flag(0.2)
    options["padding"] += options["dilation"]
    if d.flag(0.3):
        options["bias"] = d.contents.integers(-9, 9, w.shape[0])
    cut, order = thresholds(d, w.shape[0]), (0, 3, 1, 2)
    pools = (qa.nn.AvgPool2d, qa.nn.MaxPool2d)
    data_format: Any = "NCHW" if nchw else "NHWC"
    last = d.among(qa.nn.GlobalAvgPool(data_format=data_format), d.among(*pools)(2, data_format=data_format))

    def call() -> Any:
        conv = qa.nn.Conv2d(w.transpose(*order) if nchw else w, data_format=data_format, **options)
        cut_layer = qa.nn.Threshold(cut, axis=1 if nchw else -1)
        return qa.nn.Sequential([conv, cut_layer, qa.nn.Map(np.square), last])(x.transpose(*order) if nchw else x)

    return call


OPS = {
    "conv2d": _conv2d, "conv2d of groups": _grouped, "conv2d depthwise": _depthwise, "conv2d of bytes": _first,
    **{f"conv{n}d": partial(_of_axes, axes=n, transposed=False) for n in (1, 3)},
    **{f"conv{n}d_{of}_adjoint": partial(_adjoint, axes=n, of=of) for n in (1, 2, 3) for of in ("data", "filter")},
    **{f"conv_transpose{n}d": partial(_of_axes, axes=n, transposed=True) for n in (1, 2, 3)},
    **{f"max_pool{n}d": partial(_max_pool, axes=n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": partial(_avg_pool, axes=n) for n in (1, 2, 3)},
    "channel_shuffle": _channels, "add_residual": _residual, "Thresholds": _thresholds,
    "fold": _fold, "fold_batchnorm": _fold_batchnorm, "nn": _network, "nn layers": _layers,
}  # fmt: skip
WEIGHTS = {"conv2d": 3.0, "fold": 0.3, "fold_batchnorm": 0.3}
