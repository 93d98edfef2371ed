"""Digests of the files that compiled kernels are made of (docs/decisions/0018-kernels-on-disk.md)."""

from __future__ import annotations

import re
from functools import cache
from glob import escape, glob
from hashlib import sha256
from os import sep
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(r"^[ \t]*from[ \t]+(\.+)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)", re.MULTILINE)


@cache
def _files() -> dict[str, str]:
    """Return the files of the folders that kernels are made of, by the paths of their modules."""
    folders = (escape(str(PACKAGE / name)) for name in ("core", "kernels", "cpu", "cuda"))
    below = (file for folder in folders for file in glob(f"{folder}/**/*.py", recursive=True))
    return {file.removesuffix(".py").removesuffix(f"{sep}__init__"): file for file in below}


@cache
def _read(file: str) -> tuple[str, frozenset[str]]:
    """Return a digest of a file's text, and the files of kernels that it imports."""
    with open(file, "rb") as opened:
        text = opened.read()
    modules, imported = _files(), set[str]()
    for dots, module, names in _IMPORT.findall(text.decode()):
        path = sep.join([file.rsplit(sep, len(dots))[0], *filter(None, module.split("."))])
        submodules = [f"{path}{sep}{name}" for name in re.findall(r"\w+", names)]
        imported.update(modules[one] for one in (path, *submodules) if one in modules)
    return sha256(text).hexdigest(), frozenset(imported)


@cache
def closure(file: str) -> list[str]:
    """Return the import closure of a file, sorted."""
    reached, left = set[str](), {file}
    while left:
        reached |= left
        left = set[str]().union(*(_read(one)[1] for one in left)) - reached
    return sorted(reached)


@cache
def digest(file: str) -> str:
    """Return a digest of the texts of a file's import closure."""
    return sha256("".join(_read(one)[0] for one in closure(file)).encode()).hexdigest()
