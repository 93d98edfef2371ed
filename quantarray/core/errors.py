"""Errors of quantarray. All others are NumPy's habits: TypeError, ValueError, IndexError."""


class FormatError(ValueError):
    """A file is damaged, truncated, or not of the format it should be. Nothing was loaded from it."""


class DeviceError(RuntimeError):
    """An error: operands are on different devices, or an operation has no kernel for their device."""
