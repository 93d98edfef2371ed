"""What holds the package together: kernels match their stubs, imports have one direction, importing is cheap."""

import ast
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import quantarray
from quantarray.backends.registry import KERNELS, kernel
from quantarray.kernels import contract

ROOT = Path(quantarray.__file__).parent
LINT = Path(sys.executable).with_name("lint-imports")
LAYERS = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
STUBS = {
    n: f for n, f in vars(contract).items() if inspect.isfunction(f) and f.__module__.startswith("quantarray.kernels.")
}


@pytest.mark.parametrize("name", STUBS)
def test_kernels_have_the_arguments_of_their_stubs(name):
    assert name in KERNELS, f"{name} is not in backends/registry.py"
    stub = list(inspect.signature(STUBS[name]).parameters)
    assert stub[-1] == "out" and STUBS[name].__doc__
    found = kernel("cpu", name)
    assert found.__name__ == name and list(inspect.signature(found).parameters) == stub
    twin = ROOT / "cuda" / Path(*found.__module__.split(".")[2:]).with_suffix(".py")
    if twin.exists():  # read, not imported: that would need a GPU
        made = {f.name: [a.arg for a in f.args.args] for f in ast.parse(twin.read_text()).body if _is_function(f)}
        assert made.get(name, stub) == stub


def _is_function(node):
    return isinstance(node, ast.FunctionDef)


def test_every_kernel_of_the_device_table_has_a_stub():
    assert set(KERNELS) == set(STUBS)


PACKAGE = sorted(ROOT.rglob("*.py"))
BY_STRING = {"__init__.py", "backends/registry.py"}  # lazy names of the package, and kernels by device
TYPED_UP = {  # imports for type checkers that point up: methods that are attached from above
    ("arrays/array.py", "methods"),
}


def test_imports_go_one_way():
    """The layers of pyproject.toml hold, with late imports counted; imports only for type checkers are listed below."""
    out = subprocess.run([LINT], cwd=ROOT.parent, capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr


def test_imports_by_string_stand_in_two_files():
    """import-linter reads import statements only."""
    called = ("import_module", "import__", "spec_from_file_location", "run_module")
    users = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")).lstrip("_") in called
    }
    assert users == BY_STRING


def typed_up(path):
    """Yield the layers above a file's own that it imports for type checkers alone."""
    here = path.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for one in ast.walk(node):
                if isinstance(one, ast.ImportFrom) and one.level == len(here) and one.module:
                    yield one.module.partition(".")[0]


def test_imports_for_type_checkers_that_point_up_are_listed():
    layers = [name for layer in reversed(LAYERS) for name in layer.replace("|", " ").split()]
    rank = {name.strip(): i for i, name in enumerate(layers)}
    up = {
        (path.relative_to(ROOT).as_posix(), target)
        for path in PACKAGE
        for target in typed_up(path)
        if (here := path.relative_to(ROOT).parts[0].removesuffix(".py")) in rank and rank[target] > rank[here]
    }
    assert up == TYPED_UP


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
    assert "quantarray.ops.products.convolution" in loaded
    assert not loaded & {"cupy", "torch", "matplotlib", "safetensors", "quantarray.cpu.popcount.conv", "numba"}


WITHOUT_CUDA = """
import sys
sys.modules["numba_cuda"] = None
import quantarray as qa
from quantarray.backends.registry import kernel
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
