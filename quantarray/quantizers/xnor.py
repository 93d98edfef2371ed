"""XNOR-Net's weights."""

from __future__ import annotations

from .sign import Sign


class XNOR(Sign):
    """value = a * sign(x), a = mean |x|: `Sign(scale=True)` under the name of its source.

    Rastegari et al., XNOR-Net, arXiv 1603.05279: of all a and all signs these have the smallest squared error. The
    paper has one a for each output channel, `scale_axis=0`.

    Zero, of either sign, is +a. Infinities are refused. A constant array decodes to itself; of zeros a = 0, of
    nothing a = 1.

    >>> import quantarray as qa, numpy as np
    >>> w = np.float32([[1, -3], [0.5, 0.5]])
    >>> qa.quantize(w, qa.XNOR(), scale_axis=0).dequantize()
    array([[ 2. , -2. ],
           [ 0.5,  0.5]], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__(scale=True)

    def __repr__(self) -> str:
        return "XNOR()"
