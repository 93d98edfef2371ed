"""Forms of saved tensors by what a backward pass reads: exact masks, unbiased values, and what is left alone."""

import functools
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa
from quantarray.torch.reads import READS, Read
from tools import saved_tensors

compressed = functools.partial(qa.torch.compressed_activations, least=1)


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradients(function, operands, context=None):
    """Return the gradients of operands, of which copies are taken, as leaves are left alone."""
    leaves = [x.clone().requires_grad_() for x in operands]
    copies = [x * 1 for x in leaves]
    torch.manual_seed(0)
    if context is None:
        y = function(*copies)
    else:
        with context:
            y = function(*copies)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(y.dtype))
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in leaves]


def in_place(function, *arguments):
    return lambda x: function(x.clone(), *arguments)


# By function: the bits of an element of x that masks need
MASKS = {
    "clamp": (lambda x: x.clamp(-1, 1), 1),
    "clamp of one bound": (lambda x: x.clamp(max=0.5), 1),
    "clamp_min": (lambda x: x.clamp_min(0.1), 1),
    "clamp_max": (lambda x: x.clamp_max(0.1), 1),
    "clip": (lambda x: x.clip(-0.3, 0.2), 1),
    "clamp in place": (in_place(torch.clamp_, -1, 1), 1),
    "crossed bounds": (lambda x: x.clamp(1, -1), 1),
    "tensor bounds": (lambda x: torch.clamp(x, torch.tensor(-1.0), torch.tensor(1.0)), 1),
    "bounds of channels": (lambda x: torch.clamp(x, -rand(3, 1).abs(), rand(3, 1, seed=1).abs()), 1),
    "a bound of channels": (lambda x: torch.clamp_min(x, rand(3, 1)), 1),
    "hardtanh": (lambda x: F.hardtanh(x, -0.3, 0.7), 1),
    "hardtanh in place": (in_place(lambda x: F.hardtanh(x, inplace=True)), 1),
    "relu6": (lambda x: F.relu6(4 * x), 1),
    "relu": (F.relu, 1),
    "relu in place": (in_place(torch.relu_), 1),
    "leaky_relu": (F.leaky_relu, 1),
    "rrelu": (lambda x: F.rrelu(x, training=False), 1),
    "hardshrink": (F.hardshrink, 1),
    "softshrink": (lambda x: F.softshrink(x, 0.3), 1),
    "threshold": (lambda x: F.threshold(x, 0.4, 7.0), 1),
    "threshold of 0": (lambda x: F.threshold(x, 0, 0), 1),
    "threshold in place": (in_place(lambda x: F.threshold(x, 0.4, 7.0, inplace=True)), 1),
    "hardsigmoid": (lambda x: F.hardsigmoid(4 * x), 1),
    "prelu of constant weights": (lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)), 1),
    "maximum with a constant": (lambda x: torch.maximum(x, torch.tensor(0.35, dtype=x.dtype)), 1),
    "a constant that ties": (lambda x: torch.minimum(x, torch.tensor(0.3, dtype=x.dtype)), 2),
    "maximum of channels": (lambda x: torch.maximum(x, rand(3, 1)), 1),
    "fmax": (lambda x: torch.fmax(x, torch.tensor(0.35, dtype=x.dtype)), 1),
    "abs": (torch.abs, 1),
    "abs of zeros": (lambda x: x.relu().abs(), 3),  # and a bit of relu
    "sign": (lambda x: x.sign() + x, 0),
    "where": (lambda x: torch.where(x > 0.2, x, -x), 1),
    "a mask of floats": (lambda x: x * (x.detach() > 0.3), 1),
    "dropout": (lambda x: F.dropout(x, 0.4), 1),
    "feature dropout": (lambda x: F.dropout1d(x, 0.4), 1),
    "straight sign": (lambda x: qa.torch.Sign()(x), 1),
    "DoReFa": (lambda x: qa.torch.DoReFa(2, activations=True)(x), 1),
    "LQ": (lambda x: qa.torch.LQ(2)(x), 1),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_piecewise_constant_derivatives_are_exact(name, dtype):
    """Gradients at 2 bits are equal to the bit, from one bit an element, with elements on, at and beyond the bounds."""
    function, bits = MASKS[name]
    x = rand(3, 1024)
    x[:, ::7] = x[:, ::7].round(decimals=1)
    x[:, ::11] = torch.tensor([-1.0, 1.0, 0.1])[:, None]
    x = torch.where(x == 0, 0.1, x).to(dtype)
    if dtype != torch.float32 and name in ("bounds of channels", "a bound of channels"):
        pytest.skip("bounds of another dtype")
    context = compressed(2)
    assert torch.equal(gradients(function, [x], context)[0], gradients(function, [x])[0])
    if dtype == torch.float32:
        assert context.report.after <= x.numel() * bits // 8 + 100


