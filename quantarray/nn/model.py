"""Methods that graphs, layers in a row and networks share: pictures, and predictions in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..arrays import checks
from ..core.dtypes import Array
from ..io.files import path_of, whole

if TYPE_CHECKING:
    from .drawing.svg import Drawing
    from .images import Layout


class Model:
    """A network that can be drawn and run in batches."""

    def _drawing(self, x: Any) -> Drawing:
        raise NotImplementedError

    _named_inputs = False  # True where a batch may be a dict of arrays by input

    @property
    def _fixed_batch(self) -> int | None:
        """Return the only length that a batch may have; None if it may have any."""
        return None

    def _run_batch(self, x: Any) -> Any:
        """Run a batch that is on the CPU, and return its results there."""
        raise NotImplementedError

    def _layout(self) -> tuple[int | None, Layout | None, str]:
        """Return the number of axes of a batch, if known, the images that the network takes, if any, and its input."""
        return None, None, "no input that it describes"

    def predict(
        self,
        data: Any,
        *,
        batch: int = 64,
        progress: bool = False,
        out: Any = None,
        preprocess: Callable[[Array], Any] | None = None,
    ) -> Any:
        """Run the network on data of any length in batches, and return the results of all rows.

        Memory is bounded by a batch and the results. A network that takes one length of batch alone gets that.

        | data                                     | results                                                        |
        |------------------------------------------|----------------------------------------------------------------|
        | an array, `np.memmap`, or a path to .npy | an array [n ..]; packed if those of a batch are packed         |
        | a dict of arrays by input (`Graph`)      | the same                                                       |
        | an iterable of batches, or of samples    | the same                                                       |
        | a folder of images, or a list of files   | `Predictions(files, values)`, by name of file, or as listed    |

        A `Graph` of several outputs gives a dict of arrays by output. out: an array for the results, such as an
        `np.memmap`, or a dict of them; it is returned. progress: draw a bar on stderr after a second, if that is a
        terminal and the number of rows is known.

        Images (`pip install quantarray[images]`) are turned upright, and brought to the size and to the channels, grey
        or RGB, of the network's input. Floats are byte / 255; integers keep their bytes, scaled to the input's range
        where it is another. preprocess: a function from bytes [n h w c] to the network's input instead. The byte of a
        16-bit value v is v // 256. Refused are images with transparent pixels, files of several images, and pixels of
        no known range: floats, 32-bit and signed integers.

        Raises TypeError or ValueError that names the row or file.

        >>> import quantarray as qa, numpy as np
        >>> net = qa.nn.Sequential([qa.nn.Dense(qa.encode(np.ones((2, 64), int), values=(-1, 1)))])
        >>> net.predict(np.ones((1000, 64), np.int8), batch=256).shape
        (1000, 2)
        """
        from .batches import feed
        from .predicting import predict

        checks.integer("predict", "batch", batch, 1)
        if isinstance(data, Mapping) and not self._named_inputs:
            raise TypeError("predict: the network has one input without a name; pass its array instead of a dict")
        batch = self._fixed_batch or batch
        ndim, layout, takes = self._layout()

        def images() -> Layout:
            if layout is None:
                raise ValueError(f"predict: the network takes {takes}, which no image files have; pass an array")
            return layout if preprocess is None else layout._replace(convert=preprocess)

        batches = feed("predict", data, batch, ndim, images)
        if preprocess is not None and not batches.files:
            raise ValueError("predict: preprocess= is for image files; apply it to the array")
        return predict(self._run_batch, batches, out, progress)

    def plot(self, file: str | os.PathLike[str], x: Any = None) -> None:
        """Draw the network to an SVG file, whole or not at all: operations in order, branches beside each other.

        A box has the operation, its output's shape, dtype and bits, its weights and their bytes. Packed operations,
        those with a float result and those in NumPy have different colours. x: an input, for whose batch shapes are
        shown. A `Sequential` does not describe its input, and is drawn without shapes unless x is passed.

        Raises ValueError if the file does not end in .svg.

        >>> import quantarray as qa, os, tempfile
        >>> net = qa.nn.Sequential([qa.nn.MaxPool2d(2), qa.nn.Dense(qa.encode([[1, -1]], values=(-1, 1)))])
        >>> path = os.path.join(tempfile.mkdtemp(), "net.svg")
        >>> net.plot(path)
        >>> "max_pool2d 2x2" in open(path).read()
        True
        """
        from .drawing.svg import svg

        path = path_of("plot", file)
        if path.suffix.lower() != ".svg":
            raise ValueError(f"plot: the file must end in .svg, got {str(path)!r}")
        text = svg(self._drawing(x))
        whole("plot", path, lambda temporary: _write(temporary, text))

    def _repr_html_(self) -> str | None:
        """Return the picture for notebooks, in a box that scrolls; None, so that text is shown, if it has none."""
        from .drawing.svg import svg

        try:
            return f'<div style="max-height: 40em; overflow: auto">{svg(self._drawing(None))}</div>'
        except (TypeError, ValueError):
            return None


def _write(path: os.PathLike[str], text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
