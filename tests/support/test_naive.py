"""The oracle itself, against numbers worked by hand, literal loops, torch and trained networks."""

import itertools
import json

import naive
import numpy as np
import pytest
from paths import SHARED

NETWORKS = SHARED / "networks"

# image (n, h, w, c), kernel (o, kh, kw), then the geometry
GEOMETRIES = [
    ((2, 5, 6, 3), (4, 3, 3), {}),
    ((1, 5, 6, 4), (6, 3, 2), {"stride": (2, 1), "padding": ((1, 0), (2, 1)), "groups": 2}),
    ((1, 7, 5, 2), (3, 2, 3), {"dilation": (3, 2), "padding": ((0, 2), (1, 1)), "pad_value": 5}),
    ((2, 4, 4, 3), (6, 3, 3), {"padding": ((1, 1),) * 2, "groups": 3, "pad_value": -1, "flip_kernel": True}),
    ((1, 1, 1, 1), (1, 1, 1), {"stride": (3, 3), "padding": ((2, 1), (0, 3))}),
]


def draw(image, kernel, geometry, seed=0):
    """Draw an image and weights of integers -5 to 5."""
    rng = np.random.default_rng(seed)
    depth = image[-1] // geometry.get("groups", 1)
    return rng.integers(-5, 6, image), rng.integers(-5, 6, (*kernel, depth))


