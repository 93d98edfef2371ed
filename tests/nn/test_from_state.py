"""A description of layers and a state dict give the network that other functions give, in a process without PyTorch."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import quantarray as qa

RNG = np.random.default_rng(3)


def norm(name, c):
    arrays = {part: RNG.standard_normal(c) for part in ("weight", "bias", "running_mean")}
    arrays |= {"running_var": RNG.uniform(0.5, 2, c), "num_batches_tracked": np.array(3)}
    return {f"{name}.{part}": a for part, a in arrays.items()}


def test_cnv_is_the_published_network():
    """FINN's CNV, written as a description, gives the scores of `qa.nn.models.cnv`."""
    state = qa.nn.models.parameters(qa.nn.models.cnv, seed=4)
    layers = []
    for i, pooled in enumerate((False, True, False, True, False, False)):
        layers += [{"type": "conv", "name": f"conv{i + 1}", "weights": 1}, {"type": "norm", "name": f"bn{i + 1}"}]
        layers += [{"type": "sign"}, *[{"type": "max_pool", "size": 2}] * pooled]
    layers.append({"type": "flatten"})
    for i in range(2):
        layers += [{"type": "linear", "name": f"fc{i + 1}", "weights": 1}]
        layers += [{"type": "norm", "name": f"bn{i + 7}"}, {"type": "sign"}]
    layers.append({"type": "linear", "name": "fc3", "weights": 1})
    net = qa.nn.from_state(layers, state, (3, 32, 32), dtype="uint8")
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    expected = qa.nn.models.cnv(dict(state))
    assert not [row for row in net.summary().numpy if row.op in ("Conv", "MatMul")]
    np.testing.assert_array_equal(net(images), expected(images))


def test_residual_of_k_bits_equals_numpy():
    state = {
        "a.weight": RNG.integers(-7, 8, (8, 8, 1, 1)) * 0.25, **norm("n", 8), "step": np.array(0.5),
        "fc.weight": RNG.integers(-2, 2, (5, 8)) * 0.125, "fc.bias": RNG.standard_normal(5),
    }  # fmt: skip
    quantize = {"type": "quantize", "bits": 4, "scale": "step"}
    inner = [{"type": "conv", "name": "a"}, {"type": "norm", "name": "n"}, {"type": "relu"}, quantize]
    layers = [
        quantize,
        {"type": "residual", "layers": inner},
        {"type": "global_pool"},
        {"type": "linear", "name": "fc"},
    ]
    net = qa.nn.from_state(layers, state, (8, 4, 4))
    x = RNG.standard_normal((3, 8, 4, 4)).astype(np.float32) * 2
    q = lambda v: np.clip(np.rint(v / 0.5), -8, 7) * 0.5  # noqa: E731
    first = q(x.astype(np.float64))
    y = np.einsum("oc,nchw->nohw", state["a.weight"][:, :, 0, 0], first)
    column = lambda name: state[f"n.{name}"][:, None, None]  # noqa: E731
    y = (y - column("running_mean")) / np.sqrt(column("running_var") + 1e-5) * column("weight") + column("bias")
    total = (first + q(np.maximum(y, 0))).mean(axis=(2, 3))
    np.testing.assert_allclose(net(x), total @ state["fc.weight"].T + state["fc.bias"], rtol=1e-5, atol=1e-5)
    assert sum(row.op.startswith("conv2d") for row in net.summary().rows) == 1


@pytest.mark.parametrize("weights", ["sign", 1, 2, 4, "int8", None, lambda w: np.rint(w * 4) / 4])
def test_weights(weights):
    w = RNG.standard_normal((6, 10)).astype(np.float32) * 0.5
    net = qa.nn.from_state(
        [{"type": "sign"}, {"type": "linear", "name": "f", "weights": weights}], {"f.weight": w}, [10]
    )
    x = RNG.standard_normal((4, 10)).astype(np.float32)
    t = np.tanh(w) / (2 * np.abs(np.tanh(w)).max()) + 0.5
    step = np.abs(w).max(axis=1, keepdims=True) / 127
    values = {
        "sign": lambda: np.where(w >= 0, 1, -1), 1: lambda: np.where(w >= 0, 1, -1) * np.abs(w).mean(axis=1)[:, None],
        2: lambda: 2 * np.rint(t * 3) / 3 - 1, 4: lambda: 2 * np.rint(t * 15) / 15 - 1, None: lambda: w,
        "int8": lambda: np.rint(w / step) * step,
    }.get(weights, lambda: weights(w))()  # fmt: skip
    np.testing.assert_allclose(net(x), np.where(x >= 0, 1, -1) @ values.T, rtol=1e-5, atol=1e-5)


