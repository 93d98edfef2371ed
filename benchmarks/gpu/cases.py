"""Cases by suite, the most telling ones first, since a run may end early."""

from ..cpu.cases import Conv, Network, Pack, Product
from .calls import CALLS

SHAPES = ((56, 64), (28, 128), (14, 256), (7, 512))  # ResNet-18's four 3x3 shapes


def _convolutions(batch):
    return [
        Conv(
            name=f"{size}x{size}x{channels}, batch {batch}", batch=batch, size=size, channels=channels, outputs=channels
        )
        for size, channels in SHAPES
    ]


def _networks(file, *batches):
    return [Network(name=f"{file}, batch {batch}", file=file, batch=batch) for batch in batches]


SUITES = {
    "product": [
        *(Product(name=f"{n}^3", m=n, k=n, n=n) for n in (8192, 4096, 1024, 2048, 16384)),
        Product(name="1x4096x4096", m=1, k=4096, n=4096),
    ],
    "conv": [*_convolutions(32), *_convolutions(1), *_convolutions(256)],
    "pack": [Pack(name="float32 to 1 bit, 1 GB", source="float32", rows=1 << 14, length=1 << 14)],
    "calls": [
        Conv(name="14x14x64, batch 1", batch=1, size=14, channels=64, outputs=64),
        Product(name="8x512x512", m=8, k=512, n=512),
        *CALLS,
    ],
    "network": [
        *_networks("cnv-w1a1", 1, 256),
        *_networks("lfc-w1a1", 1, 1024),
        *_networks("cnv-w1a2", 1, 256),
        *_networks("tinier-yolo-w1a3", 1, 16),
    ],
}
