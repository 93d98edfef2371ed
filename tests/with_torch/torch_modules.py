"""Random modules of low-bit layers, as people write them; each draw is repeated by its generator."""

from functools import partial

import torch
from torch import nn
from torch_layers import (
    Bin,
    Clipped,
    Faked,
    LearnedStep,
    Levels,
    LowConv,
    LowLinear,
    LowTransposed,
    Mask,
    SignDetached,
    ThreeLevels,
    channel_weight,
    dorefa_weight,
    lsq_weight,
    sign_weight,
    ternary_weight,
    xnor_weight,
)


def quantiser(rng):
    """Return a quantiser of any kind and number of bits."""
    bits = int(rng.choice([1, 2, 2, 3, 4, 4, 8]))
    kinds = [
        Bin, SignDetached, Mask, ThreeLevels, partial(Levels, bits), partial(Clipped, bits, float(rng.uniform(0.5, 4))),
        partial(LearnedStep, bits, False, float(rng.uniform(0.05, 1))),
        partial(LearnedStep, max(bits, 2), True, float(rng.uniform(0.05, 1))), partial(Faked, max(bits, 2)),
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]()


def weight(rng):
    """Return a function that quantises weights."""
    bits = int(rng.choice([2, 3, 4, 8]))
    return [
        sign_weight, xnor_weight, ternary_weight, partial(dorefa_weight, bits=bits), partial(lsq_weight, bits=bits),
        partial(channel_weight, bits=bits),
    ][int(rng.integers(6))]  # fmt: skip


def activation(rng, channels):
    """Return a function of floats, one in four none."""
    kinds = [nn.ReLU, partial(nn.PReLU, channels), nn.PReLU, nn.Hardtanh, nn.Hardswish, nn.ReLU6, nn.Identity]
    return kinds[int(rng.integers(len(kinds)))]()


class Residual(nn.Module):
    """x + f(x), or f(x) * x."""

    def __init__(self, f, product=False):
        super().__init__()
        self.f, self.product = f, product

    def forward(self, x):
        return x * self.f(x) if self.product else x + self.f(x)


class Branches(nn.Module):
    """Join the results of two functions on the channels."""

    def __init__(self, f, g):
        super().__init__()
        self.f, self.g = f, g

    def forward(self, x):
        return torch.cat([self.f(x), self.g(x)], dim=1)


