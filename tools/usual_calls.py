"""Generate quantarray/data/usual_calls.json, what `quantarray warm` compiles kernels for: examples of the pages.

    python -m tools.usual_calls > quantarray/data/usual_calls.json

They are the Python blocks of pages that need NumPy alone, the demo, and the examples of public functions and schemes.
"""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import quantarray as qa

ROOT = Path(__file__).parents[1]
PAGES = ("docs/blocks.md", "docs/summary.md", "docs/deploying.md", "docs/nearest-codes.md")
DEMO = "from quantarray.cli import main\nassert main(['demo', '--json', '--out', 'demo.png']) == 0\n"
NOT_USUAL = {"compare", "explain"}  # which try every kernel or scheme
PARTS = 4  # of the examples, for as many cores


def calls() -> list[dict[str, str]]:
    """List the calls, those that compile longest first."""
    readme = _blocks("README.md")
    pieces = [("README.md, ten lines", readme[0]), ("quantarray demo", DEMO)]
    pieces += [(page, "".join(_blocks(page))) for page in PAGES]
    examples = list(_examples())
    pieces += [(f"examples of functions, part {i + 1}", "".join(examples[i::PARTS])) for i in range(PARTS)]
    pieces.append(("README.md, arrays", readme[1]))
    return [{"from": name, "code": code} for name, code in pieces]


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)


def _examples() -> Iterator[str]:
    """Yield the example of each public function and class, but for those that show an error."""
    for name in sorted(set(qa.__all__) - NOT_USUAL):
        value: Any = getattr(qa, name)
        examples = doctest.DocTestParser().get_examples(value.__doc__ or "") if callable(value) else []
        code = "".join(example.source for example in examples)
        if "import quantarray as qa" in code and not any(example.exc_msg for example in examples):
            yield code


if __name__ == "__main__":
    print(json.dumps(calls(), indent=1))
