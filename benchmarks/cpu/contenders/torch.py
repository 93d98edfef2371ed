"""PyTorch on the CPU: float32, bfloat16, and int8 with prepacked weights. Of its memory layouts the fastest counts.

Images and results are tensors in the layout that suits it: nothing is converted inside the time unless the case asks
for float32 in and out. What a binary layer would still have to do, the sign of the sums, is left out in its favour.
"""

import warnings

import numpy as np
import torch

from ..cases import Bases, Conv, Network, Product
from . import Entry, attempt, fastest

FLOAT, HALF, BYTE = "torch float32", "torch bfloat16", "torch int8"
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-8}  # of sums that are not integers below 2**24


def version():
    return torch.__version__


def entries(case, threads):
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)  # deprecated, and what there is
    if isinstance(case, Conv):
        wide = "its 8-bit result cannot hold the sums"
        return {
            FLOAT: attempt(floats, case, torch.float32),
            HALF: attempt(floats, case, torch.bfloat16),
            BYTE: attempt(quantized, case) if case.out == "bits" else wide,
        }
    if isinstance(case, Bases):
        return {FLOAT: attempt(floats, case, torch.float32)}
    if isinstance(case, Product):
        return {
            FLOAT: attempt(product, case, torch.float32),
            HALF: attempt(product, case, torch.bfloat16),
            BYTE: attempt(integers, case),
        }
    if isinstance(case, Network) and case.path.exists():
        return {FLOAT: attempt(network, case)}
    return {}


def image(a):
    """Convert an NHWC or OHWI array to an NCHW or OIHW tensor."""
    return torch.from_numpy(np.ascontiguousarray(a.transpose(0, 3, 1, 2)))


def rows(y):
    """Convert an NCHW tensor to a NHWC NumPy array of float32."""
    y = y.to_dense() if y.is_mkldnn else y
    return y.float().numpy().transpose(0, 2, 3, 1)


def floats(case, dtype):
    inputs = case.inputs()
    out = getattr(case, "out", "float32")
    x, w = (image(inputs[name]).to(dtype) for name in ("x", "w"))
    how = {"stride": case.stride, "padding": case.padding, "groups": case.groups}
    last = [t.contiguous(memory_format=torch.channels_last) for t in (x, w)]
    ways = [(x, w), tuple(last)]
    reads = {
        "bits": lambda y: rows(y) > 0,
        "codes": lambda y: np.searchsorted(case.cuts, rows(y)).astype(np.uint8),
    }
    read = reads.get(out, lambda y: rows(y).astype(out))
    exact = dtype == torch.float32 and isinstance(case, Conv)
    tolerance = 0.0 if exact or out == "bits" else 1 / 7 if out == "codes" else ROUNDING[dtype]
    if out == "float32" and dtype != torch.float32:
        wide = [t.float() for t in (x, last[0])]
        calls = [
            lambda x=x, w=w: torch.nn.functional.conv2d(x.to(dtype), w, **how).float()
            for x, (_, w) in zip(wide, ways, strict=True)
        ]
    else:
        calls = [lambda x=x, w=w: torch.nn.functional.conv2d(x, w, **how) for x, w in ways]
        if out != "float32":
            calls.append(prepacked(x, w, how))
    return fastest([attempt(Entry, call, read, tolerance) for call in calls if works(call)])


def works(call):
    try:
        call()
    except RuntimeError:
        return False
    return True


def prepacked(x, w, how):
    """oneDNN's own blocked layout from input to output, with the weights reordered once."""
    from torch.utils import mkldnn

    layer = torch.nn.Conv2d(x.shape[1], w.shape[0], w.shape[2], bias=False, **how).to(w.dtype)
    layer.weight.data = w
    blocked_layer, blocked = mkldnn.to_mkldnn(layer.eval(), w.dtype), x.to_mkldnn()
    return lambda: blocked_layer(blocked)


