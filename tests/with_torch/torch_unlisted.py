"""Random modules with layers and code that low-bit networks seldom have: `from_torch` takes few of them."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_modules import block
from torch_modules import module as module_of


class Code(nn.Module):
    """A function of images [n c h w], as the forward of a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Recurrent(nn.Module):
    """A recurrent layer along the places of an image."""

    def __init__(self, kind, channels):
        super().__init__()
        self.layer = kind(channels, channels, batch_first=True)

    def forward(self, x):
        y, _ = self.layer(x.flatten(2).transpose(1, 2))
        return y.transpose(1, 2).reshape(x.shape)


class Attention(nn.Module):
    """Attention among the places of an image, by a layer or by products."""

    def __init__(self, channels, layer):
        super().__init__()
        self.layer = nn.MultiheadAttention(channels, 1, batch_first=True) if layer else None

    def forward(self, x):
        y = x.flatten(2).transpose(1, 2)
        y = self.layer(y, y, y)[0] if self.layer else (y @ y.transpose(1, 2)).softmax(dim=-1) @ y
        return y.transpose(1, 2).reshape(x.shape)


class Scaled(nn.Module):
    """Images weighted by channel, by a function of the images: einsum, squeeze and excitation, a dynamic filter."""

    def __init__(self, channels, how):
        super().__init__()
        self.weight, self.how = nn.Parameter(torch.randn(channels, channels)), how

    def forward(self, x):
        if self.how == "einsum":
            return torch.einsum("nchw,dc->ndhw", x, self.weight)
        if self.how == "excited":
            return x * (x.mean((2, 3)) @ self.weight).sigmoid()[:, :, None, None]
        n, c, h, w = x.shape
        filters = x.mean((2, 3)).reshape(n * c, 1, 1, 1)
        return F.conv2d(x.reshape(1, n * c, h, w), filters, groups=n * c).reshape(n, c, h, w)


# In-place writes


def _zeroed(x):
    x[:, 0] = 0
    return x


def _added(x):
    y = x.clone()
    y[:, 1:, ::2] += 0.5
    return y * 2


def _written(x):
    y = torch.zeros_like(x)
    y[..., :2] = x[..., :2]
    return y


def _masked(x):
    return x.clone().masked_fill_(x < -0.5, 0.25).add_(0.125)


def _scattered(x):
    index = torch.zeros(len(x), 1, *x.shape[2:], dtype=torch.int64)
    return x.clone().scatter_(1, index, 0.5)


def _halves(x):
    a, b = x.clone().chunk(2, dim=0) if len(x) % 2 == 0 else (x, x)
    return torch.cat([a, b])[: len(x)]


def _looped(x):
    return torch.stack([x[i] * 0.5 for i in range(len(x))])


