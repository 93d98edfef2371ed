"""Tabulate what backward passes read of the tensors that autograd saves, by operator and name of the tensor."""

from __future__ import annotations

from enum import Enum


class Read(Enum):
    """A kind of reading, which decides the form of a saved tensor; docs/saved-tensors.md has the texts."""

    VALUE = "the value, to which gradients are proportional: `bits` an element, unbiased"
    NORM = "the value, in products with itself (relative error of the mean: 1 / elements): `bits` an element"
    CURVE = "a smooth function of a bounded value: at least 8 bits of the value"
    FLAT = "a smooth function of the value, constant beyond +-20: at least 8 bits of the value clipped to +-20"
    DIFFERENCE = "a difference of values, which may be small: at least 8 bits, unbiased"
    PROBABILITY = "exp(value), which is a probability: at least 8 bits of exp(value)"
    NEGATIVE = "the sign, and the value where it is negative: a bit, and `bits` of min(value, 0)"
    BEND = "the sign, and a smooth function of v = min(value, 0): a bit, and at least 8 bits of v clipped to -20"
    SIGN = "whether value > 0: a bit"
    SIGNUM = "whether value > 0 and whether value < 0: a bit, or 2 bits if there are zeros"
    MASK = "on which side of constant bounds the value is: a bit"
    ORDER = "how the value compares with other values, stored too: a bit, or 2 bits if ties or both bounds matter"
    INDEX = "an index into a window: a byte"
    NOTHING = "the shape: no bits"
    EQUALITY = "where the value equals another saved value: not packed"
    EXACT = "the value, where rounding would bias gradients, or where it is a divisor: not packed"


