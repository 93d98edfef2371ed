"""A kernel and all of its arguments as two addresses, by which compiled code calls it."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import I32, I64
from .jit import entry
from .schedule import Held, of_a_piece, version


@intrinsic
def _address_of_piece(typingctx, passed, held):
    """Return the address of the function of `of_a_piece` for what two `Held` hold."""

    def codegen(context, builder, signature, args):
        passed, held = (one.of for one in signature.args)
        places = [context.get_value_type(of).as_pointer() for of in (held, passed)]
        record = ir.LiteralStructType([I64, *places, I32.as_pointer()])
        function = of_a_piece(context, builder.module, held.types, passed.types, record)
        return builder.ptrtoint(function, I64)

    return types.int64(passed, held), codegen


@entry
def _piece(passed, held):
    return _address_of_piece(passed, held)


class Launch:
    """A call of a kernel with all of its arguments, which compiled code makes by two addresses.

    `piece` is a function of `record` and of the kernel's last two arguments. Number FAILED of the record becomes 1 if
    the kernel fails.
    """

    FAILED = 4

    def __init__(self, kernel, arguments, held):
        self._holds = held, Held(arguments)
        passed = self._holds[1]
        address = kernel.address((*held.type.of.types, *passed.type.of.types, types.int64, types.int64))
        self.piece = version(_piece, (passed.type, held.type)).entry_point(passed.address, held.address)
        self._numbers = np.array([address, held.address, passed.address, 0, 0])
        self.record = self._numbers.ctypes.data
        self._numbers[self.FAILED - 1] = self.record + 8 * self.FAILED
