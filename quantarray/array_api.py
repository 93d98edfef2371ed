"""Which names of the array API standard are here, which for some types only, and why the rest is refused.

    python -m quantarray.array_api > docs/array-api.md

writes the page; a test holds it and the code together. A name that the package exports is supported; `PARTIAL` says
what of it is not; every other name has its reason in `REFUSED`, which `quantarray.<name>` raises too.
"""

from __future__ import annotations

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
}


def names() -> list[tuple[str, str]]:
    """(chapter, name) of the whole standard, in its order."""
    return [(chapter, name) for chapter, listed in STANDARD.items() for name in listed.split()]