FUNCTIONS = {
    "zeroed": _zeroed, "added": _added, "written": _written, "masked": _masked, "scattered": _scattered,
    "halves": _halves, "looped": _looped,
    "relu_": lambda x: F.relu_(x.clone()) - 0.5,
    "clamp_": lambda x: x.mul_(2).clamp_(-1, 1),
    # Repeated, joined, taken
    "expand": lambda x: x.mean((2, 3), keepdim=True).expand_as(x) + 0.0,
    "expanded last": lambda x: x[:, :1].expand(-1, x.shape[1], -1, -1),
    "repeat": lambda x: x.repeat(1, 2, 1, 1), "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
    "stack": lambda x: torch.stack([x, -x], dim=2).flatten(1, 2), "tile": lambda x: x.tile(1, 2, 1, 1),
    "stacked last": lambda x: torch.stack([x, x], dim=-1).flatten(-2)[..., ::2],
    "roll": lambda x: x.roll(1, dims=-1), "flip": lambda x: x.flip(-1), "rot90": lambda x: x.rot90(1, (2, 3)),
    "index_select": lambda x: x.index_select(1, torch.arange(x.shape[1]).flip(0)),
    "listed": lambda x: x[:, [0, 0]], "unbind": lambda x: torch.cat(x[:, None].unbind(2), dim=1),
    "gather": lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)), "narrow": lambda x: x.narrow(2, 1, 2),
    "transposed": lambda x: x.transpose(2, 3).contiguous(), "movedim": lambda x: x.movedim(2, 3),
    "diagonal": lambda x: torch.diag_embed(x.diagonal(dim1=2, dim2=3)),
    "triu": lambda x: x.triu(), "unfolded": lambda x: x.unfold(2, 2, 1).mean(-1),
    "im2col": lambda x: F.unfold(x, 3, padding=1).reshape(len(x), -1, *x.shape[2:]),
    "strided": lambda x: x.as_strided((len(x), x.shape[1], 2, 2), x.stride()),
    "circular": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), "cropped": lambda x: F.pad(x, (-1, 0, -1, 0)),
    "unshuffled": lambda x: F.pixel_unshuffle(F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)), 2),
    "meshed": lambda x: x + torch.linspace(-1, 1, x.shape[-1]), "batch": lambda x: x.flip(0),
    # Statistics and orders
    "normalised": lambda x: F.normalize(x, dim=1), "standardised": lambda x: (x - x.mean()) / (x.std() + 1),
    "var": lambda x: x - x.var(dim=1, keepdim=True), "norm": lambda x: x / (1 + x.norm(dim=1, keepdim=True)),
    "max": lambda x: x - x.max(dim=1, keepdim=True)[0], "amin": lambda x: x - x.amin(dim=(1, 2), keepdim=True),
    "std": lambda x: x / (1 + x.std((2, 3), keepdim=True)), "p norm": lambda x: F.normalize(x, p=1.0, dim=1),
    "var_mean": lambda x: x - torch.var_mean(x, 1, keepdim=True)[1], "places": lambda x: x[:, :, [0, -1, 0]][..., :3],
    "attended": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "larger": lambda x: F.interpolate(x, size=(x.shape[-1] + 3,) * 2, mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=3, mode="bilinear", align_corners=True),
    "filled": lambda x: x.masked_fill((x > 0.5) | (x < -1), 0.25),
    "over all": lambda x: x / (1e-3 + x.abs().max()), "prod": lambda x: x * x.prod(dim=1, keepdim=True),
    "logsumexp": lambda x: x - x.logsumexp(1, keepdim=True), "cumsum": lambda x: x.cumsum(2) / 4,
    "sort": lambda x: x.sort(dim=1)[0], "topk": lambda x: x.topk(1, dim=1)[0], "median": lambda x: x - x.median(),
    "argmax": lambda x: x.argmax(dim=1, keepdim=True).float() - x, "any": lambda x: (x > 1).any(1, True).float() + x,
    "one_hot": lambda x: F.one_hot(x.argmax(1), x.shape[1]).permute(0, 3, 1, 2).float(),
    "sum": lambda x: x.sum(1, keepdim=True) / 4, "distances": lambda x: torch.cdist(x, x),
    # Pools and images
    "divided": lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3), "lp": lambda x: F.lp_pool2d(x.abs() + 1, 2, 2, 1),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 3), "adaptive max": lambda x: F.adaptive_max_pool2d(x, 3),
    "unpooled": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:]),
    "sampled": lambda x: F.grid_sample(x, torch.zeros(len(x), 3, 3, 2), align_corners=False),
    "fractions": lambda x: F.interpolate(x, scale_factor=1.5), "smaller": lambda x: F.interpolate(x, scale_factor=0.5),
    "exact": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "area": lambda x: F.interpolate(x, size=3, mode="area"),
    # Elements
    "lerp": lambda x: torch.lerp(x, x.relu(), 0.25), "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "hypot": lambda x: torch.hypot(x, x + 1), "atan2": lambda x: torch.atan2(x, x + 2), "erf": lambda x: x.erf(),
    "sin": lambda x: x.sin(), "exp": lambda x: x.clamp(max=2).exp(), "log1p": lambda x: x.abs().log1p(),
    "fmod": lambda x: x.fmod(1), "remainder": lambda x: x.remainder(0.5), "frac": lambda x: x.frac(),
    "floor_divide": lambda x: x.div(0.5, rounding_mode="floor"), "trunc": lambda x: x.trunc() - 0.25,
    "power": lambda x: x.abs() ** 1.5, "nan": lambda x: (x / 0.0).nan_to_num(0, 1, -1),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-0.5, 0.0, 0.75])).float() - 1,
    "bits": lambda x: ((x * 4).int() & 3).float(), "modulo": lambda x: ((x * 4).long() % 3).float(),
    "table": lambda x: torch.tensor([-1.0, 0.0, 0.5, 2.0])[(x * 2).long().clamp(0, 3)],
    "compared": lambda x: torch.where(x > x.mean(1, keepdim=True), x, -x),
    "wide": lambda x: (x.double() * 3).float(), "short": lambda x: x.half().float(),
    "brain": lambda x: x.bfloat16() + x,
    "complex": lambda x: torch.fft.fft(x).real, "random": lambda x: x + torch.rand_like(x),
    "dropped": lambda x: F.dropout(x, 0.5, training=True), "reads": lambda x: x * 2 if float(x.sum()) > 0 else x,
    "through numpy": lambda x: torch.from_numpy(x.numpy() * 2), "matmul": lambda x: x @ x.transpose(2, 3),
}  # fmt: skip

