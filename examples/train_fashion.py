"""Train a network of few bits, or on compressed activations, on Fashion-MNIST.

    python examples/train_fashion.py --network lenet --scheme LQ --epochs 4 --out runs

Images come from Debian's package dataset-fashion-mnist, or from --data: a folder with its four files, or an .npz file
with train_images, train_labels, test_images and test_labels. `--start runs/lenet-float-0.pt` converts a trained float
network instead of starting from random weights; `--epochs 0` then shows its accuracy without fine-tuning.

A checkpoint is written every --save seconds and after each epoch. The same command goes on from it, to the same
numbers as without a stop. Results are in <out>/<name>.json, weights in <out>/<name>.pt. Needs numpy and torch.
"""

import argparse
import json
import math
import os
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from fashion_networks import DEBIAN, NETWORKS, SCHEMES, images, quantise
from torch import nn

import quantarray as qa

PADDING = {"resnet": 2}  # to 32 x 32


def parser():
    """Build the parser of the command line."""
    p = argparse.ArgumentParser(description="Train a network of few bits on Fashion-MNIST.")
    p.add_argument("--network", choices=NETWORKS, default="lenet")
    p.add_argument("--scheme", choices=SCHEMES, default="float")
    p.add_argument("--width", type=int, help="channels of the first convolution")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--rate", type=float, default=2e-3, help="highest learning rate of Adam")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--start", type=Path, help="a trained float network to convert")
    p.add_argument("--saved-bits", type=int, help="bits of the activations that the backward pass reads")
    p.add_argument("--device", default="cpu", help="such as cuda, which --saved-bits needs the extra cuda13 for")
    p.add_argument("--data", type=Path, default=DEBIAN)
    p.add_argument("--limit", type=int, help="use so many images of each part")
    p.add_argument("--out", type=Path, default=Path("runs"))
    p.add_argument("--name", help="of the files of this run")
    p.add_argument("--save", type=float, default=60.0, help="seconds between checkpoints")
    p.add_argument("--stop", type=int, help="stop after so many steps, to go on later")
    return p


def build(options, x):
    """Build the network, quantised; a float one that was trained becomes one with `--start`."""
    torch.manual_seed(options.seed)
    settings = {} if options.width is None else {"width": options.width}
    model = NETWORKS[options.network](x.shape[-1], **settings).to(options.device)
    if options.start is None:
        return quantise(model, options.scheme)
    model.load_state_dict(torch.load(options.start, weights_only=True)["model"])
    return quantise(model, options.scheme, x[:2048].split(256))


def rate_of(step, steps, highest):
    """highest * a ramp over the first tenth of the steps, then half a cosine to 0."""
    ramp = max(1, steps // 10)
    if step < ramp:
        return highest * (step + 1) / ramp
    return highest * (1 + math.cos(math.pi * (step - ramp) / max(1, steps - ramp))) / 2


@torch.no_grad()
def accuracy(model, x, y):
    """Return the percentage of images that the network names correctly, in evaluation mode."""
    model.eval()
    right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(500), y.split(500), strict=True))
    model.train()
    return 100 * right / len(y)