def quantized(case):
    """quint8 of zero point 128 by prepacked qint8; sums saturate at 8 bits, which keeps their signs."""
    inputs = case.inputs()
    x, w = (image(inputs[name]).float() for name in ("x", "w"))
    last = x.contiguous(memory_format=torch.channels_last)
    qx = torch.quantize_per_tensor(last, 1.0, 128, torch.quint8)
    ways = []
    for engine in set(torch.backends.quantized.supported_engines) & {"x86", "onednn", "fbgemm"}:
        torch.backends.quantized.engine = engine
        qw = torch.quantize_per_tensor(w.contiguous(memory_format=torch.channels_last), 1.0, 0, torch.qint8)
        args = [[case.stride] * 2, [case.padding] * 2, [1, 1], case.groups]
        weights = torch.ops.quantized.conv2d_prepack(qw, None, *args)

        def call(weights=weights):
            return torch.ops.quantized.conv2d(qx, weights, 1.0, 128)

        def read(y):
            return y.int_repr().numpy().transpose(0, 2, 3, 1) > 128

        if np.array_equal(read(call()), case.expected()):  # an engine for other CPUs may saturate within
            ways.append(Entry(call, read))
    return fastest(ways) if ways else "no engine gives the right sums"


def product(case, dtype):
    inputs = case.inputs()
    x, w = (torch.from_numpy(inputs[name]).to(dtype) for name in ("x", "w"))
    across = w.t().contiguous()

    def read(y):
        return y.float().numpy().round().astype(np.int64)

    out = torch.mm(x, across)
    calls = [lambda: torch.nn.functional.linear(x, w), lambda: torch.mm(x, across, out=out)]
    return fastest([Entry(call, read, ROUNDING[dtype]) for call in calls])


def integers(case):
    inputs = case.inputs()
    x, w = (torch.from_numpy(inputs[name]) for name in ("x", "w"))
    across = w.t().contiguous()
    out = torch._int_mm(x, across)
    calls = [lambda: torch._int_mm(x, w.t(), out=out), lambda: torch._int_mm(x, across, out=out)]
    return fastest([Entry(call, lambda y: y.numpy()) for call in calls])


def network(case):
    """Build an entry of the plain layers on float32 tensors, channels last.

    A single threshold is a comparison, several are counted.
    """
    plain = case.plain()
    steps = [layer(spec) for spec in plain.layers]
    values = torch.from_numpy(np.asarray(plain.input_table, np.float32))
    raw = torch.from_numpy(plain.input.astype(np.int64))

    def call():
        x = values[raw]
        if x.ndim == 4:
            x = x.permute(0, 3, 1, 2)
        for step in steps:
            x = step(x)
        return x

    def read(y):
        y = y.numpy()
        return (y.transpose(0, 2, 3, 1) if y.ndim == 4 else y).astype(np.int64)

    return Entry(call, read)


def layer(spec):
    if spec.op == "max_pool2d":
        return pool(spec)
    finish = activation(spec)
    if spec.op == "dense":
        w = torch.from_numpy(spec.weight.astype(np.float32))
        return lambda x: finish(torch.nn.functional.linear(x.permute(0, 2, 3, 1).flatten(1) if x.ndim == 4 else x, w))
    w = image(spec.weight.astype(np.float32)).contiguous(memory_format=torch.channels_last)
    before, after = spec.pad

    def conv(x):
        if spec.pad_value == 0 and before == after:
            return finish(torch.nn.functional.conv2d(x, w, stride=spec.stride, padding=before))
        x = torch.nn.functional.pad(x, 2 * spec.pad, value=spec.pad_value)
        return finish(torch.nn.functional.conv2d(x, w, stride=spec.stride))

    return conv


def pool(spec):
    def call(x):
        x = torch.nn.functional.pad(x, 2 * spec.pad, value=float("-inf")) if any(spec.pad) else x
        return torch.nn.functional.max_pool2d(x, spec.size, spec.stride)

    return call


def activation(spec):
    """values[number of thresholds that a sum passes], as in docs/plain-format.md."""
    if spec.thresholds is None:
        return lambda y: y
    cuts, values = torch.from_numpy(spec.thresholds.astype(np.float32)), torch.tensor(spec.values, dtype=torch.float32)
    inverted = None if spec.invert is None or not spec.invert.any() else torch.from_numpy(spec.invert)
    step = float(values[1] - values[0])

    def finish(y):
        shape = (1, -1, 1, 1) if y.ndim == 4 else (1, -1)
        passed = 0
        for t in range(cuts.shape[1]):
            cut = cuts[:, t].view(shape)
            passed = passed + (y > cut if spec.strict else y >= cut).float()
        if inverted is not None:
            passed = torch.where(inverted.view(shape), cuts.shape[1] - passed, passed)
        return passed * step + values[0]

    return finish
