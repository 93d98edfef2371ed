"""Linear layers of ggml, whose shared libraries are called by ctypes: plain blocks, or another layout of its CPU
backend, such as blocks of eight rows or the tiles of AMX.
"""

import ctypes
import importlib.util
import itertools
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

from .cases import NUMBERS

_F32 = 0


class _Memory(ctypes.Structure):
    """A `ggml_init_params`."""

    _fields_ = (("size", c_size_t), ("buffer", c_void_p), ("no_alloc", c_bool))


_LOG = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_silent = _LOG(lambda *message: None)
_SIGNATURES = {  # result, arguments
    "ggml_version": (c_char_p,),
    "ggml_cpu_init": (None,),
    "ggml_log_set": (None, _LOG, c_void_p),
    "ggml_type_name": (c_char_p, c_int),
    "ggml_init": (c_void_p, _Memory),
    "ggml_tensor_overhead": (c_size_t,),
    "ggml_graph_overhead_custom": (c_size_t, c_size_t, c_bool),
    "ggml_new_graph_custom": (c_void_p, c_void_p, c_size_t, c_bool),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_get_data": (c_void_p, c_void_p),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_cpu_reg": (c_void_p,),
    "ggml_backend_cpu_buffer_type": (c_void_p,),
    "ggml_backend_reg_dev_get": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
}


class _Library:
    """A pair of shared libraries whose functions are attributes, without their `ggml_`."""

    def __init__(self, folder):
        if folder is None:
            spec = importlib.util.find_spec("libggml")
            if spec is None:
                raise ImportError("pip install libggml-python, or name a folder by --ggml")
            folder = Path(spec.submodule_search_locations[0]) / "lib64"
        try:
            base = ctypes.CDLL(str(Path(folder) / "libggml-base.so"), ctypes.RTLD_GLOBAL)
            cpu = ctypes.CDLL(str(Path(folder) / "libggml-cpu.so"))
        except OSError as error:
            raise ImportError(str(error)) from error
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(cpu if hasattr(cpu, name) else base, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)
        self.log_set(_silent, None)
        self.cpu_init()

    def context(self, tensors, nbytes=0, no_alloc=False):
        return self.init(_Memory(tensors * (self.tensor_overhead() + 64) + nbytes, None, no_alloc))

    def extra_buffers(self):
        """Iterate over the other layouts of weights, in ggml's order of preference."""
        registry = self.backend_cpu_reg()
        address = self.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return iter(())
        buffers = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)(self.backend_reg_dev_get(registry, 0))
        return itertools.takewhile(bool, (buffers[i] for i in itertools.count()))


def version(setup):
    return _Library(setup.ggml).version().decode()


def ready(repacked):
    def make(layers, xs, setup):
        ggml, kind = _Library(setup.ggml), layers[0].type
        if (ggml.type_name(NUMBERS[kind]) or b"").decode().upper() != kind:
            raise ValueError(f"it has no {kind}")
        if not repacked:
            return _graph(ggml, layers, xs, setup.threads, ggml.backend_cpu_buffer_type())
        for buffer in ggml.extra_buffers():
            if _supported(ggml, buffer, layers[0], xs):
                return _graph(ggml, layers, xs, setup.threads, buffer)
        raise ValueError("it has no other layout of this type for this CPU")

    return make


def _supported(ggml, buffer, w, xs):
    context, ((weight, *_),) = ggml.context(8, no_alloc=True), [_weights(ggml, [w], buffer)]
    rows, k = xs[w.array.shape[1]].shape
    op = ggml.mul_mat(context, weight, ggml.new_tensor_2d(context, _F32, k, rows))
    return ggml.backend_dev_supports_op(ggml.backend_reg_dev_get(ggml.backend_cpu_reg(), 0), op)


def _weights(ggml, layers, buffer):
    """Return tensors in memory of a buffer type, without values."""
    context = ggml.context(len(layers), no_alloc=True)
    tensors = [ggml.new_tensor_2d(context, NUMBERS[w.type], *w.array.shape[::-1]) for w in layers]
    if not ggml.backend_alloc_ctx_tensors_from_buft(context, buffer):
        raise MemoryError("it has no memory for these weights")
    return tensors


def _graph(ggml, layers, xs, threads, buffer):
    """Return a call that computes one graph of all layers, and returns arrays that share its memory."""
    count, rows = len(layers), len(next(iter(xs.values())))
    floats = sum(x.size for x in xs.values()) + rows * sum(w.array.shape[0] for w in layers)
    memory = 4 * floats + ggml.graph_overhead_custom(2 * count, False)
    context = ggml.context(count + len(xs) + 1, memory)
    columns = {}
    for k, x in xs.items():
        columns[k] = ggml.new_tensor_2d(context, _F32, k, rows)
        ctypes.memmove(ggml.get_data(columns[k]), x.ctypes.data, x.nbytes)
    graph, results = ggml.new_graph_custom(context, 2 * count, False), []
    for weight, w in zip(_weights(ggml, layers, buffer), layers, strict=True):
        ggml.backend_tensor_set(weight, w.blocks.ctypes.data, 0, w.blocks.nbytes)
        y = ggml.mul_mat(context, weight, columns[w.array.shape[1]])
        ggml.build_forward_expand(graph, y)
        data = ctypes.cast(ggml.get_data(y), POINTER(ctypes.c_float))
        results.append(np.ctypeslib.as_array(data, (rows, w.array.shape[0])))
    backend = ggml.backend_cpu_init()
    ggml.backend_cpu_set_n_threads(backend, threads)

    def call():
        if ggml.backend_graph_compute(backend, graph):
            raise RuntimeError("ggml_backend_graph_compute failed")
        return results

    return call