def literal_taps(
    x, w, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1, pad_value=0, flip_kernel=False
):
    """List the taps of every output index by the definition: pairs (input index or None outside, weight index)."""
    (n, h, width), (o, kh, kw, depth) = x.shape[:3], w.shape
    (top, bottom), (left, right) = padding
    oh = len(range(0, top + h + bottom - (kh - 1) * dilation[0], stride[0]))
    ow = len(range(0, left + width + right - (kw - 1) * dilation[1], stride[1]))
    taps = {}
    for b, i, j, k in itertools.product(range(n), range(oh), range(ow), range(o)):
        taps[b, i, j, k] = []
        for ky, kx, d in itertools.product(range(kh), range(kw), range(depth)):
            y, xx = i * stride[0] + ky * dilation[0] - top, j * stride[1] + kx * dilation[1] - left
            place = (b, y, xx, k // (o // groups) * depth + d) if 0 <= y < h and 0 <= xx < width else None
            weight = (k, kh - 1 - ky, kw - 1 - kx, d) if flip_kernel else (k, ky, kx, d)
            taps[b, i, j, k].append((place, weight))
    return taps, (n, oh, ow, o)


def test_out_size_and_pads():
    assert naive.out_size(5, 3, 2, 1, 0, 1) == 2
    assert naive.out_size(7, 3, 1, 0, 0, 3) == 1
    assert naive.out_size(2, 3, 1, 0, 0, 1) == 0
    assert naive.pads(5, 3, 1, 1, 2) == (2, 2)
    assert naive.pads(5, 3, 1, 1, (0, 4)) == (0, 4)
    assert naive.pads(5, 3, 1, 1, "valid") == (0, 0)
    assert naive.pads(5, 2, 1, 1, "same") == (0, 1)
    assert naive.pads(6, 3, 2, 1, "same") == (0, 1)  # as TensorFlow pads it
    with pytest.raises(ValueError, match="'full'"):
        naive.pads(5, 3, 1, 1, "full")
    for n, k, stride, dilation in itertools.product(range(1, 9), range(1, 5), range(1, 4), range(1, 4)):
        before, after = naive.pads(n, k, stride, dilation, "same")
        assert 0 <= after - before <= 1
        assert naive.out_size(n, k, stride, before, after, dilation) == -(-n // stride)


def test_conv2d_by_hand():
    x = np.array([[1, 2, 3], [4, 5, 6]]).reshape(1, 2, 3, 1)
    w = np.array([[1, 2], [3, -4]]).reshape(1, 2, 2, 1)
    # 1*1 + 2*2 + 4*3 - 5*4 = -3, then 2 + 6 + 15 - 24 = -1; flipped: -4*1 + 3*2 + 2*4 + 1*5 = 15, then 17
    assert naive.conv2d(x, w).tolist() == [[[[-3], [-1]]]]
    assert naive.conv2d(x, w, flip_kernel=True).tolist() == [[[[15], [17]]]]
    # a column of sevens on the left: 7*1 + 1*2 + 7*3 - 4*4 = 14
    assert naive.conv2d(x, w, padding=("valid", (1, 0)), pad_value=7).tolist() == [[[[14], [-3], [-1]]]]
    assert naive.conv2d(x, w, padding="same").shape == (1, 2, 3, 1)
    two, four = np.array([10, 20]).reshape(1, 1, 1, 2), np.array([1, 2, 3, 4]).reshape(4, 1, 1, 1)
    assert naive.conv2d(two, four, groups=2).tolist() == [[[[10, 20, 60, 80]]]]
    with pytest.raises(ValueError, match="3 groups"):
        naive.conv2d(x, w, groups=3)


@pytest.mark.parametrize(("image", "kernel", "geometry"), GEOMETRIES)
def test_conv2d_is_its_definition(image, kernel, geometry):
    x, w = draw(image, kernel, geometry)
    taps, shape = literal_taps(x, w, **geometry)
    out = naive.conv2d(x.astype(np.int8), w.astype(np.int8), **geometry)
    assert (out.shape, out.dtype) == (shape, np.int64)
    outside = geometry.get("pad_value", 0)
    for index, pairs in taps.items():
        assert out[index] == sum(int(w[b]) * (outside if a is None else int(x[a])) for a, b in pairs)


@pytest.mark.parametrize(("image", "kernel", "geometry"), GEOMETRIES)
def test_conv2d_is_torchs(image, kernel, geometry):
    torch = pytest.importorskip("torch")
    x, w = draw(image, kernel, geometry, seed=1)
    (top, bottom), (left, right) = geometry.get("padding", ((0, 0), (0, 0)))
    padded = torch.nn.functional.pad(
        torch.tensor(x, dtype=torch.float64).permute(0, 3, 1, 2),
        (left, right, top, bottom),
        value=geometry.get("pad_value", 0),
    )
    kernel = torch.tensor(w, dtype=torch.float64).permute(0, 3, 1, 2)
    if geometry.get("flip_kernel"):
        kernel = kernel.flip(2, 3)
    options = {name: geometry[name] for name in ("stride", "dilation", "groups") if name in geometry}
    expected = torch.nn.functional.conv2d(padded, kernel, **options).permute(0, 2, 3, 1).round().long().numpy()
    np.testing.assert_array_equal(naive.conv2d(x, w, **geometry), expected)


def test_matmul_is_exact_beyond_float64():
    a, b = np.array([[2**31, 1]]), np.array([[2**31], [1]])
    assert naive.matmul(a, b).tolist() == [[2**62 + 1]]
    lowest = np.array([[-128]], np.int8)
    assert naive.linear(lowest, lowest).tolist() == [[16384]]
    stack = naive.matmul(np.arange(12).reshape(2, 1, 2, 3), np.arange(9).reshape(3, 3))
    assert stack.shape == (2, 1, 2, 3)
    assert stack[1, 0, 1].tolist() == [9 * 0 + 10 * 3 + 11 * 6, 9 + 40 + 77, 18 + 50 + 88]


def test_pooling_by_hand():
    x = np.array([[-1, -2, -3], [-4, -5, -6]]).reshape(1, 2, 3, 1)
    assert naive.max_pool2d(x, (2, 2), (1, 1)).tolist() == [[[[-1], [-2]]]]
    geometry = ((2, 2), (2, 2), ((1, 0), (0, 1)))  # the padding, above and on the right, never wins
    assert naive.max_pool2d(x, *geometry).tolist() == [[[[-1], [-3]]]]
    sums, inside = naive.avg_pool2d_sum(x, *geometry)
    assert sums.tolist() == [[[[-3], [-3]]]]
    assert inside.tolist() == [[[2], [1]]]
    with pytest.raises(ValueError, match="wholly in the padding"):
        naive.max_pool2d(x, (1, 2), (1, 1), ((0, 1), (0, 0)))


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 0), (0, 2)), ((2, 2), (1, 0))])
def test_pooling_is_torchs(padding):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(2).integers(-9, 10, (2, 6, 7, 3))
    (top, bottom), (left, right) = padding
    window, stride = (3, 3), (2, 1)

    def padded(a, fill):
        a = torch.tensor(a, dtype=torch.float64).permute(0, 3, 1, 2)
        return torch.nn.functional.pad(a, (left, right, top, bottom), value=fill)

    def channels_last(a):
        return a.permute(0, 2, 3, 1).round().long().numpy()

    highest = torch.nn.functional.max_pool2d(padded(x, -torch.inf), window, stride)
    sums = torch.nn.functional.avg_pool2d(padded(x, 0), window, stride) * 9
    inside = torch.nn.functional.avg_pool2d(padded(np.ones((1, 6, 7, 1)), 0), window, stride) * 9
    np.testing.assert_array_equal(naive.max_pool2d(x, window, stride, padding), channels_last(highest))
    got_sums, got_inside = naive.avg_pool2d_sum(x, window, stride, padding)
    np.testing.assert_array_equal(got_sums, channels_last(sums))
    np.testing.assert_array_equal(got_inside, channels_last(inside)[0])


