"""Models of ONNX nodes, and random networks of quantised ones."""

import numpy as np
import pytest
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")

QONNX = ("Quant", "BipolarQuant", "MultiThreshold", "Trunc")
DOMAIN = "qonnx.custom_op.general"


def node(op, inputs, outputs, **attributes):
    """Build a node with a name, in the domain of its operator."""
    domain = DOMAIN if op in QONNX else ""
    return onnx.helper.make_node(op, inputs, outputs, domain=domain, name=f"{op}_{outputs[0]}", **attributes)


def model(nodes, inputs, outputs, initializers=(), opset=20):
    """Build a model of nodes; inputs and outputs are (name, shape) of float32, or (name, shape, type)."""
    info = [
        [onnx.helper.make_tensor_value_info(v[0], *([*v[2:], 1][:1]), v[1]) for v in vs] for vs in (inputs, outputs)
    ]
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in initializers]
    graph = onnx.helper.make_graph(list(nodes), "graph", info[0], info[1], tensors)
    opsets = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(DOMAIN, 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Net:
    """A random network that grows: each value is an image [n c h w], of codes or of floats."""

    def __init__(self, draw):
        self.draw, self.nodes, self.tensors, self.count = draw, [], [], 0
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def constant(self, a):
        self.count += 1
        name = f"c{self.count}"
        self.tensors.append((name, np.asarray(a)))
        return name

    def add(self, op, inputs, outputs=1, **attributes):
        names = []
        for _ in range(outputs):
            self.count += 1
            names.append(f"v{self.count}")
        self.nodes.append(node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def quantised(self, x, per_channel=0):
        """Add one of the quantisers, with scales that are powers of two: float32 then is exact."""
        kind = self.draw(st.sampled_from(["bipolar", "quant", "unsigned", "thresholds", "zero"]))
        scale = self.constant(np.float32(2.0 ** self.draw(st.integers(-2, 2))))
        if kind == "bipolar":
            return self.add("BipolarQuant", [x, scale])
        if kind == "thresholds" and per_channel:
            count = self.draw(st.integers(1, 7))
            T = np.sort(self.rng.integers(-20, 20, (self.draw(st.sampled_from([1, per_channel])), count)), axis=1)
            return self.add("MultiThreshold", [x, self.constant(T.astype(np.float32))], out_scale=0.5, out_bias=-0.5)
        signed, narrow = int(kind != "unsigned"), self.draw(st.integers(0, 1))
        bits = self.draw(st.integers(2, 8))
        zero = float(self.draw(st.integers(-3, 3))) if kind == "zero" else 0.0
        mode = self.draw(st.sampled_from(["ROUND", "FLOOR", "CEIL", "ROUND_TO_ZERO"]))
        inputs = [x, scale, self.constant(np.float32(zero)), self.constant(np.float32(bits))]
        return self.add("Quant", inputs, signed=signed, narrow=narrow, rounding_mode=mode)

    def weights(self, shape):
        bits = self.draw(st.integers(1, 4))
        values = self.constant(self.rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) + 1, shape).astype(np.float32) / 2)
        channel = (shape[0], *(1,) * (len(shape) - 1)) if self.draw(st.booleans()) else ()
        scale = self.constant((2.0 ** self.rng.integers(-2, 2, channel)).astype(np.float32))
        if bits == 1:
            return self.add("BipolarQuant", [values, scale])
        zero, width = self.constant(np.float32(0)), self.constant(np.float32(bits))
        return self.add("Quant", [values, scale, zero, width], signed=1, narrow=1, rounding_mode="ROUND")

    def norm(self, x, channels):
        """Add a batch norm with gamma of either sign and zero; deviations are powers of two."""
        gamma = self.rng.choice([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0], channels)
        arrays = [gamma, self.rng.integers(-4, 5, channels), self.rng.integers(-9, 10, channels)]
        arrays.append(4.0 ** self.rng.integers(-1, 3, channels))
        names = [self.constant(np.asarray(a, np.float32)) for a in arrays]
        return self.add("BatchNormalization", [x, *names], epsilon=0.0)

    def activation(self, x, channels):
        kind = self.draw(st.sampled_from(["none", "Relu", "LeakyRelu", "PRelu", "Clip", "add", "mul", "HardTanh"]))
        if kind in ("none", "HardTanh"):
            return x
        if kind == "Relu":
            return self.add("Relu", [x])
        if kind == "LeakyRelu":
            return self.add("LeakyRelu", [x], alpha=0.25)
        if kind == "PRelu":
            slope = self.rng.choice([0.0, 0.25, 1.0, -0.5], (channels, 1, 1), p=[0.3, 0.3, 0.3, 0.1])
            return self.add("PRelu", [x, self.constant(slope.astype(np.float32))])
        if kind == "Clip":
            return self.add("Clip", [x, self.constant(np.float32(-3)), self.constant(np.float32(6))])
        shape = (1, channels, 1, 1) if self.draw(st.booleans()) else ()
        value = self.constant(self.rng.choice([-2.0, -0.5, 0.5, 1.0, 4.0], shape).astype(np.float32))
        return self.add("Add" if kind == "add" else "Mul", [x, value])


