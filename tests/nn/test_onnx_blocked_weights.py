"""MatMulNBits of ONNX Runtime: exact weights of blocks, and products near those of the runtime and the formula."""

import numpy as np
import pytest
from onnx_models import model, onnx

import quantarray as qa

F = np.float32
KINDS = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.float16): 10, np.dtype(np.int32): 6}


def pack(codes, bits):
    """Bytes of codes [.. n], the first in the lowest bits."""
    each = (codes[..., None] >> np.arange(bits)) & 1
    flat = each.reshape(*codes.shape[:-1], -1).astype(np.uint8)
    more = -flat.shape[-1] % 8
    return np.packbits(np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, more)]), axis=-1, bitorder="little")


def case(bits, k, outputs, group, zeros, seed=0, kind=np.float32):
    """Return (weight codes, constants of the node, values [outputs k])."""
    rng = np.random.default_rng(seed)
    blocks = -(-k // group)
    codes = rng.integers(0, 2**bits, (outputs, blocks, group))
    scale = rng.normal(size=(outputs, blocks)).astype(kind)
    constants, zero = [pack(codes, bits), scale], np.full((outputs, blocks), 2 ** (bits - 1))
    if zeros == "packed":
        zero = rng.integers(0, 2**bits, (outputs, blocks))
        constants.append(pack(zero, bits).reshape(-1))
    elif zeros == "floats":
        zero = rng.normal(size=(outputs, blocks)).astype(kind)
        constants.append(zero)
    values = (codes - zero[..., None]).astype(F) * scale[..., None].astype(F)
    return constants, values.reshape(outputs, -1)[:, :k]


def net(constants, x, k, outputs, group, bits, bias=None, **attributes):
    names = ["x", "w", "s", "z"][: len(constants) + 1]
    tensors = list(zip(names[1:], constants, strict=True))
    if bias is not None:
        names += [""] * (5 - len(names)) + ["b"]
        tensors.append(("b", bias))
    attributes = {"K": k, "N": outputs, "bits": bits, "block_size": group, **attributes}
    made = onnx.helper.make_node("MatMulNBits", names, ["y"], name="y_node", domain="com.microsoft", **attributes)
    m = model([made], [("x", x.shape, KINDS[x.dtype])], [("y", None, KINDS[x.dtype])], tensors)
    m.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return m


@pytest.mark.parametrize("group", [16, 32, 64, 128])
@pytest.mark.parametrize("zeros", [None, "packed", "floats"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_values_and_products(bits, zeros, group):
    k, outputs = 150, 7
    constants, values = case(bits, k, outputs, group, zeros, seed=bits)
    x = np.random.default_rng(1).normal(size=(3, k)).astype(F)
    graph = qa.nn.load(net(constants, x, k, outputs, group, bits))
    weight = next(a for a in graph.constants.values() if isinstance(a, qa.QuantArray))
    if zeros == "floats" or (zeros == "packed" and bits == 8):  # an offset is rounded
        np.testing.assert_allclose(weight.dequantize(), values, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(weight.dequantize(), values)
        assert weight.bits <= max(2, bits + (zeros == "packed"))
    np.testing.assert_allclose(graph(x), x @ values.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("zeros", [None, "packed"])
@pytest.mark.parametrize("bits, group", [(2, 32), (4, 16), (4, 32), (4, 128), (8, 64)])
def test_as_the_runtime(bits, group, zeros):
    runtime = pytest.importorskip("onnxruntime")
    constants, _ = case(bits, 256, 24, group, zeros, seed=group)
    rng = np.random.default_rng(2)
    x, bias = rng.normal(size=(2, 5, 256)).astype(F), rng.normal(size=24).astype(F)
    m = net(constants, x, 256, 24, group, bits, bias)
    expected = runtime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0]
    graph = qa.nn.load(m)
    np.testing.assert_allclose(graph(x), expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(graph.prepared()(x), graph(x))


def test_float16_and_files(tmp_path):
    constants, values = case(4, 64, 5, 32, None, kind=np.float16)
    x = np.random.default_rng(3).normal(size=(2, 64)).astype(np.float16)
    graph = qa.nn.load(net(constants, x, 64, 5, 32, 4))
    y = graph(x)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(F), x.astype(F) @ values.T, rtol=2e-3, atol=2e-2)
    graph.save(tmp_path / "n.qa")
    np.testing.assert_array_equal(qa.nn.load(tmp_path / "n.qa")(x), y)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"bits": 9}, "bits must be 1 to 8"),
        ({"K": 63}, "rows of K = 63 elements"),
        ({"block_size": 0}, "block_size positive"),
        ({"N": 6}, "do not go together"),
        ({"bits": 5}, "codes of 5 bits take 20 bytes, not 16"),
    ],
)
def test_refused(change, message):
    constants, _ = case(4, 64, 5, 32, None)
    x = np.zeros((2, 64), F)
    settings = {"K": 64, "N": 5, "block_size": 32, "bits": 4} | change
    m = net(constants, x, settings["K"], settings["N"], settings["block_size"], settings["bits"])
    with pytest.raises(ValueError, match=message):
        qa.nn.load(m)


def test_another_order_of_inputs():
    constants, values = case(4, 64, 5, 32, None)
    x = np.ones((1, 64), F)
    for order, taken in ((np.arange(64) // 32, True), (np.arange(64)[::-1] // 32, False)):
        m = net(constants, x, 64, 5, 32, 4)
        m.graph.initializer.append(onnx.numpy_helper.from_array(order.astype(np.int32), "g"))
        m.graph.node[0].input.extend(["", "g"])
        if taken:
            np.testing.assert_allclose(qa.nn.load(m)(x), x @ values.T, rtol=1e-4, atol=1e-4)
        else:
            with pytest.raises(ValueError, match="inputs are in another order"):
                qa.nn.load(m)
