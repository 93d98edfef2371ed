"""ONNX files, damaged: each is refused with the documented error, or loads a network that runs.

What runs is compared with ONNX's reference evaluator, which gets QONNX's operators, where that runs too: shapes, dtypes
and integers are equal, floats within 1e-5 of the largest.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numba.core import event

import quantarray as qa

from . import damage
from .calls import LISTENER
from .little_memory import little_memory
from .onnx_changes import MODELS, change, onnx

from qonnx_reference import evaluator  # isort: skip  # of tests/support, where `onnx_changes` looks too

_MOST_INPUT = 1 << 16  # elements of inputs that are drawn
_TOLERANCE = 1e-5
_TRAINED = 14  # first opset whose batch norms say whether they train


def onnx_file(rng: np.random.Generator) -> str:
    """Damage bytes or parts of a small model, then load it, run it and compare it."""
    m = damage.pick(rng, MODELS)(rng)
    if rng.random() < 0.35:
        data = damage.anywhere(rng, m.SerializeToString())
    else:
        for _ in range(1 + (rng.random() < 0.2)):
            change(rng, m)
        data = m.SerializeToString()
    graph = _loaded(data, rng.random() < 0.25)
    if graph is None:
        return "onnx refused"
    inputs = {v.name: _input(rng, v) for v in graph.inputs if np.prod(v.shape) <= _MOST_INPUT}
    if len(inputs) < len(graph.inputs):
        return "onnx large"
    with np.errstate(all="ignore"):
        results = graph(**inputs)
    results = results if isinstance(results, dict) else {graph.outputs[0].name: results}
    expected = _expected(data, inputs)
    if expected is None:
        return "onnx ran"
    _compare(results, expected)
    return "onnx compared"


def _loaded(data: bytes, measured: bool) -> Any:
    """Return the graph, or None if it is refused in the documented words."""
    try:
        with little_memory(len(data), measured), np.errstate(all="ignore"):
            return qa.nn.load(data)
    except ValueError as error:
        assert str(error).startswith("load: "), f"not said of what: {str(error)!r:.200}"
        cause: BaseException | None = error
        while cause is not None:
            assert not isinstance(cause, MemoryError), f"more memory than the file is worth: {str(error)!r:.200}"
            cause = cause.__cause__ or cause.__context__
        return None


def _input(rng: np.random.Generator, value: Any) -> Any:
    dtype = np.dtype(value.dtype)
    if dtype.kind == "f":
        return (rng.integers(-40, 41, value.shape) / 4).astype(dtype)
    low = value.low if value.low is not None else 0 if dtype.kind in "bu" else -3
    return rng.integers(low, 2 if value.high is None else value.high + 1, value.shape).astype(dtype)


def _expected(data: bytes, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the outputs of the reference evaluator by name; None where it does not run."""
    m = onnx.ModelProto.FromString(data)
    old = any(not o.domain and o.version < _TRAINED for o in m.opset_import)
    if old and any(n.op_type == "BatchNormalization" for n in m.graph.node):
        return None  # the evaluator takes means and deviations of the input, as in training
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            session = evaluator(m)
            return dict(zip(session.output_names, session.run(None, inputs), strict=True))
    except Exception:
        return None


def _compare(results: dict[str, Any], expected: dict[str, Any]) -> None:
    assert results.keys() == expected.keys()
    for name, got in results.items():
        wanted = np.asarray(expected[name])
        assert got.shape == wanted.shape, f"{name}: shape {got.shape}, the reference has {wanted.shape}"
        assert got.dtype == wanted.dtype, f"{name}: {got.dtype}, the reference has {wanted.dtype}"
        if got.dtype.kind != "f":
            assert np.array_equal(got, wanted), f"{name}: {(got != wanted).sum()} of {got.size} integers differ"
            continue
        finite = np.isfinite(wanted)
        assert np.array_equal(got[~finite], wanted[~finite], equal_nan=True), f"{name}: other NaN or infinities"
        most = np.abs(wanted[finite]).max(initial=1e-30)
        error = np.abs(got[finite] - wanted[finite]).max(initial=0)
        assert error <= _TOLERANCE * most, f"{name}: differs by {error:g}, the largest value is {most:g}"


def prepare() -> None:
    """Load and run each model as it is, without a limit."""
    event.register("numba:compile", LISTENER)
    rng = np.random.default_rng(0)
    for build in MODELS:
        data = build(rng).SerializeToString()
        graph = qa.nn.load(data)
        inputs = {v.name: _input(rng, v) for v in graph.inputs}
        expected = _expected(data, inputs)
        assert expected is not None
        _compare({graph.outputs[0].name: graph(**inputs)}, expected)
