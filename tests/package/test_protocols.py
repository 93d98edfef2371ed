"""NumPy's functions and ufuncs on packed arrays, Python's protocols, and DLPack of the words."""

import copy
import inspect
import pickle
import re

import numpy as np
import pytest

import quantarray as qa
from quantarray import numpy_protocol
from quantarray.arrays.array import validate

RNG = np.random.default_rng(0)
Q = qa.from_codes(RNG.integers(0, 4, (3, 1, 70)), qa.uint2)  # levels 0 .. 3
P = qa.from_codes(RNG.integers(0, 3, (3, 1, 70)), qa.ternary)
BITS = Q > 1
ROW = Q[0, 0]
REAL = Q * 0.25 + 0.125  # 0.125 .. 0.875: in the domain of every function but arccosh


FUNCTIONS = {
    "all": [lambda q: np.all(q, axis=1)],
    "amax": [lambda q: np.amax(q, 2)],
    "amin": [lambda q: np.amin(q, 2, keepdims=True)],
    "any": [lambda q: np.any(q, axis=(0, 2))],
    "argmax": [lambda q: np.argmax(q), lambda q: np.argmax(q, 2, keepdims=True)],
    "argmin": [lambda q: np.argmin(q, axis=-1)],
    "argsort": [lambda q: np.argsort(q, kind="stable"), lambda q: np.argsort(q, 0, stable=True),
                lambda q: np.argsort(q, axis=None, kind="stable")],
    "around": [np.around],
    "array_equal": [lambda q: np.array_equal(q, q)],
    "array_split": [lambda q: np.array_split(q, 3, axis=2)],
    "broadcast_arrays": [lambda q: np.broadcast_arrays(q, q[:1])],
    "broadcast_to": [lambda q: np.broadcast_to(q, (2, 3, 5, 70))],
    "clip": [lambda q: np.clip(q, 1, 2), lambda q: np.clip(q, a_min=1, a_max=None), lambda q: np.clip(q, max=2)],
    "concatenate": [lambda q: np.concatenate([q, q], axis=1), lambda q: np.concatenate((q, q), 2)],
    "copy": [np.copy],
    "count_nonzero": [lambda q: np.count_nonzero(q, axis=2, keepdims=True)],
    "cumprod": [lambda q: np.cumprod(q, axis=0), lambda q: np.cumprod(q[:, 0, :9])],
    "cumsum": [lambda q: np.cumsum(q, axis=2), np.cumsum],
    "cumulative_prod": [lambda q: np.cumulative_prod(q, axis=1, include_initial=True)],
    "cumulative_sum": [lambda q: np.cumulative_sum(q, axis=2)],
    "diff": [np.diff, lambda q: np.diff(q, 2, 0), lambda q: np.diff(q, n=2), lambda q: np.diff(q, n=0)],
    "dot": [lambda q: np.dot(q[0, 0], q[1, 0])],
    "einsum": [lambda q: np.einsum("abk,cbk->ac", q, q, optimize=True)],
    "expand_dims": [lambda q: np.expand_dims(q, (0, 2))],
    "flip": [np.flip, lambda q: np.flip(q, 2)],
    "full_like": [lambda q: np.full_like(q, 2)],
    "hstack": [lambda q: np.hstack([q, q])],
    "inner": [lambda q: np.inner(q[:, 0], q[:1, 0])],
    "isin": [lambda q: np.isin(q, [0, 2], invert=True, kind="sort")],
    "matrix_transpose": [np.matrix_transpose],
    "max": [np.max],
    "mean": [np.mean, lambda q: np.mean(q, axis=0, keepdims=True)],
    "meshgrid": [lambda q: np.meshgrid(q[0, 0], q[0, 0, :5], indexing="ij")],
    "min": [lambda q: np.min(q, 0)],
    "moveaxis": [lambda q: np.moveaxis(q, 0, -1)],
    "ndim": [np.ndim],
    "nonzero": [np.nonzero],
    "ones_like": [np.ones_like],
    "outer": [lambda q: np.outer(q[0, 0], q[1, 0, :3])],
    "pad": [lambda q: np.pad(q, 1), lambda q: np.pad(q, ((0, 0), (0, 0), (2, 3)), "constant", constant_values=2)],
    "prod": [lambda q: np.prod(q, axis=0)],
    "ravel": [np.ravel],
    "real": [np.real],
    "repeat": [lambda q: np.repeat(q, 2, axis=2)],
    "reshape": [lambda q: np.reshape(q, (3, 7, 10))],
    "roll": [lambda q: np.roll(q, 3, axis=2), lambda q: np.roll(q, 3), lambda q: np.roll(q, (1, 2))],
    "rot90": [np.rot90],
    "round": [lambda q: np.round(q, 1)],
    "searchsorted": [lambda q: np.searchsorted(np.sort(q[0, 0]), 1, side="right")],
    "shape": [np.shape],
    "size": [np.size],
    "sort": [np.sort, lambda q: np.sort(q, 0, kind="stable"), lambda q: np.sort(q, axis=None)],
    "split": [lambda q: np.split(q, 2, axis=2)],
    "squeeze": [np.squeeze, lambda q: np.squeeze(q, axis=1)],
    "stack": [lambda q: np.stack([q, q], axis=-1)],
    "std": [np.std, lambda q: np.std(q, axis=2, ddof=1)],
    "sum": [np.sum, lambda q: np.sum(q, 0), lambda q: np.sum(q, axis=(0, 2), keepdims=True)],
    "swapaxes": [lambda q: np.swapaxes(q, 0, 2)],
    "take": [lambda q: np.take(q, [2, 0], 0)],
    "take_along_axis": [lambda q: np.take_along_axis(q, np.zeros((3, 1, 2), int), 2),
                        lambda q: np.take_along_axis(q, np.array([5, -1]), None)],
    "tensordot": [lambda q: np.tensordot(q, q, axes=((2,), (2,)))],
    "tile": [lambda q: np.tile(q, (2, 1, 1))],
    "transpose": [np.transpose, lambda q: np.transpose(q, (0, 2, 1))],
    "unique": [np.unique, lambda q: np.unique(q, return_index=True, return_counts=True),
               lambda q: np.unique(q, return_inverse=True), lambda q: np.unique(q, return_counts=True)],
    "unique_all": [np.unique_all],
    "unique_counts": [np.unique_counts],
    "unique_inverse": [np.unique_inverse],
    "unique_values": [np.unique_values],
    "unstack": [np.unstack],
    "var": [lambda q: np.var(q, axis=0, ddof=1), lambda q: np.var(q, correction=1)],
    "vstack": [lambda q: np.vstack([q, q])],
    "zeros_like": [np.zeros_like],
}  # fmt: skip
LINALG = {
    "diagonal": [lambda q: np.linalg.diagonal(q, offset=2)],
    "matmul": [lambda q: np.linalg.matmul(q[:, 0], q[:, 0].T)],
    "matrix_norm": [np.linalg.matrix_norm, lambda q: np.linalg.matrix_norm(q, ord=1)],
    "matrix_transpose": [np.linalg.matrix_transpose],
    "outer": [lambda q: np.linalg.outer(q[0, 0], q[1, 0])],
    "tensordot": [lambda q: np.linalg.tensordot(q, q, axes=((2,), (2,)))],
    "trace": [np.linalg.trace],
    "vecdot": [lambda q: np.linalg.vecdot(q, q)],
    "vector_norm": [lambda q: np.linalg.vector_norm(q, axis=2)],
}
# Of dtypes, or tested below
OTHERS = {"astype", "can_cast", "empty_like", "iscomplexobj", "isrealobj", "result_type", "where"}
COPIES = {"concat": "concatenate", "permute_dims": "transpose"}  # NumPy's second names of one function


