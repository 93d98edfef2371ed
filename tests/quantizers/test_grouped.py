"""ActNN's compressed activations: bfloat16 constants, stochastic rounding by counted random numbers, masks.

The oracle rounds in NumPy with a Philox in Python integers, element by element, and knows nothing of words.
"""

import copy
import itertools
import pickle
import threading

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quantized import quantize, quiet  # noqa: F401  # a fixture of this file

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.core.bfloat16 import bfloat16_bits, bfloat16_values
from quantarray.core.dtypes import Constants
from quantarray.cpu.bits import encode_grouped as kernels
from quantarray.quantizers import grouped

MASK = 2**32 - 1


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# the oracle


def philox(counter, key):
    """Philox4x32-10 in Python integers, as the paper has it."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, r = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (r >> 32) ^ b ^ k, r & MASK, (p >> 32) ^ d ^ m, p & MASK
        k, m = (k + 0x9E3779B9) & MASK, (m + 0xBB67AE85) & MASK
    return a, b, c, d


def uniform(n, seed, use=grouped.ROUNDING):
    """The random number of element n."""
    block = n // 4
    return philox((block & MASK, block >> 32, use, 0), (seed & MASK, seed >> 32))[n % 4] / 2**32


def wide(constant, q):
    """A constant for each element of q, float64."""
    index = np.arange(q.shape[q.axis]) // (q.group or max(q.shape[q.axis], 1))
    if constant.shape[q.axis] > 1:
        constant = constant.take(index, q.axis)
    return np.broadcast_to(constant, q.shape).astype(np.float64)


def expected_codes(x, q, u):
    t = (x.astype(np.float64) - wide(q.offset, q)) / wide(q.scale, q)
    return np.clip(np.floor(t + u), 0, 2**q.bits - 1)


# known answers


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [  # of Random123, the authors' own library
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([MASK] * 4, [MASK] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter, key, answer):
    words = np.array(counter, np.uint64)[:, None].repeat(3, 1)
    kernels.philox(words, np.array(key, np.uint32))
    for block in words.T:
        assert " ".join(f"{int(w):08x}" for w in block) == answer
    assert " ".join(f"{w:08x}" for w in philox(counter, key)) == answer


def test_golden_codes():
    """The codes of a seed cannot change without notice."""
    x = np.arange(1000, dtype=np.float32)
    assert quantize(x, qa.Grouped(2, seed=7)).digest() == "ffe12040122497401d25a6e6e132f99d"
    assert qa.dropout_mask((10, 100), 0.3, seed=7).digest() == "61e4a06022f5646598af647167530ae5"


@numba.njit
def draw(first, stride, key, block, u):
    kernels.draw_uniform(first, stride, key, block, u)


@pytest.mark.parametrize("first", [0, 1, 2, 3, 2**34 - 30, 2**40 + 1])
@pytest.mark.parametrize("stride", [1, 2, 3, 64, 2**33])
def test_numbers_are_counted(first, stride):
    u, block = np.zeros(64, np.uint32), np.zeros((4, 20 if stride == 1 else 64), np.uint64)
    draw(first, stride, grouped.philox_key(2**40 + 5, grouped.DROPOUT), block, u)
    assert (u * 2.0**-32).tolist() == [uniform(first + i * stride, 2**40 + 5, grouped.DROPOUT) for i in range(64)]


# bfloat16


def test_bfloat16_holds_every_number_of_its_own():
    bits = np.arange(2**16, dtype=np.uint16)
    values = bfloat16_values(bits)
    finite = np.isfinite(values)
    assert values.dtype == np.float32 and finite.sum() == 2 * (0x7F80)
    np.testing.assert_array_equal(bfloat16_bits(values[finite]), bits[finite])


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=20), st.integers(0, 2**16))
def test_bfloat16_rounds_to_nearest_even(numbers, at):
    exact = np.abs(bfloat16_values(np.uint16([at & 0x3FFF, (at & 0x3FFF) + 1]))).astype(np.float64)
    x = np.float32([*numbers, exact.mean(), -exact.mean()])  # the last two are ties
    bits = bfloat16_bits(x)
    got = bfloat16_values(bits).astype(np.float64)
    below, above = (bfloat16_values((bits & 0x7FFF) + np.uint16(d)).astype(np.float64) for d in (-1 % 2**16, 1))
    error, size = np.abs(np.abs(x.astype(np.float64)) - np.abs(got)), np.abs(x.astype(np.float64))
    nonzero = got != 0
    assert (error <= np.abs(size - above)).all() and (error <= np.abs(size - below))[nonzero].all()
    tie = (error == np.abs(size - above)) | (nonzero & (error == np.abs(size - below)))
    assert tie[-2:].all() and (bits[tie] % 2 == 0).all() and (np.signbit(got) == np.signbit(x)).all()


def narrow(axis=-1):
    """An array of two rows in groups of 64, its constants in bfloat16."""
    x = normal(2, 3, 200) if axis == -1 else normal(200, 2, 3)
    return quantize(x, qa.Grouped(3, group=64, seed=5), axis)


def test_constants_are_stored_as_bfloat16():
    q = narrow()
    assert q.constants.bfloat16 and q.constants.nbytes == 2 * 2 * 3 * 4 * 2
    assert q.nbytes == q.words.nbytes + q.constants.nbytes
    for name, a, _ in q.constants.items():
        assert a.dtype == np.uint16 and not a.flags.writeable
        shown = getattr(q, name)
        assert shown.dtype == np.float32 and shown.shape == (2, 3, 4) and not shown.flags.writeable
        np.testing.assert_array_equal(bfloat16_bits(shown), a)
    assert "in bfloat16" in repr(q.constants) and "2 in groups of 64" in repr(q)


def test_what_moves_elements_keeps_bfloat16():
    q = narrow()
    moved = [q.T, q.transpose(2, 0, 1), q.reshape(6, 200), q[1], q[:, 1:, 64:128], q[None], q.copy()]
    moved += [pickle.loads(pickle.dumps(q)), copy.deepcopy(q), copy.copy(q)]
    values = q.dequantize()
    shown = [
        values.T,
        values.transpose(2, 0, 1),
        values.reshape(6, 200),
        values[1],
        values[:, 1:, 64:128],
        values[None],
    ]
    for got, value in zip(moved, [*shown, *[values] * 4], strict=True):
        validate(got)
        assert got.constants.bfloat16
        np.testing.assert_array_equal(got.dequantize(), value)
    assert q.T.T.digest() == q.digest()


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_files_keep_bfloat16(ending, tmp_path):
    for q in (narrow(), narrow(0), quantize(normal(3), qa.Grouped(1)), quantize(normal(0, 300), qa.Grouped(2))):
        qa.save(tmp_path / f"q{ending}", q)
        loaded = qa.load(tmp_path / f"q{ending}")
        validate(loaded)
        stored = [[(name, a.dtype, a.tolist()) for name, a, _ in p.constants.items()] for p in (q, loaded)]
        assert stored[0] == stored[1] and loaded.digest() == q.digest() and loaded.nbytes == q.nbytes
        assert not any(a.flags.writeable for _, a, _ in loaded.constants.items())


def test_the_type_of_constants_is_part_of_the_digest_and_not_of_the_value():
    q = narrow()
    same = qa.from_words(q.words, q.dtype, q.shape, scale=q.scale, offset=q.offset, group=q.group)
    assert not same.constants.bfloat16 and same.constants.nbytes == 2 * q.constants.nbytes
    assert qa.array_equal(q, same) and qa.array_equal(same, q) and q.digest() != same.digest()
    bits = {name: a for name, a, _ in q.constants.items()}
    other = qa.from_words(q.words, q.dtype, q.shape, **bits, group=q.group)
    assert not qa.array_equal(q, other)  # whoever gives from_words integers means their numbers


def test_a_file_of_mixed_or_infinite_constants_is_refused(tmp_path):
    q, path = narrow(), tmp_path / "q.npz"
    qa.save(path, q)
    with np.load(path) as file:
        whole = dict(file)
    for name, a in (
        ("scale", q.scale),
        ("offset", whole["offset"] | np.uint16(0x7F80)),
        ("offset", whole["offset"].astype(">u2")),
        ("scale", whole["scale"].astype(np.uint32)),
    ):
        np.savez(path, **{**whole, name: a})
        with pytest.raises(qa.FormatError):
            qa.load(path)


def test_validate_refuses_mixed_constants():
    q = narrow()
    scale, offset = (a for _, a, _ in q.constants.items())
    infinite = np.full_like(scale, 0x7F80)
    for made in (Constants(q.scale, offset), Constants(scale, q.offset), Constants(infinite, offset)):
        with pytest.raises(ValueError, match="bfloat16"):
            validate(
                qa.QuantArray(
                    q.words, q.dtype, q.shape, q.axis, Constants(made.items()[0][1], made.items()[1][1], group=64)
                )
            )


def test_to_bfloat16_has_no_negative_zero():
    tiny = np.float32([[-1e-45, -0.0, 1.0]])
    bits = Constants(tiny, tiny, group=1).to_bfloat16().items()[1][1]
    assert bits.tolist() == [[0, 0, 0x3F80]]


# what ActNN's numbers say


@pytest.mark.parametrize(("bits", "ratio"), [(1, "28.44"), (2, "15.06"), (4, "7.76"), (8, "3.94")])
def test_compression(bits, ratio):
    x = normal(8, 2560)
    assert f"{x.nbytes / quantize(x, qa.Grouped(bits)).nbytes:.2f}" == ratio


def test_variance_at_two_bits():
    """N(0, 1) in groups of 256: .5951 were measured where p (1 - p) step^2 is .5952; its mean over many is .5956."""
    x = normal(4096, 256)
    for constants, most in (("float32", 0.5952), ("bfloat16", 0.5952 * 1.015)):  # wider steps, so that none is outside
        q = quantize(x, qa.Grouped(2, seed=1, constants=constants))
        step = wide(q.scale, q)
        t = (x - wide(q.offset, q)) / step
        p = t - np.floor(t)
        formula = (p * (1 - p) * step**2).mean()
        measured = ((q.dequantize().astype(np.float64) - x) ** 2).mean()
        assert abs(formula - most) < 0.005 and abs(measured - formula) < 0.002


@pytest.mark.parametrize("bits", [1, 2, 3, 8])
@pytest.mark.parametrize("constants", ["bfloat16", "float32"])
@pytest.mark.parametrize("shift", [0, 1000])
def test_unbiased_and_of_that_variance(bits, constants, shift):
    """Means over seeds and copies, for every element: the extremes of a group too, and far from zero."""
    x, seeds, copies = normal(2, 64) + np.float32(shift), 40, 100
    q = quantize(x, qa.Grouped(bits, 32, constants=constants))
    low, step = wide(q.offset, q), wide(q.scale, q)
    t = (x - low) / step
    assert (t >= 0).all() and (t <= 2**bits - 1).all()
    total, square = np.zeros(x.shape), np.zeros(x.shape)
    for seed in range(seeds):
        codes = quantize(np.tile(x, (copies, 1, 1)), qa.Grouped(bits, 32, seed, constants=constants)).codes()
        error = codes - t
        total, square = total + error.sum(axis=0), square + (error**2).sum(axis=0)
    count = seeds * copies
    p = t - np.floor(t)
    variance = p * (1 - p)
    assert (np.abs(total / count) < 5 * np.sqrt(variance / count) + 1e-3).all()
    spread = np.sqrt(np.maximum(variance * (1 - 4 * variance), 0.01) / count)  # of error^2, a coin's
    assert (np.abs(square / count - variance) < 6 * spread).all()


def test_rounding_constants_to_nearest_would_be_biased():
    """Why min is rounded down and step up: near 1000, bfloat16 numbers are 4 apart."""
    x = normal(1, 256) + np.float32(1006)
    q = quantize(x, qa.Grouped(2))
    assert q.offset.item() <= x.min() and q.offset.item() + 3 * q.scale.item() >= x.max()
    nearest = bfloat16_values(bfloat16_bits(x.min(keepdims=True))).item()
    assert nearest > x.min() + 1


# the same codes everywhere


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=2))) + (
        draw(st.sampled_from([1, 3, 63, 64, 65, 130, 257])),
    )
    axis = draw(st.integers(0, len(shape) - 1))
    shape = tuple(np.moveaxis(np.empty(shape), -1, axis).shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(size=shape) * draw(st.sampled_from([1e-44, 1e-39, 1e-3, 1, 1e30])) + draw(
        st.sampled_from([0, 0, 1e4])
    )
    x = np.where(rng.random(shape) < 0.1, 0, x).astype(draw(st.sampled_from([np.float32, np.float64])))
    made = qa.Grouped(
        draw(st.integers(1, 8)),
        draw(st.sampled_from([1, 2, 7, 32, 64, 100, 128])),
        draw(st.sampled_from([0, 1, 2**64 - 1])),
        draw(st.booleans()),
        draw(st.sampled_from(["bfloat16", "float32"])),
    )
    scale_axis = draw(st.sampled_from([None, (), *(d for d in range(len(shape)) if d != axis)]))
    return x, made, axis, scale_axis


@given(cases())
def test_codes_are_the_oracles(case):
    x, made, axis, scale_axis = case
    q = quantize(x, made, axis, scale_axis)
    number = np.arange(x.size).reshape(x.shape)
    u = np.vectorize(lambda n: uniform(int(n), made.seed), otypes=[float])(number) if made.stochastic else 0.5
    np.testing.assert_array_equal(q.codes(), expected_codes(x, q, u))
    assert q.constants.bfloat16 == (made.constants == "bfloat16")
    given_constants = Constants(*(wide(c, q).astype(np.float32) for c in (q.scale, q.offset)))
    np.testing.assert_array_equal(made.encode(x, given_constants), q.codes())  # by the protocol itself
    t = (x.astype(np.float64) - wide(q.offset, q)) / wide(q.scale, q)
    assert (t >= 0).all() and (t <= (2**made.bits - 1) * (1 + 1e-15)).all()
    digits = 8 if q.constants.bfloat16 else 24
    for c in (q.scale, q.offset):
        assert (np.ldexp(np.frexp(c.astype(float))[0], digits) % 1 == 0).all()
    if not made.stochastic and scale_axis is None:
        assert (
            np.abs(x - q.dequantize().astype(np.float64))
            <= wide(q.scale, q) * 0.5000001 + np.spacing(np.abs(np.float32(x)))
        ).all()


@given(cases())
def test_rounding_to_nearest_is_idempotent(case):
    x, made, axis, scale_axis = case
    q = quantize(x, qa.Grouped(made.bits, made.group, 0, False, made.constants), axis, scale_axis)
    nearest = qa.Grouped(made.bits, stochastic=False)
    again = nearest.encode(q.dequantize(), Constants(*(wide(c, q).astype(np.float32) for c in (q.scale, q.offset))))
    decoded = (wide(q.offset, q) + wide(q.scale, q) * again).astype(np.float32)
    np.testing.assert_array_equal(decoded, q.dequantize())


@pytest.mark.parametrize("stochastic", [True, False])
def test_threads_change_nothing(stochastic, monkeypatch):
    for x, axis in ((normal(37, 1000), 1), (normal(1, 70_000), 1), (normal(300, 7, 11), 0)):
        found = set()
        for least, threads in itertools.product((0, 2**62), (1, 2)):
            monkeypatch.setattr(kernels, "_LEAST", least)
            before = numba.get_num_threads()
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            try:
                found.add(quantize(x, qa.Grouped(3, 100, 9, stochastic), axis).digest())
            finally:
                numba.set_num_threads(before)
        assert len(found) == 1


def test_many_python_threads_at_once():
    x, found = normal(64, 1024), []
    calls = [threading.Thread(target=lambda: found.append(quantize(x, qa.Grouped(4)).digest())) for _ in range(8)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert len(found) == 8 and len(set(found)) == 1


def test_shapes_and_layouts_change_nothing():
    """Random numbers go by the index in the flattened array."""
    x = normal(6, 512)
    q = quantize(x, qa.Grouped(2, 128, seed=3))
    for other in (x.reshape(3, 2, 512), x.reshape(24, 128), x.reshape(3072), x.reshape(2, 3, 512, 1).squeeze(3)):
        np.testing.assert_array_equal(quantize(other, qa.Grouped(2, 128, seed=3)).codes().ravel(), q.codes().ravel())
    for same in (np.asfortranarray(x), x[::-1][::-1], x.astype(np.float64), x.astype(">f4"), x.tolist()):
        assert quantize(same, qa.Grouped(2, 128, seed=3)).digest() == q.digest()
    one = [quantize(x, qa.Grouped(2, 1000, seed=3), axis, scale_axis=()).codes() for axis in (0, 1)]
    np.testing.assert_array_equal(*one)


def test_seeds_differ():
    x = normal(4, 1024)
    seeds = [0, 1, 2, 2**32, 2**32 + 1, 2**63, 2**64 - 1, np.int64(3)]
    assert len({quantize(x, qa.Grouped(2, seed=s)).digest() for s in seeds}) == len(seeds)
    assert quantize(x, qa.Grouped(2, seed=5)).digest() == quantize(x, qa.Grouped(2, seed=5)).digest()


# edges


def test_nothing_spills_into_the_neighbours_bits():
    """Constants that leave x above the last level or below the first: codes are clamped, tails and other codes stay."""
    x = np.float32([0, 1e30, -1e30, np.inf, -np.inf, 3.9999, 0, 2])
    law = Constants(np.ones(1, np.float32), np.zeros(1, np.float32))
    for bits in range(1, 9):
        top = 2**bits - 1
        for seed in range(20):
            codes = qa.Grouped(bits, seed=seed).encode(x, law)
            assert codes[[0, 1, 2, 3, 4, 6]].tolist() == [0, top, 0, top, 0, 0] and codes[5] in {
                min(top, c) for c in (3, 4)
            }
            assert codes[7] == min(2, top)
            words = qa.Grouped(bits, seed=seed).encode_words(x, law, 0)
            assert (words >> np.uint64(8) == 0).all()


def test_ties():
    x = np.float32([0, 0.5, 1, 1.5, 2, 2.5, 3])
    q = quantize(x, qa.Grouped(2, stochastic=False))
    assert (q.offset.item(), q.scale.item()) == (0, 1) and q.codes().tolist() == [0, 1, 1, 2, 2, 3, 3]
    for seed in range(50):  # a value on a level has no other code
        assert quantize(x, qa.Grouped(2, seed=seed)).codes()[::2].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match=r"quantize: x.* at \(1, 2\)"):
        qa.quantize(np.where(np.arange(6).reshape(2, 3) == 5, bad, 1.0), qa.Grouped(2))


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.0, 0.5, 255.0, 2.0**-133, -(2.0**-133), 1.5 * 2.0**127])
@pytest.mark.parametrize("bits", [1, 2, 8])
def test_constant_groups_of_bfloat16_numbers_are_exact(value, bits):
    x = np.full((2, 300), value, np.float32)
    for constants in ("bfloat16", "float32"):
        q = quantize(x, qa.Grouped(bits, constants=constants))
        np.testing.assert_array_equal(q.dequantize(), x)
        assert (q.codes() == 0).all() and (q.scale == 1).all()


@pytest.mark.parametrize("value", [0.1, -3.7, 1e-45, -1e-45, 1e-39, 3.3e38, -3.3e38, 2.0**24 - 1, 1000.001])
@pytest.mark.parametrize("bits", [1, 2, 8])
def test_other_constant_groups(value, bits):
    """float32 constants hold them; bfloat16's round to one of the two neighbours, or between."""
    x = np.full((2, 300), value, np.float32)
    np.testing.assert_array_equal(quantize(x, qa.Grouped(bits, constants="float32")).dequantize(), x)
    q = quantize(x, qa.Grouped(bits))
    bound = max(2.0**-133, 2.0 ** (np.frexp(abs(value))[1] - 8))
    assert (np.abs(q.dequantize().astype(np.float64) - x) <= bound * (1 + 2**-7)).all() and (q.scale > 0).all()


