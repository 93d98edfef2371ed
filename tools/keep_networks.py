"""Save networks of every kind with this version, for a test that reads them ever after.

    python -m tools.keep_networks  # with the extra `test`

Writes `tests/data/networks/VERSION/NAME.qa`, `.npz` or `.onnx`. Beside each, `NAME.io.SUFFIX.npz` has the inputs, and
the values of every output, or the codes and the dtype of a packed one. A later version adds a folder and leaves the
others alone: files that people have saved do not change either.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa
from quantarray import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import plain_files  # noqa: E402

from tests.long import graphs  # noqa: E402

_GRAPHS = 30  # drawn
ONNX = ("conv2d_bytes", "dense", "dense_affine", "max_pool2d", "avg_pool2d", "weights_xnor")
RNG = np.random.default_rng(20261127)


def signs(*shape: int) -> qa.QuantArray:
    return qa.encode(RNG.choice([-1, 1], shape), values=(-1, 1))


def cut(*numbers: float, **law: Any) -> qa.Thresholds:
    return qa.Thresholds(list(numbers), per_channel=False, **law)


def inputs(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(-9, 10, shape).astype(np.int8)


def layers() -> dict[str, tuple[Any, np.ndarray[Any, Any]]]:
    """Return (layers, input) by name: every layer class, and laws of weights."""
    line, image, volume = inputs(2, 11, 6), inputs(2, 7, 8, 6), inputs(2, 5, 4, 6, 6)
    bits, codes = nn.Threshold(cut(0)), nn.Threshold(cut(-3, 0, 4))
    scaled = nn.Threshold(cut(-3, 0, 4, into=qa.uniform(2), scale=0.25, offset=-1.0))
    channels = nn.Threshold(qa.Thresholds(RNG.integers(-5, 6, (6, 3)), greater=RNG.random(6) < 0.5))
    w1, w2, w3 = signs(5, 3, 6), signs(5, 3, 3, 6), signs(5, 2, 3, 2, 6)
    real = {
        "xnor": qa.quantize(RNG.normal(size=(5, 3, 3, 6)), qa.XNOR(), scale_axis=0),
        "ternary": qa.quantize(RNG.normal(size=(5, 3, 3, 6)), qa.Ternary(), scale_axis=0),
        "abc": qa.quantize(RNG.normal(size=(5, 3, 3, 6)), qa.ABC(2)),
        "lq": qa.quantize(RNG.normal(size=(5, 3, 3, 6)), qa.LQ(2), scale_axis=0),
        "dorefa": qa.quantize(RNG.normal(size=(5, 3, 3, 6)), qa.DoReFa(3)),
        "table": qa.quantize(RNG.normal(size=(5, 3, 3, 6)), qa.LloydMax(2)),
        "uint8": qa.encode(RNG.integers(0, 256, (5, 3, 3, 6)), values=range(256)),
    }
    drawn: dict[str, tuple[Any, np.ndarray[Any, Any]]] = {
        "conv1d": ([bits, nn.Conv1d(w1, padding=(1, 2), bias=np.arange(5))], line),
        "conv2d": ([bits, nn.Conv2d(w2, padding=1, stride=(2, 1), dilation=(1, 2), pad_value=-1)], image),
        "conv2d_bytes": ([nn.Conv2d(w2, padding="same", requantize=cut(-4, 0, 7))], image),
        "conv2d_groups": ([codes, nn.Conv2d(signs(4, 2, 2, 3), groups=2, flip_kernel=True)], image),
        "conv2d_int64": ([bits, nn.Conv2d(w2, out_dtype=np.int64)], image),
        "conv2d_nchw": ([nn.Conv2d(qa.permute_dims(w2, (0, 3, 1, 2)), data_format="NCHW")], inputs(2, 6, 7, 8)),
        "conv3d": ([bits, nn.Conv3d(w3, padding=1, stride=2)], volume),
        "conv_transpose1d": ([bits, nn.ConvTranspose1d(w1, stride=2, output_padding=1)], line),
        "conv_transpose2d": ([codes, nn.ConvTranspose2d(w2, stride=2, padding=1, requantize=cut(0))], image),
        "conv_transpose3d": ([bits, nn.ConvTranspose3d(w3, stride=(1, 2, 1))], volume),
        "dense": ([bits, nn.Dense(signs(9, 6), bias=RNG.normal(size=9))], inputs(3, 6)),
        "dense_affine": ([bits, nn.Dense(signs(9, 6)), qa.Affine(np.full(9, 0.5), np.arange(9.0))], inputs(3, 6)),
        "dense_wide": ([codes, nn.Dense(signs(3, 130), cut(-2, 2))], inputs(3, 130)),
        "thresholds": ([channels], image),
        "max_pool1d": ([codes, nn.MaxPool1d(3, 2, 1)], line),
        "max_pool2d": ([codes, nn.MaxPool2d(2, (1, 2), ceil_mode=True, falling=np.arange(6) % 2 == 0)], image),
        "max_pool2d_indices": ([nn.MaxPool2d(2, return_indices=True)], image),
        "max_pool3d": ([bits, nn.MaxPool3d((2, 2, 3), dilation=(1, 1, 2))], volume),
        "avg_pool1d": ([codes, nn.AvgPool1d(3, padding=1, count_include_pad=True)], line),
        "avg_pool2d": ([codes, nn.AvgPool2d(2, ceil_mode=True, requantize=cut(1.0, 2.0, scale=1.0))], image),
        "avg_pool3d": ([scaled, nn.AvgPool3d(2)], volume),
        "global_avg_pool": ([codes, nn.GlobalAvgPool()], image),
        "channel_shuffle": ([codes, nn.ChannelShuffle(3), nn.Conv2d(w2)], image),
        "split_concat": ([codes, nn.Split([2, 4]), nn.Concat(), nn.Conv2d(w2)], image),
        "split_add_both": ([codes, nn.Split(2), nn.Add(cut(0, 2), return_sum=True)], image),
        "split_add": ([codes, nn.Split(2), nn.Add(cut(0, 2))], image),
    }
    drawn |= {f"weights_{name}": ([codes, nn.Conv2d(w, padding=1)], image) for name, w in real.items()}
    drawn |= {"scaled_by_xnor": ([scaled, nn.Conv2d(real["xnor"], requantize=cut(0.0, 1.0, scale=1.0))], image)}
    return drawn


def read(path: Path) -> Any:
    """Load the network of a file."""
    return nn.load_network(path) if path.suffix == ".npz" else nn.load(path)


def results(network: Any, x: Iterable[Any]) -> dict[str, Any]:
    """Run a network, and describe its outputs in arrays: values, or codes and the text of their dtype."""
    y = network(*x)
    outputs = y.items() if isinstance(y, dict) else enumerate(y if isinstance(y, (tuple, list)) else [y])
    described: dict[str, Any] = {}
    for name, one in outputs:
        if isinstance(one, qa.QuantArray):
            described |= {f"codes.{name}": one.codes(), f"dtype.{name}": np.array(str(one.dtype))}
        else:
            described[f"values.{name}"] = one
    return described


def example(path: Path) -> Path:
    """Return the path of a network's inputs and outputs."""
    return path.with_name(f"{path.stem}.io{path.suffix}.npz")


