"""Move the channels of images to the last axis, as kernels read them: a thread for each pixel."""

from ..runtime import launch
from ..runtime.target import cuda


def put_channels_last(x, out):
    if out.size:
        launch.run(_put, *launch.rows_by_items(x.shape[0], x.shape[2]), x, out)


@cuda.jit
def _put(x, out):
    pixel, image = cuda.grid(2)
    while image < x.shape[0] and pixel < x.shape[2]:
        for channel in range(x.shape[1]):
            out[image, pixel, channel] = x[image, channel, pixel]
        image += cuda.gridDim.y * cuda.blockDim.y
