"""Train small low-bit networks in plain PyTorch, on images of ten patterns with noise."""

import torch
from torch import nn
from torch_layers import LowConv, LowLinear


def images(count, seed):
    """Return images float32 [count 1 16 16] of ten patterns, and the numbers of their patterns."""
    patterns = torch.randn(10, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=g)
    return patterns[labels] + 0.7 * torch.randn(count, 1, 16, 16, generator=g), labels


def network(weight, act):
    """Return convolutions with max pools before and after batch norm and quantiser, then linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), act(),
        LowConv(16, 32, 3, padding=1, bias=False, weight=weight), nn.MaxPool2d(2), nn.BatchNorm2d(32), act(),
        LowConv(32, 32, 3, padding=1, weight=weight), nn.BatchNorm2d(32), act(), nn.MaxPool2d(2),
        LowConv(32, 32, 3, padding=1, weight=weight), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.PReLU(32), act(),
        nn.Flatten(), LowLinear(128, 64, bias=False, weight=weight), nn.BatchNorm1d(64), act(), nn.Dropout(0.1),
        LowLinear(64, 10, weight=weight),
    )  # fmt: skip


def trained(weight, act, steps=60):
    """Return a trained network in evaluation mode; half of its gammas are negative."""
    torch.manual_seed(0)
    model = network(weight, act)
    for part in model:
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            with torch.no_grad():
                part.weight[::2] *= -1
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(steps):
        x, labels = images(64, step + 1)
        scores = model(x)
        loss = nn.functional.cross_entropy(2 * scores / scores.detach().std(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()
