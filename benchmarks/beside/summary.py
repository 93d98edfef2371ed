"""Summaries of a situation: medians over rounds, ratios of blocks of one round, and lines of text."""

from typing import NamedTuple

import numpy as np

from .blocks import Block

_US, _MS = 1e6, 1e3


class Spread(NamedTuple):
    """A median over rounds with its quartiles."""

    median: float
    low: float
    high: float

    def text(self, scale=1.0, unit=""):
        """
        >>> Spread(0.00012, 0.0001, 0.00015).text(1e6, " us")
        '120 (100 to 150) us'
        """
        middle, low, high = (f"{scale * x:,.0f}" if scale * x >= 100 else f"{scale * x:.3g}" for x in self)
        return f"{middle} ({low} to {high}){unit}"


def spread(values):
    low, median, high = np.quantile(np.asarray(values, float), (0.25, 0.5, 0.75))
    return Spread(float(median), float(low), float(high))


def summarise(kind, blocks):
    """{what: Spread} of what a worker found: seconds, calls a second, and ratios."""
    if kind == "left":
        return {name: spread(values) for name, values in blocks.items()}
    column = {
        name: [[Block(*one) for one in calls] for calls in zip(*rounds, strict=True)] for name, rounds in blocks.items()
    }
    spreads = {}
    for name, calls in column.items():
        for i, blocks in enumerate(calls):
            who = f"{name}{', theirs' if i else ''}"
            for field in Block._fields:
                spreads[f"{who}: {field}"] = spread([getattr(block, field) for block in blocks])
    return spreads | (_of_turns(column) if kind == "turns" else _of_rates(column))


def _ratio(above, below, field):
    return spread([getattr(a, field) / getattr(b, field) for a, b in zip(above, below, strict=True)])


def _of_rates(column):
    (one,), (more,) = column.values()
    later = [b.p99 - a.p99 for a, b in zip(one, more, strict=True)]
    return {"ratio of rates": _ratio(more, one, "rate"), "p99 later by": spread(later)}


def _of_turns(column):
    one, more = (name for name in column if name.endswith("in turns"))
    alone = more.replace("in turns", "alone")
    return {
        "ours over one thread": _ratio(column[more][0], column[one][0], "median"),
        "ours over alone": _ratio(column[more][0], column[alone][0], "median"),
        "theirs over one thread": _ratio(column[more][1], column[one][1], "median"),
    }


def lines(kind, spreads):
    """Return the summary as text, one line for each call or ratio."""
    if kind == "left":
        return [f"{name}: {one.text(_US, ' us')} of CPU" for name, one in spreads.items()]
    medians = [name.removesuffix(": median") for name in spreads if name.endswith(": median")]
    text = [
        f"{name}: {spreads[f'{name}: median'].text(_US, ' us')}, p99 {spreads[f'{name}: p99'].median * _US:,.0f} us, "
        f"{spreads[f'{name}: rate'].median:,.0f} calls a second"
        for name in medians
    ]
    for name in [name for name in spreads if ": " not in name]:
        text.append(f"{name}: {spreads[name].text(_MS, ' ms') if name == 'p99 later by' else spreads[name].text()}")
    return text
