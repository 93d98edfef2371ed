"""The command line as a program: wrong files, and pipes and disks that take nothing, get one line and a status."""

import os
import subprocess
import sys

import numpy as np
import pytest
from plain_files import small

import quantarray as qa

pytestmark = pytest.mark.skipif(os.name == "nt", reason="streams are closed and full otherwise there")
FULL = "/dev/full"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network, an array and what commands need of them."""
    folder = tmp_path_factory.mktemp("files")
    small().save(folder / "net.npz")
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal((4, 64)))
    qa.save(folder / "q.npz", qa.encode([1, -1], values=(-1, 1)))
    return folder


COMMANDS = {
    "version": ["--version"],
    "help": ["compare", "--help"],
    "demo": ["demo", "--limit", "1", "--out", "d.png"],
    "run": ["run", "net.npz"],
    "info": ["info"],
    "info of an array": ["info", "q.npz"],
    "compare": ["compare", "x.npy", "--bits", "1"],
}


SOME = [pytest.param(name, marks=[] if name in ("help", "run") else pytest.mark.full) for name in COMMANDS]


def program(folder, *args, buffered=True, **streams):
    """The finished process `quantarray ARGS`; stderr is read unless it is among the streams."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(p) for p in sys.path if p])}
    environment.pop("PYTHONUNBUFFERED", None)
    if not buffered:
        environment["PYTHONUNBUFFERED"] = "1"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    command = [sys.executable, "-m", "quantarray", *map(str, args)]
    return subprocess.run(command, cwd=folder, env=environment, text=True, timeout=300, **streams)


def assert_one_line(done, *parts):
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("quantarray: error: "), done.stderr
    assert not [part for part in parts if part not in lines[0]], lines[0]


@pytest.mark.parametrize("name", SOME)
def test_a_reader_that_went_away(name, folder):
    """`quantarray info | head -1` is silent and ends with the status that a shell gives for SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = program(folder, *COMMANDS[name], stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists(FULL), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", SOME)
def test_a_full_disk(name, folder):
    with open(FULL, "w") as full:
        assert_one_line(program(folder, *COMMANDS[name], stdout=full), "No space left on device")


@pytest.mark.parametrize("name", SOME)
def test_a_closed_stdout(name, folder):
    """With stdout closed, nothing is computed."""
    done = program(folder, *COMMANDS[name], stdout=None, preexec_fn=lambda: os.close(1))
    assert_one_line(done, "stdout is closed")


@pytest.mark.skipif(not os.path.exists(FULL), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", ["help", "info of an array"])
def test_without_a_buffer(name, folder):
    """PYTHONUNBUFFERED: the same where each line is written at once."""
    with open(FULL, "w") as full:
        assert_one_line(program(folder, *COMMANDS[name], stdout=full, buffered=False), "No space left on device")
        done = program(folder, "info", "missing.npz", stderr=full, buffered=False)
        assert (done.returncode, done.stdout) == (2, "")


def test_nowhere_to_complain(folder):
    """If stderr is closed or full, the status tells of the error; stdout stays empty."""
    done = program(folder, "info", "missing.npz", stderr=None, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (2, "")
    if os.path.exists(FULL):
        with open(FULL, "w") as full:
            done = program(folder, "info", "missing.npz", stderr=full)
            assert (done.returncode, done.stdout) == (2, "")


# wrong files


def npy(path, array):
    with open(path, "wb") as file:  # whatever its ending
        np.save(file, array, allow_pickle=True)


def truncated(path):
    npy(path, np.ones((4, 64)))
    path.write_bytes(path.read_bytes()[:200])


def claiming(path):
    """Write a header that claims an exabyte."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"shape": (2**57,), "fortran_order": False, "descr": "<f8"})


def headed(path, header):
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


