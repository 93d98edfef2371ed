"""Trained networks, packed: every integer that is known of them."""

import gzip
import json

import numpy as np
import pytest
from paths import PACKAGED, SHARED
from trained_networks import NAMES, network_file

import quantarray as qa
from quantarray.cli import main
from quantarray.nn import load_network


def idx(name):
    """An array of the IDX format: two zero bytes, the type (8 is uint8), the number of axes, lengths, data."""
    path = SHARED / "mnist" / f"{name}.gz"
    if not path.exists():
        pytest.skip("the MNIST test images are not part of the repository")
    data = gzip.decompress(path.read_bytes())
    assert data[:3] == b"\0\0\x08"
    shape = np.frombuffer(data, ">i4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


@pytest.mark.parametrize("name", NAMES)
def test_every_expected_integer(name):
    network = load_network(network_file(name))
    got = network(network.plain.input)
    if isinstance(got, qa.QuantArray):
        got = got.dequantize()
    np.testing.assert_array_equal(got, network.plain.expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_agrees(name, capsys):
    assert main(["run", str(network_file(name)), "--check", "--json"]) == 0
    met = json.loads(capsys.readouterr().out)["agreement"]
    assert met["equal"] == met["total"] > 0


def test_packaged_digits():
    network = load_network(PACKAGED)
    scores = network(network.plain.input)
    np.testing.assert_array_equal(scores, network.plain.expected)
    assert int((scores.argmax(axis=1) == network.plain.labels).sum()) == 446  # of 450


def test_weights_take_an_eighth_of_a_byte_each():
    network = load_network(network_file("lfc-w1a1"))
    assert network.layers.nbytes == 8 * (1024 * 13 + 1024 * 16 * 2 + 10 * 16)  # 784 inputs take 13 words


def test_accuracy_on_all_mnist_test_images(tmp_path, capsys):
    """98.34 %, as published with the network, through the library and through the command."""
    path = network_file("lfc-w1a1")
    images, labels = idx("t10k-images-idx3-ubyte"), idx("t10k-labels-idx1-ubyte")
    assert images.shape == (10_000, 28, 28)
    network = load_network(path)
    right = (network(images.reshape(10_000, 784)).argmax(axis=1) == labels).sum()
    assert right == 9834
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "y.npy", labels)
    args = ["run", str(path), "--input", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy"), "--json"]
    assert main(args) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == {"right": 9834, "total": 10_000, "percent": 98.34}
