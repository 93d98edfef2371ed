"""AMX without a machine that has it: the kernel on tiles in memory, its instructions as compiled for a CPU that has
them, and that it is used nowhere before it has shown that it is right.

Products as a whole run in `test_micro.py`, `test_other_cpus`: on a processor that is played, or on tiles in memory.
"""

import ctypes
import os
import re
import sys
from itertools import pairwise
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from llvmlite import ir
from numba import njit
from processors import FEATURES, run

from quantarray.cpu import costs
from quantarray.cpu.epilogue.ranks import BLENDED
from quantarray.cpu.epilogue.strips import put_strip
from quantarray.cpu.int8 import amx_emulated, amx_tiles, amx_unit, dot_amx, framed
from quantarray.cpu.int8.dot_amx import dot_rows
from quantarray.cpu.int8.interface import QUAD
from quantarray.cpu.llvm.vectors import I8, I32, I64, LANES
from quantarray.cpu.llvm.views import ByteWeights, Limits, Rows, RunSpan, View
from quantarray.cpu.runtime import amx_trial, isa
from quantarray.kernels.operands import Forms
from quantarray.kernels.windows import Window, frame, tile_count

pytestmark = pytest.mark.full
TRIPLE = "x86_64-unknown-linux-gnu"
TILES = dot_amx.EmulatedTiles()
UNIT = amx_unit.UNIT or TILES


@njit
def dotted(unit, codes, code, stride, pixels, weights, weight, apart, blocks, spans, fresh, totals, total, beside):
    rows, sums = Rows(codes, code, stride), Rows(totals, total, beside)
    columns, some = ByteWeights(weights, weight, apart, blocks), RunSpan(spans, 1, len(spans))
    dot_rows(unit, rows, pixels, columns, some, fresh, sums)


