"""Rules of types: which law and dtype a function returns; one table for the documentation and its test.

    python -m tools.type_rules > docs/type-rules.md

A rule depends on the operands' dtypes, on whether integer levels have a scale, on shapes, and on operands that are not
packed; never on codes. *Exact* operands are packed arrays of integer levels without a scale, and integers; all others
are *real*. Two packed operands are exact if both are.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """A rule: the types of the result for exact operands, and for real ones."""

    exact: str
    real: str


_SAME_TABLE = "table with as many bits and levels as q"
_MERGED = "integers of the results in ascending order, equal ones merged; if no two results are equal and the number "
_MERGED += "of bits stays the same, in the order of codes, with the same words"
_PAIRS = "two packed arrays (at most 8 bits together): "
_PAIR_TABLE = "table with one level for each pair of levels"
_TABLE = Rule(_MERGED, f"{_SAME_TABLE}; {_PAIRS}{_PAIR_TABLE}")
_FLOAT = Rule(_SAME_TABLE, _SAME_TABLE)
_FLOAT_PAIR = Rule(_TABLE.real, _TABLE.real)
_UINT1 = Rule("uint1", "uint1")
_ONLY_UINT1 = Rule("uint1 for uint1 operands; other dtypes are refused", "refused")
_WHOLE = Rule("the array itself", _SAME_TABLE)
_SUM = Rule(
    f"integers of the results; {_PAIRS}integers of all sums in ascending order",
    "uniform and basis: the same law with another offset. Integers with a scale: uniform if the levels are evenly "
    "spaced and their step is a power of two. Integers and a vector: uniform if the levels are evenly spaced and "
    "float32 holds their step exactly. Integers and a float: uniform if the levels are evenly spaced and a uniform law "
    f"rounds each result only once. Other integers: {_SAME_TABLE}. Table: the same law. Two packed arrays (at most 8 "
    f"bits together): {_PAIR_TABLE}",
)
_LIKE = Rule("the dtype of q", "the law of q")
_GIVEN = Rule(
    "the integer dtype given; else the smallest of uint1 .. uint8, int2 .. int8 that holds the values", "refused"
)
_GIVEN_UINT1 = Rule("the integer dtype given; else uint1", "refused")
_CODES = Rule("the dtype given", "the law given: dtype and constants")
_VIEW = Rule("the dtype of q", "the law of q, with the constants of the elements that stay")
_VIEWS = Rule("the dtype of each operand", "the law of each operand")
_JOIN = Rule(
    "if all have one dtype: that dtype; else their result_type",
    "if all have one dtype: that dtype; constants that differ vary along the joined axis. Else refused",
)
_SUMMED = Rule("int32; int64 where n * max|level| >= 2**31; or the dtype given", "float32; or float64 if that is given")
_INT64 = Rule("int64", "int64")
_BOOL = Rule("bool", "bool")
_FLOAT32 = Rule("float32", "float32")
_EXTREME = Rule("int32", "float32")
_VALUES = "values: as unique_values; counts and indices: int64"
_PRODUCT = Rule(
    "int32; int64 where n * max|a| * max|b| >= 2**31, OverflowError from 2**63 on",
    "float32; OverflowError where the integers before constants reach 2**63",
)
_REQUANTIZED = Rule(
    "int32; int64 where n * max|x| * max|w| >= 2**31, OverflowError from 2**63 on; or out_dtype if given; with "
    "requantize, the dtype of the Thresholds",
    "float32; with requantize, the law of the Thresholds",
)
_ADJOINT = Rule(
    "int32; int64 where sums may reach 2**31; the other operand's floats where that is dense",
    "float32; float64 where the other operand is that",
)
_MASK = Rule("uint1", "uint1")
_LARGEST = Rule(*[f"{law} of q; a dense array: its NumPy dtype; indices: int64" for law in ("the dtype", "the law")])
_MEAN = Rule(*["float32; a dense float64 array: float64; with requantize, the law of the Thresholds"] * 2)

CHAPTERS: dict[str, dict[str, Rule]] = {
    "Level algebra": {
        **dict.fromkeys(("positive", "conj", "real"), Rule("the array itself", "the array itself")),
        "negative": Rule(
            "integers of the levels with opposite sign, in the same order of codes",
            "the same law, with constants of opposite sign",
        ),
        **dict.fromkeys(("add", "subtract"), _SUM),
        "multiply": Rule(
            f"integers of the results; {_PAIRS}integers of all products in ascending order",
            "the same law with other constants; integers and a float or a vector: the same dtype with a scale; "
            f"{_PAIRS}{_PAIR_TABLE}",
        ),
        "divide": Rule(
            f"q / s: the same dtype with a scale; s / q: {_SAME_TABLE}; {_PAIRS}{_PAIR_TABLE}",
            f"q / s: the same law with other constants; s / q: {_SAME_TABLE}; {_PAIRS}{_PAIR_TABLE}",
        ),
    },
    "Functions of levels": {
        **dict.fromkeys(("abs", "relu", "square", "clip", "maximum", "minimum", "floor_divide", "remainder"), _TABLE),
        "pow": Rule(f"integer exponents >= 0: integers, equal levels merged; else {_TABLE.real}", _TABLE.real),
        "sign": Rule("integers: those of -1, 0 and 1 that are signs of levels", "ternary"),
        "round": Rule(f"decimals >= 0: the array itself; else {_MERGED}", _SAME_TABLE),
        **dict.fromkeys(("floor", "ceil", "trunc"), _WHOLE),
        **dict.fromkeys(
            """acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin sinh sqrt tan
            tanh""".split(),
            _FLOAT,
        ),
        **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp"), _FLOAT_PAIR),
        **dict.fromkeys(("isfinite", "isinf", "isnan", "signbit"), _UINT1),
        "map": Rule(
            f"if f returns integers: {_MERGED}. If it returns bools: uint1. If it returns floats: {_SAME_TABLE}",
            "as for exact operands, but integers are always in ascending order; f gets levels with constants applied",
        ),
        "map2": Rule(
            "if f returns integers: integers of the results in ascending order. If it returns bools: uint1. If it "
            f"returns floats: {_PAIR_TABLE}",
            "as for exact operands",
        ),
    },
    "Comparison and logic": {
        **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _UINT1),
        "array_equal": _BOOL,
        "isin": Rule(*["uint1, packed along the axis of q"] * 2),
        "where": Rule(
            "the result_type of both operands",
            "if both have one law: that law; else table with the levels of a, followed by the levels of b",
        ),
        **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), _UINT1),
        **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "shift"), _ONLY_UINT1),
    },
    "Between dtypes": {
        "astype": Rule("the dtype given", "the dtype given"),
        "result_type": Rule(
            "the first of the dtypes that has all levels; else integers of all levels in ascending order",
            "if all dtypes are equal: that dtype; else refused",
        ),
    },
    "Making arrays": {
        **dict.fromkeys(("full", "arange"), _GIVEN),
        **dict.fromkeys(("zeros", "ones", "empty", "eye"), _GIVEN_UINT1),
        **dict.fromkeys(("full_like", "zeros_like", "ones_like", "empty_like"), _LIKE),
        **dict.fromkeys(("from_codes", "from_words"), _CODES),
        "encode": Rule("integers of the levels given; bools: uint1", "refused"),
        "quantize": Rule(*["the dtype of the quantiser, with the constants that it fits"] * 2),
        "from_dlpack": Rule("the integer dtype given; else uint1 for bool, uint8 for uint8, int8 for int8", "refused"),
        **dict.fromkeys(("pack_bits", "from_packbits", "from_bitarray"), Rule("uint1", "refused")),
        "from_embeddings": Rule("uint1 of signs; int8 or uint8 of bytes, uniform(8) with ranges", "refused"),
        **dict.fromkeys(("relu_mask", "dropout_mask"), _MASK),
        "load": Rule("the dtype that was saved", "the law that was saved"),
        "asnumpy": Rule("the dtype of the operand", "the law of the operand"),
    },
    "Out of packed arrays": {
        "unpack_bits": Rule("bool for uint1 operands; other dtypes are refused", "refused"),
        "to_packbits": Rule("NumPy's uint8 for uint1 operands; other dtypes are refused", "refused"),
    },
    "Shapes": {
        **dict.fromkeys(
            """broadcast_to expand_dims flip matrix_transpose moveaxis permute_dims ravel repack repeat reshape roll
            rot90 channel_shuffle squeeze swapaxes take take_along_axis tile transpose""".split(),
            _VIEW,
        ),
        "planes": Rule(*["a tuple of uint1 arrays, one for each bit"] * 2),
        **dict.fromkeys("array_split broadcast_arrays meshgrid split unstack".split(), _VIEWS),
        **dict.fromkeys("concat concatenate hstack stack vstack".split(), _JOIN),
        "pad": Rule(
            "the dtype of q, which must have the padding value as a level",
            "the law of q, in which each channel or group must have the padding value as a level",
        ),
    },
    "Reductions": {
        **dict.fromkeys(("sum", "cumulative_sum"), _SUMMED),
        "prod": Rule(
            "int32; int64 where max|level|**n >= 2**31, OverflowError where it may reach 2**63; or the dtype given",
            "refused",
        ),
        "cumulative_prod": Rule("as prod along the axis", "float32; or float64 if that is given"),
        **dict.fromkeys(("mean", "var", "std"), _FLOAT32),
        **dict.fromkeys(("max", "min"), _EXTREME),
        **dict.fromkeys(("all", "any"), _BOOL),
        "count_nonzero": _INT64,
        "counts": Rule(*["int64 [n_levels, *axes not counted over]"] * 2),
        "diff": Rule("n-th differences: int32; int64 where 2**n * max|level| >= 2**31", "float32"),
        "map_reduce": Rule(
            *["if f returns integers or bools: int64; floats, and means: float64; any, all: bool; a tuple: a tuple"] * 2
        ),
    },
    "Searching, sorting and sets": {
        **dict.fromkeys(("argmax", "argmin", "argsort", "searchsorted"), _INT64),
        "nonzero": Rule(*["a tuple of int64 arrays, one for each axis"] * 2),
        "sort": Rule("the dtype of q", "the law of q"),
        "unique_values": _EXTREME,
        **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse"), Rule(_VALUES, _VALUES)),
    },
    "Products": {
        **dict.fromkeys(("vecdot", "dot", "inner", "tensordot"), _PRODUCT),
        "einsum": Rule(
            f"two operands: {_PRODUCT.exact}; one operand: as sum, or the dtype of q if no axis is summed",
            "two operands: float32; one operand: as sum, or the law of q if no axis is summed",
        ),
        "outer": Rule("int32; int64 where max|a| * max|b| >= 2**31, OverflowError from 2**63 on", "float32"),
        "hamming": _INT64,
        **dict.fromkeys(
            ("top_k", "within"),
            Rule(
                "indices: int64; distances: int64 (hamming, l2), as linear (dot), float64 (all others)",
                "indices: int64; distances: int64 (hamming), as linear (dot), float64 (all others)",
            ),
        ),
        "rescore": Rule(*["distances: float64, indices: int64, of dense rows"] * 2),
        **dict.fromkeys(("matmul", "linear", "conv1d", "conv2d", "conv3d"), _REQUANTIZED),
        **{f"conv_transpose{n}d": _REQUANTIZED for n in (1, 2, 3)},
        **{f"conv{n}d_{of}_adjoint": _ADJOINT for n in (1, 2, 3) for of in ("data", "filter")},
    },
    "Layers": {
        "add_residual": Rule(
            "int32, OverflowError where a sum does not fit; int64 if x is int64; with requantize, the dtype of the "
            "Thresholds",
            "float32; with requantize, the law of the Thresholds",
        ),
        **{f"max_pool{n}d": _LARGEST for n in (1, 2, 3)},
        **{f"avg_pool{n}d": _MEAN for n in (1, 2, 3)},
    },
    "linalg": {
        "linalg.diagonal": _VIEW,
        "linalg.trace": Rule("as the sum of the diagonal", "float32"),
        **dict.fromkeys(("linalg.vector_norm", "linalg.matrix_norm"), _FLOAT32),
    },
}

RULES: dict[str, Rule] = {name: rule for chapter in CHAPTERS.values() for name, rule in chapter.items()}

_INTRODUCTION = """\
# Which law and dtype come out

