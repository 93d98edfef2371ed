"""Move the channels of images to the last axis, as kernels read them."""

from ..runtime import threads
from ..runtime.jit import borrowing
from ..runtime.schedule import Kernel

_LEAST = 1 << 17  # elements that are worth a parallel region
_PIXELS = 4096  # of a task
_BLOCK = 64  # pixels whose channels stay in L1


def put_channels_last(x, out):
    if not out.size:
        return
    pieces = -(-x.shape[2] // _PIXELS)
    threads.run(_put, (x, out, pieces), len(x) * pieces, threads.workers(out.size, _LEAST))


@Kernel
def _put(x, out, pieces, first, last):
    for task in range(first, last):
        image, begin = task // pieces, task % pieces * _PIXELS
        end = min(begin + _PIXELS, x.shape[2])
        if x.shape[1] == 3:
            _put_three(x[image, 0, begin:end], x[image, 1, begin:end], x[image, 2, begin:end], out[image, begin:end])
            continue
        for block in range(begin, end, _BLOCK):
            for channel in range(x.shape[1]):
                source, to = x[image, channel, block : min(block + _BLOCK, end)], out[image, block:end]
                for pixel in range(len(source)):
                    to[pixel, channel] = source[pixel]


@borrowing
def _put_three(red, green, blue, out):
    """Put three channels side by side, which the compiler does by shuffles of whole vectors."""
    for pixel in range(len(red)):
        out[pixel, 0], out[pixel, 1], out[pixel, 2] = red[pixel], green[pixel], blue[pixel]
