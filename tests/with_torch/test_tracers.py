"""Tracers and transforms of PyTorch: right, or an error with the fix; codes of the example are never constants."""

import copy
import io
import warnings

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import quantarray as qa

T = qa.torch
SCHEMES = {
    "Sign": T.Sign,
    "Sign scale": lambda: T.Sign(scale=True),
    "Ternary": T.Ternary,
    "ABC": lambda: T.ABC(2),
    "DoReFa 1": lambda: T.DoReFa(1),
    "DoReFa": lambda: T.DoReFa(2),
    "DoReFa activations": lambda: T.DoReFa(2, activations=True),
    "PACT": lambda: T.PACT(2),
    "LSQ": lambda: T.LSQ(2),
    "LSQ step": lambda: T.LSQ(2, step=0.5),
    "ABCActivations": lambda: T.ABCActivations(2),
    "LQ": lambda: T.LQ(2),
    "LQ weights": lambda: T.LQ(2, weights=True),
}
PAIRS = [
    (lambda: T.DoReFa(2), lambda: T.PACT(2)),
    (lambda: T.LSQ(2), lambda: T.LSQ(2)),
    (lambda: T.ABC(2), lambda: T.ABCActivations(2)),
    (lambda: T.LQ(2, weights=True), lambda: T.LQ(2)),
    (lambda: T.Sign(scale=True), T.Sign),
]
MODULES = {
    **{name: (make, (4, 8)) for name, make in SCHEMES.items()},
    **{
        f"linear {i}{' packed' * packed}": (
            lambda w=w, a=a, packed=packed: T.QuantLinear(8, 4, weights=w(), activations=a(), packed=packed),
            (4, 8),
        )
        for i, (w, a) in enumerate(PAIRS)
        for packed in (False, True)
    },
    "convolution": (
        lambda: T.QuantConv2d(2, 4, 3, weights=T.DoReFa(2), activations=T.DoReFa(2, activations=True)),
        (2, 2, 5, 5),
    ),
    "binary": (lambda: T.BinaryConv2d(2, 4, 3), (2, 2, 5, 5)),
    "binary packed": (lambda: T.BinaryConv2d(2, 4, 3, packed=True), (2, 2, 5, 5)),
    "float activations": (lambda: T.QuantLinear(8, 4, weights=T.Ternary()), (4, 8)),
    "float weights": (lambda: T.QuantLinear(8, 4, activations=T.LSQ(2)), (4, 8)),
}
TRACERS = {
    "jit.trace": lambda m, x: torch.jit.trace(m, (x,)),
    "jit.trace unchecked": lambda m, x: torch.jit.trace(m, (x,), check_trace=False),
    "jit.script": lambda m, x: torch.jit.script(m),
    "export": lambda m, x: torch.export.export(m, (x,)),
    "fx": lambda m, x: torch.fx.symbolic_trace(m),
    "make_fx": lambda m, x: make_fx(m)(x),
    "make_fx fake": lambda m, x: make_fx(m, tracing_mode="fake", _allow_non_fake_inputs=True)(x),
    "onnx": lambda m, x: torch.onnx.export(m, (x,), io.BytesIO(), dynamo=False),
}


def rand(shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("name", MODULES)
def test_tracers_are_refused(name, tracer, train):
    make, shape = MODULES[name]
    module, x = make(), rand(shape)
    module(x)
    module.train(train)
    state = copy.deepcopy(module.state_dict())
    with warnings.catch_warnings(action="ignore"), pytest.raises(RuntimeError, match=r"nn\.from_torch\(module, exa"):
        TRACERS[tracer](module, x)
    assert all(torch.equal(state[key], value) for key, value in module.state_dict().items())


@pytest.mark.parametrize("name", ["linear 0", "linear 1 packed", "convolution"])
def test_exporters_that_wrap_errors_say_why(name):
    make, shape = MODULES[name]
    module, x = make().eval(), rand(shape)
    module(x)
    with pytest.raises(Exception, match="computed outside of PyTorch"):
        torch.export.export(module, (x,), strict=True)
    with pytest.raises(Exception, match="computed outside of PyTorch"):
        torch.compile(module, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("name", [n for n in MODULES if n != "float activations"])
def test_transforms_of_functions_are_refused(name):
    make, shape = MODULES[name]
    module, x = make(), rand(shape)
    module(x)
    for transformed in (
        torch.func.vmap(module),
        torch.func.grad(lambda a: module(a).sum()),
        torch.func.jacrev(module),
        torch.func.functionalize(module),
    ):
        with pytest.raises(RuntimeError, match=r"torch\.func cannot transform a quantiser.* torch\.autograd\.grad"):
            transformed(x)


def test_a_layer_of_float_inputs_is_mapped_and_not_differentiated():
    module, x = T.QuantLinear(8, 4, weights=T.Ternary()), rand((4, 8))
    assert torch.allclose(torch.func.vmap(module)(x), module(x), atol=1e-6)
    with pytest.raises(RuntimeError, match=r"torch\.func cannot transform a quantiser"):
        torch.func.grad(lambda a: module(a).sum())(x)
    with pytest.raises(RuntimeError, match=r"Ternary: torch\.func cannot"):
        torch.func.grad(lambda w: torch.func.functional_call(module, {"weight": w}, (x,)).sum())(module.weight)


@pytest.mark.parametrize("name", ["linear 0", "linear 1", "linear 2 packed", "linear 3", "binary packed"])
def test_compiled_modules_have_the_values_and_gradients(name):
    make, shape = MODULES[name]
    module = make()
    module(rand(shape))
    module.eval()
    compiled = torch.compile(module, backend="aot_eager")
    compiled(rand(shape))
    got, expected = (rand(shape, 1).requires_grad_() for _ in range(2))
    y, z = compiled(got), module(expected)
    y.square().sum().backward()
    z.square().sum().backward()
    assert torch.allclose(y, z, atol=1e-6) and torch.allclose(got.grad, expected.grad, atol=1e-5)


def test_functions_are_refused():
    q = qa.quantize(np.float32([[1, -3]]), qa.Sign(scale=True))
    module = T.to_torch(q)
    calls = {
        "quantize": lambda x: T.dequantize(T.quantize(x, qa.Sign())),
        "dequantize": lambda x: T.dequantize(q, out=x),
        "PackedTensor": lambda x: x + module(),
    }
    for op, call in calls.items():
        with warnings.catch_warnings(action="ignore"), pytest.raises(RuntimeError, match=f"{op}: torch.jit.trace"):
            torch.jit.trace(call, (torch.ones(1, 2),))
        with pytest.raises(RuntimeError, match=f"{op}: .* make_fx cannot trace"):
            make_fx(call)(torch.ones(1, 2))
    with pytest.raises(RuntimeError, match=r"quantize: torch\.fx\.symbolic_trace"):
        torch.fx.symbolic_trace(calls["quantize"])
    with pytest.raises(RuntimeError, match=r"PackedTensor: torch\.jit\.script"):
        torch.jit.script(module)
