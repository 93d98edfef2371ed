"""Layers and schemes with straight-through gradients."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa
from quantarray.quantizers.lq import qem
from quantarray.torch.straight_through import ESTIMATORS, straight

T = qa.torch


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


W = rand(8, 5, 3, 2)
SCHEMES = {
    "Sign": (lambda: T.Sign(), lambda m: qa.Sign(), {}),
    "Sign scale": (lambda: T.Sign(scale=True), lambda m: qa.XNOR(), {"scale_axis": 0}),
    "Ternary": (lambda: T.Ternary(), lambda m: qa.Ternary(), {"scale_axis": 0}),
    "ABC": (lambda: T.ABC(3), lambda m: qa.ABC(3), {"scale_axis": 0}),
    "DoReFa 1": (lambda: T.DoReFa(1), lambda m: qa.DoReFa(1), {}),
    "DoReFa 3": (lambda: T.DoReFa(3), lambda m: qa.DoReFa(3), {}),
    "DoReFa activations": (lambda: T.DoReFa(2, activations=True), lambda m: qa.DoReFa(2, activations=True), {}),
    "PACT": (lambda: T.PACT(3, 1.7), lambda m: qa.PACT(3, m.alpha.item()), {}),
    "LSQ": (lambda: T.LSQ(3), lambda m: qa.Uniform(3, step=m.step.item()), {}),
    "LSQ unsigned": (lambda: T.LSQ(2, signed=False), lambda m: qa.Uniform(2, signed=False, step=m.step.item()), {}),
    "ABCActivations": (
        lambda: T.ABCActivations(3),
        lambda m: qa.ABCActivations(m.shifts.tolist(), m.betas.tolist()),
        {},
    ),
    "LQ": (lambda: T.LQ(2), lambda m: qa.LQ(2, True, basis=m.basis.tolist()), {}),
    "LQ weights": (lambda: T.LQ(2, weights=True), lambda m: qa.LQ(2), {"scale_axis": 0}),
    "LQ weights center": (lambda: T.LQ(3, True, weights=True), lambda m: qa.LQ(3, center=True), {"scale_axis": 0}),
    "LQ center": (lambda: T.LQ(2, center=True), lambda m: qa.LQ(2, True, basis=m.basis.tolist(), center=True), {}),
}


@pytest.mark.parametrize("kind", SCHEMES)
def test_values_are_those_of_the_packed_array(kind):
    make, scheme, settings = SCHEMES[kind]
    module = make()
    y = module(W)
    expected = qa.quantize(W.numpy(), scheme(module), axis=1, **settings).dequantize()
    assert np.array_equal(module.packed(W).dequantize(), expected)
    assert np.allclose(y.detach().numpy(), expected, rtol=3e-7, atol=0)
    if kind not in ("LSQ", "LSQ unsigned", "ABCActivations"):  # whose sums and products round in another order
        assert np.array_equal(y.detach().numpy(), expected)


@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes_and_gradients(kind, dtype):
    module, x = SCHEMES[kind][0](), W.to(dtype).requires_grad_()
    y = module(x)
    assert y.dtype == dtype and y.shape == x.shape
    y.sum().backward()
    assert x.grad.dtype == dtype and torch.isfinite(x.grad).all() and x.grad.any()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


def test_golden_vector_of_abc_activations():
    a = torch.tensor(
        [
            [-0.395354, -0.484792, 1.53637, -1.35602],
            [0.623933, 1.34218, -0.140339, 1.25815],
            [-1.55637, 1.05524, -0.579586, -0.749204],
            [1.1074, -0.339773, 2.60559, 1.14392],
        ],
        requires_grad=True,
    )
    module = T.ABCActivations([-1, 1], [1, 1])
    y = module(a)
    y.sum().backward()
    assert y.tolist() == [[0, 0, 2, -2], [0, 0, 0, 0], [-2, 0, -2, -2], [0, 0, 2, 0]]
    assert a.grad.tolist() == [[1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1]]
    assert module.shifts.grad.tolist() == [6, 6] and module.betas.grad.tolist() == [-12, 8]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_gradients_of_estimators_by_differences(name):
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)[torch.arange(41) % 10 != 0] + 0.013
    x.requires_grad_()
    assert torch.autograd.gradcheck(ESTIMATORS[name], x)
    assert torch.autograd.gradgradcheck(ESTIMATORS[name], x)
    y = T.Sign(name)(x)
    assert set(y.tolist()) == {-1.0, 1.0}
    (got,) = torch.autograd.grad(y.sum(), x)
    (expected,) = torch.autograd.grad(ESTIMATORS[name](x).sum(), x)
    assert torch.equal(got, expected)


def test_gradients_of_gradients_pass():
    x = rand(50).double().requires_grad_()
    (g,) = torch.autograd.grad((T.Sign("approx_sign")(x) * 3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert torch.equal(h, torch.where(x.abs() < 1, -6 * torch.sign(x), torch.zeros_like(x)))
    assert straight(x, x * 2).sum().item() == x.sum().item()


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (T.PACT(2, 1.5).double(), lambda m, x: m.surrogate(x)),
        (T.DoReFa(2, activations=True), lambda m, x: m.surrogate(x)),
        (T.ABCActivations(2).double(), lambda m, x: ((x[:, None] + m.shifts).clamp(0, 1) * m.betas).sum(1)),
    ],
    ids=["PACT", "DoReFa", "ABCActivations"],
)  # fmt: skip
def test_gradients_by_differences_of_the_clip(module, function):
    x = (rand(40).double() * 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(module, x), x)
    (got,) = torch.autograd.grad(module(x).sum(), x)
    (expected,) = torch.autograd.grad(function(module, x).sum(), x)
    assert torch.allclose(got, expected)


def formula_of_dorefa(w):
    t = torch.tanh(w)
    return 2 * (t / (2 * t.abs().max()) + 0.5) - 1


@pytest.mark.parametrize("bits", [2, 3, 8])
@pytest.mark.parametrize("shape", [(7,), (4, 5), (2, 3, 3, 3)])
def test_dorefa_weights_have_the_gradient_of_the_formula_through_its_maximum(bits, shape):
    for w in (rand(*shape), rand(*shape).round(), torch.ones(shape), -torch.ones(shape)):  # with equal largest ones
        upstream = rand(*shape, seed=1).double()
        got, expected = (w.double().requires_grad_() for _ in range(2))
        (T.DoReFa(bits)(got) * upstream).sum().backward()
        (formula_of_dorefa(expected) * upstream).sum().backward()
        assert torch.allclose(got.grad, expected.grad, rtol=1e-12, atol=1e-14)
        assert expected.grad.abs().max() > 0
    zero = torch.zeros(shape, requires_grad=True)
    T.DoReFa(bits)(zero).sum().backward()
    assert torch.equal(zero.grad, torch.ones(shape))


def test_gradients_where_x_equals_an_end_of_the_range():
    """Inclusive clips, as the docstrings say; the clip of PACT learns from values above it alone."""
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 1.5])
    cases = [
        (T.DoReFa(2, activations=True), x, [0, 1, 1, 1, 0]),
        (T.PACT(2, alpha=1.0), x, [0, 1, 1, 1, 0]),
        (T.LSQ(2, signed=False, step=0.5), x, [0, 1, 1, 1, 1]),
        (T.LSQ(2, step=0.5), x, [0, 1, 1, 0, 0]),
        (T.ABCActivations([0.0], [1.0]), x, [0, 1, 1, 1, 0]),
        (T.Sign("clip"), x, [1, 1, 1, 1, 0]),
        (T.Sign("identity"), x, [1, 1, 1, 1, 1]),
        (T.Sign("approx_sign"), x, [0, 2, 1, 0, 0]),
    ]
    for module, values, expected in cases:
        a = values.double().requires_grad_()
        module(a).sum().backward()
        assert a.grad.tolist() == expected, type(module).__name__
    pact = T.PACT(2, alpha=1.0)
    pact(x).sum().backward()
    assert pact.alpha.grad.item() == 1
    basis = T.LQ(2)
    basis(torch.tensor([0.0, 1, 2, 3]))
    assert basis.basis.tolist() == [1, 2]
    a = torch.tensor([-0.5, 0, 3, 3.5], requires_grad=True)
    basis.eval()(a).sum().backward()
    assert a.grad.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("scale", [False, True])
def test_gradients_of_weights_of_each_output(scale):
    """Sign has its estimator's, times the scale as a constant; Ternary, LQ and DoReFa of 1 bit pass it on."""
    w, upstream = rand(4, 6).double(), rand(4, 6, seed=1).double()
    a = w.clone().requires_grad_()
    (T.Sign("clip", scale=scale)(a) * upstream).sum().backward()
    factor = w.abs().mean(dim=1, keepdim=True) if scale else 1
    assert torch.allclose(a.grad, torch.where(w.abs() <= 1, upstream * factor, 0.0))
    for module in (T.Ternary(), T.LQ(2, weights=True), T.DoReFa(1)):
        a = w.clone().requires_grad_()
        (module(a) * upstream).sum().backward()
        assert torch.equal(a.grad, upstream)


