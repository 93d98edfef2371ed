"""Other libraries' arrays on a GPU, by stand-ins with their protocols: where they are taken, and who waits for whom."""

import fake_cupy
import numpy as np
import pytest
from gpus import a_gpu
from paths import PACKAGED

import quantarray as qa

STREAM = 7  # of the other library


class Tensor:
    """PyTorch's: its interface names no stream, its DLPack makes the stream that is asked for wait for its own."""

    def __init__(self, x, typestr=None):
        self.x, self.typestr, self.device, self.waits = x, typestr, "cuda:0", []

    @property
    def __cuda_array_interface__(self):
        found = {k: v for k, v in self.x.__array_interface__.items() if k != "stream"}
        return found | {"version": 2, "typestr": self.typestr or found["typestr"]}

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=-1, max_version=None):
        self.waits.append((stream, STREAM))
        return self.x


class Exchanged:
    """DLPack and nothing else; `kind` is that of the device."""

    def __init__(self, x, kind):
        self.x, self.kind = x, kind

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self, *, stream, max_version=None):
        return self.x


class Interface:
    """Numba's: the interface of version 3, with a stream."""

    device = "cuda:0"

    def __init__(self, x, typestr=None):
        self.__cuda_array_interface__ = x.__array_interface__ | {"version": 3, "stream": STREAM}
        if typestr:
            self.__cuda_array_interface__["typestr"] = typestr


X = np.random.default_rng(0).choice([-1.0, 1.0], (3, 70)).astype(np.float32)
BITS = (X.view(np.uint32) >> 16).astype(np.uint16)  # the same values in bfloat16


@pytest.fixture(autouse=True)
def nothing_waits_yet():
    del fake_cupy.waits[:]


@pytest.mark.parametrize("stream", [None, 77])
@pytest.mark.parametrize("tensor", [lambda: Tensor(X), lambda: Tensor(BITS, "<V2")], ids=["float32", "bfloat16"])
def test_cupys_stream_waits_for_a_tensors(tensor, stream):
    """CuPy's stream waits on the GPU before the tensor is read; the CPU does not wait."""
    x = tensor()
    with fake_cupy.gpu():
        if stream is None:
            got = qa.quantize(x, qa.Sign())
        else:
            with fake_cupy.cuda.Stream(ptr=stream):
                got = qa.quantize(x, qa.Sign())
        assert x.waits == [(stream or 1, STREAM)]
        assert not any("stream" in wait for wait in fake_cupy.waits)
        assert got.device == "cuda:0" and qa.array_equal(qa.asnumpy(got), qa.quantize(X, qa.Sign()))


@pytest.mark.parametrize("array", [lambda: Interface(X), lambda: Interface(BITS, "<V2")], ids=["float32", "bfloat16"])
def test_a_stream_that_is_named_is_waited_for(array):
    with fake_cupy.gpu():
        got = qa.quantize(array(), qa.Sign())
        assert f"stream {STREAM} is waited for" in fake_cupy.waits
        assert got.device == "cuda:0" and qa.array_equal(qa.asnumpy(got), qa.quantize(X, qa.Sign()))


@pytest.mark.parametrize("kind", [2, 13])
def test_dlpack_alone(kind):
    x = X.astype(np.int8)
    calls = {
        "quantize": lambda a: qa.quantize(a, qa.Sign()),
        "encode": lambda a: qa.encode(a, (-1, 1)),
        "from_dlpack": lambda a: qa.from_dlpack(a, qa.bipolar),
        "from_dlpack without a dtype": qa.from_dlpack,
        "from_codes": lambda a: qa.from_codes(
            Exchanged((x > 0).view(np.uint8), kind) if a is not x else x > 0, qa.uint1
        ),
    }
    with fake_cupy.gpu():
        for name, call in calls.items():
            got = call(Exchanged(x, kind))
            assert got.device == "cuda:0" and qa.array_equal(qa.asnumpy(got), call(x)), name


def test_products_take_tensors_of_bytes():
    x = np.random.default_rng(0).integers(-128, 128, (3, 70), np.int8)
    w = qa.encode(X[:2], (-1, 1))
    with fake_cupy.gpu():
        got = qa.linear(Tensor(x), w.to_device("cuda"))
        assert qa.asnumpy(got).tolist() == qa.linear(x, w).tolist()
        with pytest.raises(TypeError, match="x must be a QuantArray or an int8/uint8 array, got Tensor"):
            qa.linear(Tensor(X.view(np.int32)), w.to_device("cuda"))


def test_a_network_takes_a_tensor():
    network = qa.nn.load_network(PACKAGED)
    raw = network.plain.input[:2]
    with fake_cupy.gpu():
        x = Tensor(raw)
        assert qa.asnumpy(network.to_device("cuda")(x)).tolist() == network.plain.expected[:2].tolist()
        assert x.waits == [(1, STREAM)]


def test_what_a_library_refuses_is_said():
    class NeedsGradient(Tensor):
        def __dlpack__(self, **kwargs):
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    with fake_cupy.gpu(), pytest.raises(TypeError, match=r"encode: x gives no CuPy array .* use tensor\.detach\(\)"):
        qa.encode(NeedsGradient(X), (-1, 1))
    with pytest.raises(qa.DeviceError, match="is on a Vulkan device"):
        qa.from_dlpack(Exchanged(X, 7), qa.bipolar)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_tensor_that_is_still_written(kind):
    """The tensor is written on a stream of PyTorch's that sleeps first."""
    torch = pytest.importorskip("torch")
    with a_gpu():
        x = torch.from_numpy(X).cuda().to(getattr(torch, kind))
        made = torch.zeros_like(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(10**8)
            made.copy_(x)
            got = qa.quantize(made, qa.Sign())
        assert qa.array_equal(qa.asnumpy(got), qa.quantize(X, qa.Sign()))


@pytest.mark.gpu
def test_results_go_to_other_libraries():
    torch = pytest.importorskip("torch")
    with a_gpu():
        made = torch.from_dlpack(qa.encode(X, (-1, 1)).to_device("cuda").codes())
        assert made.is_cuda and made.cpu().numpy().tolist() == (X > 0).tolist()


def test_a_class_is_no_array():
    """A class has the methods of its arrays, but these need an instance."""
    for call in (lambda x: qa.encode(x, values=(0, 1)), lambda x: qa.quantize(x, qa.Sign()), qa.pack_bits):
        with pytest.raises(TypeError, match="x must be an array, got the class ndarray; pass an object of it"):
            call(np.ndarray)
