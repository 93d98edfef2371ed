"""ONNX's own node tests, and the page that lists them."""

import pytest

pytest.importorskip("onnx", "1.23")
from paths import DOCS

from tools import onnx_operators

PAGE = DOCS / "onnx-operators.md"
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def generated():
    return onnx_operators.page()


def test_page_is_what_the_code_does(generated):
    assert PAGE.read_text() == generated[0], "python -m tools.onnx_operators > docs/onnx-operators.md"


def test_nothing_is_wrong(generated):
    assert [o for o in generated[1] if o.result == "wrong"] == []


def test_products_pools_and_quantisers(generated):
    """98 cases, of which 13 have float8, float4 or integers of 16 bits: these are refused by name."""
    outcomes = [o for o in generated[1] if o.op in onnx_operators.QUANTISED]
    refused = [o for o in outcomes if o.result == "refused"]
    assert len(outcomes) == 98 and len(refused) == 13
    for o in refused:
        assert any(t in o.why for t in ("float8e4m3fn", "float8e5m2", "float4e2m1", "int16")), o
    assert all(o.result == "passed" for o in outcomes if o not in refused)
