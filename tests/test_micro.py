"""The counting micro-kernels, each against NumPy, whatever this CPU would choose; and the choice itself."""

import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from quantarray.cpu import isa
from quantarray.cpu.micro import LANES, TILE

AVX2 = llvmlite.binding.get_host_cpu_features().get("avx2", False)
WITHOUT = pytest.mark.skipif(isa.NAME not in ("avx2", "avx512"), reason="Numba compiles for less than AVX2")
KERNELS = ["count_words", "count_ones", pytest.param("count_nibbles", marks=WITHOUT)]


@cache
def compiled(name):
    """(count, lay_out) of a micro-kernel."""
    module = import_module(f"quantarray.cpu.micro.{name}")
    count_tile = module.count_tile

    @njit
    def count(words, word, origins, origin, weights, weight, runs, first, last, differ, counts):
        count_tile(words, word, origins, origin, weights, weight, runs, first, last, differ, counts)

    return count, module.lay_out


def check(name, differ, words, origins, weights, runs, first, last, dtype=np.int64):
    """Every word of `words` and `weights` is behind one that must not be read."""
    count, lay_out = compiled(name)
    counts = np.full((TILE, LANES), -1, dtype)
    padded = np.concatenate([[~np.uint64(0)], words])
    laid_out = lay_out(np.concatenate([np.full((2, LANES), ~np.uint64(0)), weights]))
    count(
        padded,
        1,
        np.concatenate([[99], origins]),
        1,
        laid_out,
        2 * LANES,
        runs,
        first,
        last,
        -1 if differ else 0,
        counts,
    )
    expected = np.zeros((TILE, LANES), np.int64)
    for at, weight, length in runs[first:last]:
        for p in range(TILE):
            start = origins[p] + at
            a, b = words[start : start + length, None], weights[weight : weight + length]
            expected[p] += np.bitwise_count(a ^ b if differ else a & b).sum(0, dtype=np.int64)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data())
def test_counts(name, differ, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    lengths = data.draw(st.lists(st.integers(0, 9), max_size=5))
    size = sum(lengths) + data.draw(st.integers(0, 20))
    words = rng.integers(0, 1 << 64, size + 30, np.uint64)
    weights = rng.integers(0, 1 << 64, (sum(lengths), LANES), np.uint64)
    origins = rng.integers(0, 20, TILE)
    starts = np.cumsum([0, *lengths])
    rows = [(rng.integers(0, 10 + size - sum(lengths) + 1), starts[i], n) for i, n in enumerate(lengths)]
    runs = np.array(rows, np.int64).reshape(-1, 3)
    first = data.draw(st.integers(0, len(rows)))
    last, dtype = data.draw(st.integers(first, len(rows))), data.draw(st.sampled_from([np.int32, np.int64]))
    check(name, differ, words, origins, weights, runs, first, last, dtype)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lengths", [[1022], [1023], [1024], [5000], [1, 3, 1022, 2, 4], [1024, 1024]])
def test_no_sum_overflows(name, lengths):
    # All bits set: what is summed in 8 or 16 bits must be moved on in time
    size = sum(lengths)
    words, weights = np.full(size + 3, ~np.uint64(0)), np.full((size, LANES), ~np.uint64(0))
    starts = np.cumsum([0, *lengths])
    runs = np.array([(starts[i], starts[i], n) for i, n in enumerate(lengths)])
    check(name, False, words, np.arange(TILE), weights, runs, 0, len(runs))
    check(name, True, words, np.arange(TILE), weights * np.uint64(0), runs, 0, len(runs))


def run(code, **environment):
    unset = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_CPU", "QUANTARRAY_CPU"))}
    return subprocess.run([sys.executable, "-c", code], env=unset | environment, capture_output=True, text=True)


def test_environment_chooses():
    show = "import quantarray.cpu.isa as isa, quantarray.cpu.micro as m; print(isa.NAME, m.lay_out.__module__)"
    assert run(show, QUANTARRAY_CPU="portable").stdout.split() == ["portable", "quantarray.cpu.micro.count_bytes"]
    assert run(show, NUMBA_CPU_NAME="generic").stdout.split()[0] == "portable"
    assert run(show, NUMBA_CPU_NAME="x", NUMBA_CPU_FEATURES="+sse2,+avx2").stdout.split()[0] == "avx2"
    if AVX2:
        assert run(show, QUANTARRAY_CPU="avx2").stdout.split() == ["avx2", "quantarray.cpu.micro.count_bytes"]


@pytest.mark.parametrize("name", ["portable", pytest.param("avx2", marks=pytest.mark.skipif(not AVX2, reason="AVX2"))])
def test_products_for_other_cpus(name):
    """The tests of products and of the trained networks, in a process that compiles for less than this CPU has."""
    if isa.NAME == name:
        pytest.skip("this process runs them")
    tests = [f"tests/test_{chapter}.py" for chapter in ("bands", "conv2d", "linalg", "networks")]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"QUANTARRAY_CPU": name, "QUANTARRAY_EXAMPLES": "20"}
    made = subprocess.run(command, env=environment, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout[-3000:]


def test_unknown_choice():
    error = run("import quantarray.cpu", QUANTARRAY_CPU="sse9").stderr
    assert "QUANTARRAY_CPU must be one of portable, neon, avx2, avx512, got 'sse9'" in error
