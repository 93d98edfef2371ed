"""The rows as a picture: times of all contenders on a logarithmic axis, one line a case."""

from .contenders import OURS

INK, LINE, BLUE = "#1f2933", "#d5dae0", "#2f6f9f"
MARKS = "os^vDP*Xhp<>d8"


def draw(path, rows):
    """Write a PNG; the limit is a bar, ours is filled, peers are hollow."""
    from matplotlib.figure import Figure

    titles = list(dict.fromkeys(title for row in rows for title in row.seconds if title != OURS))
    height = 1.6 + 0.27 * len(rows)
    figure = Figure(figsize=(11, height), facecolor="white")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    for i, row in enumerate(rows):
        axes.axhline(i, color=LINE, linewidth=0.6, zorder=0)
        if row.limit:
            axes.plot([row.limit * 1e6], [i], "|", color=INK, markersize=12, label="limit" if not i else None)
    for k, title in enumerate([OURS, *titles]):
        seen = [(row.seconds[title] * 1e6, i) for i, row in enumerate(rows) if title in row.seconds]
        ours = {"color": BLUE} if title == OURS else {"markerfacecolor": "none", "markeredgecolor": f"C{k % 10}"}
        mark = MARKS[k % len(MARKS)]
        axes.plot(*zip(*seen, strict=True), mark, linestyle="", label=title, zorder=3, **ours) if seen else None
    axes.set_yticks(range(len(rows)), [f"{row.suite}: {row.name}" for row in rows], size=8, color=INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("microseconds a call, median", color=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, colors=INK)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=5, frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
