"""Each cause for which a GPU cannot be used: one message with the cause and the fix, and the CPU keeps working."""

import re
from contextlib import contextmanager

import fake_cupy
import numpy as np
import pytest

import quantarray as qa
from quantarray.backends import diagnosis

RUNTIME = fake_cupy.cuda.runtime


@pytest.fixture
def installed(monkeypatch):
    """Replace the versions of installed distributions; none matters until a test names it."""
    found = {}
    monkeypatch.setattr(diagnosis, "version_of", found.get)
    return found


def raises(value):
    def call(*args):
        raise value

    return call


def refused(message):
    """A GPU is refused with a message that has both the cause and the fix; the CPU works."""
    q = qa.encode([[1, -1]], (-1, 1))
    with fake_cupy.gpu():
        with pytest.raises(qa.DeviceError, match=message):
            q.to_device("cuda")
        assert qa.linear(q, q).tolist() == [[2]]
    return True


def test_no_driver(installed, monkeypatch):
    for version in (lambda: 0, raises(RuntimeError("cudaErrorInsufficientDriver"))):
        monkeypatch.setattr(RUNTIME, "driverGetVersion", version)
        assert refused("to_device: there is no NVIDIA driver; install one, .* or stay on the device 'cpu'")


MINOR = r"the driver, for CUDA 13\.0, has to compile what CUDA 13\.2\.0 makes, .*nvJitLink .*cuda-toolkit==13\.0\.\*'"


@pytest.mark.parametrize("driver, toolkit, linker, message", [
    (12080, "13.0.3.0", "13.0.88", r"the driver is for CUDA 12\.8 and runs nothing .* wheels of CUDA 13\.0\.3\.0 make; "
                                   r"install a driver for CUDA 13 or newer, or pip uninstall -y cupy-cuda13x, then "
                                   r"pip install 'quantarray\[cuda12\]', or stay"),
    (12080, "13.0.3.0", None, "install a driver for CUDA 13"),
    (11040, "12.9.1", "12.9.86", "install a driver for CUDA 12 or newer, or stay"),
    (12080, "12.9.1", None, r"the driver, for CUDA 12\.8, .*-U nvidia-nvjitlink-cu12\), .*cuda-toolkit==12\.8\.\*'"),
    (12000, "12.9.1", "12.9.86", None),
    (13000, "13.2.0", None, MINOR),
    (13000, "13.2.0", "13.2.51", None), (13000, "13.0.3.0", None, None), (13010, "13.0.0", None, None),
    (12080, "12.8.1", None, None), (12080, None, None, None),
])  # fmt: skip
def test_a_driver_older_than_the_toolkit(installed, monkeypatch, driver, toolkit, linker, message):
    """A driver of the same major version runs code of nvJitLink, but compiles nothing newer than itself."""
    major = (toolkit or "13").partition(".")[0]
    name = "nvidia-nvjitlink" if major == "13" else "nvidia-nvjitlink-cu12"
    installed.update({"cuda-toolkit": toolkit, name: linker, f"cupy-cuda{major}x": "14.2.0"})
    monkeypatch.setattr(RUNTIME, "driverGetVersion", lambda: driver)
    if message:
        assert refused(message)
    else:
        with fake_cupy.gpu():
            assert qa.encode([1, -1], (-1, 1)).to_device("cuda").device == "cuda:0"


OLDER = r"nvJitLink {} is older than the compiler {}, .*install -U {}, or a toolkit .* 'cuda-toolkit=={}\.\*'"