@pytest.mark.parametrize("signed", [True, False])
def test_lsq_has_the_gradients_of_its_pseudocode(signed):
    """Appendix A of arXiv 1902.08153: grad scale, clip, round straight through, in float64."""

    def straight_round(v):
        return (v.round() - v).detach() + v

    for step in (0.25, 0.5, 1.7):
        module = T.LSQ(3, signed, step=step).double()
        low, high = (-3, 3) if signed else (0, 7)
        x, upstream = (rand(50).double() * 2).requires_grad_(), rand(50, seed=1).double()
        with torch.no_grad():
            x[:3] = torch.tensor([high * step, low * step, 0.0])  # ties with the ends
        (module(x) * upstream).sum().backward()
        s, y = torch.tensor(step, dtype=torch.float64, requires_grad=True), x.detach().clone().requires_grad_()
        scaled = (s - s * (g := 1 / np.sqrt(50 * high))).detach() + s * g
        ((straight_round((y / scaled).clamp(low, high)) * scaled) * upstream).sum().backward()
        assert torch.allclose(x.grad, y.grad) and torch.allclose(module.step.grad, s.grad)


def test_pact_learns_its_clip():
    module, x = T.PACT(4, 1.0), torch.tensor([-1.0, 0.5, 2.0, 3.0], requires_grad=True)
    module(x).sum().backward()
    assert module.alpha.grad.item() == 2 and x.grad.tolist() == [0, 1, 0, 0]