LAYERS = {
    "GroupNorm": lambda rng, c, s: nn.GroupNorm(1 if c % 2 else 2, c), "LayerNorm": lambda rng, c, s: nn.LayerNorm(s),
    "InstanceNorm": lambda rng, c, s: nn.InstanceNorm2d(c),
    "running": lambda rng, c, s: nn.InstanceNorm2d(c, track_running_stats=True),
    "unaffine": lambda rng, c, s: nn.BatchNorm2d(c, affine=False),
    "unstored": lambda rng, c, s: nn.BatchNorm2d(c, track_running_stats=False),
    "response": lambda rng, c, s: nn.LocalResponseNorm(2), "RMSNorm": lambda rng, c, s: nn.RMSNorm(s),
    "transposed": lambda rng, c, s: nn.ConvTranspose2d(c, c, 2, 2),
    "LSTM": lambda rng, c, s: Recurrent(nn.LSTM, c), "GRU": lambda rng, c, s: Recurrent(nn.GRU, c),
    "attention": lambda rng, c, s: Attention(c, bool(rng.integers(2))),
    "bilinear": lambda rng, c, s: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=bool(rng.integers(2))),
    "bicubic": lambda rng, c, s: nn.Upsample(scale_factor=2, mode="bicubic"),
    "scaled": lambda rng, c, s: Scaled(c, str(rng.choice(["einsum", "excited", "filtered"]))),
    "padded": lambda rng, c, s: nn.Conv2d(c, c, 3, padding="same", padding_mode="circular"),
    "reflected": lambda rng, c, s: nn.Conv2d(c, c, 3, padding="same", padding_mode="reflect"),
    "linear": lambda rng, c, s: nn.Linear(s, s), "float": lambda rng, c, s: nn.Conv2d(c, c, 3, padding=1),
    "glu": lambda rng, c, s: nn.Sequential(nn.Conv2d(c, 2 * c, 1), nn.GLU(1)), "RReLU": lambda rng, c, s: nn.RReLU(),
}  # fmt: skip

ELEMENTS = (
    "GELU SELU CELU ELU Softplus Mish SiLU Tanhshrink Softshrink Hardshrink LogSigmoid Softsign Hardsigmoid Tanh "
    "Sigmoid Softmax2d LeakyReLU"
).split()


def unlisted(rng, channels, size):
    """Return (module, channels, size) of a part of a network that is a layer or code of a rare kind."""
    kind = int(rng.integers(5))
    if kind == 0:
        part = getattr(nn, str(rng.choice(ELEMENTS)))()
    elif kind < 3:
        part = LAYERS[str(rng.choice(list(LAYERS)))](rng, channels, size)
    else:
        part = Code(FUNCTIONS[str(rng.choice(list(FUNCTIONS)))])
    part.unlisted = True
    with torch.no_grad():
        shape = part.eval()(torch.randn(2, channels, size, size)).shape
    if shape[2] != shape[3]:
        return block(rng, channels, size)
    return part, shape[1], shape[2]


def module(rng):
    """Return a module, half of whose parts are rare, and images for it."""
    return module_of(rng, lambda *state: (unlisted if rng.random() < 0.5 else block)(*state))


def unlisted_paths(net):
    """Return the paths of the rare parts of a module, and of the modules inside them."""
    roots = [path for path, part in net.named_modules() if hasattr(part, "unlisted")]
    return {path for path, _ in net.named_modules() if any(path == r or path.startswith(f"{r}.") for r in roots)}