NEXT = 1 + 2.0**-23
BOUNDS = {
    "of one float": (0.5, 0.5),
    "neighbours": (1.0, NEXT),
    "far apart": (-3e38, 3e38),
    "far": (2e38, 3e38),
    "of float64": (-0.1, 0.1),
    "a subnormal": (0.0, 1e-45),
    "none": (-math.inf, math.inf),
    "one": (-math.inf, 0.5),
}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("function", [F.hardtanh, torch.clamp], ids=lambda f: f.__name__)
def test_bounds_of_any_distance(function, name):
    """Elements are on bounds, and are the floats beside them."""
    x = rand(1, 4096)
    near = [torch.tensor(bound) for bound in BOUNDS[name] if math.isfinite(bound)] or [torch.tensor(0.0)]
    near += [near[0].nextafter(torch.tensor(-math.inf)), near[-1].nextafter(torch.tensor(math.inf))]
    x[0, : 4 * 256 : 4] = torch.stack(near).repeat(256)[:256]

    def bounded(x):
        return function(x, *BOUNDS[name])

    assert torch.equal(gradients(bounded, [x], compressed(2))[0], gradients(bounded, [x])[0])


@pytest.mark.parametrize("least", [1, 1024])
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin", "clamp", "clamp of scalars", "PACT"])
def test_bounds_with_gradients_are_exact(name, least):
    """Ties, crossed bounds and bounds that broadcast."""
    x, low, high = (rand(4, 1024, seed=i).round(decimals=1) for i in range(3))
    pact = qa.torch.PACT(2, 0.7)
    functions = {
        "maximum": (torch.maximum, [x, low]),
        "minimum": (torch.minimum, [x, low[0]]),
        "fmax": (torch.fmax, [x, low[:, :1]]),
        "fmin": (torch.fmin, [x, low[0]]),
        "clamp": (torch.clamp, [x, low, high]),
        "clamp of scalars": (torch.clamp, [x, low[0, 0], high[0, 1]]),
        "PACT": (lambda x, alpha: torch.minimum(x.clamp_min(0), alpha) + pact(x), [x, torch.tensor(0.7)]),
    }
    function, operands = functions[name]
    exact = gradients(function, operands)
    context = qa.torch.compressed_activations(2, least=least)
    for got, expected in zip(gradients(function, operands, context), exact, strict=True):
        assert torch.equal(got, expected)
    assert context.report.after < context.report.before


COMPARISONS = {
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=1)),
    "max": lambda x: x.max(),
    "max of an axis": lambda x: x.max(1).values,
    "median": lambda x: x.median(),
    "infinite norm": lambda x: torch.linalg.vector_norm(x, torch.inf, 1),
    "norm of 1": lambda x: x.norm(1, dim=1),
    "cummax": lambda x: x.cummax(1).values,
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(5).values,
    "kthvalue": lambda x: x.kthvalue(5).values,
    "prod of zeros": lambda x: x.relu().prod(1),
    "cumprod of zeros": lambda x: x.relu().cumprod(1),
    "square root": lambda x: (x.abs() + 1e-6).sqrt(),
    "logarithm": lambda x: (x.abs() + 1e-6).log(),
    "reciprocal": lambda x: 1 / (x.abs() + 1e-3),
    "power": lambda x: x**3 + x.abs() ** 0.5 + 2**x,
    "waves": lambda x: (1000 * x).sin() + (1000 * x).cos(),
    "softplus": lambda x: F.softplus(100 * x, 3.0),
    "hardswish": lambda x: F.hardswish(4 * x),
    "celu": lambda x: F.celu(100 * x, 50.0),
    "elu of scaled inputs": lambda x: torch.ops.aten.elu(100 * x, 1.0, 1.0, 0.02),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "scatter_reduce": lambda x: torch.zeros(32, 8).scatter_reduce(1, torch.arange(64).repeat(32, 1) % 8, x, "amax"),
    "cdist": lambda x: torch.cdist(x, x[:4], p=torch.inf),
    "a tensor's function": lambda x: _Squared.apply(x),
}


