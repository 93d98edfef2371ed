"""HTML of an array for notebooks: a table of facts, and how often each level occurs."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from ..arrays.array import QuantArray
from ..arrays.size_text import size_text
from ..core.dtypes import Array
from ..core.text import short
from ..ops.words.placement import asnumpy

_MOST_ELEMENTS = 1 << 18  # that are looked at: 1 to 50 ms, by how long the rows are
_MOST_BARS = 16
_CELL = 'style="text-align:left;padding:1px 10px 1px 0"'
_BAR = "display:inline-block;height:0.8em;background:currentColor;opacity:0.5;vertical-align:middle"


def html(q: QuantArray) -> str:
    """Write a table of shape, law, constants and bytes, and a histogram of at most 16 bars, without scripts or links.

    Of arrays of more than 2**18 elements a sample is counted, at even distances along the unpacked axes.

    >>> import quantarray as qa
    >>> text = html(qa.encode([[1, -1, 1, 1]], values=(-1, 1)))
    >>> text.count("<tr>"), "bipolar" in text, "75.0 %" in text
    (7, True, True)
    """
    part = sample(q)
    counted = "values" if one_law(q) else "codes"
    looked_at = "" if part.size == q.size else f", of a sample of {part.size:,} elements"
    facts = "".join(_row(name, escape(text)) for name, text in _facts(q))
    shares = histogram(part)
    largest = max((share for _, share in shares), default=1.0)
    bars = "".join(_row(escape(label), _bar(share, share / largest), "td") for label, share in shares)
    head = f'<tr><th colspan="2" {_CELL}>{counted}{looked_at}</th></tr>' if bars else ""
    return f"<table><tbody>{facts}{head}{bars}</tbody></table>"


def _facts(q: QuantArray) -> list[tuple[str, str]]:
    facts = [
        (type(q).__name__, f"{q.shape} packed along axis {q.axis}"),
        ("dtype", f"{q.dtype}, {q.bits} bit{'s' * (q.bits > 1)} an element"),
        ("constants", repr(q.constants).removeprefix("Constants(").removesuffix(")") or "none"),
        ("memory", f"{q.nbytes:,} bytes on {q.device}, {size_text(q)}"),
    ]
    if q.scheme is not None:
        facts.insert(3, ("scheme", short(q.scheme)))
    if q.nbytes_cached:
        facts.append(("layouts", f"{q.nbytes_cached:,} bytes that kernels keep"))
    return facts


def _row(name: str, cell: str, tag: str = "th") -> str:
    return f"<tr><{tag} {_CELL}>{name}</{tag}><td {_CELL}>{cell}</td></tr>"


def _bar(share: float, length: float) -> str:
    return f'<span style="{_BAR};width:{12 * length:.2f}em"></span> {100 * share:.1f} %'


def sample(q: QuantArray) -> QuantArray:
    """Take at most 2**18 elements: every n-th along unpacked axes, then the first along the packed one; a view.

    >>> import quantarray as qa
    >>> sample(qa.zeros((3000, 5, 1000))).shape
    (52, 5, 1000)
    """
    for d in sorted(set(range(q.ndim)) - {q.axis}, key=lambda d: -q.shape[d]):
        if q.size > _MOST_ELEMENTS:
            rows = max(1, _MOST_ELEMENTS * q.shape[d] // q.size)
            q = q[(slice(None),) * d + (slice(None, None, math.ceil(q.shape[d] / rows)),)]
    return q if q.size <= _MOST_ELEMENTS else q[(slice(None),) * q.axis + (slice(_MOST_ELEMENTS),)]


def one_law(q: QuantArray) -> bool:
    """True where all elements of a code have one value."""
    return q.group is None and not any(q.constants.varies(d) for d in range(q.ndim))


def histogram(q: QuantArray) -> list[tuple[str, float]]:
    """(level, share of the elements) in ascending order, neighbours joined where levels are more than 16.

    Levels are the codes where constants make the values differ from place to place.

    >>> import quantarray as qa
    >>> histogram(qa.encode([5, -2, 5, 0], values=(5, 0, -2)))
    [('-2', 0.25), ('0', 0.25), ('5', 0.5)]
    """
    if not q.size:
        return []
    counts = np.bincount(asnumpy(q.codes()).ravel(), minlength=q.dtype.n_levels)
    levels: Array = asnumpy(q.levels).ravel() if one_law(q) else np.arange(q.dtype.n_levels)
    order = np.argsort(levels, kind="stable")
    bars = np.array_split(order, min(len(order), _MOST_BARS))
    return [(_label(levels[codes]), float(counts[codes].sum() / q.size)) for codes in bars]


def _label(levels: Array) -> str:
    first, last = (f"{v:.4g}" if levels.dtype.kind == "f" else str(v) for v in (levels[0], levels[-1]))
    return first if len(levels) == 1 else f"{first} to {last}"
