"""What users can reach and others share is read-only for good: no flag of an array makes it writeable."""

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays.array import validate

CODES = np.arange(3 * 4 * 130).reshape(3, 4, 130)
LAWS = {
    "integers": qa.from_codes(CODES % 4, qa.uint2),
    "few": qa.from_codes(CODES[:1, :1] % 3, qa.ternary),
    "scaled": qa.from_codes(CODES % 2, qa.bipolar, scale=np.ones((3, 1, 1)) / 3),
    "uneven": qa.from_codes(CODES % 3, qa.integers(5, -1, 0)),
    "uniform": qa.from_codes(CODES % 8, qa.uniform(3), scale=np.full((3, 4, 3), 0.5), offset=-1, group=64),
    "basis": qa.from_codes(CODES % 4, qa.basis(2), scale=[1.0, 3.5]),
    "table": qa.from_codes(CODES % 4, qa.table(2), table=[0.0, 3, 1, 2]),
    "fitted": qa.quantize(CODES % 11 - 5.0, qa.LloydMax(2), scale_axis=1),
    "bfloat16": qa.quantize(CODES % 7 - 3.0, qa.Grouped(2, group=64)),
}
RESULTS = {
    "itself": lambda q: q,
    "copy": lambda q: q.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda q: pickle.loads(pickle.dumps(q)),
    "pickle 2": lambda q: pickle.loads(pickle.dumps(q, 2)),
    "transpose": lambda q: q.T,
    "outer slice": lambda q: q[:, ::2],
    "words' slice": lambda q: q[..., 64:],
    "bits' slice": lambda q: q[..., 64:67],
    "element": lambda q: q[0],
    "indices": lambda q: q[[0, -1]],
    "reshape": lambda q: q.reshape(-1, q.shape[-1]),
    "new axis": lambda q: q[None],
    "broadcast": lambda q: qa.broadcast_to(q, (2, *q.shape)),
    "concatenate": lambda q: qa.concatenate([q, q], axis=1),
    "stack": lambda q: qa.stack([q, q]),
    "flip": lambda q: qa.flip(q, 1),
    "roll": lambda q: qa.roll(q, 64, 1),
    "repack": lambda q: qa.repack(q[:, :, :64], 1),
    "tile": lambda q: qa.tile(q, (2, 1, 1)),
    "take": lambda q: qa.take(q, [0, 0], axis=1),
    "times": lambda q: q * 0.5,
    "plus": lambda q: q * 0.5 + 1,
    "compared": lambda q: q > 0,
    "map": lambda q: qa.map(np.cbrt, q),
    "maximum": lambda q: qa.maximum(q, 1),
    "sort": lambda q: qa.sort(q, axis=1) if not q.constants.varies(1) else q,
    "saved": lambda q: saved(q, ".npz"),
    "saved too": lambda q: saved(q, ".safetensors"),
    "from words": lambda q: qa.from_words(q.words, q.dtype, q.shape) if not q.constants.shapes else q,
    "thresholds": lambda q: qa.Thresholds([0, 1])(q.dequantize()),
    "pooled": lambda q: qa.max_pool2d(q[None], (1, 2)),
    "split": lambda q: qa.split(q, [1])[-1],
    "bits": lambda q: ~(q > 0),
}


def saved(q, ending):
    with tempfile.TemporaryDirectory() as folder:
        qa.save(Path(folder) / f"q{ending}", q)
        return qa.load(Path(folder) / f"q{ending}")


def public_arrays(thing):
    """(name, array) of each public attribute and property that is an array; of dictionaries their values."""
    names = [n for n in dir(type(thing)) if isinstance(getattr(type(thing), n), property)]
    names += [*getattr(thing, "__dict__", {})]
    for name in dict.fromkeys(n for n in names if not n.startswith("_")):
        value = getattr(thing, name)
        for inner in value.values() if isinstance(value, dict) else (value,):
            if isinstance(inner, np.ndarray):
                yield name, inner


def assert_locked(a, name=""):
    assert not a.flags.writeable, name
    for view in (a, a.view(), a[...], a.T):
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True


def assert_locked_or_copied(thing):
    """Each array is read-only for good, or a new one each time."""
    for (name, a), (_, again) in zip(public_arrays(thing), public_arrays(thing), strict=True):
        if a is again or np.may_share_memory(a, again):
            assert_locked(a, name)


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("law", LAWS)
def test_arrays(law, name):
    """Words and constants of arrays of every law, and of what operations make of them."""
    try:
        q = RESULTS[name](LAWS[law])
    except (TypeError, ValueError, IndexError):  # groups that would be cut, laws that an operation does not take
        return
    validate(q)
    assert_locked(q.words, "words")
    for constant, a, _ in q.constants.items():
        assert_locked(a, constant)
    assert_locked_or_copied(q)
    assert_locked_or_copied(q.constants)