def test_lsq_has_the_gradient_of_its_paper():
    module, x = T.LSQ(3, step=0.5).double(), rand(200).double().requires_grad_()
    module(x).sum().backward()
    v = (x.detach() / 0.5).numpy()
    each = np.where(v <= -3, -3, np.where(v >= 3, 3, np.rint(v) - v))
    assert np.isclose(module.step.grad.item(), each.sum() / np.sqrt(200 * 3))
    assert np.array_equal(x.grad.numpy() != 0, np.abs(v) <= 3)
    first = T.LSQ(3)
    first(x.float())
    assert np.isclose(first.step.item(), 2 * np.abs(x.detach().numpy()).mean() / np.sqrt(3)) and first.started


def test_the_gradient_of_abc_weights():
    w = W.clone().requires_grad_()
    module = T.ABC(3)
    upstream = rand(*W.shape, seed=1)
    (module(w) * upstream).sum().backward()
    alpha = qa.quantize(W.numpy(), qa.ABC(3), axis=1, scale_axis=0).scale / 2
    assert np.allclose(w.grad.numpy(), upstream.numpy() * alpha.sum(axis=0), rtol=1e-5)


def test_a_basis_follows_by_moving_average():
    """QEM on relu(N(0, 1)) ends at an error of 0.0234 with 2 bits; the average comes within 3 % of it."""
    module = T.LQ(2)
    for seed in range(150):
        module(rand(5_000, seed=seed).relu() * (3 if seed < 5 else 1))
    x = rand(100_000, seed=99).relu()
    module.eval()
    before = module.basis.clone()
    error = ((module(x) - x) ** 2).mean().item()
    assert torch.equal(module.basis, before) and 0.97 < error / 0.023429 < 1.03
    other = T.LQ(2)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.eval()(x), module(x))


