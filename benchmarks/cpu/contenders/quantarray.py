"""This package: packed words in, packed words or numbers out; one title, so that tables can point at it."""

import numba
import numpy as np

import quantarray as qa
from quantarray.nn import load_network

from ..cases import Bases, Conv, Network, Pack, Product, Search, Unpack, levels
from . import OURS, Entry


def version():
    return qa.__version__


def entries(case, threads):
    numba.set_num_threads(threads)
    return {OURS: MAKERS[type(case)](case)}


def packed(x, bits, axis=-1):
    """Pack values of `draw`; 8-bit ones are returned unchanged."""
    return x if bits == 8 else qa.encode(x, values=levels(bits), axis=axis)


def conv(case):
    inputs = case.inputs()
    w = qa.encode(inputs["w"], values=levels(case.bits[1]), axis=0 if case.depthwise else -1)
    how = {"stride": case.stride, "padding": case.padding, "groups": case.groups}
    if case.out == "float32":
        x, sign = inputs["x"].astype(np.float32), qa.Sign()
        return Entry(lambda: qa.conv2d(qa.quantize(x, sign), w, out_dtype=np.float32, **how), np.asarray)
    x = packed(inputs["x"], case.bits[0])
    if case.out == "int32":
        return Entry(lambda: qa.conv2d(x, w, **how), np.asarray)
    cut = qa.Thresholds([0])
    return Entry(lambda: qa.conv2d(x, w, requantize=cut, **how), lambda y: y.codes() != 0)


def bases(case):
    """-1 and 1 by a scale s are a basis of scale 2 s and offset -s."""
    inputs, constants = case.inputs(), {"x": case.steps, "w": case.masks}
    operands = {}
    for name, scale in constants.items():
        scale = np.float32(scale).reshape(3, 1, 1, 1, 1) * (1 if name == "x" else case.factors[:, None, None, None])
        codes = sum(mask << i for i, mask in enumerate(inputs[f"{name}_bits"]))
        operands[name] = qa.from_codes(codes, qa.basis(3), scale=2 * scale, offset=-scale.sum(0))
    x, w = operands["x"], operands["w"]
    if case.out == "float32":
        return Entry(lambda: qa.conv2d(x, w, padding=case.padding), np.asarray, 1e-5)
    cuts = qa.Thresholds(case.cuts, into=qa.basis(3), scale=[1.0, 2.0, 4.0])
    one = 1 / len(case.cuts)  # a sum beside a cut may fall to either side of it
    return Entry(lambda: qa.conv2d(x, w, padding=case.padding, requantize=cuts), lambda y: y.codes(), one)


def product(case):
    inputs = case.inputs()
    x = inputs["x"] if case.bits == (8, 1) else qa.encode(inputs["x"], values=levels(case.bits[0]))
    w = qa.encode(inputs["w"], values=levels(case.bits[1]))
    out = qa.linear(x, w)
    return Entry(lambda: qa.linear(x, w, out=out), np.asarray)


def pack(case):
    x, sign = case.inputs()["x"], qa.Sign()
    if case.real:
        return Entry(lambda: qa.quantize(x, sign), lambda q: q.codes() != 0)
    return Entry(lambda: qa.from_codes(x, qa.bipolar), lambda q: q.codes() != 0)


def unpack(case):
    q = qa.from_codes(case.inputs()["bits"], qa.bipolar)
    return Entry(q.codes, np.asarray)


def search(case):
    rows, queries = (
        qa.from_words(a[None], qa.bipolar, (len(a), case.length))
        for a in (case.inputs()[n] for n in ("rows", "queries"))
    )
    return Entry(lambda: qa.top_k(queries, rows, case.k), lambda result: result.distances)


def network(case):
    if not case.path.exists():
        return f"{case.path.name} is not part of the repository"
    layers, x = load_network(case.path), case.inputs()["x"]
    return Entry(lambda: layers(x), lambda y: y.dequantize() if isinstance(y, qa.QuantArray) else y)


MAKERS = {
    Conv: conv,
    Bases: bases,
    Product: product,
    Pack: pack,
    Unpack: unpack,
    Search: search,
    Network: network,
}
