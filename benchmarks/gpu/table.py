"""Rows as text."""

from quantarray.core.text import table

from ..cpu.contenders import OURS
from ..cpu.table import duration
from .contenders import is_ours

BEST = ("warm", "called")  # the time that is compared: in a graph, or called where there can be none


def best(row, title):
    times = row["seconds"].get(title, {})
    return next((times[how] for how in BEST if how in times), None)


def line(row):
    """Format all times of a case as one line."""
    took = [
        f"{title} " + ", ".join(f"{duration(s)} {how}" for how, s in times.items())
        for title, times in row["seconds"].items()
    ]
    missing = [f"without {title}: {why}" for title, why in row["absent"].items()]
    graphs = [f"{title} has no graph: {why}" for title, why in row["without_graph"].items()]
    return f"{row['case']}: " + "; ".join([*took, *missing, *graphs] or ["nothing was timed"])


def summary(rows):
    """Format a table: our times, each peer's, the fastest peer's time over ours, rates, limit and share."""
    titles = list(dict.fromkeys(title for row in rows for title in row["seconds"] if title != OURS))
    lines = []
    for row in rows:
        ours, peers = best(row, OURS), [best(row, title) for title in titles if not is_ours(title)]
        fastest = min((s for s in peers if s), default=None)
        times = row["seconds"].get(OURS, {})
        lines.append(
            [
                row["case"],
                duration(ours),
                duration(times.get("called")),
                duration(times.get("cold")),
                duration(times.get("moved")),
                *(duration(best(row, title)) for title in titles),
                f"{fastest / ours:.2f}" if ours and fastest else "",
                f"{row['operations'] / ours / 1e12:.3g}" if ours else "",
                f"{row['bytes'] / ours / 1e9:.3g}" if ours else "",
                duration(row["limit"]),
                f"{row['limit'] / ours:.0%}" if ours else "",
            ]
        )
    head = ["case", OURS, "called", "cold", "moved", *titles, "ratio", "TOPS", "GB/s", "limit", "share"]
    return table(head, lines)


def legend(products, nbytes):
    """Explain the columns of the table."""
    rate, speed = f"{2 * products / 1e12:.0f} TOPS", f"{nbytes / 1e9:.0f} GB/s"
    return (
        "Times within a CUDA graph, inputs in the caches as far as they fit; called: one call after the other from "
        "Python; cold: one launch after L2 was overwritten; moved: called, with the input copied from the host and the "
        "result back, weights on the device. ratio: the fastest peer's time over ours. limit: the "
        f"longer of products of bits at {rate} (by the highest clock) and of bytes at {speed} (of a copy). share: "
        "limit over ours."
    )