def test_bases_of_weights_follow_by_moving_average():
    """Each output's basis makes one QEM step from where it is, and ends at the error of a fit."""
    module, w = T.LQ(2, weights=True), rand(4, 5000) * torch.tensor([[1.0], [10], [0.1], [3]])
    module(w)
    for _ in range(3):
        before, w = module.basis.numpy().copy(), w * 1.05
        y = module(w)
        for r in range(4):
            *_, (new, _) = qem(w[r : r + 1].double().numpy(), before[r : r + 1], iterations=1)
            assert np.allclose(module.basis[r].numpy(), 0.9 * before[r] + 0.1 * new[0], rtol=1e-12)
            levels = np.sort((np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]]) * module.basis[r].numpy()).sum(1))
            nearest = levels[np.abs(w[r].numpy()[:, None] - levels).argmin(1)]
            assert np.allclose(y[r].numpy(), nearest, rtol=1e-6)
    for _ in range(60):
        y = module(w)
    fitted = torch.from_numpy(qa.quantize(w.numpy(), qa.LQ(2), axis=1, scale_axis=0).dequantize())
    assert np.allclose(((y - w) ** 2).mean(1), ((fitted - w) ** 2).mean(1), rtol=1e-3)
    other = T.LQ(2, weights=True)
    other.load_state_dict(module.state_dict())
    assert other.basis.shape == (4, 2) and torch.equal(other.eval()(w), module.eval()(w))
    x = w.clone().requires_grad_()
    module(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    with pytest.raises(ValueError, match="the basis is of 4 outputs, the weights have 3"):
        module(w[:3])
    with pytest.raises(RuntimeError, match="size mismatch for basis"):
        T.LQ(3, weights=True).load_state_dict(module.state_dict())


@pytest.mark.parametrize(("count", "mse"), [(1, 0.3625), (2, 0.1909), (3, 0.1192)])
def test_training_curve_of_abc_activations(count, mse):
    """Adam, 2000 steps on normal batches: the published errors within 3 %."""
    torch.manual_seed(0)
    module = T.ABCActivations(count)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    errors = []
    for _ in range(2000):
        x = torch.randn(100, 100)
        error = ((module(x) - x) ** 2).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    assert abs(np.mean(errors[-100:]) / mse - 1) < 0.03


CONVOLUTIONS = {
    "plain": {"kernel_size": (3, 2), "padding": (1, 0)},
    "strided": {"kernel_size": 3, "stride": (2, 1), "padding": 1},
    "groups": {"kernel_size": (2, 3), "groups": 2},
    "depthwise": {"kernel_size": (3, 3), "groups": 4, "padding": 1, "dilation": (1, 2)},
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize("layer", [T.BinaryConv2d, T.QuantConv2d])
def test_adjoint_identities(kind, layer):
    """<conv(x, w), y> = <x, grad_x> = <w, grad_w> for the quantised x and w, whose gradients pass on."""
    settings = {} if layer is T.BinaryConv2d else {"weights": T.DoReFa(2), "activations": T.DoReFa(3, activations=True)}
    conv = layer(4, 8, bias=False, **settings, **CONVOLUTIONS[kind]).double()
    x = rand(2, 4, 9, 8).double()
    values = {}

    def keep(name):
        def hook(module, inputs, output):
            output.retain_grad()
            values[name] = output

        return hook

    conv.activations.register_forward_hook(keep("x"))
    conv.weights.register_forward_hook(keep("w"))
    result = conv(x.requires_grad_())
    y = rand(*result.shape, seed=5).double()
    (result * y).sum().backward()
    inner = (result * y).sum()
    for name in ("x", "w"):
        assert torch.isclose((values[name] * values[name].grad).sum(), inner)
    exact = F.conv2d(values["x"], values["w"], None, conv.stride, conv.padding, conv.dilation, conv.groups)
    assert torch.equal(result, exact) and conv.weight.grad.any() and x.grad.any()


def test_a_binary_convolution_equals_packed_integers():
    conv = T.BinaryConv2d(64, 8, 3, bias=False, scale=False)
    x = rand(2, 64, 7, 7)
    expected = qa.conv2d(
        qa.quantize(x.permute(0, 2, 3, 1).numpy(), qa.Sign()),
        qa.quantize(conv.weight.detach().permute(0, 2, 3, 1).numpy(), qa.Sign()),
    )
    assert np.array_equal(conv(x).permute(0, 2, 3, 1).detach().numpy(), expected)


def network():
    return nn.Sequential(
        T.QuantConv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8),
        T.BinaryConv2d(8, 16, 3, padding=1, estimator="approx_sign"), nn.BatchNorm2d(16), nn.MaxPool2d(2),
        T.QuantConv2d(16, 16, 3, groups=16, weights=T.LSQ(4), activations=T.LQ(2)), nn.BatchNorm2d(16),
        nn.Flatten(), T.QuantLinear(64, 10, weights=T.ABC(3), activations=T.PACT(4)),
    )  # fmt: skip


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("packed", [False, True], ids=["exact", "compressed activations"])
def test_a_network_learns(packed):
    torch.manual_seed(0)
    model, x = network(), rand(64, 1, 8, 8)
    y = (x[:, 0, :4, :4].flatten(1) @ rand(16, 10, seed=1)).argmax(1)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    context = T.compressed_activations(4, least=0)
    losses = []
    for _ in range(60):
        if packed:
            with context:
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        else:
            losses.append(step(model, optimizer, x, y))
    assert losses[-1] < 0.5 * losses[0]
    again = copy.deepcopy(model).eval()
    fresh = network()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(again(x), fresh.eval()(x))


def test_compile_and_autocast():
    torch.manual_seed(0)
    model, x, y = network(), rand(16, 1, 8, 8), torch.arange(16) % 10
    model(x)
    model.eval()
    assert torch.allclose(torch.compile(model, backend="aot_eager")(x), model(x), atol=1e-5)
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: T.Sign("straight"), "estimator must be"),
        (lambda: T.DoReFa(9), "bits"),
        (lambda: T.PACT(2, -1.0), "alpha"),
        (lambda: T.LSQ(1), "bits must be"),
        (lambda: T.LSQ(2, step=0), "LSQ: step must be a positive float32"),
        (lambda: T.ABC(0), "masks"),
        (lambda: T.ABCActivations([1, 2], [1]), "one beta a shift"),
        (lambda: T.LQ(2, momentum=1.5), "momentum"),
        (lambda: T.QuantConv2d(1, 1, 1, weights=qa.Sign()), "weights must be a module"),
        (lambda: T.QuantLinear(1, 1, activations=2), "activations must be a module"),
    ],
)
def test_wrong_arguments(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


PRINTED = [
    (qa.torch.Sign(), "Sign(bits=1, estimator='clip', scale=False)"),
    (qa.torch.Sign("reste", scale=True), "Sign(bits=1, estimator='reste', scale=True)"),
    (qa.torch.Ternary(), "Ternary(bits=2)"),
    (qa.torch.ABC(3), "ABC(bits=3)"),
    (qa.torch.DoReFa(4), "DoReFa(bits=4, activations=False)"),
    (qa.torch.PACT(3, alpha=2.5), "PACT(bits=3, alpha=2.5)"),
    (qa.torch.LSQ(5, signed=False, step=0.25), "LSQ(bits=5, signed=False, step=0.25)"),
    (qa.torch.ABCActivations(2), "ABCActivations(bits=2)"),
    (qa.torch.LQ(2, weights=True), "LQ(bits=2, weights=True, center=False)"),
]


@pytest.mark.parametrize(("scheme", "text"), PRINTED, ids=[text for _, text in PRINTED])
def test_schemes_and_layers_print_bits_and_scheme(scheme, text):
    assert repr(scheme) == text
    sides = {"weights": scheme} if scheme.role != "activations" else {"activations": scheme}
    shown = ", ".join(f"{name}={text if name in sides else 'float'}" for name in ("weights", "activations"))
    linear = qa.torch.QuantLinear(8, 4, bias=False, **sides)
    assert linear.extra_repr() == f"in_features=8, out_features=4, bias=False, {shown}"
    conv = qa.torch.QuantConv2d(3, 8, 3, **sides)
    assert conv.extra_repr() == f"3, 8, kernel_size=(3, 3), stride=(1, 1), {shown}"


def test_layers_print_packed_and_modules_of_others():
    layer = qa.torch.BinaryConv2d(4, 8, 3, packed=True)
    assert layer.extra_repr().endswith("activations=Sign(bits=1, estimator='clip', scale=False), packed=True")
    layer.packed = False
    assert "packed" not in layer.extra_repr()
    assert "activations=Hardtanh(min_val=-1.0, max_val=1.0)" in repr(
        qa.torch.QuantLinear(2, 2, activations=torch.nn.Hardtanh())
    )


def test_a_scheme_without_settings_prints_its_name():
    """A scheme of a user's own has no settings to print."""

    class Halves(qa.torch.Scheme):
        def packed(self, x):
            return qa.quantize(x.detach(), qa.Uniform(2, step=0.5))

    assert repr(Halves()) == "Halves()"
    assert qa.torch.QuantLinear(2, 2, weights=Halves()).extra_repr().endswith("weights=Halves(), activations=float")
