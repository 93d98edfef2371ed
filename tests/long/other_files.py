"""Networks of plain integers, damaged."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa
from quantarray.io.plain import PlainNetwork, read_plain

from . import damage
from .stored import Array, npy, zipped

sys.path.append(str(Path(__file__).parents[1] / "support"))
from plain_files import Builder, small

Attempt = Callable[..., Any]
Network = tuple[dict[str, Any], dict[str, Array]]


@cache
def networks() -> list[Network]:
    """Build some small networks: (meta object, arrays) of each."""
    rng = np.random.default_rng(0)
    builders = [small(seed) for seed in range(4)]
    for seed in range(8):
        dense = Builder(seed, (int(rng.integers(1, 9)),), table=range(int(rng.integers(1, 12))), samples=1 + seed % 3)
        dense.dense(3, values=(-1, 0, 5)[: 2 + seed % 2], thresholds=1 + seed % 2, strict=bool(seed % 3))
        builders.append(dense.dense(2 + seed % 2))
    return [_stored(builder) for builder in builders]


def _stored(builder: Builder) -> Network:
    file = io.BytesIO()
    builder.save(file, classes=[f"class {i}" for i in range(builder.shape[-1])])
    arrays = dict(np.load(io.BytesIO(file.getvalue())))
    arrays["labels"] = np.zeros(len(arrays["input"]), np.uint8)
    return json.loads(str(arrays.pop("meta"))), arrays


def network(rng: np.random.Generator, folder: Path, attempt: Attempt) -> str:
    """Damage a plain network. Changed bytes: reading must give an equal network or raise.

    A rewritten part: reading must give a consistent network or raise.
    """
    meta, arrays = damage.pick(rng, networks())
    if rng.random() < 0.1:  # without samples
        arrays = arrays | {name: arrays[name][:0] for name in ("input", "expected", "labels")}
    data = _archive(rng, meta, arrays)
    path = folder / "net.npz"
    path.write_bytes(data)
    sound = read_plain(path)
    rewritten = False
    if rng.random() < 0.5:
        data = damage.anywhere(rng, data)
    elif rng.random() < 0.5:
        rewritten, data = True, damage.inside(rng, data)
    else:
        rewritten, data = True, _archive(rng, *_changed(rng, meta, arrays))
    path.write_bytes(data)
    loaded = attempt(path, read_plain, qa.FormatError, "load_network", rng.random() < 0.25)
    if loaded is not None:
        if not rewritten:
            assert _equal(loaded, sound), "a damaged file is read as another network"
        _consistent(loaded)
    return "plain network"


def _archive(rng: np.random.Generator, meta: Any, arrays: dict[str, Array]) -> bytes:
    entries = {"meta": npy(np.array(json.dumps(meta)))} | {name: npy(a) for name, a in arrays.items()}
    return zipped(entries, int(rng.choice([0, 8])))


def _changed(rng: np.random.Generator, meta: Any, arrays: dict[str, Array]) -> Network:
    """Change a key of the network's meta object, a key of a layer, or an array."""
    meta, arrays = json.loads(json.dumps(meta)), {**arrays}
    way = rng.random()
    if way < 0.4:
        layer = damage.pick(rng, meta["layers"])
        key = damage.pick(rng, (*sorted(layer), "stride", "pad", "size", "pad_value", "invert", "strict"))
        layer[key] = damage.value(rng, layer.get(key))
        if rng.random() < 0.2:
            layer[key] = damage.pick(rng, sorted(arrays))
    elif way < 0.6:
        key = damage.pick(rng, (*sorted(meta), "format"))
        meta[key] = damage.value(rng, meta.get(key))
    elif way < 0.65:
        meta["layers"] += meta["layers"]
    elif way < 0.7:
        del arrays[damage.pick(rng, sorted(arrays))]
    else:
        name = damage.pick(rng, sorted(arrays))
        arrays[name] = damage.array(rng, arrays[name])
    return meta, arrays


def _equal(a: PlainNetwork, b: PlainNetwork) -> bool:
    """True for the same layers, samples and texts."""
    of_layers = all(_values(x) == _values(y) for x, y in zip(a.layers, b.layers, strict=True))
    return of_layers and _values(a) == _values(b)


def _values(a: Any) -> list[Any]:
    fields = {k: v for k, v in vars(a).items() if k not in ("layers", "path")}
    return [(k, v.dtype, v.shape, v.tobytes()) if isinstance(v, np.ndarray) else (k, v) for k, v in fields.items()]


def _consistent(network: PlainNetwork) -> None:
    """Assert the shapes, ranges and types that every reader may rely on."""
    assert network.expected.shape == (len(network.input), *network.layers[-1].shape)
    assert 1 <= len(network.input_table) <= 256 and network.input.dtype == np.uint8
    assert not network.input.size or network.input.max() < len(network.input_table)
    assert isinstance(network.name, str) and min(map(min, (layer.shape for layer in network.layers))) >= 1
    assert network.classes is None or len(network.classes) == network.expected.shape[-1]
    for layer in network.layers[:-1]:
        assert layer.op == "max_pool2d" or len(layer.values) == layer.thresholds.shape[1] + 1
    for layer in network.layers:
        assert type(layer.stride) is int and layer.stride >= 1 and min(layer.pad) >= 0


def change(rng: np.random.Generator, stored: Any) -> None:
    """Change or remove one value somewhere in a JSON object."""
    while True:
        key = damage.pick(rng, sorted(stored) if isinstance(stored, dict) else range(len(stored)))
        if not (isinstance(stored[key], (dict, list)) and stored[key] and rng.random() < 0.8):
            break
        stored = stored[key]
    if isinstance(stored, dict) and rng.random() < 0.1:
        del stored[key]
    else:
        stored[key] = damage.value(rng, stored[key])


def prepare() -> None:
    """Build the networks."""
    networks()