@pytest.mark.parametrize("toolkit, names, message", [
    (None, {"nvidia-nvvm": "13.5.37", "nvidia-nvjitlink": "13.0.88"},
     OLDER.format("13.0.88", "13.5.37", "nvidia-nvjitlink", "13.0")),
    ("13.0.3", {"nvidia-nvvm": "13.0.88", "nvidia-nvjitlink": "13.5.37"}, None),
    ("13.0.3", {"nvidia-nvvm": "13.0.88", "nvidia-nvjitlink": "13.0.39"}, None),
    ("12.9.2", {"nvidia-cuda-nvcc-cu12": "12.9.86", "nvidia-nvjitlink-cu12": "12.8.93"},
     OLDER.format("12.8.93", "12.9.86", "nvidia-nvjitlink-cu12", "12.8")),
    ("12.9.2", {"nvidia-cuda-nvcc-cu12": "12.9.86", "nvidia-nvjitlink-cu12": "12.8.93", "nvidia-nvjitlink": "13.0.88"},
     "nvJitLink 12.8.93 is older"),  # 13.0 is PyTorch's
    ("13.0.3", {"nvidia-nvvm": "13.0.88", "nvidia-nvjitlink": "13.0.88", "nvidia-cuda-nvcc-cu12": "12.9.86",
                "nvidia-nvjitlink-cu12": "12.6.85"}, None),
    (None, {"nvidia-nvvm": "13.5.37"}, None),
])  # fmt: skip
def test_a_linker_older_than_the_compiler(installed, toolkit, names, message):
    installed.update(names, **{"cuda-toolkit": toolkit})
    if message:
        assert refused(message)
    else:
        with fake_cupy.gpu():
            assert qa.encode([1, -1], (-1, 1)).to_device("cuda").device == "cuda:0"


def test_no_gpu(installed, monkeypatch):
    monkeypatch.setattr(RUNTIME, "getDeviceCount", raises(RuntimeError("cudaErrorNoDevice")))
    assert refused("no GPU can be used: cudaErrorNoDevice; see that nvidia-smi lists it")
    monkeypatch.setattr(RUNTIME, "getDeviceCount", lambda: 0)
    assert refused("no GPU can be used: it sees none; CUDA_VISIBLE_DEVICES may hide them")


def test_a_gpu_that_is_too_old(installed, monkeypatch):
    def properties(number):
        return {"name": b"GeForce GTX 1080", "major": 6 + number, "minor": 1 - number}

    monkeypatch.setattr(RUNTIME, "getDeviceProperties", properties)
    assert refused("cuda:0, GeForce GTX 1080, has compute capability 6.1, and kernels need 7.0 .*choose another GPU")
    with fake_cupy.gpu():  # the other one is 7.0
        assert qa.encode([1, -1], (-1, 1)).to_device("cuda:1") is not None
    installed["cuda-toolkit"] = "13.0.3.0"  # has no compiler for 7.0
    with fake_cupy.gpu(), pytest.raises(qa.DeviceError, match=r"7\.0, .* 7\.5 or later with the wheels of CUDA 13\.0"):
        qa.encode([1, -1], (-1, 1)).to_device("cuda:1")


@pytest.mark.parametrize("names, message", [
    ({"cupy-cuda12x": "14.0", "cupy-cuda13x": "14.0"},
     "cupy-cuda12x and cupy-cuda13x are installed, which write to the same folder .*"
     "pip uninstall -y cupy-cuda12x cupy-cuda13x, then pip install 'quantarray"),
    ({"cupy-cuda12x": "14.0", "cuda-toolkit": "13.0.3.0"},
     r"cupy-cuda12x is installed beside the wheels of CUDA 13.0.3.0; pip uninstall -y cupy-cuda12x, then "
     r"pip install 'quantarray\[cuda13\]', or"),
    ({"cupy-cuda13x": "14.0", "cuda-toolkit": "12.9.2"},
     r"cupy-cuda13x is installed beside the wheels of CUDA 12.9.2; pip uninstall -y cupy-cuda13x, then "
     r"pip install 'quantarray\[cuda12\]', or"),
])  # fmt: skip
def test_the_wrong_wheel(installed, names, message):
    installed.update(names)
    assert refused(message)


