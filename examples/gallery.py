"""Draw the gallery: real images and real weights, quantised by every scheme at 1 to 4 bits.

    pip install "quantarray[gallery]" && python examples/gallery.py

Writes docs/gallery.md and the pictures in docs/gallery/. Images come with scikit-image and scikit-learn, weights from
a scikit-learn classifier that is trained here in seconds; nothing is downloaded, and the numbers are the same in
every run.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from skimage import data
from sklearn.datasets import load_digits, load_sample_image
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import quantarray as qa

BITS = (1, 2, 3, 4)
INK, FAINT, LINE = "#1f2933", "#7b8794", "#d5dae0"
PANEL, ROW, GAP, HEAD, DPI = 1.12, 1.66, 0.3, 0.75, 100  # inches; a pixel of an image is one of the picture


def even_steps(bits):
    """Build ABC-Net's activations with `bits` + 1 evenly spaced levels in -1 .. 1; the paper trains these levels."""
    thresholds = -1 + (2 * np.arange(bits) + 1) / bits
    return qa.ABCActivations((0.5 - thresholds).tolist(), [1 / bits] * bits)


# Name, quantiser of a number of bits or None, whether it has levels below 0
SCHEMES = [
    ("XNOR()", lambda b: qa.XNOR() if b == 1 else None, True),
    ("Ternary()", lambda b: qa.Ternary() if b == 2 else None, True),
    ("ABC(b)", qa.ABC, True),
    ("ABCActivations, even steps", even_steps, True),
    ("LQ(b, starts=3)", lambda b: qa.LQ(b, starts=3), True),
    ("LQ(b, activations=True)", lambda b: qa.LQ(b, activations=True, starts=3), False),
    ("Greedy(b)", qa.Greedy, True),
    ("Greedy(b, refit=True)", lambda b: qa.Greedy(b, refit=True), True),
    ("DoReFa(b)", qa.DoReFa, True),
    ("DoReFa(b, activations=True)", lambda b: qa.DoReFa(b, activations=True), False),
    ("PACT(b)", qa.PACT, False),
    ("PowerOfTwo(b)", lambda b: qa.PowerOfTwo(b) if b > 1 else None, True),
    ("NormalFloat(b)", lambda b: qa.NormalFloat(b) if b > 1 else None, True),
    ("LloydMax(b)", qa.LloydMax, True),
    ("Uniform(b)", qa.Uniform, True),
    ("Uniform(b, mse=True)", lambda b: qa.Uniform(b, mse=True), True),
    ("Uniform(b, midrise=True, mse=True)", lambda b: qa.Uniform(b, midrise=True, mse=True), True),
    ("Uniform(b, signed=False, mse=True)", lambda b: qa.Uniform(b, signed=False, mse=True), False),
    ("Uniform(b, symmetric=False)", lambda b: qa.Uniform(b, symmetric=False), True),
    ("Uniform(b, symmetric=False, mse=True)", lambda b: qa.Uniform(b, symmetric=False, mse=True), True),
    ("Grouped(b, group=64)", lambda b: qa.Grouped(b, group=64), True),
    ("quantize(x, bits=b)", None, False),
]


# the data


