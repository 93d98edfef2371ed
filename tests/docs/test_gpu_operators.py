"""The page of operations on a GPU."""

from paths import DOCS

from tools.gpu_operators import page


def test_page_is_what_the_code_does():
    assert (DOCS / "gpu-operators.md").read_text() == page(), "python -m tools.gpu_operators > docs/gpu-operators.md"
