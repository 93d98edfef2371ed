"""Comparisons of schemes: every number against a plain formula, the picture, the command."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import quantarray as qa
from quantarray.cli import main
from quantarray.quantizers.base import Quantizer
from quantarray.report import measure, picture

PNG = b"\x89PNG\r\n\x1a\n"


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def same(a, b):
    """Equal but for the time."""
    return a._replace(ms=None) == b._replace(ms=None)


# numbers


@pytest.mark.parametrize(
    ("how", "constants"),
    [({}, 1), ({"scale_axis": 0}, 6), ({"group": 64}, 6 * 2), ({"axis": 0, "scale_axis": 1}, 100)],
)
def test_every_number_by_its_formula(how, constants):
    x = normal(6, 100)
    for quantizer in (qa.Uniform(3), qa.Uniform(3, symmetric=False), qa.LQ(3), qa.LloydMax(3)):
        (row,) = qa.compare(x, [quantizer], **how)
        q = qa.quantize(x, quantizer, **how)
        y, x64 = q.dequantize().astype(np.float64), x.astype(np.float64)
        each = {"integer": 1, "uniform": 2, "basis": 4, "table": 8}[q.dtype.kind]  # float32 numbers of one set
        assert row.scheme == repr(quantizer) and row.refused is None
        packed, rows = (6, 100) if how.get("axis") == 0 else (100, 6)
        words = 3 * rows * -(-packed // 64)
        assert row.bits == pytest.approx((64 * words + 32 * each * constants) / 600) == 8 * q.nbytes / 600
        assert row.padding == pytest.approx(64 * words / 600 - 3)
        assert row.constants == pytest.approx(32 * each * constants / 600)
        assert row.error == pytest.approx(((x64 - y) ** 2).sum() / (x64**2).sum())
        cosine = (x64 * y).sum() / np.sqrt((x64**2).sum() * (y**2).sum())
        assert row.angle == pytest.approx(np.degrees(np.arccos(cosine)), abs=1e-5)
        assert row.nbytes == q.nbytes and row.smaller == pytest.approx(x.nbytes / q.nbytes)
        counts = np.array([(q.codes() == c).sum() for c in range(q.dtype.n_levels)])
        p = counts[counts > 0] / 600
        assert (row.used, row.levels) == (len(p), q.dtype.n_levels)
        assert row.entropy == pytest.approx(-(p * np.log2(p)).sum())
        assert row.ms > 0


def test_worked_by_hand():
    row = qa.compare([3.0, 1.0, -1.0, -3.0], [qa.XNOR()])[0]
    assert row.error == pytest.approx(0.2) and (row.used, row.levels, row.entropy) == (2, 2, 1.0)
    assert row.angle == pytest.approx(math.degrees(math.acos(4 / math.sqrt(20))))
    assert (row.bits, row.padding, row.constants) == (8 * 12 / 4, 60 / 4, 32 / 4)
    assert (row.nbytes, row.smaller) == (8 + 4, 16 / 12)


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1e6, 1e6, width=32)), st.integers(1, 4))
def test_a_least_squares_scale_has_the_error_of_its_angle(x, bits):
    row = qa.compare(x, [qa.Uniform(bits, mse=True)])[0]
    if x.any() and np.abs(x[x != 0]).min() > 1e-30:
        assert row.error == pytest.approx(math.sin(math.radians(row.angle)) ** 2, abs=1e-5)


@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e300, 1e300)), hnp.arrays(np.float32, 5))
def test_errors_and_angles_of_anything_are_numbers(x, y):
    y = np.nan_to_num(y)
    assert measure.relative_error(x, y) >= 0 and 0 <= measure.angle(x, y) <= 180.0000001


def test_zeros():
    x = np.zeros(10)
    exact, wrong = qa.compare(x, [qa.Uniform(4), qa.Sign()])
    assert (exact.error, exact.angle, exact.used, exact.entropy) == (0.0, 0.0, 1, 0.0)
    assert (wrong.error, wrong.angle) == (math.inf, 90.0)
    assert qa.compare(x, [qa.Sign()]).to_json()["rows"][0]["error"] is None


def test_angle_keeps_its_digits_near_zero():
    assert measure.angle(np.array([1.0, 0.0]), np.array([1.0, 1e-9])) == pytest.approx(math.degrees(1e-9), rel=1e-6)
    assert measure.angle(np.array([1.0, 2.0]), np.array([-1.0, -2.0])) == 180.0


def test_integers_and_lists_are_taken():
    assert qa.compare([[0, 1], [2, 3]], [qa.Uniform(2, signed=False, step=1.0)])[0].error == 0.0


# all published schemes


@pytest.mark.parametrize("bits", range(1, 9))
def test_all_published_schemes_have_the_bits_and_a_row(bits):
    found = qa.compare(normal(64), bits=bits)
    assert len(found) == len({row.scheme for row in found}) >= 14
    assert all(row.refused is None for row in found)
    assert {q.bits for q in (qa.quantize(normal(64), s) for s in measure.published(bits))} == {bits}


def test_the_published_schemes_are_those_of_the_package():
    """All quantisers but those whose constants are trained, and the plain sign."""
    listed = {type(q) for bits in range(1, 9) for q in measure.published(bits)}
    every = {getattr(qa, name) for name in qa.__all__ if isinstance(getattr(qa, name), type)}
    every = {c for c in every if issubclass(c, Quantizer) and c is not Quantizer}
    assert every - listed == {qa.ABCActivations, qa.Sign} and listed <= every


# the result


def test_the_table():
    found = qa.compare(normal(1000), [qa.Sign(scale=True), qa.LloydMax(2)])
    head, rule, first, second = repr(found).splitlines()
    names = ["bits", "padding", "constants", "error", "angle", "bytes", "than float32", "levels used", "entropy", "ms"]
    assert re.split("  +", head) == ["scheme", *names]
    assert first.split()[:4] == ["Sign(scale=True)", "1.06", "0.02", "0.03"] and " 2 of 2 " in first
    assert " 30.3x smaller " in first
    assert len({len(line) for line in (head, rule, first, second)}) == 1
    assert f"{found[1].error:.3g}" in second.split()


def test_the_table_says_what_is_larger_than_float32():
    found = qa.compare(normal(20, 1), [qa.Sign(), qa.Uniform(8)])
    assert [row.bits for row in found] == [64, 8 * 64 + 32 / 20]
    assert "  2.0x larger  " in repr(found) and "  16.1x larger  " in repr(found) and "smaller" not in repr(found)


def test_a_result_is_a_frozen_sequence():
    found = qa.compare(normal(10), [qa.Sign(), qa.XNOR()])
    assert len(found) == 2 and list(found) == [found[0], found[1]] == list(found.rows) and found.shape == (10,)
    with pytest.raises(AttributeError):
        found.rows = ()


def test_json():
    found = qa.compare(normal(3, 10), bits=2)
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert facts["shape"] == [3, 10]
    assert [row["scheme"] for row in facts["rows"]] == [row.scheme for row in found]
    assert facts["rows"][0] == found[0]._asdict()


class Picky(qa.Sign):
    """A quantiser that refuses every array."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    @property
    def fixed(self):
        return False

    def fit(self, x, axes):
        raise self.error

    def __repr__(self):
        return "Picky()"


