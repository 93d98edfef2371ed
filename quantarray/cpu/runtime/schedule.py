"""Run kernels, and schedule their work on threads: each takes another piece when one is done.

    @Kernel
    def _pack_rows(codes, out, first, last): ...  # tasks first .. last, its last two arguments

    @partial(Kernel, takes=True)
    def _conv_range(x, .., dealt, worker): ...  # tasks that it takes one by one: chunk, .. = next_stretch(dealt, ..)

`threads.run` calls kernels. One that takes its tasks makes what it needs ready once, however many pieces there are.

Numba gives each thread its share of a `prange` before the loop begins, whatever `set_parallel_chunksize` says, so a
thread that starts late, or on a core that others use too, would hold all up; here they take piece after piece of their
own share, whose memory their cache may still hold, and then of others' (docs/decisions/0015).

What Python calls, `_call`, and the one `prange`, in `_deal`, know kernels by their addresses, so that each kernel is
compiled once: a function around it that Python calls would have it compiled again as a part of itself, and one with a
`prange` three times more (docs/decisions/0016).
"""

from functools import cache
from types import SimpleNamespace

import numpy as np
from llvmlite import ir
from numba import njit, prange, typeof, types
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from ...core.forks import no_fork
from ..llvm.vectors import I8, I32, I64, const, pointer
from .jit import entry, inline, inner, kernel, stored

_VOID, _ADDRESS = ir.VoidType(), I8.as_pointer()
_PIECE = ir.FunctionType(_VOID, [_ADDRESS, I64, I64])
_DEAL = ir.FunctionType(_ADDRESS, [I64] * 6)
LINE = 8  # numbers of a cache line
_NUMBERS = (types.int64,) * 6  # what `_call` takes besides arguments


class _HeldType(types.Type):
    """A Numba type: the address of a copy of a tuple, whose type is `of`."""

    def __init__(self, of):
        self.of = of
        super().__init__(f"Held({of})")


@register_model(_HeldType)
class _HeldModel(models.PrimitiveModel):
    def __init__(self, manager, of):
        super().__init__(manager, of, I64)


@unbox(_HeldType)
def _unbox_held(of, number, c):
    return NativeValue(c.pyapi.long_as_longlong(number))


_HELD: dict = {}  # the type and the function that copies, by the kind of what is held


class Held:
    """A copy of the first arguments of a kernel, which stay as they are from call to call.

    Python's objects are unboxed once: that takes 1.2 us for weights, a plan and an epilogue.
    """

    def __init__(self, arguments):
        self.arguments = arguments  # whose memory the copies point to
        kind = compute_fingerprint(arguments)  # Numba's look at types takes 1 ms
        if kind not in _HELD:
            with no_fork:
                of = types_of(arguments)
                _HELD[kind] = _HeldType(of), version(_hold, (of,)).entry_point
        self.type, copy = _HELD[kind]
        self._copies = copy(arguments)
        self.address = self._copies.ctypes.data


NOTHING = SimpleNamespace(type=_HeldType(typeof(())), address=0)  # a `Held` of no arguments


class Kernel:
    """A function that does the tasks first .. last, its last two arguments, and returns nothing.

    One that `jit.kernel` has compiled already is taken as it is. If it `takes` its tasks, these arguments are what
    `next_task` needs. If it is `of_bytes`, codes of its left operand and of its result may be stored as bytes
    (`cpu/int8/stored_bytes.py`).
    """

    def __init__(self, function, takes=False, of_bytes=False):
        self.compiled = function if hasattr(function, "py_func") else kernel(function)
        self.takes, self.of_bytes = int(takes), of_bytes
        self.versions = {}
        self.signatures = []  # of the versions

    def forget(self):
        """Forget the compiled versions and return them: the next calls then fill `signatures` again."""
        before = self.versions, self.signatures
        self.versions, self.signatures = {}, []
        return before

    def recall(self, versions):
        """Add the versions that `forget` returned to those that were called since."""
        earlier, signatures = versions
        self.versions, self.signatures = earlier | self.versions, list(dict.fromkeys([*signatures, *self.signatures]))

    def __call__(self, arguments, kind, tasks, pieces, workers, deal, held=NOTHING):
        """Run the function on what is held and `arguments`, for all tasks in so many pieces: one here, or more by
        `deal`.

        `kind` tells types of arguments apart, and of what is held; None where the arguments have to be looked at, 0.2
        us each with those in tuples. Raises MemoryError where a call fails: kernels raise nothing else.
        """
        if kind is None:
            kind = compute_fingerprint(arguments)
        call, address = self.versions[kind] if kind in self.versions else self._make(kind, arguments, held.type)
        call(arguments, held.address, address, tasks, pieces, workers, self.takes, deal)

    def prepare(self, arguments, kind, held=NOTHING):
        """Compile the function for arguments of these types: a caller's lock is then not held while it is."""
        if kind is None:
            kind = compute_fingerprint(arguments)
        if kind not in self.versions:
            self._make(kind, arguments, held.type)

    def address(self, takes):
        """Return the address of the function compiled for arguments of some types."""
        compiled = version(self.compiled, takes)
        assert compiled.signature.return_type == types.none
        return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)

    def _make(self, kind, arguments, held):
        """Compile the function that calls the kernel from Python, past Numba's look at argument types; return it and
        the kernel's address.
        """
        with no_fork:
            kinds = types_of(arguments)
            takes = (*held.of.types, *kinds.types, types.int64, types.int64)
            address = self.address(takes)
            entry = version(_call, (kinds, held, *_NUMBERS)).entry_point, address
            self.signatures = list(dict.fromkeys([*self.signatures, takes]))
        self.versions[kind] = entry
        return entry


