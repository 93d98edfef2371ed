"""Link entries to sources that viewcode does not find by itself: assigned names and members of bases."""

import ast
import inspect
from importlib import import_module
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import quantarray

Tags = dict[str, tuple[str, int, int]]


def members(cls: type) -> dict[str, type]:
    """Return the class that defines each member of a class, as far as it is one of the package's."""
    owners = [base for base in reversed(cls.__mro__) if base.__module__.startswith("quantarray")]
    return {name: base for base in owners for name in vars(base)}


def module_of(app: Sphinx, modname: str, name: str) -> str | None:
    """Answer viewcode: the module that defines what `modname` has under this name."""
    value: Any = import_module(modname)
    for part in name.split("."):
        if inspect.isclass(value) and part in members(value):
            return members(value)[part].__module__
        value = getattr(value, part)
    return getattr(value, "__module__", None)


def find_source(app: Sphinx, modname: str) -> tuple[str, Tags]:
    """Answer viewcode: the text of a module, and the lines of each name that an entry may have."""
    analyzer = ModuleAnalyzer.for_module(modname)
    analyzer.find_tags()
    tags: Tags = {**assigned(analyzer.code), **analyzer.tags}
    for name in quantarray.__all__:
        cls = getattr(quantarray, name)
        if inspect.isclass(cls):
            for member, base in members(cls).items():
                tag = tags.get(f"{base.__name__}.{member}")
                if base.__module__ == modname and tag:
                    tags[f"{name}.{member}"] = tag
    return analyzer.code, tags


def assigned(code: str) -> Tags:
    """Return the lines of `name = ...` and `name: type`, at the top and in classes."""
    tags: Tags = {}
    for node in ast.parse(code).body:
        inner = [(f"{node.name}.", item) for item in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        for prefix, item in inner:
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            for target in (part for t in targets for part in getattr(t, "elts", [t])):
                if isinstance(target, ast.Name):
                    tags[prefix + target.id] = ("other", item.lineno, item.end_lineno or item.lineno)
    return tags


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("viewcode-follow-imported", module_of)
    app.connect("viewcode-find-source", find_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
