"""What is timed: ResNet-18's shapes, products, packing, whole networks."""

from ..cpu.cases import Conv, Network, Pack, Product

BATCHES = (1, 32, 256)
SHAPES = ((56, 64), (28, 128), (14, 256), (7, 512))
CASES = (
    *(
        Conv(
            name=f"{size}x{size}x{channels}, batch {batch}", batch=batch, size=size, channels=channels, outputs=channels
        )
        for batch in BATCHES
        for size, channels in SHAPES
    ),
    *(Product(name=f"{n}^3", m=n, k=n, n=n) for n in (1024, 2048, 4096, 8192, 16384)),
    Product(name="1x4096x4096", m=1, k=4096, n=4096),
    Pack(name="float32 to 1 bit, 1 GB", source="float32", rows=1 << 14, length=1 << 14),
    *(Network(name=name, file=name) for name in ("lfc-w1a1", "cnv-w1a1", "cnv-w1a2", "tinier-yolo-w1a3")),
)
