"""Draw the curves of `train_fashion.py`, and print its results as a table.

    python examples/plot_fashion.py runs/lenet-*-0.json runs/lenet-*-0-converted.json --out curves.svg

Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

COLOURS = {
    "float": "#1f2933", "W1A1": "#d9480f", "W1A2": "#e8a317", "W2A2": "#5c940d", "LQ": "#1971c2", "ABC3": "#9c36b5",
    "ABC5": "#0b7285",
}  # fmt: skip


def row(path):
    """Format a run as a row: name, epochs, images, accuracy before and after training, its packed network."""
    run = json.loads(path.read_text())
    file = path.with_suffix(".packed.json")
    packed = json.loads(file.read_text()) if file.exists() else {}
    last, before = run["history"][-1], run.get("before")
    cells = [path.stem, len(run["history"]), run["settings"]["limit"] or "all"]
    cells += ["" if before is None else f"{before:.2f}", f"{last['accuracy']:.2f}", f"{last['step_ms']:.0f}"]
    cells += [" to ".join(f"{size:,}" for size in run.get("bytes", []))]
    for key, form in (
        ("codes_differ", "{:,}"),
        ("answers_differ", "{}"),
        ("packed_ms", "{:.2f}"),
        ("float_ms", "{:.2f}"),
    ):
        cells.append(form.format(packed[key]) if key in packed else "")
    return f"| {' | '.join(map(str, cells))} |"


def draw(paths, out):
    """Draw accuracy by epoch; a converted network begins at epoch 0, with what it has before fine-tuning."""
    figure = Figure(figsize=(7.6, 4.2), facecolor="white")
    axes = figure.add_axes((0.08, 0.13, 0.6, 0.82))
    for path in paths:
        run = json.loads(path.read_text())
        scheme, before = run["settings"]["scheme"], run.get("before")
        y = [h["accuracy"] for h in run["history"]]
        x = list(range(1, len(y) + 1))
        if before is not None:
            x, y = [0, *x], [before, *y]
        label = scheme + ("" if before is None else ", from float")
        style = "-" if before is None else "--"
        axes.plot(x, y, style, color=COLOURS[scheme], marker="o", markersize=4, label=f"{label}: {y[-1]:.2f}")
    axes.set_xlabel("epochs")
    axes.set_ylabel("accuracy on the 10,000 test images, %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(color="#e4e7eb")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    figure.savefig(out, metadata={"Date": None})


def main():
    """Print the table, and draw the picture if a file for it is named."""
    parser = argparse.ArgumentParser(description="Draw the curves of training runs.")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    paths = [p for p in options.runs if not p.name.endswith(".packed.json")]
    print("| run | epochs | images | before | accuracy | step, ms | bytes | codes | answers | packed, ms | float, ms |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(row(path) for path in paths))
    if options.out is not None:
        draw(paths, options.out)


if __name__ == "__main__":
    main()
