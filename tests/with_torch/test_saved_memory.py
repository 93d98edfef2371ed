"""Memory of the process under compressed activations: what was freed goes back to the system."""

import subprocess
import sys

import pytest

# 48 layers save 8 MB each, more than the 256 MiB from which on the heap is trimmed at the end of the block; their
# results are smaller than the largest block that glibc puts on its heap
CHILD = """
import sys, torch, quantarray as qa
from contextlib import nullcontext
from torch import nn
torch.set_num_threads(1)
def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024
model = nn.Sequential(*(nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU()) for _ in range(48)))
context = nullcontext() if sys.argv[1] == "exact" else qa.torch.compressed_activations(2)
def step(x):
    with context:
        y = model(x).sum()
    after = status("VmRSS")
    y.backward()
    return after
step(torch.randn(1, 8, 32, 32))
x = torch.randn(64, 8, 64, 64)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
after = step(x)
print(after - before, status("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and needs glibc")
def test_memory_comes_back():
    def grown(mode):
        run = subprocess.run([sys.executable, "-c", CHILD, mode], capture_output=True, text=True, check=True)
        return [float(number) for number in run.stdout.split()]

    exact, packed = grown("exact"), grown("2 bits")
    assert exact[0] > 100
    assert packed[0] < 0.4 * exact[0] and packed[1] < 0.9 * exact[1], (exact, packed)
