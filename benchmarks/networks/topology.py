"""The float32 network of a model in PyTorch: built by the model's function, with `Topology` instead of `Recipe`."""

import importlib
from unittest import mock

import torch
from torch import nn

import quantarray as qa
from quantarray.nn.models.recipe import Tensor


def floats(architecture, arguments):
    """Return the network as a module in evaluation mode; images are float32 [n c h w] or [n k], from 0 to 1."""
    build = getattr(qa.nn.models, architecture)
    state = qa.nn.models.parameters(build, **arguments)
    with mock.patch.object(importlib.import_module(build.__module__), "Recipe", Topology):
        return build(state, **arguments).eval()


class Topology:
    """A stand-in for `Recipe`: notes each step as (module, names of inputs, name of the output)."""

    def __init__(self, model, parameters):
        self.parameters, self.steps, self.padded = parameters, [], {}

    def input(self, shape, name="images"):
        return Tensor(name, shape)

    def _step(self, module, *inputs, shape):
        name = f"v{len(self.steps)}"
        self.steps.append((module, [x.name for x in inputs], name))
        return Tensor(name, shape)

    def _filled(self, module, **names):
        """Copy parameters into a module."""
        for attribute, name in names.items():
            a = getattr(module, attribute)
            a.data.copy_(torch.from_numpy(self.parameters(name, tuple(a.shape), None)))
        return module

    def centred(self, x):
        return self._step(Call(lambda a: a * 2 - 1), x, shape=x.shape)

    def conv(self, x, name, outputs, kernel, stride=1, padding=None, groups=1, weights=1, bias=False):
        x, more = self.padded.get(x.name, (x, 0))
        padding = (kernel // 2 if padding is None else padding) + more
        module = nn.Conv2d(x.shape[0], outputs, kernel, stride, padding, groups=groups, bias=bias)
        size = ((n + 2 * padding - kernel) // stride + 1 for n in x.shape[1:])
        return self._step(self._filled(module, **_weights(name, bias)), x, shape=(outputs, *size))

    def linear(self, x, name, outputs, weights=1, bias=False):
        x = self.flatten(x) if len(x.shape) > 1 else x
        module = self._filled(nn.Linear(x.shape[0], outputs, bias), **_weights(name, bias))
        return self._step(module, x, shape=(outputs,))

    def norm(self, x, name, epsilon=1e-5):
        module = (nn.BatchNorm2d if len(x.shape) > 1 else nn.BatchNorm1d)(x.shape[0], epsilon)
        names = ("weight", "bias", "running_mean", "running_var")
        return self._step(self._filled(module, **{n: f"{name}.{n}" for n in names}), x, shape=x.shape)

    def relu(self, x):
        return self._step(nn.ReLU(), x, shape=x.shape)

    def sign(self, x):
        return self.relu(x)

    def codes(self, x, bits):
        return self.relu(x)

    def narrow(self, x, bits):
        return self.relu(x)

    def max_pool(self, x, size, stride, padding=0):
        if isinstance(padding, tuple):  # before and after; values are 0 or above
            before, after = padding
            x = self._step(
                nn.ZeroPad2d((before, after) * 2), x, shape=(x.shape[0], *(n + sum(padding) for n in x.shape[1:]))
            )
            padding = 0
        out = ((n + 2 * padding - size) // stride + 1 for n in x.shape[1:])
        return self._step(nn.MaxPool2d(size, stride, padding), x, shape=(x.shape[0], *out))

    def avg_pool(self, x, size, stride):
        out = (-(-(n - size) // stride) + 1 for n in x.shape[1:])
        return self._step(nn.AvgPool2d(size, stride, ceil_mode=True), x, shape=(x.shape[0], *out))

    def global_pool(self, x):
        return self.flatten(self._step(nn.AdaptiveAvgPool2d(1), x, shape=(x.shape[0], 1, 1)))

    def flatten(self, x):
        length = 1
        for n in x.shape:
            length *= n
        return self._step(nn.Flatten(), x, shape=(length,))

    def add(self, x, y):
        return self._step(Call(torch.add), x, y, shape=x.shape)

    def concat(self, *x):
        return self._step(Call(lambda *a: torch.cat(a, 1)), *x, shape=(sum(t.shape[0] for t in x), *x[0].shape[1:]))

    def pad(self, x, width, value):
        """Note padding that the convolution which takes x adds."""
        padded = Tensor(f"{x.name}.padded", (x.shape[0], *(n + 2 * width for n in x.shape[1:])))
        self.padded[padded.name] = (x, width)
        return padded

    def graph(self, output, name="scores"):
        self.parameters.check()
        return Steps(self.steps, output.name)


def _weights(name, bias):
    return {"weight": f"{name}.weight", **({"bias": f"{name}.bias"} if bias else {})}


class Call(nn.Module):
    """A function as a module; tracing sees the function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


class Steps(nn.Module):
    """A network whose steps run in order."""

    def __init__(self, steps, output):
        super().__init__()
        self.modules_in_order = nn.ModuleList(module for module, _, _ in steps)
        self.wiring = [(inputs, name) for _, inputs, name in steps]
        self.output = output

    def forward(self, images):
        values = {"images": images}
        for i, (inputs, name) in enumerate(self.wiring):
            values[name] = self.modules_in_order[i](*[values[n] for n in inputs])
        return values[self.output]
