"""The oracle: what every operation means, computed on values by plain loops over taps.

It knows nothing of bits, words or packing and shares no code with the package. Images are `[n h w c]`,
convolution weights `[o kh kw c]`, dense weights `[o k]`. Integers are computed exactly, in int64, and floats
in float64.
"""

import itertools
import json

import numpy as np


def _widen(a):
    """`a` in the dtype it is computed in: int64 for integers and bool, float64 for floats."""
    a = np.asarray(a)
    return a.astype(np.float64 if a.dtype.kind == "f" else np.int64)


def out_size(n, k, stride, before, after, dilation):
    """Count how often a window of `k` taps fits: floor((before + n + after - span) / stride) + 1, or 0.

    out_size(5, k=3, stride=2, before=1, after=0, dilation=1) == (6 - 3) // 2 + 1 == 2
    """
    span = (k - 1) * dilation + 1
    return max((before + n + after - span) // stride + 1, 0)


def pads(n, k, stride, dilation, padding):
    """(before, after) of one axis for `padding` = int, (before, after), "valid", or "same".

    "same" makes ceil(n / stride) outputs; where the total is odd, the extra element goes to the end:
    pads(5, k=2, stride=1, dilation=1, padding="same") == (0, 1)
    """
    if isinstance(padding, str):
        if padding == "valid":
            return 0, 0
        if padding != "same":
            raise ValueError(f"padding needs an int, a pair, 'same' or 'valid', got {padding!r}")
        out = -(-n // stride)
        total = max((out - 1) * stride + (k - 1) * dilation + 1 - n, 0)
        return total // 2, total - total // 2
    before, after = (padding, padding) if np.ndim(padding) == 0 else padding
    return int(before), int(after)


def _taps(x, kernel, stride, padding, dilation, fill):
    """List (tap, what it reads of `x`, `[n .. c]`, with `fill` where it is outside) for each tap of any axes."""
    axes = len(kernel)
    if not isinstance(padding, (tuple, list)):  # one int or word for all axes
        padding = (padding,) * axes
    around, places = [], []
    for n, k, step, dil, pad in zip(x.shape[1:-1], kernel, stride, dilation, padding, strict=True):
        before, after = pads(n, k, step, dil, pad)
        starts = step * np.arange(out_size(n, k, step, before, after, dil))
        around.append((before, after))
        places.append([starts + i * dil for i in range(k)])
    x = np.pad(x, ((0, 0), *around, (0, 0)), constant_values=fill)
    taps = []
    for at in itertools.product(*map(range, kernel)):
        seen = x
        for axis, tap in enumerate(at):
            seen = seen.take(places[axis][tap], axis + 1)
        taps.append((at, seen))
    return taps


def matmul(a, b):
    """Compute a @ b exactly, `[... m k]` by `[... k n]`; leading axes broadcast."""
    a, b = _widen(a), _widen(b)
    if a.dtype == b.dtype == np.int64:
        # NumPy multiplies integers without BLAS, tens of times slower. float64 BLAS is exact too, in any
        # order of summation and with fused multiply-add, as long as no partial sum can reach 2**53.
        largest = a.shape[-1] * int(np.abs(a).max(initial=0)) * int(np.abs(b).max(initial=0))
        if largest < 2**53:
            return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return a @ b


def linear(x, w):
    """Compute x @ w.T exactly, `[rows k]` by `[o k]`."""
    return matmul(x, np.asarray(w).T)


def conv2d(x, w, stride=None, padding=0, dilation=None, groups=1, pad_value=0, flip_kernel=False):
    """Correlate `[n h w c]` with `[o kh kw c/groups]`: `[n oh ow o]`; and so images of any other number of axes.

    out[n, i, j, o] = sum over ky, kx, c of
        x[n, i*stride_h + ky*dilation_h - top, j*stride_w + kx*dilation_w - left, first + c] * w[o, ky, kx, c]

    with w turned by 180 degrees where `flip_kernel`, which makes it a convolution.

    Output channels and input channels fall into `groups` equal runs, and run g of the output sees run g of
    the input, which begins at channel `first`. Depthwise is groups = C: channel o sees channel o // (O // C).
    A tap outside the image has the value `pad_value`. `padding` is "same", "valid", an int, or what `pads`
    takes, once per axis.
    """
    x, w = _widen(x), _widen(w)
    dtype = np.result_type(x, w, _widen(pad_value))
    outputs, *kernel, depth = w.shape
    stride, dilation = stride or (1,) * len(kernel), dilation or (1,) * len(kernel)
    if x.shape[-1] != depth * groups or outputs % groups:
        raise ValueError(f"conv2d: {x.shape} and {w.shape} do not fit {groups} groups")
    if flip_kernel:
        w = np.flip(w, range(1, w.ndim - 1))
    taps = _taps(x.astype(dtype), kernel, stride, padding, dilation, pad_value)
    out = np.zeros((*taps[0][1].shape[:-1], outputs), dtype)
    for g in range(groups):
        outs = slice(g * (outputs // groups), (g + 1) * (outputs // groups))
        ins = slice(g * depth, (g + 1) * depth)
        for at, seen in taps:
            out[..., outs] += matmul(seen[..., ins], w[(outs, *at)].T)
    return out


def spread(x, how, w_shape):
    """Put zeros between the pixels of `[n .. c]`, and what else a convolution at stride 1 by w in reverse needs around.

    `how` has stride, dilation, padding (what is cut off, a pair an axis) and output_padding of a transposed
    convolution; of one axis, [1, 2] at stride 2 by 2 taps is [0, 1, 0, 2, 0].
    """
    out, pads = _widen(x), []
    for axis, (s, d, k) in enumerate(zip(how["stride"], how["dilation"], w_shape[1:-1], strict=True), 1):
        n, more = out.shape[axis], how["output_padding"][axis - 1]
        wide = np.zeros((*out.shape[:axis], (n - 1) * s + 1, *out.shape[axis + 1 :]), out.dtype)
        wide[(slice(None),) * axis + (slice(None, None, s),)] = out
        out, reach = wide, (k - 1) * d
        before, after = how["padding"][axis - 1]
        pads.append((reach - before, reach - after + more))
    out = np.pad(out, ((0, 0), *((max(0, a), max(0, b)) for a, b in pads), (0, 0)))
    cut = (slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pads, out.shape[1:-1], strict=True))
    return out[(slice(None), *cut)]


def max_pool2d(x, window, stride, padding=((0, 0), (0, 0))):
    """Return the largest element inside each window, `[n oh ow c]`; ValueError if one has nothing inside."""
    x = _widen(x)
    if avg_pool2d_sum(x, window, stride, padding)[1].min(initial=1) == 0:
        raise ValueError(f"max_pool2d: a window {window} lies wholly in the padding {padding}")
    lowest = np.iinfo(np.int64).min if x.dtype == np.int64 else -np.inf
    out = lowest
    for _, seen in _taps(x, window, stride, padding, (1, 1), lowest):
        out = np.maximum(out, seen)
    return out


def avg_pool2d_sum(x, window, stride, padding=((0, 0), (0, 0))):
    """Return the sum over each window, `[n oh ow c]`, and how many of its elements are inside, `[oh ow 1]`."""
    x = _widen(x)
    inside = np.ones((1, *x.shape[1:3], 1), np.int64)
    total = sum(seen for _, seen in _taps(x, window, stride, padding, (1, 1), 0))
    count = sum(seen for _, seen in _taps(inside, window, stride, padding, (1, 1), 0))
    return total, count[0]


def pool_taps(n, k, stride, padding, dilation, ceil_mode):
    """List the places of each window of one axis, and which of them a mean counts where padding counts.

    A place below 0 or from n on is outside. With `ceil_mode` one more window may end after the padding, if it begins
    in the image or before it: pool_taps(5, 2, 2, 0, 1, True) == [([0, 1], 2), ([2, 3], 2), ([4, 5], 1)].
    """
    before, after = pads(n, k, stride, dilation, padding)
    span = (k - 1) * dilation + 1
    room = before + n + after - span
    count = room // stride + 1
    if ceil_mode and room % stride and count * stride < before + n:
        count += 1
    while ceil_mode and count > 1 and (count - 1) * stride >= before + n:
        count -= 1
    windows = [[i * stride - before + t * dilation for t in range(k)] for i in range(count)]
    return [(places, sum(p < n + after for p in places)) for places in windows]


def pool(x, size, stride, padding, dilation=None, ceil_mode=False):
    """Reduce `[n .. c]` by windows: (largest, its flat place in the image, sum, elements inside, those that count).

    All `[n .. c]`, where a window with nothing inside has the place -1; the last two are `[..]`.
    """
    x, axes = _widen(x), np.ndim(x) - 2
    dilation = dilation or (1,) * axes
    each = [
        pool_taps(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(x.shape[1:-1], size, stride, padding, dilation, strict=True)
    ]
    image, output = x.shape[1:-1], tuple(map(len, each))
    flat = x.reshape(len(x), -1, x.shape[-1])
    largest, total = (np.zeros((len(x), *output, x.shape[-1]), x.dtype) for _ in range(2))
    place, inside, counted = np.full(largest.shape, -1), np.zeros(output, int), np.zeros(output, int)
    for at in np.ndindex(*output):
        windows = [each[d][i][0] for d, i in enumerate(at)]
        counted[at] = np.prod([each[d][i][1] for d, i in enumerate(at)])
        seen = [
            np.ravel_multi_index(taps, image)
            for taps in itertools.product(*windows)
            if all(0 <= t < n for t, n in zip(taps, image, strict=True))
        ]
        inside[at] = len(seen)
        if seen:
            values = flat[:, seen]
            first = values.argmax(axis=1)  # the first of equal ones, and of NaNs
            largest[(slice(None), *at)] = np.take_along_axis(values, first[:, None], 1)[:, 0]
            place[(slice(None), *at)] = np.array(seen)[first]
            total[(slice(None), *at)] = values.sum(axis=1)
    return largest, place, total, inside, counted


def thresholds(acc, t, greater=True, strict=True):
    """Count, as codes `[... o]`, how many thresholds of its channel, row `t[o]`, each acc `[... o]` passes.

    Rows ascend. Passing is > where `greater` and `strict`, >= where only `greater`, < where only `strict`, <=
    where neither; each is one bool or one per channel. acc = 5 and t = [2, 5, 7] give 1, 2, 1 and 2.
    """
    acc, t = np.asarray(acc), np.asarray(t)
    code = np.zeros(acc.shape, np.int64)
    for level in t.T:
        above = np.where(strict, acc > level, acc >= level)
        below = np.where(strict, acc < level, acc <= level)
        code += np.where(greater, above, below)
    return code


def affine_dot(sx, ox, sw, ow, U, A, B, n, pad_term=0.0, bias=0.0):
    """Compute the float32 dot product of two affine operands: the definition to the bit.

    The operands are x = ox + sum_t sx[t] * u[t] and w = ow + sum_s sw[s] * v[s] with integer u and v, so that

        sum x * w = sum_ts sx[t] sw[s] U[t][s] + sum_t sx[t] ow A[t] + sum_s ox sw[s] B[s] + ox ow n

    where U = sum u*v, A = sum u, B = sum v, n = sum 1 are exact integers. Every argument but the last two has
    a leading part axis, as in sx[part][t] and U[part][t][s]: the contraction may consist of parts that differ
    in their constants. Terms are added in float64, strictly in the order below, each product rounded before
    it is added (NumPy never fuses `a + b * c`), and the sum is rounded to float32 once. The innermost entries
    are scalars or arrays that broadcast against the result, constants already in float64.

    x = 1 + 2*[0, 1] and w = -3 + 4*[1, 1] have U = 1, A = 1, B = 2, n = 2: 8 - 6 + 8 - 6 = 4 = 1*1 + 3*1.
    """
    parts = range(len(n))
    value = 0.0
    for p in parts:
        for t in range(len(sx[p])):
            for s in range(len(sw[p])):
                value = value + (sx[p][t] * sw[p][s]) * U[p][t][s]
    for p in parts:
        for t in range(len(sx[p])):
            value = value + (sx[p][t] * ow[p]) * A[p][t]
    for p in parts:
        for s in range(len(sw[p])):
            value = value + (ox[p] * sw[p][s]) * B[p][s]
    for p in parts:
        value = value + (ox[p] * ow[p]) * n[p]
    value = value + pad_term
    value = value + bias
    return np.asarray(value).astype(np.float32)


def _f64(constant, *shape):
    """Convert a constant to float64; one value per image or row is reshaped to `shape`, ready to broadcast."""
    constant = np.asarray(constant).astype(np.float64)
    return constant.reshape(shape) if constant.ndim and shape else constant


def conv2d_affine(
    x_terms,
    x_scales,
    x_offset,
    w_terms,
    w_scales,
    w_offset,
    stride=None,
    padding=0,
    dilation=None,
    groups=1,
    pad_value=0.0,
    bias=None,
    flip_kernel=False,
):
    """Compute the float32 `conv2d` of x = x_offset + sum_t x_scales[t] * x_terms[t] and a w of that form: `affine_dot`.

    x_terms are integers `[t n h w c]`, x_scales `[t]` or `[t n]`, x_offset a scalar or `[n]`; w_terms are
    integers `[s o kh kw c/groups]`, w_scales `[s]` or `[s o]`, w_offset and bias a scalar or `[o]`. U, A, B
    and n count taps inside the image. Those outside, n_out and Bout, have the value `pad_value` whatever the
    law of x; they add pad_value * (w_offset * n_out + sum_s w_scales[s] * Bout[s]), in this order, before the
    bias.
    """

    def conv(x, w, outside=0):
        return conv2d(x, w, stride, padding, dilation, groups, outside, flip_kernel)

    inside, ones = np.ones_like(x_terms[0][:1], np.int64), np.ones_like(w_terms[0], np.int64)
    U = [[conv(u, v) for v in w_terms] for u in x_terms]
    A = [conv(u, ones) for u in x_terms]
    B = [conv(inside, v) for v in w_terms]
    n = conv(inside, ones)
    Bout = [conv(0 * inside, v, 1) for v in w_terms]
    n_out = conv(0 * inside, ones, 1)

    by_image = -1, *(1,) * (x_terms[0].ndim - 1)
    sx, ox = [_f64(s, *by_image) for s in x_scales], _f64(x_offset, *by_image)
    sw, ow = [_f64(s) for s in w_scales], _f64(w_offset)
    p = ow * n_out
    for s in range(len(sw)):
        p = p + sw[s] * Bout[s]
    return affine_dot(
        [sx], [ox], [sw], [ow], [U], [A], [B], [n], _f64(pad_value) * p, _f64(0 if bias is None else bias)
    )


def linear_affine(x_terms, x_scales, x_offset, w_terms, w_scales, w_offset, bias=None, parts=None):
    """Compute the float32 `linear` of x = x_offset + sum_t x_scales[t] * x_terms[t] and a w of that form: `affine_dot`.

    x_terms are integers `[t rows k]`, x_scales `[t]` or `[t rows]`, x_offset a scalar or `[rows]`; w_terms
    are integers `[s o k]`, w_scales `[s]` or `[s o]`, w_offset and bias a scalar or `[o]`. With `parts`, a
    list of slices of k, scales and offsets may differ from part to part: they have a leading axis more, one
    entry per slice.
    """
    if parts is None:
        parts, x_scales, x_offset = [slice(None)], [x_scales], [x_offset]
        w_scales, w_offset = [w_scales], [w_offset]
    U, A, B, n = [], [], [], []
    for part in parts:
        us, vs = [np.asarray(u)[:, part] for u in x_terms], [np.asarray(v)[:, part] for v in w_terms]
        U.append([[linear(u, v) for v in vs] for u in us])
        A.append([_widen(u).sum(1)[:, None] for u in us])
        B.append([_widen(v).sum(1) for v in vs])
        n.append(us[0].shape[1])
    sx, ox = [[_f64(s, -1, 1) for s in scales] for scales in x_scales], [_f64(o, -1, 1) for o in x_offset]
    sw, ow = [[_f64(s) for s in scales] for scales in w_scales], [_f64(o) for o in w_offset]
    return affine_dot(sx, ox, sw, ow, U, A, B, n, bias=_f64(0 if bias is None else bias))


def run_layers(meta, arrays, x):
    """Run a network of plain integer layers on integer values `x`; return the last values or scores.

    A layer is `{"op": "conv2d" | "dense", "weight", "threshold", "values", "invert"?, "strict"?}`, a conv2d
    also with `"stride", "pad", "pad_value"?`, or `{"op": "max_pool2d", "size", "stride", "pad"}`; a pad is an
    int or [before, after], the same on both axes. acc becomes values[code], where code is the number of
    thresholds that acc exceeds (or reaches, with strict = false), or T minus that where `invert`. Without
    thresholds it stays acc.
    """
    for layer in meta["layers"]:
        stride, pad = (layer.get("stride", 1),) * 2, (layer.get("pad", 0),) * 2
        if layer["op"] == "max_pool2d":
            x = max_pool2d(x, (layer["size"],) * 2, stride, pad)
            continue
        if layer["op"] == "dense":
            x = linear(x.reshape(len(x), -1), arrays[layer["weight"]])
        elif layer["op"] == "conv2d":
            x = conv2d(x, arrays[layer["weight"]], stride, pad, pad_value=layer.get("pad_value", 0))
        else:
            raise ValueError(f"run_layers: no such op {layer['op']!r}")
        if layer["threshold"] is not None:
            # T - #(acc > t) = #(acc <= t): to invert is to turn both direction and strictness around.
            invert = arrays[layer["invert"]] if layer.get("invert") else np.array(False)
            strict = layer.get("strict", True) != invert
            x = thresholds(x, arrays[layer["threshold"]], greater=~invert, strict=strict)
            x = np.asarray(layer["values"])[x]
    return x


def run_network(file):
    """Run the layers on the input stored in the `.npz` `file`; gives its array `expected`, if all is right."""
    with np.load(file) as stored:
        arrays = dict(stored)
    return run_layers(json.loads(str(arrays["meta"])), arrays, arrays["input_table"][arrays["input"]])
