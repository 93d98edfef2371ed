"""Train on compressed activations: `compressed_activations` packs the tensors that autograd saves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch.nn.modules import module as torch_module

from ..arrays import checks
from ..core.format import WORD_BITS
from . import gpu
from .measuring import measured
from .operations import PRODUCTS, Calls, kind_of
from .report import Report
from .rounding import Rounding
from .saving import Holder, Rules, Saved, form_of, weak
from .sensitivity import Allocation, Record, checked_ids
from .stored import Mixed, Packed, PackedOnGpu, Stored, Whole
from .unchecked import Unchecked, why

_OP = "compressed_activations"
# ActNN's: nothing; 4 bits for convolutions; 4 bits for all; 2 bits for all, allocated
_LEVELS: dict[str, tuple[int | None, bool]] = {"L0": (None, False), "L1": (4, True), "L2": (4, False), "L3": (2, False)}
_LEVELS["L4"] = _LEVELS["L3"]
_ALLOCATED = frozenset(("L3", "L4"))


class Compression:
    """A context that packs what autograd saves inside it; `compressed_activations` makes one.

    It may be entered again, for each training step: random numbers then go on, and `report` starts anew.
    """

    def __init__(
        self,
        bits: int | None,
        rules: Rules,
        rounding: Rounding,
        model: torch.nn.Module | None,
        layers: Mapping[Any, int | None],
    ) -> None:
        self.bits, self.report = bits, Report()
        self._rules, self._rounding, self._model, self._layers = rules, rounding, model, dict(layers)
        self._names = {} if model is None else {id(module): name for name, module in model.named_modules() if name}
        self._stack, self._exits = [_Layer("outside of modules", bits)], ExitStack()
        self._calls, self._holder, self._unchecked, self._thread = Calls(), Holder(), Unchecked(), 0
        self._known: dict[int, _Layer] = {}
        self._parameters: dict[int, Any] = {}
        self._ids: Any = None

    def batch(self, sample_ids: Any) -> Self:
        """Return this context, for a step on samples of a data set with these numbers: `with compression.batch(ids):`.

        sample_ids: integers from 0 on, one for each sample of the batch. Each sample then has running gradient norms of
        its own, 4 bytes for each tensor that is saved and sample of the data set.
        """
        self._ids = checked_ids(_OP, sample_ids)
        return self

    def measure(self, loss: Callable[[], torch.Tensor]) -> dict[str, float]:
        """Measure how much each saved tensor's rounding moves the gradients, by a pass for each (GACT's sensitivity).

        loss: computes the loss of one batch, in a forward pass of the model. It is called once, and once for each
        tensor that gets allocated bits; parameters, their `grad`, buffers and random numbers stay as they are. Bits are
        allocated by what was measured from then on. Returns {layer: sum over its tensors of C, the squared distance of
        gradients at b bits times (2**b - 1)**2}. Raises ValueError without `model=` and `allocate=True`.
        """
        return measured(self, loss, self._model, self._rounding)

    def __enter__(self) -> Self:
        """Start to pack."""
        if self._thread:
            raise RuntimeError(f"{_OP}: this context is entered already; make another one for a context inside it")
        self._thread, self.report = threading.get_ident(), Report()
        ids, self._ids = self._ids, None
        del self._stack[1:]
        with ExitStack() as exits:
            exits.callback(self._leave)
            self._rounding.start(ids)
            self._unchecked.clear()
            before = torch_module.register_module_forward_pre_hook(self._begin_layer)
            exits.callback(before.remove)
            after = torch_module.register_module_forward_hook(self._end_layer, always_call=True)
            exits.callback(after.remove)
            exits.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack))
            exits.enter_context(self._calls)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        """Stop packing, after an exception too; what was packed stays for the backward pass."""
        self._exits.__exit__(*exception)
        if exception[0] is None:
            self._unchecked.finish()

    def _leave(self) -> None:
        self._thread, self._known, self._parameters = 0, {}, {}
        self._holder.clear()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _begin_layer(self, module: torch.nn.Module, inputs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None and tensor.layout == torch.strided:
                storage = tensor.untyped_storage()
                self._parameters[storage._cdata] = storage
        if len(self._stack) == 1:
            self._rounding.see_batch(inputs)
        layer = self._known.get(id(module))
        if layer is None:
            layer = self._known[id(module)] = self._layer(module)
        self._stack.append(layer)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _end_layer(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() == self._thread and len(self._stack) > 1:
            self._stack.pop()

    def _layer(self, module: torch.nn.Module) -> _Layer:
        kind = type(module).__name__
        name = self._names.get(id(module)) or f"{kind} {sum(known.kind == kind for known in self._known.values())}"
        around = self._stack[-1]
        bits, fixed = around.bits, around.fixed
        for key, value in self._layers.items():
            if key == name or (isinstance(key, type) and isinstance(module, key)):
                bits, fixed = value, True
        return _Layer(name, bits, kind, fixed)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _pack(self, tensor: torch.Tensor) -> Saved:
        layer, call = self._stack[-1], self._calls.current
        if tensor.untyped_storage()._cdata in self._parameters or (tensor.is_leaf and tensor.requires_grad):
            return Saved(tensor, Whole(tensor, 0), layer.name)
        owner = self._holder.find(tensor, ("first",))
        first = owner is None
        if first:
            self._holder.keep(tensor, ("first",), lambda: layer.name)
        else:
            self.report.share(layer.name, owner)
        kind: tuple[Any, ...] = (kind_of(call, tensor), layer.bits)
        saved: Saved | None = self._holder.find(tensor, kind)
        # Errors of a product's input stay in that product's gradients. Those of a norm's spread through all layers
        # before it and multiply: with 1 bit for some, gradients of MobileNetV2 grew from 13 to 10**8
        alone = call is not None and call.name in PRODUCTS and not layer.fixed and self._rounding.allocation is not None
        if saved is None and alone:
            kind = (*kind, "allocated")
            saved = self._holder.find(tensor, kind)
        if saved is None:
            saved = self._form(tensor, layer, alone)
            self._holder.keep(tensor, kind, weak(saved))
            twice = isinstance(saved.stored, Whole) and not first
            self.report.add(layer.name, tensor.nbytes if first else 0, 0 if twice else saved.stored.nbytes)
        else:
            self.report.add(layer.name, 0, 0)
        if saved.record is not None:
            self._calls.watchers.append(saved.record.add)
        return saved

    def _form(self, tensor: torch.Tensor, layer: _Layer, allocate: bool) -> Saved:
        usual = layer.bits
        if usual is None:
            return Saved(tensor, Whole(tensor, tensor.nbytes), layer.name)
        record: Record | None = None

        def round_off(tensor: torch.Tensor, least: int) -> Stored:
            nonlocal record
            if allocate and not gpu.on_gpu(tensor):
                stored, record = self._rounding.allocate(tensor, usual, layer.name)
            else:
                wrong = self._unchecked.flag(tensor, layer.name)
                stored = self._rounding.uniform(tensor, max(usual, least), wrong)
            if isinstance(stored, (Packed, PackedOnGpu, Mixed)):
                self.report.add_rounded(layer.name, tensor.numel(), stored.bits)
            return stored

        def check(tensor: torch.Tensor) -> None:
            self._unchecked.check(tensor, layer.name)

        try:
            stored = form_of(tensor, self._calls.current, self._rules, round_off, check)
            return Saved(tensor, stored, layer.name, record)
        except ValueError as error:
            raise ValueError(f"{why(layer.name, tensor)} ({error})") from None


class _Layer:
    """A module's name and kind, the bits of the tensors that it saves, and True if `layers=` has set them."""

    def __init__(self, name: str, bits: int | None, kind: str = "", fixed: bool = False) -> None:
        self.name, self.bits, self.kind, self.fixed = name, bits, kind, fixed


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _unpack(saved: Saved) -> torch.Tensor:
    return saved.restore()


