"""Turn docstrings, which are plain text with a little Markdown, into the reStructuredText that Sphinx reads.

Known blocks: paragraphs, `- ` lists, tables of `|`, indented formulas, and examples behind `>>>`. In text, `code` and
names of pages are the only markup; everything else stands for itself: 2**bits and |x| need no escapes.
"""

import re
from collections.abc import Callable, Iterator

Link = Callable[[str], str]


def to_rst(lines: list[str], link: Link) -> list[str]:
    """Return the reStructuredText of a docstring's lines; `link` makes the markup of what stands between backquotes."""
    out: list[str] = []
    for kind, block in _blocks(lines):
        out += _WRITERS[kind](block, link)
        out.append("")
    return out


def _kind(line: str, before: str) -> str:
    if line.startswith(">>>"):
        return "example"
    if line.startswith("|"):
        return "table"
    if re.match(r"(- |\d+\. )", line):
        return "list"
    if before == "example" or (before == "list" and line.startswith("  ")):
        return before
    return "formula" if line.startswith("    ") else "text"


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Split at blank lines and where a line begins another kind of block."""
    kind, block = "", []
    for line in lines:
        if not line.strip():
            if kind == "formula":
                block.append("")
                continue
            if block:
                yield kind, block
            kind, block = "", []
            continue
        new = _kind(line, kind)
        if new != kind and block:
            yield kind, block
            block = []
        kind = new
        block.append(line)
    if block:
        yield kind, block


def inline(text: str, link: Link) -> str:
    """Mark up `code` and names of pages, and escape what else reStructuredText would read as markup."""
    out = []
    for part in re.split(r"(`[^`]+`|docs/[\w/-]+\.md)", text):
        if part.startswith("`") and len(part) > 2:
            out.append(_apart(link(part[1:-1])))
        elif re.fullmatch(r"docs/[\w/-]+\.md", part):
            out.append(_apart(f":doc:`/{part.removeprefix('docs/').removesuffix('.md')}`"))
        else:
            out.append(re.sub(r"([\\*|_`])", r"\\\1", part))
    return "".join(out)


def _apart(markup: str) -> str:
    """Put blanks that are not shown around markup, which must not touch a letter."""
    return rf"\ {markup}\ "


def _text(block: list[str], link: Link) -> list[str]:
    return inline("\n".join(block), link).split("\n")


def _list(block: list[str], link: Link) -> list[str]:
    out: list[str] = []
    for item in re.split(r"\n(?=- |\d+\. )", "\n".join(block)):
        mark, text = item.split(" ", 1)
        words = inline(" ".join(text.split()), link)
        out.append(f"{'-' if mark == '-' else '#.'} {words}")
    return out


def _table(block: list[str], link: Link) -> list[str]:
    bars = [match.start() for match in re.finditer(r"\|", block[1])]
    out = [".. list-table::", "   :header-rows: 1", ""]
    for line in [block[0], *block[2:]]:
        for i, cell in enumerate(_cells(line, bars)):
            out.append(f"   {' ' if i else '*'} - {inline(cell, link)}")
    return out


def _cells(line: str, bars: list[int]) -> list[str]:
    """Return the cells between the bars of the rule below the head: `|x|` in a cell is no bar."""
    inner = bars[1:-1]
    if not all(line[bar] == "|" for bar in inner):
        raise ValueError(f"bars of a table are not below each other: {line}")
    edges = [*inner, line.rindex("|")]
    return [line[a + 1 : b].strip() for a, b in zip([0, *inner], edges, strict=True)]


def _formula(block: list[str], link: Link) -> list[str]:
    return [".. code-block:: text", "", *(f"   {line[4:]}".rstrip() for line in block)]


def _example(block: list[str], link: Link) -> list[str]:
    return [".. code-block:: pycon", "", *(f"   {line}" for line in block)]


_WRITERS: dict[str, Callable[[list[str], Link], list[str]]] = {
    "text": _text,
    "list": _list,
    "table": _table,
    "formula": _formula,
    "example": _example,
}
