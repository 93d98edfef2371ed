"""`explain`: how a product or a `map_reduce` is computed, and why by this technique and not by another."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..backends.kernel_choice import Asked, Choice, recorded
from ..backends.registry import product_costs, source_code
from ..core.text import table
from ..ops.products import float_rows, folded_thresholds, select
from ..ops.products.convolution import conv2d
from ..ops.products.convolution_1d_3d import conv1d, conv3d
from ..ops.products.lanes import LANES, TILE
from ..ops.products.matrix_product import linear, matmul
from ..ops.statistical.map_reduce import map_reduce

_OP = "explain"
_RIGHT: dict[Any, str] = {
    conv1d: "w",
    conv2d: "w",
    conv3d: "w",
    linear: "w",
    matmul: "b",
}  # where calls are kept once they are prepared
_KERNELS_OF = {  # the kernels of techniques that are not named by a kernel
    select.BIT_SLICED: ("sliced", "turn"),
    select.PAIRS_OF_TAPS: ("depthwise_bytes", "depthwise_codes"),
    select.BY_PLANES: ("depthwise",),
    select.RESCALED: ("rescale",),
    select.PLANES: ("add_planes",),
    select.IN_ROWS: ("unroll",),
    select.IN_WINDOWS: ("unroll",),
    select.PACKED: ("pack",),
    select.IN_PLACE: ("count", "count_lanes"),
    float_rows.VALUES: ("row_product_spaced", "row_product_levels"),
    float_rows.ROUNDED: ("row_product_spaced", "row_product_levels"),
    float_rows.GROUPS: ("group_product",),
    float_rows.WORDS: ("byte_row_product",),
    float_rows.INTEGERS: ("encode_rows", "divide_rows"),
}
_NOT_FOLDED = "the constants of this x did not fold into thresholds: {} computed real results and compared them"
_FORMS = ("llvm", "asm", "ptx", "sass")


class KernelRun(NamedTuple):
    """A kernel that the call runs: its tile, its threads, and the time that the cost model predicts."""

    name: str
    tile: str
    rows: int  # windows, or rows of a matrix
    channels: int
    words: int
    units: float | None  # of the cost model, in all
    threads: int | None  # None where the cost model does not know the kernel
    predicted_us: float | None  # None where the unit of the cost model was not measured either


class Explanation:
    """A list of the choices of a call in their order, and the kernels that it runs. Its repr is a table for each stage.

    choices: `Choice` rows, each with the stage, the technique that was taken, and all that were considered.
    kernels: `KernelRun` rows. code: {function: text}, if it was asked for.
    notes: choices are for all x of one form; a note says where constants of this x did not fold into thresholds.
    """

    def __init__(
        self,
        call: str,
        choices: list[Choice],
        kernels: list[KernelRun],
        code: dict[str, str] | None,
        notes: list[str],
    ) -> None:
        self.call, self.choices, self.kernels = call, choices, kernels
        self.code, self.notes = code, notes

    def to_json(self) -> dict[str, Any]:
        """Return numbers, strings, lists, dictionaries and None only."""
        choices = [
            {"stage": choice.stage, "taken": choice.taken, "asked": [way._asdict() for way in choice.asked]}
            for choice in self.choices
        ]
        return {
            "call": self.call,
            "choices": choices,
            "kernels": [run._asdict() for run in self.kernels],
            "code": self.code,
            "notes": self.notes,
        }

    def __repr__(self) -> str:
        lines = [self.call]
        for choice in self.choices:
            lines += ["", f"{choice.stage}: {choice.taken}"]
            lines += [f"  {'->' if way.way == choice.taken else '  '} {way.way}{_why(way)}" for way in choice.asked]
        lines += [line for note in self.notes for line in ("", f"note: {note}")]
        if self.kernels:
            header = ["kernel", "tile", "windows", "channels", "words", "threads", "predicted"]
            lines += ["", table(header, [_cells(run) for run in self.kernels], indent="")]
        for name, source in (self.code or {}).items():
            lines += ["", f"; {name}", source]
        return "\n".join(lines)


def explain(function: Callable[..., Any], *args: Any, code: str | None = None, **kwargs: Any) -> Explanation:
    """Say how `function(*args, **kwargs)` is computed: the techniques, why each was taken or not, and the kernel.

    function: `conv1d`, `conv2d`, `conv3d`, `linear`, `matmul` or `map_reduce`; the other arguments are its own. The
    call is prepared again and made once.
    At each stage (groups, taps, constants, kernel, ..) the techniques are listed in the order in which they are
    considered. A technique is refused for a reason, or has a cost, in units of the cost model, of a tile of 4 windows
    by 32 output channels; the cheapest is taken, and of those without a cost the first.

    code: "llvm" or "asm" on the CPU, "ptx" or "sass" on a GPU, adds the text of the compiled kernels. CPU kernels are
    compiled again, which takes seconds: machine code from disk has no text.

    Returns an `Explanation`: print it, or take `to_json()`. Raises TypeError for other functions, and what the call
    itself raises.

    >>> import quantarray as qa, numpy as np
    >>> x, w = (qa.encode(np.ones(shape, int), values=(-1, 1)) for shape in ((1, 8, 8, 64), (32, 3, 3, 64)))
    >>> how = qa.explain(qa.conv2d, x, w, padding=1, stride=2)
    >>> [(choice.stage, choice.taken) for choice in how.choices][-2:]
    [('constants', 'none'), ('kernel', 'conv')]
    >>> how.kernels[0].rows, how.kernels[0].words
    (16, 9)
    """
    if not callable(function) or function not in (*_RIGHT, map_reduce):
        names = ", ".join(f.__name__ for f in (*_RIGHT, map_reduce))
        hint = "" if callable(function) else "; pass the function and its arguments apart, as explain(qa.conv2d, x, w)"
        raise TypeError(f"{_OP}: needs one of the functions {names}, got {checks.kind(function)}{hint}")
    if code is not None:
        checks.choice(_OP, "code", code, _FORMS)
        if function is map_reduce:
            raise ValueError(f"{_OP}: code is that of products, map_reduce has none to show; leave code out")
    bound = inspect.signature(function).bind(*args, **kwargs)
    right = bound.arguments[_RIGHT[function]] if function in _RIGHT else None
    if isinstance(right, QuantArray):
        bound.arguments[_RIGHT[function]] = right._view()  # which has no prepared calls
    with recorded() as choices, folded_thresholds.not_folded() as real:
        function(*bound.args, **bound.kwargs)
    choices = list({choice[:3]: choice for choice in choices}.values())  # parts of one form choose alike
    if function is linear and float_rows.is_floats(bound.arguments["x"]):
        choices.insert(0, _of_floats(**bound.arguments))
    kernels = [_run(choice.problem, choice.taken) for choice in choices if choice.stage == select.KERNEL]
    texts = None
    if code is not None:
        used = [name for choice in choices for name in _KERNELS_OF.get(choice.taken, (choice.taken,))]
        device = next(value.device for value in bound.arguments.values() if isinstance(value, QuantArray))
        texts = source_code(device, used, code, lambda: function(*bound.args, **bound.kwargs))
    notes = [_NOT_FOLDED.format(kernel) for kernel in dict.fromkeys(real)]
    return Explanation(_text(function, bound.arguments), choices, kernels, texts, notes)


def _of_floats(x: Any, w: QuantArray, quantize_x: Any = None, **others: Any) -> Choice:
    """Return the choice of how rows of floats meet packed weights."""
    runs = float_rows.checked_runs("linear", "quantize_x", quantize_x, float_rows.SMALL)
    form = float_rows.form_of("linear", w, runs, math.prod(x.shape[:-1]), w.device)
    return Choice("rows of floats", form, (Asked(form, "", None),), None)


def _run(job: select.ProductJob, name: str) -> KernelRun:
    """Describe a kernel by what the cost model says of it."""
    model, blocks = product_costs(job.device), max(1, -(-job.channels // LANES)) * job.groups
    units = threads = us = None
    if model is not None and job.dtype == np.int32:
        units = model.costs(*job.problem)[name] * -(-job.rows // TILE) * blocks
        threads, us = model.predicted(units)
    tile = f"{TILE} windows x {LANES} channels"
    return KernelRun(name, tile, job.rows, job.channels * job.groups, job.words, units, threads, us)


def _text(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """Write a call with laws and shapes of arrays."""
    return f"{function.__name__}({', '.join(f'{name}={_shown(value)}' for name, value in arguments.items())})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and any(hasattr(one, "shape") for one in value):
        return ", ".join(map(_shown, value))
    if hasattr(value, "shape"):
        return f"{value.dtype} {'x'.join(map(str, value.shape))}"
    return getattr(value, "__name__", "f") if callable(value) else repr(value)


def _why(way: Asked) -> str:
    if way.refused:
        return f": no, {way.refused}"
    return "" if way.cost is None else f": costs {way.cost:,.1f}"


def _cells(run: KernelRun) -> list[str]:
    predicted = "not known" if run.predicted_us is None else f"{run.predicted_us:,.0f} us"
    threads = "-" if run.threads is None else str(run.threads)
    return [run.name, run.tile, str(run.rows), str(run.channels), str(run.words), threads, predicted]
