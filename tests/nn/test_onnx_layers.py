"""`tools/onnx_layers.py` on small super-resolution networks: it finds equal layers equal, and changed ones wrong."""

import numpy as np
import pytest
from onnx_models import model, node
from qonnx_reference import evaluator

import tools.onnx_layers as tool


def network(rng, kind):
    """Two convolutions, batch norm and quantisers; then sub-pixels or the nearest ones, and 8 bits."""
    tensors = {"zero": np.float32(0), "four": np.float32(4), "eight": np.float32(8), "seven": np.float32(7)}
    tensors |= {"s0": np.float32(1 / 255), "s1": np.float32(0.21), "s2": np.float32(0.013)}
    tensors |= {
        "w1": rng.normal(0, 1, (6, 3, 3, 3)),
        "w2": rng.normal(0, 1, (12 if kind == "subpixel" else 3, 6, 3, 3)),
    }
    tensors |= {"ws1": rng.uniform(0.1, 0.3, (6, 1, 1, 1)), "ws2": np.float32(0.17), "b1": rng.normal(0, 1, 6)}
    norm = {
        "g": rng.choice([-1.0, 1.0, 0.7], 6),
        "b": rng.normal(0, 1, 6),
        "m": rng.normal(0, 1, 6),
        "v": rng.uniform(1, 3, 6),
    }
    tensors |= norm | {"scales": np.array([1, 1, 2, 2])}
    same = {"signed": 0, "narrow": 0, "rounding_mode": "ROUND"}
    weights = {"signed": 1, "narrow": 1, "rounding_mode": "ROUND"}
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Quant", ["x", "s0", "zero", "eight"], ["x0"], **same),
        node("Quant", ["w1", "ws1", "zero", "four"], ["q1"], **weights),
        node("Conv", ["x0", "q1", "b1"], ["c1"], **conv),
        node("BatchNormalization", ["c1", "g", "b", "m", "v"], ["n1"], epsilon=1e-5),
        node("Relu", ["n1"], ["r1"]),
        node("Quant", ["r1", "s1", "zero", "four"], ["x1"], **same),
        node("Quant", ["w2", "ws2", "zero", "four"], ["q2"], **weights),
        node("Conv", ["x1", "q2"], ["c2"], **conv),
    ]
    if kind == "subpixel":
        nodes.append(node("DepthToSpace", ["c2"], ["up"], blocksize=2, mode="CRD"))
    else:
        attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        nodes.append(node("Resize", ["c2", "", "scales"], ["up"], **attributes))
    nodes.append(node("Quant", ["up", "s2", "zero", "eight"], ["y"], **same))
    names = [n.output[0] for n in nodes]
    initializers = [(name, np.asarray(a, np.float32)) for name, a in tensors.items()]
    m = model(nodes, [("x", (1, 3, 16, 16))], [("y", None)], initializers)
    everything = model(nodes, [("x", (1, 3, 16, 16))], [(name, None) for name in names], initializers)
    return m, lambda x: {"x": x, **dict(zip(names, evaluator(everything).run(None, {"x": x}), strict=True))}


@pytest.fixture(scope="module", params=["subpixel", "nearest"])
def run(request):
    rng = np.random.default_rng(1)
    m, execute = network(rng, request.param)
    image = rng.random((1, 3, 16, 16)).astype(np.float32)
    return m, execute(image), image


def test_each_layer_and_the_whole_network_hold(run):
    m, values, image = run
    outcomes = list(tool.layers(m, values))
    assert [o.name for o in outcomes] == ["x0", "x1", "y"]
    assert all(tool.holds(o) for o in outcomes), outcomes
    assert outcomes[1].sums == 6 * 16 * 16 and outcomes[2].sums == values["c2"].size
    whole = tool.whole(m, values, image)
    assert whole.different <= 1e-3 * whole.count


def test_codes_of_another_executor_are_wrong(run):
    m, values, _ = run
    changed = {**values, "x1": np.minimum(values["x1"] + np.float32(0.21), np.float32(0.21 * 15))}
    outcomes = {o.name: o for o in tool.layers(m, changed)}
    assert outcomes["x1"].wrong > 100 and not tool.holds(outcomes["x1"])
    assert not outcomes["x0"].wrong
