"""Bits of words of bytes change places with words: planes become codes, and codes planes."""

import numpy as np

from ..runtime.launch import inline


@inline
def exchange(words):
    """Transpose words uint32[8]: bit p of byte b of word i and bit i of byte b of word p change places.

    Of half-words of 8 planes, word i becomes the codes of elements i, 8 + i, 16 + i and 24 + i, a byte each; and back.
    """
    _exchange(words, 1, np.uint32(0x55555555))
    _exchange(words, 2, np.uint32(0x33333333))
    _exchange(words, 4, np.uint32(0x0F0F0F0F))


@inline
def _exchange(words, apart, low):
    """Swap the high bits of each field of word i with the low bits of word i + apart."""
    shift = np.uint32(apart)
    for i in range(8):
        if i & apart == 0:
            first, second = words[i], words[i + apart]
            words[i] = (first & low) | ((second & low) << shift)
            words[i + apart] = ((first >> shift) & low) | (second & ~low)