def test_mixed_groups():
    """A constant group beside others, and the rest of a row as a shorter group."""
    x = np.concatenate([np.full(64, 2.0), np.arange(64), np.full(5, -1.0)]).astype(np.float32)
    q = quantize(x, qa.Grouped(8, 64))
    assert q.group == 64 and q.offset.tolist() == [2, 0, -1] and q.scale[[0, 2]].tolist() == [1, 1]
    decoded = q.dequantize()
    assert (decoded[:64] == 2).all() and (decoded[128:] == -1).all() and np.abs(decoded - x).max() <= q.scale[1]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)])
def test_empty(shape):
    for axis in range(len(shape)):
        q = quantize(np.zeros(shape, np.float32), qa.Grouped(2), axis)
        assert q.shape == q.dequantize().shape == shape and q.constants.bfloat16
        assert qa.Grouped(2).encode(np.zeros(shape), q.constants).shape == shape


def test_one_element():
    for value in (0.75, -2.0):
        q = quantize(np.float32([value]), qa.Grouped(2))
        assert q.dequantize().tolist() == [value] and q.group is None


def test_integers_and_bools():
    x = np.arange(-4, 4)
    for dtype in (np.int8, np.int64, np.float16):
        assert quantize(x.astype(dtype), qa.Grouped(3)).dequantize().tolist() == x.tolist()
    assert quantize(x > 0, qa.Grouped(1)).codes().tolist() == (x > 0).tolist()


