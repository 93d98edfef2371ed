"""List the kernels that a back end has, from its files: to import those needs the back end's packages."""

from __future__ import annotations

import ast
from pathlib import Path

import quantarray
from quantarray.backends.registry import KERNELS, file_of


def kernels_of(backend: str) -> list[str]:
    """Return the names of the kernels of "cpu" or "cuda", in the registry's order."""
    folder = Path(quantarray.__file__).parent / backend
    defined = {path: _names(folder / path) for path in {file_of(name).replace(".", "/") + ".py" for name in KERNELS}}
    return [name for name in KERNELS if name in defined[file_of(name).replace(".", "/") + ".py"]]


def _names(file: Path) -> set[str]:
    """Return the names that a file defines or imports."""
    if not file.exists():
        return set()
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names |= (
            {alias.asname or alias.name for alias in getattr(node, "names", [])}
            if isinstance(node, ast.ImportFrom)
            else set()
        )
        names |= {t.id for t in node.targets if isinstance(t, ast.Name)} if isinstance(node, ast.Assign) else set()
        names |= {node.name} if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()
    return names