def test_a_scheme_that_refuses_has_a_row_that_says_so(tmp_path):
    found = qa.compare(normal(40), [qa.XNOR(), Picky(ValueError("not today")), qa.Uniform(2)], plot=tmp_path / "a.png")
    assert same(found[1], measure.Row("Picky()", refused="not today"))
    assert found[0].error < 1 and found[2].error < 1
    assert repr(found).splitlines()[-1] == "Picky()  refused: not today"
    assert json.dumps(found.to_json())
    huge = np.array([1e300, -1e300])
    assert "beyond float32" in qa.compare(huge, [qa.XNOR(), qa.Sign()])[0].refused
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_all_may_refuse(tmp_path):
    found = qa.compare(normal(40), [Picky(ValueError("no"))], plot=tmp_path / "a.png")
    assert found[0].refused == "no" and (tmp_path / "a.png").exists()


def test_a_bug_in_a_scheme_is_no_refusal():
    with pytest.raises(ZeroDivisionError):
        qa.compare(normal(4), [Picky(ZeroDivisionError())])


# errors


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: qa.compare([1.0]), TypeError, "a list of quantisers, or bits= .*, got neither"),
        (lambda: qa.compare([1.0], [qa.Sign()], bits=2), TypeError, "got both"),
        (lambda: qa.compare([1.0], qa.Sign()), TypeError, r"must be a list such as .*, got Sign\(\)"),
        (lambda: qa.compare([1.0], [qa.Sign]), TypeError, "got the class Sign: call it"),
        (lambda: qa.compare([1.0], [3]), TypeError, "must be quantisers .*, got 3"),
        (lambda: qa.compare([1.0], []), ValueError, "at least one quantiser"),
        (lambda: qa.compare([1.0], bits=9), ValueError, "compare: bits must be at most 8, got 9"),
        (lambda: qa.compare([1.0], bits="2"), TypeError, "compare: bits must be an integer, got '2'"),
        (lambda: qa.compare([], bits=2), ValueError, r"compare: x must have elements, got shape \(0,\)"),
        (lambda: qa.compare([1.0, np.nan], bits=2), ValueError, r"compare: x must be finite, got nan at \(1,\)"),
        (lambda: qa.compare([np.inf], bits=2), ValueError, "compare: x must be finite, got inf"),
        (lambda: qa.compare(1.0, bits=2), ValueError, "compare: x must have at least one axis"),
        (lambda: qa.compare([1.0], bits=2, axis=1), ValueError, "compare: axis 1 is out of bounds"),
        (lambda: qa.compare([1.0], bits=2, scale_axis=4), ValueError, "compare: scale_axis 4 is out of bounds"),
        (lambda: qa.compare([1.0], bits=2, group=0), ValueError, "compare: group must be at least 1"),
        (lambda: qa.compare([1.0], bits=2, plot="a.gif"), ValueError, "plot must be a path that ends in .png"),
    ],
)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


