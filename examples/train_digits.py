"""Train a binary convolutional network on 8x8 digits and write it as plain integers.

    python examples/train_digits.py --out quantarray/data/digits.npz

The data are scikit-learn's 1797 digits: real images of handwriting, 8x8 pixels of 0..16. The network is

    conv 3x3, 1 -> 64      8-bit pixels by 1-bit weights
    conv 3x3, 64 -> 64     1-bit by 1-bit, then max pool 2x2
    conv 3x3, 64 -> 128    1-bit by 1-bit, then max pool 2x2
    dense, 512 -> 10       1-bit by 1-bit; its integers are the class scores

Every convolution pads with zeros by one pixel. Batch norm and sign follow each of them, and both become one
integer threshold per channel in the file (`fold_threshold`). docs/plain-format.md describes the file.

Needs numpy, torch and scikit-learn.
"""

import argparse
import json

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

PIXEL_MAX = 16
CHANNELS = (1, 64, 64, 128)  # of the input and of the three convolutions
POOLED = (False, True, True)  # whether a 2x2 max pool follows the convolution
SPLIT_SEED = 0  # the split stays the same whatever --seed is, so that two runs compare
SOURCE = (
    "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), "
    "UCI Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0"
)


# The network, in floats that hold integers


class Sign(torch.autograd.Function):
    """+1 where x >= 0, else -1; the gradient passes straight through where |x| <= 1 and is 0 elsewhere."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class BinaryConv(nn.Module):
    """A layer: sign(batch_norm(conv2d(x, w))), 3x3 with weights -1 and 1, and an optional 2x2 max pool.

    The file pools the signs. Here the pool comes before the sign: sign never decreases, so max(sign(x)) is
    sign(max(x)), but the gradient then reaches the largest input instead of the first of several equal ones.
    """

    def __init__(self, c_in, c_out, pooled):
        super().__init__()
        self.latent = nn.Parameter(torch.empty(c_out, c_in, 3, 3).uniform_(-0.1, 0.1))
        self.norm = nn.BatchNorm2d(c_out)
        # Scales start at +-1. All at +1 learn as well, but none turned negative, and no channel of the
        # file would be inverted as those of other networks are.
        nn.init.constant_(self.norm.weight[::2], -1)
        self.pooled = pooled

    def forward(self, x):
        x = self.norm(F.conv2d(x, Sign.apply(self.latent), padding=1))
        return Sign.apply(F.max_pool2d(x, 2) if self.pooled else x)


class DigitNet(nn.Module):
    """A network of three binary convolutions and a binary dense layer: images [n 1 8 8] to integer scores [n 10]."""

    def __init__(self):
        super().__init__()
        shapes = zip(CHANNELS[:-1], CHANNELS[1:], POOLED, strict=True)
        self.convs = nn.ModuleList(BinaryConv(*shape) for shape in shapes)
        self.latent = nn.Parameter(torch.empty(10, 2 * 2 * CHANNELS[-1]).uniform_(-0.1, 0.1))

    def forward(self, x):
        for conv in self.convs:
            x = conv(x)
        x = x.permute(0, 2, 3, 1).flatten(1)  # channels last, the order of the file
        return F.linear(x, Sign.apply(self.latent))


# Training


def load_split():
    """Split the digits: images uint8 [n 8 8] for training and for testing (a quarter), then their labels."""
    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    return train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=SPLIT_SEED)


def to_tensor(images):
    return torch.from_numpy(images.astype(np.float32))[:, None]


def shift_images(x, reach=1):
    """Move each image [n 1 h w] by -reach..reach pixels along both axes; zeros come in at the edges."""
    n, _, h, w = x.shape
    padded = F.pad(x[:, 0], (reach,) * 4)
    top, left = torch.randint(0, 2 * reach + 1, (2, n, 1, 1))
    rows, cols = torch.arange(h)[:, None] + top, torch.arange(w) + left
    return padded[torch.arange(n)[:, None, None], rows, cols][:, None]


def train_epoch(net, optimizer, x, y, batch=64):
    """Train on all images once, in random order, and return the mean loss."""
    net.train()
    total = 0.0
    for rows in torch.randperm(len(x)).split(batch):
        # 512 signs add up to about +-23 by chance alone: divided by that, softmax gets usable logits.
        logits = net(shift_images(x[rows])) / net.latent.shape[1] ** 0.5
        loss = F.cross_entropy(logits, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, parameter in net.named_parameters():
            if name.endswith("latent"):  # beyond +-1 the gradient is 0 and a weight would be stuck
                parameter.data.clamp_(-1, 1)
        total += loss.item() * len(rows)
    return total / len(x)


def train(images, labels, epochs):
    """Train a DigitNet and return it in eval mode, after the last epoch: the held-out images choose nothing."""
    net = DigitNet()
    x, y = to_tensor(images), torch.from_numpy(labels.astype(np.int64))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(1, epochs + 1):
        loss = train_epoch(net, optimizer, x, y)
        schedule.step()
        if epoch % 10 == 0 or epoch == epochs:
            print(f"epoch {epoch:3d} of {epochs}: loss {loss:.3f}")
    return net.eval()


# Export to integers


def fold_threshold(norm, reach):
    """Return integer thresholds that equal `norm` and sign for every accumulator in -reach..reach.

    Batch norm in eval mode is x * scale + shift per channel, and its float32 rounding swaps no two results.
    So its sign changes at most once over the integers. Counting the integers on either side finds that place,
    and the place is exact because the batch norm asked is the network's own:

        scale >= 0: +1 where acc > t        t = -reach - 1 + (how many acc give -1)
        scale <  0: +1 where acc <= t       t = -reach - 1 + (how many acc give +1), invert

    A scale of 0 gives t = -reach - 1 (always +1) or t = reach (never).

    Returns thresholds int32 [c 1] and invert bool [c].
    """
    acc = torch.arange(-reach, reach + 1)
    # repeat and not expand: PyTorch rounds x * scale + shift differently for an expanded tensor than for the
    # contiguous ones that a convolution returns, and the two can disagree where the exact result is 0.
    x = acc.float()[:, None, None, None].repeat(1, norm.num_features, 1, 1)
    with torch.no_grad():
        positive = (norm(x) >= 0)[:, :, 0, 0]
    invert = norm.weight < 0
    t = -reach - 1 + (positive == invert).sum(0)
    assert torch.equal((acc[:, None] > t) ^ invert, positive), "batch norm is not monotone"
    return t[:, None].numpy().astype(np.int32), invert.numpy()


def sign_weights(latent, order):
    """Return the signs of a latent tensor as int8 weights -1 and 1, with its axes permuted."""
    return np.ascontiguousarray(Sign.apply(latent.detach()).permute(*order).numpy().astype(np.int8))


def export(net):
    """Convert a trained net to the plain format: (list of layer dicts, dict of arrays)."""
    layers, arrays = [], {}
    reach = PIXEL_MAX
    for i, conv in enumerate(net.convs):
        layer = {"op": "conv2d", "weight": f"w{i}", "threshold": f"t{i}", "invert": f"invert{i}"}
        layers.append(layer | {"stride": 1, "pad": 1, "values": [-1, 1]})
        arrays[f"w{i}"] = sign_weights(conv.latent, (0, 2, 3, 1))
        arrays[f"t{i}"], arrays[f"invert{i}"] = fold_threshold(conv.norm, reach * conv.latent[0].numel())
        if conv.pooled:
            layers.append({"op": "max_pool2d", "size": 2, "stride": 2, "pad": [0, 0]})
        reach = 1
    layers.append({"op": "dense", "weight": "w3", "threshold": None, "values": None})
    arrays["w3"] = sign_weights(net.latent, (0, 1))
    return layers, arrays


def save(path, layers, arrays):
    """Write the layers and arrays with their description; held-out images are in `arrays` already."""
    meta = {
        "name": "digits-w1a1",
        "input": "grey image 8x8, integers 0..16 as uint8, channels last",
        "expected": f"integer class scores of the {len(arrays['input'])} held-out images, from PyTorch",
        "layers": layers,
        "classes": [str(digit) for digit in range(10)],
        "source": SOURCE,
    }
    np.savez_compressed(path, meta=json.dumps(meta), **arrays)


# The check: the file alone, in NumPy


def conv2d(x, w, stride, pad):
    """acc[n i j o] = sum over k l c of x[n, i*stride+k-pad, j*stride+l-pad, c] * w[o k l c], 0 outside x."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = sliding_window_view(x, w.shape[1:3], axis=(1, 2))[:, ::stride, ::stride]
    return np.tensordot(windows, w, axes=((4, 5, 3), (1, 2, 3)))


