"""Which units of a GPU multiply bits, by compute capability, shape and environment."""

import pytest

from quantarray import DeviceError
from quantarray.cuda.runtime import isa

ENOUGH = 16, 4


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("QUANTARRAY_CUDA", raising=False)


@pytest.mark.parametrize(
    ("capability", "chosen"),
    [
        ((7, 0), "popc"), ((7, 5), "popc"), ((8, 0), "bmma"), ((8, 6), "bmma"), ((8, 9), "bmma"), ((9, 0), "wgmma"),
        ((10, 0), "imma"), ((10, 3), "imma"), ((12, 0), "imma"), ((12, 1), "imma"),
    ],
)  # fmt: skip
def test_by_compute_capability(capability, chosen):
    assert isa.best(capability) == chosen
    assert isa.units(capability, *ENOUGH) == ("bmma" if chosen == "wgmma" else chosen), "windows are short"


def test_products_that_do_not_fill_an_instruction_stay():
    shapes = (16, 4), (15, 4), (16, 3), (1, 100)
    assert [isa.units((8, 0), *shape) for shape in shapes] == ["bmma", "popc", "imma", "popc"]
    assert [isa.units((9, 0), *shape) for shape in shapes] == ["bmma", "popc", "imma", "popc"]
    assert [isa.units((12, 0), *shape) for shape in shapes] == ["imma", "popc", "imma", "popc"]


def test_warpgroups_take_long_windows():
    assert [isa.units((9, 0), rows, words) for rows in (15, 16) for words in (15, 16)] == [
        "popc", "popc", "bmma", "wgmma",
    ]  # fmt: skip
    assert [isa.units((9, 0), 1, words, 1, 9) for words in (15, 16)] == ["popc", "wgmma"], "9 planes of weights"


@pytest.mark.parametrize("capability", ((8, 0), (9, 0), (12, 0)))
def test_few_rows_of_many_pairs_become_bytes(capability):
    for rows, pairs, units in ((1, (8, 8), "popc"), (2, (8, 4), "popc"), (2, (8, 5), "imma"), (15, (2, 2), "popc"),
                               (15, (8, 1), "imma"), (3, (8, 8), "imma")):  # fmt: skip
        assert isa.units(capability, rows, 64, *pairs) == units
    assert isa.units((7, 5), 3, 64, 8, 8) == "popc"


@pytest.mark.parametrize(
    ("capability", "words", "counting", "pairs"),
    [((7, 5), 64, "popc", 65), ((8, 0), 64, "bmma", 8), ((9, 0), 15, "bmma", 5), ((9, 0), 16, "wgmma", 8),
     ((12, 0), 64, "imma", 1)],
)  # fmt: skip
def test_bytes_take_many_pairs_of_planes(capability, words, counting, pairs):
    for planes_x in range(1, 9):
        for planes_w in range(1, 9):
            units = "imma" if planes_x * planes_w >= pairs else counting
            assert isa.units(capability, 16, words, planes_x, planes_w) == units
            if planes_x * planes_w * 15 <= 64 or capability < (8, 0):
                units = "popc"
            elif units == "bmma":
                units = "imma"
            assert isa.units(capability, 15, words, planes_x, planes_w) == units


def test_more_planes_than_a_byte_holds_are_counted(monkeypatch):
    assert [isa.units(cc, 16, 16, *p) for cc in ((8, 0), (9, 0), (12, 0)) for p in ((9, 1), (1, 32))] == [
        "bmma", "bmma", "wgmma", "wgmma", "popc", "popc",
    ]  # fmt: skip
    monkeypatch.setenv("QUANTARRAY_CUDA", "imma")
    assert [isa.units((8, 0), 1, 1, *planes) for planes in ((8, 8), (9, 1), (1, 9))] == ["imma", "popc", "popc"]


def test_images_of_bytes_are_multiplied_as_they_are(monkeypatch):
    assert [isa.multiplies_bytes(cc, 8) for cc in ((7, 5), (8, 0), (9, 0), (12, 0))] == [False, True, True, True]
    assert not isa.multiplies_bytes((8, 0), 9)
    for name in isa.UNITS:
        monkeypatch.setenv("QUANTARRAY_CUDA", name)
        assert isa.multiplies_bytes((9, 0), 1) == (name == "imma")


def test_forced(monkeypatch):
    monkeypatch.setenv("QUANTARRAY_CUDA", "popc")
    assert isa.units((9, 0), *ENOUGH) == "popc"
    monkeypatch.setenv("QUANTARRAY_CUDA", "bmma")
    assert isa.units((8, 0), 1, 1) == "bmma"
    monkeypatch.setenv("QUANTARRAY_CUDA", "wgmma")
    assert isa.units((9, 0), 1, 1) == "wgmma"


def test_errors_name_cause_and_fix(monkeypatch):
    monkeypatch.setenv("QUANTARRAY_CUDA", "mma")
    with pytest.raises(DeviceError, match="CUDA must be one of popc, bmma, wgmma, imma, or unset, got 'mma'"):
        isa.best((9, 0))
    for name, needed, found in (
        ("bmma", r"8\.0 to 9\.x", (12, 0)), ("bmma", r"8\.0 to 9\.x", (7, 5)), ("wgmma", r"9\.0", (8, 9)),
        ("wgmma", r"9\.0", (10, 0)), ("wgmma", r"9\.0", (9, 1)), ("imma", r"8\.0 or above", (7, 5)),
    ):  # fmt: skip
        monkeypatch.setenv("QUANTARRAY_CUDA", name)
        with pytest.raises(DeviceError, match=rf"{name} needs a GPU of compute capability {needed}, .* this one has "
                                              rf"{found[0]}\.{found[1]}; unset QUANTARRAY_CUDA, or use"):  # fmt: skip
            isa.units(found, *ENOUGH)
