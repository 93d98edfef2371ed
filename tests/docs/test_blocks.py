"""The examples of docs/blocks.md run, and what they assert holds."""

import re

from paths import DOCS


def test_examples():
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / "blocks.md").read_text(), re.S))
    assert code.count("assert ") >= 6
    exec(compile(code, "docs/blocks.md", "exec"), {})
