"""Turn trained networks of `train_fashion.py` into packed ones, compare all codes and answers, and time both.

    python examples/pack_fashion.py runs/lenet-W1A1-0.pt runs/lenet-LQ-0.pt --time

The packed network comes from `qa.nn.from_torch`. Results are in <network>.packed.json. Needs numpy and torch.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from fashion_networks import DEBIAN, NETWORKS, images, quantise
from torch import nn

import quantarray as qa

LAYERS = (qa.torch.QuantConv2d, qa.torch.QuantLinear)


class Flat(nn.Module):
    """A network's scores as [n 10]; with `codes=True` also the values of each quantiser of activations before them."""

    def __init__(self, model, codes=False):
        super().__init__()
        self.model, self.codes = model, codes

    def forward(self, x):
        """Return scores, or (values of the first quantiser, .., scores)."""
        values = []
        for part in self.model:
            if self.codes and isinstance(part, LAYERS):
                values.append(part.activations(x))
            x = part(x)
        scores = x.reshape(len(x), -1)
        return (*values, scores) if self.codes else scores


def packed(model, x, codes=False):
    """Build the packed network of a module, for images like x."""
    return qa.nn.from_torch(Flat(model, codes).eval(), x[:1])


# Comparing and timing


def load(path):
    """Load a trained network: (module in evaluation mode, settings of its run)."""
    state = torch.load(path, weights_only=True)
    settings = state["settings"]
    if settings["network"] not in ("lenet", "vgg"):
        raise SystemExit(f"{path}: only lenet and vgg, chains of layers, are packed here")
    width = {} if settings["width"] is None else {"width": settings["width"]}
    model = quantise(NETWORKS[settings["network"]](**width), settings["scheme"])
    model.load_state_dict(state["model"])
    return model.eval(), settings


def reference(model, x):
    """Run the module itself: ([(quantiser, what it takes, its values)] of each layer's activations, scores)."""
    seen = []
    for part in model:
        if isinstance(part, LAYERS):
            seen.append((part.activations, x, part.activations(x).numpy()))
        x = part(x)
    return seen, x.numpy()


def at_boundary(scheme, x, got, unequal):
    """Count the unequal codes that the scheme itself gives for x moved by 1e-5."""
    near = [np.abs(scheme(x + d).numpy() - got)[unequal] < 1e-5 for d in (-1e-5, 1e-5)]
    return int((near[0] | near[1]).sum())


@torch.no_grad()
def compare(model, x, y, batch=500):
    """Count the codes and answers of the packed network that differ from the module's.

    Codes after one that differs are not counted: codes of an image end with the first quantiser that has such.
    """
    graph = packed(model, x, codes=True)
    counts = dict.fromkeys("codes codes_differ at_boundary images_with_such answers_differ".split(), 0)
    right, apart = 0, 0.0
    for part, labels in zip(x.split(batch), y.split(batch), strict=True):
        *codes, scores = graph(part.numpy()).values()
        seen, truth = reference(model, part)
        equal = np.ones(len(part), bool)
        for code, (scheme, taken, value) in zip(codes, seen, strict=True):
            got = code.reshape(value.shape)
            unequal = np.abs(got - value) > 1e-5 * np.abs(value).max()  # the same code has values that round alike
            unequal[~equal] = False
            counts["codes"] += int(equal.sum()) * value[0].size
            counts["codes_differ"] += int(unequal.sum())
            counts["at_boundary"] += at_boundary(scheme, taken, got, unequal) if unequal.any() else 0
            equal &= ~unequal.reshape(len(part), -1).any(axis=1)
        counts["images_with_such"] += int((~equal).sum())
        counts["answers_differ"] += int((scores.argmax(1) != truth.argmax(1)).sum())
        right += int((scores.argmax(1) == labels.numpy()).sum())
        apart = max(apart, float(np.abs(scores - truth)[equal].max(initial=0)))
    return {"images": len(y), **counts, "scores_apart": apart, "accuracy": 100 * right / len(y)}


@torch.no_grad()
def time_both(model, settings, x, rounds=5, calls=8):
    """Return the medians in ms of the packed network and of PyTorch on the float network, for a batch.

    They run in turns of `calls` calls, of which the first two are left out: threads of the other may still spin then.
    The packed network is prepared, and called until its plan is there.
    """
    width = {} if settings["width"] is None else {"width": settings["width"]}
    graph, floats = packed(model, x).prepared(), NETWORKS[settings["network"]](x.shape[-1], **width).eval()
    both, times = {"packed": lambda: graph(x.numpy()), "float": lambda: floats(x)}, {"packed": [], "float": []}
    for _ in range(3):
        graph(x.numpy())
    for _ in range(rounds):
        for name, call in both.items():
            for i in range(calls):
                start = time.perf_counter()
                call()
                if i >= 2:
                    times[name].append(1e3 * (time.perf_counter() - start))
    return {f"{name}_ms": float(np.median(t)) for name, t in times.items()} | {"batch": len(x)}


def main(arguments=None):
    """Compare each network, or time it, and write the results."""
    parser = argparse.ArgumentParser(description="Compare packed networks with the modules they come from.")
    parser.add_argument("networks", type=Path, nargs="+")
    parser.add_argument("--time", action="store_true", help="time a batch of 64 only")
    parser.add_argument("--limit", type=int, help="compare so many images")
    parser.add_argument("--data", type=Path, default=DEBIAN)
    options = parser.parse_args(arguments)
    for path in options.networks:
        model, settings = load(path)
        x, y = images(options.data, "test")
        x, y = x[: options.limit], y[: options.limit]
        results = time_both(model, settings, x[:64]) if options.time else compare(model, x, y)
        file = path.with_suffix(".packed.json")
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(before | results, indent=1) + "\n")
        print(path.stem, json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
