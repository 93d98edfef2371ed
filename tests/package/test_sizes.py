"""Files and signatures stay small enough to read."""

import ast
from pathlib import Path

import quantarray

ROOT = Path(quantarray.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
MOST_LINES = 400
TABLES = {"__init__.py"}  # pure tables: names of the package and the module of each
MOST_PARAMETERS = 8
WIDE = 0.03  # of all functions; 2.3 % when this was set, most of them kernels, whose stubs list operands one by one


def test_no_file_has_more_than_400_lines():
    long = {file: text.count("\n") for file, text in FILES.items() if text.count("\n") > MOST_LINES}
    assert long.keys() == TABLES, long


def _is_overload(node):
    """True for a signature of a function that follows: the function has as many parameters."""
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def functions():
    """(file:name, number of parameters) of each function and method; `*args` and `**kwargs` count as one each."""
    for file, text in FILES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and not _is_overload(node):
                a = node.args
                count = len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) + bool(a.vararg) + bool(a.kwarg)
                yield f"{file}:{node.name}", count


def test_few_functions_have_more_than_8_parameters():
    counts = list(functions())
    wide = [name for name, count in counts if count > MOST_PARAMETERS]
    assert len(counts) > 2000
    assert len(wide) <= WIDE * len(counts), f"{len(wide)} of {len(counts)}:\n" + "\n".join(sorted(wide))
