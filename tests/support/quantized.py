"""Quantise in tests of schemes: each result is validated, and a warning is an error."""

import warnings

import pytest

import quantarray as qa
from quantarray.arrays.array import validate


@pytest.fixture(autouse=True)
def quiet():
    """Turn warnings into errors in the file that imports this fixture."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def quantize(x, *args, **kwargs):
    """Quantise as `qa.quantize` does, and validate the result."""
    q = qa.quantize(x, *args, **kwargs)
    validate(q)
    return q
