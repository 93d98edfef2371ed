"""Generate docs/validated-networks.md: every trained network at hand, run and compared, value by value.

    python -m tools.validated_networks [FOLDER ...] > docs/validated-networks.md

Folders, with those below them, may hold networks of plain integers (`.npz`), which have samples and their results;
ONNX files with an `expected.npz` of scores beside them, for images of an `images.npz` there; and MNIST's test images
(`t10k-*-ubyte.gz`), for accuracies. The networks of the repository are always run. Where `qonnx` is installed
(`pip install qonnx`), the trained networks of its wheel are compared with its executor.
"""

from __future__ import annotations

import datetime
import gzip
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa
from quantarray.arrays.size_text import ratio
from quantarray.core.machine import cpu_name
from tools import qonnx_wheel

ROOT = Path(__file__).parents[1]
HERE = (ROOT / "quantarray" / "data", ROOT / "tests" / "data" / "qonnx")
SOURCES = {
    "digits": "trained for this package",
    "lfc": "BNN-PYNQ, Xilinx",
    "cnv": "BNN-PYNQ, Xilinx",
    "tinier-yolo": "QNN-MO-PYNQ, Xilinx",
    "TFC": "Brevitas, QONNX",
    "espcn": "Brevitas, wheel of qonnx",
}
BATCH, SECONDS = 64, 0.5
SLOW = 2e-3  # seconds an image, from which on batches are not timed
_INTRODUCTION = """# Validated networks

This table compares the results of trained networks with known results, value by value
(`python -m tools.validated_networks FOLDER ... > docs/validated-networks.md`). Each network is also written as a `.qa`
file and as a QONNX file, and loaded again: `files` lists the files that gave the same values, bit for bit. `equal`
counts the values that agree with the known ones, and `right` the images that are classified correctly.

Times are medians, from a NumPy array to a NumPy array, and do not include compilation. `one image` is the time of a
call with one image. `in batches` is the time per image of calls with 64 images; it is not measured if one image takes 2
ms or more. `weight bytes` is the size of the packed weights; how many times smaller that is than float32 weights
follows in brackets.
"""
_HEAD = ("network", "source", "bits", "compared", "equal", "right", "files", "one image", "in batches", "weight bytes")


class Case(NamedTuple):
    """A network and what it is compared with: `expected` of `x`; floats within `tolerance`, relative."""

    name: str
    network: Any
    x: Any
    expected: Any
    what: str
    labels: Any = None  # classes of x
    tolerance: float = 0.0


class Row(NamedTuple):
    """A row of the table."""

    name: str
    source: str
    bits: str
    compared: str
    equal: str
    right: str
    files: str
    one: str
    batches: str
    nbytes: str


def cases(folders: list[Path]) -> Iterator[Case]:
    """Yield the networks of folders, by kind and name."""
    places = [*HERE, *folders]
    mnist = _mnist(places)
    for path in _files(places, ".npz"):
        if path.name not in ("expected.npz", "images.npz"):
            yield _plain(path, mnist)
    for path in _files(places, ".onnx"):
        scores, images = path.with_name("expected.npz"), path.with_name("images.npz")
        if scores.exists() and images.exists():
            yield _trained(path, np.load(scores), np.load(images)["images"], mnist)
    yield from (Case(*parts) for parts in qonnx_wheel.networks())


def _files(places: list[Path], ending: str) -> list[Path]:
    """Return the files of folders, the first of each name."""
    by_name: dict[str, Path] = {}
    for place in places:
        for path in sorted(place.rglob(f"*{ending}")):
            by_name.setdefault(path.name, path)
    return list(by_name.values())


def _mnist(places: list[Path]) -> tuple[Any, Any] | None:
    """Return MNIST's test images and labels, if a folder has them."""
    paths = [path for place in places for path in sorted(place.rglob("t10k-*-ubyte.gz"))]
    if len(paths) < 2:
        return None
    images, labels = (gzip.decompress(path.read_bytes()) for path in paths[:2])
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)


def _plain(path: Path, mnist: Any) -> Case:
    network = qa.nn.load_network(path)
    plain = network.plain
    labels = plain.labels
    x, what = plain.input, "integer scores" if len(plain.layers[-1].shape) == 1 else "codes of the last layer"
    if labels is None and mnist is not None and x.shape[1:] == (784,):
        labels = (mnist[0].reshape(-1, 784), mnist[1])
    return Case(path.stem, network, x, plain.expected, f"{what} of {_images(len(x))}", labels)