def types_of(arguments):
    """Return Numba's type of a tuple, with read-only arrays as writable ones.

    Kernels write to results alone. A version for each mixture of read-only and writable arrays made a third of all.
    """
    return _writable(typeof(arguments))


def _writable(of):
    if isinstance(of, types.Array):
        return of.copy(readonly=False)
    if isinstance(of, types.BaseTuple):
        return types.BaseTuple.from_types(tuple(map(_writable, of.types)), getattr(of, "instance_class", None))
    return of


def version(function, takes):
    """Return the compiled version of a function for arguments of some types."""
    with no_fork:
        function.compile(takes)
    return function.overloads[takes]


def address_of(function, takes):
    """Return the address at which C finds a function for arguments of some types."""
    compiled = version(function, takes)
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


@inline
def share(piece, pieces, tasks):
    """Return (first, last) task of a piece, which has as many as any other or one fewer."""
    return tasks * piece // pieces, tasks * (piece + 1) // pieces


@intrinsic
def _number(typingctx, address, i):
    def codegen(context, builder, signature, args):
        return builder.load(builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]]))

    return types.int64(address, i), codegen


@intrinsic
def _count_up(typingctx, address, i):
    """Add 1 to the i-th number at an address and return the one before: no two threads get the same."""

    def codegen(context, builder, signature, args):
        place = builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]])
        return builder.atomic_rmw("add", place, const(1), "monotonic")

    return types.int64(address, i), codegen


@inline
def workers_of(dealt):
    """Return the number of threads that tasks are scheduled on."""
    return _number(dealt, 0)


@inner
def next_task(dealt, worker):
    """Take the next piece for a thread, or -1: of its share, then of others'.

    The address `dealt` has the numbers of workers and of pieces, then from the next cache line on, a line each, the
    number of the next piece of each worker's share.
    """
    workers, pieces = workers_of(dealt), _number(dealt, 1)
    for other in range(workers):
        whose = (worker + other) % workers
        piece = _count_up(dealt, (1 + whose) * LINE)
        if piece < share(whose, workers, pieces)[1]:
            return piece
    return -1


@intrinsic
def run_piece(typingctx, function, held, first, last):
    """Call the function, given by its address, of a piece that `_spread` built for a kernel."""

    def codegen(context, builder, signature, args):
        run = builder.inttoptr(args[0], _PIECE.as_pointer())
        builder.call(run, [builder.inttoptr(args[1], _ADDRESS), *args[2:]])
        return context.get_dummy_value()

    return types.void(function, held, first, last), codegen


@inline
def work(function, held, dealt, tasks, takes, worker):
    """Run one thread's part of a kernel's tasks."""
    # Allocates nothing: what it raised would be printed, and results would be missing without a word
    if takes:
        run_piece(function, held, dealt, worker)
    else:
        pieces, piece = _number(dealt, 1), next_task(dealt, worker)
        while piece >= 0:
            first, last = share(piece, pieces, tasks)
            run_piece(function, held, first, last)
            piece = next_task(dealt, worker)


@stored
@njit(parallel=True, nogil=True)
def _deal(function, held, dealt, tasks, takes, at):
    for worker in prange(workers_of(dealt)):
        work(function, held, dealt, tasks, takes, worker)


@cache
def dealer():
    """Return an array that holds the address of `_deal`, for `deal` of a call."""
    return np.array([address_of(_deal, (types.int64,) * 6)])


def _borrowed(context, builder, of, value):
    """Copy a tuple, an array or a number as one whose memory others own: it counts no references."""
    if isinstance(of, types.BaseTuple):
        items = zip(of.types, cgutils.unpack_tuple(builder, value), strict=True)
        return context.make_tuple(builder, of, [_borrowed(context, builder, *item) for item in items])
    if not isinstance(of, types.Array):
        return value
    array = context.make_array(of)(context, builder, value)
    for owner in ("meminfo", "parent"):
        setattr(array, owner, cgutils.get_null_value(getattr(array, owner).type))
    return array._getvalue()


