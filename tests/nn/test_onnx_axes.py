"""ONNX's convolutions and pools of one to three axes on packed codes equal the reference, and are packed."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_models import model, node
from qonnx_reference import evaluator

import quantarray as qa

UNSIGNED = {"signed": 0, "narrow": 0, "rounding_mode": "ROUND"}


class Images:
    """Codes of 2 bits of an image of some axes, and a network of one operator on them."""

    def __init__(self, draw, axes):
        self.draw, self.axes = draw, axes
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.tensors = [("step", np.float32(0.5)), ("zero", np.float32(0)), ("bits", np.float32(2))]
        self.nodes = [
            node("Quant", ["x", "step", "zero", "bits"], ["codes"], signed=0, narrow=0, rounding_mode="ROUND")
        ]

    def lengths(self, most, least=1):
        return [self.draw(st.integers(least, most)) for _ in range(self.axes)]

    def weights(self, shape):
        self.tensors.append(("w", self.rng.integers(-2, 2, shape).astype(np.float32)))
        return "w"

    def check(self, channels, image, op, packed, reference=None, **attributes):
        """Compare the network with its reference, by default ONNX's; `packed` must be among its operations."""
        inputs = ["codes", "w"] if any(n == "w" for n, _ in self.tensors) else ["codes"]
        nodes = [*self.nodes, node(op, inputs, ["y"], **attributes)]
        shape = (1, channels, *image)
        whole = model(nodes, [("x", shape)], [("y", None)], self.tensors)
        x = self.rng.integers(-2, 8, (2, *shape[1:])).astype(np.float32) / 4
        graph = qa.nn.load(whole)
        expected = evaluator(whole).run(None, {"x": x})[0] if reference is None else reference(np.clip(2 * x, 0, 3))
        if op == "AveragePool":  # whose division may round a second time
            np.testing.assert_allclose(graph(x), expected, rtol=1e-6)
        else:
            np.testing.assert_array_equal(graph(x), expected)
        assert packed in [n.op for n in graph.nodes], graph.summary()


def geometry(images, kernel):
    """(image, attributes) that a window fits into."""
    stride, dilation = images.lengths(3), images.lengths(2)
    pads = [images.lengths(max(1, min(kernel)), 0) for _ in range(2)]
    pads = [[min(p, k - 1) for p, k in zip(side, kernel, strict=True)] for side in pads]
    image = [n + (k - 1) * d for n, k, d in zip(images.lengths(4), kernel, dilation, strict=True)]
    return image, {"strides": stride, "dilations": dilation, "pads": [*pads[0], *pads[1]]}


AXES = pytest.mark.parametrize("axes", [1, 2, 3])


@AXES
@given(st.data())
def test_conv(axes, data):
    images = Images(data.draw, axes)
    groups, each, outputs = (data.draw(st.integers(1, 3)) for _ in range(3))
    kernel = images.lengths(3)
    image, how = geometry(images, kernel)
    images.weights((groups * outputs, each, *kernel))
    images.check(groups * each, image, "Conv", f"conv{axes}d", group=groups, **how)


@AXES
@given(st.data())
def test_conv_transpose(axes, data):
    images = Images(data.draw, axes)
    groups, each, outputs = (data.draw(st.integers(1, 3)) for _ in range(3))
    kernel = images.lengths(3)
    image, how = geometry(images, kernel)
    how["output_padding"] = [
        data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(how["strides"], how["dilations"], strict=True)
    ]
    w = images.rng.integers(-2, 2, (groups * each, outputs, *kernel))
    images.tensors.append(("w", w.astype(np.float32)))
    by_outputs = np.concatenate(np.split(w.swapaxes(0, 1), groups, axis=1))  # [o c/groups ..]

    def reference(codes):
        """ONNX's own evaluator has no batches and no output_padding of some geometries."""
        pads = how["pads"]
        cut = {"padding": list(zip(pads[:axes], pads[axes:], strict=True)), "stride": how["strides"]}
        options = {**cut, "dilation": how["dilations"], "output_padding": how["output_padding"]}
        last, weights = np.moveaxis(np.rint(codes), 1, -1), np.moveaxis(by_outputs, 1, -1)
        wide = naive.spread(last.astype(int), options, weights.shape)
        sums = naive.conv2d(wide, weights, dilation=how["dilations"], groups=groups, flip_kernel=True)
        return (np.moveaxis(sums, -1, 1) / 2).astype(np.float32)

    images.check(groups * each, image, "ConvTranspose", f"conv_transpose{axes}d", reference, group=groups, **how)