@pytest.mark.parametrize("blocks", [1, 2])
@given(data=st.data())
def test_rows(blocks, data):
    """Rows at any distance and from any byte on, in spans; bytes between, before and after them are not touched."""
    rng, fresh = np.random.default_rng(data.draw(st.integers(0, 1000))), data.draw(st.booleans())
    pixels, words = data.draw(st.integers(1, 100)), data.draw(st.integers(0, 5))
    code, weight, gap, between, total = (data.draw(st.integers(0, 70)) for _ in range(5))
    pieces, stride = -(-pixels // 16), data.draw(st.sampled_from([64, 64 * words + gap]))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, words), max_size=2))), words]
    apart = data.draw(st.integers(0, 9))  # quads between spans in a row, which the weights lack
    spans = [(16 * a + apart * i, 16 * a, 16 * (b - a)) for i, (a, b) in enumerate(pairwise(cuts))]
    codes = rng.integers(0, 256, code + 16 * pieces * stride + 64 * words + 4 * 3 * apart, np.uint8)
    weights = rng.integers(-128, 128, (2, 16 * words + between, LANES, QUAD))
    if data.draw(st.booleans()):
        codes[:], weights[:] = 255, -128
    before = rng.integers(-99, 99, (2, 16 * pieces + between, LANES), np.int32)
    totals, laid = (
        np.concatenate([np.zeros(total, np.int32), before.ravel()]),
        np.concatenate([np.zeros(weight), weights.ravel()]).astype(np.int8).view(np.uint8),
    )
    spans = np.array([(7, 7, 7), *spans])
    sizes = weights[0].size, before[0].size
    dotted(UNIT, codes, code, stride, pixels, laid, weight, sizes[0], blocks, spans, fresh, totals, total, sizes[1])
    bytes_of = np.concatenate([4 * at + np.arange(4 * length) for at, _, length in spans[1:]])
    rows = codes[code + stride * np.arange(16 * pieces)[:, None] + bytes_of[None]]
    quads = rows.reshape(16 * pieces, 16 * words, QUAD)
    expected, ours = before.copy(), np.s_[:blocks, : 16 * pieces]
    expected[ours] *= not fresh
    expected[ours] += np.einsum("pqk,bqlk->bpl", quads.astype(int), weights[:blocks, : 16 * words])
    np.testing.assert_array_equal(totals[total:].reshape(before.shape), expected)
    assert not totals[:total].any()


@njit
def put(dots, dot, pixels, extra, at, thresholds, lane, step, flips, used, channel, words, place, apart):
    limits = Limits(thresholds, lane, flips, used)
    put_strip(Rows(dots, dot, LANES), pixels, View(extra, at), limits, step, channel, Rows(words, place, apart))


@pytest.mark.parametrize("planes", range(1, BLENDED + 1))
@given(data=st.data())
def test_strips(planes, data):
    """Sums of a stretch of pixels as codes of 32 channels; all other bits are as they were."""
    rng, pixels = np.random.default_rng(data.draw(st.integers(0, 1000))), data.draw(st.integers(0, 9))
    dot, before, place, apart = (data.draw(st.integers(1, 9)) for _ in range(4))
    at, lane, channel = (LANES * data.draw(st.integers(0, 2)) for _ in range(3))
    step, most = data.draw(st.sampled_from([1, 2, 8, 3, -1, -2, -7])), data.draw(st.sampled_from([9, 2**28]))
    dots = rng.integers(-most, most, (dot + pixels, LANES)).astype(np.int32)
    extra, limits = rng.integers(-9, 9, 96, np.int32), np.sort(rng.integers(-most, most, (2**planes - 1, 96)), axis=0)
    flips, used = (int(rng.choice([0, 2**32 - 1, rng.integers(2**32)])) for _ in range(2))
    words = rng.integers(0, 2**64, (planes, before, place + 10 * apart + 2), np.uint64)
    bits = np.unpackbits(words.reshape(planes, -1).view(np.uint8), axis=1, bitorder="little")
    sums = extra[at : at + LANES] + step * dots[dot:]
    codes = (sums[..., None] > limits[:, lane : lane + LANES].T).sum(-1)
    for p, j, n in np.ndindex(pixels, planes, LANES):
        bit = (int(codes[p, n]) >> j & 1) ^ (flips >> n & 1)
        bits[j, 64 * (place + p * apart) + channel + n] = bit & (used >> n & 1)
    limits = limits.astype(np.int32)
    put(dots, dot * LANES, pixels, extra, at, limits, lane, step, flips, used, channel, words, place, apart)
    np.testing.assert_array_equal(
        np.packbits(bits, axis=1, bitorder="little").view(np.uint64), words.reshape(planes, -1)
    )


class Codes(NamedTuple):
    """A left operand, as far as its codes go."""

    words: np.ndarray
    terms: np.ndarray


@njit
def framed_rows(x, plan, images, low, end, positions, behind):
    """A band, and its pixels between zeros and bytes that are none of them."""
    band = framed.next_band(plan, images, low, end)
    codes = np.full(framed.words_of(plan, positions) * 64 + behind, 77, np.uint8)
    framed.frame(x, plan, band, codes, 0)
    return band, codes


@given(data=st.data())
def test_rows_between_zeros(data):
    """Windows at all positions of a band are those of the padded image, and nothing is written after them."""
    most = (1, 9), (0, 9), (0, 9), (1, 4), (1, 3)
    size, before, after, taps, spread = (data.draw(st.tuples(*[st.integers(*ends)] * 2)) for ends in most)
    window = Window(size, taps, (1, 1), tuple(zip(before, after, strict=True)), spread)
    assume(window.pixels)
    images, words = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    rng, plan = np.random.default_rng(0), frame(window, words, images)
    x = rng.integers(0, 2**64, (1, images, *size, words), np.uint64)
    rows = -(-images // plan.together) * window.output[0]
    low = data.draw(st.integers(0, rows - 1))
    positions = min(framed.rows_of_band.py_func(plan), rows, window.output[0]) * plan.row
    terms = np.array([[0, 1, 0, 1]])
    band, codes = framed_rows(Codes(x.reshape(1, -1), terms), plan, images, low, rows, positions, 999)
    assert band.rows * plan.row <= positions and (codes[-999:] == 77).all()
    reach = (plan.runs[:, 0] + plan.runs[:, 2]).max()
    assert ((positions - 1) * words + reach) * 64 <= len(codes) - 999
    bits = np.unpackbits(x.view(np.uint8), axis=-1, bitorder="little").reshape(images, *size, -1)
    bits = np.pad(bits, ((0, 0), *window.pads, (0, 0)))
    for row, image, column in np.ndindex(band.rows, band.images, window.output[1]):
        begin = ((row * plan.together + image) * plan.pitch + column) * words
        seen = [codes[(begin + at) * 64 : (begin + at + length) * 64] for at, _, length in plan.runs]
        ends = [first + (n - 1) * d + 1 for first, n, d in zip((band.row + row, column), taps, spread, strict=True)]
        expected = bits[band.image + image, band.row + row : ends[0] : spread[0], column : ends[1] : spread[1]]
        np.testing.assert_array_equal(np.concatenate(seen), expected.ravel())


# What the emulation refuses, as the processor does


def pointer(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def configured(changes):
    """The state after a configuration in which some bytes are changed."""
    config, state = np.frombuffer(amx_tiles.CONFIG, np.uint8).copy(), np.full(64 + 8 * 1024, 77, np.uint8)
    for i, value in changes.items():
        config[i] = value
    amx_emulated._configure(pointer(state), pointer(config))
    return pointer(state)


@pytest.mark.parametrize("change", [{0: 2}, {1: 1}, {15: 1}, {16: 65}, {17: 1}, {32: 1}, {47: 1}, {48: 17}, {63: 1}])
def test_configurations_that_are_none(change):
    with pytest.raises(RuntimeError, match="AMX"):
        configured(change)


def test_tiles_that_do_not_fit():
    state, data = configured({16: 8, 48: 2}), np.zeros(4096, np.uint8)  # tile 0 is 2 rows of 8 bytes
    amx_emulated._dot(state, 1, 2, 3)
    for tiles in (0, 1, 2), (1, 0, 2), (1, 2, 0), (1, 1, 2), (1, 2, 1), (1, 2, 2):
        with pytest.raises(RuntimeError, match="fit"):
            amx_emulated._dot(state, *tiles)
    amx_emulated._release(state)
    for step in amx_emulated._load, amx_emulated._store:
        with pytest.raises(RuntimeError, match="not configured"):
            step(state, 1, pointer(data), 64)


def test_small_tiles():
    """Codes of 2 pixels by 8 bytes, weights of 2 quads by 3 channels; the rest of a tile is cleared."""
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 256, (2, 2, 4), np.uint8), rng.integers(-128, 128, (2, 3, 4), np.int8)
    state = configured({48: 2, 16: 12, 49: 2, 18: 8, 50: 2, 20: 12})
    amx_emulated._load(state, 1, pointer(codes), 8)
    amx_emulated._load(state, 2, pointer(weights), 12)
    for _ in range(2):
        amx_emulated._dot(state, 0, 1, 2)
    sums = np.full((2, 5), -1, np.int32)
    amx_emulated._store(state, 0, pointer(sums), 20)
    expected = np.full((2, 5), -1)
    expected[:, :3] = 2 * np.einsum("pqk,qlk->pl", codes.astype(int), weights.astype(int))
    np.testing.assert_array_equal(sums, expected)
    tiles = np.ctypeslib.as_array(state, (64 + 8 * 1024,))[64:].reshape(8, 16, 64)
    assert not tiles[1, :, 8:].any() and not tiles[1, 2:].any() and not tiles[3:].any()


def test_a_kernel_is_refused_too(monkeypatch):
    config = bytearray(amx_tiles.CONFIG)
    config[48 + dot_amx.WEIGHTS] = 15
    monkeypatch.setattr(amx_tiles, "CONFIG", bytes(config))
    with pytest.raises(RuntimeError, match="fit"):
        amx_unit.wrong(TILES, njit(amx_unit._multiply.py_func))


# Instructions


@pytest.fixture(scope="module")
def assembly():
    """The lines of the kernel as it is compiled for a CPU with AMX."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = TRIPLE
    codes, totals = I8.as_pointer(), I32.as_pointer()
    args = [codes, I64, I64, codes, I64, I64, I64.as_pointer(), I64, I64, ir.IntType(1), totals, I64]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), args), "multiply")
    builder = ir.IRBuilder(function.append_basic_block())
    codes, stride, pixels, weights, apart, blocks, spans, start, stop, fresh, totals, beside = function.args
    columns, some = (weights, apart, blocks), (spans, start, stop)
    tiles = amx_tiles.Amx(None, builder)
    dot_amx.multiply(builder, tiles, (codes, stride), pixels, columns, some, fresh, (totals, beside))
    builder.ret_void()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu="sapphirerapids", opt=3)
    module = llvm.parse_assembly(str(module))
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(module, passes)
    return machine.emit_assembly(module).splitlines()


def loops(lines):
    """The instructions of each innermost loop: from a label to the jump back to it."""
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.LBB\w+:", line)}
    for i, line in enumerate(lines):
        target = re.fullmatch(r"\tj\w+\t(\.LBB\w+)", line)
        begin = labels.get(target[1], i) if target else i
        if begin < i and not any(re.match(r"\.LBB|\tj", inside) for inside in lines[begin + 1 : i]):
            yield [inside.split("\t")[1:] for inside in lines[begin + 1 : i + 1]]


def test_instructions(assembly):
    named = [line.split("\t")[1] for line in assembly if line.startswith("\t")]
    assert named.count("ldtilecfg") == named.count("tilerelease") == 1
    assert {"tileloadd", "tilestored", "tilezero", "tdpbusd"} <= set(named)
    assert named.index("ldtilecfg") < min(i for i, name in enumerate(named) if name.startswith(("tilel", "tilez")))
    assert not [name for name in named if name.startswith("call")]


@pytest.mark.parametrize("pieces", [1, 2])
def test_inner_loops(assembly, pieces):
    """A word of 16 or 32 pixels by 32 channels loads 3 or 4 tiles for 2 or 4 products: no sum goes through memory."""
    products = 0
    for body in loops(assembly):
        names = [name for name, *_ in body]
        registers = {re.findall(r"%tmm(\d)", rest)[-1] for name, rest in body if name == "tdpbusd"}
        if len(registers) != pieces * dot_amx.SIDES:
            continue
        products += 1
        assert names.count("tdpbusd") * (pieces + 2) == names.count("tileloadd") * 2 * pieces
        assert not {"tilestored", "tilezero", "ldtilecfg", "tilerelease"} & set(names)
        loaded = {re.findall(r"%tmm(\d)", rest)[-1] for name, rest in body if name == "tileloadd"}
        assert loaded == {"4", "6", "7"} | ({"5"} if pieces == 2 else set())
        assert not [rest for name, rest in body if "%rsp" in rest]
    assert products


# Where it is used


def test_first_product():
    assert amx_unit.wrong(UNIT) == 0


def test_wrong_products_are_seen(monkeypatch):
    """One wrong sum in the last row is enough."""

    def almost(unit, codes, stride, weights, fresh, totals):
        amx_unit._multiply(UNIT, codes, stride, weights, fresh, totals)
        totals[-1, -1, -1] += 1

    assert amx_unit.wrong(None, almost) == 1
    monkeypatch.setattr(isa, "NAME", "amx")
    monkeypatch.setattr(amx_unit, "wrong", lambda unit: 1)
    with pytest.raises(ImportError, match="AMX gave 1 wrong sums"):
        amx_unit.find_unit()


def test_right_products_are_used(monkeypatch):
    monkeypatch.setattr(isa, "NAME", "amx")
    monkeypatch.setattr(amx_unit, "wrong", lambda unit: 0)
    assert amx_unit.find_unit() == dot_amx.Tiles()


@pytest.mark.parametrize(
    ("refused", "found", "chosen", "tried"),
    [("", "", "amx", 1), ("", "ended by SIGILL", "avx512", 1), ("no registers", "", "avx512", 0)],
)
def test_used_unasked_where_the_trial_was_right(monkeypatch, refused, found, chosen, tried):
    tries = []
    monkeypatch.setattr(isa, "_features", lambda: {feature for needed, *_ in isa.SETS.values() for feature in needed})
    monkeypatch.setattr(isa, "refusal", lambda: refused)
    monkeypatch.setattr(amx_trial, "verdict", lambda *told: tries.append(told) or found)
    assert isa._best() == chosen and len(tries) == tried
    monkeypatch.setattr(isa, "_features", lambda: set(isa.SETS["avx2"][0]))
    assert isa._best() == "avx2" and len(tries) == tried  # other CPUs try nothing


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Store the results of trials in an empty folder, and return it."""
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "quantarray"


def tried(*code):
    return amx_trial.verdict(isa.EMULATED, isa.FEATURES, isa.VARIABLE, *code)


def test_trial(machine):
    """The real product, on tiles in memory, is right, and the result is stored for this machine only."""
    assert tried() == ""
    assert tried("raise SystemExit(1)") == ""
    assert amx_trial.verdict(isa.EMULATED, {"another"}, isa.VARIABLE, "raise ImportError").endswith("ImportError")
    assert len(list(machine.glob(f"{isa.EMULATED}-*"))) == 2  # a CPU with the unit tries that too


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "a first product was ended by SIGILL"),
        (f"print({amx_trial.WRONG!r})", "a first product failed: products are wrong"),
        ("raise ImportError('no tiles')", "a first product failed: ImportError: no tiles"),
        (f"print({amx_trial.RIGHT!r}); raise SystemExit(3)", f"a first product failed: {amx_trial.RIGHT}"),
        ("raise SystemExit(3)", "a first product failed: without a word"),
        ("import time; time.sleep(60)", "a first product took more than 0.5 s"),
    ],
)
def test_trials_that_fail(machine, monkeypatch, code, said):
    monkeypatch.setattr(amx_trial, "SECONDS", 0.5 if "sleep" in code else 60)
    assert tried(code) == said
    assert tried(f"print({amx_trial.RIGHT!r})") == said  # is remembered, until the file is removed or damaged
    (file,) = machine.iterdir()
    file.write_text('{"verdict"')
    assert tried(f"print({amx_trial.RIGHT!r})") == ""