@intrinsic
def _size(typingctx, arguments):
    """Return the bytes of a tuple."""

    def codegen(context, builder, signature, args):
        return const(context.get_abi_sizeof(args[0].type))

    return types.int64(arguments), codegen


@intrinsic
def _copy(typingctx, arguments, to):
    """Copy a tuple to an array of bytes."""

    def codegen(context, builder, signature, args):
        value = _borrowed(context, builder, signature.args[0], args[0])
        place = pointer(context, builder, signature, args, 1)
        builder.store(value, builder.bitcast(place, value.type.as_pointer()))
        return context.get_dummy_value()

    return types.void(arguments, to), codegen


@entry
def _hold(arguments):
    copies = np.empty(_size(arguments), np.uint8)
    _copy(arguments, copies)
    return copies


def of_a_piece(context, module, held, passed, record):
    """Build a function of an address and two numbers that calls a kernel with the numbers as last arguments.

    The address is that of a struct of type `record`: the addresses of the kernel, of a tuple of its held arguments
    (types `held`), of a tuple of those passed (types `passed`), and of an int32 that becomes 1 if the kernel fails.
    """
    takes = (*held, *passed, types.int64, types.int64)
    function = ir.Function(module, _PIECE, module.get_unique_name("of_a_piece"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    address, *tasks = function.args
    kernel, *places, failed = cgutils.unpack_tuple(builder, builder.load(builder.bitcast(address, record.as_pointer())))
    called = builder.inttoptr(kernel, context.call_conv.get_function_type(types.none, takes).as_pointer())
    arguments = [one for place in places for one in cgutils.unpack_tuple(builder, builder.load(place))] + tasks
    status, _ = context.call_conv.call_function(builder, called, types.none, takes, arguments)
    with builder.if_then(status.is_error):
        builder.store(ir.Constant(I32, 1), failed)
    builder.ret_void()
    return function


def _shares(builder, pieces, workers):
    """Lay out on the stack what `next_task` reads."""
    dealt = builder.alloca(I64, builder.mul(builder.add(workers, const(1)), const(LINE)))
    dealt.align = LINE * 8
    for i, number in enumerate((workers, pieces)):
        builder.store(number, builder.gep(dealt, [const(i)]))
    with cgutils.for_range(builder, workers) as worker:
        first = builder.sdiv(builder.mul(pieces, worker.index), workers)
        line = builder.mul(builder.add(worker.index, const(1)), const(LINE))
        builder.store(first, builder.gep(dealt, [line]))
    return dealt


@intrinsic
def _spread(typingctx, arguments, held, kernel, tasks, pieces, workers, takes, deal):
    """Run all tasks of the kernel at an address: one piece here, more by the function that `deal` points to."""

    def codegen(context, builder, signature, args):
        passed = cgutils.alloca_once_value(builder, args[0])
        failed = cgutils.alloca_once_value(builder, ir.Constant(I32, 0))
        given_types, held_types = signature.args[0].types, signature.args[1].of
        at = builder.inttoptr(args[1], context.get_value_type(held_types).as_pointer())
        record = cgutils.pack_struct(builder, (args[2], at, passed, failed))
        place = cgutils.alloca_once_value(builder, record)
        function = of_a_piece(context, builder.module, held_types.types, given_types, record.type)
        tasks, pieces, workers, takes = args[3:7]
        at_once = builder.icmp_signed("==", pieces, const(1))
        dealt = builder.ptrtoint(_shares(builder, builder.select(at_once, tasks, pieces), workers), I64)
        with builder.if_else(at_once) as (one, more):
            with one:
                by_itself = builder.icmp_signed("!=", takes, const(0))
                first = builder.select(by_itself, dealt, const(0))
                last = builder.select(by_itself, const(0), tasks)
                builder.call(function, [builder.bitcast(place, _ADDRESS), first, last])
            with more:
                run = builder.load(builder.inttoptr(args[7], _DEAL.as_pointer().as_pointer()))
                job = builder.ptrtoint(function, I64), builder.ptrtoint(place, I64), dealt, tasks, takes
                builder.call(run, [*job, args[7]])
        with builder.if_then(builder.trunc(builder.load(failed), ir.IntType(1))):
            context.call_conv.return_user_exc(builder, MemoryError, ("quantarray: no memory for a kernel's buffers",))
        return context.get_dummy_value()

    return types.void(arguments, held, kernel, tasks, pieces, workers, takes, deal), codegen


@entry
def _call(arguments, held, kernel, tasks, pieces, workers, takes, deal):
    _spread(arguments, held, kernel, tasks, pieces, workers, takes, deal)
