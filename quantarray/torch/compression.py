"""Train on compressed activations: `compressed_activations` packs the tensors that autograd saves."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch.nn.modules import module as torch_module

from ..arrays import checks
from ..core.format import WORD_BITS
from . import gpu
from .measuring import measured
from .operations import Calls, new_nodes, packed_by
from .reads import Read
from .report import Report
from .rounding import Rounding
from .saving import Form, Holder, Node, Rules, Saved, form_of, is_plain, weak
from .sensitivity import Allocation, Record, checked_ids
from .stored import Mixed, Packed, PackedOnGpu, Stored
from .unchecked import Unchecked, why

_OP = "compressed_activations"
# ActNN's: nothing; 4 bits for convolutions; 4 bits for all; 2 bits for all, allocated
_LEVELS: dict[str, tuple[int | None, bool]] = {"L0": (None, False), "L1": (4, True), "L2": (4, False), "L3": (2, False)}
_LEVELS["L4"] = _LEVELS["L3"]
_ALLOCATED = frozenset(("L3", "L4"))


class Compression:
    """A context that packs what autograd saves inside it; `compressed_activations` makes one.

    It may be entered again, for each training step: random numbers then continue, and `report` starts again.
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
        self._calls, self._holder, self._unchecked, self._thread = Calls(self._settle), Holder(), Unchecked(), 0
        self._pending: list[weakref.ref[Saved]] = []
        self._first, self._nodes = 0, set[int]()  # the number of the first node inside, and those that were seen
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
            self._first = torch.autograd._get_sequence_nr()
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
        for saved in filter(None, (seen() for seen in self._pending)):  # of nodes that no call's result comes from
            self.report.add(saved.layer.name, saved.witness.nbytes, saved.witness.nbytes)
        self._thread, self._known, self._parameters, self._pending, self._nodes = 0, {}, {}, [], set()
        self._holder.clear()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _begin_layer(self, module: torch.nn.Module, inputs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None and is_plain(tensor):
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
        """Return a tensor held as it is until `_settle` sees the node that saves it."""
        saved = Saved(tensor, self._stack[-1], self._calls.current)
        if not is_plain(tensor):
            return saved
        if tensor.untyped_storage()._cdata in self._parameters or (tensor.is_leaf and tensor.requires_grad):
            return saved
        layer, owner = saved.layer, self._holder.find(tensor, ("first",))
        saved.first = owner is None
        if saved.first:
            self._holder.keep(tensor, ("first",), lambda: layer.name)
        else:
            self.report.share(layer.name, owner)
        saved.pending = True
        self._pending.append(weakref.ref(saved))
        return saved

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _settle(self, result: Any, arguments: Any) -> None:
        """Give forms to tensors that a call has saved: its nodes say what their backward passes read."""
        for values in (result, arguments):  # a call that changes its argument may have no result
            if not self._pending:
                return
            with torch.no_grad():
                for node in new_nodes(values, self._first, self._nodes):
                    tensors = {name: saved for name, saved in packed_by(node).items() if isinstance(saved, Saved)}
                    waiting = {name: saved for name, saved in tensors.items() if saved.pending}
                    forms = [self._form(Node(node, tensors), name) for name in waiting]
                    for saved, form in zip(waiting.values(), forms, strict=True):
                        saved.settle(form)
            self._pending = [seen for seen in self._pending if (one := seen()) is not None and one.pending]

    def _form(self, node: Node, name: str) -> Form:
        """Return a form of the tensor that a node saves as `name`, or the one in which a product has packed it."""
        saved = node.tensors[name]
        layer, tensor = saved.layer, saved.witness
        read = node.reads(name)
        if layer.bits is None or tensor._version != saved.version:
            read = Read.EXACT
        # Errors of a product's input stay in that product's gradients. Those of a norm's spread through all layers
        # before it and multiply: with 1 bit for some, gradients of MobileNetV2 grew from 13 to 10**8
        allocate = saved.of_product and not layer.fixed and self._rounding.allocation is not None
        kind = (read, layer.bits, allocate)
        # Elsewhere a tensor that two functions save is rounded for each: in x * x * x errors that are the same would
        # be multiplied by each other, and bias the gradient
        form = self._holder.find(tensor, kind) if saved.of_product or read is Read.EXACT else None
        if form is None:
            form = self._new_form(node, name, read, allocate)
            self._holder.keep(tensor, kind, weak(form))
            self.report.add(layer.name, tensor.nbytes if saved.first else 0, form.stored.nbytes)
        else:
            self.report.add(layer.name, 0, 0)
        if form.record is not None:
            self._calls.watchers.append(form.record.add)
        return form

    def _new_form(self, node: Node, name: str, read: Read, allocate: bool) -> Form:
        saved = node.tensors[name]
        layer, tensor = saved.layer, saved.witness
        record: Record | None = None

        def round_off(tensor: torch.Tensor, least: int) -> Stored:
            nonlocal record
            if allocate and not gpu.on_gpu(tensor):
                stored, record = self._rounding.allocate(tensor, layer.bits, layer.name)
            else:
                wrong = self._unchecked.flag(tensor, layer.name)
                stored = self._rounding.uniform(tensor, max(layer.bits, least), wrong)
            if isinstance(stored, (Packed, PackedOnGpu, Mixed)):
                self.report.add_rounded(layer.name, tensor.numel(), stored.bits)
            return stored

        def check(tensor: torch.Tensor) -> None:
            self._unchecked.check(tensor, layer.name)

        try:
            return Form(form_of(node, name, read, self._rules, round_off, check), record)
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

    Of each saved tensor, only what the function's backward pass reads is kept. Masks are exact, a bit an element: of
    ReLU, clamp, hardtanh, threshold, hardsigmoid, abs, maximum, dropout, straight-through estimators; max pooling has a
    byte an index. Values to which gradients are proportional, as in products, are rounded stochastically in groups, as
    `Grouped` does: gradients are unbiased. Smooth functions such as GELU, softmax and log_softmax have at least 8 bits.
    Some values are left alone: those that are compared with other saved values, as in amax, or divided by; queries and
    keys of fused attention; and all that is saved by functions that docs/saved-tensors.md does not list, such as a
    program's own. The forward pass and the loss do not change.

    Left alone: parameters and other leaves, which the graph holds anyway, buffers of modules, tensors under `least`
    elements, expanded ones, integers, float64, what other losses save, sparse, nested, quantised and other tensors
    without plain memory, and tensors that are neither on the CPU nor on an NVIDIA GPU, which needs the extra `cuda13`.
    A tensor that several products save is packed once.

    bits: 1 to 8. level: ActNN's "L0" (nothing), "L1" (4 bits, convolutions only), "L2" (4 bits), "L3" (2 bits,
    `allocate`) or "L4" (L3 with `offload`) instead of `bits`.

    allocate: inputs of convolutions and other products have `bits` on average, each sample of each tensor 1 to 8 of its
    own, b_i. They minimise sum_i C_i / (2**b_i - 1)**2, which bounds the variance of the weights' gradients: C_i = sum
    over groups of n * (max - min)**2 / 4, times the running squared norm of the gradient of the product, of steps
    before. The norm is the sample's if `batch(sample_ids)` names it, else the mean of the batch; `measure(loss)`
    replaces what it says about layers. All else, such as inputs of norms, and layers in `layers=` keep their bits, as
    their errors spread to the layers before. So do a GPU's tensors.

    offload: words of a GPU's tensors, which are packed there, wait in page-locked host memory until the backward pass
    reads them. Words of CPU tensors are in host memory anyway: it does not change them. ActNN's L5, defragmentation,
    and its threshold of the cache allocator have no meaning here.

    layers: {name or class of a module: bits, or None to leave what it saves alone}, which modules inside inherit; names
    are those of `model.named_modules()`. seed: 0 to 2**32 - 1. Random numbers continue if the same context is entered
    again: make one, and enter it each step.

    Raises ValueError for wrong bits, and for NaN and infinities: in the forward pass, or for tensors on a GPU, where
    values of 1e30 and more are refused too, at the end of the `with` block, before which nothing waits for the GPU.
    RuntimeError in the backward pass where a saved tensor was changed in place, and for PyTorch before 2.7.

    >>> import quantarray as qa, torch
    >>> x, w = torch.ones(4, 1024), torch.ones(8, 1024, requires_grad=True)
    >>> compression = qa.torch.compressed_activations(bits=2)
    >>> with compression:
    ...     loss = torch.nn.functional.linear(x, w).relu().sum()
    >>> loss.backward()
    >>> compression.report.before, compression.report.after, w.grad[0, 0].item()
    (16512, 648, 4.0)
    """
    if not hasattr(torch._C._autograd.SavedTensor, "data"):
        raise RuntimeError(
            f"{_OP}: needs PyTorch 2.7 or later, which says what hooks have packed, got {torch.__version__}"
        )
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
