"""Docstrings begin with a verb or a formula and can be read alone; names say what they hold (docs/naming.md)."""

import ast
import re

import pytest
from paths import ROOT

FOLDERS = ("quantarray", "benchmarks", "tools", "examples", "tests/long", "tests/support")
FILES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

# First words of no docstring: what follows them cannot be read alone, or says only that it is something
NOT_FIRST = set(
    """
    Against As At Both By Each Every Everything For From Half How In Kept Made Not Of On One Over Same Some
    Something That These Those To Until What Where Whether Which Whose Why Without
    """.split()
)
NAMES = {"made", "found", "kept", "given", "told", "there", "own"}
VERBS = set(
    """
    Arrange Assert Change Configure Correlate Create Damage Decode Disassemble End Explain Fork Format Halve Limit
    Report Serve Shrink Slice Train
    Add Align Allocate Answer Apply Arrive Ask Assemble Bisect Bound Bring Broadcast Build Call Capture Check Choose
    Clear Clip Close Collect Combine Compare Compile Compute Construct Contract Convert Convolve Copy Count Cut Deal
    Declare Descend Describe Divide Draw Drop Emit Encode Expand Extend Fetch Fill Find Fit Flatten Fold Forget Free
    Gather Give Hash Import Index Insert Interleave Iterate Join Keep Launch Lay Let List Load Look Lower Make Map
    Mark Mask Measure Merge Move Multiply Name Note Open Pack Parse Permute Pick Plan Post Prefetch Prepare Print
    Put Quantise Raise Rank Read Rearrange Rebuild Recode Record Reduce Refuse Release Remove Reorder Repeat Replace
    Rescale Reset Reshape Restore Return Reverse Roll Rotate Round Run Save Say Scan Schedule Search See Select Set
    Share Shift Show Sleep Solve Sort Split Start Step Stop Store Subtract Sum Swap Tabulate Take Tell Test Time
    Transpose Turn Undo Unpack Unroll Update Use View Visit Wait Wake Widen Wrap Write Yield
    """.split()
)


def is_formula(word):
    """True for code, numbers and names of arguments: sentences begin with a capital letter, formulas do not."""
    return bool(re.search(r"[^A-Za-z'-]|^-", word)) or word[0].islower() or word in ("True", "False", "None")


def may_begin(node, text):
    """True for a title of a module, "A .." of a class, a verb or a formula."""
    word = text.split()[0].rstrip(",;:.")
    if isinstance(node, ast.Module):
        return word not in NOT_FIRST
    if isinstance(node, ast.ClassDef) and word in ("A", "An"):
        return True
    return word in VERBS or is_formula(word)


def docstrings(source):
    """(name, may begin so, first words) of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "module"), may_begin(node, text), text[:60]


def names(source):
    """(line, name) of each variable, argument, attribute and function that the source defines or uses."""
    for node in ast.walk(ast.parse(source)):
        name = getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "attr", None)
        if name is None and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        if isinstance(name, str):
            yield getattr(node, "lineno", 0), name


def sources():
    return ((file, (ROOT / file).read_text(encoding="utf-8")) for file in FILES)


def test_docstrings_begin_with_a_verb_or_a_formula():
    wrong = [(file, name, words) for file, text in sources() for name, well, words in docstrings(text) if not well]
    assert not wrong


def test_names_say_what_they_hold():
    wrong = [(file, line, name) for file, text in sources() for line, name in names(text) if name in NAMES]
    assert not wrong


def test_files_of_each_folder_are_checked():
    assert {folder for folder in FOLDERS if any(file.startswith(f"{folder}/") for file in FILES)} == set(FOLDERS)


@pytest.mark.parametrize(
    ("source", "well"),
    [
        ('"""Tables of levels."""', True),
        ('"""Where pixels lie."""', False),
        ('def f():\n    """Return a."""', True),
        ('def f():\n    """out[i] = x[i] + 1."""', True),
        ('def f():\n    """The sum."""', False),
        ('def f():\n    """Sums of rows."""', False),
        ('class C:\n    """A plan."""', True),
        ('class C:\n    """What a plan is."""', False),
    ],
)
def test_the_rule(source, well):
    assert [good for _, good, _ in docstrings(source)] == [well]
    defined = [name for _, name in names("def f(given):\n    made = given.kept")]
    assert sorted(defined) == ["f", "given", "given", "kept", "made"]
