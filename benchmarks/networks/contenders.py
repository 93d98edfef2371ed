"""Contenders: each has its library's version, a function that writes files of a network, and one that makes calls.

    version()                                the library's version; ImportError if it is not installed
    build(stem, architecture, arguments)     write the network's files; their names begin with `stem`
    ready(stem, shape, threads)              a call of a batch of that shape, which returns float32 [n ..]
    files(stem)                              what a deployment ships

The float32 network is exported to ONNX by PyTorch; ONNX Runtime and OpenVINO quantise that file. PyTorch's networks are
traced and frozen, and take images in channels last: both are faster than without.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CALIBRATION = 4  # images


class Contender(NamedTuple):
    """A library and one kind of network of it."""

    version: Callable[[], str]
    build: Callable[..., None]
    ready: Callable[..., Callable[[], Any]]
    files: Callable[[str], list[Path]]


def images(shape, kind=np.float32):
    """Return random images: bytes, or their values from 0 to 1."""
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return x if kind is np.uint8 else x.astype(np.float32) / np.float32(255)


def samples(shape):
    return [images((1, *shape[1:])) * np.float32(1 - 0.1 * i) for i in range(CALIBRATION)]


def image_shape(architecture, arguments):
    """Return (1, ..) of the images that a model takes."""
    import quantarray as qa

    return (1, *getattr(qa.nn.models, architecture)(**arguments).inputs[0].shape[1:])


# quantarray


def _our_version():
    import quantarray as qa

    return qa.__version__


def _our_build(stem, architecture, arguments):
    import quantarray as qa

    getattr(qa.nn.models, architecture)(**arguments).save(f"{stem}.qa")


def our_network(stem):
    """Return the network of a file; a file is loaded once."""
    import quantarray as qa

    if _loaded.get("stem") != stem:
        _loaded.update(stem=stem, network=qa.nn.load(f"{stem}.qa"))
    return _loaded["network"]


_loaded: dict[str, Any] = {}


def _our_ready(stem, shape, threads):
    import quantarray as qa

    network, x = our_network(stem).prepared(), images(shape, np.uint8)

    def call():
        qa.set_num_threads(threads)
        return network(x)

    return call


# PyTorch


def _torch_version():
    import torch

    return torch.__version__


def _module(architecture, arguments):
    from . import topology

    return topology.floats(architecture, arguments)


def _traced(module, shape, path):
    import torch

    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, _torch_images(shape), check_trace=False)
        torch.jit.save(torch.jit.freeze(traced.eval()), path)


def _torch_images(shape):
    import torch

    x = torch.from_numpy(images(shape))
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _torch_build(stem, architecture, arguments):
    """Write the traced network, and the ONNX file that others take."""
    import torch

    module, shape = _module(architecture, arguments), image_shape(architecture, arguments)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (torch.from_numpy(images(shape)),), f"{stem}.onnx", input_names=["x"], output_names=["y"],
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, opset_version=17, dynamo=False,
        )  # fmt: skip
    _traced(_last(module), shape, f"{stem}.pt")


def _last(module):
    import torch

    return module.to(memory_format=torch.channels_last)


def _torch_int8_build(stem, architecture, arguments):
    """Quantise by FX graph mode for x86: observers, calibration, conversion."""
    import torch
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.backends.quantized.engine = "x86"
    module, shape = _module(architecture, arguments), image_shape(architecture, arguments)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare_fx(module, get_default_qconfig_mapping("x86"), (torch.from_numpy(images(shape)),))
        for x in samples(shape):
            prepared(torch.from_numpy(x))
        _traced(_last(convert_fx(prepared)), shape, f"{stem}.int8.pt")


def _torch_ready(ending):
    def ready(stem, shape, threads):
        import torch

        torch.backends.quantized.engine = "x86"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = torch.jit.load(f"{stem}{ending}")
        x = _torch_images(shape)

        def call():
            torch.set_num_threads(threads)
            with torch.inference_mode():
                return module(x).numpy()

        return call

    return ready


# ONNX Runtime


def _onnxruntime_version():
    import onnxruntime

    return onnxruntime.__version__


def _onnxruntime_build(stem, architecture, arguments):
    """Quantise statically: QDQ, a scale for each output of a weight, after its own preprocessing, which folds."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.disable(logging.WARNING)
    batches = iter(samples(image_shape(architecture, arguments)))

    class Reader(CalibrationDataReader):
        def get_next(self):
            x = next(batches, None)
            return None if x is None else {"x": x}

    quant_pre_process(_float_file(stem), f"{stem}.ready.onnx")
    quantize_static(
        f"{stem}.ready.onnx", f"{stem}.int8.onnx", Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip


def _float_file(stem):
    path = f"{stem}.onnx"
    if not Path(path).exists():
        raise ImportError("the float32 network is exported by torch")
    return path


def _onnxruntime_ready(stem, shape, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(f"{stem}.int8.onnx", options, providers=["CPUExecutionProvider"])
    x = images(shape)
    return lambda: session.run(None, {"x": x})[0]


# OpenVINO


def _openvino_version():
    import openvino

    return f"{openvino.__version__.split('-')[0]}, nncf {installed('nncf')}"


def _openvino_build(stem, architecture, arguments):
    """Quantise by NNCF, which OpenVINO's documentation names, with the performance preset."""
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    shape = image_shape(architecture, arguments)
    model = openvino.Core().read_model(_float_file(stem))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        quantised = nncf.quantize(
            model, nncf.Dataset(samples(shape)), preset=nncf.QuantizationPreset.PERFORMANCE, subset_size=CALIBRATION
        )
    openvino.save_model(quantised, f"{stem}.xml", compress_to_fp16=False)


def _openvino_ready(stem, shape, threads):
    import openvino

    core = openvino.Core()
    model = core.read_model(f"{stem}.xml")
    model.reshape(list(shape))
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    x = images(shape)
    return lambda: request.infer([x], share_inputs=True, share_outputs=True)[0]


def _files(*endings):
    return lambda stem: [Path(f"{stem}{ending}") for ending in endings]


OURS = "quantarray"
CONTENDERS = {
    OURS: Contender(_our_version, _our_build, _our_ready, _files(".qa")),
    "torch float32": Contender(_torch_version, _torch_build, _torch_ready(".pt"), _files(".pt")),
    "torch int8": Contender(_torch_version, _torch_int8_build, _torch_ready(".int8.pt"), _files(".int8.pt")),
    "onnxruntime int8": Contender(_onnxruntime_version, _onnxruntime_build, _onnxruntime_ready, _files(".int8.onnx")),
    "openvino int8": Contender(_openvino_version, _openvino_build, _openvino_ready, _files(".xml", ".bin")),
}
