"""`autotune`: what is timed and kept, files, threads and forks, and that no choice changes a result.

Times are given, not taken, wherever a test depends on them.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import patch

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT
from results import assert_bits
from strategies import Law, laws, samples, threads

import quantarray as qa
from quantarray.backends import kernel_choice
from quantarray.backends.registry import integer_kernel
from quantarray.cli import main
from quantarray.cpu.int8.amx_unit import MOST_PRODUCT, UNIT
from quantarray.kernels.operands import Forms
from quantarray.ops.products import calls
from quantarray.tuning import autotune, timing
from quantarray.tuning import file as files
from quantarray.tuning.results import Problem, Row, Tuned

LAYOUTS = {"conv": "conv_weights", "dot": "dot_weights"}
pytestmark = pytest.mark.skipif(MOST_PRODUCT < 0, reason="this CPU has one kernel only")


def operands(*, rows=3, k=70, outputs=5, bits=4):
    """A product that two kernels can make."""
    rng, dtype = np.random.default_rng(0), getattr(qa, f"uint{bits}")
    return tuple(qa.from_codes(rng.integers(0, 2**bits, (n, k)), dtype) for n in (rows, outputs))


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Run a test without earlier measurements."""
    monkeypatch.setattr(calls, "_tuners", [])
    monkeypatch.setattr(autotune, "state", autotune._State())


@pytest.fixture
def times(monkeypatch):
    """What `timing.in_turns` returns instead of times; and the names that it got, call by call."""

    class Times(dict):
        def __call__(self, runs, text="", began=None):
            assert all(run() is not None for run in runs.values())
            self.asked.append(list(runs))
            return {name: [self[name]] * 5 for name in runs}

    found = Times(conv=20.0, dot=10.0, winograd=30.0, framed=30.0)
    found.asked = []
    monkeypatch.setattr(timing, "in_turns", found)
    return found


def kernels(w):
    """Return the kernels for which the weights are laid out."""
    return {key[1] for key in w._cache if isinstance(key, tuple) and key[0] == "linear" and isinstance(key[1], str)}


# what is timed and kept


@pytest.mark.parametrize(
    ("conv", "dot", "kept"), [(20.0, 10.0, "dot"), (10.0, 20.0, "conv"), (10.0, 10.1, None), (10.1, 10.0, None)]
)
def test_the_fastest_is_kept_and_the_model_where_none_is(times, conv, dot, kept):
    times.update(conv=conv, dot=dot)
    x, w = operands()
    with qa.autotune() as tuned:
        qa.linear(x, w)
    assert times.asked == [["conv", "dot"]] and len(tuned) == 1
    row = tuned[0]
    assert row.kernel == (kept or row.model) and row.us == {"conv": conv, "dot": dot}
    assert row.gain == row.us[row.model] / row.us[row.kernel]
    assert kernels(w) == {LAYOUTS[row.kernel]}  # no layout of the other one takes memory


def test_a_problem_is_timed_once(times):
    x, w = operands()
    with qa.autotune() as tuned:
        for _ in range(3):
            qa.linear(x, w)
        qa.linear(*operands())  # other arrays, the same problem
        assert len(times.asked) == len(tuned) == 1
        qa.linear(x[:2], w)
        qa.linear(x, w, bias=np.arange(5))
        qa.matmul(x, w.T)
        assert len(times.asked) == len(tuned) == 4
    with qa.autotune() as later:
        qa.linear(*operands())
    assert len(times.asked) == 4 and later.rows == tuned.rows[:1]
    with qa.autotune(again=True):
        qa.linear(x, w)
    assert len(times.asked) == 5


def test_choices_stay_and_nothing_is_timed_outside(times):
    x, w = operands()
    model = products_name(x, w)
    times[{"conv": "dot", "dot": "conv"}[model]] = 1.0
    qa.linear(x, w)
    assert kernels(w) == {LAYOUTS[model]} and not times.asked
    with qa.autotune():
        qa.linear(x, w)  # prepared before the block
    assert len(times.asked) == 1 and len(kernels(w)) == 2
    y, v = operands()
    qa.linear(y, v)
    assert kernels(v) == kernels(w) - {LAYOUTS[model]}
    qa.linear(y[:1], v)
    assert len(times.asked) == 1


