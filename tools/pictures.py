"""Draw the pictures of the start page, of the tutorial of arrays and of searches: `python -m tools.pictures`.

Codes, words, levels and counts in them are computed by the package, so a picture cannot differ from the text. The bars
of the start page are figures of docs/measurements/libraries.md, recall is that of docs/measurements/search.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

import numpy as np

import quantarray as qa

FOLDER = Path(__file__).parents[1] / "docs" / "_static"
WIDTH = 680  # units of a picture: text of 15 can still be read on a telephone, where a unit is half a pixel
CELL = 48  # units of a square that shows one element
X = np.array([1.1, -0.9, 0.3, -0.2, 0.5, 1.4, -1.1, 0.1], np.float32)  # the numbers of the tutorial
A, B = np.array([1, -1, -1, 1, 1, 1, -1, -1]), np.array([1, 1, -1, -1, 1, -1, -1, -1])
# A 3x3 convolution of 1x56x56x64 bits to 64 channels, bits out; two threads of a Zen 4 server, 2026-11-24
TIMES = {"quantarray, 1 bit": 51.5, "PyTorch, int8": 288, "ONNX Runtime, int8": 364, "PyTorch, float32": 1040}
# Recall@10 of RaBitQ at 1, 2, 4 and 8 bits of 256 dimensions, and bytes of a row
RECALL = {
    "sparse": (0.662, 0.827, 0.946, 0.997),
    "clustered": (0.317, 0.506, 0.808, 0.984),
    "Gaussian": (0.220, 0.520, 0.856, 0.987),
}
BYTES = 40, 72, 136, 264
STYLE = """<style>
text{font-family:system-ui,sans-serif;font-size:16px;fill:#1a2733}
.s{font-size:14px;fill:#44546a}.h{font-weight:bold}.m{text-anchor:middle}.r{text-anchor:end}.w{fill:#fff}
.b{fill:#fff;stroke:#8a99a8}.f{fill:#e9eef3;stroke:#8a99a8}.one{fill:#2f7d5b;stroke:#1d5a40}.zero{fill:#fff;stroke:#2f7d5b}
.x{fill:#6d4fa3;stroke:#4b3478}.l{stroke:#5a6b7b;fill:none}.a{stroke:#5a6b7b;fill:none;marker-end:url(#a)}
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" fill="#5a6b7b"/></marker></defs>"""


def picture(height: int, label: str, parts: Iterable[str]) -> str:
    """Return an SVG on a light background of its own, which dark pages need."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
    background = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#f7f9fb"/>'
    return "\n".join([head, STYLE, background, *parts, "</svg>\n"])


def text(x: float, y: float, words: object, kind: str = "") -> str:
    """Return words whose baseline begins at x, y; kind: classes of STYLE."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(str(words))}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>'


def arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    """Return a line with a head at its end."""
    return f'<path class="a" d="M{x0:g} {y0:g} L{x1:g} {y1:g}"/>'


def row(y: float, label: str, values: Iterable[object], kinds: Iterable[str], x: float = 200) -> list[str]:
    """Return a label and a row of cells; the text of dark cells is white."""
    parts = [text(x - 16, y + 31, label, "r")]
    for i, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        parts.append(box(x + i * CELL + 2, y + 2, CELL - 4, CELL - 4, kind))
        parts.append(text(x + (i + 0.5) * CELL, y + 30, value, "m w" if kind in ("one", "x") else "m"))
    return parts


def bits(values: Iterable[int]) -> list[str]:
    """Return the class of the cell of each bit."""
    return ["one" if value else "zero" for value in values]


def start() -> str:
    """Draw what the library does, and the time of a convolution beside other libraries."""
    parts = []
    steps = (("floats", "32 bits each"), ("bit-planes", "1 to 8 bits each"), ("and, popcount", "64 at a time"))
    for i, (name, note) in enumerate((*steps, ("exact integers", "or bits again"))):
        x = 14 + 168 * i
        parts += [box(x, 20, 148, 64, "one" if i in (1, 2) else "b")]
        light = " w" if i in (1, 2) else ""
        parts += [text(x + 74, 47, name, f"h m{light}"), text(x + 74, 69, note, f"s m{light}")]
        parts += [arrow(x + 148, 52, x + 167, 52)] if i < 3 else []
    parts.append(text(14, 126, "One 3x3 convolution, 56x56, 64 to 64 channels", "h"))
    most = max(TIMES.values())
    for i, (name, us) in enumerate(TIMES.items()):
        y, length = 140 + 34 * i, 390 * us / most
        parts += [text(180, y + 20, name, "r"), box(190, y, length, 26, "x" if i == 0 else "f")]
        parts.append(text(198 + length, y + 20, f"{us:,g} us"))
    floats = 56 * 56 * 64 * 4
    ones = qa.ones((1, 56, 56, 64), qa.bipolar).nbytes
    parts.append(text(14, 308, f"Memory of its input: {ones / 1000:.0f} KB, as float32 {floats / 1000:.0f} KB"))
    return picture(326, "From floats to bit-planes to exact integers, and the time of a convolution", parts)


def planes() -> str:
    """Draw numbers, their codes, the two planes of bits, and the words in memory."""
    q = qa.quantize(X, qa.Uniform(2, step=1.0, midrise=True))
    codes = q.codes()
    parts = row(12, "x, float32", [f"{v:g}" for v in X], ["f"] * len(X))
    parts += row(72, "nearest level", [f"{v:g}" for v in q.dequantize()], ["f"] * len(X))
    parts += row(132, "its code", codes, ["b"] * len(X))
    for plane, name in ((1, "plane 1, worth 2"), (0, "plane 0, worth 1")):
        values = [int(code) >> plane & 1 for code in codes]
        parts += row(264 - 60 * plane, name, values, bits(values))
    first, second = (int(plane[0]) for plane in q.words)
    parts.append(text(60, 340, f"plane 0 in memory: one word of 64 bits, {first} = 0b{first:08b}"))
    parts.append(text(60, 364, f"plane 1 in memory: one word of 64 bits, {second} = 0b{second:08b}"))
    parts.append(text(60, 388, "The first element is the lowest bit, written last.", "s"))
    return picture(404, "Eight numbers, their codes of two bits, and the two bit-planes", parts)


def laws() -> str:
    """Draw the levels that four laws give to the codes 0 to 3."""
    parts = []
    for i, (name, formula, q) in enumerate(examples()):
        y = 66 + 84 * i
        parts += [text(16, y - 26, name, "h"), text(110, y - 26, formula, "s")]
        parts.append(f'<path class="l" d="M16 {y} L{WIDTH - 16} {y}"/>')
        for code, level in enumerate(q.dequantize()):
            x = WIDTH / 2 + 96 * float(level)
            parts += [f'<circle cx="{x:g}" cy="{y}" r="11" class="one"/>', text(x, y + 5, code, "m s w")]
            parts.append(text(x, y + 28, f"{float(level):.3g}", "m s"))
    return picture(350, "Four laws: integer, uniform, basis and table levels on a line", parts)


def examples() -> list[tuple[str, str, qa.QuantArray]]:
    """Return the name of each law, its formula, and an array of the codes 0, 1, 2, 3."""
    codes = range(4)
    return [
        ("integers", "any integers, here -3, -1, 1, 3", qa.from_codes(codes, qa.integers(-3, -1, 1, 3))),
        ("uniform", "offset + scale * code", qa.from_codes(codes, qa.uniform(2), scale=0.5, offset=-0.75)),
        ("basis", "offset + a0 * bit 0 + a1 * bit 1", qa.from_codes(codes, qa.basis(2), scale=[1.0, 2.5], offset=-1.5)),
        ("table", "any four numbers", qa.from_codes(codes, qa.table(2), table=[-1.5, -0.25, 0.5, 2.0])),
    ]


def product() -> str:
    """Draw an inner product of signs by exclusive or and a count."""
    different = A != B
    parts = row(12, "a", [f"{v:+d}" for v in A], bits(A > 0))
    parts += row(66, "b", [f"{v:+d}" for v in B], bits(B > 0))
    parts += row(130, "a xor b", different.astype(int), ["x" if d else "b" for d in different])
    count, n = int(different.sum()), len(A)
    parts.append(text(200, 208, f"popcount(a xor b) = {count} elements differ"))
    parts.append(text(200, 234, f"a @ b = {n} - 2 * {count} = {n - 2 * count}", "h"))
    return picture(252, "An inner product of signs: exclusive or, then the number of ones", parts)


def recall() -> str:
    """Draw recall of searches against bytes of a row, which double from line to line."""
    left, right, top, bottom = 72, 560, 40, 300

    def place(size: float, share: float) -> tuple[float, float]:
        return left + (right - left) * float(np.log2(size / 32)) / 5, bottom - (bottom - top) * share

    parts = [text(16, 22, "Recall@10, by bytes of a row", "h")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        (x0, y), (x1, _) = place(32, share), place(1024, share)
        parts += [f'<path class="l" d="M{x0:g} {y:g} L{x1:g} {y:g}" stroke-opacity="0.3"/>']
        parts += [text(x0 - 10, y + 5, f"{share:g}", "s r")]
    for size in (32, 64, 128, 256, 512, 1024):
        parts.append(text(place(size, 0)[0], bottom + 22, size, "s m"))
    parts.append(text(right + 34, bottom + 22, "float32", "s"))
    for i, ((name, shares), kind) in enumerate(zip(RECALL.items(), ("one", "x", "zero"), strict=True)):
        points = [place(size, share) for size, share in zip(BYTES, shares, strict=True)]
        parts.append(f'<path class="l" d="M{" L".join(f"{x:.0f} {y:.0f}" for x, y in points)}"/>')
        parts += [
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6" class="{kind}"/>' for x, y in [*points, (436, 190 + 28 * i)]
        ]
        parts.append(text(452, 195 + 28 * i, name, "s"))
    for bits, size in zip((1, 2, 4, 8), BYTES, strict=True):
        parts.append(text(place(size, 0)[0], bottom - 8, f"{bits} bit{'s' * (bits > 1)}", "s m"))
    return picture(336, "Recall at 10 of three kinds of vectors in 1, 2, 4 and 8 bits, by bytes of a row", parts)


PICTURES = {"start": start, "planes": planes, "laws": laws, "product": product, "recall": recall}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