def check(got, expected):
    """The same shapes and values, in whatever dtype; packed results are valid."""
    if isinstance(expected, (tuple, list)) and not isinstance(expected, qa.QuantArray):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            check(a, b)
        return
    if isinstance(got, qa.QuantArray):
        validate(got)
        got = got.dequantize()
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    for call in FUNCTIONS[name]:
        for q in (Q, REAL) if name not in ("prod", "pad", "full_like", "ones_like", "zeros_like") else (Q,):
            check(call(q), call(q.dequantize().astype(np.float64 if q is REAL else np.int64)))


@pytest.mark.parametrize("name", LINALG)
def test_functions_of_linalg(name):
    for call in LINALG[name]:
        check(call(Q), call(Q.dequantize().astype(np.float64)))


# Functions without an axis, which NumPy mostly takes for all axes or for the array in C order
WITHOUT_AXIS = {
    "all": np.all, "amax": np.amax, "any": np.any, "argmax": np.argmax, "argmin": np.argmin,
    "argsort": lambda q: np.argsort(q, kind="stable"),
    "concatenate": lambda q: np.concatenate([q, q]), "count_nonzero": np.count_nonzero, "cumprod": np.cumprod,
    "cumsum": np.cumsum, "diff": np.diff, "diff 0": lambda q: np.diff(q, n=0), "diff 2": lambda q: np.diff(q, n=2),
    "diff of too many": lambda q: np.diff(q, n=100), "flip": np.flip, "max": np.max, "mean": np.mean,
    "roll": lambda q: np.roll(q, 5), "roll back": lambda q: np.roll(q, -1000), "roll 0": lambda q: np.roll(q, 0),
    "roll of several": lambda q: np.roll(q, (2, 3)), "roll of one axis twice": lambda q: np.roll(q, (1, 2), (0, 0)),
    "roll of all axes": lambda q: np.roll(q, 1, (0, 1, 2)), "sort": np.sort, "sort of all": lambda q: np.sort(q, None),
    "argsort of all": lambda q: np.argsort(q, None, kind="stable"), "squeeze": np.squeeze,
    "stack": lambda q: np.stack([q, q]),
    "std": np.std, "sum": np.sum, "tile": lambda q: np.tile(q, 2), "transpose": np.transpose, "var": np.var,
    "take_along_axis": lambda q: np.take_along_axis(q, np.array([5, 0, -1]), None), "add.reduce": np.add.reduce,
    "add.accumulate": np.add.accumulate, "split": lambda q: np.split(q, 2), "trace": np.linalg.trace,
}  # fmt: skip


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", WITHOUT_AXIS)
def test_default_axes(name, axis):
    """Default axes are NumPy's, whichever axis is packed, and for levels in any order."""
    call = WITHOUT_AXIS[name]
    codes = np.random.default_rng(1).integers(0, 3, (2, 4, 6))
    for dtype in (qa.ternary, qa.integers(1, -1, 0)):
        q = qa.from_codes(codes, dtype, axis)
        check(call(q), call(q.dequantize().astype(np.int64)))
    assert not name.startswith("roll") or call(q).axis == axis


