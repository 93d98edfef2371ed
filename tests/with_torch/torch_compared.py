"""Compare a graph with the module that it comes from: every code of every quantiser, and the outputs."""

from functools import partial

import numpy as np
import torch
from torch_layers import QUANTISERS

import quantarray as qa

_MOVED = ("reshape", "transpose", "max_pool2d", "unpack", "Resize", "Reshape", "Gather")


def activations(module, x, kinds):
    """Return the input and the output of each quantiser that runs once by its path, and the outputs of the module."""
    seen, handles, again = {}, [], set()

    def note(part, args, out, path):
        again.update({path} & seen.keys())
        seen[path] = part, plain(args[0]).clone(), plain(out).clone()

    for path, part in module.named_modules():
        if isinstance(part, kinds):
            handles.append(part.register_forward_hook(partial(note, path=path)))
    with torch.no_grad():
        out = outputs(module(x.clone()))
    for handle in handles:
        handle.remove()
    return {path: noted for path, noted in seen.items() if path not in again}, out


def outputs(out):
    """Return the tensors of a result in order."""
    if isinstance(out, (dict, list, tuple)):
        return [a for part in (out.values() if isinstance(out, dict) else out) for a in outputs(part)]
    return [plain(out).numpy()]


def plain(x):
    """Return a tensor without its graph, or the value of one of Brevitas, which has a scale beside it."""
    return getattr(x, "value", x).detach()


def compare(module, x, graph, kinds=QUANTISERS):
    """Assert that all codes and outputs are equal; return the quantisers by path, with how many of their codes differ.

    A code may differ where the module's value is within 1e-5 steps of a boundary, or 1e-6 of the largest value. What
    follows such a code is computed from the module's.
    """
    expected, results = activations(module, x, kinds)
    values, compared, tables = graph._ready((x.numpy(),), {}), {}, levels_of(graph)
    for node, step in zip(graph.nodes, graph._steps, strict=True):
        step(values)
        for at, output in zip(step.results, node.outputs, strict=True):
            value = values[at]
            name = output.removesuffix(".pool")  # of codes that a pool before the quantiser takes
            name = "" if f"{output}.pool" in graph._slots else name
            whole = integers(value)
            if name in expected and whole is not None and whole.size == expected[name][2].numel():
                values[at], compared[name] = _compared(name, value, whole, tables.get(output), *expected[name])
    for path, (_, before, after) in expected.items():  # quantisers of one value share its codes
        alike = [expected[p] for p in compared if path not in compared]
        if any(torch.equal(before, b) and torch.equal(after, a) for _, b, a in alike if b.shape == before.shape):
            compared[path] = 0
    for value, out in zip(graph.outputs, results, strict=True):
        result = values[graph._slots[value.name]]
        assert result.dtype == out.dtype == value.dtype
        decided = ~at_boundary(expected, out.shape)
        right = out.astype(np.float64)
        top = max(np.abs(right).max(), 1e-3)
        np.testing.assert_allclose(result.astype(np.float64)[decided], right[decided], rtol=2e-5, atol=2e-5 * top)
    return compared


def at_boundary(expected, shape):
    """Tell which elements a quantiser of values of that shape gives two codes within 1e-5 of the largest value."""
    near = np.zeros(shape, bool)
    for part, before, _ in expected.values():
        if before.shape == shape:
            slack = 1e-5 * before.abs().max()
            with torch.no_grad():
                near |= (plain(part(before - slack)) != plain(part(before + slack))).numpy()
    return near


def levels_of(graph):
    """Return the levels of codes by name, where they are uneven: products take them, or values are looked up."""
    tables = {}
    for node in graph.nodes[::-1]:
        if len(node.inputs) == 4 and node.op.startswith(("conv", "linear")):
            tables[node.inputs[0]] = graph.constants[node.inputs[3]]
        elif node.op == "Gather" and node.inputs[0] in graph.constants and ".table" not in node.inputs[0]:  # a function
            tables[node.inputs[1]] = graph.constants[node.inputs[0]]
        elif node.op in _MOVED and node.outputs[0] in tables:
            tables[node.inputs[0]] = tables[node.outputs[0]]
    return tables


def integers(value):
    """Return the integers of a value of a graph; None if it has floats."""
    if isinstance(value, qa.QuantArray):
        return value.dequantize()
    return value if isinstance(value, np.ndarray) and value.dtype.kind in "iu" else None


