"""The array API: its page, its names, and each of them against `array-api-strict` on the values."""

import warnings

import array_api_strict as strict
import numpy as np
import pytest
from array_api_cases import CASES
from array_api_drawn import Drawn, packed
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import DOCS

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.core.refusals import REFUSED
from tools import array_api

strict.set_array_api_strict_flags(api_version=array_api.VERSION)
PAGE = DOCS / "array-api.md"
NAMES = [name for _, name in array_api.names()]
LATER = {"isin", "broadcast_shapes"}  # of 2025.12


def test_page_is_what_the_code_says():
    assert PAGE.read_text() == array_api.page(), "python -m tools.array_api > docs/array-api.md"


def test_names_are_the_standards():
    inspection = {"__array_namespace_info__"}
    functions = {n for n in strict.__all__ if n in inspection or (callable(getattr(strict, n)) and n.islower())}
    functions -= LATER | {n for n in functions if "strict" in n or isinstance(getattr(strict, n), strict._dtypes.DType)}
    assert set(NAMES) == functions | {f"linalg.{n}" for n in strict.linalg.__all__} and len(set(NAMES)) == len(NAMES)


def test_most_names_are_supported():
    assert array_api.share() >= 0.6


@pytest.mark.parametrize("name", NAMES)
def test_names_exist_or_say_why_not(name):
    kind, note = array_api.status(name)
    module, _, inner = name.rpartition(".")
    where = qa.linalg if module else qa
    if kind == "refused":
        assert name not in CASES
        with pytest.raises(AttributeError) as caught:
            getattr(where, inner)
        assert note and note in str(caught.value)
    else:
        assert callable(getattr(where, inner)) and name in CASES and name not in REFUSED
        assert bool(note) == (kind == "some types")


def test_no_name_is_kept_for_nothing():
    assert {*array_api.PARTIAL, *REFUSED, *CASES} <= set(NAMES)


@pytest.mark.parametrize("name", CASES)
def test_against_the_standard(name):
    compared = []

    @settings(max_examples=60)
    @given(st.data())
    def run(data):
        compared.append(agrees(CASES[name], data))

    run()
    assert sum(compared) > len(compared) / 3  # the others were refused


def agrees(case, data):
    """f(q) has the values of the standard's f on the values of q; False if it is refused: constants cannot follow."""
    q = data.draw(packed(case), "x")
    drawn = Drawn(data, q, case)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = case.call(strict, drawn.plain(q), drawn)
        try:
            got = case.call(qa, q, drawn)
        except (ValueError, IndexError) as error:
            assert any(a.shape[-q.ndim :] != (1,) * q.ndim for _, a, _ in q.constants.items()), error
            assert "constants" in str(error) or "groups" in str(error)
            return False
    room = None
    if case.room is not None:
        reach = np.prod([largest(a) for a in drawn.operands]) ** (2 if case.square else 1)
        room = case.room * 2.0**-40 * reach * (max(q.size, 1) if case.summed else 1)
    assert_values(got, expected, room, case.ulps)
    return True


def largest(q):
    """The size of the largest level that constants could make, at least 1."""
    found = [float(np.abs(a.astype(np.float64)).max(initial=0)) for a in (q.scale, q.offset, q.constants.table)
             if a is not None]  # fmt: skip
    if q.dtype.is_integer:
        return max(1.0, q.dtype.max_abs * (found[0] if found else 1.0))
    return max(1.0, q.dtype.n_levels * sum(found))


def assert_values(got, expected, room, ulps):
    """Packed or not, one array or several: the same shapes, and the same values, or as near as `room` and `ulps`."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_values(a, b, room, ulps)
        return
    if isinstance(got, qa.QuantArray):
        validate(got)
        got = got.dequantize()
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    if room is None or got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    assert (np.isnan(got) == np.isnan(expected)).all()
    wide, here = expected.astype(np.float64), ~np.isnan(expected)
    unit = np.spacing(np.abs(wide[here]).astype(np.float32)).astype(np.float64)
    assert (np.abs(got[here] - wide[here]) <= ulps * unit + room).all()
