"""Rows as text: case, ours, each peer, ratio, limit, share of the limit."""

from quantarray.core.text import table

from .contenders import OURS


def duration(seconds):
    """Format a duration with three figures and a unit.

    >>> duration(12.3e-9), duration(123.4e-6), duration(0.0456), duration(1.2), duration(None)
    ('12.3 ns', '123 us', '45.6 ms', '1.2 s', '')
    """
    if seconds is None:
        return ""
    for unit, size in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def suite_table(rows):
    """Format the rows of one suite: a column for each contender that takes part, notes below on the others."""
    titles = list(dict.fromkeys(title for row in rows for title in row.seconds if title != OURS))
    lines = [
        [
            row.name,
            duration(row.ours),
            *(duration(row.seconds.get(title)) for title in titles),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            duration(row.limit),
            "" if row.share is None else f"{row.share:.0%}",
        ]
        for row in rows
    ]
    used = {row.threads for row in rows}
    heading = f"{rows[0].suite}: {of_threads(*used) if len(used) == 1 else 'threads as named'}"
    head = ["case", "ours", *titles, "ratio", "limit", "share"]
    return "\n".join([heading, table(head, lines), *notes(rows)])


def in_cases(names):
    """List the cases by name, or by their number if they are more than three."""
    return f" in {', '.join(names)}" if len(names) < 4 else f" in {len(names)} cases, {names[0]} to {names[-1]}"


def of_threads(n):
    return f"{n} thread" if n == 1 else f"{n} threads"


def notes(rows):
    """Return one line for each reason why a contender does not take part."""
    reasons = {}
    for row in rows:
        for title, why in row.absent.items():
            reasons.setdefault((title, why), []).append(row.name)
    return [
        f"  without {title}{'' if len(names) == len(rows) else in_cases(names)}: {why}"
        for (title, why), names in reasons.items()
    ]


def legend(products, popcounts, threads):
    """Explain the last columns of the table: ratio, limit and share."""
    rate = f"{products / 1e12:.2f} T/s ({of_threads(threads)}"
    rate += f"; by a popcount of each word {popcounts / 1e12:.2f})" if popcounts else ")"
    return (
        "ratio: the fastest peer's time over ours. limit: the longer of the case's products of bits at "
        f"{rate} and of its bytes at the speed of reading as many. share: limit over ours."
    )