def test_data_too_large_for_the_constants():
    for x in ([3.4e38, -3.4e38], [3.4028e38, 0.0], [1e308, -1e308], [-3.402e38] * 2):
        with pytest.raises(ValueError, match="Grouped: the data are too large"):
            qa.quantize(np.float64(x), qa.Grouped(2))
    assert quantize(np.float32([3e38, -3e38]), qa.Grouped(2)).codes().tolist() == [3, 0]


def test_own_group_and_another():
    x = normal(3, 1000)
    assert quantize(x, qa.Grouped(2)).group == 256 and quantize(x, qa.Grouped(2)).scale.shape == (3, 4)
    assert quantize(x, qa.Grouped(2), group=64).scale.shape == (3, 16)
    assert quantize(x, qa.Grouped(2), scale_axis=()).scale.shape == (1, 4)
    assert quantize(x, qa.Grouped(2), axis=0).scale.shape == (1, 1000)
    assert quantize(x, qa.Grouped(2), scale_axis=1).scale.shape == (1, 1000)


def test_reprs_make_the_same_quantizer():
    for made in (qa.Grouped(2), qa.Grouped(8, 64, 3, False, "float32"), qa.Grouped(1, constants="float32")):
        assert vars(eval(repr(made), {"Grouped": qa.Grouped})) == vars(made)
    assert not qa.Grouped(2).nearest and qa.Grouped(2, stochastic=False).nearest and not qa.Grouped(2).fixed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 0}, "bits must be an integer from 1 to 8, got 0"),
        ({"bits": 9}, "bits"),
        ({"bits": 2.0}, "bits"),
        ({"bits": True}, "bits"),
        ({"bits": 2, "group": 0}, "group must be an integer from 1"),
        ({"bits": 2, "seed": -1}, "seed"),
        ({"bits": 2, "seed": 2**64}, "seed"),
        ({"bits": 2, "stochastic": 1}, "stochastic must be True or False"),
        ({"bits": 2, "constants": "float16"}, "constants must be 'bfloat16' or 'float32'"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^Grouped: {message}"):
        qa.Grouped(**arguments)


# arithmetic


@pytest.mark.parametrize("group", [64, 128, 256])
def test_linear_with_groups(group):
    x, w = normal(5, 700), normal(9, 700, seed=1)
    q = quantize(x, qa.Grouped(3, group, seed=2))
    for weights in (qa.quantize(w, qa.Uniform(4), scale_axis=0), qa.quantize(w, qa.Grouped(2, 64))):
        exact = q.dequantize().astype(np.float64) @ weights.dequantize().astype(np.float64).T
        np.testing.assert_allclose(qa.linear(q, weights), exact, rtol=1e-5, atol=1e-3)
    with pytest.raises(ValueError, match="one scale for each multiple of 64 elements"):
        qa.linear(quantize(x, qa.Grouped(3, 100)), weights)


# masks


def test_relu_mask():
    x = normal(3, 4, 70)
    x[0, 0, :4] = [0, -0.0, np.inf, -np.inf]
    for axis in range(3):
        mask = qa.relu_mask(x, axis)
        validate(mask)
        assert mask.dtype is qa.uint1 and mask.axis == axis
        np.testing.assert_array_equal(mask.dequantize(), x > 0)
    assert qa.relu_mask(np.int8([-1, 0, 1])).codes().tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"relu_mask: x must hold no NaN, got one at \(1,\)"):
        qa.relu_mask([0.0, np.nan])