# The least bits of what is rounded: errors of what a smooth function reads bias its gradients, by their square
ROUNDED = {
    Read.VALUE: 1,
    Read.NORM: 1,
    Read.NEGATIVE: 1,
    Read.CURVE: 8,
    Read.FLAT: 8,
    Read.DIFFERENCE: 8,
    Read.BEND: 8,
    Read.PROBABILITY: 8,
}
# Operators are named as autograd's nodes without "Backward" and number, tensors as in PyTorch's derivatives.yaml.
# What is not listed is left alone, as EXACT is: a backward pass that nobody has read may compare or divide
_TABLE = {
    Read.VALUE: """
        Addbmm.batch1 Addbmm.batch2 Addcdiv.tensor1 Addcmul.tensor1 Addcmul.tensor2 Addmm.mat1 Addmm.mat2 Addmv.mat
        Addmv.vec Addr.vec1 Addr.vec2 Baddbmm.batch1 Baddbmm.batch2 Bmm.mat2 Bmm.self Convolution.input Div.self
        Dot.self Dot.tensor Exp.result Exp2.result Expm1.result KnownProduct.tensors0 Lerp.end Lerp.self Lerp.weight
        LinalgCross.other LinalgCross.self Linear.input Mm.mat2 Mm.self Mul.other Mul.self Mv.self Mv.vec Trilinear.i1
        Var.self VarMean.self Vdot.other Vdot.self
        """,
    Read.NORM: """
        BatchNormWithUpdate.input CudnnBatchNorm.input FusedRmsNorm.input MiopenBatchNorm.input NativeBatchNorm.input
        NativeGroupNorm.input NativeLayerNorm.input
        """,
    Read.CURVE: "SafeSoftmax.result Sigmoid.result Softmax.result Tanh.result",
    Read.FLAT: "Gelu.self Mish.self Silu.self",
    Read.DIFFERENCE: """
        ScaledDotProductCudnnAttention.out ScaledDotProductCudnnAttention.value
        ScaledDotProductEfficientAttention.output ScaledDotProductEfficientAttention.value
        ScaledDotProductFlashAttention.output ScaledDotProductFlashAttention.value
        ScaledDotProductFlashAttentionForCpu.output ScaledDotProductFlashAttentionForCpu.value
        """,
    Read.PROBABILITY: "LogSoftmax.result",
    Read.NEGATIVE: "PreluKernel.self",
    Read.BEND: "Elu.self",
    Read.SIGN: "LeakyRelu.result LeakyRelu.self Relu.result RreluWithNoise.result RreluWithNoise.self",
    Read.SIGNUM: "Abs.self",
    Read.MASK: "Hardshrink.self Hardsigmoid.self Hardtanh.self Softshrink.self Threshold.self",
    Read.ORDER: "Clamp.self ClampMax.self ClampMin.self Fmax.self Fmin.self Maximum.self Minimum.self",
    Read.INDEX: """
        AdaptiveMaxPool2D.result1 AdaptiveMaxPool3D.result1 MaxPool2DWithIndices.result1 MaxPool3DWithIndices.result1
        """,
    Read.NOTHING: """
        AdaptiveAvgPool2D.self AdaptiveAvgPool3D.self AdaptiveMaxPool2D.self AdaptiveMaxPool3D.self AvgPool2D.self
        AvgPool3D.self FractionalMaxPool2D.self FractionalMaxPool3D.self MaskedSelect.self MaxPool2DWithIndices.self
        MaxPool3DWithIndices.self NllLoss.self NllLoss2D.self ReflectionPad1D.self ReflectionPad2D.self
        ReflectionPad3D.self ReplicationPad1D.self ReplicationPad2D.self ReplicationPad3D.self Take.self
        """,
    Read.EQUALITY: """
        Amax.result Amax.self Amin.result Amin.self Aminmax.max Aminmax.min Aminmax.self Cummax.self Cummin.self
        IndexReduce.result IndexReduce.self IndexReduce.source LinalgVectorNorm.result LinalgVectorNorm.self Max.result
        Max.self Median.result Median.self Min.result Min.self Nanmedian.result Nanmedian.self Norm.result Norm.self
        Nextafter.other Nextafter.self Prod.result Prod.self Renorm.self ScatterReduce.result ScatterReduce.self
        ScatterReduce.src SegmentReduce.data SegmentReduce.result
        """,
    Read.EXACT: """
        Addcdiv.tensor2 Atan2.other Atan2.self Cdist.result Cdist.x1 Cdist.x2 Celu.self Cos.self Cumprod.result
        Cumprod.self Div.other Erf.self Glu.self Hardswish.self LogSigmoid.buffer LogSigmoid.self Log.self
        Logsumexp.result Logsumexp.self Pow.exponent Pow.result Pow.self Reciprocal.result Rsqrt.result
        ScaledDotProductCudnnAttention.key ScaledDotProductCudnnAttention.query ScaledDotProductEfficientAttention.key
        ScaledDotProductEfficientAttention.query ScaledDotProductFlashAttention.key
        ScaledDotProductFlashAttention.query ScaledDotProductFlashAttentionForCpu.key
        ScaledDotProductFlashAttentionForCpu.query Sin.self Softplus.self Sqrt.result Std.result Std.self Trilinear.i2
        Trilinear.i3
        """,
}
# What products save, and which of a node's edges lead to that tensor and to the other operand. -1: to weights, always
PRODUCTS = {
    "Convolution.input": (0, -1),
    "KnownProduct.tensors0": (0, -1),
    "Linear.input": (0, -1),
    "Addmm.mat1": (1, 2),
    "Addmm.mat2": (2, 1),
    "Addmv.mat": (1, 2),
    "Addmv.vec": (2, 1),
    "Mm.self": (0, 1),
    "Mm.mat2": (1, 0),
    "Mv.self": (0, 1),
    "Mv.vec": (1, 0),
}
READS = {name: read for read, names in _TABLE.items() for name in names.split()}


def operator_of(node: str) -> str:
    """Return the operator "Relu" of a node named "ReluBackward0"."""
    return node.rstrip("0123456789").removesuffix("Backward")
