"""A model of `quantarray.cuda.tensor_cores.warpgroup` for the simulator: its instructions as the PTX manual says.

"Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (9.7.15): descriptors are decoded and swizzled
here by address bits, whatever the kernel thought of them. Products happen when they are waited for: until then the sums
are spoilt, and whatever touches them, or the memory that is read, is an error; so is reading what no proxy fence of the
thread that wrote it has shown.
"""

from dataclasses import dataclass

import numpy as np

M, K = 64, 256
CHUNK = 16  # bytes
SPOILT = np.int32(-0x2BAD2BAD)
WINDOW = 1 << 18  # bytes that the fields of a descriptor reach
_ROWS = {0: 16, 1: 128, 2: 64, 3: 32}  # bytes from row to row, by swizzling mode
_lane = np.arange(32)


@dataclass(frozen=True)
class Descriptor:
    """ "Matrix Descriptor Format" (9.7.15.5.1.2.2)."""

    start: int
    leading: int
    stride: int
    base: int
    mode: int

    @classmethod
    def of(cls, number):
        def bits(first, last):
            return number >> first & (1 << last - first + 1) - 1

        assert not any((bits(14, 15), bits(30, 31), bits(46, 48), bits(52, 61))), "bits that have no meaning"
        return cls(bits(0, 13) << 4, bits(16, 29) << 4, bits(32, 45) << 4, bits(49, 51), bits(62, 63))

    def chunks(self, rows):
        """Return where the two chunks of each row are, int[rows 2]: K-major "Canonical Layouts" (9.7.15.5.1.2.1.3)."""
        wide = _ROWS[self.mode]
        pattern = self.start - self.start % wide
        assert self.base == 0 and pattern % (8 * wide) == 0, "a pattern that begins between its multiples"
        row, chunk = np.arange(rows)[:, None], np.arange(2)
        along = CHUNK if self.mode else self.leading
        addresses = self.start + row // 8 * self.stride + row % 8 * wide + chunk * along
        return addresses ^ (addresses >> 7 & wide // CHUNK - 1) << 4


def fragment(warp_rows):
    """Return rows of a warp, int32[16 channels], as each lane holds them, int32[32 channels / 2]: Figure 155."""
    i = np.arange(warp_rows.shape[1] // 2)
    return warp_rows[(_lane >> 2)[:, None] + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (_lane % 4)[:, None] + i % 2]


class Product:
    """A product of one instruction: what a warp reads for it, and its sums, computed when it is waited for."""

    def __init__(self, memory, a, b):
        self.memory, self.places, self.result = memory, (a, b), None
        self.seen = [memory[place] for place in self.places]

    def sums(self):
        """Return what each lane has to add, int32[32 channels / 2]."""
        for place, seen in zip(self.places, self.seen, strict=True):
            assert (self.memory[place] == seen).all(), "memory that changes while a product reads it"
        if self.result is None:
            left, right = (np.unpackbits(s.reshape(len(s), -1).view(np.uint8), axis=1) for s in self.seen)
            self.result = fragment((left.astype(np.float32) @ right.T.astype(np.float32)).astype(np.int32))
        return self.result


class Accumulator:
    """An accumulator of a thread: the array that the thread sees, and the sums in its registers."""

    def __init__(self, shown):
        assert shown.dtype == np.int32
        self.shown, self.fenced, self.held, self.waiting = shown, None, None, 0

    def begin(self):
        if self.waiting:
            assert (self.shown == SPOILT).all(), "sums that are touched while a product adds to them"
        else:
            assert self.fenced is not None and (self.shown == self.fenced).all(), "sums used since the last fence"
            self.held = self.shown.reshape(-1).copy()
        self.waiting += 1
        self.shown[...] = SPOILT

    def end(self, sums):
        self.held += sums
        self.waiting -= 1
        if not self.waiting:
            assert (self.shown == SPOILT).all(), "sums that are touched while a product adds to them"
            self.shown.reshape(-1)[:] = self.held


class WarpgroupModels:
    """A model of the functions of `warpgroup`, for threads that copy as `models` do.

    `memory()` returns the bytes of their block.
    """

    NAMES = "mma", "fence", "fence_sums", "fence_copies", "commit", "wait", "collect"

    def __init__(self, models, memory):
        self.models, self.memory, self.fence_copies = models, memory, models.show

    def mma(self, channels):
        assert channels in (8, 16, 24, *range(32, 257, 16)), "a shape that there is not"
        return lambda sums, a, b: self._begin(channels, sums, a, b)

    def _begin(self, channels, sums, a, b):
        lane, shown = self.models.exchange((int(a), int(b), channels))
        assert shown[lane] == shown[0], "lanes that do not agree"
        me = self.models.current()
        assert vars(me).get("fenced"), "products that no fence comes before"
        accumulator = self._accumulator(sums)
        assert sums.size == channels // 2
        accumulator.begin()
        me.products = vars(me).get("products", 0) + 1
        product = self._product(me, shown[0])
        vars(me).setdefault("begun_products", []).append((accumulator, product, lane))

    def _product(self, me, operands):
        """Look up what this warp reads, once for its lanes. All warps of the group name the same."""
        warp = me.thread_id // 32
        begun = vars(me.block).setdefault("begun_products", {})
        assert begun.setdefault(("operands", warp // 4, me.products), operands) == operands, "warps that do not agree"
        if (warp, me.products) not in begun:
            memory = self.memory()
            base, chunks = memory.ctypes.data, memory.view(np.uint64).reshape(-1, 2)
            a, b, channels = operands
            rows, columns = Descriptor.of(a).chunks(M)[16 * (warp % 4) :][:16], Descriptor.of(b).chunks(channels)
            places = [(addresses - base) % WINDOW // CHUNK for addresses in (rows, columns)]
            words = base + np.concatenate([place.reshape(-1) for place in places])[:, None] * CHUNK + [0, 8]
            assert self.models.unseen.isdisjoint(words.reshape(-1).tolist()), "words that no proxy fence has shown"
            begun[warp, me.products] = Product(chunks, *places)
        return begun[warp, me.products]

    def _accumulator(self, sums):
        known = vars(self.models.current()).setdefault("accumulators", {})
        return known.setdefault(sums.ctypes.data, Accumulator(sums))

    def fence(self):
        self.models.current().fenced = True

    def fence_sums(self, channels):
        def order(sums):
            self._accumulator(sums).fenced = sums.copy()
            self.fence()

        return order

    def commit(self):
        me = self.models.current()
        vars(me).setdefault("product_groups", []).append(vars(me).pop("begun_products", []))
        me.fenced = False

    def wait(self, groups):
        waiting = vars(self.models.current()).setdefault("product_groups", [])
        while len(waiting) > groups:
            for accumulator, product, lane in waiting.pop(0):
                accumulator.end(product.sums()[lane])

    def collect(self, channels):
        def order(sums):
            self.wait(0)
            assert not self._accumulator(sums).waiting, "products that were not committed"

        return order
