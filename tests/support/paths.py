"""Paths of the repository: its root, its tests and pages, and the data that tests read."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SUPPORT, ROOT = TESTS / "support", TESTS.parent
DOCS = ROOT / "docs"
PACKAGED = ROOT / "quantarray" / "data" / "digits.npz"
SHARED = ROOT.parent / "shared"  # trained networks and images that are not part of the repository


def path_of(name):
    """Return the path of the one test file of that name, from the root on."""
    (path,) = TESTS.rglob(name)
    return path.relative_to(ROOT).as_posix()
