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
        ((10, 0), "popc"), ((10, 3), "popc"), ((12, 0), "popc"), ((12, 1), "popc"),
    ],
)  # fmt: skip
def test_by_compute_capability(capability, chosen):
    assert isa.best(capability) == chosen
    assert isa.units(capability, *ENOUGH) == ("bmma" if chosen == "wgmma" else chosen), "windows are short"


def test_products_that_do_not_fill_an_instruction_stay():
    shapes = (16, 4), (15, 4), (16, 3), (1, 100)
    assert [isa.units((8, 0), *shape) for shape in shapes] == ["bmma", "popc", "popc", "popc"]
    assert [isa.units((9, 0), *shape) for shape in shapes] == ["bmma", "popc", "popc", "wgmma"]


def test_warpgroups_take_long_windows():
    assert [isa.units((9, 0), rows, words) for rows in (1, 64) for words in (32, 33)] == [
        "popc", "wgmma", "bmma", "wgmma",
    ]  # fmt: skip


def test_forced(monkeypatch):
    monkeypatch.setenv("QUANTARRAY_CUDA", "popc")
    assert isa.units((9, 0), *ENOUGH) == "popc"
    monkeypatch.setenv("QUANTARRAY_CUDA", "bmma")
    assert isa.units((8, 0), 1, 1) == "bmma"
    monkeypatch.setenv("QUANTARRAY_CUDA", "wgmma")
    assert isa.units((9, 0), 1, 1) == "wgmma"


def test_errors_name_cause_and_fix(monkeypatch):
    monkeypatch.setenv("QUANTARRAY_CUDA", "mma")
    with pytest.raises(DeviceError, match="QUANTARRAY_CUDA must be one of popc, bmma, wgmma, or unset, got 'mma'"):
        isa.best((9, 0))
    for name, needed, found in (
        ("bmma", r"8\.0 to 9\.x", (12, 0)), ("bmma", r"8\.0 to 9\.x", (7, 5)), ("wgmma", r"9\.0", (8, 9)),
        ("wgmma", r"9\.0", (10, 0)), ("wgmma", r"9\.0", (9, 1)),
    ):  # fmt: skip
        monkeypatch.setenv("QUANTARRAY_CUDA", name)
        with pytest.raises(DeviceError, match=rf"{name} needs a GPU of compute capability {needed}, .* this one has "
                                              rf"{found[0]}\.{found[1]}; unset QUANTARRAY_CUDA, or use"):  # fmt: skip
            isa.units(found, *ENOUGH)
