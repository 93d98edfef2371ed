"""A drawing of a network as SVG.

Boxes have their own background, and all else is a grey that is readable on white and on black: the file looks right on
any page, without knowing its theme.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from .lanes import Edge, Places, place

_FILL = {"packed": "#1d5f9e", "float result": "#9cc3e6", "NumPy": "#f2b84b", "end": "#dfe4ea"}
_INK = {"packed": "#ffffff", "float result": "#0f2438", "NumPy": "#2b1d00", "end": "#1f2933"}
_GREY = "#7d8894"
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_CHAR, _LINE = 7.3, 16.0  # of a letter of 12 px in all of these fonts: width, and height of a line
_PAD, _GAP, _BESIDE, _EDGE = 11.0, 26.0, 26.0, 14.0  # in a box; between ranks; between lanes; width of an edge's lane
_MARGIN, _HEAD = 16.0, 72.0


class Box(NamedTuple):
    """A box of a drawing: the first line is its title; `kind` is `Row.runs`, or "end" for inputs and outputs."""

    lines: tuple[str, ...]
    kind: str
    tip: str = ""

    @property
    def width(self) -> float:
        return 2 * _PAD + _CHAR * max(map(len, self.lines))

    @property
    def height(self) -> float:
        return _PAD + _LINE * len(self.lines)


class Drawing(NamedTuple):
    """A network as boxes and edges: a title, a line on the whole, and edges from a box to one below it."""

    title: str
    note: str
    boxes: list[Box]
    edges: list[Edge]


def svg(drawing: Drawing) -> str:
    """Return the drawing as the text of an SVG file."""
    places = place(len(drawing.boxes), drawing.edges)
    x, passing, width = _columns(drawing, places)
    y, bottom = _rows(drawing, places)
    width = max(width, 2 * _MARGIN + _CHAR * max(len(drawing.note), len(drawing.title) + 4, 34))
    size = f'width="{width:.0f}" height="{bottom:.0f}" viewBox="0 0 {width:.0f} {bottom:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" font-size="12" role="img">',
        f"<title>{escape(drawing.title)}</title>",
        *_heading(drawing),
        *(_line(edge, places, drawing.boxes, _along(edge, places, x, passing), y) for edge in places.routes),
    ]
    for i, box in enumerate(drawing.boxes):
        lines += _box(box, x[places.lanes[i]], y[places.ranks[i]])
    return "\n".join([*lines, "</svg>", ""])


def _columns(drawing: Drawing, places: Places) -> tuple[list[float], list[float], float]:
    """Return the middle of each lane, where edges pass that end elsewhere, and the width of the picture."""
    count = 1 + max([*places.lanes, *places.routes.values()], default=0)
    widths = [_EDGE] * count
    for box, lane in zip(drawing.boxes, places.lanes, strict=True):
        widths[lane] = max(widths[lane], box.width)
    x, middles, passing = _MARGIN, [], []
    for width in widths:
        middles.append(x + width / 2)
        passing.append(x + _EDGE / 2)
        x += width + _BESIDE
    return middles, passing, x - _BESIDE + _MARGIN


def _rows(drawing: Drawing, places: Places) -> tuple[list[tuple[float, float]], float]:
    """Return the top and bottom of each rank, and the height of the picture."""
    count = 1 + max(places.ranks, default=0)
    heights = [0.0] * count
    for box, rank in zip(drawing.boxes, places.ranks, strict=True):
        heights[rank] = max(heights[rank], box.height)
    y, rows = _HEAD, []
    for height in heights:
        rows.append((y, y + height))
        y += height + _GAP
    return rows, y - _GAP + _MARGIN


def _heading(drawing: Drawing) -> list[str]:
    text = f'<text x="{_MARGIN}" y="20" fill="{_GREY}" font-weight="bold">{escape(drawing.title)}</text>'
    note = f'<text x="{_MARGIN}" y="37" fill="{_GREY}">{escape(drawing.note)}</text>'
    marks = []
    legend = ((0.0, "packed", "packed"), (80.0, "float result", "float result"), (204.0, "NumPy", "in NumPy"))
    for right, kind, says in legend:
        x = _MARGIN + right
        marks.append(f'<rect x="{x}" y="44" width="10" height="10" rx="2" fill="{_FILL[kind]}"/>')
        marks.append(f'<text x="{x + 15}" y="53" fill="{_GREY}">{says}</text>')
    return [text, note, *marks]


def _along(edge: Edge, places: Places, x: list[float], passing: list[float]) -> tuple[float, float, float]:
    """Return where an edge starts, passes boxes, and ends."""
    (start, end), lane = (places.lanes[box] for box in edge), places.routes[edge]
    return x[start], x[lane] if lane in (start, end) else passing[lane], x[end]


def _line(
    edge: Edge, places: Places, boxes: list[Box], x: tuple[float, float, float], y: list[tuple[float, float]]
) -> str:
    """Draw an edge: down in its lane, and by curves between ranks, where no boxes are."""
    a, b = edge
    start, lane, end = x
    at, rank, last = y[places.ranks[a]][0] + boxes[a].height, places.ranks[a] + 1, places.ranks[b]
    path = [f"M{start:.1f} {at:.1f}"]
    if last > rank:
        path.append(_curve(start, y[rank - 1][1], lane, y[rank][0]))
        path.append(f"V{y[last - 1][1]:.1f}")
        start = lane
    path.append(_curve(start, y[last - 1][1], end, y[last][0]))
    return f'<path d="{" ".join(path)}" fill="none" stroke="{_GREY}" stroke-width="1.5"/>'


def _curve(x: float, top: float, to: float, bottom: float) -> str:
    middle = (top + bottom) / 2
    return f"V{top:.1f} C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {bottom:.1f}"


def _box(box: Box, x: float, row: tuple[float, float]) -> list[str]:
    top, width, height = row[0], box.width, box.height
    radius = height / 2 if box.kind == "end" else 5
    lines = [
        "<g>",
        *([f"<title>{escape(box.tip)}</title>"] if box.tip else []),
        f'<rect x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}" '
        f"fill={quoteattr(_FILL[box.kind])}/>",
    ]
    for i, text in enumerate(box.lines):
        weight = ' font-weight="bold"' if i == 0 else ""
        at = top + _PAD / 2 + _LINE * (i + 0.75)
        lines.append(
            f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="middle" fill="{_INK[box.kind]}"{weight}>{escape(text)}</text>'
        )
    return [*lines, "</g>"]