def smaller(image, factor):
    """Shrink an image by means of factor x factor pixels, to uint8."""
    h, w = (n // factor * factor for n in image.shape[:2])
    cut = image[:h, :w].reshape(h // factor, factor, w // factor, factor, *image.shape[2:])
    return np.rint(cut.mean(axis=(1, 3))).astype(np.uint8)


def images():
    """Name, title and source of each image, uint8 of 112 x 112 pixels."""
    china = load_sample_image("china.jpg")
    return [
        ("camera", "The cameraman, scikit-image", smaller(data.camera()[20:468, 40:488], 4)),
        ("astronaut", "The astronaut Eileen Collins, scikit-image", smaller(data.astronaut()[0:224, 112:336], 2)),
        ("china", "The Summer Palace, scikit-learn", smaller(china[48:384, 24:360], 3)),
    ]


def weights():
    """Train a digit classifier and return the weights of its first layer, float32 [64 64], and its accuracy."""
    digits = load_digits()
    x, y = digits.data / 16, digits.target
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 60 rounds are enough
        net = MLPClassifier((64,), max_iter=60, random_state=0).fit(x[:1347], y[:1347])
    return net.coefs_[0].T.astype(np.float32), net.score(x[1347:], y[1347:])


# quantising


def packed(x, quantizer, bits, **how):
    """(packed array, its values in the units of x)"""
    q = qa.quantize(x, bits=bits, **how) if quantizer is None else qa.quantize(x, quantizer, **how)
    return q, q.dequantize().astype(np.float64)


def of_image(image, make, bits, signed):
    """Quantise an image by one scheme, packed along its rows, and return values in 0 .. 255; None without a scheme.

    Schemes with negative levels get -1 .. 1, the others 0 .. 1, and `quantize(x, bits=b)` the bytes as they are.
    """
    if make is None:
        return packed(image, None, bits, axis=1)[1]
    quantizer = make(bits)
    if quantizer is None:
        return None
    if signed:
        return (packed(image / 127.5 - 1, quantizer, bits, axis=1)[1] + 1) * 127.5
    return packed(image / 255, quantizer, bits, axis=1)[1] * 255


def of_weights(w, make, bits, signed):
    """Quantise weights by one scheme, with constants for each unit, and return their values; None without a scheme."""
    quantizer = None if make is None else make(bits)
    if make is not None and quantizer is None:
        return None
    return packed(w, quantizer, bits, **({} if isinstance(quantizer, qa.Grouped) else {"scale_axis": 0}))[1]


def decibels(image, decoded):
    """10 log10(255**2 / mean squared error) of what a screen shows: decoded values beyond it are cut."""
    error = np.mean((image - np.clip(decoded, 0, 255)) ** 2)
    return 10 * np.log10(255**2 / error)


def relative(w, decoded):
    return np.sum((w.astype(np.float64) - decoded) ** 2) / np.sum(w.astype(np.float64) ** 2)


def every(x, scheme_of, figure, form, unit=""):
    """Decode x by each scheme and number of bits: {key: (decoded x, its caption)} and {key: figure}."""
    panels, figures = {}, {}
    for name, make, signed in SCHEMES:
        for bits in BITS:
            decoded = scheme_of(x, make, bits, signed)
            if decoded is not None:
                figures[name, bits] = form.format(figure(x, decoded))
                panels[name, bits] = decoded, figures[name, bits] + unit
    return panels, figures


def taken(x):
    return "; ".join(f"{bits}: `{qa.choose(x, bits)}`" for bits in BITS)


# pictures


def tiled(w):
    """Arrange sixteen of the units [64 64] as 4 x 4 tiles of 8 x 8 weights, with a line of NaN between them."""
    sheet = np.full((4 * 9 - 1, 4 * 9 - 1), np.nan)
    for i in range(16):
        y, x = divmod(i, 4)
        sheet[9 * y : 9 * y + 8, 9 * x : 9 * x + 8] = w[i].reshape(8, 8)
    return sheet


def draw(path, title, original, decoded, show, caption):
    """Draw a grid: the schemes in two columns, 1 to 4 bits of each in a row. decoded: {(scheme, bits): array}."""
    half = -(-len(SCHEMES) // 2)
    block = len(BITS) * (PANEL + 0.06)
    width, height = 2 * block + 3 * GAP, half * ROW + HEAD + PANEL - 0.15
    figure = Figure(figsize=(width, height), facecolor="white")

    def panel(left, top, image, text):
        axes = figure.add_axes((left / width, 1 - (top + PANEL) / height, PANEL / width, PANEL / height))
        show(axes, image)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(LINE)
        x, y = (left + PANEL / 2) / width, 1 - (top + PANEL + 0.05) / height
        figure.text(x, y, text, size=8, color=INK, ha="center", va="top")

    panel(GAP, 0.25, original, "original")
    figure.text((2 * GAP + PANEL) / width, 1 - 0.5 / height, title, size=14, weight="bold", color=INK, va="center")
    note = "From left to right 1, 2, 3 and 4 bits.\n" + caption
    figure.text((2 * GAP + PANEL) / width, 1 - 0.75 / height, note, size=9.5, color=FAINT, va="top", linespacing=1.5)
    for i, (name, _, _) in enumerate(SCHEMES):
        left, top = GAP + (i // half) * (block + GAP), HEAD + PANEL + (i % half) * ROW
        figure.text(left / width, 1 - (top - 0.05) / height, name, size=9.5, weight="bold", color=INK)
        for j, bits in enumerate(BITS):
            if (name, bits) in decoded:
                value, text = decoded[name, bits]
                panel(left + j * (PANEL + 0.06), top, value, text)
    figure.savefig(path, dpi=DPI, pil_kwargs={"optimize": True})


def show_image(axes, image):
    axes.imshow(np.clip(image, 0, 255) / 255, cmap="gray", vmin=0, vmax=1, interpolation="nearest")


def show_weights(axes, w):
    axes.imshow(tiled(w), cmap="RdBu", vmin=-0.45, vmax=0.45, interpolation="nearest")


# the page


def markdown(figures):
    """Format the figures as a Markdown table: a row for each scheme, a column for each number of bits."""
    lines = ["| scheme | 1 bit | 2 bits | 3 bits | 4 bits |", "|---|---|---|---|---|"]
    for name, _, _ in SCHEMES:
        cells = [figures.get((name, bits), "") for bits in BITS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


INTRO = """# Choose a scheme

Real images and real weights, quantised by every scheme at 1 to 4 bits; `python examples/gallery.py` makes this page.

Images have 112 x 112 pixels, grey or RGB, and one set of constants for the whole array (`Grouped` has one for each run
of 64 elements). Under each image is its peak signal-to-noise ratio, 10 log10(255**2 / mean squared error), in dB: more
is better, and 3 dB more is half the mean squared error. Pixels are scaled to -1 .. 1 for schemes with negative levels,
and to 0 .. 1 for schemes for activations. `quantize(x, bits=b)` gets bytes. [The rule by which it chooses a
scheme](decisions/0005-choosing-a-scheme.md) never chooses a table of levels such as `LloydMax`, because products of
tables are slow. In the paper of `ABCActivations` the levels are trained; here they are evenly spaced ("even steps").
"""

WEIGHTS = """The first layer of a scikit-learn `MLPClassifier` that was trained on the digits data: 64 units of 64
weights, with constants for each unit (`scale_axis=0`). The classifier is right on {percent:.1f} % of held-out
digits. Under each picture is the relative squared error, `sum (w - q)**2 / sum w**2`: less is better. Schemes for
activations have no level below 0, so they lose the negative half of the weights. The levels of `DoReFa` span -1 .. 1
even if the weights are much smaller: it is made for networks that are trained with it.
"""

LEVELS = """`qa.compare(weights[:, None], bits=2, scale_axis=0, plot="levels.png")` draws this picture, with the levels
of each unit and the error of each scheme at 2 bits:

![Levels and errors](gallery/levels.png)
"""

CHOSEN = "`quantize(x, bits=b)` chooses for b ="

SOURCES = """## Sources

"camera" is by Lav Varshney, CC0. "astronaut" is NASA's, in the public domain. "china.jpg" is by danielbuechele
(flickr.com/photos/danielbuechele/6061409035), CC BY 2.0. All are cropped, scaled and quantised here. The digits are
those of the Optical Recognition of Handwritten Digits data set by E. Alpaydin and C. Kaynak, CC BY 4.0.
"""


def main():
    parser = argparse.ArgumentParser(description="Draw docs/gallery.md and its pictures.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs")
    folder = parser.parse_args().out / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    page = [INTRO]
    for name, title, image in images():
        panels, figures = every(image, of_image, decibels, "{:.1f}", " dB")
        caption = "Peak signal-to-noise ratio under each: more is better."
        draw(folder / f"{name}.png", title, image, panels, show_image, caption)
        shown = f"![{title}](gallery/{name}.png)"
        page.append(f"## {title}\n\n{shown}\n\n{markdown(figures)}\n\n{CHOSEN} {taken(image)}.\n")
    w, accuracy = weights()
    panels, figures = every(w, of_weights, relative, "{:.4f}")
    title = "Weights of a digit classifier"
    caption = (
        "16 of 64 units of its first layer, 8 x 8 weights each; red is negative, blue positive.\n"
        "Under each the relative squared error of all units: less is better."
    )
    draw(folder / "weights.png", title, w, panels, show_weights, caption)
    qa.compare(w[:, None], bits=2, scale_axis=0, plot=folder / "levels.png")
    page.append(f"## {title}\n\n{WEIGHTS.format(percent=100 * accuracy)}\n![{title}](gallery/weights.png)\n")
    page.append(f"{markdown(figures)}\n\n{CHOSEN} {taken(w)}.\n\n{LEVELS}")
    page.append(SOURCES)
    (folder.parent / "gallery.md").write_text("\n".join(page))
    for picture in sorted(folder.glob("*.png")):
        print(f"{picture.name}: {picture.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
