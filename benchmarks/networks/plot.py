"""The rows as a picture: a panel for each batch, a group of bars for each network, times relative to ours."""

from .contenders import OURS
from .table import figure, milliseconds, titles

INK, LINE = "#1f2933", "#d5dae0"
COLOURS = ("#2f6f9f", "#9aa5b1", "#c9a227", "#7a9e59", "#b5563c", "#6d5a8c")


def draw(path, rows, threads):
    """Write a picture; bars are milliseconds an image on a logarithmic axis, the number is that of ours."""
    from matplotlib.figure import Figure

    batches = sorted({row["batch"] for row in rows})
    names = titles(rows)
    networks = list(dict.fromkeys(row["architecture"] for row in rows))
    picture = Figure(figsize=(3.4 * len(batches) + 1.6, 0.9 + 0.62 * len(networks)), facecolor="white")
    panels = picture.subplots(1, len(batches), sharey=True, squeeze=False)[0]
    height = 0.8 / len(names)
    for axes, batch in zip(panels, batches, strict=True):
        axes.set_xscale("log")
        for row in (row for row in rows if row["batch"] == batch):
            place = networks.index(row["architecture"])
            for k, name in enumerate(names):
                ms = milliseconds(row, name, threads)
                if ms is None:
                    continue
                y = place - 0.4 + (k + 0.5) * height
                axes.barh(y, ms, height, color=COLOURS[k % len(COLOURS)])
                if name == OURS:
                    axes.text(ms, y, f" {figure(ms)}", va="center", size=7, color=INK)
        axes.set_title(f"batch {batch}", size=10, color=INK)
        axes.set_xlabel("ms an image", size=8, color=INK)
        axes.grid(axis="x", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0, colors=INK, labelsize=8)
    panels[0].set_yticks(range(len(networks)), networks)
    panels[0].set_ylim(len(networks) - 0.5, -0.5)
    marks = [panels[0].barh(0, 0, color=COLOURS[k % len(COLOURS)]) for k in range(len(names))]
    picture.legend(marks, names, loc="lower center", ncols=3, frameon=False, fontsize=8)
    picture.tight_layout(rect=(0, 0.06, 1, 1))
    picture.savefig(path, dpi=110)