def _compared(path, got, whole, table, part, before, after):
    """Return the module's codes in the place of those that differ at a boundary, and how many these are.

    Codes are integers times a scale, or places in a table of levels.
    """
    value = after.numpy().astype(np.float64)
    whole = whole.reshape(value.shape)  # codes may be taken before a reshape
    at_none = np.unique(whole[value == 0]) if table is None else np.array([])
    few = len(at_none) != 1 or (value == 0).sum() < 9
    zero = 0 if few else int(at_none[0])  # the code of 0, where codes have a zero point
    whole = whole - zero
    used = whole != 0
    scale = float(np.median(value[used] / whole[used])) if used.any() else 1.0
    places = whole
    if table is not None:
        whole, scale = table.astype(np.float64)[places], 1.0
    differ = np.abs(value - whole * scale) > 1e-5 * max(np.abs(value).max(), 1e-30)
    if not differ.any():
        return got, 0
    with torch.no_grad():
        slack = max(1e-5 * abs(scale), 1e-6 * float(before.abs().max()))  # of sums that cancel
        at_zero = torch.where(before.abs() < slack, 0, before)  # which sign maps to a level of its own
        near = np.stack([plain(part(v)).numpy() for v in (before - slack, at_zero, before + slack)])
    at_boundary = (np.abs(near - whole * scale) < 1e-5 * abs(scale)).any(axis=0)
    assert at_boundary[differ].all(), f"{path}: {(differ & ~at_boundary).sum()} of {differ.size} codes differ"
    right = np.rint(value / scale).astype(int) + zero if table is None else np.abs(value[..., None] - table).argmin(-1)
    right = right.reshape(got.shape)
    if isinstance(got, qa.QuantArray):
        return qa.encode(right, values=got.dtype.levels, axis=got.axis), int(differ.sum())
    return right.astype(got.dtype), int(differ.sum())


def compare_stored(module, x, graph, near=5e-5):
    """Assert that all stored codes of a statically quantised module are equal; return how many differ by path.

    A code of a convolution or a linear layer may differ by a level where the module's value is within `near` steps of
    a boundary: float32 has no more digits. What follows is computed from the module's codes.
    """
    seen, handles = {}, []
    for path, part in module.named_modules():
        note = lambda part, args, out, path=path: seen.update({path: (part, args, out)})  # noqa: E731
        handles.append(part.register_forward_hook(note))
    with torch.no_grad():
        out = module(x)
    for handle in handles:
        handle.remove()
    stored = {path: got for path, got in seen.items() if isinstance(got[2], torch.Tensor) and got[2].is_quantized}
    values, differ = graph._ready((x.numpy(),), {}), {}
    for node, step in zip(graph.nodes, graph._steps, strict=True):
        step(values)
        for at, name in zip(step.results, node.outputs, strict=True):
            got = values[at]
            if name not in stored or integers(got) is None or integers(got).shape != tuple(stored[name][2].shape):
                continue
            expected = stored[name][2].int_repr().numpy().astype(int)
            if isinstance(got, qa.QuantArray) and got.dtype.levels[0] == -stored[name][2].q_zero_point():  # of a sum
                expected -= stored[name][2].q_zero_point()
            far = integers(got).astype(int) != expected
            differ[name] = int(far.sum())
            if far.any():
                assert hasattr(stored[name][0], "weight"), f"{name}: {differ[name]} codes differ"
                assert _steps_from_boundary(*stored[name])[far].max() < near, name
                values[at] = (
                    qa.encode(expected, values=got.dtype.levels, axis=got.axis)
                    if isinstance(got, qa.QuantArray)
                    else expected.astype(got.dtype)
                )
    np.testing.assert_array_equal(values[graph._slots[graph.outputs[0].name]], out.numpy())
    return differ


def _steps_from_boundary(layer, args, out):
    """Return how far a layer's values are from the middle of two codes, in steps, computed in float64."""
    w, bias, value = layer.weight().dequantize().double(), layer.bias(), args[0].dequantize().double()
    if w.ndim == 2:
        y = torch.nn.functional.linear(value, w)
    else:
        convolve = getattr(torch.nn.functional, f"conv{w.ndim - 2}d")
        y = convolve(value, w, None, layer.stride, layer.padding, layer.dilation, layer.groups)
    y = y if bias is None else y + bias.detach().double().reshape(-1, *(1,) * (w.ndim - 2))
    steps = (y / out.q_scale()).numpy()
    return np.abs(steps - np.floor(steps) - 0.5)