def test_a_trial_finds_wrong_sums(machine, monkeypatch, tmp_path):
    """The trial's product with rows of weights too far apart is refused."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "broken"))
    broken = "from quantarray.cpu.int8 import dot_amx; dot_amx._WEIGHT_STRIDE += 4"
    assert tried(amx_trial._PRODUCT.replace("from quantarray", f"{broken}\nfrom quantarray", 1)).endswith(
        amx_trial.WRONG
    )


def test_trials_where_nothing_can_be_kept(machine):
    machine.write_text("a file where the folder should be")
    assert tried(f"print({amx_trial.RIGHT!r})") == "" and machine.is_file()


@pytest.mark.parametrize("executable", ["", None, "/opt/app/editor"])
def test_no_trial_in_an_application(machine, monkeypatch, executable):
    """An application's executable is not Python: a trial would start the application."""
    monkeypatch.setattr(sys, "executable", executable)
    assert "no Python" in tried("raise SystemExit(1)")
    assert not machine.exists()


@pytest.mark.skipif(FEATURES.get("amx-tile", False), reason="AMX is there")
def test_forced_without_amx():
    error = run("import quantarray.cpu", QUANTARRAY_CPU="amx").stderr
    assert "QUANTARRAY_CPU=amx needs a CPU with" in error and "amx-tile, amx-int8; unset it, or use portable" in error