def compressed_activations(
    bits: int = 2,
    *,
    level: str | None = None,
    model: torch.nn.Module | None = None,
    layers: Mapping[Any, int | None] | None = None,
    allocate: bool = False,
    offload: bool = False,
    group: int = 256,
    seed: int = 0,
    least: int = 1024,
) -> Compression:
    """Pack the tensors that autograd saves for the backward pass, for any model: ActNN (arXiv 2104.14129) and GACT.

    Floats are rounded stochastically in groups, as `Grouped` does: gradients stay unbiased where a backward pass is
    linear in what was saved. What a pass can do with less is exact: a bit an element of ReLU, of ReLU6 and of dropout,
    a byte an index of max pooling and nothing of its input, a bit a bool. Fused attention has at least 8 bits, and so
    have results of log_softmax, as in cross entropy, of which the probabilities are rounded. The forward pass is
    untouched, and so is the loss.

    Left alone: parameters and other leaves, which the graph holds anyway, buffers of modules, tensors under `least`
    elements, expanded ones, integers, float64, what other losses save, and tensors that lie neither on the CPU nor on
    an NVIDIA GPU, which needs the extra `cuda13`. A tensor that several functions save is packed once.

    bits: 1 to 8. level: ActNN's "L0" (nothing), "L1" (4 bits, convolutions only), "L2" (4 bits), "L3" (2 bits,
    `allocate`) or "L4" (L3 with `offload`) in place of `bits`.

    allocate: inputs of convolutions and other products have `bits` on average, each sample of each tensor 1 to 8 of its
    own, b_i. They minimise sum_i C_i / (2**b_i - 1)**2, which bounds the variance of the weights' gradients: C_i = sum
    over groups of n * (max - min)**2 / 4, times the running squared norm of the gradient of the product, of steps
    before. The norm is that of the sample where `batch(sample_ids)` names it, else the mean of the batch;
    `measure(loss)` replaces what it says about layers. All else, as inputs of norms, and layers that `layers=` has,
    keep their bits: errors of those spread to the layers before. So do a GPU's tensors.

    offload: words of a GPU's tensors, which are packed there, wait in page-locked host memory until the backward pass
    reads them. Words of CPU tensors lie in host memory anyway: on them it changes nothing. ActNN's L5, defragmentation,
    and its threshold of the cache allocator have no meaning here.

    layers: {name or class of a module: bits, or None to leave what it saves alone}, which modules inside inherit; names
    are those of `model.named_modules()`. seed: of the random numbers, 0 to 2**32 - 1, which go on if the same context
    is entered again: make one, and enter it each step.

    Raises ValueError for wrong bits, and for NaN and infinities: in the forward pass, or for tensors on a GPU, where
    values of 1e30 and more are refused too, at the end of the `with` block, before which nothing waits for the GPU.
    RuntimeError in the backward pass where a saved tensor was changed in place.

    >>> import quantarray as qa, torch
    >>> x, w = torch.ones(4, 1024), torch.ones(8, 1024, requires_grad=True)
    >>> compression = qa.torch.compressed_activations(bits=2)
    >>> with compression:
    ...     loss = torch.nn.functional.linear(x, w).relu().sum()
    >>> loss.backward()
    >>> compression.report.before, compression.report.after, w.grad[0, 0].item()
    (16512, 1216, 4.0)
    """
    only = False
    chosen: int | None = None
    if level is not None:
        chosen, only = _LEVELS[checks.choice(_OP, "level", level, tuple(_LEVELS))]
        allocate, offload = allocate or level in _ALLOCATED, offload or level == "L4"
    else:
        chosen = checks.integer(_OP, "bits", bits, 1, 8)
    rules = Rules(checks.integer(_OP, "least", least, 0), only, bool(offload))
    by_layer = {} if layers is None else dict(layers)
    _check_layers(by_layer, model)
    group = checks.integer(_OP, "group", group, 1)
    allocation = None
    if allocate and chosen is not None:
        if group % WORD_BITS:
            raise ValueError(f"{_OP}: allocate needs a group that is a multiple of {WORD_BITS}, got {group}")
        allocation = Allocation(chosen)
    rounding = Rounding(group, checks.integer(_OP, "seed", seed, 0, 2**32 - 1), allocation)
    return Compression(chosen, rules, rounding, model, by_layer)


def _check_layers(layers: Mapping[Any, int | None], model: torch.nn.Module | None) -> None:
    names = set() if model is None else {name for name, _ in model.named_modules() if name}
    for key, value in layers.items():
        if value is not None:
            checks.integer(_OP, f"bits of the layer {key!r}", value, 1, 8)
        if isinstance(key, str) and model is None:
            raise ValueError(f"{_OP}: layers by name, such as {key!r}, need model=, whose named_modules() they are of")
        if isinstance(key, str) and key not in names:
            raise ValueError(f"{_OP}: model has no module {key!r}")