class Run:
    """A training run: network, optimizer, and what has been measured; all of it is in its checkpoint."""

    def __init__(self, options):
        self.options = options
        pad = PADDING.get(options.network, 0)
        self.train, self.test = (
            tuple(t[: options.limit].to(options.device) for t in images(options.data, part, pad))
            for part in ("train", "test")
        )
        self.model = build(options, self.train[0]).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.rate)
        self.steps_of_epoch = len(self.train[1]) // options.batch
        self.steps = options.epochs * self.steps_of_epoch
        self.step, self.history, self.seconds, self.loss, self.bytes = 0, [], [], 0.0, None
        name = f"{options.network}-{options.scheme}-{options.seed}"
        name += "-converted" * (options.start is not None)
        name += f"-saved{options.saved_bits}" * (options.saved_bits is not None)
        self.file = options.out / (options.name or name)

    def settings(self):
        """Return what must not change when a run goes on."""
        left = ("out", "name", "save", "stop", "data")
        return {k: str(v) if isinstance(v, Path) else v for k, v in vars(self.options).items() if k not in left}

    def resume(self):
        """Load the checkpoint, if there is one, to go on from it."""
        path = self.file.with_suffix(".pt")
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        if state["settings"] != self.settings():
            raise SystemExit(f"{path} is of another run: {state['settings']}; choose another --name or --out")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.history, self.seconds, self.loss = (state[k] for k in ("step", "history", "seconds", "loss"))
        print(f"{self.file.name}: goes on from step {self.step} of {self.steps}", flush=True)

    def save(self):
        """Write the checkpoint, whole or not at all."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"step": self.step, "history": self.history, "seconds": self.seconds, "loss": self.loss}
        temporary = self.file.with_suffix(".pt.part")
        torch.save(state | {"settings": self.settings()}, temporary)
        os.replace(temporary, self.file.with_suffix(".pt"))

    def compression(self):
        """Return the context of a step: random numbers are the step's own, so that a run can go on anywhere."""
        if self.options.saved_bits is None:
            return nullcontext()
        return qa.torch.compressed_activations(self.options.saved_bits, model=self.model, seed=self.step)

    def one_step(self, x, y):
        """Take a step of the optimizer; return the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate_of(self.step, self.steps, self.options.rate)
        with self.compression() as compression:
            loss = nn.functional.cross_entropy(self.model(x), y)
        if compression is not None:
            self.bytes = [compression.report.before, compression.report.after]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for part in self.model.modules():
            if isinstance(part, qa.torch.LSQ):  # a rate that is large beside a step makes it negative
                part.step.data.clamp_(min=1e-6)
        return loss.item()

    def batches(self):
        """Yield the batches of the steps that are left; each epoch has its own order, given by the seed."""
        (x, y), size = self.train, self.options.batch
        first, at = divmod(self.step, self.steps_of_epoch)
        for epoch in range(first, self.options.epochs):
            order = torch.from_numpy(np.random.default_rng([self.options.seed, epoch]).permutation(len(y))).to(y.device)
            for i in range(at if epoch == first else 0, self.steps_of_epoch):
                batch = order[i * size : (i + 1) * size]
                yield x[batch], y[batch]

    def go(self):
        """Train to the end, or to `--stop`."""
        saved = shown = time.monotonic()
        for x, y in self.batches():
            if self.step == self.options.stop:
                break
            start = time.perf_counter()
            loss = self.one_step(x, y)
            self.seconds.append(time.perf_counter() - start)
            self.loss += loss
            self.step += 1
            end = self.step % self.steps_of_epoch == 0
            if end:
                self.end_of_epoch()
            now = time.monotonic()
            if now - shown > 15:
                shown = now
                print(f"{self.file.name}: step {self.step} of {self.steps}, loss {loss:.3f}", flush=True)
            if end or now - saved > self.options.save:
                saved = now
                self.save()
        self.save()

    def end_of_epoch(self):
        """Note loss, accuracy and step time of an epoch."""
        percent = accuracy(self.model, *self.test)
        epoch = len(self.history) + 1
        row = {
            "epoch": epoch,
            "loss": self.loss / self.steps_of_epoch,
            "accuracy": percent,
            "step_ms": 1e3 * float(np.median(self.seconds)),
            "seconds": sum(self.seconds),
        }
        self.history.append(row)
        self.seconds, self.loss = [], 0.0
        print(f"{self.file.name}: epoch {epoch} of {self.options.epochs}, {percent:.2f} %", flush=True)

    def results(self):
        """Return settings, history and, with compressed activations, bytes of the last step."""
        results = {"settings": self.settings(), "torch": torch.__version__, "history": self.history}
        if self.bytes is not None:
            results["bytes"] = self.bytes
        return results


def main(arguments=None):
    """Train, and write results."""
    run = Run(parser().parse_args(arguments))
    run.file.parent.mkdir(parents=True, exist_ok=True)
    run.resume()
    start = accuracy(run.model, *run.test) if run.step == 0 and run.options.start else None
    run.go()
    path = run.file.with_suffix(".json")
    results = run.results()
    if start is not None:
        results["before"] = start
    elif path.exists():
        results["before"] = json.loads(path.read_text()).get("before")
    path.write_text(json.dumps(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    main()
