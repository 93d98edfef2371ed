"""QONNX's quantisers for ONNX's reference evaluator, written from their definitions: an oracle that shares no code."""

import numpy as np
import onnx_models  # skips where onnx is missing
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_max_pool import MaxPool as OnnxMaxPool

ROUND = {
    "ROUND": np.rint,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_EVEN": np.rint,
    "UP": lambda y: np.where(y < 0, np.floor(y), np.ceil(y)),
    "DOWN": np.trunc,
    "HALF_UP": lambda y: np.copysign(np.floor(np.abs(y) + y.dtype.type(0.5)), y),
    "HALF_DOWN": lambda y: np.copysign(np.ceil(np.abs(y) - y.dtype.type(0.5)), y),
}


class Quant(OpRun):
    op_domain = onnx_models.DOMAIN

    def _run(self, x, scale, zero, bits, signed=1, narrow=0, rounding_mode="ROUND"):
        bits = float(np.asarray(bits).reshape(-1)[0])
        if bits == 1 and signed:
            return (((np.where(x / scale + zero >= 0, 1, -1) - zero) * scale).astype(np.float32),)
        low, high = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
        y = np.clip(x / scale + zero, low, high)
        return (((ROUND[rounding_mode](y) - zero) * scale).astype(np.float32),)


class BipolarQuant(OpRun):
    op_domain = onnx_models.DOMAIN

    def _run(self, x, scale):
        return ((np.where(x >= 0, 1, -1) * scale).astype(np.float32),)


class MultiThreshold(OpRun):
    op_domain = onnx_models.DOMAIN

    def _run(self, x, thresholds, out_scale=1.0, out_bias=0.0, out_dtype="", data_layout="NCHW"):
        shape = (1, -1, *(1,) * (x.ndim - 2)) if data_layout == "NCHW" else (-1,)
        count = sum((x >= t.reshape(shape)).astype(np.float32) for t in thresholds.T)
        return ((out_scale * count + out_bias).astype(np.float32),)


class Trunc(OpRun):
    """A node of versions 1 (out_bits alone) and 2 (a scale of the result, then its bits) of QONNX's Trunc."""

    op_domain = onnx_models.DOMAIN

    def _run(self, x, scale, zero, bits, *rest, rounding_mode="FLOOR", signed=1, narrow=0):
        y = np.rint(x / scale + zero)
        out_bits = float(np.asarray(rest[-1]).reshape(()))
        if len(rest) == 1:
            y = ROUND[rounding_mode](y / np.float32(2.0 ** (float(np.asarray(bits).reshape(())) - out_bits)))
            return (((y - zero) * scale).astype(np.float32),)
        out_scale = rest[0]
        step = (2.0 ** np.rint(np.log2(out_scale / scale))).astype(np.float32)
        low, high = (
            (-(2 ** (out_bits - 1)) + narrow, 2 ** (out_bits - 1) - 1) if signed else (0, 2**out_bits - 1 - narrow)
        )
        y = ROUND[rounding_mode](np.clip(y / step, low, high))
        return (((y - zero / step) * out_scale).astype(np.float32),)


class MaxPool(OnnxMaxPool):
    """A MaxPool of ONNX, by its general code where pads are uneven or images have other than two axes.

    Its code for stride 1 swaps pads between axes, and counts too few windows of one axis.
    """

    def _run(self, x, **attributes):
        pads = attributes.get("pads")
        even = not pads or (len(set(pads)) == 1 and x.ndim == 4)
        return super()._run(x, **attributes) if even else self._max_pool(x, **attributes)


class GlobalMaxPool(OpRun):
    """Return the largest value of each channel: ONNX's evaluator gives a wrong shape unless images have two axes."""

    def _run(self, x):
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class _ChannelsLast(OpRun):
    """A node of ONNX's operator of that name, on images [n .. c], and kernels [outputs .. c]."""

    op_domain = f"{onnx_models.DOMAIN.rpartition('.')[0]}.channels_last"

    def _run(self, *arrays, **attributes):
        count = 2 if self.onnx_node.op_type == "Conv" else 1
        arrays = [np.moveaxis(a, -1, 1) if i < count else a for i, a in enumerate(arrays)]
        names = [f"a{i}" for i in range(len(arrays))]
        set_ones = {name: v for name, v in attributes.items() if v is not None}
        inner = onnx_models.node(self.onnx_node.op_type, names, ["y"], **set_ones)
        places = [(n, a.shape) for n, a in zip(names, arrays, strict=True)]
        session = evaluator(onnx_models.model([inner], places, [("y", None)]))
        return (np.moveaxis(session.run(None, dict(zip(names, arrays, strict=True)))[0], 1, -1),)


class Conv(_ChannelsLast):
    pass


class LastMaxPool(_ChannelsLast):
    pass


class BatchNormalization(_ChannelsLast):
    pass


LastMaxPool.__name__ = "MaxPool"  # by which the evaluator finds it


def evaluator(model):
    """Build a session that returns all outputs of a model with QONNX's operators."""
    return ReferenceEvaluator(
        model,
        new_ops=[
            Quant,
            BipolarQuant,
            MultiThreshold,
            Trunc,
            MaxPool,
            GlobalMaxPool,
            Conv,
            LastMaxPool,
            BatchNormalization,
        ],
    )
