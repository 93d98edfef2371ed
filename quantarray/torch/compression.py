"""Pack the tensors that autograd saves inside a context, and unpack them for the backward pass."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch.nn.modules import module as torch_module

from . import arena
from .coded import coded
from .functions import Functions
from .holder import ACTIVE, Holder, Levels, View
from .layout import LAYOUTS
from .measuring import measured
from .operations import ALWAYS, LOSSES, SAVINGS, Saving, is_product, packed_by, tensors_in
from .reads import Read
from .report import Layer, Report
from .rounding import Rounding
from .saving import EMPTY, LOOKED, PLAIN, Form, Rules, Saved, form_of
from .sensitivity import checked_ids
from .stored import Whole
from .tracers import eagerly, skip
from .unchecked import why

OP = "compressed_activations"
_MOST_HELD = 1 << 28  # bytes of activations that may be left in the heap after the block; trims cost page faults
_GROWTH = 1 << 27  # bytes by which the process grows until free pages are returned: using them again costs faults
_LAST = 1 << 63  # above all numbers of nodes
_CODES = -1  # the key of the form that every function may read


class Compression:
    """A context that packs what autograd saves inside it; `compressed_activations` makes one.

    It may be entered again, for each training step: random numbers then continue, and `report` starts again.

    A hook gets each tensor before the node that saves it is in the graph. It is held as it is, until a tensor that was
    computed later is saved, or a module returns one: from its node on, the graph is searched for nodes that are new.
    """

    def __init__(
        self,
        bits: int | None,
        rules: Rules,
        rounding: Rounding,
        model: torch.nn.Module | None,
        layers: Mapping[Any, int | None],
    ) -> None:
        self.bits, self.report = bits, Report(rounding.errors)
        self._rules, self._rounding, self._model, self._layers = rules, rounding, model, dict(layers)
        self._names = {} if model is None else {id(module): name for name, module in model.named_modules() if name}
        self._exits, self._functions = ExitStack(), Functions(self._settle_after)
        self._holder, self._thread = Holder(), 0
        self._stack: list[Layer] = []
        self._first, self._pending = 0, 0  # the number of the first node inside, and tensors that wait for a form
        self._nodes: dict[int, bool] = {}  # by number, those that were seen
        self._known: dict[Any, Layer] = {}
        self._kinds: dict[str, int] = {}
        self._ids: Any = None
        self.freed, self._resident = 0, 0  # elements packed or restored since the last look; memory after a trim

    def batch(self, sample_ids: Any) -> Self:
        """Return this context, for a step on samples of a data set with these numbers: `with compression.batch(ids):`.

        sample_ids: integers from 0 on, one for each sample of the batch. Each sample then has running gradient norms of
        its own, 4 bytes for each tensor that is saved and sample of the data set.
        """
        self._ids = checked_ids(OP, sample_ids)
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
            raise RuntimeError(f"{OP}: this context is entered already; make another one for a context inside it")
        self._thread, self.report = threading.get_ident(), Report(self._rounding.errors)
        ids, self._ids = self._ids, None
        self._stack = [self.report.add(Layer("outside of modules", self.bits))]
        with ExitStack() as exits:
            exits.callback(self._leave)
            self._rounding.start(ids)
            self._rounding.unchecked.clear()
            self._first, self._resident = torch.autograd._get_sequence_nr(), arena.resident()
            if self._packs():
                ACTIVE.holders.append(self._holder)
                exits.callback(ACTIVE.holders.remove, self._holder)
                before = torch_module.register_module_forward_pre_hook(eagerly(self._begin_layer))
                exits.callback(before.remove)
                after = torch_module.register_module_forward_hook(eagerly(self._end_layer), always_call=True)
                exits.callback(after.remove)
                exits.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, Saved.restore))
                exits.enter_context(self._functions)
            self._exits = exits.pop_all()
        return self

    def _packs(self) -> bool:
        """True if any tensor may be packed: nothing is hooked otherwise."""
        return self.bits is not None or any(bits is not None for bits in self._layers.values())

    def __exit__(self, *exception: Any) -> None:
        """Stop packing, after an exception too; what was packed stays for the backward pass."""
        self._exits.__exit__(*exception)
        if exception[0] is None:
            self._rounding.unchecked.finish()
            if self.report.before - self.report.after >= _MOST_HELD:
                self.trim()

    def trim(self) -> None:
        """Return the free pages of the C library's heap, which freed activations leave, to the system."""
        arena.trim()
        self._resident = arena.resident()

    def look(self) -> None:
        """Call `trim` if the process has grown: what is free is used again, as long as it is enough."""
        self.freed, resident = 0, arena.resident()
        self._resident = min(self._resident, resident)
        if resident - self._resident >= _GROWTH:
            self.trim()

    def _leave(self) -> None:
        self._thread, self._pending, self._known, self._kinds, self._nodes = 0, 0, {}, {}, {}
        self._stack = []
        self._holder.clear()

    def _begin_layer(self, module: torch.nn.Module, inputs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if not self._stack[1:]:
            self._functions.pause()
            self._rounding.see_batch(inputs)
        if module not in self._known:
            self._known[module] = self._layer(module)
        self._stack += (self._known[module],)

    def _end_layer(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if threading.get_ident() != self._thread or not self._stack[1:]:
            return
        del self._stack[-1]
        if self._pending:
            self._settle_after(output)
        if not self._stack[1:]:
            self._functions.resume()

    def _layer(self, module: torch.nn.Module) -> Layer:
        around = self._stack[-1]
        bits, fixed = around.bits, around.fixed
        kind = type(module).__name__
        if id(module) in self._names:
            name = self._names[id(module)]
        else:
            number = self._kinds[kind] if kind in self._kinds else 0
            self._kinds[kind] = number + 1
            name = f"{kind} {number}"
        for key in self._layers:
            if key == name or (isinstance(key, type) and isinstance(module, key)):
                bits, fixed = self._layers[key], True
        return self.report.add(Layer(name, bits, module, fixed))

    def _pack(self, tensor: torch.Tensor) -> Saved:
        """Return a tensor held as it is until `_settle` sees the node that saves it."""
        layer, base = self._stack[-1], tensor._base if tensor.__class__ is torch.Tensor else tensor
        source = tensor if base is None else base
        if source.__class__ is not torch.Tensor or (source.is_leaf and source.requires_grad):
            return Saved(tensor, layer)  # such as a parameter, which the graph holds anyway
        keys = torch._C._dispatch_keys(tensor).raw_repr()
        if not (PLAIN[keys] if keys in PLAIN else PLAIN.ask(tensor, keys)):
            return Saved(tensor, layer)
        try:
            node = tensor.grad_fn
        except RuntimeError:  # one of several views of a tensor that was changed in place, which has no node any more
            node = None
        if node is None:
            if self._is_buffer(source):
                return Saved(tensor, layer)
        elif self._pending:
            self._settle(node, torch.autograd._get_sequence_nr() - 1)  # the last one may have more to save
        saved = Saved(tensor.detach(), layer, self)  # as a node would own the result that it saves, which owns its node
        stride = tensor.stride()
        saved.layout = LAYOUTS[tensor.shape, stride]
        saved.view = view = self._holder.view(tensor, stride, layer)
        saved.of_loss = sys._getframe(1).f_code in LOSSES
        if not view.pending and not view.exact:
            view.layer.after += view.nbytes
        view.pending += 1
        self._pending += 1
        return saved

    def _is_buffer(self, tensor: torch.Tensor) -> bool:
        """True for a buffer of a module that runs."""
        for layer in self._stack[1:]:
            for buffer in layer.module._buffers.values():
                if buffer is tensor:
                    return True
        return False

    def _settle_after(self, result: Any) -> None:
        """Give forms to tensors that the nodes of results have saved."""
        for tensor in (result,) if result.__class__ is torch.Tensor else tensors_in(result):
            try:
                node = tensor.grad_fn if self._pending else None
            except RuntimeError:  # of a view, as in `_pack`
                node = None
            if node is not None:
                self._settle(node, _LAST)

    def _settle(self, last: Any, end: int) -> None:
        """Give forms to tensors that nodes have saved: `last`, and those before it, with numbers below `end`."""
        first, seen, waiting = self._first, self._nodes, [last]
        nodes: list[tuple[int, Any]] = []
        in_order = True  # from the last on, as in a chain
        for node in waiting:
            number = node._sequence_nr()
            if first <= number < _LAST and number not in seen:
                if number < end:
                    in_order = in_order and not (nodes and nodes[-1][0] < number)
                    seen[number] = True
                    nodes += ((number, node),)
                for after, _ in node.next_functions:
                    if after is not None and after.__class__.__name__ != "AccumulateGrad":
                        waiting += (after,)
        if not in_order:
            nodes.sort(reverse=True)
        for _, node in nodes[::-1]:
            try:
                for saving in SAVINGS[node.__class__]:
                    raw = saving.raw(node)
                    for one, saved in packed_by(saving, raw) if raw.__class__ is tuple else ((saving, raw.data),):
                        if saved.__class__ is Saved and saved.context is self:
                            self._place(node, one, saved, saved.view)
            except RuntimeError as error:  # of a node whose tensors a backward pass has freed
                if "freed" not in str(error):
                    raise

    def _place(self, node: Any, saving: Saving, saved: Saved, view: View) -> None:
        """Give a form to a tensor that a node saves, or leave it as it is."""
        view.pending -= 1
        self._pending -= 1
        form = None if view.exact else self._form(node, saving, saved, view)
        if form is None:
            if not view.exact or view.forms:
                _leave_alone(saved, view)
            return
        witness = saved.witness
        saved.form, witness.data = form, EMPTY[witness.dtype, witness.device]
        self.freed += saved.layout.size
        if self.freed >= LOOKED and witness.device.type == "cpu":
            self.look()
        if form.record is not None:
            node.register_prehook(form.record.see)
        if not view.pending and not view.exact:
            view.layer.after -= view.nbytes

    def _form(self, node: Any, saving: Saving, saved: Saved, view: View) -> Form | None:
        """Return a form of the tensor that a node saves, or the one in which a product has packed it."""
        layer, rounding = saved.layer, self._rounding
        product: bool | None = saving.edges is not None and saved.witness.dtype is not torch.bool
        if product and saving.edges != ALWAYS:
            product = not saving.is_weights if layer.linear else is_product(node, saving)
            product = None if layer.linear and not product else product
        if layer.bits is None or saved.witness._version != saved.version:
            return None
        form = None if view.levels is None else self._codes(saving, saved, view, view.levels)
        if form is not None or product is None:
            return form
        if saved.of_loss and saving.least and saving.read is not Read.PROBABILITY:
            return None
        # Errors of a product's input stay in that product's gradients. Those of a norm's spread through all layers
        # before it and multiply: with 1 bit for some, gradients of MobileNetV2 grew from 13 to 10**8
        allocate = product and not layer.fixed and rounding.allocation is not None
        # Elsewhere a tensor that two functions save is rounded for each: in x * x * x errors that are the same would
        # be multiplied by each other, and bias the gradient
        view.alone += not product
        kind = allocate if product else view.alone  # no object, which would be one of a cycle
        before: Form | None = view.forms[kind] if kind in view.forms else None
        if before is not None and before.bits >= layer.bits:
            return before
        rounding.record = None
        try:
            stored = form_of(node, saving, saved, self._rules, rounding, allocate)
        except ValueError as error:
            raise ValueError(f"{why(layer.name, saved.witness)} ({error})") from None
        if stored is None and rounding.record is None:
            return None
        form = Form()
        form.stored = Whole(saved.witness.detach(), view.nbytes) if stored is None else stored
        form.layer, form.bits, form.record = layer, layer.bits, rounding.record
        layer.after += form.stored.nbytes
        if before is not None:  # one of fewer bits, which is no longer needed
            before.layer.after -= before.stored.nbytes
            before.stored = form.stored
        view.forms[kind] = form
        return form

    def _codes(self, saving: Saving, saved: Saved, view: View, levels: Levels) -> Form | None:
        """Return the form of what a quantiser has made, which is exact, so that every function may read it.

        None where there is none yet, and a mask or a shape is enough.
        """
        form: Form | None = view.forms.get(_CODES)
        reads_values = saving.least > 0 or saving.read is Read.EXACT
        if form is None and reads_values and saved.layout.size >= self._rules.least and saved.layout.dense:
            codes = coded(saved.witness, saved.layout, levels, self._rounding.packer.arena)
            if codes is not None:
                view.forms[_CODES] = form = Form()
                form.stored, form.layer, form.bits, form.record = codes, saved.layer, saved.layer.bits, None
                saved.layer.after += codes.nbytes
        return form


def _leave_alone(saved: Saved, view: View) -> None:
    """Keep a tensor as it is; what was packed of it for others is no longer needed."""
    view.exact = True
    for form in view.forms.values():
        form.layer.after -= form.stored.nbytes
        form.stored = Whole(saved.witness, 0)
    view.forms = {}


skip(
    "quantarray.torch",
    "arena coded compression errors gpu holder host layout operations report rounding saving sensitivity stored "
    "unchecked windows",
)