@pytest.mark.parametrize("p", [0, 0.1, 0.5, 0.9, 1])
def test_dropout_mask(p):
    mask = qa.dropout_mask((50, 2000), p, seed=4)
    validate(mask)
    kept = mask.codes()
    assert mask.dtype is qa.uint1 and abs(kept.mean() - (1 - p)) <= 5 * np.sqrt(p * (1 - p) / kept.size)
    few = [uniform(n, 4, grouped.DROPOUT) + (1 - p) >= 1 for n in range(500)]
    assert kept.ravel()[:500].tolist() == few


def test_dropout_masks_are_the_same_everywhere(monkeypatch):
    mask = qa.dropout_mask((6, 50, 40), 0.4, 11)
    for axis in range(3):
        other = qa.dropout_mask((6, 50, 40), 0.4, 11, axis)
        validate(other)
        np.testing.assert_array_equal(other.codes(), mask.codes())
    np.testing.assert_array_equal(qa.dropout_mask(12000, 0.4, 11).codes(), mask.codes().ravel())
    monkeypatch.setattr(kernels, "_LEAST", 0)
    assert qa.dropout_mask((6, 50, 40), 0.4, 11).digest() == mask.digest()
    assert qa.dropout_mask((6, 50, 40), 0.4, 12).digest() != mask.digest()
    assert qa.dropout_mask((0, 3), 0.5).shape == (0, 3) and qa.dropout_mask([3, 0], 0.5).shape == (3, 0)


def test_dropout_is_independent_of_rounding():
    """With one seed for both, their random numbers come from different streams."""
    n = 100_000
    x = np.tile(np.float32([0, 0.5, 1, 0.5]), n // 4)
    up = quantize(x, qa.Grouped(1, n, seed=1)).codes()[1::2].astype(float)
    kept = qa.dropout_mask(n, 0.5, seed=1).codes()[1::2].astype(float)
    assert abs(np.corrcoef(up, kept)[0, 1]) < 5 / np.sqrt(n / 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: qa.dropout_mask((2, 3), 1.5), ValueError, "p must be a probability from 0 to 1, got 1.5"),
        (lambda: qa.dropout_mask((2, 3), True), ValueError, "p must be a probability"),
        (lambda: qa.dropout_mask((2, -3), 0.5), ValueError, "a length of shape must be at least 0"),
        (lambda: qa.dropout_mask((), 0.5), np.exceptions.AxisError, "axis -1 is out of bounds"),
        (lambda: qa.dropout_mask((2,), 0.5, seed=2**64), ValueError, "seed must be at most"),
    ],
)
def test_dropout_arguments(call, error, message):
    with pytest.raises(error, match=f"^dropout_mask: {message}"):
        call()
