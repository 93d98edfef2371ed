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

_LEVELS = "integer dtypes only; use from_codes for real levels"
_PAIR = "two arrays: at most 8 bits together, because the result has a level for each pair of levels; "
_PAIR += "an array with a number or a vector: all laws"
_DOMAIN = "arrays for whose levels all results are finite: packed arrays hold no NaN and no infinity"
_BITS = "uint1 only, the dtype of truth values: codes of other dtypes are not binary integers"
_PRODUCT = "operands that are packed on the contracted axes; repack(q, axis) packs along another axis"

PARTIAL: dict[str, str] = {
    "arange": _LEVELS + "; at most 256 numbers",
    "astype": "dtypes that hold all levels, see can_cast; to round, use quantize(q.dequantize(), quantizer)",
    **dict.fromkeys(("empty", "eye", "full", "ones", "zeros"), _LEVELS),
    **dict.fromkeys(("full_like", "ones_like", "zeros_like"), "arrays that have the fill value as a level"),
    "from_dlpack": "arrays of integers that are all levels of one integer dtype",
    "iinfo": "integer dtypes; their levels may be in any order",
    "result_type": "integer dtypes, or equal real dtypes: real levels depend on an array's constants",
    **dict.fromkeys("acos acosh asin atanh log log10 log1p log2 reciprocal sqrt".split(), _DOMAIN),
    **dict.fromkeys(
        """add atan2 copysign divide floor_divide hypot logaddexp maximum minimum multiply pow remainder
        subtract""".split(),
        _PAIR,
    ),
    **dict.fromkeys(("bitwise_and", "bitwise_invert", "bitwise_or", "bitwise_xor"), _BITS),
    "matmul": _PRODUCT,
    "tensordot": _PRODUCT,
    "vecdot": "over the packed axis; over other axes only without float constants, and with at most 8 bits together if "
    "levels are uneven",
    "concat": "along the packed axis: if constants differ, each of them must apply to whole groups of elements",
    "reshape": "axes after the packed axis cannot be merged with it; repack(q) packs the last axis",
    "where": "a mask of uint1, and two arrays that together have at most 256 levels",
    "prod": "integer levels with max abs(level) ** elements below 2**63; float products would depend on the order",
    **dict.fromkeys(("linalg.diagonal", "linalg.trace"), "arrays whose constants do not vary along the last axis"),
    "linalg.matmul": _PRODUCT,
    "linalg.matrix_norm": "ord 'fro', 1, -1, inf and -inf; the spectral norms need a matrix decomposition",
    "linalg.tensordot": _PRODUCT,
    "linalg.vecdot": "the same as for vecdot",
}

_INTRODUCTION = """\
# The array API standard, name by name

`python -m tools.array_api` writes this page for version {version} of the standard. *Supported* means that the function
computes what the standard says from an array's values (its levels, not its codes), for every [law](glossary.md). *Some
types* means that it does so only for what the note names. *Refused* means that the package does not have the function;
the note gives the reason or an alternative. In the chapters on elementwise functions, indexing, linear algebra,
manipulation, searching, sorting and statistics, {share} of the names are supported.

These rules apply to all functions:

- [Type rules](type-rules.md) list the laws of results. Results that are not low-bit arrays are NumPy arrays.
- A packed result has at most 256 levels, all of them finite. A function raises an error that names it, before it
  computes anything, if levels of the result would overflow float32 or int32 or need more than 8 bits, or if its
  constants would vary in a pattern that packed arrays cannot store.
- A packed array has at least one axis; indexing every axis returns a NumPy scalar.
- Two packed operands must be packed on the same axis, counted from the last; `repack(q, axis)` packs along another
  axis.
- The standard's parameters `device` and `copy` are not parameters here: use `with quantarray.device(name):` and
  `q.copy()`. Functions that create, sum or multiply have a parameter `dtype`.
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
        "The extension `fft` is refused: transforms have no low-bit results; use `numpy.fft` on `q.dequantize()`.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page(), end="")