@AXES
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@given(st.data())
def test_pools(op, axes, data):
    images, channels = Images(data.draw, axes), data.draw(st.integers(1, 5))
    kernel = images.lengths(3)
    image, how = geometry(images, kernel)
    how |= {"kernel_shape": kernel, "ceil_mode": data.draw(st.integers(0, 1))}
    packed = f"max_pool{axes}d" if op == "MaxPool" else f"conv{axes}d"
    if op == "AveragePool":
        how["count_include_pad"] = data.draw(st.integers(0, 1))

    def reference(codes):
        """ONNX's own evaluator pads lines on the wrong side."""
        pads = list(zip(how["pads"][:axes], how["pads"][axes:], strict=True))
        last = np.moveaxis(np.rint(codes), 1, -1).astype(int)
        geometry = how["strides"], pads, how["dilations"], bool(how["ceil_mode"])
        largest, _, total, inside, counted = naive.pool(last, kernel, *geometry)
        n = (counted if how.get("count_include_pad") else inside)[..., None]
        y = largest if op == "MaxPool" else total / n
        return (np.moveaxis(y, -1, 1) / 2).astype(np.float32)

    images.check(channels, image, op, packed, reference, **how)


def test_thresholds_are_fused_into_a_transposed_convolution(tmp_path):
    """A file holds the fused convolution too, with the parts into which it is split."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Quant", ["x", "step", "zero", "bits"], ["codes"], **UNSIGNED),
        node("Split", ["codes", "sizes"], ["a", "b"], axis=1),
        node("Concat", ["b", "a"], ["turned"], axis=1),
        node("ConvTranspose", ["turned", "w", "bias"], ["sums"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Quant", ["sums", "step", "zero", "bits"], ["y"], **UNSIGNED),
    ]
    tensors = [("step", np.float32(0.5)), ("zero", np.float32(0)), ("bits", np.float32(2))]
    tensors += [("sizes", np.array([1, 2])), ("w", rng.integers(-2, 2, (3, 4, 3, 3)).astype(np.float32))]
    tensors += [("bias", np.float32([0, 0.5, -1, 2]))]
    whole = model(nodes, [("x", (1, 3, 4, 5))], [("y", None)], tensors)
    graph = qa.nn.load(whole)
    ops = [n.op for n in graph.nodes]
    assert "conv_transpose2d" in ops and "split" in ops and "concat" in ops and ops.count("threshold") == 1
    x = rng.integers(-2, 8, (3, 3, 4, 5)).astype(np.float32) / 4
    expected = evaluator(whole).run(None, {"x": x})[0]
    np.testing.assert_array_equal(graph(x), expected)
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x), expected)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("between", [None, "Relu", "Neg"])
@pytest.mark.parametrize("gamma", [-0.5, 0.0, 2.0, None])
def test_codes_are_pooled_before_a_batch_norm(bias, between, gamma):
    """The convolution thresholds its sums whatever the signs of gamma, and no sums are pooled."""
    rng, c = np.random.default_rng(1), 6
    gammas = rng.choice([-0.5, 0, 0.5, 2], c) if gamma is None else np.full(c, gamma)
    inputs, nodes = (
        ["codes", "w", *["bias"] * bias],
        [node("Quant", ["x", "step", "zero", "bits"], ["codes"], **UNSIGNED)],
    )
    nodes += [node("Conv", inputs, ["sums"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    nodes += [node(between, ["sums"], ["turned"])] if between else []
    nodes += [
        node("MaxPool", ["turned" if between else "sums"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        node("BatchNormalization", ["pooled", "gamma", "beta", "mean", "var"], ["normal"]),
        node("Quant", ["normal", "step", "zero", "bits"], ["y"], **UNSIGNED),
    ]
    tensors = [("step", np.float32(0.5)), ("zero", np.float32(0)), ("bits", np.float32(2))]
    tensors += [("w", rng.integers(-2, 2, (c, 3, 3, 3)).astype(np.float32)), ("gamma", gammas.astype(np.float32))]
    tensors += [("bias", rng.integers(-4, 5, c).astype(np.float32) / 2)] * bias
    tensors += [(n, rng.integers(-3, 4, c).astype(np.float32)) for n in ("beta", "mean")]
    tensors += [("var", np.ones(c, np.float32))]
    whole = model(nodes, [("x", (1, 3, 6, 8))], [("y", None)], tensors)
    graph = qa.nn.load(whole)
    conv = next(n for n in graph.nodes if n.op == "conv2d")
    assert len(conv.inputs) == 3 and [n.op for n in graph.nodes].count("max_pool2d") == 1
    x = rng.integers(-2, 8, (3, 3, 6, 8)).astype(np.float32) / 4
    np.testing.assert_array_equal(graph(x), evaluator(whole).run(None, {"x": x})[0])


@pytest.mark.parametrize("shortcut", ["codes", "sums"])
@pytest.mark.parametrize("again", [False, True])
def test_shortcuts_are_added_before_thresholds(shortcut, again, tmp_path):
    """Shortcuts of codes and of another convolution's sums; a sum with another reader is returned beside its codes."""
    rng, c = np.random.default_rng(2), 5
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    other = "codes" if shortcut == "codes" else "second"
    nodes = [
        node("Quant", ["x", "step", "zero", "bits"], ["codes"], **UNSIGNED),
        node("Conv", ["codes", "w"], ["first"], **conv),
        *([] if shortcut == "codes" else [node("Conv", ["codes", "v"], ["second"], **conv)]),
        node("Add", ["first", other], ["sum"]),
        node("Quant", ["sum", "step", "zero", "bits"], ["y"], **UNSIGNED),
        *([node("Conv", ["y", "w"], ["third"], **conv), node("Add", ["third", "sum"], ["z"])] if again else []),
    ]
    tensors = [("step", np.float32(0.5)), ("zero", np.float32(0)), ("bits", np.float32(2))]
    tensors += [(n, rng.integers(-2, 2, (c, c, 3, 3)).astype(np.float32)) for n in ("w", "v")]
    whole = model(nodes, [("x", (1, c, 6, 8))], [("z" if again else "y", None)], tensors)
    graph = qa.nn.load(whole)
    sums = [n for n in graph.nodes if n.op == "add_residual"]
    assert len(sums) == 1 + again and len(sums[0].inputs) == 3 and len(sums[0].outputs) == 1 + again
    assert not any(n.op == "Add" for n in graph.nodes)
    x = rng.integers(-2, 8, (3, c, 6, 8)).astype(np.float32) / 4
    expected = evaluator(whole).run(None, {"x": x})[0]
    np.testing.assert_array_equal(graph(x), expected)
    graph.save(tmp_path / "net.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "net.qa")(x), expected)


@AXES
def test_channels_are_shuffled(axes):
    """One operation replaces the Reshape, Transpose and Reshape of exporters; other reshapes stay."""
    image, c = (4, 3, 2)[:axes], 6
    swap = [0, 2, 1, *range(3, axes + 3)]
    for last, name in (((c, *image), "channel_shuffle"), ((c * 2, image[0] // 2, *image[1:]), "transpose")):
        nodes = [
            node("Quant", ["x", "step", "zero", "bits"], ["codes"], **UNSIGNED),
            node("Reshape", ["codes", "wide"], ["groups"]),
            node("Transpose", ["groups"], ["turned"], perm=swap),
            node("Reshape", ["turned", "narrow"], ["y"]),
        ]
        tensors = [("step", np.float32(0.5)), ("zero", np.float32(0)), ("bits", np.float32(2))]
        tensors += [("wide", np.array([-1, 2, c // 2, *image])), ("narrow", np.array([-1, *last]))]
        whole = model(nodes, [("x", (1, c, *image))], [("y", None)], tensors)
        graph = qa.nn.load(whole)
        assert name in [n.op for n in graph.nodes] and [n.op for n in graph.nodes].count("reshape") in (0, 2)
        x = np.random.default_rng(0).integers(-2, 8, (3, c, *image)).astype(np.float32) / 4
        np.testing.assert_array_equal(graph(x), evaluator(whole).run(None, {"x": x})[0])
