"""Names of the array API standard that the package refuses, with the reason that errors give."""

from __future__ import annotations

_LAW = "a law must be chosen: quantize(x, quantizer), encode(x, values) or from_codes(codes, dtype)"
_SHIFT = "codes are not binary integers: use q * 2**n or q // 2**n (shift(q, n) moves elements along an axis)"
_FACTORS = "factors have no low-bit values; use NumPy's function on q.dequantize()"

REFUSED: dict[str, str] = {
    "__array_namespace_info__": "the package is not a namespace of the standard: its dtypes and promotion rules differ",
    "asarray": _LAW,
    "bitwise_left_shift": _SHIFT,
    "bitwise_right_shift": _SHIFT,
    "finfo": "real levels depend on an array's constants: q.levels has them",
    "imag": "levels are real",
    "linspace": "use from_codes(codes, uniform(bits), scale=step, offset=start)",
    "nextafter": "the float next to a level is not a level; use np.nextafter on q.dequantize()",
    "tril": "use where(mask, q, 0) with a packed mask",
    "triu": "use where(mask, q, 0) with a packed mask",
    **dict.fromkeys(
        """linalg.cholesky linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.matrix_rank linalg.pinv linalg.qr
        linalg.slogdet linalg.solve linalg.svd linalg.svdvals""".split(),
        _FACTORS,
    ),
    "linalg.cross": "use NumPy's function on q.dequantize()",
    "linalg.matrix_power": "most powers need more than 8 bits; q @ q computes a single product",
}


def reason(name: str) -> str:
    """Return ": " and the reason for which a name of NumPy or of the array API is refused, or "".

    >>> reason("finfo"), reason("array") == reason("asarray"), reason("median")
    (": real levels depend on an array's constants: q.levels has them", True, '')
    """
    text = REFUSED.get("asarray" if name == "array" else name)
    return f": {text}" if text else ""
