"""A row of steps as one compiled call, for inputs of one form."""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...core.forks import no_fork
from ...core.recordings import RECORDINGS
from ...ops.products.channels import put
from ..operators.movement import order_in_memory
from ..steps import Step
from .memory import Memory
from .packed_shortcuts import read_packed
from .recording import Recorder, runtime
from .reserved import is_told
from .stored_bytes import store_bytes


def form(x: Any) -> tuple[Any, ...] | None:
    """Return all that launches for x depend on but its elements; None for what no compiled call takes."""
    if isinstance(x, QuantArray):
        if not isinstance(x.words, np.ndarray):
            return None
        return x._form, x._scheme, tuple([(name, a.tobytes()) for name, a, _ in x.constants.items()])
    return (x.dtype, x.shape) if type(x) is np.ndarray else None


def elements(x: Any) -> Array:
    """Return the memory of x: its words, or itself."""
    a: Array = x.words if isinstance(x, QuantArray) else x
    return a


def like(x: Any, memory: Array) -> Any:
    """Return an array like x of other elements."""
    if not isinstance(x, QuantArray):
        return memory
    return QuantArray(memory, x.dtype, x.shape, x.axis, x.constants, x._scheme)


class Input:
    """A value that a row takes, with its axes in the order in which it is copied to a plan's memory.

    order: that in which a dense value is C-contiguous, or for kernels that read images, that with the channels last;
    None for a packed value.
    """

    def __init__(self, at: int, x: Any, image: bool) -> None:
        self.at, self.order = at, _order(x, image)
        self._back = None if self.order is None else tuple(np.argsort(self.order).tolist())
        self._turned = self.order != tuple(range(x.ndim))

    def laid(self, values: list[Any]) -> Any:
        """Return the value with its axes in this order."""
        x = values[self.at]
        return x if self.order is None or not self._turned else x.transpose(self.order)

    def back(self, x: Any) -> Any:
        """Return what `laid` had."""
        return x if self._back is None else x.transpose(self._back)


def _order(x: Any, image: bool) -> tuple[int, ...] | None:
    if isinstance(x, QuantArray):
        return None
    return (0, *range(2, x.ndim), 1) if image and x.ndim > 2 else order_in_memory(x)


class Row:
    """A row of steps that are recorded one after the other, on arrays without elements."""

    def __init__(self, initial: list[Any], known: list[Any]) -> None:
        """initial: the graph's constants by their places; known: elements of all values that the row may take."""
        self.steps: list[Step] = []
        self.inputs: dict[tuple[int, bool], tuple[Input, Any]] = {}
        self.recorder, self.values = Recorder(), dict[int, Any]()
        self._initial, self._known = initial, known

    def take(self, step: Step) -> bool:
        """Record a step: False, and no step may follow, if it does more than launch kernels.

        It does if it reads or writes an element, raises an error without any, or returns something else than arrays.
        """
        if not is_told():
            return False
        recorder = self.recorder
        launches, notes = len(recorder.launches), len(recorder.notes)
        try:
            images = step.operator.images
            operands = [self._operand(at, i < images) for i, at in enumerate(step.operands)]
            with no_fork, np.errstate(all="ignore"):  # signal handlers wait: what they call would be recorded
                try:
                    RECORDINGS[get_ident()] = recorder
                    results = step.results_of(operands)
                finally:
                    RECORDINGS.pop(get_ident(), None)
            fits = not recorder.is_touched() and all(form(x) is not None for x in results)
            fits = fits and not recorder.is_touched()  # constants of a result, for its form
        except Exception:  # whatever is raised where elements are not there, or not told: it is run with them
            fits = False
        if fits:
            self.steps.append(step)
            self.values.update(zip(step.results, results, strict=True))
        else:
            del recorder.launches[launches:], recorder.notes[notes:]
        return fits

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Return the shapes of all values that have one by their places."""
        known = {at: x for at, x in enumerate(self._known) if x is not None} | self.values
        return {at: tuple(x.shape) for at, x in known.items() if hasattr(x, "shape")}

    def _operand(self, at: int, image: bool) -> Any:
        if at < 0:
            return None
        if at in self.values:
            return self.values[at]
        if self._initial[at] is not None:
            return self._initial[at]
        if form(self._known[at]) is None:
            raise TypeError("no compiled call takes it")
        if (at, image) not in self.inputs:
            one = Input(at, self._known[at], image)
            laid = one.laid(self._known)
            a = elements(laid)
            order = order_in_memory(a) if isinstance(laid, QuantArray) else tuple(range(a.ndim))
            memory = self.recorder.array(tuple(a.shape[i] for i in order), a.dtype).transpose(np.argsort(order))
            memory.flags.writeable = False  # a launch that may write to none but its inputs is no launch of a plan
            self.inputs[at, image] = one, like(laid, memory)
        one, laid = self.inputs[at, image]
        return one.back(laid)


class Compiled:
    """A compiled call of recorded steps. Calls must not overlap.

    `forms` are those of its inputs; `nbytes` counts the bytes of all results, which share memory; `dense` is True where
    no result that is needed after them is packed.
    """

    def __init__(self, row: Row, wanted: Sequence[int]) -> None:
        """wanted: the places of the results that are needed after the row."""
        laid = [x for _, x in row.inputs.values()]
        self.inputs = [one for one, _ in row.inputs.values()]
        self.forms = tuple(map(form, laid))
        results, recorder = [row.values[at] for at in wanted], row.recorder
        self.dense = not any(isinstance(x, QuantArray) for x in results)
        inputs, read = list(map(elements, laid)), [*map(elements, results), *recorder.notes]
        read_packed(recorder, [*inputs, *read])
        store_bytes(recorder, [*inputs, *read])
        memory = Memory(recorder, inputs, read)
        self.nbytes, self._inputs = memory.bytes.nbytes, memory.inputs
        self._like = [(like(one, a), a) for one in results for a in [memory.array(elements(one))]]
        self._notes = [memory.array(a) for a in recorder.notes]
        steps: list[Any] = []
        for i, one in enumerate(recorder.launches):
            steps += memory.clears(i)
            launch = runtime().Launch(one.kernel, memory.arguments(one), one.held)
            steps.append((launch, *one.cut, one.kernel.takes))
        self.kernels = tuple([one.name for one in recorder.launches])
        self._driver = runtime().Driver([*steps, *memory.clears(len(self.kernels))])
        self.addresses = [(a.__array_interface__["data"][0], a.nbytes) for a in (memory.bytes, *memory.inputs)]

    def __call__(self, inputs: Sequence[Any], reuse: bool = False) -> tuple[Any, ...] | None:
        """Return the results for inputs of the forms.

        None where this thread's calls are run by Numba's loop, or a kernel has noted what the steps raise an error
        for: they themselves then do.
        """
        for memory, x in zip(self._inputs, inputs, strict=True):
            put(elements(x), memory)
        if not self._driver.run() or any(notes.any() for notes in self._notes):
            return None
        return tuple([like(one, memory if reuse else memory.copy("K")) for one, memory in self._like])
