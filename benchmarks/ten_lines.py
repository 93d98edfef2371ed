"""Run the same ten lines on every library that could hold small integers: right, wrong, or the error it gives.

    python -m benchmarks.ten_lines

Prints the table of the README. Libraries that are not installed are left out (`pip install torch bitarray ml_dtypes`).
A line is right where it gives NumPy's result on the plain values.
"""

import importlib
import io
import tempfile
from pathlib import Path

import numpy as np

import quantarray as qa

VALUES = np.random.default_rng(0).integers(0, 2, (6, 100)).astype(np.uint8)
SUMS = VALUES.sum(axis=1, dtype=np.int64)
GRAM = VALUES.astype(np.int64) @ VALUES.T

EXPECTED = {
    "bits an element": 1.0,
    "print(x)": None,
    "x[:, 10:50]": VALUES[:, 10:50],
    "x.T": VALUES.T,
    "x.reshape(3, 200)": VALUES.reshape(3, 200),
    "concatenate([x, x], 1)": np.concatenate([VALUES, VALUES], 1),
    "x == x.T.T": np.ones((6, 100), bool),
    "sum(x, 1)": SUMS,
    "x @ x.T": GRAM,
    "save, load": VALUES,
}


def lines(x, bits, values, concatenate, total, product, keep):
    """Return the ten lines applied to x, by their text; `values` converts a result to NumPy."""
    return {
        "bits an element": bits,
        "print(x)": lambda: repr(x) and None,
        "x[:, 10:50]": lambda: values(x[:, 10:50]),
        "x.T": lambda: values(x.T),
        "x.reshape(3, 200)": lambda: values(x.reshape(3, 200)),
        "concatenate([x, x], 1)": lambda: values(concatenate([x, x])),
        "x == x.T.T": lambda: values(x == x.T.T),
        "sum(x, 1)": lambda: values(total(x)),
        "x @ x.T": lambda: values(product(x)),
        "save, load": lambda: values(keep(x)),
    }


def quantarray():
    x = qa.encode(VALUES, values=range(2))

    def keep(q):
        with tempfile.TemporaryDirectory() as folder:
            qa.save(Path(folder) / "x.npz", q)
            return qa.load(Path(folder) / "x.npz")

    def values(a):
        return a.dequantize() if isinstance(a, qa.QuantArray) else a

    def bits():
        return x.words.nbytes * 8 / x.size

    return lines(x, bits, values, lambda a: qa.concatenate(a, 1), lambda a: qa.sum(a, 1), lambda a: a @ a.T, keep)


def numpy_packbits():
    x = np.packbits(VALUES, axis=1)

    def keep(a):
        file = io.BytesIO()
        np.save(file, a)
        file.seek(0)
        return np.load(file)

    def values(a):
        return np.unpackbits(a, axis=1)[:, : min(100, a.shape[1] * 8)] if a.ndim == 2 and a.dtype == np.uint8 else a

    def bits():
        return x.nbytes * 8 / VALUES.size

    return lines(x, bits, values, lambda a: np.concatenate(a, 1), lambda a: a.sum(1), lambda a: a @ a.T, keep)


def bitarray():
    from bitarray import bitarray as array

    x = array(VALUES.ravel().tolist())

    def values(a):
        return np.array(a.tolist()).reshape(VALUES.shape) if isinstance(a, array) else a

    def keep(a):
        file = io.BytesIO()
        a.tofile(file)
        file.seek(0)
        loaded = array()
        loaded.fromfile(file)
        return loaded

    def bits():
        return len(x.tobytes()) * 8 / VALUES.size

    return lines(x, bits, values, lambda a: a[0] + a[1], lambda a: a.sum(1), lambda a: a @ a.T, keep)


def torch_uint1():
    import torch

    x = torch.from_numpy(VALUES).view(torch.uint1)

    def keep(a):
        file = io.BytesIO()
        torch.save(a, file)
        file.seek(0)
        return torch.load(file)

    def values(a):
        return a.view(torch.uint8).numpy() if a.dtype == torch.uint1 else a.numpy()

    def bits():
        return x.untyped_storage().nbytes() * 8 / VALUES.size

    return lines(x, bits, values, lambda a: torch.cat(a, 1), lambda a: a.sum(1), lambda a: a @ a.T, keep)


def ml_dtypes_uint1():
    import ml_dtypes

    x = VALUES.astype(ml_dtypes.uint1)

    def keep(a):
        file = io.BytesIO()
        np.save(file, a)
        file.seek(0)
        return np.load(file)

    def values(a):
        return a if a.dtype.kind == "b" else a.astype(np.int64)

    def bits():
        return x.nbytes * 8 / VALUES.size

    return lines(x, bits, values, lambda a: np.concatenate(a, 1), lambda a: a.sum(1), lambda a: a @ a.T, keep)


LIBRARIES = {
    "quantarray": quantarray,
    "NumPy packbits": numpy_packbits,
    "bitarray": bitarray,
    "torch.uint1": torch_uint1,
    "ml_dtypes.uint1": ml_dtypes_uint1,
}


def verdict(call, expected):
    """Run a line and describe its result: "right", "wrong", a number, or the name of the error."""
    try:
        result = call()
    except Exception as error:
        return type(error).__name__
    if isinstance(result, float):
        return f"{result:.2g}"
    right = expected is None or (result.shape == expected.shape and np.array_equal(result, expected))
    return "right" if right else "wrong"


def main():
    columns = {}
    for name, make in LIBRARIES.items():
        try:
            calls = make()
        except ImportError:
            continue
        package = importlib.import_module(name.split()[0].split(".")[0].lower())
        columns[f"{name} {package.__version__}"] = {line: verdict(call, EXPECTED[line]) for line, call in calls.items()}
    print("| | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for line in EXPECTED:
        print(f"| `{line}` | " + " | ".join(verdicts[line] for verdicts in columns.values()) + " |")


if __name__ == "__main__":
    main()
