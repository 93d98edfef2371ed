"""Compare a QONNX network layer by layer with QONNX's executor: `python -m tools.onnx_layers FILE ... [--images N]`.

Needs `pip install qonnx`, whose wheel holds two trained super-resolution networks (data/onnx/bsd300x3-espcn). A layer
is everything between quantisers of activations. It gets the executor's own input codes; its output codes must be those
of the executor, except where the value before rounding, computed in float64, is within 1e-4 steps of a boundary. Sums
of products must equal an int64 oracle in every integer. Then the whole network runs, from image to output.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa

FEW = 1e-4  # of the codes: float32 has steps of 1.5e-5 of a level at 255 levels, and executors sum in other orders
NEAR = 1e-4  # steps between the value before rounding and a boundary, where codes may differ by one
Values = Mapping[str, Any]
Executor = Callable[[Any, dict[str, Any]], Values]


class Outcome(NamedTuple):
    """A layer, or the whole network: how many values, how many differ, how many of those without an excuse."""

    name: str
    count: int
    different: int
    ours_nearer: int  # of those, where the float64 value rounds to our code
    wrong: int
    sums: int  # integers before scaling that were compared with the oracle
    wrong_sums: int
    largest: float  # difference, in steps of the output

    @property
    def text(self) -> str:
        """Return a row of a Markdown table."""
        cells = (
            self.name,
            f"{self.count:,}",
            self.different,
            self.ours_nearer,
            self.wrong,
            f"{self.sums:,}",
            self.wrong_sums,
        )
        return "| " + " | ".join(map(str, (*cells, f"{self.largest:g}"))) + " |"


class _File:
    """A model with its nodes by output and its constants as arrays."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self.model = model
        self.tensors = {t.name: t for t in model.graph.initializer}
        self.arrays = {name: numpy_helper.to_array(t) for name, t in self.tensors.items()}
        self.makers = {name: node for node in model.graph.node for name in node.output}

    def quantisers(self) -> list[Any]:
        """Return the nodes that quantise activations."""
        return [n for n in self.model.graph.node if n.op_type == "Quant" and n.input[0] not in self.arrays]

    def zero(self, quantiser: Any) -> float:
        """Return the zero point of a quantiser."""
        return float(self.arrays[quantiser.input[2]])

    def layer(self, last: Any) -> tuple[list[Any], list[Any], list[str]]:
        """(nodes up to `last`, in order; the quantisers before them; inputs of the network) of one layer."""
        needed, before, inputs, names = [], [], [], list(last.input)
        while names:
            name = names.pop()
            node = self.makers.get(name)
            if node is None:
                inputs += [name] if name and name not in self.arrays and name not in inputs else []
            elif node.op_type == "Quant" and node.input[0] not in self.arrays:
                before += [node] if node not in before else []
            elif node not in needed:
                needed.append(node)
                names += node.input
        order = list(self.model.graph.node)
        return [n for n in order if n in (*needed, last)], before, inputs

    def part(self, nodes: list[Any], before: list[Any], inputs: list[str], values: Values, output: str) -> Any:
        """Return a model of these nodes that quantises the executor's values of `before` again: to the same codes."""
        from onnx import TensorProto, helper

        again = [helper.make_node(n.op_type, [_held(n), *n.input[1:]], n.output, domain=n.domain) for n in before]
        for new, old in zip(again, before, strict=True):
            new.attribute.extend(old.attribute)
        held = {_held(n): values[n.output[0]] for n in before} | {name: values[name] for name in inputs}
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in held.items()]
        used = {name for n in (*again, *nodes) for name in n.input}
        out = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        tensors = [t for name, t in self.tensors.items() if name in used]
        graph = helper.make_graph([*again, *nodes], "part", infos, out, tensors)
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        model.ir_version = self.model.ir_version
        return model, held


def _held(quantiser: Any) -> str:
    return f"{quantiser.output[0]}.before"


