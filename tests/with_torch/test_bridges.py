"""Tensors to packed arrays and back, and packed tensors in a module's state."""

import copy

import numpy as np
import pytest
import torch

import quantarray as qa

X = torch.randn(6, 200, generator=torch.Generator().manual_seed(0))
ARRAYS = {
    "bits": qa.encode(np.random.default_rng(0).integers(0, 2, (3, 70)), range(2)),
    "signs": qa.quantize(X.numpy(), qa.Sign(scale=True), scale_axis=0),
    "uniform": qa.quantize(X.numpy(), qa.Uniform(4), axis=0),
    "basis": qa.quantize(X.numpy(), qa.LQ(2)),
    "table": qa.quantize(X.numpy(), qa.LloydMax(3)),
    "groups": qa.quantize(X.numpy(), qa.Grouped(2, group=64)),
    "ternary": qa.quantize(X.numpy(), qa.Ternary()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_quantize_reads_parameters_and_views(dtype):
    weight = torch.nn.Parameter(X.to(dtype))
    got = qa.torch.quantize(weight.T, qa.Uniform(4), axis=0)
    expected = X.to(dtype).T.double() if dtype == torch.float64 else X.to(dtype).float().T
    assert qa.array_equal(got, qa.quantize(expected.numpy(), qa.Uniform(4), axis=0))
    assert weight.requires_grad and weight.grad is None


@pytest.mark.parametrize("kind", ARRAYS)
def test_values_as_tensors(kind):
    q = ARRAYS[kind]
    values = qa.torch.dequantize(q)
    out = torch.empty_like(values)
    assert qa.torch.dequantize(q, out=out) is out and out._version
    assert torch.equal(values, out) and np.array_equal(values.numpy(), q.dequantize())


@pytest.mark.parametrize(
    "out",
    [
        torch.empty(3, 71, dtype=torch.int32),
        torch.empty(3, 70, dtype=torch.float64),
        torch.empty(3, 70, device="meta"),
        np.empty(3),
    ],
)
def test_another_out_is_refused(out):
    with pytest.raises((TypeError, qa.DeviceError), match=r"^dequantize: out"):
        qa.torch.dequantize(ARRAYS["bits"], out=out)
    leaf = torch.empty(6, 200, requires_grad=True)
    with pytest.raises(TypeError, match=r"pass out\.detach\(\)"):
        qa.torch.dequantize(ARRAYS["groups"], out=leaf)


def same(packed, q):
    back = packed.array
    assert back.digest() == q.digest() and back.scheme == q.scheme and back.dtype.name == q.dtype.name
    qa.arrays.array.validate(back)
    assert torch.equal(packed(), qa.torch.dequantize(q))


@pytest.mark.parametrize("kind", ARRAYS)
def test_state_keeps_an_array(kind, tmp_path):
    q = ARRAYS[kind]
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), qa.torch.to_torch(q))
    same(model[1], q)
    same(copy.deepcopy(model)[1], q)
    same(model.half()[1], q)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = torch.nn.Sequential(torch.nn.Linear(2, 2), qa.torch.to_torch(ARRAYS["signs"])).half()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    same(other[1], q)


def test_buffers_and_array_share_memory_and_the_source_does_not():
    q = ARRAYS["groups"]
    packed = qa.torch.to_torch(q)
    assert np.shares_memory(packed.array.words, packed.words.numpy())
    assert not np.shares_memory(packed.words.numpy(), q.words)
    assert sum(b.nbytes for b in packed.buffers()) == q.nbytes


def test_a_foreign_state_is_refused():
    packed = qa.torch.to_torch(ARRAYS["groups"])
    state = packed.state_dict() | {"_extra_state": {"bits": 3}}
    with pytest.raises(qa.FormatError, match="is not the law"):
        packed.load_state_dict(state)
    with pytest.raises(qa.FormatError, match="is not the law"):
        packed.load_state_dict(packed.state_dict() | {"_extra_state": packed.get_extra_state() | {"name": 3}})
    for name, value in (("words", None), ("words", "text"), ("scale", [1.0])):
        with pytest.raises(qa.FormatError, match=f"{name} must be a tensor, got"):
            packed.load_state_dict(packed.state_dict() | {name: value})
    short = packed.state_dict()
    short["words"] = short["words"][:1]
    with pytest.raises(qa.FormatError, match="words"):
        packed.load_state_dict(short)
    same(packed, ARRAYS["groups"])
