"""Tables of text, and text of others in a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], indent: str = "  ") -> str:
    """Align columns as wide as they need; the first is text, the others are right-aligned.

    >>> print(table(["scheme", "bits"], [["Sign()", 1], ["LloydMax(2)", 2]], indent=""))
    scheme       bits
    -----------  ----
    Sign()          1
    LloydMax(2)     2
    """
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return (indent + "  ".join([row[0].ljust(widths[0]), *rest])).rstrip()

    return "\n".join([line(cells[0]), line(["-" * width for width in widths]), *map(line, cells[1:])])


def short(text: str, most: int = 80) -> str:
    r"""Return `text` in at most `most` characters, escaped where it is not printable: it may come from a file.

    >>> short("Uniform(4)"), short("a" * 100, 10), short("red" + chr(27))
    ('Uniform(4)', 'aaaaaaaa..', "'red\\x1b'")
    """
    line = text if text.isprintable() else ascii(text)
    return line if len(line) <= most else line[: most - 2] + ".."
