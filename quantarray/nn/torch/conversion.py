"""A recording as a graph: functions of a value are folded where they quantise, and run in NumPy where they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..onnx import movement
from ..onnx.building import Builder, into, packed_pool
from ..onnx.elementwise import LOWER as ELEMENTWISE
from ..onnx.laws import Constant, NotPerSample, Operand, Shape, Source, Tensor, lookup, scaling
from ..onnx.pooling import by_channel
from ..onnx.reading import Step
from ..onnx.tensors import Refused
from . import grids, quantising, tables
from .choices import Choices
from .emission import dtype_of, emitted
from .functions import ALIAS, POOL, RESHAPE, Function
from .probing import Probe, levels_of, monotone, rounded, thresholds
from .recording import Call, Recording, Var, needed, storage_of, variables
from .tables import PACKED_LEVELS
from .weight_only import Stored

_TWO_VALUES = {"add": "Add", "sub": "Sub", "mul": "Mul"}


class Conversion:
    """A conversion of a recording: its values while the graph is built: a function of a base for each variable."""

    def __init__(
        self, builder: Builder, kinds: Mapping[str, str], recording: Recording, choices: Choices | None = None
    ) -> None:
        self.builder, self.kinds, self.choices = builder, kinds, choices
        self._stored = recording.stored
        read = [*recording.outputs.values(), *(v for call in recording.calls for v in self.operands(call))]
        self.readers = Counter(v.index for v in read)
        self.steps: dict[int, Tensor] = {}  # what codes of products are rounded from
        self.functions: dict[int, Function] = {}
        self.refused: list[tuple[str, str]] = []
        self.unknown: set[int] = set()
        self.absent: dict[int, str] = {}  # why a result of a call that is taken is not computed
        self._settled: dict[int, Tensor] = {}
        self._names: dict[tuple[int, int], tuple[Tensor, str]] = {}  # of values computed in floats
        self._constants: dict[tuple[int, int | None], Constant] = {}
        self._count = 0

    # Calls

    def take(self, call: Call, convert: Callable[[Conversion, Call], None]) -> None:
        """Convert a call by a function; note why if it raises Refused."""
        if any(v.index in self.unknown for v in self.operands(call)):
            self.unknown.update(r.index for r in call.results)
            return
        absent = next((self.absent[v.index] for v in self.operands(call) if v.index in self.absent), None)
        self.builder.step = self.step(call, call.op)
        try:
            if absent is not None:
                raise Refused(absent)
            dtype_of(call.results[0])
            if any(v.random for v in variables((call.args, call.kwargs))):
                raise Refused("it takes random numbers; draw them only if self.training")
            if torch.Tag.nondeterministic_seeded in getattr(call.function, "tags", ()):
                raise Refused("it draws random numbers; do that only if self.training")
            convert(self, call)
        except NotPerSample:
            raise NotPerSample(call.path, f"aten.{call.op} mixes the samples of a batch") from None
        except Refused as error:
            self.refused.append((getattr(error, "path", call.path), str(error)))
            self.unknown.update(r.index for r in call.results)

    def step(self, call: Call, op: str, **attributes: Any) -> Step:
        """Return a node as the importer of ONNX files has it, labelled by the module that the call belongs to."""
        return Step(op, self.label(call.path), (), (call.path or call.op,), attributes, 0)

    def label(self, path: str) -> str:
        """Return the path and the type of a module."""
        kind = self.kinds.get(path, "")
        return f"{path} ({kind})" if path else kind

    def operands(self, call: Call) -> list[Var]:
        """Return the values that a call takes and that depend on the inputs, each once."""
        return list({v.index: v for v in variables((call.args, call.kwargs)) if v.depends}.values())

    def pointwise(self, call: Call) -> None:
        """Add a call on elements to the function of its operand; compute it if it has several bases."""
        total, *others = (self.functions[v.index] for v in self.operands(call))
        for other in others:
            joined = total.merged(other)
            if joined is None:
                return self._of_several(call)
            total = joined
        if call.results[0].shape != total.out.shape:
            return self._of_several(call)
        self.functions[call.results[0].index] = total.then(call)
        return None

    def _of_several(self, call: Call) -> None:
        """Compute a function of several values: exactly if it adds or multiplies integers, else on floats."""
        (result, *_), pair = call.results, call.args[:2]
        computed = len(pair) == 2 and all(isinstance(v, Var) and v.depends for v in pair)
        if call.op in _TWO_VALUES and computed and not call.kwargs and pair[0].dtype == pair[1].dtype:
            operands: list[Operand] = [self.settle(v) for v in pair]
            step = self.step(call, _TWO_VALUES[call.op])
            self.put(result, ELEMENTWISE[step.op](self.builder, step, operands, [result.shape])[0])
            return
        self.builder.per_sample(all(len(v.shape) == len(result.shape) for v in self.operands(call)))
        self.put(result, self.value(emitted(self.builder, call, self.dense, jumps=True), result))

    # Values

    def put(self, var: Var, x: Operand) -> None:
        """Set a variable to a tensor of the graph."""
        assert isinstance(x, Tensor)
        if x.chain and x.pure is None and x.table is None:
            x = self.builder.value(self.builder.dense(x), x.shape, x.dtype)
        self.functions[var.index] = Function(x, var, (), var)
        self._settled.pop(var.index, None)

    def added(self, var: Var, x: Tensor, call: Call) -> None:
        """Set a variable to a function of a tensor: the call, whose first argument is the tensor."""
        self.functions[var.index] = Function(x, call.args[0], (call,), var)

    def variable(self, tensor: Any, depends: bool) -> Var:
        """Return a new variable, of a value that the recording has not."""
        self._count += 1
        return Var(-self._count, tensor, depends)

    def value(self, name: str, var: Var) -> Tensor:
        """Return a dense array of the graph as a tensor."""
        return self.builder.value(name, var.shape, dtype_of(var))

    def constant(self, var: Var, axis: int | None = None) -> Constant:
        """Return a constant, with integers and a scale (of all, or by `axis`) where it has them."""
        key = (var.index, axis)
        if key not in self._constants:
            dtype_of(var)
            self._constants[key] = grids.constant(np.asarray(var.tensor.detach().numpy()), axis)
        return self._constants[key]

    def stored(self, var: Var) -> Stored | None:
        """Return the integers of a weight of torchao, whose transpose `var` is; None for any other value."""
        held = None if var.depends else self._stored.get(storage_of(var.tensor))
        return held if held is not None and var.shape == held.integers.shape[::-1] else None

    def settle(self, var: Var) -> Tensor:
        """Return a value as integers times a scale if it is that, by thresholds if need be; else as a dense array."""
        if var.index not in self._settled:
            current = self.builder.step
            self._settled[var.index] = self._settle(self.functions[var.index], var)
            self.builder.step = current
        return self._settled[var.index]

    def _settle(self, f: Function, var: Var) -> Tensor:
        if not f.calls:
            return f.base
        self.builder.step = self.step(f.calls[-1], f.calls[-1].op)
        scaled = f.scaled()
        if scaled is not None:
            return scaled
        if f.reshapes:
            try:
                quantised = self.quantised(f, var)
            except Refused:
                quantised = None
            return quantised or self._settle(self._reshaped(f), var)
        quantised = tables.of_uneven(self.builder, f) or self.quantised(f, var)
        return self.value(self.emitted(f), var) if quantised is None else quantised

    def reshaped(self, call: Call) -> bool:
        """Return True if a reshape waits for a quantiser that may follow, whose codes it then moves."""
        x, result = call.args[0], call.results[0]
        f = self.functions[x.index]
        if not f.calls or x.index in self._settled or f.reshapes or f.scaled() is not None:
            return False
        axis = f.varying() if dtype_of(x) == np.float32 and f.base.source.levels is None else None
        if axis is None or x.shape[:1] != result.shape[:1] or levels_of(Probe(f, axis)) is not None:
            return False
        self.functions[result.index] = f.then(call._replace(op=RESHAPE, args=(x,), kwargs={}, results=(result,)))
        return True

    def _reshaped(self, f: Function) -> Function:
        """Compute the part of a function before its reshape; return the rest as a function of the reshaped value."""
        first, call, rest = f.split()
        x = self.value(self.emitted(first), first.out)
        return Function(self._reshape(x, call), call.results[0], rest, f.out)

    def _reshape(self, x: Tensor, call: Call) -> Tensor:
        step = self.step(call, "Reshape")
        (moved,) = movement.LOWER["Reshape"](self.builder, step, [x], [call.results[0].shape])
        assert isinstance(moved, Tensor)
        return moved

    def quantised(self, f: Function, var: Var) -> Tensor | None:
        axis = f.varying()
        if axis is None and f.base.chain and f.base.dtype == np.float32:  # as a mean of windows of several lengths
            b = self.builder
            f = replace(f, base=b.value(b.dense(f.base), f.base.shape, f.base.dtype))
            axis = f.varying()
        if axis is None or dtype_of(var).kind != "f" or len(f.base.shape) < 2:
            return None
        probe, source = Probe(f, axis), f.base.source
        grid = levels_of(probe)
        if grid is None:
            return None
        if isinstance(grid, grids.Uneven) and not tables.packs(grid):
            return None
        if isinstance(grid, grids.Grid) and grid.high - grid.low >= PACKED_LEVELS and source.dtype == np.float32:
            other = grids.uneven_of(probe.y)  # few levels far apart, which are on a fine grid too
            grid = other if other is not None and len(other.values) <= PACKED_LEVELS else grid
        few = source.dtype == np.float32 and (isinstance(grid, grids.Uneven) or grid.high - grid.low < PACKED_LEVELS)
        folds = (source.whole or few) and probe.pools_codes()
        folded = thresholds(probe, grid) if folds else None
        if folded is None and folds and isinstance(grid, grids.Grid):  # that turns: even levels in another order
            other = grids.uneven_of(probe.y)
            folded = thresholds(probe, other) if other is not None and tables.packs(other) else None
        if folded is not None:
            return self._codes(f, folded, probe.axis)
        cut = self._cut(f, var)
        if cut is not None or isinstance(grid, grids.Uneven):
            return cut
        try:
            return quantising.at_the_end(self, f, var) or self.rounded(self.emitted(f, jumps=False), grid, var)
        except Refused:
            folded = thresholds(probe, grid) if source.dtype == np.float32 and probe.pools_codes() else None
            if folded is None and f.reshapes:
                raise
            if folded is None:
                return self.rounded(self.emitted(f), grid, var)
            near = rounded(*folded) if not f.pools and not f.reshapes else None
            if near is not None:
                name = self.builder.emit("Cast", [self.builder.dense(f.base)], self.builder.hint, to="float64")
                return self.rounded(name, near, var, np.dtype(np.float64))
        return self._codes(f, folded, probe.axis)

    def _cut(self, f: Function, var: Var) -> Tensor | None:
        """Fold the end of a function that turns, from the first value after which it does not turn."""
        for middle, end in [] if f.reshapes else f.cuts():
            if dtype_of(middle.out) != np.float32 or middle.pools != f.pools:
                continue
            base = self.builder.value("", middle.out.shape, np.float32)
            rest = Function(base, middle.out, end, var)
            axis = rest.varying()
            probe = Probe(rest, axis) if axis is not None else None
            grid = levels_of(probe) if probe is not None else None
            if probe is None or grid is None or grid.high - grid.low >= PACKED_LEVELS:
                continue  # of uneven levels too
            folded = thresholds(probe, grid)
            if folded is not None:
                base = self.value(self.emitted(middle), middle.out)
                return self._codes(replace(rest, base=base), folded, probe.axis)
        return None

    def _codes(self, f: Function, folded: Any, axis: int) -> Tensor:
        T, levels, grid = folded
        b, shape = self.builder, f.base.shape
        if isinstance(grid, grids.Uneven):
            levels, values = grid.levels()
            T = into(T, tuple(levels))
        operands = [f.base.source.name, b.constant(T, "thresholds")]
        name = b.emit("threshold", operands, b.hint, axis=axis, last=axis == len(shape) - 1)
        source = Source(name, shape, np.dtype(np.int32), tuple(levels), min(levels), max(levels))
        for pool in f.pools:
            source = b.pooled(source, pool.kwargs)
        uneven = isinstance(grid, grids.Uneven)
        last = lookup(values.astype(f.out_dtype)) if uneven else scaling(grid.scale, f.out_dtype)
        x = Tensor(source.shape, f.out_dtype, source, (last,))
        for call in f.reshapes:
            x = self._reshape(x, call)
        return x

    def rounded(self, name: str, grid: grids.Grid, var: Var, wide: np.dtype[Any] | None = None) -> Tensor:
        """Return the nearest integers of floats, whose dtype is `wide` or that of the variable, on a grid."""
        b, dtype = self.builder, dtype_of(var)
        low, high = grid.low, max(grid.high, grid.low + 1)
        kind = "int8" if -128 <= low and high < 128 else "uint8" if 0 <= low and high < 256 else "int16"
        attributes: dict[str, Any] = {"low": low, "high": high, "rounding": "ROUND", "to": kind}
        numbers = [b.constant(np.array(n, wide or dtype)) for n in (grid.scale, 0.0)]
        name = b.emit("quantize", [name, *numbers], b.hint, **attributes)
        held = Source(name, var.shape, np.dtype(kind), None, low, high)
        return Tensor(var.shape, dtype, held, (scaling(grid.scale, dtype),))

    def pooled(self, call: Call, attributes: dict[str, Any]) -> None:
        """Take the largest element of each window: of codes, of a base where the function rises, else later."""
        x, result = call.args[0], call.results[0]
        f = self.functions[x.index]
        plain = f.calls and not f.pools and not f.reshapes and f.scaled() is None
        axis = f.varying() if plain else None
        axis = None if axis not in (-1, 1) else axis  # a window has places of other constants
        probe = Probe(f, axis) if axis is not None else None
        if probe is None or levels_of(probe) is not None:
            self.put(result, self._pooled(self.settle(x), attributes, result.shape))
            return
        pure = f.base.pure
        if self._rises(probe) and (pure is None or (pure > 0).all()):
            base = self._pooled(f.base, attributes, result.shape)
            alias = call._replace(op=ALIAS, args=(x,), kwargs={}, results=(result,))
            self.functions[result.index] = replace(f, base=base).then(alias)
            return
        later = call._replace(op=POOL, args=(x,), kwargs=attributes, results=(result,))
        self.functions[result.index] = f.then(later)

    def _rises(self, probe: Probe) -> bool:
        rising = monotone(probe.y)
        return rising is not None and bool((rising > 0).all()) and probe.y.dtype.kind == "f"

    def _pooled(self, x: Tensor, attributes: dict[str, Any], shape: Shape) -> Tensor:
        """Return the largest elements of a tensor: of its integers where these rise with the values."""
        b, table = self.builder, x.table
        if table is not None and (table[1:] > table[:-1]).all():
            return replace(x, shape=shape, source=b.pooled(x.source, attributes))
        if not x.chain and x.dtype == np.float32 and packed_pool(attributes, x.shape) is not None:
            return replace(x, shape=shape, source=b.pooled(x.source, attributes))
        if x.pure is not None and (x.pure > 0).all() and by_channel(x.pure, len(x.shape)):
            return replace(x, shape=shape, source=b.pooled(x.source, attributes))
        assert b.step is not None
        names = b.numpy(b.step._replace(op="MaxPool", attributes=attributes), [x], [shape], x.dtype)
        return names[0]

    # Floats

    def dense(self, x: Any) -> str:
        """Return the name of a dense array with the values of a variable or a number."""
        if not isinstance(x, Var):
            return self.builder.constant(np.asarray(x))
        if not x.depends:
            return self.builder.dense(self.constant(x))
        return self.builder.dense(self.settle(x))

    def dense_output(self, var: Var) -> str:
        """Return the name of an output: computed by the functions of the module, or from integers and a scale."""
        f = self.functions[var.index]
        if not f.calls or var.index in self._settled:
            return self.builder.dense(self.settle(var))
        try:
            return self.emitted(f, parts=False)
        except Refused:  # of a function in the quantiser that the output comes from
            self.builder.step = self.step(f.calls[-1], f.calls[-1].op)
            kind = dtype_of(var)
            if kind.kind == "f":
                uneven = tables.of_uneven(self.builder, f)
                whole = uneven or self.quantised(f, var)
                return self.emitted(f) if whole is None else self.builder.dense(whole)
            floats, to = self.variable(var.tensor.double(), True), {"dtype": torch.float64}
            copy = torch.ops.aten._to_copy.default
            quantised = self.quantised(f.then(Call("_to_copy", "", copy, (var,), to, (floats,), "")), floats)
            if quantised is None:
                return self.emitted(f)
            return self.builder.emit("Cast", [self.builder.dense(quantised)], self.builder.hint, to=str(kind))

    def emitted(self, f: Function, parts: bool = True, jumps: bool = True) -> str:
        """Compute a function in NumPy, each call once; return the name of the result.

        A call without a form in NumPy is part of a quantiser that a later call ends: refused unless `parts` may be one.
        If there is no such quantiser, a comparison is computed in NumPy: refused unless it `jumps`.
        """
        b, current = self.builder, self.builder.step
        names, refused = {f.root.index: b.dense(f.base)}, dict[int, Refused]()

        def name_of(x: Any) -> str:
            if isinstance(x, Var) and x.index in refused:
                raise refused[x.index]
            return names[x.index] if isinstance(x, Var) and x.index in names else self.dense(x)

        for call in f.needed():
            key = (id(f.base), call.results[0].index)
            if key not in self._names:
                b.step = self.step(call, call.op)
                try:
                    name = emitted(b, call, name_of)
                    b.shapes.setdefault(name, (call.results[0].shape, dtype_of(call.results[0])))
                except Refused as error:
                    if not parts:
                        raise
                    error.path = getattr(error, "path", call.path)  # type: ignore[attr-defined]
                    part = replace(f, out=call.results[0])
                    part = replace(part, calls=tuple(part.needed()))  # constants of later calls are none of it
                    quantised = None if part.out is f.out or call.op == ALIAS else self.quantised(part, part.out)
                    table = tables.of_integers(self, part) if quantised is None else b.dense(quantised)
                    if table is None:
                        refused[part.out.index] = error
                        continue
                    name = table
                self._names[key] = f.base, name
            names[call.results[0].index] = self._names[key][1]
        left = [] if f.out.index in names or not jumps else [c for c in f.needed() if c.results[0].index in refused]
        for call in needed(left, [f.out]):  # compared in NumPy
            b.step, why = self.step(call, call.op), refused.pop(call.results[0].index)
            try:
                names[call.results[0].index] = emitted(b, call, name_of, jumps=True)
            except Refused:
                raise why from None
        b.step = current
        return name_of(f.out)
