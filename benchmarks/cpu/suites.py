"""The suites by name: lists of cases."""

from dataclasses import replace

from .cases import Bases, Conv, Network, Pack, Product, Search, Unpack
from .table import of_threads

RESNET = [(56, 64), (28, 128), (14, 256), (7, 512)]  # ResNet-18's four 3x3 shapes


def _resnet(batches, out):
    return [
        Conv(name=f"{n}x{size}x{size}x{c}", batch=n, size=size, channels=c, outputs=c, out=out)
        for n in batches
        for size, c in RESNET
    ]


def _square(n, **changes):
    return Product(name=f"{n}^3", m=n, k=n, n=n, **changes)


def _shape(name, size, channels, outputs, **changes):
    return Conv(name=name, batch=1, size=size, channels=channels, outputs=outputs, **changes)


def _threads():
    """List ResNet-18's convolutions and a square product, each on one thread and on two."""
    shapes = [Conv(name=f"{s}x{s}x{c}", batch=1, size=s, channels=c, outputs=c) for s, c in RESNET]
    return [
        replace(case, name=f"{case.name}, {of_threads(n)}", threads=n)
        for case in [*shapes, _square(1024)]
        for n in (1, 2)
    ]


SUITES = {
    "conv": _resnet((1, 16), "bits"),
    "conv-pairs": [
        replace(case, name=f"{case.name}, {a}x{b} bits", bits=(a, b))
        for a, b in ((2, 2), (4, 4))
        for case in _resnet((16,), "bits")
    ],
    "conv-int32": _resnet((1,), "int32"),
    "conv-float": _resnet((1, 16), "float32"),
    "shapes": [
        _shape("1x1 28x28x256", 28, 256, 256, kernel=1),
        _shape("1x1 /2 56x56x64->128", 56, 64, 128, kernel=1, stride=2),
        _shape("3x3 /2 56x56x64->128", 56, 64, 128, stride=2),
        _shape("5x5 28x28x128", 28, 128, 128, kernel=5),
        _shape("3x3 32x32x16", 32, 16, 16),
        _shape("depthwise 56x56x128", 56, 128, 128, groups=128),
        _shape("depthwise, 2x2 bits", 56, 128, 128, groups=128, bits=(2, 2)),
        _shape("depthwise, 4x4 bits", 56, 128, 128, groups=128, bits=(4, 4)),
        _shape("32 groups 28x28x128", 28, 128, 128, groups=32),
        _shape("32 groups 14x14x512", 14, 512, 512, groups=32),
        _shape("4 groups 28x28x128", 28, 128, 128, groups=4),
        _shape("7x7 /2 int8 224x224x3->64", 224, 3, 64, kernel=7, stride=2, bits=(8, 1)),
    ],
    "bases": [
        Bases(name=f"3 by 3 masks, {k}x{k}, {out} out", kernel=k, out=out)
        for k in (3, 5)
        for out in ("float32", "codes")
    ],
    "product": [*map(_square, (256, 1024, 4096)), Product(name="1x4096x4096", m=1, k=4096, n=4096)],
    "pairs": [
        Product(name=f"{a}x{b} bits, {name}", m=m, k=k, n=k, bits=(a, b))
        for name, m, k in (("1024^3", 1024, 1024), ("1x4096x4096", 1, 4096))
        for a, b in ((2, 2), (4, 4), (1, 2), (1, 4), (8, 8), (8, 1))
    ],
    "pack": [*(Pack(name=f"pack {kind} 4096x4096", source=kind) for kind in ("float32", "float16", "uint8", "bool")),
             Unpack(name="unpack to uint8 4096x4096")],
    "search": [Search(name="1M x 1024 bits, 10 queries")],
    "networks": [Network(name=name, file=name) for name in ("cnv-w1a1", "cnv-w1a2", "tinier-yolo-w1a3")],
    "sizes": [_square(2**i) for i in range(5, 13)],
    "threads": _threads(),
}  # fmt: skip