# the picture


SHAPES = [(500,), (40, 30), (20, 24, 3), (4, 4, 3), (2, 3, 4, 5), (1,)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_picture_of_any_shape(shape, tmp_path):
    qa.compare(normal(*shape), [qa.XNOR(), qa.Uniform(2), qa.LloydMax(2)], plot=tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)
    assert [f.name for f in tmp_path.iterdir()] == ["out.png"]


def test_bars_of_bits_show_code_padding_and_constants(tmp_path, monkeypatch):
    """Lengths of the bars of each scheme add up to its bits."""
    bars, drawn = [], picture._bits

    def seen(axes, rows):
        drawn(axes, rows)
        bars.extend(patch.get_width() for patch in axes.patches)

    monkeypatch.setattr(picture, "_bits", seen)
    found = qa.compare(normal(6, 100), [qa.XNOR(), qa.LloydMax(3)], scale_axis=0, plot=tmp_path / "a.png")
    assert bars == pytest.approx([n for row, code in zip(found, (1, 3), strict=True) for n in parts(row, code)])
    assert [sum(bars[:3]), sum(bars[3:])] == pytest.approx([row.bits for row in found])


def parts(row, code):
    return code, row.padding, row.constants


def test_images_have_room_for_their_pictures(tmp_path):
    from matplotlib.image import imread

    quantizers = [qa.XNOR(), qa.Uniform(2)]
    qa.compare(normal(4000), quantizers, plot=tmp_path / "a.png")
    qa.compare(normal(50, 80), quantizers, plot=str(tmp_path / "b.png"))
    assert imread(tmp_path / "b.png").shape[0] > imread(tmp_path / "a.png").shape[0]


def test_pictures_of_zeros_channels_and_many_levels(tmp_path):
    qa.compare(np.zeros((20, 20)), [qa.Uniform(2), qa.Sign(), qa.DoReFa(2)], plot=tmp_path / "a.png")
    qa.compare(normal(300, 64), [qa.LloydMax(8), qa.Grouped(4, group=8)], plot=tmp_path / "b.png")
    qa.compare(normal(300, 64), [qa.LloydMax(4)], scale_axis=0, plot=tmp_path / "c.png")
    assert len(list(tmp_path.iterdir())) == 3


def test_nothing_is_left_where_drawing_fails(tmp_path, monkeypatch):
    old = tmp_path / "out.png"
    old.write_bytes(b"old")

    def fail(*args):
        raise RuntimeError("out of ink")

    monkeypatch.setattr(picture, "_errors", fail)
    with pytest.raises(RuntimeError, match="out of ink"):
        qa.compare(normal(10), [qa.XNOR()], plot=old)
    assert old.read_bytes() == b"old" and list(tmp_path.iterdir()) == [old]


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        qa.compare(normal(10), [qa.XNOR()], plot=tmp_path / "none" / "out.png")


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "available", lambda: False)
    with pytest.raises(ImportError, match=r"compare: a plot needs matplotlib, .* pip install 'quantarray\[plot\]'"):
        qa.compare(normal(10), [qa.XNOR()], plot=tmp_path / "out.png")
    assert len(qa.compare(normal(10), [qa.XNOR()])) == 1


