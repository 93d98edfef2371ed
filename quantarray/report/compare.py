"""`compare`: schemes side by side on one array."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arrays import checks
from ..arrays.size_text import ratio
from ..core.text import table
from ..io.files import whole
from ..ops.quantize.quantization import kept_axes, quantize
from ..quantizers import Quantizer
from . import picture
from .measure import Row, finite_or_none, measured, quantizers_of

_HEADER = ["scheme", "bits", "padding", "constants", "error", "angle", "bytes", "than float32", "levels used"]
_HEADER += ["entropy", "ms"]


@dataclass(frozen=True, repr=False)
class Comparison:
    """A result of `compare`: `shape` of the array, and a `Row` for each scheme in the order they were given.

    Its repr is a table; `len`, iteration and indexing go over the rows, and `to_json` gives plain dictionaries.
    """

    shape: tuple[int, ...]
    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    def to_json(self) -> dict[str, Any]:
        """Return shape and rows as numbers, strings, lists and None only; an infinite error is None."""
        return {"shape": list(self.shape), "rows": [finite_or_none(row) for row in self.rows]}

    def __repr__(self) -> str:
        lines = table(_HEADER, [_cells(row) for row in self.rows if row.refused is None], indent="")
        refused = [f"{row.scheme}  refused: {row.refused}" for row in self.rows if row.refused is not None]
        return "\n".join([lines, *refused])


def _cells(row: Row) -> list[str]:
    assert row.nbytes is not None and row.smaller is not None  # a refusal has no cells
    return [
        row.scheme,
        f"{row.bits:.2f}",
        f"{row.padding:.2f}",
        f"{row.constants:.2f}",
        f"{row.error:.3g}",
        f"{row.angle:.2f}",
        f"{row.nbytes:,}",
        ratio(row.nbytes, round(row.nbytes * row.smaller)),
        f"{row.used} of {row.levels}",
        f"{row.entropy:.2f}",
        f"{row.ms:.2f}",
    ]


def compare(
    x: Any,
    quantizers: Iterable[Quantizer] | None = None,
    axis: int = -1,
    scale_axis: int | tuple[int, ...] | None = None,
    group: int | None = None,
    *,
    bits: int | None = None,
    plot: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Measure distortion, size, use of levels and time of schemes on x, as a table and, with `plot`, as a picture.

    quantizers: a list of them, or instead `bits` for all published schemes of so many bits that need nothing but
    data. axis, scale_axis and group are `quantize`'s. With q what a scheme decodes to, a row has

    | field             | meaning                                                                              |
    |-------------------|--------------------------------------------------------------------------------------|
    | `bits`            | bits an element: 8 * nbytes / elements, of its code, padding and constants           |
    | `padding`         | of those, bits of words beyond the end of a row: 14 of 64 for a row of 50            |
    | `constants`       | of those, its share of the constants                                                 |
    | `error`           | sum (x - q)**2 / sum x**2; of zeros, 0 if q is zeros too, else infinity               |
    | `angle`           | arccos(x . q / (abs x * abs q)) in degrees; 0 if both are zeros, 90 if one is          |
    | `nbytes`,`smaller`| bytes of words and constants, and of float32 divided by that                         |
    | `used`, `levels`  | codes that occur in q, of those that there are                                       |
    | `entropy`         | -sum p log2 p over the frequencies of the codes, in bits: `bits` if all occur alike   |
    | `ms`              | milliseconds to fit and encode, compilation not counted                              |
    | `refused`         | why this scheme does not take x (its ValueError), with None in the other fields      |

    Where q is the best multiple of itself, as the fit by least squares makes it, error = sin(angle)**2.

    plot: a path that ends in .png, written whole or not at all. It has the histogram of x over each scheme's levels,
    errors and bits as bars, and, where x is an image [h w] or [h w 3], the decoded images.

    Raises TypeError unless exactly one of quantizers and bits is given, ValueError for an array without elements or
    with NaN or infinities, which have no error, ImportError for a plot without matplotlib.

    >>> import quantarray as qa, numpy as np
    >>> found = qa.compare(np.float32([-2, -1, 1, 2]), [qa.XNOR(), qa.LloydMax(1), qa.Uniform(2)])
    >>> [(row.scheme, row.error, round(row.angle, 2), row.used) for row in found]
    [('XNOR()', 0.1, 18.43, 2), ('LloydMax(1)', 0.1, 18.43, 2), ('Uniform(2)', 0.2, 26.57, 3)]
    """
    op = "compare"
    a = checks.real_array(op, "x", x)
    chosen = quantizers_of(quantizers, bits)
    kept_axes(op, a.shape, checks.axis(op, axis, a.ndim), scale_axis, group, None)  # a wrong axis is no refusal
    if not a.size:
        raise ValueError(f"{op}: x must have elements, got shape {a.shape}")
    checks.finite(op, "x", a)
    path = None if plot is None else picture.target(plot)
    rows_and_arrays = [measured(a, q, lambda q: quantize(a, q, axis, scale_axis, group)) for q in chosen]
    comparison = Comparison(a.shape, tuple(row for row, _ in rows_and_arrays))
    if path is not None:
        drawn = [(row, q) for row, q in rows_and_arrays if q is not None]
        whole(op, Path(path), lambda file: picture.draw(file, a, drawn))
    return comparison