def layers(model: Any, values: Values) -> Iterator[Outcome]:
    """Compare each layer of a model with the values of an executor."""
    file = _File(model)
    for last in file.quantisers():
        nodes, before, inputs = file.layer(last)
        part, held = file.part(nodes, before, inputs, values, last.output[0])
        scale = float(file.arrays[last.input[1]])
        ours = np.rint(qa.nn.load(part)(**held) / scale)
        theirs = np.rint(values[last.output[0]] / scale)
        gap = np.abs(ours - theirs)
        exact = _before_rounding(file, nodes, before, inputs, values, last)
        excused = (gap == 1) & (np.abs(exact - np.floor(exact) - 0.5) <= NEAR)
        sums, wrong = 0, 0
        for node in nodes:
            if node.op_type == "Conv" and before:
                count, differ = _sums(file, node, nodes, before, inputs, values)
                sums, wrong = sums + count, wrong + differ
        differ = int((gap > 0).sum())
        nearer = int(((gap > 0) & (ours == np.rint(exact) - file.zero(last))).sum())
        yield Outcome(
            last.output[0], ours.size, differ, nearer, differ - int(excused.sum()), sums, wrong, float(gap.max())
        )


def _weight(file: _File, name: str) -> tuple[Any, Any]:
    """Return the integers of quantised weights and their scale, from the definition of Quant in float32."""
    quant = file.makers[name]
    w, scale, zero, bits = (file.arrays[n] for n in quant.input)
    a = {x.name: x.i for x in quant.attribute}
    top = 2 ** (int(bits) - 1) - 1
    low = -top - 1 + a["narrow"]
    assert a["signed"] and zero == 0
    return np.rint(np.clip(w / scale, low, top)).astype(np.int64), scale.astype(np.float64)


def _integers(file: _File, before: list[Any], value: Any) -> tuple[Any, float]:
    """Return the codes of a value between quantiser and product, and their scale, which all operands share."""
    (scale,) = {float(file.arrays[n.input[1]]) for n in before}
    whole = np.rint(value / np.float32(scale))
    np.testing.assert_allclose(whole * scale, value, rtol=1e-6)
    return whole.astype(np.int64), scale


def _padded(x: Any, node: Any) -> Any:
    a = {x.name: list(x.ints) or x.i for x in node.attribute}
    assert a.get("strides", [1, 1]) == [1, 1] and a.get("dilations", [1, 1]) == [1, 1] and a.get("group", 1) == 1
    pads = a.get("pads", [0] * 4)
    return np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])


def _convolved(x: Any, w: Any, node: Any) -> Any:
    """Convolve by plain sums over taps, in the dtype of x and w: int64 or float64."""
    wide = _padded(x, node)
    h, v = (n - k + 1 for n, k in zip(wide.shape[2:], w.shape[2:], strict=True))
    total = np.zeros((len(x), len(w), h, v), wide.dtype)
    for i, j in product(range(w.shape[2]), range(w.shape[3])):
        total += np.einsum("nchw,oc->nohw", wide[:, :, i : i + h, j : j + v], w[:, :, i, j], optimize=False)
    return total


def _sums(
    file: _File, node: Any, nodes: list[Any], before: list[Any], inputs: list[str], values: Values
) -> tuple[int, int]:
    """(how many integer sums a convolution has, how many differ from the oracle)."""
    from onnx import helper

    plain = helper.make_node("Conv", node.input[:2], node.output)
    plain.attribute.extend(node.attribute)
    upto = [*nodes[: nodes.index(node)], plain]
    part, held = file.part(upto, before, inputs, values, node.output[0])
    graph = qa.nn.load(part)
    (conv,) = (n for n in graph.nodes if n.op == "conv2d")
    ours = graph.trace(**held)[conv.outputs[0]]
    x, _ = _integers(file, before, values[node.input[0]])
    expected = _convolved(x, _weight(file, node.input[1])[0], node)
    assert ours.dtype == np.int32 and ours.shape == expected.shape
    return expected.size, int((ours != expected).sum())


def _before_rounding(
    file: _File, nodes: list[Any], before: list[Any], inputs: list[str], values: Values, last: Any
) -> Any:
    """Compute what the last quantiser of a layer rounds, clipped, in float64 from the executor's input codes."""
    known: dict[str, Any] = {name: a.astype(np.float64) for name, a in file.arrays.items() if a.dtype.kind == "f"}
    known |= {name: values[name].astype(np.float64) for name in inputs}
    for n in before:
        whole, scale = _integers(file, [n], values[n.output[0]])
        known[n.output[0]] = whole * scale
    for node in nodes:
        if node is last:
            break
        operands = [known.get(name) for name in node.input]
        known[node.output[0]] = _evaluated(file, node, operands)
    x, scale, zero, bits = (known[name] for name in last.input)
    a = {x.name: x.i for x in last.attribute}
    assert not a["signed"] and not a["narrow"]
    return np.clip(x / scale + zero, 0, 2**bits - 1)


