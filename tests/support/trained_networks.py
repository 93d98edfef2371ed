"""Trained networks in files, one of them packaged."""

import pytest
from paths import SHARED

NAMES = ("lfc-w1a1", "cnv-w1a1", "cnv-w1a2", "tinier-yolo-w1a3")


def network_file(name):
    """Return the path of a trained network, or skip the test where the file is missing."""
    path = SHARED / "networks" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the trained network {name} is not part of the repository")
    return path