def products_name(x, w):
    with kernel_choice.heard() as questions:
        qa.linear(*(q.copy() for q in (x, w)))
    return questions[-1].model


def other_than_the_model(times, tmp_path):
    """A file with the kernel that the model does not choose, which the clock prefers, too."""
    name = {"conv": "dot", "dot": "conv"}[products_name(*operands())]
    times[name] = 1.0
    with qa.autotune(tmp_path / "tuned.json") as tuned:
        qa.linear(*operands())
    assert tuned[0].kernel == name != tuned[0].model
    with qa.autotune(again=True):
        times.asked.clear()
    return name


@pytest.mark.parametrize("way", ["timed", "timed by other weights", "read", "read inside"])
def test_what_was_made_ready_between_blocks_is_made_ready_anew(times, tmp_path, way):
    other = other_than_the_model(times, tmp_path)
    x, w = operands()
    qa.linear(x, w)
    assert kernels(w).isdisjoint({LAYOUTS[other]})
    with qa.autotune(tmp_path / "tuned.json" if way.startswith("read") else None) as tuned:
        if way == "timed by other weights":
            qa.linear(*operands())
        elif way != "read":
            qa.linear(x, w)
    assert len(tuned) == (way != "read") and len(times.asked) == way.startswith("timed")
    qa.linear(x, w)
    assert LAYOUTS[other] in kernels(w)


def test_threads_are_problems_of_their_own(times):
    x, w = operands()
    before = qa.get_num_threads()
    try:
        with qa.autotune() as tuned:
            for n in {1, before}:
                qa.set_num_threads(n)
                qa.linear(x, w)
    finally:
        qa.set_num_threads(before)
    assert {row.threads for row in tuned} == {1, before} and len(times.asked) == len({1, before})


def test_one_kernel_is_no_choice(times):
    x, w = operands()
    with qa.autotune() as tuned:
        qa.linear(x, w, out_dtype=np.int64)
        qa.linear(qa.quantize(np.random.default_rng(0).random((3, 70)), qa.ABC(2), scale_axis=0), w)
    assert not times.asked and not len(tuned) and repr(tuned) == "no call had a choice of kernels"


def test_unhashable_options_are_tuned_too(times):
    x, w = qa.zeros((1, 5, 5, 8), qa.uint4), qa.zeros((3, 3, 3, 8), qa.uint4)
    with qa.autotune() as tuned:
        qa.conv2d(x, w, padding=[1, 1])
        qa.conv2d(x, w, padding=[1, 1])
    assert len(times.asked) == 1 and tuned[0].problem.options == "padding=[1, 1]"


def test_other_devices_are_left_alone(times):
    class Elsewhere(qa.QuantArray):
        device = "cuda:0"

    _, w = operands()
    there = Elsewhere(w.words, w.dtype, w.shape, w.axis)
    with qa.autotune() as tuned:
        assert autotune.prepared("linear", "cuda:0", None, there, (), None, lambda device, x, w, bias: w) is there
    assert not len(tuned)


def test_nothing_is_looked_up_where_autotune_was_never_used(monkeypatch):
    for name in ("mark", "problem_of"):
        monkeypatch.setattr(autotune, name, None)
    qa.linear(*operands())


def test_errors_inside_a_block_end_it(times):
    with pytest.raises(ValueError, match="last length"), qa.autotune():
        qa.linear(operands()[0], operands(k=71)[1])
    assert not autotune.state.open


def test_as_a_decorator(times):
    qa.autotune()(qa.linear)(*operands())
    assert len(times.asked) == 1


# no choice changes a result

FORMS = st.sampled_from([None, [0], [-3, 1, 4]])