`python -m tools.type_rules` writes this page, and tests compare its rules with the code.

The [glossary](glossary.md) defines law, level and code. A rule depends on the operands' dtypes, on whether integer
levels have a scale, on shapes, and on arguments that are not packed: numbers, vectors, and what a function that is
passed returns. It never depends on the codes in an array. The tables have two columns of results:

- Operands are *exact* if the packed ones have integer levels without a scale, and all others are integers. In level
  algebra and in functions of levels, a vector is not exact, even if it has integers.
- Operands are *real* in all other cases.

In the tables, q is a packed operand, s is a number or a vector, and f is the function that is passed. int32, int64,
float32, float64 and bool are NumPy arrays; everything else is packed. *Integers of* some values is an integer dtype
with these levels. *Refused* means that an error is raised. *n* is the number of elements that a result is computed
from. *max|level|* is the largest magnitude among the levels of the dtype.
"""

_ERRORS = """\
## The error of level algebra

`+ - * /` with a number or a vector (t or s in the table) compute constants in float64 and round each constant to
float32 once. `dequantize` computes a level in float64 and rounds it to float32, once more. The exact result is the
law's formula without any rounding, applied to the operand's constants and to the number or vector in float64. A level
of the result differs from the exact result by at most:

| law of the result | `q + t` `q - t` `t - q` | `q * s` `q / s` |
|---|---|---|
| integers | 0 | 0 |
| integers with a scale | | 1.5 ulp of the level |
| uniform, basis | 1 ulp of the largest level | `2**-22` of the largest level, 2 to 4 of its ulps |
| table | half an ulp of the level | half an ulp of the level |