def _trained(path: Path, scores: Any, images: Any, mnist: Any) -> Case:
    key = next(k for k in scores if path.stem.endswith(k))
    labels = None if mnist is None else (_pixels(mnist[0]), mnist[1])
    x = _pixels(images)
    what = f"scores of {_images(len(x))} within 1e-5, relative"
    return Case(path.stem, qa.nn.load(path), x, scores[key], what, labels, 1e-5)


def _images(count: int) -> str:
    return f"{count:,} image{'s' * (count > 1)}"


def _pixels(images: Any) -> Any:
    return images.reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255)


def row(case: Case) -> Row:
    """Run a network, compare, write it as files, and time it."""
    values = _values(case.network(case.x))
    expected = np.asarray(case.expected)
    equal = np.isclose(values, expected, rtol=case.tolerance, atol=0.0) if case.tolerance else values == expected
    one = _seconds(lambda: case.network(case.x[:1]))
    batch = case.x[np.arange(BATCH) % len(case.x)]
    packed = sum(w.nbytes for w in _weights(case.network))
    full = 4 * sum(w.size for w in _weights(case.network))
    return Row(
        case.name,
        next((text for stem, text in SOURCES.items() if stem in case.name), "-"),
        _bits(case.network),
        case.what,
        _equal(values, expected, equal),
        _right(case),
        _files_of(case, values),
        _time(one),
        _time(_seconds(lambda: case.network(batch)) / BATCH) if one < SLOW else "-",
        f"{packed:,} ({ratio(packed, full, 0)})" if packed else "0",
    )


def _equal(values: Any, expected: Any, equal: Any) -> str:
    count = f"{int(equal.sum()):,} of {equal.size:,}"
    return count if equal.all() else f"{count}, others within {np.abs(values - expected).max():.2g}"


def _values(result: Any) -> Any:
    return result.dequantize() if isinstance(result, qa.QuantArray) else np.asarray(result)


def _weights(network: Any) -> list[Any]:
    if isinstance(network, qa.nn.Network):
        return network.layers.weights
    return [a for node in network.nodes for a in _constants(network, node) if isinstance(a, qa.QuantArray)]


def _constants(graph: Any, node: Any) -> list[Any]:
    return [graph.constants[name] for name in node.inputs if name in graph.constants]


def _bits(network: Any) -> str:
    """Return bits of weights and of codes between layers, such as "W1 A2"."""
    if isinstance(network, qa.nn.Network):
        cuts = [cut for layer in network.layers if (cut := getattr(layer, "requantize", None)) is not None]
    else:
        cuts = [a for n in network.nodes for a in _constants(network, n) if isinstance(a, qa.Thresholds)]
    sides = (("W", {w.bits for w in _weights(network)}), ("A", {cut.into.bits for cut in cuts}))
    return " ".join(f"{name}{'/'.join(map(str, sorted(bits)))}" for name, bits in sides if bits)


def _right(case: Case) -> str:
    """Return the share of images whose best score is that of their class."""
    if case.labels is None:
        return "-"
    x, labels = case.labels if isinstance(case.labels, tuple) else (case.x, case.labels)
    right = int((_values(case.network.predict(x, batch=1000)).argmax(axis=1) == labels).sum())
    return f"{100 * right / len(labels):.2f} % of {len(labels):,}"


def _files_of(case: Case, values: Any) -> str:
    """Return the endings of the files that load to a network of the same values."""
    same = []
    with tempfile.TemporaryDirectory() as folder:
        for ending in (".qa", ".onnx"):
            path = Path(folder) / f"network{ending}"
            try:
                case.network.save(path)
                again = qa.nn.load(path)
            except ValueError:  # an operation without a form in such a file: the table then lacks the ending
                continue
            if np.array_equal(_values(again(case.x)), values):
                same.append(ending)
    return " ".join(same) or "none"


def _seconds(call: Callable[[], Any]) -> float:
    """Return the median time of a call."""
    for _ in range(3):
        call()
    times: list[float] = []
    began = time.perf_counter()
    while not times or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"


def page(folders: list[Path]) -> str:
    """Return the page as Markdown."""
    rows = [row(case) for case in cases(folders)]
    lines = ["| " + " | ".join(cells) + " |" for cells in (_HEAD, ("---",) * len(_HEAD), *rows)]
    today = datetime.date.today().isoformat()
    machine = f"{cpu_name()}, {qa.get_num_threads()} threads, quantarray {qa.__version__}, {today}."
    return "\n".join([_INTRODUCTION, *lines, "", f"Times: {machine}", ""])


if __name__ == "__main__":
    print(page([Path(name) for name in sys.argv[1:]]), end="")
