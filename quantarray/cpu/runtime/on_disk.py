"""Keep compiled kernels on disk by the text of the files that they are made of, whatever the times of these files.

Numba takes a compiled function from disk while the file that defines it is as it was. But a kernel is made of more
files: intrinsics, helpers, named tuples. So each kernel belongs to a digest of the texts of its *import closure*: the
file that defines it and all files of the package that this one imports, directly or through others. A kernel whose
closure is unchanged is loaded, after `touch`, `git checkout` or in another clone; a changed comment compiles the
kernels whose closure has that file (docs/decisions/0018-kernels-on-disk.md).
"""

import os
from contextlib import suppress
from glob import escape, glob
from hashlib import sha256
from typing import ClassVar

from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from ...core.sources import PACKAGE as PACKAGE
from ...core.sources import closure as closure
from ...core.sources import digest
from .atomics import WHY_NOT


def _described(of):
    """Write an argument's type; named tuples with their class and fields, by which kernels know them."""
    if isinstance(of, types.BaseTuple):
        tuple_class = getattr(of, "instance_class", tuple)
        name = tuple_class.__module__, tuple_class.__qualname__, getattr(tuple_class, "_fields", ())
        return f"{name}({', '.join(map(_described, of.types))})"
    return f"held {_described(of.of)}" if hasattr(of, "of") else repr(of)


class _Index(IndexDataCacheFile):
    """List a function's versions, none where they were compiled from other texts."""

    def __init__(self, cache_path, filename_base, text):
        super().__init__(cache_path, filename_base, source_stamp=None)
        self._version = sha256(f"{self._version}, {text}, {WHY_NOT}".encode()).hexdigest()
        # Files named after the texts: two processes whose texts differ never write the same one
        self._data_name_pattern = f"{filename_base}.{self._version[:16]}.{{number:d}}.nbc"

    def _save_index(self, overloads):
        super()._save_index(overloads)
        if len(overloads) == 1:  # the first of these texts: what is there of others goes
            path = escape(self._index_path.removesuffix("nbi"))
            for file in {*glob(f"{path}*.nbc")} - {*glob(f"{path}{self._version[:16]}.*.nbc")}:
                with suppress(OSError):
                    os.remove(file)


class _GivenFolder(CompileResultCacheImpl._locator_classes[0]):
    """Use the folder that `NUMBA_CACHE_DIR` names: all copies of the package share kernels of the same text there."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file):
        """Return the folder of a file's kernels."""
        if not py_file.startswith(str(PACKAGE)):
            return super().get_suitable_cache_subpath(py_file)
        return os.path.relpath(os.path.dirname(py_file), PACKAGE.parent)


class _Kernels(CompileResultCacheImpl):
    _locator_classes: ClassVar = [_GivenFolder, *CompileResultCacheImpl._locator_classes[1:]]


class KernelCache(FunctionCache):
    """Keep the versions of one function on disk.

    Their keys are texts. Numba's are types, and reading its list of versions raises where a class is gone.
    """

    _impl_class = _Kernels

    def __init__(self, function):
        super().__init__(function)
        text = digest(function.__code__.co_filename)
        self._cache_file = _Index(self._cache_path, self._impl.filename_base, text)

    def _index_key(self, signature, codegen):
        arguments = getattr(signature, "args", signature)
        _, machine, code = super()._index_key(signature, codegen)
        return repr((", ".join(map(_described, arguments)), machine, code))