The ulp of a number is the distance between neighbouring float32 numbers there. The largest level is the level of the
largest magnitude with the same constants (in the same channel or group), even if no element has this level. `-q` is
exact. If a constant of a product is below `2**-126`, float32 holds fewer digits of it, and it is only within `2**-150`.
Levels beyond the range of float32 are refused.

So if you add a number that is smaller than an ulp of the largest level, the array may stay the same, as in float32
itself. For example, `q = from_codes([64, 65], int7, scale=1e6)` has the values [0, 1e6]. Its levels go from -64e6 to
63e6, where an ulp is 4. So adding 1.7936 gives [0, 1e6] again. `map(lambda v: v + 1.7936, q)` instead rounds each level
to the ulp of that level: it returns a table with the values [1.7936, 1000001.8].

In a chain of operations, each step adds an error that depends on the levels of that step: `q + 1e6 - 1e6` loses all
digits of q below an ulp of 1e6. Operations on two packed arrays, and functions of levels, start from float32 levels and
round each result once. [Decision 19](decisions/0019-error-of-offsets.md) says why.
"""


def page() -> str:
    """Return the page docs/type-rules.md as Markdown; functions of one rule share a row."""
    lines = [_INTRODUCTION]
    for chapter, rules in CHAPTERS.items():
        lines += [f"## {chapter}", "", "| function | exact | real |", "|---|---|---|"]
        shared: dict[Rule, list[str]] = {}
        for name, rule in rules.items():
            shared.setdefault(rule, []).append(f"`{name}`")
        cells = ((" ".join(names), rule.exact, rule.real) for rule, names in shared.items())
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
        lines.append("")
    return "\n".join([*lines, _ERRORS])


if __name__ == "__main__":
    print(page(), end="")
