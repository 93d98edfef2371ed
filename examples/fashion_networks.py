"""Networks of 1 to 5 bits for Fashion-MNIST, their quantisers, and the images, for `train_fashion.py` and others."""

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import quantarray as qa

DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist


def images(folder, part, pad=0):
    """Read images float32 [n 1 28 28] in 0 .. 1 and labels int64 [n]; pad adds a border of zeros."""
    folder = Path(folder)
    if folder.suffix == ".npz":
        with np.load(folder) as file:
            x, y = file[f"{part}_images"], file[f"{part}_labels"]
    else:
        name = {"train": "train", "test": "t10k"}[part]
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as file:
            x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as file:
            y = np.frombuffer(file.read(), np.uint8, offset=8)
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad))) if pad else x
    return torch.from_numpy(x[:, None].astype(np.float32) / 255), torch.from_numpy(y.astype(np.int64))


# Name: (quantiser of weights, quantiser of activations) of all layers but the first and the last, whose weights and
# inputs have 8 bits; each a function that makes one
SCHEMES = {
    "float": None,
    "W1A1": (lambda: qa.torch.Sign("identity", scale=True), lambda: qa.torch.Sign("approx_sign")),
    "W1A2": (lambda: qa.torch.DoReFa(1), lambda: qa.torch.DoReFa(2, activations=True)),
    "W2A2": (lambda: qa.torch.DoReFa(2), lambda: qa.torch.DoReFa(2, activations=True)),
    # LQ-Nets' basis of a channel's 1-bit weights is mean |w|, XNOR-Net's scale
    "LQ": (lambda: qa.torch.Sign("identity", scale=True), lambda: qa.torch.LQ(2)),
    "ABC3": (lambda: qa.torch.ABC(3), lambda: qa.torch.ABCActivations(3)),
    "ABC5": (lambda: qa.torch.ABC(5), lambda: qa.torch.ABCActivations(5)),
}


class Rectified(nn.Module):
    """A ReLU in networks of floats; nothing where the next layer's quantiser clips."""

    floats = True

    def forward(self, x):
        """Return max(x, 0), or x."""
        return F.relu(x) if self.floats else x


def normed(layer, channels, pool=False):
    """List a layer, a max pool of 2x2 if asked for, batch norm and ReLU."""
    norm = nn.BatchNorm1d if isinstance(layer, nn.Linear) else nn.BatchNorm2d
    return [layer, *([nn.MaxPool2d(2)] if pool else []), norm(channels), Rectified()]


def lenet(size=28, width=32):
    """conv 5x5 w - pool - conv 5x5 2w - pool - dense 512 - dense 10, w = 32, without padding: LeNet-5, wider."""
    side = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(
        *normed(nn.Conv2d(1, width, 5, bias=False), width, pool=True),
        *normed(nn.Conv2d(width, 2 * width, 5, bias=False), 2 * width, pool=True),
        nn.Flatten(),
        *normed(nn.Linear(2 * width * side * side, 512, bias=False), 512),
        nn.Linear(512, 10),
    )


def vgg(size=28, width=32):
    """Build two convolutions 3x3 of w, 2w and 4w channels each, with a pool after each two, dense 10, w = 32."""
    parts, before = [], 1
    for channels in (width, 2 * width, 4 * width):
        parts += normed(nn.Conv2d(before, channels, 3, padding=1, bias=False), channels)
        parts += normed(nn.Conv2d(channels, channels, 3, padding=1, bias=False), channels, pool=True)
        before = channels
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(before * (size // 8) ** 2, 10))


class Residual(nn.Module):
    """relu(f(x) + shortcut(x)), f two convolutions 3x3 with batch norm: the block of ResNet-18."""

    def __init__(self, before, channels, stride):
        super().__init__()
        self.f = nn.Sequential(
            *normed(nn.Conv2d(before, channels, 3, stride, 1, bias=False), channels),
            *normed(nn.Conv2d(channels, channels, 3, padding=1, bias=False), channels)[:-1],
        )
        self.shortcut = nn.Identity()
        if stride != 1 or before != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        """Return the block of x."""
        return F.relu(self.f(x) + self.shortcut(x))


def resnet(size=32, width=16):
    """ResNet-18 for small images, with w, 2w, 4w and 8w channels, w = 16: a quarter of the usual ones."""
    parts, before = normed(nn.Conv2d(1, width, 3, padding=1, bias=False), width), width
    for stage in range(4):
        channels = width << stage
        parts += [Residual(before, channels, 1 if stage == 0 else 2), Residual(channels, channels, 1)]
        before = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


NETWORKS = {"lenet": lenet, "vgg": vgg, "resnet": resnet}


def quantise(model, scheme, samples=None):
    """Quantise a float network in place: inner layers by a scheme, the first and the last with 8 bits.

    samples: batches of images over which batch norms average again, for a network that was trained in floats.
    """
    if SCHEMES[scheme] is None:
        return model
    weights, activations = SCHEMES[scheme]
    for part in model.modules():
        if isinstance(part, Rectified):
            part.floats = False
    names = [name for name, part in model.named_modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
    eight = qa.torch.DoReFa(8, activations=True)  # which leaves pixels as they are
    qa.torch.convert(model, qa.torch.LSQ(8), eight, keep=names[1:-1])
    qa.torch.convert(model, weights(), activations(), keep=(names[0], names[-1]), samples=samples)
    return model