class Halves(nn.Module):
    """Split the channels, change one half, shuffle."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        y = torch.cat([self.f(a), b], dim=1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Picked(nn.Module):
    """Take channels at places."""

    def __init__(self, places):
        super().__init__()
        self.register_buffer("places", torch.as_tensor(places))

    def forward(self, x):
        return x[:, self.places]


def grown(rng, channels):
    """Return (module, channels) of images twice as large: interpolated codes, or a transposed convolution of them."""
    if rng.random() < 0.4:
        return nn.Sequential(quantiser(rng), nn.Upsample(scale_factor=2, mode="bilinear")), channels
    out = int(rng.choice([4, 8]))
    groups = int(rng.choice([g for g in (1, 2, 4) if channels % g == 0]))
    kernel, padding, more = ((2, 0, 0), (3, 1, 1), (4, 1, 0))[int(rng.integers(3))]
    layer = LowTransposed(2, channels, out, kernel, 2, padding, more, groups, bool(rng.integers(2)), weight=weight(rng))
    return nn.Sequential(quantiser(rng), layer, nn.BatchNorm2d(out), activation(rng, out)), out


def conv(rng, channels, out, stride=1):
    """Return a quantiser, a low-bit convolution, and perhaps batch norm and an activation."""
    kernel = int(rng.choice([1, 3, 3, 5]))
    common = [g for g in (1, 2, 4, channels) if channels % g == 0 and out % g == 0]
    groups, dilation = int(rng.choice(common)), int(rng.choice([1, 1, 2]))
    layer = LowConv(
        channels, out, kernel, stride=stride, padding=dilation * (kernel // 2), dilation=dilation, groups=groups,
        bias=bool(rng.integers(2)), weight=weight(rng),
    )  # fmt: skip
    parts = [quantiser(rng), layer]
    if rng.random() < 0.3:
        parts.append(nn.MaxPool2d(3, 1, 1))
    if rng.random() < 0.8:
        parts.append(nn.BatchNorm2d(out))
    return nn.Sequential(*parts, activation(rng, out))


def block(rng, channels, size):
    """Return (module, channels, size) of a part of a network."""
    kinds = "conv conv strided residual branches halves pool up average nest grown picked uneven".split()
    kind = str(rng.choice(kinds))
    if kind == "strided" and size >= 4:
        out = int(rng.choice([4, 8, 12]))
        return conv(rng, channels, out, 2), out, (size + 1) // 2
    if kind == "residual":
        return Residual(conv(rng, channels, channels), rng.random() < 0.2), channels, size
    if kind == "branches" and channels <= 12:
        a, b = (int(rng.choice([4, 8])) for _ in range(2))
        return Branches(conv(rng, channels, a), conv(rng, channels, b)), a + b, size
    if kind == "halves" and channels % 4 == 0:
        return Halves(conv(rng, channels // 2, channels // 2)), channels, size
    if kind == "pool" and size >= 4:
        return nn.MaxPool2d(2), channels, size // 2
    if kind == "average" and size >= 4:
        return nn.Sequential(quantiser(rng), nn.AvgPool2d(2)), channels, size // 2
    if kind == "uneven":
        return nn.Sequential(quantiser(rng), nn.AvgPool2d(3, 1, 1, count_include_pad=False)), channels, size
    if kind == "picked":
        out = int(rng.choice([4, 8]))
        return Picked(rng.integers(0, channels, out)), out, size
    if kind == "grown" and size <= 6:
        return *grown(rng, channels), 2 * size
    if kind == "up" and size <= 6:
        return nn.Sequential(quantiser(rng), nn.Upsample(scale_factor=2)), channels, 2 * size
    if kind == "nest":
        return Residual(Residual(conv(rng, channels, channels))), channels, size
    out = int(rng.choice([4, 8, 12]))
    return conv(rng, channels, out), out, size


def head(rng, channels, size):
    """Return linear layers after the images."""
    out = int(rng.integers(2, 20))
    if rng.random() < 0.4:
        parts, features = [nn.AdaptiveAvgPool2d(1), nn.Flatten()], channels
    else:
        parts, features = [nn.Flatten()], channels * size * size
    if rng.random() < 0.6:
        parts += [quantiser(rng), nn.Dropout(), LowLinear(features, 16, weight=weight(rng)), nn.BatchNorm1d(16)]
        parts += [activation(rng, 16)]
        features = 16
    return [*parts, quantiser(rng), LowLinear(features, out, bias=bool(rng.integers(2)), weight=weight(rng))]


def module(rng, draw=block):
    """Return a module of parts that `draw` gives, and images for it, with batch norms that have seen some."""
    torch.manual_seed(int(rng.integers(2**31)))
    channels, size = int(rng.choice([1, 3, 4])), int(rng.integers(4, 13))
    x = torch.randn(4, channels, size, size)
    parts = []
    if rng.random() < 0.5:
        first = int(rng.choice([4, 8]))
        parts, channels = [nn.Conv2d(channels, first, 3, padding=1), nn.BatchNorm2d(first)], first
    for _ in range(int(rng.integers(1, 5))):
        part, channels, size = draw(rng, channels, size)
        parts.append(part)
    return seen(nn.Sequential(*parts, *head(rng, channels, size)), x), x


def seen(net, x):
    """Return a network in evaluation mode whose batch norms have seen values of the shape of x."""
    for part in net.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)) and part.affine:
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    with torch.no_grad():
        net.train()
        for _ in range(2):
            net(torch.randn(8, *x.shape[1:]))
    return net.eval()