# the command


def call(capsys, *args):
    status = main([str(a) for a in args])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", normal(20, 30))
    return tmp_path / "x.npy"


def test_the_command(file, capsys):
    status, out, err = call(capsys, "compare", file, "--bits", 3)
    lines = out.splitlines()
    assert (status, err) == (0, "") and lines[0] == f"{file}: float32 20 x 30"
    assert lines[-1] == "quantize(x, bits=3) takes Uniform(3, mse=True, midrise=True)"
    assert len(lines) == 4 + len(measure.published(3))


def test_the_command_as_json_with_a_picture(file, tmp_path, capsys):
    status, out, _ = call(capsys, "compare", file, "--json", "--plot", tmp_path / "out.png")
    facts = json.loads(out)
    assert status == 0 and facts["shape"] == [20, 30] and facts["picture"] == str(tmp_path / "out.png")
    assert facts["choice"] == "Uniform(2, mse=True, midrise=True)" and len(facts["rows"]) == len(measure.published(2))
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)
    assert f"picture: {tmp_path / 'out.png'}" in call(capsys, "compare", file, "--plot", tmp_path / "out.png")[1]
    assert json.loads(call(capsys, "compare", file, "--json")[1])["picture"] is None


def test_the_commands_errors(file, tmp_path, capsys):
    (tmp_path / "bad.npy").write_bytes(b"no array")
    np.savez(tmp_path / "many.npz", a=1)
    for args, text in [
        ((tmp_path / "none.npy",), "No such file"),
        ((tmp_path / "bad.npy",), "is not a whole .npy file"),
        ((tmp_path / "many.npz",), "compare: .* must be one array"),
        ((file, "--bits", "9"), "compare: bits must be at most 8"),
        ((file, "--bits", "0"), "needs a positive integer"),
        ((file, "--plot", "a.jpg"), "ends in .png"),
        ((), "required: X.npy"),
    ]:
        status, out, err = call(capsys, "compare", *args)
        assert (status, out) == (2, "") and err.count("\n") == 1
        assert re.search(text, err), err
