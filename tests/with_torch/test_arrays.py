"""PyTorch's, JAX' and ml_dtypes' own arrays, on the CPU.

Not in the default run: `.ci/run` has an environment for it (the extra `test-torch`), and a missing package fails here.
"""

import time

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import quantarray as qa

X = np.random.default_rng(0).standard_normal((6, 200)).astype(np.float32)
LEVELS = np.random.default_rng(1).integers(0, 4, (3, 64))
W = qa.encode(np.ones((2, 64), int), values=(-1, 1))
BIG = qa.encode(np.random.default_rng(2).integers(0, 4, (512, 1024)), range(4))

KINDS = {
    "torch.bfloat16": lambda a: torch.tensor(a).to(torch.bfloat16),
    "torch.bfloat16, a transposed view": lambda a: torch.tensor(a.T.copy()).to(torch.bfloat16).T,
    "torch.float16": lambda a: torch.tensor(a).to(torch.float16),
    "torch, detached": lambda a: torch.tensor(a, requires_grad=True).detach(),
    "jax.bfloat16": lambda a: jnp.asarray(a, jnp.bfloat16),
    "jax.float16": lambda a: jnp.asarray(a, jnp.float16),
    "ml_dtypes.bfloat16": lambda a: a.astype(ml_dtypes.bfloat16),
}


def values(x):
    """float32, by the library itself."""
    return x.float().numpy() if isinstance(x, torch.Tensor) else np.asarray(x).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantizer", [qa.Sign(scale=True), qa.Uniform(4), qa.LloydMax(2), qa.Grouped(4)], ids=repr)
def test_quantize(kind, quantizer):
    x = KINDS[kind](X)
    got, expected = qa.quantize(x, quantizer), qa.quantize(values(x), quantizer)
    assert qa.array_equal(got, expected) and got.scheme == expected.scheme


@pytest.mark.parametrize("kind", KINDS)
def test_other_functions(kind):
    x = KINDS[kind](LEVELS.astype(np.float32))
    assert np.array_equal(qa.encode(x, range(4)).dequantize(), LEVELS)
    bias = KINDS[kind](np.float32([[0.5, -2.0]]))[0]
    assert np.array_equal(qa.linear(W, W, bias=bias), [[64.5, 62.0]] * 2)
    assert np.array_equal(qa.relu_mask(x).codes(), LEVELS > 0)
    assert repr(qa.choose(KINDS[kind](X), 2)) == repr(qa.choose(values(KINDS[kind](X)), 2))
    if "ml_dtypes" not in kind:
        assert np.array_equal(qa.from_dlpack(x, qa.uint2).codes(), LEVELS)


def test_a_tensor_is_left_as_it_was():
    x = torch.tensor(X).to(torch.bfloat16)
    before = x.clone()
    qa.quantize(x, qa.Sign())
    assert x.dtype == torch.bfloat16 and torch.equal(x, before)
    (x * 2).sum().item()


@pytest.mark.parametrize("convert", [torch.tensor, jnp.asarray], ids=["torch", "jax"])
def test_bytes_are_operands_of_products(convert):
    x = np.random.default_rng(3).integers(-128, 128, (5, 64)).astype(np.int8)
    assert np.array_equal(qa.linear(convert(x), W), qa.linear(x, W))
    assert np.array_equal(qa.from_codes(convert(LEVELS.astype(np.uint8)), qa.uint2).codes(), LEVELS)
    image = np.random.default_rng(4).integers(0, 256, (1, 5, 6, 3)).astype(np.uint8)
    w = qa.encode(np.ones((4, 3, 3, 3), int), values=(-1, 1))
    assert np.array_equal(qa.conv2d(convert(image), w), qa.conv2d(image, w))


GRADIENTS = {
    "a leaf": lambda: torch.ones(2, 64, requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(2, 64)),
    "a result": lambda: torch.ones(2, 64, requires_grad=True) * 2,
    "bfloat16": lambda: torch.ones(2, 64, dtype=torch.bfloat16, requires_grad=True),
}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_gradients_are_refused_by_name(kind):
    for call in (lambda x: qa.quantize(x, bits=2), lambda x: qa.encode(x, range(4)), lambda x: qa.linear(x, W)):
        with pytest.raises(TypeError, match=r"x requires a gradient.*pass x\.detach\(\)"):
            call(GRADIENTS[kind]())
    assert qa.quantize(GRADIENTS[kind]().detach(), bits=2).shape == (2, 64)


REFUSED = {
    "sparse": (lambda: torch.ones(3).to_sparse(), TypeError, "torch.strided"),
    "float8": (lambda: torch.ones(3).to(torch.float8_e4m3fn), TypeError, "convert it to a dense float32 one"),
    "complex": (lambda: torch.ones(3, dtype=torch.complex64), TypeError, "bool, integers or floats"),
    "meta": (lambda: torch.ones(3, device="meta"), qa.DeviceError, "meta"),
    "jax int4": (lambda: jnp.ones(3, jnp.int4), TypeError, "convert it"),
    "ml_dtypes float8": (lambda: np.ones(3, ml_dtypes.float8_e4m3fn), TypeError, ".astype(np.float32)"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_tensors_are_refused_by_name(kind):
    make, error, words = REFUSED[kind]
    with pytest.raises(error, match=r"^quantize: x") as caught:
        qa.quantize(make(), bits=2)
    assert words in str(caught.value)


CONSUMERS = {
    "torch.tensor": torch.tensor,
    "torch.as_tensor": torch.as_tensor,
    "torch.asarray": torch.asarray,
    "torch.Tensor": torch.Tensor,
    "torch.from_dlpack": torch.from_dlpack,
    "jax.numpy.asarray": jnp.asarray,
    "jax.numpy.array of a list": lambda q: jnp.array([q, q]),
    "numpy.array of a list": lambda q: np.array([q, q]),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_consumers_refuse_at_once_or_are_fast(consumer):
    """524,288 elements took 46 s one by one."""
    began = time.monotonic()
    try:
        made = CONSUMERS[consumer](BIG)
    except TypeError as error:
        assert ".dequantize()" in str(error)
    else:
        assert np.array_equal(np.asarray(made)[-1], np.broadcast_to(BIG.dequantize(), made.shape)[-1])
    assert time.monotonic() - began < 10


def test_the_way_that_messages_name():
    assert np.array_equal(torch.from_numpy(BIG.dequantize()).numpy(), BIG.dequantize())
    words = torch.from_dlpack(BIG.words, copy=True)
    assert words.shape == BIG.words.shape
    assert sum(BIG[0]) == int(BIG[0].dequantize().sum())