def test_the_sweep_meets_arrays():
    """Most laws and operations go together."""
    count = 0
    for q in LAWS.values():
        for call in RESULTS.values():
            try:
                count += isinstance(call(q), qa.QuantArray)
            except (TypeError, ValueError, IndexError):
                continue
    assert count > 0.9 * len(LAWS) * len(RESULTS)


def test_results_of_products():
    """Codes that kernels write, small and large, at the first call and when it is prepared."""
    for n, channels in ((1, 3), (64, 70)):
        x = qa.encode(np.ones((n, 4, 4, channels), int), values=(-1, 1))
        w = qa.encode(np.ones((channels, 3, 3, channels), int), values=(-1, 1))
        for _ in range(3):
            assert_locked(qa.conv2d(x, w, requantize=qa.Thresholds([0])).words)
            assert_locked(qa.linear(x, w[:, 0, 0], requantize=qa.Thresholds([0, 3])).words)


@pytest.mark.parametrize(
    "thing",
    [
        *(qa.uint2, qa.bipolar, qa.integers(3, 1, 0), qa.uniform(2), qa.basis(3), qa.table(2)),
        *(qa.Thresholds([0]), qa.Thresholds([[1.5, 2], [3, 0]], strict=[True, False], greater=[True, False])),
        qa.Thresholds([0, 1], into=qa.uniform(2, 3), scale=np.float32(0.5), offset=np.zeros(1)),
        qa.fold_batchnorm([2.0, -1.0], [0.0, 0.5], [3.2, 0.0], [1.0, 1.0], into=qa.Uniform(2, step=0.5)),
        *(qa.Uniform(2), qa.LQ(2), qa.LQ(2, basis=np.array([1.0, 2])), qa.ABCActivations([0.0, 1], [1.0, 2])),
        qa.Constants(scale=np.ones(3), offset=np.ones(3)),
        qa.nn.Dense(qa.encode([[1, -1]], values=(-1, 1)), qa.Thresholds([0])),
    ],
    ids=repr,
)
def test_other_objects(thing):
    assert_locked_or_copied(thing)


def test_what_objects_share_is_private():
    """No public name reaches an object that all arrays of a dtype share."""
    assert list(public_arrays(qa.uint2)) == [] and not hasattr(qa.uint2, "term_rows")
    for ndim in (1, 4):
        law = qa.Thresholds([0, 1], into=qa.table(2, 3), table=[0.0, 1, 5])._law(ndim)
        assert_locked(law.table)


# the arrays of callers stay theirs


def test_arrays_of_callers_are_not_locked():
    words, scale = np.zeros((1, 3), np.uint64), np.ones(1, np.float32)
    x, codes, values, basis = np.ones((2, 3)), np.ones((2, 3), np.uint8), np.array([0.0, 1]), np.ones(2)
    qa.from_words(words, qa.bipolar, (130,), scale=scale)
    qa.from_codes(codes, qa.uint1)
    qa.from_codes(codes, qa.uint1, scale=scale[None])
    qa.encode(codes, values=(0, 1))
    qa.quantize(x, bits=2)
    qa.quantize(x, qa.LQ(2, basis=basis))
    made = qa.Constants(scale=scale), qa.Constants(scale=x[0]), qa.Constants(np.broadcast_to(x[:1], (4, 3)))
    T = qa.Thresholds(values, into=qa.uniform(2, 3), scale=scale, offset=0)
    for a in (words, scale, x, codes, values, basis):
        a[...] = 7
    assert made[0].scale.tolist() == [1] and made[1].scale.tolist() == [1, 1, 1] and (made[2].scale == 1).all()
    assert T.values.tolist() == [0, 1] and T._law(1).scale.tolist() == [1]


def test_words_that_are_taken_over_are_locked():
    """The class takes words without a copy, so the array that owns them becomes read-only too."""
    words = np.zeros((2, 3, 1), np.uint64)
    q = qa.QuantArray(words[:1], qa.uint1, (3, 5), 1)
    assert np.shares_memory(q.words, words) and not words.flags.writeable
    assert_locked(q.words)


def test_words_in_foreign_memory(tmp_path):
    """A buffer, a file and another library's memory cannot be locked, so words are a read-only view of them."""
    np.zeros((1, 3, 1), np.uint64).tofile(tmp_path / "words")
    mapped = np.memmap(tmp_path / "words", np.uint64, "r+", shape=(1, 3, 1))
    buffer = np.frombuffer(bytearray(24), np.uint64)
    for words in (mapped, mapped[:, ::-1], buffer.reshape(1, 3, 1), buffer[::-1].reshape(1, 3, 1)):
        q = qa.QuantArray(words, qa.uint1, (3, 5), 1)
        assert np.shares_memory(q.words, words) and words.flags.writeable
        assert_locked(q.words)
        assert (q + 1).dequantize().sum() == 15 and pickle.loads(pickle.dumps(q)).digest() == q.digest()