def max_pool2d(x, size, stride):
    return sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride].max(axis=(4, 5))


def evaluate(path):
    """Compute the scores int32 [n 10] of the images stored in a file that `save` wrote."""
    with np.load(path) as file:
        arrays = dict(file)
    x = arrays["input_table"].astype(np.int32)[arrays["input"]]
    for layer in json.loads(str(arrays["meta"]))["layers"]:
        if layer["op"] == "max_pool2d":
            x = max_pool2d(x, layer["size"], layer["stride"])
            continue
        w = arrays[layer["weight"]].astype(np.int32)
        if layer["op"] == "conv2d":
            acc = conv2d(x, w, layer["stride"], layer["pad"])
        else:
            acc = x.reshape(len(x), -1) @ w.T
        if layer["threshold"] is None:
            return acc
        code = (acc[..., None] > arrays[layer["threshold"]]).sum(axis=-1)
        code = np.where(arrays[layer["invert"]], len(layer["values"]) - 1 - code, code)
        x = np.array(layer["values"], np.int32)[code]


def main():
    parser = argparse.ArgumentParser(description="Train a binary network on digits; write plain integers.")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", default="digits.npz", help="the file to write (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more may add floats in another order, and the seed would not fix the result

    train_images, held_out_images, train_labels, labels = load_split()
    net = train(train_images, train_labels, args.epochs)
    with torch.no_grad():
        scores = net(to_tensor(held_out_images)).numpy()

    layers, arrays = export(net)
    arrays["input"] = held_out_images[..., None]
    arrays["input_table"] = np.arange(PIXEL_MAX + 1, dtype=np.int8)
    arrays["expected"] = scores.astype(np.int32)
    arrays["labels"] = labels
    save(args.out, layers, arrays)

    assert np.array_equal(evaluate(args.out), scores), "the integers differ from PyTorch's scores"
    right = int((scores.argmax(axis=1) == labels).sum())
    print(f"{args.out}: {right} of {len(labels)} held-out images right, {100 * right / len(labels):.2f} %")


if __name__ == "__main__":
    main()