WRONG = {
    "strings": lambda p: npy(p, np.array(["a", "b"])),
    "bytes": lambda p: npy(p, np.array([b"a", b"b"])),
    "complex numbers": lambda p: npy(p, np.ones((2, 3), complex)),
    "dates": lambda p: npy(p, np.array(["2026-01-01"], "M8[D]")),
    "durations": lambda p: npy(p, np.ones(3, "m8[s]")),
    "records": lambda p: npy(p, np.zeros(3, [("a", "i4"), ("b", "f4")])),
    "raw bytes": lambda p: npy(p, np.zeros(3, "V4")),
    "long doubles": lambda p: npy(p, np.ones(3, np.longdouble)),
    "objects": lambda p: npy(p, np.array([None, 1])),
    "objects in records": lambda p: npy(p, np.zeros(3, [("a", object)])),
    "no axes": lambda p: npy(p, np.float32(3)),
    "no elements": lambda p: npy(p, np.zeros((0, 3))),
    "NaN": lambda p: npy(p, np.full((2, 3), np.nan)),
    "infinity": lambda p: npy(p, np.array([1.0, -np.inf])),
    "a truncated array": truncated,
    "an exabyte, it says": claiming,
    "nothing": lambda p: p.write_bytes(b""),
    "text": lambda p: p.write_text("hello"),
    "a magic alone": lambda p: p.write_bytes(b"\x93NUMPY\x01\x00"),
    "a header that is code": lambda p: headed(p, b"__import__('os')"),
    "a header of no fields": lambda p: headed(p, b"{}"),
    "a header of a negative shape": lambda p: headed(p, b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
    "a header of no dtype": lambda p: headed(p, b"{'descr': 'wrong', 'fortran_order': False, 'shape': (1,)}"),
    "an archive": lambda p: np.savez(p.open("wb"), x=np.ones(3)),
    "a folder": lambda p: p.mkdir(),
    "nothing at all": lambda p: None,
    "a link to itself": lambda p: p.symlink_to(p),
}


def refused(capsys, path, *args):
    """The one line of a command in this process that fails and names the file."""
    from quantarray.cli import main

    assert main([str(a) for a in args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("quantarray: error: "), err
    return err


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arrays(name, folder, tmp_path, capsys):
    """Each command that reads a .npy file refuses a wrong one."""
    path = tmp_path / "wrong.npy"
    WRONG[name](path)
    for args in (["compare", path], ["compare", path, "--json"], ["run", folder / "net.npz", "--input", path]):
        assert "compare: " in (said := refused(capsys, path, *args)) or "run: " in said or str(path) in said
    refused(capsys, path, "run", folder / "net.npz", "--labels", path)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_containers(name, tmp_path, capsys):
    """Each command that reads a network or an array refuses a wrong file, under any ending."""
    for ending in (".npz", ".npy", ".safetensors"):
        path = tmp_path / f"wrong{ending}"
        WRONG[name](path)
        for command in ("info", "run"):
            refused(capsys, path, command, path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads every file")
def test_files_that_may_not_be_read(folder, tmp_path, capsys):
    path = tmp_path / "closed.npy"
    np.save(path, np.ones(3))
    path.chmod(0)
    assert "Permission denied" in refused(capsys, path, "compare", path)


def test_wrong_arrays_by_subprocess(folder, tmp_path):
    """No traceback of a program either."""
    WRONG["strings"](tmp_path / "x.npy")
    assert_one_line(program(folder, "compare", tmp_path / "x.npy"), "x.npy must hold bool, integers or floats", "<U1")


# names and numbers that a stream or JSON does not have


@pytest.mark.full
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize(
    "name", [b"gr\xc3\xb6\xc3\x9fe.npz", "数.npz".encode(), b"\xff.npz"], ids=["ö", "数", "no text"]
)
def test_names_that_stdout_cannot_encode(name, encoding, folder, monkeypatch):
    """Such names are written as escapes, as on stderr; JSON has escapes of its own."""
    path = os.path.join(os.fsencode(folder), name)
    qa.save(path, qa.encode([1, -1], values=(-1, 1)))
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(part for part in sys.path if part))
    command = [sys.executable, "-m", "quantarray", "info"]
    done = subprocess.run([*command, path], capture_output=True, timeout=300, cwd=folder, check=False)
    shown = os.fsdecode(path).encode(encoding, "backslashreplace")
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(shown)
    missing = subprocess.run([*command, b"no" + name], capture_output=True, timeout=300, cwd=folder, check=False)
    assert missing.returncode == 2 and missing.stderr.count(b"\n") == 1
    assert missing.stderr.startswith(b"quantarray: error: [Errno 2] ")


def test_json_without_numbers_that_it_has_not(tmp_path, capsys):
    """Scores that are NaN or infinite become null, where Python's json would write what no other program reads."""
    import json

    from PIL import Image

    from quantarray.cli import main

    x, y = qa.nn.Value("x", (1, 2), "float32"), qa.nn.Value("y", (1, 2), "float32")
    x = qa.nn.Value("x", (1, 1, 2), "float32")
    nodes = [qa.nn.Node("Reshape", ("x",), ("flat",), {"shape": (0, 2)}), qa.nn.Node("Log", ("flat",), ("y",))]
    qa.nn.Graph([x], [y], nodes, {}).save(tmp_path / "net.qa")
    Image.fromarray(np.array([[0, 255]], np.uint8)).save(tmp_path / "x.png")
    assert main(["run", str(tmp_path / "net.qa"), str(tmp_path / "x.png"), "--top", "2", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [entry["score"] for entry in result["top"]] == [0.0, None]
