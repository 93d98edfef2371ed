"""Names of the array API standard that the package refuses, with the reason that errors give."""

from __future__ import annotations

_LAW = "a law must be chosen: quantize(x, quantizer), encode(x, values) or from_codes(codes, dtype)"
_SHIFT = "codes are no binary integers: q * 2**n and q // 2**n shift integers, shift(q, n) moves elements along an axis"
_FACTORS = "factors have no low-bit values; NumPy's takes .dequantize()"

REFUSED: dict[str, str] = {
    "__array_namespace_info__": "the package is no namespace of the standard: its dtypes and promotion are its own",
    "asarray": _LAW,
    "bitwise_left_shift": _SHIFT,
    "bitwise_right_shift": _SHIFT,
    "finfo": "real levels are an array's constants: q.levels",
    "imag": "levels are real",
    "linspace": "from_codes(codes, uniform(bits), scale=step, offset=start) has such levels",
    "nextafter": "the float beside a level is no level; np.nextafter takes .dequantize()",
    "tril": "where(mask, q, 0) with a packed mask",
    "triu": "where(mask, q, 0) with a packed mask",
    **dict.fromkeys(
        """linalg.cholesky linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.matrix_rank linalg.pinv linalg.qr
        linalg.slogdet linalg.solve linalg.svd linalg.svdvals""".split(),
        _FACTORS,
    ),
    "linalg.cross": "NumPy's takes .dequantize()",
    "linalg.matrix_power": "powers of more than a few bits are no packed arrays: q @ q is one product of them",
}


def reason(name: str) -> str:
    """Return ": " and the reason for which a name of NumPy or of the array API is refused, or "".

    >>> reason("finfo"), reason("array") == reason("asarray"), reason("median")
    (": real levels are an array's constants: q.levels", True, '')
    """
    text = REFUSED.get("asarray" if name == "array" else name)
    return f": {text}" if text else ""
