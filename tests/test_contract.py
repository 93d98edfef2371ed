"""What holds the package together: kernels match their stubs, imports go one way, importing is cheap."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import quantarray
from quantarray import kernels
from quantarray.device import KERNELS, kernel

ROOT = Path(quantarray.__file__).parent
STUBS = {n: f for n, f in vars(kernels).items() if inspect.isfunction(f) and f.__module__ == kernels.__name__}


@pytest.mark.parametrize("name", STUBS)
def test_kernels_have_the_arguments_of_their_stubs(name):
    assert name in KERNELS, f"{name} is not in device.py"
    stub = list(inspect.signature(STUBS[name]).parameters)
    assert stub[-1] == "out" and STUBS[name].__doc__
    found = kernel("cpu", name)
    assert found.__name__ == name and list(inspect.signature(found).parameters) == stub
    twin = ROOT / "cuda" / f"{found.__module__.rpartition('.')[2]}.py"
    if twin.exists():  # read, not imported: that would need a GPU
        made = {f.name: [a.arg for a in f.args.args] for f in ast.parse(twin.read_text()).body if _is_function(f)}
        assert made.get(name, stub) == stub


def _is_function(node):
    return isinstance(node, ast.FunctionDef)


def test_every_kernel_of_the_device_table_has_a_stub():
    assert set(KERNELS) == set(STUBS)


def modules():
    return {str(f.relative_to(ROOT.parent).with_suffix("")).replace("/", "."): f for f in sorted(ROOT.rglob("*.py"))}


def imports(name, path):
    """The absolute names that a module imports anywhere, functions included."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    package = package.removesuffix(".__init__")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            found |= {f"{base}.{a.name}" for a in node.names}
    return found


GRAPH = {name: imports(name, path) for name, path in modules().items()}
ABOUT = "quantarray.machine", "quantarray.__version__"  # what a verdict about a machine's matrix unit holds for
RULES = [  # (whose modules, what they must not import)
    ("quantarray.format", "quantarray"),
    ("quantarray.errors", "quantarray"),
    ("quantarray.machine", "quantarray"),
    ("quantarray.forks", "quantarray"),
    ("quantarray.dtypes", "quantarray", "quantarray.forks", "quantarray.format"),
    (
        "quantarray.window",
        "quantarray",
        "quantarray.dtypes",
        "quantarray.forks",
        "quantarray.format",
        "quantarray.kernels",
    ),
    ("quantarray.kernels", "quantarray", "quantarray.dtypes"),
    ("quantarray.cpu", "quantarray", "quantarray.cpu", "quantarray.forks", "quantarray.format", *ABOUT),
    ("quantarray.cuda", "quantarray.cpu"),
    ("quantarray.cuda", "quantarray.nn"),
    ("quantarray.ops", "numba"),
    ("quantarray.ops", "cupy"),
    ("quantarray.ops", "quantarray.cpu"),
    ("quantarray.ops", "quantarray.cuda"),
    ("quantarray.ops", "quantarray.nn"),
    ("quantarray.ops", "quantarray.io"),
    ("quantarray.array", "numba"),
    ("quantarray.quantizers", "quantarray.ops"),
]


def _within(name, prefix):
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " -> ".join(rule[:2]))
def test_imports_go_one_way(rule):
    who, banned, *allowed = rule
    sources = {name: found for name, found in GRAPH.items() if _within(name, who)}
    assert sources, f"no module {who}"
    wrong = [
        f"{name} imports {target}"
        for name, targets in sources.items()
        for target in targets
        if _within(target, banned) and not any(_within(target, a) for a in allowed)
    ]
    assert not wrong


def test_the_graph_is_read_right():
    """Guard the reader above: a relative import and one inside a function."""
    assert "quantarray.format.word_count" in GRAPH["quantarray.ops.conversion"]
    assert "quantarray.ops.creation.make_constants" in GRAPH["quantarray.thresholds"]
    assert "quantarray.cpu.micro.TILE" in GRAPH["quantarray.cpu.conv"]


LOOK = """
import sys, time
import numpy
start = time.perf_counter()
import quantarray
print((time.perf_counter() - start) * 1000)
print(*sys.modules)
"""


def test_importing_loads_no_kernel_and_no_optional_package():
    """Kernels are compiled, or loaded, at their first call. The time is printed, not tested: machines differ."""
    out = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True).stdout.splitlines()
    print(f"import quantarray: {float(out[0]):.0f} ms after NumPy")
    loaded = set(out[1].split())
    assert "quantarray.ops.convolution" in loaded
    assert not loaded & {"cupy", "torch", "matplotlib", "safetensors", "quantarray.cpu.conv", "numba"}


WITHOUT_CUDA = """
import sys
sys.modules["numba_cuda"] = None
import quantarray as qa
from quantarray.device import kernel
try:
    kernel("cuda", "pack")
except qa.DeviceError as error:
    print(error)
print(qa.encode([1, -1], values=(-1, 1)).codes())
"""


def test_without_the_packages_for_cuda_one_message_says_what_to_install_and_the_cpu_works():
    out = subprocess.run([sys.executable, "-c", WITHOUT_CUDA], capture_output=True, text=True, check=True).stdout
    said, codes = out.splitlines()
    assert "pack: kernels for the device 'cuda' need the package numba_cuda" in said
    assert "pip install 'quantarray[cuda13]'" in said and ".to_device('cpu')" in said
    assert codes == "[1 0]"
