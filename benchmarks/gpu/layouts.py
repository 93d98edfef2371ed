"""Two orders of the planes of an image: outermost, as a `QuantArray` has them, and beside the pixel.

Both read every word of all planes of each pixel once, a thread a pixel's word, and add up their bits.
"""

import numpy as np

_PIXELS, _WORDS, _CALLS = 1 << 20, 2, 20


def kernels():
    """{name: kernel(words, planes, out)} for words uint64 of planes, pixels and words of a pixel in either order."""
    from numba import cuda

    @cuda.jit
    def outermost(words, planes, out):
        i = cuda.grid(1)
        if i < out.size:
            total = np.int64(0)
            for plane in range(planes):
                total += np.int64(cuda.popc(words[plane * out.size + i])) << plane
            out[i] = total

    @cuda.jit
    def beside(words, planes, out):
        i = cuda.grid(1)
        if i < out.size:
            total = np.int64(0)
            first = i // _WORDS * _WORDS * planes + i % _WORDS
            for plane in range(planes):
                total += np.int64(cuda.popc(words[first + plane * _WORDS])) << plane
            out[i] = total

    return {"planes outermost": outermost, "planes beside the pixel": beside}


def compared(planes=(2, 4, 8), pixels=_PIXELS):
    """Time both orders of planes by Numba's events and return rows of seconds a call; their sums must be equal."""
    from numba import cuda

    rows, rng = [], np.random.default_rng(0)
    for count in planes:
        words = rng.integers(0, 1 << 64, (count, pixels, _WORDS), np.uint64)
        orders = words.reshape(-1), np.ascontiguousarray(words.transpose(1, 0, 2)).reshape(-1)
        sums = []
        for (name, kernel), order in zip(kernels().items(), orders, strict=True):
            words_on_device, out = cuda.to_device(order), cuda.device_array(pixels * _WORDS, np.int64)
            call = kernel[-(-out.size // 256), 256]
            call(words_on_device, count, out)
            begin, end = cuda.event(), cuda.event()
            begin.record()
            for _ in range(_CALLS):
                call(words_on_device, count, out)
            end.record()
            end.synchronize()
            rows.append({"order": name, "planes": count, "seconds": begin.elapsed_time(end) / 1000 / _CALLS})
            sums.append(out.copy_to_host())
        assert (sums[0] == sums[1]).all(), "orders that do not hold the same"
    return rows
