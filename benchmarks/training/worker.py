"""Measure one model in one mode: `python -m benchmarks.training.worker '{"model": "resnet18", ..}'`.

It prints a JSON object. Memory of a CPU is the resident memory of the process, beyond that before the step.
"""

import copy
import json
import statistics
import sys
import time
from contextlib import nullcontext

import torch

import quantarray as qa

from .models import batch, model

LEVELS = ("L0", "L1", "L2", "L3", "L4")
WARM = 2  # images of the first step, which loads and compiles what steps need


def context_of(mode, network):
    """Return the context of a mode: "exact", a level, or a number of bits such as "2 bits"."""
    if mode == "exact":
        return nullcontext()
    settings = {"level": mode} if mode in LEVELS else {"bits": int(mode.split()[0])}
    return qa.torch.compressed_activations(model=network, **settings)


def resident(name):
    """Return VmRSS or VmHWM of this process in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) << 10


class Memory:
    """A measure of a device's memory: bytes that are held beyond those at the start, and most since then."""

    def __init__(self, device):
        self._gpu = device == "cuda"
        if self._gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            with open("/proc/self/clear_refs", "w") as peaks:
                peaks.write("5")
        self._start = self._now()

    def _now(self):
        return torch.cuda.memory_allocated() if self._gpu else resident("VmRSS")

    def held(self):
        """Return the bytes that are held now."""
        return self._now() - self._start

    def peak(self):
        """Return the most bytes that were held."""
        return (torch.cuda.max_memory_allocated() if self._gpu else resident("VmHWM")) - self._start


def steps(job):
    """Measure steps of SGD: seconds, bytes after the forward pass and at the peak, bytes that are saved."""
    device, name, size = job["device"], job["model"], job["size"]
    network = model(name, size).to(device)
    # A rate of 0 does the same work, and random weights stay those of the first step
    context, optimizer = context_of(job["mode"], network), torch.optim.SGD(network.parameters(), 0.0)
    seconds, held, peak = [], [], []
    for count in (WARM, *[job["batch"]] * job["steps"]):
        x, labels = (tensor.to(device) for tensor in batch(name, count, size))
        memory = Memory(device)
        begin = time.perf_counter()
        with context, torch.autocast(device, torch.bfloat16, enabled=job["bfloat16"]):
            loss = torch.nn.functional.cross_entropy(network(x), labels)
        after = memory.held()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()  # which waits for a GPU
        seconds.append(time.perf_counter() - begin)
        held.append(after)
        peak.append(memory.peak())
        del loss
    row = {"seconds": statistics.median(seconds[1:]), "held": max(held[1:]), "peak": max(peak[1:]), "loss": value}
    if job["mode"] != "exact":
        row["saved"] = [context.report.before, context.report.after]
    return row


def gradients(job):
    """Compare gradients at 8 and 2 bits with exact ones: the norm of the difference over that of the exact ones."""
    network = model(job["model"], job["size"])
    x, labels = batch(job["model"], job["batch"], job["size"])

    def step(mode):
        one = copy.deepcopy(network)
        torch.manual_seed(2)
        context = context_of(mode, one)
        with context:
            loss = torch.nn.functional.cross_entropy(one(x), labels)
        loss.backward()
        each = torch.cat([p.grad.flatten() for p in one.parameters() if p.grad is not None])
        return loss.item(), each, 1.0 if mode == "exact" else context.report.ratio

    loss, exact, _ = step("exact")
    row = {"loss": loss}
    for mode in ("8 bits", "2 bits"):
        value, packed, ratio = step(mode)
        off = float((packed - exact).norm() / exact.norm())
        row[mode] = {"loss is equal": value == loss, "error": off, "ratio": ratio}
    return row


def main(text):
    """Measure what a job says, and print it."""
    job = json.loads(text)
    torch.set_num_threads(job["threads"])
    print(json.dumps((gradients if job["mode"] == "gradients" else steps)(job)))


if __name__ == "__main__":
    main(sys.argv[1])
