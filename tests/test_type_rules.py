"""The table of type rules names what there is."""

import inspect

import quantarray as qa
from quantarray.ops import algebra, bits, comparison, creation, elementwise, logic, mapping
from quantarray.type_rules import RULES

NO_ARRAY = {"array_equal", "unpack_bits", "to_packbits"}  # what these give is not packed
INTERNAL = {"make_constants", "table_function", "of_pairs"}


def test_names_are_public_functions():
    for name in RULES:
        assert name in qa.__all__ and callable(getattr(qa, name)), name


def test_every_function_of_these_chapters_has_a_rule():
    for module in (algebra, bits, comparison, creation, elementwise, logic, mapping):
        found = {n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}
        missing = {n for n in found if not n.startswith("_")} - NO_ARRAY - INTERNAL - set(RULES)
        assert not missing, module


def test_rules_are_words():
    for rule in RULES.values():
        assert rule.exact and rule.real and not rule.exact.endswith(".")
