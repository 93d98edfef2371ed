"""Plain-format networks made up for tests, and their files."""

import json

import naive
import numpy as np


class Builder:
    """A builder of files of plain networks: it adds random layers and knows the shape that the next one gets."""

    def __init__(self, seed, shape, table=(-1, 1), samples=2):
        self.rng = np.random.default_rng(seed)
        self.table = np.array(table, np.int16)
        self.shape = shape
        self.layers, self.arrays = [], {"input_table": self.table}
        self.arrays["input"] = self.rng.integers(0, len(table), (samples, *shape)).astype(np.uint8)

    def product(self, op, weights, kernel, values, thresholds, **keys):
        """Add a conv2d of `kernel` (o, kh, kw) or a dense of (o,), its weights drawn from `weights`.

        Thresholds are in the range of accumulators, so that codes differ; with `invert="mixed"` channels alternate.
        """
        i = len(self.layers)
        inputs = self.shape[-1] if op == "conv2d" else int(np.prod(self.shape))
        w = self.rng.choice(np.array(weights, np.int8), (*kernel, inputs))
        layer = {"op": op, "weight": f"w{i}", "threshold": None, "values": None} | keys
        self.arrays[f"w{i}"] = w
        self.layers.append(layer)
        if keys.get("invert") == "mixed":
            layer["invert"] = f"invert{i}"
            self.arrays[f"invert{i}"] = np.arange(kernel[0]) % 2 == 1
        acc = self._run()
        if thresholds:
            layer["threshold"], layer["values"] = f"t{i}", list(values)
            spread = self.rng.choice(acc.reshape(-1), (kernel[0], thresholds))
            self.arrays[f"t{i}"] = np.sort(spread, axis=1).astype(np.int32)
        self.shape = acc.shape[1:]
        return self

    def conv(self, kernel, weights=(-1, 1), values=(-1, 1), thresholds=1, **keys):
        return self.product("conv2d", weights, kernel, values, thresholds, **keys)

    def dense(self, outputs, weights=(-1, 1), values=None, thresholds=0, **keys):
        return self.product("dense", weights, (outputs,), values, thresholds, **keys)

    def pool(self, size, stride, pad=0):
        self.layers.append({"op": "max_pool2d", "size": size, "stride": stride, "pad": pad})
        self.shape = self._run().shape[1:]
        return self

    def _run(self):
        layers = [layer.copy() for layer in self.layers]
        return naive.run_layers({"layers": layers}, self.arrays, self.table[self.arrays["input"]].astype(np.int64))

    def expected(self):
        """Run the oracle on the samples."""
        return self._run()

    def save(self, path, **meta):
        """Write the file; return its path."""
        text = json.dumps({"name": "made up", "layers": self.layers} | meta)
        np.savez(path, meta=text, expected=self.expected().astype(np.int32), **self.arrays)
        return path


def small(seed=0):
    """Build a network with each op, four scores, and six samples."""
    builder = Builder(seed, (6, 5, 3), table=range(-8, 9), samples=6)
    builder.conv((5, 3, 3), pad=1, invert="mixed").pool(2, 2)
    return builder.conv((7, 2, 1), weights=(-1, 0, 1), values=(-1, 0, 3), thresholds=2).dense(4)


def rewrite(source, path, change):
    """Copy an `.npz` with `change(meta, arrays)` applied."""
    with np.load(source) as stored:
        arrays = dict(stored)
    meta = json.loads(str(arrays.pop("meta")))
    change(meta, arrays)
    np.savez(path, meta=json.dumps(meta), **arrays)
    return path
