"""Define the directive `api`: a table of names, then each with its docstring, examples and a link to its source.

    ```{api}
    conv2d
    linear
    ```

Names are those below `quantarray`; `:members:` adds the methods of classes.
"""

import inspect
import re
from collections.abc import Container
from functools import partial
from typing import Any, ClassVar

from docstrings import inline, to_rst
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import quantarray


def look_up(name: str) -> Any:
    """Return the object of a name such as `linalg.diagonal`."""
    result: Any = quantarray
    for part in name.split("."):
        result = getattr(result, part)
    return result


def is_public(name: str) -> bool:
    """Tell whether the reference has an entry of this name."""
    first, _, rest = name.partition(".")
    if first not in quantarray.__all__ and first != "torch":
        return False
    if not rest:
        return True
    value = getattr(quantarray, first)
    if inspect.isclass(value):
        return not rest.startswith("_") and hasattr(value, rest)
    return rest in getattr(value, "__all__", ())


def link(code: str, local: Container[str] = ()) -> str:
    """Return a link where the code names something of the reference; neither `f(x)` nor a local name does."""
    name = code.removeprefix("qa.").removeprefix("quantarray.")
    return f":py:obj:`{code} <quantarray.{name}>`" if is_public(name) and code not in local else f"``{code}``"


def local_names(value: Any) -> set[str]:
    """Return names that mean something else in a docstring: its parameters, its methods, and `outer` axes."""
    names = {"outer", *(vars(value) if inspect.isclass(value) else ())}
    try:
        return names | set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return names


def docstring_to_rst(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring, as Sphinx asks for."""
    lines[:] = to_rst(lines, partial(link, local=local_names(value)))


def summary(value: Any) -> str:
    """Return the first sentence of a docstring; the dots of `0 .. n` end none."""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[^\s.])\.(?=\s|$)", paragraph)[0]
    return inline(sentence, partial(link, local=local_names(value)))


class Api(SphinxDirective):
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"members": directives.flag}

    def run(self) -> list[Any]:
        names = [line.strip() for line in self.content if line.strip()]
        values = {name: look_up(name) for name in names}
        described = [name for name in names if inspect.isclass(values[name]) or callable(values[name])]
        lines = ["```{eval-rst}", ".. py:currentmodule:: quantarray", ""]
        if described:
            lines += [".. list-table::", "   :class: summary", "   :widths: 30 70", ""]
        for name in described:
            lines += [f"   * - :py:obj:`{name} <quantarray.{name}>`", f"     - {summary(values[name])}"]
        for name in names:
            lines += self._entry(name, values[name])
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))

    def _entry(self, name: str, value: Any) -> list[str]:
        if inspect.isclass(value):
            lines = [f".. autoclass:: quantarray.{name}"]
            return ["", *lines, "   :members:", "   :inherited-members:"] if "members" in self.options else ["", *lines]
        if callable(value):
            return ["", f".. autofunction:: quantarray.{name}"]
        levels = getattr(value, "levels", None)
        text = f"{value.bits} bit{'s' * (value.bits > 1)}; levels {_shown(levels)}" if levels else repr(value)
        return ["", f".. py:data:: {name}", "", f"   {text}"]


def _shown(levels: tuple[int, ...]) -> str:
    return ", ".join(map(str, levels)) if len(levels) <= 4 else f"{levels[0]}, {levels[1]}, .., {levels[-1]}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("api", Api)
    app.connect("autodoc-process-docstring", docstring_to_rst)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