def test_thresholds_by_hand():
    t = np.array([[2, 5, 7]])
    acc = np.array([[1], [2], [5], [6], [9]])
    assert naive.thresholds(acc, t, greater=True, strict=True)[:, 0].tolist() == [0, 0, 1, 2, 3]
    assert naive.thresholds(acc, t, greater=True, strict=False)[:, 0].tolist() == [0, 1, 2, 2, 3]
    assert naive.thresholds(acc, t, greater=False, strict=True)[:, 0].tolist() == [3, 2, 1, 1, 0]
    assert naive.thresholds(acc, t, greater=False, strict=False)[:, 0].tolist() == [3, 3, 2, 1, 0]
    four = naive.thresholds(
        np.full((2, 1, 4), 5),
        np.repeat(t, 4, axis=0),
        greater=np.array([True, True, False, False]),
        strict=np.array([True, False] * 2),
    )
    assert four.tolist() == [[[1, 2, 1, 2]]] * 2


def test_affine_dot_adds_in_the_documented_order():
    """1, 2**60 and -2**60 in any three places of the sum, which is 1 or 0 depending on the order."""
    unit, places = [[1.0, 1.0]] * 2, 8 + 4 + 4 + 2 + 1 + 1  # two parts, two terms on either side
    for one, big, minus in itertools.permutations(range(places), 3):
        terms = np.zeros(places)
        terms[[one, big, minus]] = 1, 2.0**60, -(2.0**60)
        value = 0.0
        for term in terms.tolist():
            value += term
        U, A, B = terms[:8].reshape(2, 2, 2), terms[8:12].reshape(2, 2), terms[12:16].reshape(2, 2)
        assert naive.affine_dot(unit, [1.0] * 2, unit, [1.0] * 2, U, A, B, terms[16:18], *terms[18:]) == value


def test_affine_dot_rounds_every_product():
    # the worked example of the docstring, x = 1 + 2*[0, 1] and w = -3 + 4*[1, 1]
    example = naive.linear_affine([[[0, 1]]], [2], 1, [[[1, 1]]], [4], -3)
    assert (example.dtype, example.tolist()) == (np.float32, [[4]])
    # the two constants are multiplied first
    a, b, count = 0.1, 0.3, 7
    assert (a * b) * count != a * (b * count)
    rounded = (a * b) * count
    assert naive.linear_affine([[[1]]], [a], 0, [[[count]]], [b], 0, bias=-rounded) == 0
    # and the product of U is rounded as that of A is: 7 * 0.1 - 7 * 0.1 leaves -2.8e-17 if one is fused
    assert naive.affine_dot([[a]], [0.0], [[1.0]], [1.0], [[[-count]]], [[count]], [[0]], [1]) == 0


def test_conv2d_affine_adds_the_padding_in_the_documented_order():
    # a padded pixel above a zero: 1 * ((1 + 2**60) - 2**60), which is 1 if the two large terms come first
    zero, one = np.zeros((1, 1, 1, 1), np.int64), np.ones((1, 1, 1, 1), np.int64)
    out = naive.conv2d_affine(
        [zero], [1], 0, [one, one], [2.0**60, -(2.0**60)], 1, padding=((1, 0), (0, 0)), pad_value=1
    )
    assert out.tolist() == [[[[0]], [[0]]]]


