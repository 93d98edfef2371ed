"""Low-bit layers as people write them in plain PyTorch: each of another code, none that knows of quantarray."""

import torch
import torch.nn.functional as F
from torch import nn


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Bin(nn.Module):
    """1 where x >= 0, else -1."""

    def forward(self, x):
        return _Sign.apply(x)


class SignDetached(nn.Module):
    def forward(self, x):
        clipped = x.clamp(-1, 1)
        return clipped + (x.sign() - clipped).detach()


class Mask(nn.Module):
    """-1 and 1 from a comparison, written in place."""

    def forward(self, x):
        out = torch.ones_like(x)
        out[x <= 0.125] = -1
        return (out - x).detach() + x


class Levels(nn.Module):
    """A layer of DoReFa's activations of k bits."""

    def __init__(self, bits=2):
        super().__init__()
        self.n = 2**bits - 1

    def forward(self, x):
        return _Round.apply(x.clamp(0, 1) * self.n) / self.n


class LearnedStep(nn.Module):
    """A layer of LSQ of k bits, signed or not, with the scaled gradient of its step."""

    def __init__(self, bits=2, signed=False, step=0.3):
        super().__init__()
        self.low, self.high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        self.step = nn.Parameter(torch.tensor(float(step)))

    def forward(self, x):
        g = 1 / (x.numel() * self.high) ** 0.5 if self.high else 1.0
        step = (self.step - self.step * g).detach() + self.step * g
        y = (x / step).clamp(self.low, self.high)
        return ((y.round() - y).detach() + y) * step


class Clipped(nn.Module):
    """A layer of PACT: the clip by absolute values, as the paper writes it."""

    def __init__(self, bits=2, alpha=2.3):
        super().__init__()
        self.n, self.alpha = 2**bits - 1, nn.Parameter(torch.tensor(float(alpha)))

    def forward(self, x):
        y = 0.5 * (x.abs() - (x - self.alpha).abs() + self.alpha)
        return _Round.apply(y * (self.n / self.alpha)) * (self.alpha / self.n)


class ThreeLevels(nn.Module):
    def __init__(self, limit=0.4):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        q = (x > self.limit).float() - (x < -self.limit).float()
        return x + (q - x).detach()


class Faked(nn.Module):
    """A layer of PyTorch's fake quantisation of k bits."""

    def __init__(self, bits=4, scale=0.11):
        super().__init__()
        self.low, self.high, self.scale = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, scale

    def forward(self, x):
        return torch.fake_quantize_per_tensor_affine(x, self.scale, 0, self.low, self.high)


# Weights


def sign_weight(w):
    return _Sign.apply(w)


def xnor_weight(w):
    """Compute the sign times the mean magnitude of each output."""
    alpha = w.abs().mean(dim=tuple(range(1, w.ndim)), keepdim=True)
    return (w.sign() * alpha - w).detach() + w


def dorefa_weight(w, bits=2):
    n = 2**bits - 1
    t = torch.tanh(w)
    return 2 * _Round.apply((t / (2 * t.abs().max()) + 0.5) * n) / n - 1


def ternary_weight(w):
    limit = 0.7 * w.abs().mean()
    mask = (w.abs() > limit).float()
    alpha = (w.abs() * mask).sum() / mask.sum().clamp(min=1)
    return (alpha * mask * w.sign() - w).detach() + w


def lsq_weight(w, bits=2):
    step = 2 * w.abs().mean() / (2 ** (bits - 1) - 1 or 1) ** 0.5 + 1e-6
    return _Round.apply((w / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) * step


def channel_weight(w, bits=4):
    """Round to symmetric k bits, a step for each output."""
    step = w.abs().amax(dim=tuple(range(1, w.ndim)), keepdim=True).clamp(min=1e-6) / (2 ** (bits - 1) - 1)
    return _Round.apply(w / step) * step


class LowConv(nn.Conv2d):
    def __init__(self, *args, weight=sign_weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.quantise = weight

    def forward(self, x):
        w = self.quantise(self.weight)
        return F.conv2d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class LowConv1d(nn.Conv1d):
    def __init__(self, *args, weight=sign_weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.quantise = weight

    def forward(self, x):
        w = self.quantise(self.weight)
        return F.conv1d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class LowConv3d(nn.Conv3d):
    def __init__(self, *args, weight=sign_weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.quantise = weight

    def forward(self, x):
        w = self.quantise(self.weight)
        return F.conv3d(x, w, self.bias, self.stride, self.padding, self.dilation, self.groups)


class LowTransposed(nn.Module):
    """A transposed convolution of one to three axes."""

    def __init__(self, axes, *args, weight=sign_weight, **kwargs):
        super().__init__()
        self.layer, self.quantise = getattr(nn, f"ConvTranspose{axes}d")(*args, **kwargs), weight
        self.convolve = getattr(F, f"conv_transpose{axes}d")

    def forward(self, x):
        a, w = self.layer, self.quantise(self.layer.weight)
        return self.convolve(x, w, a.bias, a.stride, a.padding, a.output_padding, a.groups, a.dilation)


class LowLinear(nn.Linear):
    def __init__(self, *args, weight=sign_weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.quantise = weight

    def forward(self, x):
        return F.linear(x, self.quantise(self.weight), self.bias)


QUANTISERS = (Bin, SignDetached, Mask, Levels, LearnedStep, Clipped, ThreeLevels, Faked)
WEIGHTS = (sign_weight, xnor_weight, dorefa_weight, ternary_weight, lsq_weight, channel_weight)