def keep(folder: Path, name: str, save: Callable[[Path], Any], x: dict[str, Any]) -> None:
    """Write a file, and what the network that is read from it gives."""
    path = folder / name
    save(path)
    outputs = results(read(path), x.values())
    np.savez_compressed(example(path), **{f"x.{k}": v for k, v in x.items()}, **outputs)


def main() -> None:
    """Write the folder of this version."""
    warnings.simplefilter("ignore")
    folder = ROOT / "tests" / "data" / "networks" / qa.__version__
    folder.mkdir(parents=True)
    for name, (rows, x) in layers().items():
        network = nn.Sequential(rows)
        keep(folder, f"{name}.qa", network.save, {"x": x})
        if name in ONNX:
            keep(folder, f"{name}.onnx", partial(network.save, x=x), {"x": x})
    for i in range(3):
        plain = plain_files.small(i)
        x = {"x": plain.arrays["input"]}
        keep(folder, f"plain{i}.npz", plain.save, x)
        keep(folder, f"plain{i}.qa", nn.load_network(folder / f"plain{i}.npz").save, x)
    for i in range(_GRAPHS):
        net, outputs = graphs.graph(np.random.default_rng([20261127, i]))
        if net.rough:  # sums that round may differ in another version
            continue
        path = folder / "drawn.onnx"
        path.write_bytes(graphs.model(net, outputs).SerializeToString())
        graph, x = nn.load(path), graphs.drawn(net, net.inputs[0].shape[0])
        path.unlink()
        keep(folder, f"graph{i:02}.qa", graph.save, x)
        with suppress(ValueError):  # ONNX has no form of some
            keep(folder, f"graph{i:02}.onnx", graph.save, x)
    sizes = [path.stat().st_size for path in folder.iterdir()]
    print(f"{folder}: {len(sizes)} files, {sum(sizes):,} bytes")


if __name__ == "__main__":
    main()
