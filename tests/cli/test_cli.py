"""The command line, in this process; one subprocess shows that `python -m quantarray` is wired."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from plain_files import Builder, rewrite, small

import quantarray as qa
from quantarray.cli import main, output, picture
from quantarray.cli.info import isa, kernels
from quantarray.core import progress


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A network of six samples, four scores and labels that the first five scores meet."""
    folder = tmp_path_factory.mktemp("cli")

    def label(meta, arrays):
        arrays["labels"] = arrays["expected"].argmax(axis=1).astype(np.uint8)
        arrays["labels"][5] ^= 1

    return rewrite(small().save(folder / "plain.npz"), folder / "net.npz", label)


@pytest.fixture(scope="module")
def wrong(net, tmp_path_factory):
    """The same with one expected integer changed."""

    def change(meta, arrays):
        arrays["expected"][2, 1] += 1

    return rewrite(net, tmp_path_factory.mktemp("cli") / "wrong.npz", change)


def call(capsys, *args):
    """(exit code, stdout, stderr)."""
    status = main([str(a) for a in args])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def error(capsys, *args):
    """The one line that a failing command prints."""
    status, out, err = call(capsys, *args)
    assert (status, out) == (2, "")
    assert err.startswith("quantarray: error: ") and err.count("\n") == 1 and "Traceback" not in err
    return err


COMMANDS = ("run", "info", "profile", "convert", "compare", "search", "demo", "warm")


# the program


def test_the_program_alone_prints_help(capsys):
    status, out, err = call(capsys)
    assert (status, err) == (0, "") and out == call(capsys, "--help")[1]
    assert " | ".join(COMMANDS) in out


def test_version_by_module():
    made = subprocess.run([sys.executable, "-m", "quantarray", "--version"], capture_output=True, text=True)
    assert (made.returncode, made.stdout) == (0, f"quantarray {qa.__version__}\n")


def test_version_and_help(capsys):
    assert call(capsys, "--version")[:2] == (0, f"quantarray {qa.__version__}\n")
    for args in (["--help"], *([name, "--help"] for name in COMMANDS)):
        status, out, _ = call(capsys, *args)
        assert status == 0 and out.startswith("usage: quantarray")


def test_wrong_arguments_are_one_line(capsys):
    assert "invalid choice: 'walk'" in error(capsys, "walk")
    assert "required: NET (see quantarray run --help)" in error(capsys, "run")
    assert "--limit: needs a positive integer, got '0'" in error(capsys, "demo", "--limit", "0")
    assert "unrecognized arguments: --fast" in error(capsys, "info", "--fast")


# run


def test_run_reports(net, capsys):
    status, out, err = call(capsys, "run", net)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"made up: 4 layers, input 6 x 5 x 3, {net}"
    rows = [line.split() for line in lines]
    assert ["0", "conv2d", "3x3", "3", "->", "5", "6", "x", "5", "x", "5", "1", "240", "360"] in rows
    assert ["3", "dense", "28", "->", "4", "4", "32", "16", "32"] in rows
    assert "agreement: 24 of 24 expected integers equal, exact" in lines
    assert "accuracy:  5 of 6 right, 83.33 %" in lines
    assert "images/s" in lines[-1] and "compilation is not in it" in lines[-1]


def test_run_as_json(net, capsys):
    status, out, _ = call(capsys, "run", net, "--json", "--limit", 3)
    facts = json.loads(out)
    assert status == 0
    assert facts["agreement"] == {"equal": 12, "total": 12}
    assert facts["accuracy"] == {"right": 3, "total": 3, "percent": 100.0}
    assert (facts["network"], facts["images"]) == ("made up", 3)
    assert facts["layers"][2] == {
        "name": "conv2d 2x1 5 -> 7", "shape": [2, 2, 7], "bits": 2, "bytes": 64, "weight_bytes": 224
    }  # fmt: skip
    assert facts["seconds"] > 0 and facts["images_per_second"] == pytest.approx(3 / facts["seconds"])


def test_the_table_is_what_a_run_makes(net):
    network = qa.nn.load_network(net)
    records = network.layers.trace(network.encode_input(network.plain.input[:1]))
    for row, record in zip(output.layer_rows(network), records, strict=True):
        assert tuple(row["shape"]) == record.shape[1:]
        assert (row["name"], row["bits"], row["bytes"]) == (record.name, record.bits, record.nbytes)
        assert row["weight_bytes"] == record.weight_nbytes