@pytest.mark.parametrize(("image", "kernel", "geometry"), GEOMETRIES)
def test_conv2d_affine_is_its_definition(image, kernel, geometry):
    """Compare with Python floats over literal taps in the stated order, bit for bit, and with the plain convolution."""
    rng = np.random.default_rng(3)
    u, v = zip(draw(image, kernel, geometry, 4), draw(image, kernel, geometry, 5), strict=True)
    sx, sw = (rng.normal(size=(2, n)).astype(np.float32) for n in (image[0], kernel[0]))
    ox, ow = (rng.normal(size=n).astype(np.float32) for n in (image[0], kernel[0]))
    geometry = {**geometry, "pad_value": 0.3 * geometry.get("pad_value", 0)}

    def in_order(b, k, pairs):
        inside, outside = [p for p in pairs if p[0]], [p[1] for p in pairs if not p[0]]
        o_x, o_w, s_x, s_w = float(ox[b]), float(ow[k]), sx[:, b].tolist(), sw[:, k].tolist()
        value = 0.0
        for t, s in itertools.product(range(2), range(2)):
            value += (s_x[t] * s_w[s]) * sum(int(u[t][x]) * int(v[s][w]) for x, w in inside)
        for t in range(2):
            value += (s_x[t] * o_w) * sum(int(u[t][x]) for x, _ in inside)
        for s in range(2):
            value += (o_x * s_w[s]) * sum(int(v[s][w]) for _, w in inside)
        value += (o_x * o_w) * len(inside)
        p = o_w * len(outside)
        for s in range(2):
            p += s_w[s] * sum(int(v[s][w]) for w in outside)
        return value + geometry["pad_value"] * p

    taps, shape = literal_taps(u[0], v[0], **geometry)
    # This bias cancels the first pixel, which any padding touches: 0 there shows that all float64 bits agree.
    bias = np.array([-in_order(0, k, taps[0, 0, 0, k]) for k in range(kernel[0])])
    out = naive.conv2d_affine(u, sx, ox, v, sw, ow, bias=bias, **geometry)
    assert (out.shape, out.dtype) == (shape, np.float32)
    assert not out[0, 0, 0].any()
    for (b, i, j, k), pairs in taps.items():
        assert out[b, i, j, k] == np.float32(in_order(b, k, pairs) + bias[k])

    def values(offset, scales, terms):  # of an operand whose constants differ along its first axis
        offset, *scales = (np.float64(c).reshape(-1, 1, 1, 1) for c in (offset, *scales))
        return offset + scales[0] * terms[0] + scales[1] * terms[1]

    direct = naive.conv2d(values(ox, sx, u), values(ow, sw, v), **geometry) + bias
    np.testing.assert_allclose(out, direct, rtol=1e-6, atol=1e-10)


def test_linear_affine_parts():
    """Compare parts that have constants with the product of values, and parts of equal constants with the whole."""
    rng = np.random.default_rng(6)
    u, v, parts = rng.integers(0, 4, (2, 3, 10)), rng.integers(0, 4, (1, 4, 10)), [slice(0, 7), slice(7, 10)]
    sx, ox, sw, ow, bias = (rng.normal(size=s) for s in [(2, 2, 3), (2, 3), (2, 1, 4), (2, 4), (4,)])
    expected = bias.copy()
    for p, part in enumerate(parts):
        x = ox[p][:, None] + sx[p, 0][:, None] * u[0][:, part] + sx[p, 1][:, None] * u[1][:, part]
        w = ow[p][:, None] + sw[p, 0][:, None] * v[0][:, part]
        expected = expected + x @ w.T
    out = naive.linear_affine(u, sx, ox, v, sw, ow, bias, parts)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-10)
    # powers of two make every order exact
    same = naive.linear_affine(u, [[2, 0.5]] * 2, [-1, -1], v, [[0.25]] * 2, [4, 4], None, parts)
    np.testing.assert_array_equal(same, naive.linear_affine(u, [2, 0.5], -1, v, [0.25], 4))


def test_run_layers_options():
    """strict, invert, pad_value and pooling of a network small enough to follow: 1x1 weights 1 and -1."""
    arrays = {"w": np.array([1, -1]).reshape(2, 1, 1, 1), "t": np.array([[0, 3], [0, 3]]), "i": np.array([False, True])}
    layer = {"op": "conv2d", "weight": "w", "threshold": "t", "stride": 1, "pad": [1, 0], "values": [10, 20, 30]}
    x = np.array([3, 5]).reshape(1, 1, 2, 1)

    def run(*layers):
        return naive.run_layers({"layers": layers}, arrays, x)[0]

    # acc is 0 in the padding, then 3, 5 and -3, -5
    assert run(layer)[1].tolist() == [[10, 10], [20, 10], [30, 10]]
    assert run({**layer, "strict": False})[1].tolist() == [[20, 20], [30, 10], [30, 10]]
    assert run({**layer, "invert": "i"})[1].tolist() == [[10, 30], [20, 30], [30, 30]]
    assert run({**layer, "invert": "i", "strict": False})[1].tolist() == [[20, 20], [30, 30], [30, 30]]
    assert run({**layer, "pad_value": -4})[1].tolist() == [[10, 30], [20, 10], [30, 10]]
    pooled = {"op": "max_pool2d", "size": 2, "stride": 2, "pad": [0, 1]}
    assert run({**layer, "pad": 0}, pooled).tolist() == [[[30, 10]]]
    with pytest.raises(ValueError, match="softmax"):
        run({"op": "softmax"})


@pytest.mark.parametrize("name", ["lfc-w1a1", "cnv-w1a1", "cnv-w1a2", "tinier-yolo-w1a3"])
def test_run_network_gives_every_expected_number(name):
    file = NETWORKS / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"no trained network {file}")
    with np.load(file) as stored:
        expected, meta = stored["expected"], json.loads(str(stored["meta"]))
    assert meta["name"] == name
    np.testing.assert_array_equal(naive.run_network(file), expected)