def check_every_kernel(draw, call, x, w, expected):
    """Each candidate for itself, and then whichever the clock prefers."""
    codes = draw(FORMS)
    law = None if codes is None else qa.Thresholds(codes)

    def made(**more):
        with threads(draw(st.booleans())), quick():
            return call(x if isinstance(x, np.ndarray) else x.copy(), w.copy(), requantize=law, **more)

    wanted = expected if law is None else law(expected)
    for name in ("conv", "dot"):
        with kernel_choice.forced(name):
            compare(made(), wanted)
    with qa.autotune():
        compare(made(), wanted)
        if law is None:
            out = np.empty_like(expected)
            assert made(out=out) is out
            compare(out, wanted)
    compare(made(), wanted)


def compare(got, expected):
    if isinstance(expected, qa.QuantArray):
        assert got.dtype == expected.dtype and np.array_equal(got.words, expected.words)
    else:
        assert_bits(got, expected)


@contextmanager
def quick():
    """One round of one call: which kernel wins is of no interest."""
    with patch.object(timing, "_MOST", 1), patch.object(timing, "_SAMPLE", 0.0):
        yield


LAWS = laws(8, ["integer"]).filter(lambda law: law.dtype.step is not None and law.dtype.max_abs < 256)


FEW = settings(max_examples=settings.default.max_examples // 4)  # each makes some ten calls


@FEW
@given(st.data(), st.sampled_from([(1, 0, 1), (2, 1, 1), (1, 1, 2), (1, "same", 1)]), st.booleans())
def test_convolutions(data, geometry, of_bytes):
    stride, padding, groups = geometry
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    c, o, k, n = (data.draw(st.sampled_from(v)) for v in ((3, 64, 70), (1, 33, 64), (1, 3), (0, 1, 3)))
    w = data.draw(samples((groups * o, k, k, c), -1, data.draw(LAWS), (), (None,)))
    if of_bytes:
        x = values = rng.integers(0, 256, (n, 6, 5, groups * c)).astype(np.uint8)
    else:
        drawn = data.draw(samples((n, 6, 5, groups * c), -1, data.draw(LAWS), (), (None,)))
        x, values = drawn.q, drawn.values
    pads = padding if padding == "same" else ((padding, padding),) * 2
    exact = naive.conv2d(values, w.values, (stride, stride), pads, groups=groups)
    expected = exact.astype(qa.conv2d(x, w.q, stride=stride, padding=padding, groups=groups).dtype)

    def call(x, w, **more):
        return qa.conv2d(x, w, stride=stride, padding=padding, groups=groups, **more)

    check_every_kernel(data.draw, call, x, w.q, expected)


@FEW
@given(st.data(), st.sampled_from(["integer", "scaled"]), st.sampled_from([1, 5, 33]))
def test_products(data, kind, rows):
    """With scales results are float32, and both kernels must round to the same bits."""
    outputs, k = (data.draw(st.sampled_from(v)) for v in ((1, 32, 70), (1, 64, 200)))
    law = data.draw(LAWS)
    x = data.draw(samples((rows, k), -1, Law(law.dtype, kind == "scaled"), (0,), (None,)))
    w = data.draw(samples((outputs, k), -1, Law(data.draw(LAWS).dtype, kind == "scaled"), (0,), (None,)))
    expected = qa.linear(x.q, w.q)
    if kind == "integer":
        assert_bits(expected, naive.linear(x.values, w.values).astype(expected.dtype))
    check_every_kernel(data.draw, qa.linear, x.q, w.q, expected)


@pytest.mark.parametrize("name", ["conv", "dot"])
@pytest.mark.parametrize("signed", [False, True])
def test_all_widths_at_their_limits(name, signed):
    """Half of the codes are the largest: sums of bytes that do not fit would wrap."""
    rng = np.random.default_rng(0)
    for i, j in itertools.product(range(1, 9), repeat=2):
        codes = [
            rng.integers(0, 2**b, (n, 130)) | (rng.integers(0, 2, (n, 1)) * (2**b - 1)) for b, n in ((i, 5), (j, 33))
        ]
        x = qa.from_codes(codes[0], getattr(qa, f"uint{i}"))
        w = qa.from_codes(codes[1], getattr(qa, f"int{j}") if signed and j > 1 else getattr(qa, f"uint{j}"))
        with kernel_choice.forced(name):
            np.testing.assert_array_equal(qa.linear(x, w), naive.linear(x.dequantize(), w.dequantize()), f"{i} {j}")


def test_a_broken_choice_would_be_seen(times):
    """The tests above do force kernels: an unknown name is refused, and a forced kernel is the one that runs."""
    x, w = operands()
    for name in ("conv", "dot"):
        with kernel_choice.forced(name):
            qa.linear(x, w.copy())
            assert integer_kernel("cpu")(*terms(), 3, 5, 2, Forms()) == name
    with kernel_choice.forced("winograd"):
        assert integer_kernel("cpu")(*terms(), 3, 5, 2, Forms()) in ("conv", "dot")
        with kernel_choice.forced("dot"):  # 9 planes: only one kernel can
            assert integer_kernel("cpu")(terms(9)[0], terms()[0], 3, 5, 2, Forms()) == "conv"


def terms(planes=4):
    return (np.array([[0, planes, 0, 1]]),) * 2


# the table


def test_the_table(times):
    with qa.autotune() as tuned:
        x, w = qa.zeros((2, 8, 6, 64), qa.uint2), qa.zeros((32, 3, 3, 64), qa.ternary)
        qa.conv2d(x, w, padding=1, bias=np.zeros(32, int), requantize=qa.Thresholds([1, 2, 3]))
        moved = qa.quantize(np.ones((1, 3, 5, 5)), qa.Uniform(2), axis=1), qa.zeros((4, 3, 1, 1), qa.uint4, axis=1)
        qa.conv2d(*moved, data_format="NCHW")
        qa.linear(np.zeros((7, 30), np.int8), qa.zeros((4, 30), qa.uint4))
    n = qa.get_num_threads()
    said = [tuple(row.problem)[1:] for row in tuned]
    options = "padding=1 requantize=Thresholds(3 for all channels, into=uint2) bias=int64"
    assert said[0] == ("uint2 2x8x6x64", "ternary 32x3x3x64", options)
    assert said[1][0].endswith(" 1x3x5x5 axis 1 scale 1x1x1x1") and said[1][2] == "data_format=NCHW"
    assert said[2] == ("int8 7x30", "uint4 4x30", "")
    rows = json.loads(json.dumps(tuned.to_json()))["rows"]
    assert rows[2]["us"] == {"conv": 20.0, "dot": 10.0} and set(rows[2]) == {
        "op", "x", "w", "options", "threads", "us", "kernel", "model",
    }  # fmt: skip
    lines = repr(tuned).splitlines()
    third = "winograd" if UNIT is None else "framed"
    assert lines[0].split() == f"call threads conv us dot us {third} us chosen model gain".split()
    assert lines[4].split() == [
        "linear", "int8", "7x30", "uint4", "4x30", str(n), "20.0", "10.0", "-", "dot", tuned[2].model,
        f"{tuned[2].gain:.2f}x",
    ]  # fmt: skip
    assert len(list(tuned)) == 3


def test_kernels_that_not_all_can_do_have_a_column():
    tuned = Tuned()
    for us in ({"conv": 2.0, "dot": 1.0}, {"conv": 2.0, "winograd": 1234.5}):
        tuned.add(Row(Problem("conv2d", "x", "w", ""), len(tuned), us, "conv", "conv"))
    first, second = repr(tuned).splitlines()[2:]
    assert first.split()[4:7] == ["2.0", "1.0", "-"] and second.split()[4:7] == ["2.0", "-", "1,234.5"]


# times


def test_runs_take_turns_and_the_first_calls_do_not_count(monkeypatch):
    """The runs move the clock: the first call of one compiles for a second."""
    clock, order = [0.0], []

    def run(name, seconds):
        def call():
            first = name not in order
            order.append(name)
            clock[0] += 1.0 if first else seconds

        return call

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    found = timing.in_turns({"a": run("a", 1e-3), "b": run("b", 3e-3), "c": run("c", 1e-5)})
    assert all(samples == pytest.approx(samples[:1] * len(found["a"])) for samples in found.values())
    assert {name: samples[0] for name, samples in found.items()} == pytest.approx({"a": 1000, "b": 3000, "c": 10})
    counted = "".join(order[6:])  # a sample is 200 us: 20 calls of c, less a rounding
    assert re.match("c{19,20}baabc{38,40}baab", counted) and counted.count("a") == counted.count("b")
    assert timing._LEAST <= counted.count("a") <= timing._MOST
    slow = timing.in_turns({"d": run("d", 1.0)})
    assert slow["d"] == pytest.approx([1e6] * timing._LEAST) and order.count("d") == 2 + timing._LEAST


@pytest.mark.parametrize(
    ("challenger", "champion", "wins"),
    [
        ([90, 90, 90, 90, 90], [100, 100, 100, 100, 100], True),
        ([99, 99, 99, 99, 99], [100, 100, 100, 100, 100], False),  # by 1 %
        ([90, 90, 90, 90, 800], [100, 100, 100, 100, 100], False),  # in four rounds of five
        ([90, 90, 90, 90, 90, 800], [100, 100, 100, 100, 100, 100], True),
        ([90, 800, 90, 800, 90], [100, 800, 800, 100, 800], False),  # scheduler's slices
        ([90], [90], False),
    ],
)
def test_the_model_gives_way_to_what_is_surely_faster(challenger, champion, wins):
    assert timing.better(challenger, champion) == wins


def test_a_bar_says_what_is_timed(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    timing.in_turns({"a": lambda: None}, "conv2d of something", began=-9.0)
    assert "conv2d of something" in capsys.readouterr().err


# files


def saved(path):
    return json.loads(path.read_text())


def row(i, threads=1):
    return Row(Problem("linear", f"uint2 {i}x64", "uint2 8x64", ""), threads, {"conv": 1.0, "dot": 2.0}, "conv", "dot")


def test_a_file_is_written_and_read(times, monkeypatch, tmp_path):
    file = tmp_path / "tuned.json"
    with qa.autotune(file) as tuned:
        qa.linear(*operands())
    assert tuned.file == file and tuned.to_json()["file"] == str(file)
    monkeypatch.setattr(autotune, "state", autotune._State())
    with qa.autotune(str(file)):
        pass
    assert autotune.known() == 1
    x, w = operands()
    qa.linear(x, w)
    assert len(times.asked) == 1 and kernels(w) == {LAYOUTS[tuned[0].kernel]}
    with qa.autotune(file) as more:
        qa.linear(x, w)
        qa.linear(x[:1], w)
    assert len(times.asked) == 2 and len(more) == 2
    assert list(files.read("autotune", file).values()) == list(more)
    assert [p.name for p in tmp_path.iterdir()] == ["tuned.json"]


def test_a_file_keeps_what_others_wrote(monkeypatch, tmp_path):
    file = tmp_path / "tuned.json"
    files.merge("autotune", file, [row(1), row(2)])
    here = files.this_machine()
    monkeypatch.setattr(files, "this_machine", lambda: {**here, "cpu": "another"})
    assert not files.read("autotune", file)
    files.merge("autotune", file, [row(3)])
    monkeypatch.setattr(files, "this_machine", lambda: here)
    newer = row(2)._replace(kernel="dot")
    files.merge("autotune", file, [newer, row(2, threads=2)])
    assert list(files.read("autotune", file).values()) == [row(1), newer, row(2, threads=2)]
    assert {table["machine"]["cpu"]: len(table["rows"]) for table in saved(file)["tables"]} == {
        "another": 1,
        here["cpu"]: 3,
    }
    for fact in ("target", "kernels", "features", "quantarray", "numba"):
        monkeypatch.setattr(files, "this_machine", lambda fact=fact: {**here, fact: "another"})
        assert not files.read("autotune", file)


def test_many_writers_lose_nothing(tmp_path):
    file = tmp_path / "tuned.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: files.merge("autotune", file, [row(i)]), range(40)))
    assert len(files.read("autotune", file)) == 40


def test_a_kernel_that_is_not_there_is_ignored(tmp_path):
    x, w = operands()
    with qa.autotune() as tuned:
        qa.linear(x, w)
    gone = tuned[0]._replace(kernel="gone", us={**tuned[0].us, "gone": 0.1})
    files.merge("autotune", tmp_path / "t.json", [gone])
    autotune.state.rows.clear()
    with qa.autotune(tmp_path / "t.json"):
        pass
    y, v = operands()
    np.testing.assert_array_equal(qa.linear(y, v), naive.linear(y.codes(), v.codes()))
    assert kernels(v) == {LAYOUTS[tuned[0].model]}


def damaged():
    sound = {"format": "quantarray autotune", "version": 1, "tables": []}
    table = {"machine": {}, "rows": [row(1).to_json()]}

    def broken(**change):
        return {**sound, "tables": [{"machine": {}, "rows": [{**row(1).to_json(), **change}]}]}

    return {
        "nothing": b"",
        "no text": b"\xff\xfe\x00",
        "no JSON": b"{",
        "deep": b"[" * 100_000,
        "a list": [],
        "another format": {"format": "something"},
        "a version to come": {**sound, "version": 2},
        "a version that is no integer": {**sound, "version": 1.0},
        "a version that is true": {**sound, "version": True},
        "no tables": {k: v for k, v in sound.items() if k != "tables"},
        "tables of text": {**sound, "tables": "ab"},
        "no machine": {**sound, "tables": [{"rows": []}]},
        "no row": {**sound, "tables": [{**table, "rows": [3]}]},
        "a row without times": broken(us=None),
        "negative times": broken(us={"conv": -1.0, "dot": 1.0}),
        "infinite times": broken(us={"conv": float("inf"), "dot": 1.0}),
        "no time of the kernel": broken(kernel="other"),
        "a kernel of no name": broken(kernel=["conv"]),
        "threads in words": broken(threads="two"),
        "true threads": broken(threads=True),
        "no text for a shape": broken(x=3),
    }


@pytest.mark.parametrize("name", damaged())
def test_damaged_files_are_refused_and_left_alone(name, monkeypatch, tmp_path):
    content = damaged()[name]
    file = tmp_path / "tuned.json"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    before = file.read_bytes()
    with pytest.raises(qa.FormatError, match=r"autotune: .*tuned.json is not a whole file of tuned kernels: .*delete"):
        with qa.autotune(file, again=file.read_bytes() == b"{"):
            raise AssertionError("nothing is timed in vain")
    assert not autotune.state.open
    monkeypatch.setenv(autotune.VARIABLE, str(file))
    monkeypatch.setattr(autotune, "state", autotune._State())
    with pytest.warns(RuntimeWarning, match="QUANTARRAY_AUTOTUNE: .* the cost model chooses"):
        qa.linear(*operands())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qa.linear(*operands())  # said once
    assert file.read_bytes() == before


def test_a_variable_that_names_no_file(monkeypatch, tmp_path):
    """A folder is called one; what is missing is said to be missing."""
    for name, reason in ((tmp_path, "is a folder, not a file that"), (tmp_path / "t.json", "there is no file")):
        monkeypatch.setenv(autotune.VARIABLE, str(name))
        monkeypatch.setattr(autotune, "state", autotune._State())
        with pytest.warns(RuntimeWarning, match=f"QUANTARRAY_AUTOTUNE: .*{reason}.*; the cost model chooses"):
            assert autotune.known() == 0
    with pytest.raises(IsADirectoryError):
        with qa.autotune(tmp_path):
            raise AssertionError("nothing is timed in vain")


def test_the_default_place(times, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path / "cache"))
    with qa.autotune():
        qa.linear(*operands())
    assert not list(tmp_path.iterdir())  # nobody asked to save
    with qa.autotune(True) as tuned:
        qa.linear(*operands())
    assert tuned.file == tmp_path / "cache" / "quantarray" / "autotune.json" and len(saved(tuned.file)["tables"]) == 1
    monkeypatch.setenv(autotune.VARIABLE, "1")
    monkeypatch.setattr(autotune, "state", autotune._State())
    assert autotune.known() == 1
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert os.name == "nt" or files.default_path() == tmp_path / ".cache" / "quantarray" / "autotune.json"


# processes and threads

PRODUCT = """
import sys, threading
import numpy as np
import quantarray as qa
from quantarray.ops.products import calls
from quantarray.tuning import autotune, timing

timed = []
in_turns = timing.in_turns
timing.in_turns = lambda runs, *more: timed.append(1) or in_turns(runs, *more)
rng = np.random.default_rng(0)
codes = rng.integers(0, 16, (400, 256)), rng.integers(0, 16, (64, 256))
x, w = (qa.from_codes(c, qa.uint4) for c in codes)
expected = codes[0] @ codes[1].T


def right(n=400):
    return np.array_equal(qa.linear(x[:n], w), expected[:n])
"""

THREADS = """
wrong, barrier = [], threading.Barrier(8)


def work():
    barrier.wait()
    for n in [*range(393, 401)] * 3:
        try:
            wrong.extend([] if right(n) else [n])
        except BaseException as error:
            wrong.append(repr(error))


with qa.autotune() as tuned:
    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
assert not wrong, wrong
assert len(tuned) == len(timed) == 8, (len(tuned), len(timed))
"""

FORK = """
import os, signal
with qa.autotune() as tuned:
    assert right()
    held, done = threading.Event(), threading.Event()

    def hold():
        with autotune.state.lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait()
    child = os.fork()  # while another thread is timing
    if not child:
        try:
            signal.alarm(60)
            assert right(400) and right(399), "wrong"
            assert {row.threads for row in tuned} == {1, qa.get_num_threads()}  # children run on one thread
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
assert len(tuned) == 1
"""


def python(code, **more):
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", **more}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip("this machine does not have the threading layer")
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_eight_threads_time_each_problem_once(layer):
    python(PRODUCT + THREADS, NUMBA_THREADING_LAYER=layer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_tuned_while_another_thread_times():
    python(PRODUCT + FORK)


def test_a_later_process_takes_the_file_by_its_environment(tmp_path):
    file = tmp_path / "tuned.json"
    python(PRODUCT + f"\nwith qa.autotune({str(file)!r}):\n    assert right()\nassert len(timed) == 1")
    later = (
        PRODUCT + "\nassert right() and autotune.known() == 1 and not timed\nwith qa.autotune():\n    assert right()\n"
    )
    python(later + "assert not timed", QUANTARRAY_AUTOTUNE=str(file))
    said = python("from quantarray.cli import main; main(['info'])", QUANTARRAY_AUTOTUNE=str(file))
    assert f"1 calls measured on this CPU, from QUANTARRAY_AUTOTUNE={file}" in said


# the command


@pytest.fixture
def net(tmp_path):
    from plain_files import small

    return small().save(tmp_path / "net.npz")


def test_the_command(net, tmp_path, capsys):
    file = tmp_path / "tuned.json"
    assert main(["tune", str(net), "--batch", "2", "3", "--save", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("made up: 4 layers") and f"QUANTARRAY_AUTOTUNE={file}" in out
    rows = [row for table in saved(file)["tables"] for row in table["rows"]]
    assert rows and {re.search(r" (\d+)x", row["x"])[1] for row in rows} == {"2", "3"}
    assert main(["tune", str(net), "--batch", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["network"] == "made up" and facts["file"] is None and len(facts["rows"]) * 2 == len(rows)
    assert main(["tune", str(net), "--batch", "1"]) == 0
    assert "not saved; --save keeps it" in capsys.readouterr().out


def test_info_says_whether_a_table_is_in_force(monkeypatch, tmp_path, capsys):
    assert main(["info"]) == 0
    assert "autotune  no table: the cost model chooses; QUANTARRAY_AUTOTUNE=PATH takes one" in capsys.readouterr().out
    files.merge("autotune", tmp_path / "t.json", [row(1), row(2)])
    monkeypatch.setenv(autotune.VARIABLE, str(tmp_path / "t.json"))
    monkeypatch.setattr(autotune, "state", autotune._State())
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["autotune"].startswith("2 calls measured on this CPU")
