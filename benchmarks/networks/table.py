"""Rows as text: milliseconds an image and ratios, and memory."""

from quantarray.core.text import table

from .contenders import OURS


def figure(value):
    """
    >>> [figure(v) for v in (0.0123, 1.234, 12.34, 123.4, 1234.5)]
    ['0.012', '1.23', '12.3', '123', '1,234']
    """
    for limit, digits in ((0.1, 3), (9.995, 2), (99.95, 1)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def milliseconds(row, name, threads, quantile="median"):
    """Return milliseconds an image, or None where the contender has no part."""
    each = row["seconds"].get(name, {}).get(str(threads))
    return None if each is None else each[quantile] * 1e3 / row["batch"]


def ratio(row, threads):
    """(fastest peer's time / our time, its name); None where one of them has no part."""
    ours = milliseconds(row, OURS, threads)
    peers = [(ms, name) for name in row["seconds"] if name != OURS if (ms := milliseconds(row, name, threads))]
    return (min(peers)[0] / ours, min(peers)[1]) if ours and peers else None


def titles(rows):
    return list(dict.fromkeys([OURS, *(name for row in rows for name in row["seconds"])]))


def times(rows, threads, write=table):
    """Format times of one number of threads: a line for each case; the ratio is the fastest peer's time over ours."""
    lines = []
    for row in rows:
        cells = [milliseconds(row, name, threads) for name in titles(rows)]
        best = ratio(row, threads)
        late = milliseconds(row, OURS, threads, "p99")
        cells = ["" if ms is None else figure(ms) for ms in (cells[0], late, *cells[1:])]
        lines.append([row["case"], *cells, "" if best is None else f"{best[0]:.2f}"])
    ours, *peers = titles(rows)
    return write(["ms an image", ours, "p99", *peers, "ratio"], lines)


def relative(rows, threads, write=table):
    """Format each peer's time over ours, and ours as 1: more than 1 is slower than ours."""
    lines = []
    for row in rows:
        ours = milliseconds(row, OURS, threads)
        each = [milliseconds(row, name, threads) for name in titles(rows)]
        lines.append([row["case"], *("" if ms is None or not ours else f"{ms / ours:.2f}" for ms in each)])
    return write(["times ours", *titles(rows)], lines)


def orders(rows, write=table):
    """Format our times by the order of axes; "" where no network of the rows has images."""
    lines = []
    for row in rows:
        if row.get("orders"):
            figures = [row["orders"][what][order] for what in ("images", "layers") for order in ("NCHW", "NHWC")]
            first, second, third, fourth = (figure(s * 1e3 / row["batch"]) for s in figures)
            ratios = [f"{figures[i] / figures[i + 1]:.2f}" for i in (0, 2)]
            lines.append([row["case"], first, second, ratios[0], third, fourth, ratios[1]])
    head = "images NCHW", "images NHWC", "ratio", "convolutions NCHW", "convolutions NHWC", "ratio"
    return write(["ms an image", *head], lines) if lines else ""


def memory(rows, write=table):
    """Format memory, a line for each network: file and growth of the process of each contender, in MB."""
    networks = {row["architecture"]: row["memory"] for row in rows}
    names = list(dict.fromkeys(name for each in networks.values() for name in each))
    lines = []
    for architecture, each in networks.items():
        ours = each.get(OURS, {})
        cells = [figure(ours[key] / 1e6) if key in ours else "" for key in ("constants", "layouts")]
        for name in names:
            one = each.get(name)
            cells.append("" if one is None else f"{figure(one['file'] / 1e6)}, {figure(one['peak'] / 1e6)}")
        lines.append([architecture, *cells])
    return write(["MB", "constants", "layouts", *(f"{name}: file, peak" for name in names)], lines)


def markdown(head, lines):
    """
    >>> print(markdown(["a", "b"], [["x", "1"]]))
    | a | b |
    |---|---|
    | x | 1 |
    """
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, *lines)).replace(
        " |\n", f" |\n|{'---|' * len(head)}\n", 1
    )


def notes(rows):
    """Return a line on cases that others disturbed, and one for each reason why a contender has no part in cases."""
    reasons = {}
    for row in rows:
        for name, why in row["absent"].items():
            reasons.setdefault((name, why), []).append(row["case"])
    busy = [row["case"] for row in rows if 2 * row["turns"]["disturbed"] > row["turns"]["all"]]
    return [f"others used the CPU in most turns of {'; '.join(busy)}"] * bool(busy) + [
        f"without {name}{'' if len(cases) == len(rows) else ' in ' + '; '.join(cases)}: {why}"
        for (name, why), cases in reasons.items()
    ]


def page(rows, threads, write=table):
    """Format all tables and notes."""
    parts = [f"{n} thread{'s' * (n > 1)}\n\n{times(rows, n, write)}\n\n{relative(rows, n, write)}" for n in threads]
    return "\n\n".join([*parts, *filter(None, [orders(rows, write)]), memory(rows, write), *notes(rows)])
