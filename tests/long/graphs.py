"""Random ONNX graphs give what ONNX's reference evaluator gives, loaded, prepared, and read from files again.

Floats are drawn so that sums are exact, and results equal, in three of four graphs. In the others scales and weights
are any numbers: results are equal within `_NEAR` of the largest value of the graph. A graph whose reference has a value
so near a boundary of a quantiser that rounding may decide is compared in shapes and dtypes alone: "near".
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import quantarray as qa

from .graph_movement import MOVEMENT
from .graph_net import DOMAIN, Net, Value
from .graph_nodes import ELEMENTS, POOLS, PRODUCTS
from .graph_quantisers import QUANTISERS
from .proof import Proof

from qonnx_reference import evaluator  # isort: skip  # of tests/support, where `graph_net` looks too

_NEAR = 2e-5  # of the largest value
_FAMILIES = (QUANTISERS, ELEMENTS, PRODUCTS | POOLS, MOVEMENT)
_MOST_ELEMENTS = 3000


def graph(rng: np.random.Generator) -> tuple[Net, Any]:
    """Draw a graph of 3 to 10 nodes, and of it one to three outputs, or all values."""
    net = Net(rng)
    batch = net.pick((1, 1, 1, 2, 3)) if net.batched else net.number(1, 3)
    ndim = net.pick((2, 2, 3, 4, 4, 4, 5))
    sides = (net.number(1, 6 if ndim < 5 else 3) for _ in range(ndim - 2))
    shape = (batch, net.pick((1, 1, 2, 3, 4)), *(sides if net.chance(0.85) else (1,) * (ndim - 2)))
    for _ in range(net.pick((1, 1, 1, 2))):
        dtype = np.dtype(net.pick(["float32"] * 8 + ["float16", "uint8", "float64"]))
        x = Value(net.name("x"), shape, dtype, 0.25 if dtype.kind == "f" else 1.0, 12.0 if dtype.kind == "f" else 255.0)
        net.inputs.append(x)
        net.values.append(x)
    nodes = net.number(3, 10)
    for _ in range(12 * nodes):
        if len(net.values) - len(net.inputs) >= nodes:
            break
        _grow(net)
    results = [v for v in net.values if v not in net.inputs and not v.narrow and 0 not in v.shape]
    if net.chance(0.1):
        return net, results  # so that no value is folded away
    return net, results[-1:] + [v for v in results[:-1] if net.chance(0.2)][:2]


def _grow(net: Net) -> None:
    """Add an operator to the last value or to another one, or a layer as networks have them."""
    x = net.values[-1] if net.chance(0.75) else net.pick(net.values)
    kind = net.rng.random()
    if kind < 0.15:  # constants of one element before a change of shape
        _add(net, x, net.pick((QUANTISERS, ELEMENTS)))
        _add(net, net.values[-1], MOVEMENT)
    elif kind < 0.2:
        _add(net, x, QUANTISERS)
        for family in (PRODUCTS, *[ELEMENTS] * net.number(0, 2), *[POOLS] * net.number(0, 1), QUANTISERS):
            _add(net, net.values[-1], family)
    else:
        _add(net, x, _FAMILIES[int(net.rng.choice(len(_FAMILIES), p=[0.27, 0.26, 0.2, 0.27]))])


def _add(net: Net, x: Value, family: dict[Any, int]) -> None:
    """Add an operator of a family to a value; none if it does not take it, or gives too many elements or large ones."""
    options = list(family)
    weight = np.array([family[f] for f in options], float)
    add = options[int(net.rng.choice(len(options), p=weight / weight.sum()))]
    before = len(net.nodes), len(net.tensors), len(net.values)
    v = add(net, x)
    if v is not None and (np.prod(v.shape) > _MOST_ELEMENTS or v.most > 1e6):
        del net.nodes[before[0] :], net.tensors[before[1] :], net.values[before[2] :]
        net.edges = [n for n in net.edges if any(n is m for m in net.nodes)]


def model(net: Net, outputs: list[Value]) -> Any:
    """Build the model, with the batch as a length, a name, or -1."""
    lead = net.pick((None, None, "n", -1)) if net.batched and net.general and net.inputs[0].shape[0] == 1 else None

    def info(v: Value, shaped: bool) -> Any:
        number = onnx.helper.np_dtype_to_tensor_dtype(v.dtype)
        shape = (lead if lead is not None else v.shape[0], *v.shape[1:]) if shaped else None
        return onnx.helper.make_tensor_value_info(v.name, number, shape)

    ends = [info(v, True) for v in net.inputs], [info(v, False) for v in outputs]
    whole = onnx.helper.make_graph(net.nodes, "graph", *ends, net.tensors)
    opsets = [onnx.helper.make_opsetid("", net.opset), onnx.helper.make_opsetid(DOMAIN, 1)]
    return onnx.helper.make_model(whole, opset_imports=opsets, ir_version=10)


def drawn(net: Net, n: int) -> dict[str, Any]:
    """Draw inputs of n samples."""
    return {
        v.name: (net.rng.integers(-48, 49, (n, *v.shape[1:])) / 4 if v.floats else net.rng.integers(
            0, 256, (n, *v.shape[1:]))).astype(v.dtype) for v in net.inputs
    }  # fmt: skip


def reference(m: Any, x: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs by ONNX's reference evaluator."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        session = evaluator(m)
        return dict(zip(session.output_names, map(np.asarray, session.run(None, x)), strict=True))


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if len(parts) == 1 else {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}


def everything(m: Any) -> Any:
    """Return the model with all values as outputs."""
    whole = onnx.ModelProto.FromString(m.SerializeToString())
    del whole.graph.output[:]
    names = [o for n in whole.graph.node for o in n.output]
    whole.graph.output.extend(onnx.helper.make_tensor_value_info(n, 1, None) for n in names)
    return whole


def is_near(net: Net, m: Any, values: dict[str, Any], slack: float) -> bool:
    """Return True if an operator that jumps gives another result for its operand plus or minus `slack`."""
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in m.graph.initializer}
    for n in net.edges:
        one = onnx.helper.make_graph([n], "one", [onnx.helper.make_tensor_value_info(i, 1, None) for i in n.input],
                                     [onnx.helper.make_tensor_value_info(n.output[0], 1, None)])  # fmt: skip
        alone = onnx.helper.make_model(one, opset_imports=m.opset_import, ir_version=10)
        operands = {i: values[i] if i in values else tensors[i] for i in n.input}
        v = operands[n.input[0]]
        shifted = [(v.astype(np.float64) + shift).astype(v.dtype) for shift in (-slack, 0, slack)]
        first, *others = (reference(alone, {**operands, n.input[0]: a})[n.output[0]] for a in shifted)
        if not all(np.array_equal(first, other) for other in others):
            return True
    return False


def compare(got: Any, expected: dict[str, Any], names: list[str], slack: float, near: bool, what: str) -> None:
    """Assert that results are equal in shape, dtype and value: to the bit, or within `slack`."""
    got = got if isinstance(got, dict) else {names[0]: got}
    for name in names:
        a, b = np.asarray(got[name]), expected[name]
        assert a.shape == b.shape, f"{what}: {name} has the shape {a.shape}, the reference {b.shape}"
        assert a.dtype == b.dtype, f"{what}: {name} is {a.dtype}, in the reference {b.dtype}"
        if near:
            continue
        if slack == 0 or a.dtype.kind != "f":
            differ = int((a != b).sum()) - int((np.isnan(a) & np.isnan(b)).sum() if a.dtype.kind == "f" else 0)
            assert not differ, f"{what}: {differ} of {a.size} of {name} differ: {a[a != b][:3]}, not {b[a != b][:3]}"
        else:
            np.testing.assert_allclose(a, b, rtol=0, atol=slack, err_msg=f"{what}: {name}")


def run(rng: np.random.Generator) -> str:
    """Draw a graph, load it, and compare it at several batch sizes, prepared, and read from files again."""
    net, outputs = graph(rng)
    if not outputs:
        return "empty"
    m, names = model(net, outputs), [v.name for v in outputs]
    try:
        network = qa.nn.load(m)
    except ValueError as error:
        if not str(error).startswith("load: "):
            raise
        return "refused"
    batch = net.inputs[0].shape[0]
    free = network.inputs[0].batched
    sizes = [batch] if not free or (batch > 1 and not net.general) else [1, batch, net.number(2, 5)]
    exact = all(v.grid is not None for v in net.values) and not net.edges
    near, most = False, 0.0
    for n in sizes:
        x = drawn(net, n)
        each = n != batch and not net.general  # a node has the length of the batch, 1, and any batch may replace it
        parts = [{k: a[i : i + 1] for k, a in x.items()} for i in range(n)] if each else [x]
        expected = _joined([reference(m, part) for part in parts])
        if not exact:
            seen = [part | reference(everything(m), part) for part in parts]
            most = max(_largest(values) for values in seen)
            near = near or any(is_near(net, m, values, _NEAR * most) for values in seen)
        with np.errstate(all="ignore"):
            got = network(**x)
        compare(got, expected, names, _NEAR * most, near, f"a batch of {n}")
    _again(network, names, got, x, _NEAR * most, near)
    return "near" if near else "equal" if exact else "close"


def _largest(values: dict[str, Any]) -> float:
    floats = [a for a in values.values() if a.dtype.kind == "f"]
    return max(1.0, *(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in floats))


def _again(network: Any, names: list[str], got: Any, x: dict[str, Any], slack: float, near: bool) -> None:
    """Compare the network prepared, and read from a .qa and a .onnx file, with its results."""
    expected = got if isinstance(got, dict) else {names[0]: got}
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        compare(network.prepared()(**x), expected, names, 0.0, False, "prepared")
        network.save(Path(folder) / "net.qa")
        compare(qa.nn.load(Path(folder) / "net.qa")(**x), expected, names, 0.0, False, "from .qa")
        try:
            network.save(Path(folder) / "net.onnx")
        except ValueError as error:
            if not str(error).startswith("save: "):
                raise
            return
        written = onnx.load(Path(folder) / "net.onnx")
        compare(qa.nn.load(written)(**x), expected, names, slack, near, "from .onnx")
        compare(reference(written, x), expected, names, slack, near, "the reference on the .onnx written")


def verdict(counts: dict[str, int]) -> str | None:
    """Check that at most 4 % are refused, and at most 8 % too near a boundary."""
    total = sum(counts.values())
    for kind, most in (("refused", 0.04), ("near", 0.08), ("empty", 0.01)):
        if counts.get(kind, 0) > most * total:
            return f"{counts[kind]} of {total} graphs are {kind}, more than {most:.0%}"
    return None


PROOF = Proof(run, 5000, stretch=250, verdict=verdict)
