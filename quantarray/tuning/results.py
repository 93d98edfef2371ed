"""Results of `autotune`: calls, the microseconds of each kernel that can make them, and the one that is taken."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.text import table
from ..ops.products import convolution, convolution_1d_3d, matrix_product

_TUNED: dict[str, Any] = {
    "conv1d": convolution_1d_3d.conv1d,
    "conv2d": convolution.conv2d,
    "conv3d": convolution_1d_3d.conv3d,
    "linear": matrix_product.linear,
    "matmul": matrix_product.matmul,
}


_OPERANDS = ("bias", "out", "residual", "return_sum")  # of no meaning to a kernel of products


class Problem(NamedTuple):
    """A call as far as its time depends on it: all but words and the values of constants; plain text, for files."""

    op: str
    x: str  # law and shape, as in "uint2 1x56x56x64"
    w: str
    options: str  # those that are not the function's defaults

    def __str__(self) -> str:
        return f"{self.op}  {self.x}  {self.w}  {self.options}".rstrip()


def problem_of(op: str, x: Any, w: QuantArray, arguments: tuple[Any, ...], bias: Array | None) -> Problem:
    """Describe the problem of a call; `options` are the function's options in their order, without bias and out.

    >>> import quantarray as qa
    >>> x, w = (qa.zeros(shape, qa.uint2) for shape in ((1, 8, 8, 64), (32, 3, 3, 64)))
    >>> str(problem_of("conv2d", x, w, (2, 1, 1, 1, 0, None, None, "NHWC", False), None))
    'conv2d  uint2 1x8x8x64  uint2 32x3x3x64  stride=2 padding=1'
    """
    options = [
        f"{name}={value}"
        for (name, default), value in zip(_options(op), arguments, strict=True)
        if not (value is default or (type(value) is type(default) and value == default))
    ]
    options += [] if bias is None else [f"bias={bias.dtype}"]
    return Problem(op, _operand(x), _operand(w), " ".join(options))


@cache
def _options(op: str) -> tuple[tuple[str, Any], ...]:
    parameters = inspect.signature(_TUNED[op]).parameters.values()
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _OPERANDS]
    return tuple((p.name, p.default) for p in named)


def _operand(a: Any) -> str:
    text = f"{a.dtype} {_by(a.shape)}"
    if not isinstance(a, QuantArray):
        return text
    text += f" axis {a.axis}" if a.axis != a.ndim - 1 else ""
    text += "".join(f" {name} {_by(constant.shape)}" for name, constant, _ in a.constants.items())
    return text + (f" group {a.group}" if a.group is not None else "")


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


class Row(NamedTuple):
    """A problem on a number of threads: median microseconds of a call by kernel, the one that is kept, the model's."""

    problem: Problem
    threads: int
    us: dict[str, float]
    kernel: str
    model: str

    @property
    def gain(self) -> float:
        """Return how many times as fast the chosen kernel is as the model's."""
        return self.us[self.model] / self.us[self.kernel]

    def to_json(self) -> dict[str, Any]:
        return self.problem._asdict() | {name: value for name, value in self._asdict().items() if name != "problem"}


class Tuned:
    """A list of the calls that were met in an `autotune` block and had a choice of kernels, in the order in which they
    came.

    Its repr is a table; `len`, iteration and indexing go over the rows (`Row`), and `to_json` gives plain dictionaries.
    `file` is where they are saved when the block ends, or None.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._rows: dict[tuple[int, Problem], Row] = {}

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows.values())

    def add(self, row: Row) -> None:
        self._rows[row.threads, row.problem] = row

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    def to_json(self) -> dict[str, Any]:
        """Return the rows and the file as numbers, strings, lists, dictionaries and None only."""
        return {"file": None if self.file is None else str(self.file), "rows": [row.to_json() for row in self]}

    def __repr__(self) -> str:
        if not self:
            return "no call had a choice of kernels"
        names = list(dict.fromkeys(name for row in self for name in row.us))
        header = ["call", "threads", *(f"{name} us" for name in names), "chosen", "model", "gain"]
        return table(header, [_cells(row, names) for row in self], indent="")


def _cells(row: Row, names: list[str]) -> list[str]:
    us = [f"{row.us[name]:,.1f}" if name in row.us else "-" for name in names]
    return [str(row.problem), str(row.threads), *us, row.kernel, row.model, f"{row.gain:.2f}x"]
