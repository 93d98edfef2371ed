"""Models for tests with PyTorch."""

import torch
from torch import nn


class Block(nn.Module):
    """A block of two 3x3 convolutions with a shortcut."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out)
        self.conv2, self.bn2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride > 1 or c_in != c_out:
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.shortcut(x))


class ResNet18(nn.Sequential):
    """ResNet-18 for 32x32 images; `width` 64 is the full one."""

    def __init__(self, width=16, channels=1, classes=10):
        layers = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        before = width
        for stage in range(4):
            c = width << stage
            layers += [Block(before, c, 1 if stage == 0 else 2), Block(c, c, 1)]
            before = c
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def torchvision():
    """torchvision beside a PyTorch of another version: two operators of its library, which no model calls, declared."""
    try:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms() -> Tensor")
        library.define("qnms() -> Tensor")
        torchvision.library = library  # which must live
    except RuntimeError:
        pass
    import torchvision as package

    return package