def test_roll_of_all_elements_where_constants_vary():
    """Runs that stay whole move with their constants; others are refused, as along an axis."""
    q = qa.from_codes(np.arange(24).reshape(3, 8) % 4, qa.uniform(2), scale=[[1.0], [2], [3]], offset=0)
    check(np.roll(q, 8), np.roll(q.dequantize(), 8))
    with pytest.raises(IndexError, match=r"roll: .* cuts through a group; .* compute on"):
        np.roll(q, 3)


def test_differences_of_many():
    q = qa.encode(np.arange(300) % 2, values=range(2))
    assert np.diff(q, n=40).dtype == np.int64 and np.diff(q[:30], n=40).shape == (0,)
    check(np.diff(q, n=62 - 1), np.diff(q.dequantize().astype(object), n=61).astype(np.int64))
    with pytest.raises(OverflowError, match="diff: the exact result may reach 9223372036854775808"):
        np.diff(q, n=63)
    assert np.diff(q * 0.5, n=70).dtype == np.float32
    assert np.diff(q, n=0).dtype == np.int32 and np.diff(q, n=0, prepend=q).shape == (300,)
    with pytest.raises(ValueError, match="diff: n must be at least 0, got -1"):
        np.diff(q, n=-1)


def test_where_and_choices_of_dtype():
    check(np.where(BITS, Q, P), np.where(BITS.codes() != 0, Q.dequantize(), P.dequantize()))
    check(np.where(Q), np.where(Q.dequantize()))
    assert np.result_type(P, Q) == qa.result_type(P, Q) and np.empty_like(Q).shape == Q.shape
    assert np.can_cast(P, qa.int2) and np.astype(P, qa.int2).dtype == qa.int2


def test_functions_without_a_signature(monkeypatch):
    """Functions written in C had no signature before NumPy 2.4, so their arguments are not checked."""
    known = inspect.signature

    def signature(f):
        if f in (np.concatenate, np.inner, np.where):
            raise ValueError("no signature")
        return known(f)

    monkeypatch.setattr(numpy_protocol.inspect, "signature", signature)
    for name in ("concatenate", "inner"):
        test_functions(name)
    test_where_and_choices_of_dtype()


def numpy_functions(module):
    """NumPy's functions that ask arrays for `__array_function__`, and are called by their own names."""
    return {n for n, f in vars(module).items() if type(f).__name__ == "_ArrayFunctionDispatcher" and f.__name__ == n}