def test_the_table_of_a_network_that_begins_with_a_pool(tmp_path):
    made = Builder(0, (8, 8, 3), table=range(100)).pool(2, 2).conv((2, 1, 1))
    network = qa.nn.load_network(made.save(tmp_path / "n.npz"))
    assert [(row["bits"], row["bytes"]) for row in output.layer_rows(network)] == [(7, 4 * 4 * 7 * 8), (1, 4 * 4 * 8)]


def test_check(net, wrong, capsys):
    assert call(capsys, "run", net, "--check")[0] == 0
    status, out, _ = call(capsys, "run", wrong, "--check")
    assert status == 1 and "agreement: 23 of 24 expected integers equal, NOT exact" in out
    assert call(capsys, "run", wrong)[0] == 0
    assert call(capsys, "run", wrong, "--check", "--limit", 2)[0] == 0
    assert "takes no --input" in error(capsys, "run", net, "--check", "--input", "x.npy")


def test_run_on_other_inputs(net, tmp_path, capsys):
    network = qa.nn.load_network(net)
    x = np.random.default_rng(0).integers(0, 17, (150, 6 * 5, 3)).astype(np.uint8)
    guesses = network(x.reshape(-1, 6, 5, 3)).argmax(axis=1)
    guesses[:15] ^= 1
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", guesses)
    facts = json.loads(call(capsys, "run", net, "--input", tmp_path / "x.npy", "--json")[1])
    assert (facts["images"], facts["agreement"], facts["accuracy"]) == (150, None, None)
    guesses[:15] ^= 1
    assert facts["predictions"] == guesses[:20].tolist()
    given = ("--input", tmp_path / "x.npy", "--output", tmp_path / "scores.npy")
    said = call(capsys, "run", net, *given)[1]
    shown = " ".join(map(str, guesses[:20]))
    assert f"predicted: {shown} .., the first of 150; --output writes all scores" in said
    assert (np.load(tmp_path / "scores.npy").argmax(axis=1) == guesses).all()
    assert f"predicted: {' '.join(map(str, guesses[:3]))}\n" in call(capsys, "run", net, *given, "--limit", 3)[1]
    guesses[:15] ^= 1
    given = ("--input", tmp_path / "x.npy", "--labels", tmp_path / "y.npy")
    assert "accuracy:  135 of 150 right, 90.00 %" in call(capsys, "run", net, *given)[1]
    assert "accuracy:  85 of 100 right, 85.00 %" in call(capsys, "run", net, *given, "--limit", 100)[1]


def test_run_on_images_for_a_dense_layer(tmp_path, capsys):
    made = Builder(0, (12,)).dense(3)
    np.save(tmp_path / "x.npy", made.arrays["input"].reshape(-1, 3, 4))
    status, out, _ = call(capsys, "run", made.save(tmp_path / "n.npz"), "--input", tmp_path / "x.npy", "--json")
    assert status == 0 and json.loads(out)["images"] == 2


def test_run_a_network_that_ends_in_codes(tmp_path, capsys):
    path = Builder(0, (6, 6, 3)).conv((4, 3, 3), values=(1, -1)).save(tmp_path / "n.npz")
    assert "agreement: 128 of 128 expected integers equal" in call(capsys, "run", path, "--check")[1]
    np.save(tmp_path / "y.npy", np.zeros(2, int))
    assert "no class scores" in error(capsys, "run", path, "--labels", tmp_path / "y.npy")


def test_run_refuses(net, tmp_path, capsys):
    def saved(name, a):
        np.save(tmp_path / name, a)
        return tmp_path / name

    float_x, odd, beyond = np.zeros((2, 6, 5, 3)), np.zeros((2, 7, 5, 3), np.uint8), np.full((2, 6, 5, 3), 17, np.uint8)
    for name in ("y.npz", "no/y.npy"):
        assert name in error(capsys, "run", net, "--output", tmp_path / name)
    objects = saved("objects.npy", np.array([None]))
    assert "Python objects, which are never loaded" in error(capsys, "run", net, "--input", objects)
    assert "must be uint8" in error(capsys, "run", net, "--input", saved("f.npy", float_x))
    assert "must be ('N', 6, 5, 3), got (2, 7, 5, 3)" in error(capsys, "run", net, "--input", saved("o.npy", odd))
    assert "17 entries, got the byte 17" in error(capsys, "run", net, "--input", saved("b.npy", beyond))
    assert "must be integers (6,), got int64 (2,)" in error(capsys, "run", net, "--labels", saved("y.npy", [1, 2]))
    assert "there are no inputs" in error(capsys, "run", net, "--input", saved("n.npy", beyond[:0]))
    assert "got an archive" in error(capsys, "run", net, "--input", net)
    (tmp_path / "text.npy").write_text("hello")
    assert "not a whole .npy file" in error(capsys, "run", net, "--input", tmp_path / "text.npy")
    assert "No such file" in error(capsys, "run", tmp_path / "nothing.npz")
    assert "not a whole quantarray file" in error(capsys, "run", tmp_path / "text.npy")
    (tmp_path / "text.npz").write_text("hello")
    assert "not a plain network" in error(capsys, "run", tmp_path / "text.npz")


