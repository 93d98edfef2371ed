"""Random modules whose code computes with the length of the batch, of signals and volumes, with several outputs."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_layers import LowConv1d, LowConv3d, LowLinear
from torch_modules import activation, module, quantiser, seen, weight

# Functions of values [n c ..] that give values of the same shape


def _looped(x):
    return torch.cat([x[i : i + 1] * 0.5 for i in range(len(x))])


def _tokens(x):
    token = torch.linspace(-1, 1, x[0, :1].numel()).reshape(1, 1, *x.shape[2:])
    return torch.cat([token.expand(len(x), *[-1] * (x.ndim - 1)), x], dim=1)[:, : x.shape[1]]


def _folded(x):
    rows = x.reshape(x.size(0) * x.size(1), 1, *x.shape[2:])
    return (rows.abs() - rows).view(x.shape)


def _pooled_rows(x):
    rows = x.flatten(2).view(x.shape[0] * x.shape[1], -1)
    return x - rows.mean(1).view(*x.shape[:2], *[1] * (x.ndim - 2))


BATCHES = {
    "divided": lambda x: x / x.shape[0], "counted": lambda x: x * (8 / x.numel()),
    "powers": lambda x: x * 0.9 ** len(x),
    "ranged": lambda x: x + 0.25 * torch.arange(x.shape[0]).view(-1, *[1] * (x.ndim - 1)), "looped": _looped,
    "folded": _folded, "rows": _pooled_rows, "tokens": _tokens,
    "unfolded": lambda x: x.unflatten(0, (x.shape[0], 1))[:, 0],
    "zeros": lambda x: torch.cat([torch.zeros(x.shape[0], 1, *x.shape[2:]), x], dim=1)[:, 1:],
    "ones": lambda x: x + torch.ones(x.size(0), x.size(1), *[1] * (x.ndim - 2)),
    "new": lambda x: torch.cat([x.new_full((x.shape[0], 1, *x.shape[2:]), 0.5), x[:, 1:]], dim=1),
    "full": lambda x: x * torch.full((len(x), *[1] * (x.ndim - 1)), 0.5),
    "of n": lambda x: x * torch.tensor(float(len(x))),
    "mean": lambda x: x - x.mean(0), "centred": lambda x: x - x.mean(0, keepdim=True), "first": lambda x: x - x[:1],
    "summed": lambda x: x + x.sum(0) / x.shape[0], "softmax": lambda x: x.softmax(0) * 4,
    "of all": lambda x: x - x.mean(),
    "larger": lambda x: x * 2 if x.shape[0] > 3 else x, "even": lambda x: -x if len(x) % 2 else x,
    "least": lambda x: x * min(x.shape[0], 3), "clamped": lambda x: x.clamp(max=x.shape[0] * 0.5),
    "one": lambda x: x + 1 if x.size(0) == 1 else x, "sliced": lambda x: x[: x.shape[0]] * 0.5,
    "shifted": lambda x: torch.cat([x[1:], x[:1]]), "blocks": lambda x: x * (1 + x.shape[0] // 4),
}  # fmt: skip


class Batch(nn.Module):
    """A function of the whole batch, as the forward of a module."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return BATCHES[self.name](x)


# Outputs

CODES = {
    "threshold": lambda q: F.threshold(q, 0.1, 0.3), "filled": lambda q: q.masked_fill(q < 0.1, 0.7), "sin": torch.sin,
    "gelu": F.gelu, "erf": torch.erf, "where": lambda q: torch.where(q > 0.1, q * 3, -0.2), "selu": F.selu,
    "flags": lambda q: q > 0.1, "bytes": lambda q: (q > 0.1).byte(), "same": lambda q: q, "exp": lambda q: q.exp2(),
}  # fmt: skip


class Ends(nn.Module):
    """A network whose outputs are a quantiser, functions of codes, its input, or several of them."""

    def __init__(self, net, act, form, name):
        super().__init__()
        self.net, self.act, self.form, self.name = net, act, form, name

    def forward(self, x):
        y = self.net(x)
        q = self.act(y)
        return {
            "codes": lambda: q, "function": lambda: CODES[self.name](q), "both": lambda: (y, q),
            "dict": lambda: {"scores": y, "more": (q, CODES[self.name](q))}, "twice": lambda: [q, q],
            "input": lambda: (x, q),
        }[self.form]()  # fmt: skip


FORMS = ("codes", "function", "both", "dict", "twice", "input")


# Signals and volumes


def pool(rng, axes, size):
    """Return (a pool of images of so many axes, their size after it)."""
    kind = str(rng.choice(["MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool"]))
    layer = getattr(nn, f"{kind}{axes}d")
    if kind.startswith("Adaptive"):
        length = 2 if size % 2 == 0 else 1
        return layer(length), length
    padding = int(rng.integers(2))
    return layer(3, 2, padding), (size + 2 * padding - 3) // 2 + 1


def of_axes(rng, axes):
    """Return a module of signals (1 axis) or volumes (3), and a batch for it."""
    torch.manual_seed(int(rng.integers(2**31)))
    channels, size = int(rng.choice([1, 4])), int(rng.integers(5, 9))
    x = torch.randn(4, channels, *[size] * axes)
    parts, convolution = [], LowConv1d if axes == 1 else LowConv3d
    norm = nn.BatchNorm1d if axes == 1 else nn.BatchNorm3d
    for _ in range(int(rng.integers(1, 3))):
        out = int(rng.choice([4, 8]))
        groups = int(rng.choice([1, 1 if out % channels else channels]))
        parts += [quantiser(rng), convolution(channels, out, 3, padding=1, groups=groups, weight=weight(rng))]
        channels = out
        tail = [norm(out), activation(rng, out)]
        if size >= 4:
            layer, size = pool(rng, axes, size)
            tail.insert(int(rng.integers(3)), layer)
        parts += tail
    features = channels * size**axes
    net = nn.Sequential(*parts, nn.Flatten(), quantiser(rng), LowLinear(features, 5, weight=weight(rng)))
    return seen(net, x), x


def wide(rng):
    """Return a module of any of these kinds, or of several, a batch for it, and whether it computes with the batch."""
    axes = int(rng.choice([1, 2, 2, 3]))
    net, x = module(rng) if axes == 2 else of_axes(rng, axes)
    batch = rng.random() < 0.6
    if batch:
        parts = list(net)
        spatial = next(i for i, part in enumerate(parts) if isinstance(part, (nn.Flatten, nn.AdaptiveAvgPool2d)))
        parts.insert(int(rng.integers(0, spatial + 1)), Batch(str(rng.choice(list(BATCHES)))))
        net = nn.Sequential(*parts).eval()
    if rng.random() < 0.5:
        net = Ends(net, quantiser(rng), str(rng.choice(FORMS)), str(rng.choice(list(CODES)))).eval()
    return net, x, batch