@st.composite
def networks(draw):
    """(model, x): a network of two to five blocks on a small image, all of whose sums float32 holds exactly."""
    net = Net(draw)
    c, size = draw(st.integers(1, 6)), draw(st.integers(5, 9))
    shape = (1, c, size, size)
    x, side = net.quantised("x", c), []
    for _ in range(draw(st.integers(1, 4))):
        x, c, size = _block(net, x, c, size, side)
    if draw(st.booleans()):
        flat = net.add("Flatten", [x], axis=1)
        w = net.weights((draw(st.integers(1, 7)), c * size * size))
        x = net.add("MatMul", [flat, net.add("Transpose", [w], perm=[1, 0])])
        if draw(st.booleans()):
            x = net.quantised(x)
    net.nodes.append(node("Identity", [x], ["y"]))
    batch = draw(st.integers(1, 3))
    image = net.rng.integers(-40, 41, (batch, *shape[1:])).astype(np.float32) / 4
    return model(net.nodes, [("x", shape)], [("y", None)], net.tensors), image


def _block(net, x, c, size, side):
    draw = net.draw
    kind = draw(
        st.sampled_from(["conv", "conv", "conv", "depthwise", "pool", "average", "residual", "concat", "split"])
    )
    if kind == "average" and size > 1:
        return net.quantised(net.add("AveragePool", [x], kernel_shape=[2, 2], strides=[1, 1]), c), c, size - 1
    if kind == "pool" and size > 1:
        stride = draw(st.integers(1, 2))
        x = net.add("MaxPool", [x], kernel_shape=[2, 2], strides=[stride, stride])
        return x, c, (size - 2) // stride + 1
    if kind == "residual":
        other = net.quantised(net.add("Relu", [x]), c)
        return net.quantised(net.activation(net.add("Add", [x, other]), c), c), c, size
    if kind == "concat":
        return net.add("Concat", [x, net.quantised(x, c)], axis=1), 2 * c, size
    if kind == "split" and c > 1:
        first, second = net.add("Split", [x, net.constant(np.array([1, c - 1]))], outputs=2, axis=1)
        return net.add("Concat", [second, first], axis=1), c, size
    outputs = c if kind == "depthwise" else draw(st.integers(1, 5))
    kernel = draw(st.sampled_from([1, 3])) if size >= 3 else 1
    pad, stride = draw(st.integers(0, kernel // 2)), draw(st.integers(1, 2))
    w = net.weights((outputs, 1 if kind == "depthwise" else c, kernel, kernel))
    inputs = [x, w]
    if draw(st.booleans()):
        inputs.append(net.constant(net.rng.integers(-4, 5, outputs).astype(np.float32) / 2))
    x = net.add("Conv", inputs, kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2,
                group=c if kind == "depthwise" else 1)  # fmt: skip
    size = (size + 2 * pad - kernel) // stride + 1
    if draw(st.booleans()) and size > 1:  # before batch norm and quantiser, whatever the sign of gamma
        x, size = net.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2]), (size - 2) // 2 + 1
    if draw(st.booleans()):
        x = net.norm(x, outputs)
    x = net.activation(x, outputs)
    if draw(st.booleans()) and size > 1:  # after batch norm
        x, size = net.add("MaxPool", [x], kernel_shape=[2, 2], strides=[1, 1]), size - 1
    return net.quantised(x, outputs), outputs, size
