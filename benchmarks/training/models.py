"""Models that are trained, with a batch of random images or rows, by name."""

import torch
from torch import nn

IMAGES = "resnet18 resnet50 mobilenet_v2 vit_b_16".split()
NAMES = [*IMAGES, "transformer"]
NETWORKS = (
    "alexnet vgg16 resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet161 googlenet inception_v3 squeezenet1_0 "
    "shufflenet_v2_x1_0 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet1_0 efficientnet_b0 efficientnet_b4 "
    "regnet_y_400mf"
).split()
CLASSES, LENGTH, WIDTH = 100, 128, 512


class Transformer(nn.Module):
    """A model of six encoder layers of 512 numbers and 8 heads over rows of 128, and a classifier of the mean."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        """Return scores."""
        return self.head(self.layers(x).mean(1))


def torchvision():
    """Import torchvision, beside a PyTorch that its library is not for, too: two operators of it are declared then."""
    try:
        import torchvision as package
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms() -> Tensor")
        library.define("qnms() -> Tensor")
        torchvision.library = library  # which must live
        import torchvision as package
    return package


def model(name, size):
    """Return a model with random weights for images of size x size."""
    torch.manual_seed(0)
    if name == "transformer":
        return Transformer()
    settings = {"image_size": size} if name.startswith("vit") else {}
    if name in ("googlenet", "inception_v3"):
        settings |= {"aux_logits": False, "init_weights": True}
    network = getattr(torchvision().models, name)(num_classes=CLASSES, **settings)
    for parameter in network.parameters():  # a last layer of zeros has no gradient before it
        if not parameter.any() and parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.02)
    return network


def batch(name, count, size, seed=1):
    """Return inputs and labels."""
    generator = torch.Generator().manual_seed(seed)
    shape = (LENGTH, WIDTH) if name == "transformer" else (3, size, size)
    return torch.randn(count, *shape, generator=generator), torch.arange(count) % CLASSES
