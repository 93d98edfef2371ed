"""Build the source archive and the wheel, check both, and try the wheel in fresh environments.

    pip install ".[release]" && python -m tools.check_release

Each Python of the classifiers is tried with the oldest and with the newest NumPy and Numba that the package allows. A
Python that is not on this machine (on PATH or of pyenv) is named and left out. Every trial has an empty home and an
empty folder, so that neither the checkout nor compiled kernels of another run are used. `--build-only` leaves these
trials out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MARK = "Programming Language :: Python :: "
PYTHONS = [c.removeprefix(MARK) for c in PROJECT["classifiers"] if c.startswith(f"{MARK}3.")]
# The first release that the lower bound of pyproject.toml takes and that has a wheel for this Python
OLDEST_NUMPY = {"3.11": "2.0.0", "3.12": "2.0.0", "3.13": "2.1.0"}
OLDEST_NUMBA = "0.61.0"
SMOKE = """
import numpy as np, quantarray as qa
rng = np.random.default_rng(0)
x, w = rng.choice([-1, 1], (4, 100)), rng.integers(0, 4, (6, 100))
a, b = qa.encode(x, values=(-1, 1)), qa.encode(w, values=range(4))
assert (qa.linear(a, b) == x @ w.T).all()
qa.save("b.qa", b)
assert qa.load("b.qa").digest() == b.digest() and (b.sum(axis=1) == w.sum(axis=1)).all()
print(qa.__version__)
"""


def run(*command: str | Path, cwd: Path | None = None, home: Path | None = None) -> str:
    """Run a command and return what it printed; raise RuntimeError with its output if it fails."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if home is not None:
        env |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def build(folder: Path) -> Path:
    """Build both archives, the wheel from the source archive; compare their files with git's; return the wheel."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", source, wheel)
    tracked = set(run("git", "ls-files", cwd=ROOT).splitlines())
    with tarfile.open(source) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    differ("the source archive", packed - {"PKG-INFO"}, tracked)
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    differ("the wheel", packed, {name for name in tracked if name.startswith("quantarray/")})
    return wheel


def differ(what: str, packed: set[str], tracked: set[str]) -> None:
    """Raise RuntimeError that lists files which an archive lacks or has too many."""
    if packed != tracked:
        raise RuntimeError(f"{what} lacks {sorted(tracked - packed)} and has besides {sorted(packed - tracked)}")


def interpreter(version: str) -> Path | None:
    """Find the Python of a version: on PATH, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for path in filter(None, candidates):
        works = subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
        if works:
            return Path(path)
    return None


def trial(wheel: Path, python: Path, constraints: list[str]) -> str:
    """Run the demo and a smoke test on the installed wheel; return one line of what was run."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        home, cwd = Path(folder, "home"), Path(folder, "cwd")
        home.mkdir()
        cwd.mkdir()
        run(python, "-m", "venv", Path(folder, "venv"))
        binaries = Path(folder, "venv", "Scripts" if os.name == "nt" else "bin")
        pip = binaries / "python", "-m", "pip", "--disable-pip-version-check"
        run(*pip, "install", "--quiet", "--only-binary=:all:", wheel, *constraints)
        run(*pip, "check")
        demo = json.loads(run(binaries / "quantarray", "demo", "--json", cwd=cwd, home=home))
        if demo["agreement"]["equal"] != demo["agreement"]["total"] or demo["accuracy"]["percent"] < 99:
            raise RuntimeError(f"the demo gives {demo}")
        if run(binaries / "python", "-c", SMOKE, cwd=cwd, home=home).strip() != wheel.name.split("-")[1]:
            raise RuntimeError("the version of the package is not that of the wheel")
        names = "import numpy, numba, sys; print('Python', sys.version.split()[0], 'NumPy', numpy.__version__, "
        line = run(binaries / "python", "-c", f"{names} 'Numba', numba.__version__)", cwd=cwd).strip()
    return f"{line}: demo and smoke test passed, {time.perf_counter() - start:.0f} s"


def main() -> None:
    """Print a line for each trial, and for each Python that is not here."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at once")
    parser.add_argument("--build-only", action="store_true", help="build and check the archives, and try nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        wheel = build(Path(folder))
        print(f"{wheel.name} and its source archive: built, all files there, descriptions valid", flush=True)
        trials: dict[Future[str], str] = {}
        for version in () if arguments.build_only else PYTHONS:
            python = interpreter(version)
            if python is None:
                print(f"Python {version}: not on this machine, not tried")
                continue
            oldest = [f"numpy=={OLDEST_NUMPY[version]}", f"numba=={OLDEST_NUMBA}"]
            for constraints, name in ((oldest, "oldest"), ([], "newest")):
                trials[pool.submit(trial, wheel, python, constraints)] = f"Python {version}, {name} allowed"
        errors = [error for future in as_completed(trials) if (error := reported(future, trials[future]))]
    if errors:
        raise SystemExit(f"{len(errors)} of {len(trials)} trials failed")


def reported(future: Future[str], name: str) -> BaseException | None:
    """Print a trial's line, or its error, and return the error: a trial that fails does not stop the others."""
    error = future.exception()
    print(f"{name}: {error or future.result()}", flush=True)
    return error


if __name__ == "__main__":
    main()
