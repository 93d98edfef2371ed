"""All writers of files: modes, owners, links, FIFOs and devices; written whole or not at all."""

import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
from plain_files import small

import quantarray as qa
from quantarray import cli

pytestmark = pytest.mark.skipif(os.name == "nt", reason="modes, links and FIFOs of POSIX")
Q = qa.encode([1, -1, 1], values=(-1, 1))
NOBODY = 65534


def graph():
    x, y = qa.nn.Value("x", (1, 3), "float32"), qa.nn.Value("y", (1, 3), "float32")
    return qa.nn.Graph([x], [y], [qa.nn.Node("Add", ("x", "x"), ("y",))], {})


def command(*args):
    assert cli.main([str(a) for a in args]) == 0


def convert(path):
    source = path.with_name("source.npz")
    qa.save(source, Q)
    command("convert", source, path)


def run(path):
    command("run", small().save(path.with_name("net.npz")), "--output", path)


def compare(path):
    np.save(path.with_name("x.npy"), np.arange(8.0))
    command("compare", path.with_name("x.npy"), "--plot", path)


def drawn(path):
    boxes = qa.nn.detection.Boxes(np.array([[1, 2, 5, 6]]), np.array([0.9]), np.array([7]))
    qa.nn.detection.draw(path, np.zeros((8, 10, 3), np.uint8), boxes)


WRITERS = {
    "save.npz": lambda path: qa.save(path, Q),
    "save.safetensors": lambda path: qa.save(path, Q),
    "save.qa": lambda path: qa.save(path, Q),
    "dict.qa": lambda path: qa.save(path, {"q": Q}),
    "graph.qa": lambda path: graph().save(path),
    "graph.onnx": lambda path: graph().save(path),
    "layers.qa": lambda path: qa.nn.Sequential([qa.nn.MaxPool2d(2)]).save(path),
    "plot.svg": lambda path: graph().plot(path),
    "boxes.png": drawn,
    "compare.png": lambda path: qa.compare(np.arange(8.0), [qa.XNOR()], plot=path),
    "convert.qa": convert,
    "run.npy": run,
    "compared.png": compare,
    "demo.svg": lambda path: command("demo", "--limit", "1", "--out", path),
}
# One that writes at once, one whose library makes a file of its own
SOME = ["save.npz", "save.safetensors", "save.qa"]


@pytest.fixture(params=WRITERS)
def writer(request):
    """(name of the file, a function that writes it)."""
    return request.param, WRITERS[request.param]


@pytest.fixture(params=SOME)
def some(request):
    return request.param, WRITERS[request.param]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def is_whole(path, least=50):
    """True for a regular file with content, where no temporary file is left."""
    return path.is_file() and path.stat().st_size > least and not [p for p in path.parent.iterdir() if p.name[0] == "."]


def test_modes_are_kept(writer, tmp_path):
    name, write = writer
    for old in (0o600, 0o640, 0o666, 0o755):
        path = tmp_path / name
        write(path)
        path.chmod(old)
        before = path.stat().st_ino
        write(path)
        assert mode(path) == old and path.stat().st_ino != before and is_whole(path)


def test_new_files_have_the_mode_of_the_umask(writer, tmp_path):
    name, write = writer
    for mask in (0o022, 0o077, 0o000):
        path = tmp_path / f"{mask}{name}"
        before = os.umask(mask)
        try:
            write(path)
        finally:
            os.umask(before)
        assert mode(path) == 0o666 & ~mask and is_whole(path)


def test_links_stay(writer, tmp_path):
    """Relative, absolute and chained links, and one to a file that is not there yet."""
    name, write = writer
    (tmp_path / "other").mkdir()
    target, link, second = tmp_path / "other" / "data", tmp_path / name, tmp_path / f"second{name}"
    link.symlink_to("other/data")
    second.symlink_to(link)
    for path in (link, second):
        write(path)
        assert link.is_symlink() and second.is_symlink() and not target.is_symlink() and is_whole(target)
        target.chmod(0o600)
    assert mode(target) == 0o600 and is_whole(link)