class _Squared(torch.autograd.Function):
    """A function that nobody has read: it compares what it saves."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * (x > 0.1)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > 0.1) / x


@pytest.mark.parametrize("name", COMPARISONS)
def test_what_compares_or_divides_is_left_alone(name):
    x = rand(32, 64)
    got, exact = (gradients(COMPARISONS[name], [x], context)[0] for context in (compressed(2), None))
    assert torch.equal(got, exact) and torch.isfinite(exact).all()


def test_comparisons_of_products():
    """(x * w).amax(1) was NaN at 8 bits: no rounded element equalled the rounded maximum."""
    x, w = rand(32, 64), rand(32, 64, seed=1)
    got, exact = (gradients(lambda x, w: (x * w).amax(1), [x, w], context) for context in (compressed(8), None))
    for a, b in zip(got, exact, strict=True):
        assert torch.equal(a != 0, b != 0) and (a - b).abs().max() < 0.1


UNBIASED = {
    "x * w": lambda x, w: x * w,
    "x * x * x": lambda x, w: x * x * x,
    "x * |x|": lambda x, w: x * x.abs(),
    "approx_sign": lambda x, w: qa.torch.Sign("approx_sign")(x),
    "LSQ": lambda x, w: qa.torch.LSQ(2, step=0.5)(x),
    "attention of itself": lambda x, w: x @ (x.T @ x),
    "prelu": lambda x, w: F.prelu(x, w.mean(1)[:1]),
    "exp": lambda x, w: x.exp() * w,
    "bilinear": lambda x, w: F.bilinear(x, x, w.repeat(4, 1).view(2, 64, 64)),
    "variance": lambda x, w: x.var(1),
}


@pytest.mark.parametrize("name", UNBIASED)
def test_rounded_values_are_unbiased(name):
    """The mean of 200 steps at 2 bits within 5 standard errors, of the projection on the exact gradient."""
    x, w = rand(32, 64), rand(32, 64, seed=1)
    function, context = UNBIASED[name], compressed(2, seed=3)
    exact = torch.cat([g.flatten() for g in gradients(function, [x, w])]).double()
    steps = torch.stack(
        [torch.cat([g.flatten() for g in gradients(function, [x, w], context)]).double() @ exact for _ in range(200)]
    )
    assert context.report.bits and steps.std() > 0
    assert abs(steps.mean() - exact @ exact) < 5 * steps.std() / 200**0.5 + 1e-6 * exact @ exact


def test_smooth_functions_have_eight_bits():
    for function in (torch.tanh, torch.sigmoid, F.gelu, F.silu, F.mish, F.elu, lambda x: x.softmax(1)):
        context = compressed(2)
        (got,), (exact,) = gradients(function, [rand(8, 512)], context), gradients(function, [rand(8, 512)])
        assert context.report.mean_bits == 8 and (got - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("function", [F.gelu, F.silu, F.mish, F.elu], ids=lambda f: f.__name__)
def test_an_element_that_is_far_off_does_not_bias_others(function):
    x = rand(8, 256)
    x[:, 3], x[:, 5] = 1000, -1000
    (exact,), context = gradients(function, [x]), compressed(8)
    (got,) = gradients(function, [x], context)
    assert (got - exact).abs().max() < 0.5 and (got - exact)[:, [3, 5]].abs().max() < 1e-5


def test_large_queries_and_keys():
    """Fused attention computes exp(q . k) again, which rounding would multiply: the gradient of v is exact."""
    q, k, v = (30 * rand(2, 2, 32, 16, seed=i) for i in range(3))
    exact = gradients(F.scaled_dot_product_attention, [q, k, v])
    context = compressed(4)
    got = gradients(F.scaled_dot_product_attention, [q, k, v], context)
    assert context.report.mean_bits == 8 and torch.equal(got[2], exact[2])
    assert all(torch.isfinite(gradient).all() for gradient in got)


def test_names_of_the_table_are_of_pytorch():
    """Each activation of torch.nn saves tensors by names that the table has."""
    x = rand(2, 4, 8, 8).requires_grad_()
    layers = [nn.ReLU(), nn.ReLU6(), nn.GELU(), nn.Tanh(), nn.Hardshrink(), nn.Softshrink(), nn.Threshold(0.1, 0.0),
              nn.PReLU(), nn.ELU(), nn.CELU(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.Hardsigmoid(), nn.Sigmoid(),
              nn.Softmax(1), nn.LogSoftmax(1), nn.GLU(1), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2),
              nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(8), nn.LeakyReLU(), nn.RReLU(), nn.Hardtanh(),
              nn.Hardswish()]  # fmt: skip
    for layer in layers:
        name = layer(x * 1).grad_fn.name().rstrip("0123456789").removesuffix("Backward")
        assert {f"{name}.self", f"{name}.input", f"{name}.result"} & READS.keys(), layer
    assert set(READS.values()) == set(Read)


@pytest.mark.parametrize("kind", ["COO", "CSR", "nested", "mkldnn", "quantised", "subclass", "functorch", "negated"])
def test_tensors_without_plain_memory_are_left_alone(kind):
    w = rand(64, 64).requires_grad_()
    sparse = rand(64, 64).relu()

    def value(w):
        y = w * 1
        if kind == "COO":
            return torch.sparse.mm(sparse.to_sparse(), y)
        if kind == "CSR":
            return sparse.to_sparse_csr() @ y
        if kind == "nested":
            nested = torch.nested.as_nested_tensor([y[:20], y[20:]])
            return torch.nested.to_padded_tensor((nested * nested).relu(), 0.0)
        if kind == "mkldnn":
            return (y.to_mkldnn().relu()).to_dense()
        if kind == "quantised":
            return y * torch.quantize_per_tensor(sparse, 0.1, 0, torch.quint8).dequantize()
        if kind == "subclass":
            return y * sparse.as_subclass(_Subclass)
        if kind == "functorch":
            return torch.func.vmap(lambda row: row * row.relu())(y)
        return y * torch.complex(y.detach(), y.detach()).conj().imag

    grads = []
    for context in (None, compressed(2)):
        w.grad = None
        if context is None:
            y = value(w)
        else:
            with context:
                y = value(w)
        y.sum().backward()
        grads.append(w.grad)
    if kind in ("COO", "CSR", "mkldnn", "negated"):
        assert torch.equal(*grads)
    assert all(torch.isfinite(g).all() for g in grads)


class _Subclass(torch.Tensor):
    """A tensor of another class."""


def test_tensors_of_no_device_are_left_alone():
    layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to("meta")
    with compressed(2) as context:
        layer(torch.ones(8, 64, device="meta")).sum().backward()
    assert layer[0].weight.grad.shape == (64, 64) and context.report.after == context.report.before


def test_weights_that_are_sparse_are_left_alone():
    class Pruned(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(rand(64, 64).relu().to_sparse())
            self.register_buffer("other", rand(64, 64).to_sparse_csr())

        def forward(self, x):
            return torch.sparse.mm(self.weight, x)

    layer, x = Pruned(), rand(64, 64).requires_grad_()
    with compressed(2):
        y = layer(x * 1)
    y.sum().backward()
    assert layer.weight.grad is not None and torch.isfinite(x.grad).all()


def test_a_sparse_tensor_that_is_changed():
    w = rand(64, 64).requires_grad_()
    sparse = rand(64, 64).relu().to_sparse()
    with compressed(2):
        y = torch.sparse.mm(sparse, w * 1)
    sparse.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_functions_that_a_mode_does_not_see():
    """A function of a program, and an in-place change of a part, inside and at the end of a block."""
    x = rand(8, 256)

    def function(x):
        y = _Squared.apply(x * 2)
        y[2:4] = x[2:4].clamp(-1, 1) * 3
        return _Squared.apply(y.relu())

    context = compressed(2)
    assert torch.equal(*(gradients(function, [x], c)[0] for c in (context, None)))
    assert context.report.before > context.report.after


def test_the_page_has_the_table():
    page = Path(__file__).parents[2] / "docs" / "saved-tensors.md"
    assert page.read_text() == saved_tensors.page(), "python -m tools.saved_tensors > docs/saved-tensors.md"