@pytest.mark.skipif(FEATURES.get("amx-tile", False), reason="AMX is there")
def test_refusal():
    assert "the registers of AMX" in isa.refusal()


def test_nothing_of_it_without_amx():
    """A process that has no AMX compiles no tiles: kernels get None for a unit."""
    if isa.NAME not in ("amx", isa.EMULATED):
        assert amx_unit.UNIT is None


# The whole kernel and the choice of it

COMPILE = """
import numpy as np
from numba import typeof
from quantarray.cpu.int8 import amx_unit, dot, dot_amx, framed
from quantarray.cpu.popcount.tile_tasks import Prepared
from quantarray.kernels.operands import Finish, Frame, Left, Plan, Right

def array(dimensions, dtype=np.int64):
    return np.zeros([1] * dimensions, dtype)

words, reals, whole = np.uint64, np.float64, np.int32
plan = Plan(array(2), array(1), array(1), array(1), array(1), array(2), 1, 1)
x = Left(array(2, words), array(2), array(4, reals), array(3, reals), 1, False)
w = Right(array(4, words), array(2), array(3, reals), array(2, reals), array(3), array(1), 1, 1, 1)
limits, flip = array(2, whole), array(1, np.uint32)
finish = Finish(array(2, whole), array(2, reals), array(1, reals), limits, flip, array(2, words), array(2, reals))
frame = Frame(array(2), array(1), array(2), array(1), *[1] * 11)
given = x, array(2, whole), array(3, words)
for kernel, where, *more in (
    (dot._dot_range, plan, None, None, None),
    (dot._dot_range, plan, dot_amx.Tiles(), None, None),
    (framed._framed_range, frame, dot_amx.Tiles()),
):
    signature = tuple(map(typeof, (Prepared(w, where, finish), *more, array(2), *given, 0, 1)))
    kernel.compiled.compile(signature)
    code = kernel.compiled.inspect_asm(signature)
    print(*(code.count(name) for name in ("ldtilecfg", "tilerelease", "tdpbusd", "vpdpbusd")))
"""