def test_a_link_to_itself_is_refused(some, tmp_path):
    name, write = some
    (tmp_path / name).symlink_to(name)
    with pytest.raises(OSError, match=name) as refused:
        write(tmp_path / name)
    assert refused.value.filename == str(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_folder_is_refused(writer, tmp_path):
    name, write = writer
    if name in ("convert.qa", "run.npy", "compared.png", "demo.svg"):
        pytest.skip("a command, whose function is tested")
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError, match=name):
        write(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_other_names_of_a_file_keep_what_it_had(tmp_path):
    """Hard links keep the old content: an array that is mapped from the file does not change."""
    path, other = tmp_path / "a.qa", tmp_path / "b.qa"
    qa.save(path, Q)
    os.link(path, other)
    mapped = qa.load(path)
    qa.save(path, -Q)
    np.testing.assert_array_equal(qa.load(path).dequantize(), (-Q).dequantize())
    np.testing.assert_array_equal(qa.load(other).dequantize(), Q.dequantize())
    np.testing.assert_array_equal(mapped.dequantize(), Q.dequantize())


def test_a_fifo_gets_the_bytes_and_stays(tmp_path):
    fifo, read = tmp_path / "q.npz", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
    reader.start()
    qa.save(fifo, Q)
    reader.join(60)
    assert stat.S_ISFIFO(fifo.stat().st_mode) and [p.name for p in tmp_path.iterdir()] == ["q.npz"]
    (tmp_path / "read.npz").write_bytes(read[0])
    assert qa.load(tmp_path / "read.npz").digest() == Q.digest()


@pytest.mark.parametrize("name", WRITERS)
def test_devices_are_written_to(name, tmp_path):
    """Devices are written through links, whose endings name the format. Any write to a full one is an error."""
    path = tmp_path / name
    path.symlink_to("/dev/null")
    if name == "convert.qa":
        pytest.skip("it prints the size of the file")
    WRITERS[name](path)
    assert os.path.exists("/dev/null") and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    if os.path.exists("/dev/full") and name in SOME:
        path.unlink()
        path.symlink_to("/dev/full")
        with pytest.raises(OSError, match="save: No space left on device") as full:
            WRITERS[name](path)
        assert full.value.filename == str(path) and stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_stdout(tmp_path):
    """A link to /dev/stdout, where that is a pipe."""
    (tmp_path / "out.npz").symlink_to("/dev/stdout")
    code = "import sys, quantarray as qa; qa.save(sys.argv[1], qa.encode([1, -1, 1], values=(-1, 1)))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "out.npz"], capture_output=True, check=True)
    (tmp_path / "read.npz").write_bytes(done.stdout)
    assert qa.load(tmp_path / "read.npz").digest() == Q.digest()
    assert (tmp_path / "out.npz").is_symlink()


@pytest.mark.skipif(sys.platform != "linux", reason="extended attributes of Linux")
def test_extended_attributes_are_kept(some, tmp_path):
    name, write = some
    write(tmp_path / name)
    try:
        os.setxattr(tmp_path / name, "user.source", b"here")
    except OSError:
        pytest.skip("a file system without extended attributes")
    write(tmp_path / name)
    assert os.getxattr(tmp_path / name, "user.source") == b"here"


def access_list(*entries):
    """The attribute of an access control list: version 2, then (tag, permissions, id) of each entry."""
    return (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + permissions.to_bytes(2, "little") + number.to_bytes(4, "little")
        for tag, permissions, number in entries
    )


@pytest.mark.skipif(sys.platform != "linux", reason="extended attributes of Linux")
def test_access_control_lists_are_kept(some, tmp_path):
    """A list that names a user stays; one that the folder prescribes for new files opens no old file."""
    name, write = some
    nothing = 2**32 - 1
    named = access_list((1, 6, nothing), (2, 6, 1234), (4, 0, nothing), (16, 6, nothing), (32, 0, nothing))
    path, acl = tmp_path / name, "system.posix_acl_access"
    write(path)
    try:
        os.setxattr(path, acl, named)
    except OSError:
        pytest.skip("a file system without access control lists")
    write(path)
    assert os.getxattr(path, acl) == named
    os.removexattr(path, acl)
    path.chmod(0o640)
    os.setxattr(tmp_path, "system.posix_acl_default", named)
    write(path)
    assert acl not in os.listxattr(path) and mode(path) == 0o640


root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root changes owners")


@root
def test_root_keeps_owner_and_group(some, tmp_path):
    name, write = some
    write(tmp_path / name)
    os.chown(tmp_path / name, 1234, 2345)
    (tmp_path / name).chmod(0o640)
    write(tmp_path / name)
    status = (tmp_path / name).stat()
    assert (status.st_uid, status.st_gid, mode(tmp_path / name)) == (1234, 2345, 0o640)


def as_nobody(code, folder):
    """Run code in a process of the user nobody, which imports and compiles before it gives up root's rights."""
    text = f"""
import os, stat, sys
import quantarray as qa
q = qa.encode([1, -1, 1], values=(-1, 1))
os.chdir({str(folder)!r})
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
{code}
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@pytest.fixture
def opened(tmp_path):
    """A folder that nobody can reach."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    return tmp_path


@root
@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".qa"])
def test_what_may_not_be_written(ending, opened):
    """A folder, or a file, that is read-only: an error that says which, and nothing changed."""
    path = opened / f"q{ending}"
    qa.save(path, Q)
    before = path.read_bytes()
    path.chmod(0o666)
    opened.chmod(0o755)
    says = f"""
def refused(text):
    try:
        qa.save("q{ending}", -q)
    except PermissionError as error:
        assert text in str(error) and error.filename == "q{ending}", error
    else:
        raise AssertionError("it was written")
refused({{text!r}})
"""
    as_nobody(says.format(text="save: Permission denied: a file is replaced as a whole, so its folder"), opened)
    path.chmod(0o444)
    opened.chmod(0o777)
    as_nobody(says.format(text="save: Permission denied: the file is read-only"), opened)
    assert path.read_bytes() == before and [p.name for p in opened.iterdir()] == [path.name] and mode(path) == 0o444


@root
def test_another_group_gets_no_more_than_all_others(opened):
    """The user nobody replaces a file of a group to which it does not belong."""
    path = opened / "q.npz"
    qa.save(path, Q)
    os.chown(path, 1234, 2345)
    path.chmod(0o666)
    opened.chmod(0o777)
    as_nobody("qa.save('q.npz', q)", opened)
    assert mode(path) == 0o666 and path.stat().st_gid == NOBODY
    os.chown(path, NOBODY, 2345)
    path.chmod(0o664)
    as_nobody("qa.save('q.npz', q)", opened)
    assert mode(path) == 0o644 and path.stat().st_gid == NOBODY


def test_a_picture_needs_a_format(tmp_path):
    for name in ("boxes", "boxes.xyz"):
        with pytest.raises(ValueError, match=r"draw: the path must end in a format of pictures, such as \.png"):
            drawn(tmp_path / name)
    assert not list(tmp_path.iterdir())
