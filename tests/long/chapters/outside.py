"""Floats in, files, settings: quantisers, comparison, save and load, threads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw, values

SCHEMES = {
    "Sign": lambda b: qa.Sign(), "scaled Sign": lambda b: qa.Sign(scale=True), "XNOR": lambda b: qa.XNOR(),
    "Ternary": lambda b: qa.Ternary(), "Uniform": lambda b: qa.Uniform(b),
    "percentile": lambda b: qa.Uniform(b, percentile=99.0),
    "mse": lambda b: qa.Uniform(b, mse=True), "given": lambda b: qa.Uniform(b, step=0.5),
    "PowerOfTwo": lambda b: qa.PowerOfTwo(max(b, 2)), "DoReFa": lambda b: qa.DoReFa(b),
    "PACT": lambda b: qa.PACT(b, 2.0),
    "ABC": lambda b: qa.ABC(min(b, 4)), "LQ": lambda b: qa.LQ(min(b, 4)), "Greedy": lambda b: qa.Greedy(min(b, 4)),
    "LloydMax": lambda b: qa.LloydMax(b), "NormalFloat": lambda b: qa.NormalFloat(b),
    "Grouped": lambda b: qa.Grouped(b),
}  # fmt: skip
SLOW = {"ABC", "LQ", "Greedy", "LloydMax", "mse"}


def _quantize(d: Draw) -> Any:
    name, bits = d.among(*sorted(SCHEMES)), d.between(2, 8)
    shape = d.shape(d.among(1, 2, 3), 2**16 if name in SLOW else 2**21)
    x = d.dense(d.among(np.float32, np.float32, np.float64), shape)
    axis, each = d.between(-x.ndim, x.ndim - 1), d.flag(0.3)
    along = 0 if each and x.ndim > 1 and name != "Grouped" else None
    return lambda: qa.quantize(x, SCHEMES[name](bits), axis, along)


def _quantize_by_bits(d: Draw) -> Any:
    x, bits = d.dense(np.float32, d.shape(d.among(1, 2), 2**14)), d.between(1, 4)
    return lambda: qa.quantize(x, bits=bits)


def _choose(d: Draw) -> Any:
    x, bits = d.dense(np.float32, d.shape(d.among(1, 2), 2**14)), d.between(1, 4)
    return lambda: qa.choose(x, bits)


def _compare(d: Draw) -> Any:
    x, bits = d.dense(np.float32, d.shape(2, 2**14)), d.between(1, 3)
    return lambda: qa.compare(x, [qa.Uniform(bits + 1), qa.LloydMax(bits), qa.XNOR()])


def _allocate_bits(d: Draw) -> Any:
    x = d.dense(np.float32, (d.length(2**8), d.length(2**12)))
    method = d.among("greedy", "exact") if d.flag(0.2) else "greedy"
    return lambda: qa.allocate_bits(x, 2 * x.size, method=method)


def _save(d: Draw) -> Any:
    q = d.array(groups=0.1)

    def call() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "q.npz"
            qa.save(path, q)
            return qa.load(path)

    return call, lambda: values(q)


def _settings(d: Draw) -> Any:
    q = d.array(ndim=2, kinds=("bipolar",), most=2**12)

    def call() -> Any:
        qa.set_num_threads(qa.get_num_threads())
        with qa.device("cpu"):
            return q.sum(0)

    return call


def _assertions(d: Draw) -> Any:
    q = d.array()
    return lambda: (qa.testing.assert_array_equal(q, q.copy()), qa.testing.assert_allclose(q, q.copy()))


OPS = {
    "quantize": _quantize, "quantize by bits": _quantize_by_bits, "choose": _choose, "compare": _compare,
    "allocate_bits": _allocate_bits, "save": _save, "load": _save, "set_num_threads": _settings,
    "get_num_threads": _settings, "device": _settings, "testing": _assertions,
}  # fmt: skip
WEIGHTS = {"compare": 0.1, "choose": 0.1, "quantize by bits": 0.2, "save": 0.3, "load": 0.2, "quantize": 4.0}
