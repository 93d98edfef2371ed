"""Products of rows of bytes and packed weights that have constants for each group; `group_dots` has the inner loop."""

from ..runtime import threads
from ..runtime.schedule import Kernel
from .group_dots import ROWS, dot_groups

_LEAST = 1 << 17  # products that are worth a parallel region
_SOME = 16  # outputs, whose words are in L1 while tiles of rows meet them


def group_product(codes, shares, starts, sums, words, low, step, apart, group, out):
    if out.size:
        arguments = codes, shares, starts, sums, words.reshape(-1), words.shape[0], low, step, apart, group, out
        tasks = -(-out.shape[1] // _SOME)
        threads.run(_multiply, arguments, tasks, threads.workers(out.size * codes.shape[1], _LEAST))


@Kernel
def _multiply(codes, shares, starts, sums, words, planes, low, step, apart, group, out, first, last):
    rows, outputs, length = out.shape[0], out.shape[1], codes.shape[1] // 64
    between, groups = len(words) // planes, step.shape[1]
    end = min(last * _SOME, outputs)
    for begin in range(first * _SOME, end, _SOME):
        row = 0
        while row < rows:
            several = ROWS if rows - row >= ROWS else 1
            for o in range(begin, min(begin + _SOME, end)):
                dot_groups(
                    codes, shares, starts, sums, row, several, words, o * length, between, planes, low, step,
                    o * groups, apart, group, length, out, row * outputs + o, outputs,
                )  # fmt: skip
            row += several
