"""`.qa` files of arrays and networks, damaged: what is loaded is what was saved, or nothing is.

Two files hold the same where what is loaded from both is saved as the same bytes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa
from quantarray import nn
from quantarray.io import document

from . import damage, other_files
from .stored import Array, content, draw_array, packed

Attempt = Callable[..., Any]
# What a call of a network may raise whose arguments are lawful, but for other inputs than it gets here
_REFUSALS = (TypeError, ValueError, OverflowError, MemoryError)
_DENSE = ("|b1", "|u1", "|i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8")


def document_file(rng: np.random.Generator, folder: Path, attempt: Attempt) -> str:
    """Damage a `.qa` file, or rewrite a part of it with a digest that fits.

    A damaged file must load as it was saved or be refused; a rewritten one must be consistent or refused.
    """
    stored = _draw(rng)
    load = nn.load if isinstance(stored, (nn.Sequential, nn.Network)) else qa.load
    path, again = folder / "file.qa", folder / "again.qa"
    _save(path, stored)
    data = path.read_bytes()
    assert _bytes(load(path), again) == data, "another file is saved of what is loaded"
    rewritten = rng.random() < 0.4
    if rewritten:
        damaged = _rewritten(rng, path)
    elif rng.random() < 0.7:
        damaged = damage.anywhere(rng, data)
    else:
        damaged = damage.header_of_tensors(rng, data)
    path.unlink()  # what is mapped of it stays: a mapped file is never written into
    path.write_bytes(damaged)
    loaded = attempt(path, load, qa.FormatError, "load", rng.random() < 0.25)
    if loaded is None:
        return "qa"
    if rewritten:
        _consistent(loaded, folder, load)
    else:
        assert _bytes(loaded, again) == data, "a damaged file is loaded as another one"
    return "qa"


def _save(path: Path, stored: Any) -> None:
    path.unlink(missing_ok=True)
    if isinstance(stored, (nn.Sequential, nn.Network)):
        stored.save(path)
    else:
        qa.save(path, stored)


def _bytes(stored: Any, path: Path) -> bytes:
    _save(path, stored)
    return path.read_bytes()


def _draw(rng: np.random.Generator) -> Any:
    """Draw an array, a dict of arrays, layers in a row, or a network of plain integers."""
    way = rng.random()
    if way < 0.2:
        return draw_array(rng)
    if way < 0.5:
        names = rng.permutation(["w", "größe", "a b", "0.weight", "x.scale"])[: int(rng.integers(4))]
        return {str(name): draw_array(rng) if rng.random() < 0.5 else _dense(rng) for name in names}
    if way < 0.8:
        return nn.Sequential(damage.pick(rng, _layers()) for _ in range(int(rng.integers(5))))
    return damage.pick(rng, _networks(int(rng.integers(2))))


def _dense(rng: np.random.Generator) -> Array:
    dtype = np.dtype(damage.pick(rng, _DENSE))
    shape = [int(n) for n in rng.integers(0, 6, int(rng.integers(0, 4)))]
    if dtype.kind == "b":
        return np.array(rng.random(shape) < 0.5)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


@cache
def _layers() -> list[Any]:
    """Build layers of every kind, with thresholds of every kind."""
    rng = np.random.default_rng(0)

    def bits(*shape: int) -> qa.QuantArray:
        return qa.encode(rng.choice([-1, 1], shape), values=(-1, 1))

    scaled = qa.quantize(rng.normal(size=(4, 3, 3, 8)), qa.XNOR(), scale_axis=0)
    thresholds = [
        qa.Thresholds([0]),
        qa.Thresholds([[0, 5]] * 4, greater=[True, False, True, False], into=qa.integers(7, -7, 0)),
        qa.Thresholds(np.float32([1.5, 2.5, 3.5]), into=qa.uniform(2), scale=0.5, offset=-1.0),
        qa.Thresholds([1, 2, 3, 4], per_channel=True, strict=False),
    ]
    convolutions = [
        nn.Conv2d(bits(4, 3, 3, 8), bias=[1, 2, 3, 4], padding="same", requantize=thresholds[1]),
        nn.Conv2d(scaled, stride=(1, 2), padding=((1, 0), (2, 1)), pad_value=0.5, bias=np.ones(4), flip_kernel=True),
        nn.Conv2d(bits(4, 3, 3, 2), groups=4, dilation=2, padding=2, requantize=thresholds[3]),
    ]
    others = [
        nn.Conv1d(bits(4, 3, 8), padding="same"),
        nn.Conv3d(bits(4, 1, 3, 3, 8), stride=(1, 2, 1), requantize=thresholds[0]),
        nn.ConvTranspose1d(bits(4, 3, 8)),
        nn.ConvTranspose2d(bits(4, 2, 2, 8), stride=2, bias=np.arange(4)),
        nn.ConvTranspose3d(bits(4, 1, 3, 3, 8), stride=2, output_padding=(0, 1, 1)),
        *(nn.Add(thresholds[0], return_sum=True), nn.ChannelShuffle(2), nn.Concat(), nn.Split([1, 3], axis=1)),
    ]
    pools = [
        nn.MaxPool1d(2, padding=((1, 0),), ceil_mode=True),
        nn.MaxPool2d(2, 1, 1),
        nn.MaxPool3d((1, 2, 1), dilation=2, return_indices=True),
        nn.AvgPool1d(2, 1, count_include_pad=True),
        nn.AvgPool2d((2, 1), data_format="NCHW"),
        nn.AvgPool3d(2, requantize=thresholds[0]),
        nn.GlobalAvgPool(requantize=thresholds[0]),
    ]
    others += [nn.Dense(bits(3, 8), out_dtype=np.int64), qa.Affine([0.5, 2.0, 3.0], [0.0, -1.0, 1e-30])]
    maps = [nn.Map(np.square, of=qa.ternary), nn.Map(np.tanh, of=qa.uint2)]
    inner = nn.Sequential([nn.Threshold(thresholds[2], axis=1), convolutions[0]])
    return [*convolutions, *pools, *others, *maps, *thresholds, inner]


@cache
def _networks(first: int) -> list[nn.Network]:
    """Build networks of plain integers, whose files are deleted."""
    networks = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain.npz"
        for meta, arrays in other_files.networks()[first::2]:
            np.savez(path, meta=np.array(json.dumps(meta)), **arrays)
            networks.append(nn.load_network(path))
    return networks


def _rewritten(rng: np.random.Generator, path: Path) -> bytes:
    """Return the file with a value of its meta object or an array changed, mostly with a digest that fits."""
    meta, arrays = content(path)
    way = rng.random()
    if way < 0.7:
        other_files.change(rng, meta)
    elif arrays and way < 0.8:
        del arrays[damage.pick(rng, sorted(arrays))]
    elif arrays:
        name = damage.pick(rng, sorted(arrays))
        arrays[name] = damage.array(rng, arrays[name])
    if rng.random() < 0.9 and isinstance(meta, dict):
        meta["digest"] = document.digest(meta, arrays)
    return packed(".safetensors", json.dumps(meta), arrays)


def _consistent(loaded: Any, folder: Path, load: Callable[[Path], Any]) -> None:
    """Assert that a loaded object can be saved and loaded, and that a network runs or refuses its input."""
    data = _bytes(loaded, folder / "again.qa")
    assert _bytes(load(folder / "again.qa"), folder / "third.qa") == data
    if not isinstance(loaded, (nn.Sequential, nn.Network)):
        return
    x = loaded.plain.input if isinstance(loaded, nn.Network) else qa.encode(np.ones((1, 4, 5, 8), int), values=(-1, 1))
    try:
        loaded(x)
    except _REFUSALS as error:
        assert "\n" not in str(error)


def prepare() -> None:
    """Build the layers and networks, and run them once: compiling is not what is measured."""
    rng = np.random.default_rng(0)
    x = qa.encode(np.ones((1, 4, 5, 8), int), values=(-1, 1))
    for layer in _layers():
        with suppress(*_REFUSALS):
            layer(x)
    for network in [*_networks(0), *_networks(1)]:
        network(network.plain.input)
    for _ in range(20):
        _draw(rng)