def _evaluated(file: _File, node: Any, operands: list[Any]) -> Any:
    a = {x.name: x for x in node.attribute}
    x, *rest = operands
    column = [None if r is None else r.reshape(1, -1, 1, 1) for r in rest]
    if node.op_type == "Quant":
        whole, scale = _weight(file, node.output[0])
        return whole * scale
    if node.op_type == "Conv":
        y = _convolved(x, rest[0], node)
        return y + column[1] if len(column) > 1 else y
    if node.op_type == "BatchNormalization":
        gamma, beta, mean, var = column
        return gamma * (x - mean) / np.sqrt(var + a["epsilon"].f) + beta
    if node.op_type == "Relu":
        return np.maximum(x, 0)
    if node.op_type == "DepthToSpace":
        assert a["mode"].s == b"CRD"
        n, c, h, w = x.shape
        b = a["blocksize"].i
        return x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)
    if node.op_type == "Resize":
        scales = file.arrays[node.input[2]]
        assert a["mode"].s == b"nearest" and list(scales[:2]) == [1, 1] and (scales == np.rint(scales)).all()
        return x.repeat(int(scales[2]), axis=2).repeat(int(scales[3]), axis=3)
    raise ValueError(f"{node.op_type} has no float64 definition here")


def whole(model: Any, values: Values, image: Any) -> Outcome:
    """Compare the whole network's output with the executor's."""
    last = model.graph.output[0].name
    scale = next(float(_File(model).arrays[n.input[1]]) for n in model.graph.node if n.output[0] == last)
    gap = np.abs(np.rint(qa.nn.load(model)(image) / scale) - np.rint(values[last] / scale))
    return Outcome("end to end", gap.size, int((gap > 0).sum()), 0, 0, 0, 0, float(gap.max()))


def _executed(path: Path, count: int) -> Iterator[tuple[Any, Values, Any]]:
    """Yield the model with shapes, QONNX's values and the image, of the file's test image and random ones."""
    from onnx import TensorProto, numpy_helper
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    wrapper = ModelWrapper(str(path)).transform(InferShapes())
    name = next(i.name for i in wrapper.graph.input if i.name not in {t.name for t in wrapper.graph.initializer})
    shape = wrapper.get_tensor_shape(name)
    sample = path.parents[1] / "test_data" / "input_0.pb"
    stored = numpy_helper.to_array(TensorProto.FromString(sample.read_bytes()))
    rng = np.random.default_rng(0)
    for i in range(count):
        image = stored.astype(np.float32) if i == 0 else rng.random(shape, np.float32)
        values = execute_onnx(wrapper, {name: image}, return_full_exec_context=True)
        yield wrapper.model, values, image


def merged(outcomes: list[Outcome]) -> Outcome:
    """Add the outcomes of one layer on several images."""
    columns = list(zip(*outcomes, strict=True))
    return Outcome(columns[0][0], *map(sum, columns[1:7]), max(columns[7]))


def main() -> int:
    """0 where every layer, every sum and at least 99.9 % of the output hold."""
    parser = argparse.ArgumentParser(prog="python -m tools.onnx_layers", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=2, help="the stored test image, and random ones")
    options = parser.parse_args()
    right = True
    for path in options.files:
        rows = [[*layers(m, values), whole(m, values, image)] for m, values, image in _executed(path, options.images)]
        columns = [merged(list(column)) for column in zip(*rows, strict=True)]
        print(f"\n{path.parent.name}/{path.name}, {options.images} images\n")
        print("| layer | values | different | ours is float64's | no excuse | sums | wrong sums | largest difference |")
        print("|---|---|---|---|---|---|---|---|")
        print("\n".join(o.text for o in columns))
        right &= all(holds(o) for o in columns[:-1]) and columns[-1].different <= 1e-3 * columns[-1].count
    return 0 if right else 1


def holds(o: Outcome) -> bool:
    """Return True if a layer has no wrong code or sum, and at most 1 code in 10^4 differs where theirs is the nearer.

    How many of theirs are not depends on the order in which the BLAS of a machine sums floats.
    """
    return not o.wrong and not o.wrong_sums and o.different - o.ours_nearer <= math.ceil(o.count * FEW)


if __name__ == "__main__":
    sys.exit(main())