def test_a_file_is_enough_where_torch_cannot_be_imported(tmp_path):
    np.savez(tmp_path / "net.npz", **{"fc.weight": np.array([[0.5, -2, 1]]), "fc.bias": np.array([0.5])})
    code = """
        import sys
        sys.modules["torch"] = None  # `import torch` raises ImportError
        import numpy as np, quantarray as qa
        layers = [{"type": "sign"}, {"type": "linear", "name": "fc", "weights": "sign"}]
        net = qa.nn.from_state(layers, dict(np.load(sys.argv[1])), (3,))
        print(net(np.array([[1, -1, -1]], np.float32)))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "net.npz")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[[1.5]]\n"


F = {"f.weight": np.ones((2, 3), np.float32)}
LINEAR = {"type": "linear", "name": "f"}


@pytest.mark.parametrize(
    ("layers", "state", "why"),
    [
        ([{"type": "dense"}], F, "layer 0 must be a dict whose 'type' is one of conv, linear, .*, got 'dense'"),
        ([{"type": "linear"}], F, r"layer 0 \(linear\) lacks 'name'; it takes name, weights"),
        ([{**LINEAR, "bits": 2}], F, r"layer 0 \(linear\) has 'bits'; it takes name, weights"),
        (
            [{**LINEAR, "name": "g"}],
            F,
            r"layer 0 \(linear\) needs 'g.weight', which the state lacks; it has 'f.weight'",
        ),
        ([{**LINEAR, "weights": "two"}], F, r"weights must be None, a function, 'sign', 'int8' or 1 to 7, got 'two'"),
        ([LINEAR], {**F, "h.weight": np.ones(1)}, "no layer takes 'h.weight' of the state"),
        ([LINEAR], {"f.weight": np.full((2, 3), np.nan)}, "'f.weight' has a NaN"),
        ([LINEAR, {"type": "conv", "name": "f"}], {"f.weight": np.ones((2, 4))}, "from_state: "),
        (LINEAR, F, "layers must be a list of dicts, got dict"),
        ([{"type": "max_pool", "size": "2"}], {}, r"layer 0 \(max_pool\): size must be an integer from 1"),
        ([{"type": "residual", "layers": [{"type": "x"}]}], F, r"layer 0 \(residual\), layer 0 must be"),
    ],
)
def test_errors_name_the_layer(layers, state, why):
    with pytest.raises((TypeError, ValueError), match=why):
        qa.nn.from_state(layers, state, (3,))


CONV = {"type": "conv", "name": "c"}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (4, 1), (2, 3)])
def test_padding_by_name(axes, kernel, dilation):
    """With an odd width the last element is after the image, as in PyTorch."""
    rng = np.random.default_rng(axes)
    state = {"c.weight": rng.integers(-2, 3, (2, 3, *[kernel] * axes)).astype(np.float32)}
    x = rng.integers(-3, 4, (2, 3, *[8] * axes)).astype(np.float32)
    layer, width = {**CONV, "dilation": dilation}, dilation * (kernel - 1)
    wide = np.pad(x, [(0, 0), (0, 0), *[(width // 2, width - width // 2)] * axes])
    plain = qa.nn.from_state([layer], state, wide.shape[1:])
    same = qa.nn.from_state([{**layer, "padding": "same"}], state, x.shape[1:])
    np.testing.assert_array_equal(same(x), plain(wide))
    valid = qa.nn.from_state([{**layer, "padding": "valid"}], state, x.shape[1:])
    np.testing.assert_array_equal(valid(x), qa.nn.from_state([layer], state, x.shape[1:])(x))


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"padding": "full"}, "padding must be an integer from 0, or 2 of them, got 'full'"),
        ({"padding": "same", "stride": 2}, "padding 'same' needs stride 1, got 2"),
        ({"padding": -1}, "padding must be an integer from 0"),
        ({"padding": None}, "padding must be an integer from 0"),
        ({"stride": 0}, "stride must be an integer from 1, or 2 of them, got 0"),
        ({"stride": (1, 2, 3)}, "stride must be an integer from 1, or 2 of them"),
        ({"dilation": 1.5}, "dilation must be an integer from 1, or 2 of them, got 1.5"),
        ({"groups": "all"}, "groups must be an integer from 1, got 'all'"),
    ],
)
def test_errors_of_windows_name_the_option(option, why):
    state = {"c.weight": np.ones((4, 3, 3, 3), np.float32)}
    with pytest.raises(ValueError, match=rf"from_state: layer 0 \(conv\): {why}"):
        qa.nn.from_state([{**CONV, **option}], state, (3, 8, 8))


@pytest.mark.parametrize("first", [-1, None, "n"])
def test_a_shape_with_the_batch_is_refused_with_the_fix(first):
    with pytest.raises(ValueError, match=r"shape must be that of an input without the batch, .*; \(3,\) is the shape"):
        qa.nn.from_state([LINEAR], F, (first, 3))
    with pytest.raises(TypeError, match=r"shape must be a tuple such as \(3, 32, 32\), got 3"):
        qa.nn.from_state([LINEAR], F, 3)