@pytest.mark.parametrize("names", [
    {"cupy-cuda13x": "14.0", "cuda-toolkit": "13.0.3.0"}, {"cupy-cuda12x": "14.0"}, {},
    {"cupy-cuda12x": "14.0", "cuda-toolkit": "12.9.2", "nvidia-nvjitlink-cu12": "12.9.86"},
    {"cupy": "14.0", "cuda-toolkit": "13.0.3.0"},
])  # fmt: skip
def test_wheels_that_fit(installed, names):
    installed.update(names)
    with fake_cupy.gpu():
        assert qa.encode([1, -1], (-1, 1)).to_device("cuda").device == "cuda:0"


def test_a_target_that_is_not_redirected():
    inside = "/site/numba/cuda/__init__.py"
    with pytest.raises(qa.DeviceError, match=rf"kernels: numba.cuda comes from {inside} .* --target .*addsitedir"):
        diagnosis.check_target("kernels", inside)
    diagnosis.check_target("kernels", "/site/numba_cuda/numba/cuda/__init__.py")


def test_what_is_installed_here_is_read():
    assert diagnosis.version_of("numpy") == np.__version__ and diagnosis.version_of("no such thing") is None


@contextmanager
def full(monkeypatch, *names):
    class OutOfMemoryError(MemoryError):
        """A stand-in for CuPy's error."""

    with monkeypatch.context() as patched:
        for name in names:
            patched.setattr(
                fake_cupy, name, raises(OutOfMemoryError("Out of memory allocating 512 bytes")), raising=False
            )
        yield


def test_out_of_memory(installed, monkeypatch):
    q = qa.encode(np.ones((3, 65), int), (-1, 1))
    message = (
        r"there is no room on the GPU for uint64 \(1, 3, 2\) of 48 bytes: 1,000 of its 2,000 bytes are free; .*pool"
    )
    with fake_cupy.gpu():
        there = q.to_device("cuda")
        with full(monkeypatch, "asarray"), pytest.raises(MemoryError, match=message):
            q.to_device("cuda")
        with full(monkeypatch, "zeros"), pytest.raises(MemoryError, match=message):
            qa.roll(there, 1, 1)
        with full(monkeypatch, "empty"), pytest.raises(MemoryError, match=r"uint8 .* of 195 bytes"):
            there.codes()
        assert qa.asnumpy(there.codes()).sum() == 195
    assert q.codes().sum() == 195


# What Numba raises on machines without a wheel, or with those of two versions
OLD_LINKER = """ERROR_OUTDATED_LIBRARY (14)
nvJitLink error log: ERROR 4 in nvvmAddNVVMContainerToProgram, may need newer version of nvJitLink library"""
OLD_PTX = """ERROR_PTX_COMPILE (4)
nvJitLink error log: ptxas application ptx input, line 9; fatal : Unsupported .version 9.5; current version is '9.0'"""
NO_LIBRARY = """Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file: libnvrtc.so.13 or libnvrtc.so.12"""


@pytest.mark.parametrize("said, kind, message", [
    ("[222] CUDA_ERROR_UNSUPPORTED_PTX_VERSION", qa.DeviceError, "here: the driver, .*, has to compile .*nvJitLink"),
    (OLD_LINKER, qa.DeviceError, "here: nvJitLink is older than the compiler, .*pip install -U nvidia-nvjitlink, or"),
    (OLD_PTX, qa.DeviceError, "here: nvJitLink is older than the compiler"),
    (NO_LIBRARY, qa.DeviceError, r"the CUDA toolkit's libnvrtc\.so\.13 or libnvrtc\.so\.12 is not found; install"),
    ("[2] Call to cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", MemoryError, "there is no room on the GPU for here; take"),
])  # fmt: skip
def test_errors_of_a_launch(installed, said, kind, message):
    known = diagnosis.of_driver("here", RuntimeError(said))
    assert type(known) is kind and re.search(message, str(known)), known


def test_other_errors_of_a_launch_stay():
    assert diagnosis.of_driver("a kernel", RuntimeError("CUDA_ERROR_LAUNCH_FAILED")) is None
