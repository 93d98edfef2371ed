"""Constants as integers times a float16 of each super-block: values, forms, files, and products."""

import copy
import pickle
import tracemalloc

import fake_cupy
import gguf_files
import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.core.super_blocks import SuperBlocks

KINDS = {"Q2_K": 16, "Q3_K": 16, "Q4_K": 32, "Q5_K": 32, "Q6_K": 16, "IQ4_XS": 32}


def drawn(rng, shape, run, bits, dtype):
    """Draw integers of a shape and a float16 for each run of groups: any finite one, small ones and zeros."""
    low, high = (0, 16) if bits == 4 else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    halves = np.frombuffer(rng.bytes(2 * int(np.prod(shape)) // run), np.float16).reshape(*shape[:-1], -1).copy()
    halves[~np.isfinite(halves)] = 0.5
    halves[..., 0] = -0.0
    return SuperBlocks(rng.integers(low, high, shape).astype(dtype), halves, bits)


def as_float32(w):
    c = w.constants
    numbers = qa.Constants(c.scale, c.offset, group=c.group)
    return qa.QuantArray(w.words, w.dtype, w.shape, w.axis, numbers, w.scheme)


def loaded(tmp_path, kind, rows=20, blocks=3):
    path = tmp_path / "x.gguf"
    stored = gguf_files.draw(np.random.default_rng(len(kind)), kind, rows, blocks)
    path.write_bytes(gguf_files.write({"w": stored}).data)
    return qa.load(path)["w"], stored


def same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


FORMS = [(8, np.int8), (8, np.uint8), (4, np.uint8)]


@pytest.mark.parametrize(("bits", "dtype"), FORMS)
@pytest.mark.parametrize("groups", [16, 17])
def test_values_are_products_in_float32(bits, dtype, groups):
    rng = np.random.default_rng(groups)
    blocks = drawn(rng, (5, groups), 8 if groups == 16 else 1, bits, dtype)
    run = groups // blocks.halves.shape[1]
    expected = np.empty((5, groups), np.float32)
    for i, g in np.ndindex(5, groups):
        expected[i, g] = float(blocks.integers[i, g]) * float(blocks.halves[i, g // run])
    same_bits(blocks.values(), expected + np.float32(0))
    assert blocks.nbytes == 5 * (-(-groups * bits // 8) + 2 * groups // run)
    assert not blocks.values().flags.writeable
    for other in (pickle.loads(pickle.dumps(blocks)), copy.deepcopy(blocks)):
        assert other == blocks and other.nbytes == blocks.nbytes
        same_bits(other.values(), blocks.values())


@pytest.mark.parametrize(("bits", "dtype"), FORMS)
@pytest.mark.parametrize("shape", [(0, 0), (0, 1), (0, 5), (3, 0), (2, 0, 4)])
def test_no_constants(bits, dtype, shape, tmp_path):
    """Arrays without rows or without groups, and their views, files and transposes."""
    blocks = SuperBlocks(np.zeros(shape, dtype), np.zeros((*shape[:-1], min(1, shape[-1])), np.float16), bits)
    assert blocks.integers.shape == blocks.values().shape == shape and blocks.size == 0
    assert pickle.loads(pickle.dumps(blocks)) == blocks and str(shape) in repr(blocks)
    w = qa.from_codes(np.zeros((*shape[:-1], 16 * shape[-1]), np.uint8), qa.uint4, scale=blocks, group=16)
    for view in (w, w[:0], w[..., :], w.T, w[None]):
        validate(view)
        assert view.dequantize().size == 0 and repr(view)
    qa.save(tmp_path / "w.qa", w)
    assert qa.load(tmp_path / "w.qa").constants.super_blocks == {"scale": blocks}


def test_arrays_that_can_be_written_to_are_copied():
    integers, halves = np.int8([[1, 2]]), np.float16([[0.5]])
    blocks = SuperBlocks(integers, halves)
    integers[:], halves[:] = 0, 0
    assert blocks.values().tolist() == [[0.5, 1]]
    with pytest.raises(ValueError):
        blocks.halves[:] = 0


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((np.int16([1]), np.float16([1])), TypeError, "integers of 8 bits must be uint8 or int8"),
        ((np.int8([1]), np.float16([1]), 4), TypeError, "integers of 4 bits must be uint8 and"),
        ((np.int8([1]), np.float32([1])), TypeError, "halves float16"),
        ((np.uint8([16]), np.float16([1]), 4), ValueError, "at most 15, got 16"),
        ((np.uint8([1]), np.float16([1]), 5), ValueError, "bits must be 4 or 8"),
        ((np.int8([1, 2, 3]), np.float16([1, 1])), ValueError, "a divisor of groups"),
        ((np.int8([[1, 2]]), np.float16([1])), ValueError, "the same leading lengths"),
        ((np.int8([1]), np.float16([])), ValueError, "a divisor of groups"),
        ((np.int8([1]), np.float16([np.inf])), ValueError, "halves must be finite"),
        ((np.int8(1), np.float16(1)), ValueError, "integers"),
    ],
)
def test_what_is_refused(args, error, message):
    with pytest.raises(error, match=message):
        SuperBlocks(*args)


def test_constants_that_do_not_fit():
    codes, blocks = np.zeros((2, 64), np.uint8), SuperBlocks(np.ones((2, 4), np.int8), np.ones((2, 1), np.float16))
    assert qa.from_codes(codes, qa.uint4, scale=blocks, group=16).constants.super_blocks == {"scale": blocks}
    with pytest.raises(ValueError, match="scale must have the shape"):
        qa.from_codes(codes, qa.uint4, scale=blocks, group=32)
    with pytest.raises(ValueError, match="along the last, packed axis"):
        other = SuperBlocks(np.ones((4, 2), np.int8), np.ones((4, 1), np.float16))
        qa.from_codes(codes.T, qa.uint4, axis=0, scale=other, group=16)
    with pytest.raises(ValueError, match="of each group"):  # a file could not tell one integer from a byte of two
        one = SuperBlocks(np.ones((2, 1), np.int8), np.ones((2, 1), np.float16))
        qa.from_codes(codes, qa.uniform(4), scale=one, offset=np.ones((2, 4)), group=16)
    beside = qa.from_codes(codes, qa.uniform(4), scale=blocks, offset=-1.0, group=16)
    assert beside.offset.tolist() == [[-1]] and [*beside.constants.super_blocks] == ["scale"]
    assert beside.dequantize()[0, 0] == -1


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_k_types(kind, tmp_path):
    w, stored = loaded(tmp_path, kind)
    plain, values = as_float32(w), gguf_files.values(stored)
    assert w.nbytes <= 1.05 * len(stored.data) and w.group == KINDS[kind]
    assert w.nbytes == w.words.nbytes + w.constants.nbytes and f"{w.nbytes} bytes" in repr(w)
    assert not plain.constants.super_blocks and qa.array_equal(w, plain) and w.digest() != plain.digest()
    whole = slice(w.group, 3 * w.group)
    for key in (slice(2, 9), 3, [4, 1], (None, slice(0, 4, 2)), (slice(1, 3), slice(None)), (..., slice(None))):
        part = w[key]
        validate(part)
        assert part.constants.super_blocks.keys() == w.constants.super_blocks.keys()
        np.testing.assert_array_equal(part.dequantize(), values[key])
    for part, expected in (
        (w[3, whole], values[3, whole]),
        (w[2:4, whole], values[2:4, whole]),
        (w[..., None], values[..., None]),
        (w.T, values.T),
        (w.reshape(4, 5, -1), values.reshape(4, 5, -1)),
        (qa.concatenate([w, plain]), np.concatenate([values, values])),
        (qa.concatenate([w, w], axis=1), np.concatenate([values, values], axis=1)),
        (qa.broadcast_to(w, (2, *w.shape)), np.broadcast_to(values, (2, *w.shape))),
    ):
        validate(part)
        np.testing.assert_array_equal(part.dequantize(), expected)
    for other in (pickle.loads(pickle.dumps(w)), copy.deepcopy(w), w.copy()):
        validate(other)
        assert other.constants.super_blocks == w.constants.super_blocks and other.digest() == w.digest()
    rounded = w.constants.to_bfloat16()
    assert rounded.bfloat16 and not rounded.super_blocks


@pytest.mark.parametrize("kind", KINDS)
def test_products_equal_those_of_float32_constants(kind, tmp_path):
    w, _ = loaded(tmp_path, kind, 37, 5)
    plain, rng = as_float32(w), np.random.default_rng(1)
    for rows in (1, 4, 9, 130):
        x = rng.standard_normal((rows, w.shape[1])).astype(np.float32)
        for how in (None, "row", 16, 32, 64, 256) if kind != "IQ4_XS" else (None,):
            with np.errstate(all="ignore"):
                same_bits(qa.linear(x, w, quantize_x=how), qa.linear(x, plain, quantize_x=how))
    assert w.nbytes_cached <= 128  # the levels of IQ4_XS as float64


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_reads_float32(kind, tmp_path):
    w, _ = loaded(tmp_path, kind, 12, 3)
    x = np.random.default_rng(2).standard_normal((3, w.shape[1])).astype(np.float32)
    for how in (None, "row", 32) if kind != "IQ4_XS" else (None,):
        with np.errstate(all="ignore"):
            expected = qa.linear(x, w, quantize_x=how)
            with fake_cupy.gpu() as xp:
                on_gpu = w.to_device("cuda")
                same_bits(xp.asnumpy(qa.linear(xp.asarray(x), on_gpu, quantize_x=how)), expected)
                np.testing.assert_array_equal(xp.asnumpy(on_gpu.dequantize()), w.dequantize())
                assert on_gpu.to_device("cpu").digest() == w.digest() == on_gpu.digest()


@pytest.mark.parametrize(("bits", "dtype"), FORMS)
@pytest.mark.parametrize(
    ("group", "k", "run"),
    [
        (16, 304, 19),
        (16, 240, 3),
        (32, 2 * 32 * 17, 2),
        (64, 64 * 24, 8),
        (64, 1280, 4),
        (16, 16, 1),
        (32, 32 * 136, 8),  # of several panels, which begin within a run of groups
        (256, 256 * 32, 16),
    ],
)
def test_products_of_other_lengths_of_super_blocks(group, k, run, bits, dtype):
    """Rows that end within a vector, runs other than of K types, and groups of more than x has."""
    rng = np.random.default_rng(k)
    outputs, groups = 11, k // group
    shape = (outputs, groups)
    laws = [(qa.uniform(3), {n: drawn(rng, shape, run, bits, dtype) for n in ("scale", "offset")})]
    laws.append(
        (qa.uniform(2), {"scale": drawn(rng, shape, run, bits, dtype), "offset": rng.random(shape).astype("f4")})
    )
    laws += [(law, {"scale": drawn(rng, shape, run, bits, dtype)}) for law in (qa.int6, qa.integers(-9, 0, 1, 50))]
    for law, constants in laws:
        codes = rng.integers(0, law.n_levels, (outputs, k)).astype(np.uint8)
        w = qa.from_codes(codes, law, **constants, group=group)
        plain = as_float32(w)
        np.testing.assert_array_equal(w.dequantize(), plain.dequantize())
        for rows in (1, 7, 40):
            x = rng.standard_normal((rows, k)).astype(np.float32)
            for how in (None, "row", 16, 64) if law.step or law.kind == "uniform" else (None,):
                with np.errstate(all="ignore"):
                    same_bits(qa.linear(x, w, quantize_x=how), qa.linear(x, plain, quantize_x=how))


@pytest.mark.parametrize("kind", ["Q2_K", "Q6_K"])
@pytest.mark.parametrize("ending", [".qa", ".npz", ".safetensors"])
def test_files_keep_super_blocks(kind, ending, tmp_path):
    if ending == ".safetensors":
        pytest.importorskip("safetensors")
    w, _ = loaded(tmp_path, kind)
    path = tmp_path / f"w{ending}"
    qa.save(path, w)
    q = qa.load(path)
    validate(q)
    assert q.constants.super_blocks == w.constants.super_blocks and q.digest() == w.digest()
    assert path.stat().st_size < 1.1 * w.nbytes + 4096
    qa.save(path, as_float32(w))
    assert not qa.load(path).constants.super_blocks


def test_a_dict_of_arrays_of_both_forms(tmp_path):
    w, _ = loaded(tmp_path, "Q4_K")
    dense = np.float16([1, 2])
    qa.save(tmp_path / "a.qa", {"w": w, "plain": as_float32(w), "plain.scale_halves": dense})
    arrays = qa.load(tmp_path / "a.qa")
    assert arrays["w"].constants.super_blocks == w.constants.super_blocks
    assert not arrays["plain"].constants.super_blocks and arrays["plain.scale_halves"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="which another array has"):
        qa.save(tmp_path / "b.qa", {"w": w, "w.scale_halves": dense})


def test_one_row_of_many_takes_little_memory():
    rows, groups = 20_000, 64
    scale = SuperBlocks(np.ones((rows, groups), np.int8), np.ones((rows, groups // 16), np.float16))
    w = qa.from_codes(np.zeros((rows, 16 * groups), np.uint8), qa.int2, scale=scale, group=16)
    for take in (lambda: w[5], lambda: w[[5, 7]].dequantize(), lambda: w[5, :256].dequantize(), lambda: w[3, 2]):
        take()
        tracemalloc.start()
        take()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 19  # its scales as float32 are 5 MB