def test_the_whole_kernel_compiles_for_a_cpu_with_amx(tmp_path):
    """Numba compiles the kernel, which is not run. Without a unit it has no tile instructions, and with one no other
    products."""
    features = ",".join(f"+{name}" for name in isa.SETS["amx"][0])
    process = run(COMPILE, NUMBA_CPU_NAME="sapphirerapids", NUMBA_CPU_FEATURES=features, NUMBA_CACHE_DIR=str(tmp_path))
    without, *with_unit = (list(map(int, line.split())) for line in process.stdout.splitlines())
    assert without[:3] == [0, 0, 0] and without[3] > 0, process.stderr
    assert len(with_unit) == 2
    assert all(all(counts[:3]) and counts[3] == 0 for counts in with_unit)


@pytest.mark.parametrize(
    ("channels", "size", "stride", "bits", "chosen"),
    [
        *[(channels, 3584 // channels, 1, 2, "framed") for channels in (64, 128, 256, 512)],
        *[(channels, 3584 // channels, 1, 1, "conv") for channels in (64, 128, 256, 512)],
        (64, 56, 2, 1, "conv"),
        (128, 28, 2, 1, "conv"),
        (512, 28, 2, 1, "conv"),
        (64, 56, 2, 2, "dot"),
    ],
)
def test_choice_with_amx(monkeypatch, channels, size, stride, bits, chosen):
    """Single bits are counted. Of more bits windows are copied but at stride 1."""
    if bits == 1 and costs.COUNTING is not costs.BY_WORDS:
        pytest.skip("what counting costs is another CPU's here")
    for name in ("DOT_ALONE", "DOT_COPY", "DOT_EXPAND"):
        monkeypatch.setattr(costs, name, getattr(dot_amx, name))
    monkeypatch.setattr(costs, "DOT", costs.DOT._replace(tile=6))
    monkeypatch.setattr(costs, "passes", lambda most: dot_amx.DOT_PASSES)
    monkeypatch.setattr(costs, "COUNTING", costs.BY_WORDS)  # every CPU with a matrix unit has VPOPCNTDQ
    monkeypatch.setattr(costs, "FRAMED", costs.FRAMED._replace(word=dot_amx.DOT_PASSES))
    monkeypatch.setattr(costs, "UNIT", dot_amx.EmulatedTiles())
    term, window = np.array([[0, bits, -1, 2]]), Window((size, size), (3, 3), (stride,) * 2, ((1, 1),) * 2, (1, 1))
    forms = Forms(tile_count(window, 1, 4), window.squares, window.positions(1), channels // 64)
    assert costs.integer_kernel(term, term, window.pixels, channels, 9 * channels // 64, forms) == chosen