def test_progress_shows_on_terminals_and_long_runs_only(net, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    assert call(capsys, "run", net)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, out, err = call(capsys, "run", net)
    assert f"\r[{'#' * 30}] 6 of 6" in err and err.endswith("\r\x1b[K") and "\r" not in out
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    assert call(capsys, "run", net)[2] == ""


# info


def test_info_on_the_machine(capsys):
    facts = json.loads(call(capsys, "info", "--json")[1])
    assert facts["versions"]["quantarray"] == qa.__version__
    assert set(facts["versions"]) == {"quantarray", "python", "numpy", "numba", "llvmlite"}
    assert facts["threads"]["count"] >= 1 and facts["cpu"]["name"]
    assert facts["threads"]["pool"].split(":")[0] in ("own", "shared", "numba")
    assert isinstance(facts["gpu"], dict) or facts["gpu"].startswith("none: ")
    status, out, _ = call(capsys, "info")
    assert status == 0 and "\ngpu " in out and "QUANTARRAY_CPU" in out


def test_info_on_a_gpu(capsys, monkeypatch):
    monkeypatch.delenv("QUANTARRAY_CUDA", raising=False)
    for capability, chosen in (((9, 0), "wgmma: "), ((8, 9), "bmma: "), ((12, 0), "imma: ")):
        monkeypatch.setattr("quantarray.cli.info.first_gpu", lambda op, found=capability: ("a GPU", found))
        gpu = json.loads(call(capsys, "info", "--json")[1])["gpu"]
        assert gpu["name"] == "a GPU" and gpu["compute capability"] == ".".join(map(str, capability))
        assert gpu["kernels"].startswith(chosen)
        assert "QUANTARRAY_CUDA=popc, bmma, wgmma, imma forces one" in gpu["kernels"]
        assert (
            f"gpu       name a GPU, compute capability {capability[0]}.{capability[1]}, kernels {chosen}"
            in call(capsys, "info")[1]
        )
    monkeypatch.setenv("QUANTARRAY_CUDA", "bmma")
    assert "kernels none: QUANTARRAY_CUDA=bmma needs a GPU of compute capability 8.0" in call(capsys, "info")[1]


def test_info_without_a_gpu(capsys, monkeypatch):
    """No package, no driver, no device: each says so."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "none: arrays on a GPU need CuPy; install it with" in call(capsys, "info")[1]
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1 // 0,
        driverGetVersion=lambda: 13000,
        getDeviceProperties=lambda number: {"name": "a GPU", "major": 9, "minor": 0},
    )
    failing = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", failing)
    assert (
        "none: no GPU can be used: integer division or modulo by zero; see that nvidia-smi" in call(capsys, "info")[1]
    )
    failing.cuda.runtime.getDeviceCount = lambda: 0
    assert "none: no GPU can be used: it sees none" in call(capsys, "info")[1]
    failing.cuda.runtime.getDeviceCount = lambda: 1
    monkeypatch.setattr(sys.modules["quantarray.backends.registry"], "find_spec", lambda name: None)
    assert "none: CUDA kernels need numba-cuda; install it with" in call(capsys, "info")[1]


@pytest.mark.parametrize(
    ("name", "features", "said"),
    [
        ("amx", {"avx2", "avx512f", "avx512vpopcntdq", "amx-int8"}, "tdpbusd"),
        ("avx512", {"avx2", "avx512f", "avx512vpopcntdq"}, "avx512vpopcntdq"),
        ("avx512", {"avx2", "avx512f", "amx-int8"}, "its matrix unit is not used: ended by SIGILL"),
        ("avx512bw", {"avx2", "avx512f"}, "two pixels"),
        ("avx2", {"avx2", "avx512f", "avx512vpopcntdq"}, "byte shuffles"),
        ("neon", {"neon"}, "cnt"),
        ("portable", set(), "bit arithmetic"),
    ],
)
def test_info_says_how_ones_are_counted(name, features, said, monkeypatch):
    monkeypatch.delenv("QUANTARRAY_CPU", raising=False)
    monkeypatch.setattr(isa, "why_no_matrix_unit", lambda: "ended by SIGILL")
    assert said in kernels(name, features)


def test_info_says_who_asked_for_no_matrix_unit(monkeypatch):
    monkeypatch.setenv("QUANTARRAY_CPU", "avx512")
    assert "not used: QUANTARRAY_CPU asks for none" in kernels("avx512", {"amx-int8"})


def test_info_on_a_container(tmp_path, capsys):
    w = qa.quantize(np.float32([[1, -3], [0.5, 0.5]]), qa.Sign(scale=True), scale_axis=0)
    for name in ("q.npz", "q.safetensors"):
        qa.save(tmp_path / name, w)
        facts = json.loads(call(capsys, "info", tmp_path / name, "--json")[1])
        assert (facts["shape"], facts["dtype"], facts["bits"], facts["axis"]) == ([2, 2], str(w.dtype), 1, 1)
        assert (facts["constants"], facts["digest"]) == ({"scale": [2, 1]}, w.digest())
        status, out, _ = call(capsys, "info", tmp_path / name)
        assert status == 0 and w.digest() in out and "2 x 2" in out


def test_info_on_a_network(net, capsys):
    status, out, _ = call(capsys, "info", net)
    assert status == 0 and "conv2d 3x3 3 -> 5" in out and "samples: 6, with labels" in out
    facts = json.loads(call(capsys, "info", net, "--json")[1])
    assert (facts["network"], facts["input"], len(facts["layers"])) == ("made up", [6, 5, 3], 4)


def test_info_on_neither(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    said = error(capsys, "info", tmp_path / "other.npz")
    assert "is not a whole quantarray file" in said and "is not a plain network" in said
    (tmp_path / "text.txt").write_text("hello")
    assert "must end in .npz, .safetensors, .qa" in error(capsys, "info", tmp_path / "text.txt")
    assert "No such file" in error(capsys, "info", tmp_path / "nothing.npz")


# demo


def test_demo(tmp_path, capsys):
    path = tmp_path / "demo.png"
    status, out, _ = call(capsys, "demo", "--out", path)
    assert status == 0 and path.read_bytes().startswith(b"\x89PNG")
    assert "446 of 450 right, 99.11 %" in out
    assert "4,500 of 4,500 integer scores equal the training framework's" in out
    assert f"picture:      {path}" in out


def test_demo_as_json_on_a_few_images(tmp_path, capsys):
    status, out, _ = call(capsys, "demo", "--out", tmp_path / "demo.png", "--limit", 5, "--json")
    facts = json.loads(out)
    assert (status, facts["images"], facts["agreement"]) == (0, 5, {"equal": 50, "total": 50})
    weights = 9 * 1 * 64 + 9 * 64 * 64 + 9 * 64 * 128 + 512 * 10
    assert facts["memory"]["weights"]["float32"] == 4 * weights
    # 64 bits a word: the first convolution's one input channel takes a word a tap
    assert facts["memory"]["weights"]["packed"] == 8 * 9 * 64 + (9 * 64 * 64 + 9 * 64 * 128 + 512 * 10) // 8


def test_demo_without_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(picture, "available", lambda: False)
    status, out, err = call(capsys, "demo", "--out", tmp_path / "demo.png", "--limit", "3")
    assert (status, err) == (0, "") and "pip install 'quantarray[plot]'" in out
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.parametrize("name", ["x", "x.txt"])
def test_demo_of_another_ending(name, tmp_path, capsys):
    assert "demo: --out must end in .png, .svg, .pdf, got" in error(capsys, "demo", "--out", tmp_path / name)


def test_demo_into_a_folder_that_is_not_there(tmp_path, capsys):
    assert "No such file" in error(capsys, "demo", "--out", tmp_path / "no" / "demo.png", "--limit", "3")


def test_pictures_show_every_wrong_image():
    wrong = np.zeros(100, bool)
    wrong[[3, 98, 99]] = True
    chosen = picture.choose(wrong, 10)
    assert chosen.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 98, 99]
    assert picture.choose(wrong[:4], 10).tolist() == [0, 1, 2, 3]


def test_tiles_put_maps_side_by_side():
    codes = np.zeros((24, 24, 3), np.uint8)
    codes[:, :, 1] = 1
    sheet = picture.tiles(codes, 2)
    assert sheet.shape == (2 * 27 + 3, 2 * 27 + 3)
    assert (sheet[3:27, 30:54] == 1).all() and (sheet[30:54, 3:27] == 0).all() and sheet[0, 0] == 0.35
    assert picture.tiles(codes[:4, :4], 3).shape == (24 + 6, 3 * 27 + 3)


def test_messages_stay_on_one_line(capsys, monkeypatch):
    def fail(args):
        raise ValueError("two\nlines")

    monkeypatch.setattr("quantarray.cli.info.info", fail)
    assert error(capsys, "info") == "quantarray: error: two lines\n"
