"""Generate docs/array-api.md: the names of the array API standard that are here, for which types, and why not the rest.

    python -m tools.array_api > docs/array-api.md

A test compares the page with the code. A name that the package exports is supported, unless `PARTIAL` says what of it
is not; every other name has its reason in `quantarray.core.refusals`, which `quantarray.<name>` raises too.
"""

from __future__ import annotations

import quantarray
from quantarray.core.refusals import REFUSED

VERSION = "2024.12"

STANDARD: dict[str, str] = {
    "Creation functions": """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
        ones_like tril triu zeros zeros_like""",
    "Data type functions": "astype can_cast finfo iinfo isdtype result_type",
    "Elementwise functions": """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert
        bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp
        expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log10 log1p
        log2 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter
        not_equal positive pow real reciprocal remainder round sign signbit sin sinh sqrt square subtract tan tanh
        trunc""",
    "Indexing functions": "take take_along_axis",
    "Inspection": "__array_namespace_info__",
    "Linear algebra functions": "matmul matrix_transpose tensordot vecdot",
    "Manipulation functions": """broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat
        reshape roll squeeze stack tile unstack""",
    "Searching functions": "argmax argmin count_nonzero nonzero searchsorted where",
    "Set functions": "unique_all unique_counts unique_inverse unique_values",
    "Sorting functions": "argsort sort",
    "Statistical functions": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "Utility functions": "all any diff",
    "Extension linalg": """linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh
        linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose
        linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals linalg.tensordot
        linalg.trace linalg.vecdot linalg.vector_norm""",
}

# The chapters of which most names must be supported
ARRAYS = (
    "Elementwise functions", "Indexing functions", "Linear algebra functions", "Manipulation functions",
    "Searching functions", "Sorting functions", "Statistical functions",
)  # fmt: skip

_LEVELS = "integer dtypes only; from_codes makes arrays of real levels"
_PAIR = "two arrays: at most 8 bits together, as each pair of levels gives a level; "
_PAIR += "an array and a number or a vector: all laws"
_DOMAIN = "laws whose levels have finite results; constants cannot be NaN or infinity"
_BITS = "uint1, the dtype of truth values; other codes are not binary integers"
_PRODUCT = "operands packed on the contracted axes; repack(q, axis) packs another axis"

PARTIAL: dict[str, str] = {
    "arange": _LEVELS + "; at most 256 numbers",
    "astype": "dtypes that hold all levels, see can_cast; quantize(q.dequantize(), quantizer) rounds",
    **dict.fromkeys(("empty", "eye", "full", "ones", "zeros"), _LEVELS),
    **dict.fromkeys(("full_like", "ones_like", "zeros_like"), "laws that have the level"),
    "from_dlpack": "integers that are levels of an integer dtype",
    "iinfo": "integer dtypes, of levels in any order",
    "result_type": "integer dtypes, and equal real ones: real levels are an array's constants",
    **dict.fromkeys("acos acosh asin atanh log log10 log1p log2 reciprocal sqrt".split(), _DOMAIN),
    **dict.fromkeys(
        """add atan2 copysign divide floor_divide hypot logaddexp maximum minimum multiply pow remainder
        subtract""".split(),
        _PAIR,
    ),
    **dict.fromkeys(("bitwise_and", "bitwise_invert", "bitwise_or", "bitwise_xor"), _BITS),
    "matmul": _PRODUCT,
    "tensordot": _PRODUCT,
    "vecdot": "with float constants, or with uneven levels of more than 8 bits together: over the packed axis only",
    "concat": "if joined along the packed axis: arrays whose different constants are in whole groups",
    "reshape": "axes after the packed one may not merge with it; repack(q) packs the last axis",
    "where": "at most 256 levels of both arrays together; a mask of uint1",
    "prod": "integer levels whose product surely fits int64; products of floats would depend on their order",
    **dict.fromkeys(("linalg.diagonal", "linalg.trace"), "constants that do not vary along the last axis"),
    "linalg.matmul": _PRODUCT,
    "linalg.matrix_norm": "'fro', 1, -1, inf and -inf; the spectral norms need a decomposition",
    "linalg.tensordot": _PRODUCT,
    "linalg.vecdot": "as vecdot",
}

_INTRODUCTION = """\
# The array API standard, name by name

`python -m tools.array_api` writes this page for version {version} of the standard. *Supported* means that the function
does what the standard says, on the values, for every [law](glossary.md). *Some types* means that it does so for the
types that the note names. In the chapters on elementwise functions, indexing, linear algebra, manipulation, searching,
sorting and statistics, {share} of the names are supported.

These rules apply to all functions:

- [Type rules](type-rules.md) list the laws of results. Functions return NumPy arrays where results are not low-bit
  arrays.
- Packed results have finite levels, at most 256 of them. A call is refused before anything is computed if levels would
  overflow float32, int32 or 8 bits, or if constants would have to vary in a form that packed arrays do not store. The
  error names the function.
- A packed array has at least one axis; indexing every axis returns a NumPy scalar.
- Two packed operands must be packed on the same axis, counted from the last; `repack(q, axis)` packs along another
  axis.
- `device` is `quantarray.device`, `copy` is `q.copy()`, and `dtype` is a parameter of creation, sums and products.
- There is no `__array_namespace__`: [why](decisions/0006-no-array-namespace.md).
"""


def names() -> list[tuple[str, str]]:
    """(chapter, name) of the whole standard, in its order."""
    return [(chapter, name) for chapter, listed in STANDARD.items() for name in listed.split()]


def status(name: str) -> tuple[str, str]:
    """("supported" | "some types" | "refused", a note)."""
    module, _, inner = name.rpartition(".")
    if inner not in (quantarray.linalg if module else quantarray).__all__:
        return "refused", REFUSED[name]
    return ("some types", PARTIAL[name]) if name in PARTIAL else ("supported", "")


def share(chapters: tuple[str, ...] = ARRAYS) -> float:
    """Return the share of the names of some chapters that is supported, 0 to 1."""
    supported = [status(name)[0] == "supported" for chapter, name in names() if chapter in chapters]
    return sum(supported) / len(supported)


def page() -> str:
    """Return the page docs/array-api.md as Markdown."""
    rows = [(chapter, name, *status(name)) for chapter, name in names()]
    lines = [
        _INTRODUCTION.format(version=VERSION, share=f"{share():.0%}"),
        "| chapter | supported | some types | refused |",
        "|---|---|---|---|",
    ]
    for chapter in STANDARD:
        kinds = [kind for c, _, kind, _ in rows if c == chapter]
        counts = [str(kinds.count(kind)) for kind in ("supported", "some types", "refused")]
        lines.append(f"| {chapter} | {' | '.join(counts)} |")
    for chapter in STANDARD:
        lines += ["", f"## {chapter}", "", "| name | | |", "|---|---|---|"]
        lines += [f"| `{name}` | {kind} | {note} |" for c, name, kind, note in rows if c == chapter]
    lines += [
        "",
        "The extension `fft` is refused: transforms have no low-bit results; use NumPy's on `.dequantize()`.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
