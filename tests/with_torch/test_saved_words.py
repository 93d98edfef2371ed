"""Words of saved tensors in an arena."""

import pytest
import torch

from quantarray.torch.host import Packer
from quantarray.torch.layout import layout_of


@pytest.mark.parametrize("bits", range(1, 9))
def test_words_that_were_given_back_are_written_whole(bits):
    """A tensor that is not of two values after all gives back words of ones, which the next tensors take."""
    packer, size = Packer(), 64 * 37 + 5
    third = torch.ones(size)
    third[-1] = 0.5
    layout = layout_of(third)
    for make in (
        lambda: packer.round_off(torch.randn(size, generator=torch.Generator().manual_seed(1)), layout, bits, 256, 7),
        lambda: packer.pack_flags(torch.arange(size) % 3 == 0, layout, -1, 1, torch.float32),
        lambda: packer.pack_compared(torch.arange(size) - 1000.0, layout, 3, 900, True, (0, 1)),
    ):
        expected = make().restore()
        for _ in range(3):
            assert packer.pack_compared(third, layout, 0.25, 1, False, (0, 1)) is None
            assert torch.equal(make().restore(), expected)
