"""QONNX's quantisers for ONNX's reference evaluator, written from their definitions: an oracle that shares no code."""

import numpy as np
import onnx_models  # skips where onnx is missing
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

ROUND = {
    "ROUND": np.rint,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "ROUND_TO_ZERO": np.trunc,
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
        shape = (1, -1, *(1,) * (x.ndim - 2))
        count = sum((x >= t.reshape(shape)).astype(np.float32) for t in thresholds.T)
        return ((out_scale * count + out_bias).astype(np.float32),)


def evaluator(model):
    """A session that gives all outputs of a model with QONNX's operators."""
    return ReferenceEvaluator(model, new_ops=[Quant, BipolarQuant, MultiThreshold])