def test_every_twin_is_tried():
    """Names with one meaning in NumPy and quantarray are listed above; those with two meanings are known."""
    found = {n for n in numpy_functions(np) if numpy_protocol.of_function(getattr(np, n)) is not None}
    found |= {f.__name__ for f in numpy_protocol._ADAPTED if not isinstance(f, np.ufunc)}
    assert found == set(FUNCTIONS) | OTHERS
    inner = {n for n in numpy_functions(np.linalg) if numpy_protocol.of_function(getattr(np.linalg, n)) is not None}
    assert inner - found <= set(LINALG) and set(LINALG) <= {*inner, *qa.linalg.__all__}
    for copied, name in COPIES.items():
        assert getattr(np, copied) is getattr(np, name)
    both = set(np.__all__) & set(qa.__all__)
    assert {n for n in both if inspect.isfunction(getattr(qa, n)) and n in numpy_protocol.DIFFERENT} == {
        "choose", "load", "save"
    }  # fmt: skip


UFUNCS = {f.__name__: f for f in vars(np).values() if isinstance(f, np.ufunc)}
OPERANDS = {
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "invert"), (BITS, Q < 1)),
    "arccosh": (Q + 1,),
    "divide": (REAL, Q + 1),
    "divmod": (Q, Q + 1),
    "matmul": (Q[:, 0], Q[:, 0].T),
    "power": (Q, Q),
    "vecdot": (Q, P),
}


@pytest.mark.parametrize("ufunc", UFUNCS.values(), ids=UFUNCS)
def test_ufuncs(ufunc):
    """A ufunc is the function of its name, or names `map`, or what gives values."""
    ours = numpy_protocol.of_ufunc(ufunc.__name__)
    if ours is None:
        with pytest.raises(TypeError, match=f"numpy.{ufunc.__name__} does not take packed arrays") as caught:
            ufunc(*[Q] * ufunc.nin)
        assert ".dequantize()" in str(caught.value)
        if ufunc.signature is None and ufunc.nout == 1 and ufunc.nin < 3:
            assert f"quantarray.map{'2' * (ufunc.nin == 2)}(np.{ufunc.__name__}" in str(caught.value)
        return
    operands = OPERANDS.get(ufunc.__name__, (REAL, REAL))[: ufunc.nin]
    plain = [x.codes() != 0 if x.dtype == qa.uint1 else x.dequantize() for x in operands]
    check(ufunc(*operands), ufunc(*plain))


@pytest.mark.parametrize(("name", "method"), numpy_protocol._METHODS)
def test_methods_of_ufuncs(name, method):
    """Along axis 0 by default, or any other; over several, and all, where NumPy does."""
    f = getattr(getattr(np, name), method)
    values = Q.dequantize().astype(np.int64)
    keywords = [{}, {"axis": 2} if name != "multiply" else {"axis": 1}]
    if method == "reduce" and name != "multiply":
        keywords += [{"axis": None}, {"axis": (0, 2), "keepdims": True}]
    for given in keywords:
        check(f(Q, **given), f(values, **given))


# what is refused


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (np.median, ["numpy.median", ".dequantize() gives values"]),
        (np.cbrt, ["numpy.cbrt", "quantarray.map(np.cbrt, q) gives a packed array"]),
        (lambda q: np.gcd(q, q), ["quantarray.map2(np.gcd, p, q)"]),
        (lambda q: np.sum(q, where=np.ones(3, bool)), ["numpy.sum", "'where'", "quantarray.sum(q, axis=None"]),
        (lambda q: np.mean(q, dtype=float), ["numpy.mean", "'dtype'", "quantarray.mean(q"]),
        (lambda q: np.add(q, 1, out=np.ones(3)), ["numpy.add", "'out'", "quantarray.add(a, b, *, out_dtype=None)"]),
        (lambda q: np.subtract.outer(q, q), ["numpy.subtract.outer"]),
        (lambda q: np.add.at(q, [0], 1), ["numpy.add.at"]),
        (np.imag, ["numpy.imag", "levels are real"]),
        (np.triu, ["numpy.triu", "where(mask, q, 0)"]),
        (np.linalg.inv, ["numpy.linalg.inv", "factors have no low-bit values"]),
        (np.fft.fft, ["numpy.fft.fft"]),
        (lambda q: np.choose(q, [q, q]), ["numpy.choose"]),
        (lambda q: np.save("q.npy", q), ["numpy.save"]),
        (lambda q: np.unique(q, axis=0), ["numpy.unique(ar, return_index=False", "'axis'"]),
        (lambda q: np.copy(q, "C"), ["numpy.copy(a)"]),
    ],
)
def test_what_is_refused_names_what_to_call(call, parts):
    with pytest.raises(TypeError) as caught:
        call(Q)
    message = str(caught.value)
    assert "does not take packed arrays" in message and ".dequantize()" in message
    assert not [part for part in parts if part not in message], message


