"""A stand-in for CuPy and a GPU: arrays in the CPU's memory that refuse to mix with NumPy's, as CuPy's do.

As with CuPy's arrays, nothing turns one into a NumPy array by accident, none is mixed with or indexed by a NumPy array,
and NumPy's functions give one back. Kernels are the CPU's, called with what the arrays hold.
"""

import operator
import sys
import time
from contextlib import contextmanager
from ctypes import memmove
from importlib import import_module
from itertools import count
from types import SimpleNamespace

import numpy as np

from quantarray.core.errors import DeviceError
from quantarray.core.recordings import RECORDINGS
from quantarray.core.super_blocks import SuperBlocks
from tools.kernels_of import kernels_of

_device = import_module("quantarray.backends.registry")


class ndarray:
    """A device's array around a NumPy array."""

    __cuda_array_interface__ = None
    device = SimpleNamespace(id=0)

    def __init__(self, held):
        self.held = held

    def __getattr__(self, name):
        if name.startswith("__") or name == "ctypes":
            raise AttributeError(name)
        value = getattr(self.held, name)
        return _wrapped(value) if not callable(value) else _noted(name, value, self)

    @property
    def data(self):
        """Return where the array begins, with what copies to there."""
        begin = self.held.ctypes.data
        return SimpleNamespace(ptr=begin, copy_from_device_async=lambda x, size, stream: memmove(begin, x.ptr, size))

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method != "__call__" and ufunc not in (np.add, np.multiply):
            raise NotImplementedError(f"`{ufunc.__name__}.{method}` is not supported yet")
        return _noted(ufunc.__name__, getattr(ufunc, method))(*inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        return _noted(func.__name__, func)(*args, **kwargs)

    def __getitem__(self, key):
        return _noted("take", operator.getitem)(self, key)

    def __setitem__(self, key, value):
        launches.append("copy")
        self.held[_held(key)] = _held(value)

    def __len__(self):
        return len(self.held)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def tolist(self):
        _waits("an array is moved to the CPU")
        return self.held.tolist()

    def __bool__(self):
        _waits("a value is read")
        return bool(self.held)

    def __int__(self):
        _waits("a value is read")
        return int(self.held)


def _operation(name):
    def method(self, *others):
        result = getattr(operator, name)(self.held, *_held(others))
        launches.append(name)
        return self if result is self.held else _wrapped(result)

    return method


_NAMES = "and or xor add sub mul truediv lshift rshift floordiv mod iand ior ixor iadd lt le gt ge eq ne invert neg"
for _name in _NAMES.split():
    _function = _name + "_" if _name in ("and", "or") else _name
    setattr(ndarray, f"__{_name}__", _operation(_function))


def _reflected(name):
    def method(self, other):
        launches.append(name)
        return _wrapped(getattr(operator, name)(_held(other), self.held))

    return method


for _name in ("add", "sub", "mul", "truediv"):
    setattr(ndarray, f"__r{_name}__", _reflected(_name))


def _wrapped(x):
    if isinstance(x, np.ndarray) or (isinstance(x, np.generic) and not isinstance(x, np.dtype)):
        return ndarray(np.asarray(x))
    return type(x)(map(_wrapped, x)) if type(x) in (list, tuple) else x


def _held(x):
    """Return the NumPy arrays of device arrays; raises TypeError for a NumPy array beside them, as CuPy does."""
    if isinstance(x, ndarray):
        return x.held
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if type(x) in (list, tuple):
        return type(x)(map(_held, x))
    return {k: _held(v) for k, v in x.items()} if isinstance(x, dict) else x


def _noted(name, function, *inputs):
    """Wrap a function of device arrays: what is no view of its operands is written by a launch."""

    def call(*args, **kwargs):
        if name in _SUMS and _other_order:
            result = _narrow(_wide(function)(*map(_wide, _held(args)), **_held(kwargs)))
        else:
            result = function(*_held(args), **_held(kwargs))
        memory = [x.held for x in (*inputs, *args) if isinstance(x, ndarray)]
        arrays_of = [
            x for x in (result if isinstance(result, (list, tuple)) else (result,)) if isinstance(x, np.ndarray)
        ]
        if any(x.size and not any(np.may_share_memory(x, m) for m in memory) for x in arrays_of):
            launches.append(name)
        return _wrapped(result)

    return call


_SUMS = frozenset("sum mean var std prod cumsum matmul dot tensordot einsum".split())
_other_order = []


@contextmanager
def sums_in_another_order():
    """Add CuPy's float32 in float64: the results of a GPU that adds in an order of its own differ in the last bits."""
    _other_order.append(True)
    try:
        yield
    finally:
        _other_order.pop()


def _wide(x):
    if isinstance(getattr(x, "__self__", None), np.ndarray):  # a method
        return getattr(_wide(x.__self__), x.__name__)
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x


def _narrow(x):
    return x.astype(np.float32) if getattr(x, "dtype", None) == np.float64 else x


launches = []  # names of the kernels and of CuPy's functions that write to a GPU's memory, in order
waits = []  # what made the CPU and the GPU wait for each other, in order
events = []  # what a capture is made of, in order


def _waits(what):
    if _Stream.capturing:
        _Stream.invalid = True
        raise RuntimeError(f"{what}: operation not permitted when stream is capturing")
    waits.append(what)


def asarray(x, dtype=None):
    if isinstance(x, np.ndarray):
        _waits("an array is moved to the GPU")
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface:  # another library's, whose memory is the CPU's here
        if interface.get("stream") is not None:
            _waits(f"stream {interface['stream']} is waited for")
        return ndarray(np.asarray(SimpleNamespace(__array_interface__=interface)))
    return ndarray(
        np.array(x.held if isinstance(x, ndarray) else x, dtype, copy=None if isinstance(x, ndarray) else True)
    )


def from_dlpack(x):
    """Wrap what `__dlpack__` gives, which is a NumPy array here."""
    kind, number = x.__dlpack_device__()
    assert kind in (2, 13) and number == 0
    return ndarray(x.__dlpack__(stream=get_current_stream().ptr or 1, max_version=(1, 1)))


def ascontiguousarray(x, dtype=None):
    return _noted("copy", np.ascontiguousarray)(asarray(x), dtype)


def asnumpy(x):
    _waits("an array is moved to the CPU")
    return np.array(x.held)


def __getattr__(name):
    value = getattr(np, name)
    if name == "empty":
        return lambda *a, **k: ndarray(np.empty(*a, **k))
    return _noted(name, value) if callable(value) and not isinstance(value, type) else value


class Event:
    """A time of the CPU."""

    at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass


__version__ = "stand-in"


class _Stream:
    """A stream that notes in `events` what happens to it."""

    capturing, invalid, numbers = False, False, count(1000)

    def __init__(self, non_blocking=False, ptr=None):
        self.ptr = next(self.numbers) if ptr is None else ptr

    def __enter__(self):
        events.append("enter")
        _current.append(self)
        return self

    def __exit__(self, *error):
        events.append("exit")
        _current.pop()

    def synchronize(self):
        _waits("a stream is waited for")
        events.append("synchronize")

    def is_capturing(self):
        return _Stream.capturing

    def begin_capture(self):
        _Stream.capturing = True
        events.append("begin")

    def end_capture(self):
        invalid, _Stream.capturing, _Stream.invalid = _Stream.invalid, False, False
        events.append("end")
        if invalid:
            raise RuntimeError("cudaErrorStreamCaptureInvalidated")
        return SimpleNamespace(launch=lambda: events.append("launch"))


_current = [_Stream(ptr=0)]


def get_current_stream():
    return _current[-1]


@contextmanager
def _using_allocator(malloc):
    events.append("own memory")
    yield
    events.append("shared memory")


class Device:
    """A device: it has the attributes that tell the speed of a GPU, and arrays are created on it."""

    def __init__(self, number):
        self.attributes = {"MultiProcessorCount": 2, "ClockRate": 10**6, "L2CacheSize": 1 << 10}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def _properties(number):
    return {"name": b"a stand-in", "major": 9, "minor": 0}


cuda = SimpleNamespace(
    runtime=SimpleNamespace(
        getDeviceCount=lambda: 2,
        getDeviceProperties=_properties,
        driverGetVersion=lambda: 13000,
        memGetInfo=lambda: (1000, 2000),
        deviceSynchronize=lambda: None,
    ),
    Device=Device,
    Event=Event,
    Stream=_Stream,
    MemoryPool=lambda: SimpleNamespace(malloc=None),
    using_allocator=_using_allocator,
    get_current_stream=get_current_stream,
    get_elapsed_time=lambda begin, end: (end.at - begin.at) * 1000,
)


def get_default_memory_pool():
    return SimpleNamespace(free_all_blocks=lambda: None)


lib = SimpleNamespace(
    stride_tricks=SimpleNamespace(as_strided=lambda x, *args: ndarray(np.lib.stride_tricks.as_strided(x.held, *args)))
)
_ALL_WORDS = "conv", "dot", "conv_added", "add_shortcut", "elementwise"  # kernels of a GPU that write all words
TWINS = frozenset(kernels_of("cuda"))


@contextmanager
def gpu(twins=TWINS):
    """Replace CuPy's GPU by one with the kernels `twins`."""
    real = _device.kernel

    def kernel(device, name):
        value = real("cpu", name)
        if device == "cpu":
            return value
        if name not in twins:
            raise DeviceError(f"{name}: there is no kernel for device {device!r} yet")

        def call(*args):
            assert not RECORDINGS, "the CPU's kernels are no part of a recorded call"
            events.append(name)
            launches.append(name)
            args = [_on_host(a) for a in args]
            if name in _ALL_WORDS and args[-1].dtype == np.uint64:
                args[-1][:] = 0  # those of the CPU set bits
            value(*args)

        return call

    def has_kernel(device, name):
        return has("cpu", name) if device == "cpu" else name in twins

    has = _device.has_kernel
    names = {"kernel": (real, kernel), "has_kernel": (has, has_kernel)}
    replaced = [
        (module, name)
        for place, module in list(sys.modules.items())
        for name, (before, _) in names.items()
        if place.startswith("quantarray") and vars(module).get(name) is before
    ]
    for module, name in replaced:
        setattr(module, name, names[name][1])
    try:
        with arrays() as xp:
            yield xp
    finally:
        for module, name in replaced:
            setattr(module, name, names[name][0])


@contextmanager
def arrays():
    """Replace CuPy's arrays by the stand-in's; kernels are those of the GPU."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = sys.modules[__name__]
    try:
        yield sys.modules[__name__]
    finally:
        del sys.modules["cupy"]
        if before is not None:
            sys.modules["cupy"] = before


def _on_host(x):
    assert not isinstance(x, SuperBlocks), "a GPU's kernels read constants as float32"
    if isinstance(x, ndarray):
        # CUDA kernels see words as pairs of uint32, which Numba makes of whole arrays only
        assert x.held.dtype != np.uint64 or x.held.flags.c_contiguous, "words that have gaps"
        return x.held
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(_on_host, x))
    return type(x)(map(_on_host, x)) if type(x) in (list, tuple) else x