def test_no_namespace():
    """Callers that ask for one find none, as of any object that is no array of the standard; people see why."""
    assert not hasattr(Q, "__array_namespace__") and not hasattr(qa.QuantArray, "__array_namespace__")
    with pytest.raises(AttributeError, match=r"no namespace of the array API standard.*\.dequantize\(\)"):
        Q.__array_namespace__()
    with pytest.raises(AttributeError, match="'QuantArray' object has no attribute 'chape'"):
        _ = Q.chape


# DLPack of the words


def test_words_to_numpy_are_shared_and_read_only():
    words = np.from_dlpack(Q.words)
    assert np.shares_memory(words, Q.words) and not words.flags.writeable
    with pytest.raises(BufferError, match="readonly"):  # an older consumer, which cannot be told
        Q.words.__dlpack__()
    assert qa.array_equal(qa.from_words(words, Q.dtype, Q.shape), Q)


def test_arrays_themselves_have_none():
    with pytest.raises(TypeError, match=r"q\.words has DLPack, and \.dequantize\(\) gives values"):
        np.from_dlpack(Q)
    with pytest.raises(TypeError, match=r"q\.words has DLPack, and \.dequantize\(\) gives values"):
        Q.__dlpack__()


def test_words_to_torch():
    """PyTorch has no read-only tensors: it shares the words all the same, so ask it for a copy."""
    torch = pytest.importorskip("torch")
    copied = torch.from_dlpack(Q.words, copy=True)
    assert copied.data_ptr() != Q.words.ctypes.data
    digest = Q.digest()
    copied.zero_()
    assert Q.digest() == digest
    assert qa.array_equal(qa.from_words(np.from_dlpack(torch.from_dlpack(Q.words, copy=True)), Q.dtype, Q.shape), Q)


# Python's protocols


@pytest.mark.parametrize("q", [Q, P, REAL, Q[::-1], Q[..., 5:40], Q.T], ids=str)
def test_copies_and_pickles(q):
    for made, own in [(q.copy(), True), (copy.copy(q), None), (copy.deepcopy(q), True),
                      (pickle.loads(pickle.dumps(q)), True), (pickle.loads(pickle.dumps(q, 5)), True)]:  # fmt: skip
        validate(made)
        assert made.digest() == q.digest() and made.dtype == q.dtype and made.axis == q.axis
        assert own is None or not np.shares_memory(made.words, q.words)


def test_iteration_length_truth_and_in():
    check(list(Q), list(Q.dequantize()))
    check(list(ROW), list(ROW.dequantize()))
    check(list(reversed(Q)), list(reversed(Q.dequantize())))
    assert len(Q) == 3 and 2 in Q and 4 not in Q and 0.5 not in Q
    assert ROW[3:4] or not ROW[3:4].dequantize().any()
    assert bool(ROW[:1]) == bool(ROW.dequantize()[0])
    for few in (Q, ROW[:0]):
        with pytest.raises(ValueError, match="truth value"):
            bool(few)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Q)
    first, *_, last = ROW
    assert (first, last) == (ROW[0], ROW[-1])


def test_methods_that_are_functions_here_say_so():
    for name, part in [("astype", "quantarray.astype(q, ..)"), ("cumsum", "quantarray.cumulative_sum(q, ..)"),
                       ("tolist", ".dequantize().tolist()"), ("item", ".dequantize().item()"),
                       ("law", ".dtype names it")]:  # fmt: skip
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{re.escape(part)}"):
            getattr(Q, name)
    for name in ("linalg", "int8", "strides", "_private"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(Q, name)
    with pytest.raises(TypeError, match="immutable"):
        del Q[0]


def test_size_along_axes():
    assert (np.size(Q, 1), np.size(Q, (0, -1))) == (np.size(Q.dequantize(), 1), Q.shape[0] * Q.shape[-1])
    with pytest.raises(np.exceptions.AxisError, match="size: axis 5"):
        np.size(Q, 5)


def test_digest_tells_contents():
    assert Q.digest() == qa.from_codes(Q.codes(), qa.uint2).digest()
    others = [Q[:2], qa.repack(Q, 0), qa.astype(Q, qa.uint3), Q * 0.5, qa.flip(Q, 2)]
    assert len({Q.digest(), *(x.digest() for x in others)}) == 6


def test_functions_that_are_imported_later_have_hints_too():
    q = qa.encode([1, -1], values=(-1, 1))
    for name in ("compare", "explain"):
        assert callable(getattr(qa, name)) and name not in vars(qa)
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'; quantarray\.{name}\(.* is a function"):
            getattr(q, name)
