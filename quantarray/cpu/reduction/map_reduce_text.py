"""Write the kernel of a `map_reduce` for its operands.

Of float32 `y` and two packed bits `x`, f(y, x) = (y, y * x), summed along a row, the loops over a word are

    put_plane(w1[0, i1], 0, c1, 0)
    put_plane(w1[1, i1], 1, c1, 0)
    put_affine(c1, b1, s1, l1)
    for j in range(np.uint64(64)):
        t0, t1 = f(np.float64(d0[e0 + j]), np.int64(l1[j]))
        v = np.float64(t0)
        a = floats[np.uint64(0) + x + j]
        floats[np.uint64(0) + x + j] = a + v
        ..

which LLVM turns into vectors. Accumulators are in one local array for each type: of several arrays, it would check in
each word that they do not overlap. Letters before the number of an operand: w words, b and s base and step, m table, g
group, d numbers, s their stride; o and p where a row begins in words or numbers and in the table; i the word, e the
first number of a word; c codes, l levels, y a value of the whole row.
"""

from ...kernels.one_pass import BLOCK, LANES, Affine, Dense, Levels

SEGMENT = 1 << 10  # elements of a row that a task reduces across rows: their accumulators stay in the cache
_APART = SEGMENT + 72  # numbers from an accumulator's array to the next: 4,096 bytes apart, loads wait for stores

_KERNEL = """\
def run({names}, result_lengths, result_steps, lengths, steps, length, count, tasks, pieces, each, blocks, columns,
        start_floats, start_whole, out_floats, out_whole, first, last):
    prefer_wide()
    place, index = np.zeros({places}, np.int64), np.zeros(result_lengths.size, np.int64)
    digits = np.zeros(lengths.size, np.int64)
    floats, whole = np.empty({floats} * {size}), np.empty({whole} * {size}, np.int64)
{setup}
    for task in range(first, last):
        at_task, column = task // columns, task % columns
        r, block = at_task // blocks, at_task % blocks
        x = np.uint64(0)
        for j in range(np.uint64({size})):
{start}
        for k in range({places}):
            place[k] = 0
        seek(r, result_lengths, result_steps, index, place)
        seek(block * each // pieces, lengths, steps, digits, place)
        for chunk in range(block * each, min(block * each + each, count * pieces)):
            piece = {piece}
            begin = (piece + column) * {part}
            end = min(length, begin + {part})
{row}
            for at in range(begin, end, {lanes}):
                n = min({lanes}, end - at)
                x = np.uint64({shift})
{word}
                if n == {lanes}:
                    for j in range(np.uint64({lanes})):
{body}
                else:
                    for j in range(np.uint64(n)):
{body}
            if piece == pieces - 1:
                advance(lengths, steps, digits, place)
        x = np.uint64(0)
{halve}
        for j in range(np.uint64({results})):
{finish}
"""
_HALVE = """\
apart = {half}
while apart:
    for j in range(np.uint64(apart)):
{body}
    apart //= 2
"""


def arguments_of(operands):
    """Flatten the operands to the arguments that `_names` names."""
    for one in operands:
        if isinstance(one, Affine):
            yield from (one.words, one.base, one.step)
        elif isinstance(one, Levels):
            yield from (one.words, one.table, max(one.group, 1))
        else:
            yield from (one.values, one.stride)


def _names(i, operand):
    if isinstance(operand, Affine):
        return [f"w{i}", f"b{i}", f"s{i}"]
    return [f"w{i}", f"m{i}", f"g{i}"] if isinstance(operand, Levels) else [f"d{i}", f"s{i}"]


def text_of(operands, steps, is_tuple, lanes):
    """Write the function `run` of a call: its tasks are blocks of results, and across rows also segments of rows.

    steps: the accumulators of each result of f, which is a tuple if `is_tuple`. lanes: a row is reduced, too.
    """
    setup, row, word, values, column = [], [], [], [], 0
    for i, one in enumerate(operands):
        *lines, value = _operand(i, one, column)
        for part, more in zip((setup, row, word), lines, strict=True):
            part += more
        values.append(value)
        column += 2 if isinstance(one, Levels) else 1
    size = LANES if lanes else _APART
    flat = [(one, f"t{number}") for number, result in enumerate(steps) for one in result]
    arrays = ["whole" if one.integer else "floats" for one, _ in flat]
    results = ", ".join(f"t{number}" for number in range(len(steps))) + ("," if is_tuple and len(steps) == 1 else "")
    start, body, halve, finish = [], [f"{results} = f({', '.join(values)})"], [], []
    for k, ((one, t), array) in enumerate(zip(flat, arrays, strict=True)):
        place = arrays[:k].count(array)
        here = f"{array}[np.uint64({place * size}) + x + j]"
        start.append(f"{here} = start_{array}[{place}]")
        body += [f"v = {one.value.format(t=t)}", f"a = {here}", f"{here} = {one.combine}"]
        halve += [f"a, v = {here}, {here[:-1]} + np.uint64(apart)]", f"{here} = {one.combine}"]
        to = f"{place} * tasks + at_task"
        finish.append(f"out_{array}[{to if lanes else f'({to}) * length + column * {SEGMENT} + np.int64(j)'}] = {here}")
    return _KERNEL.format(
        names=", ".join(name for i, one in enumerate(operands) for name in _names(i, one)),
        floats=arrays.count("floats"), whole=arrays.count("whole"), size=size, lanes=LANES,
        part=BLOCK if lanes else SEGMENT, shift="0" if lanes else "at - begin",
        piece="chunk % pieces" if lanes else "0", places=column,
        results="1" if lanes else f"min({SEGMENT}, length - column * {SEGMENT})",
        setup=_indented(setup, 1), start=_indented(start, 3), row=_indented(row, 3), word=_indented(word, 4),
        body=_indented(body, 6), finish=_indented(finish, 3),
        halve=_indented(_HALVE.format(half=LANES // 2, body=_indented(halve, 2)).splitlines(), 2) if lanes else "",
    )  # fmt: skip


def _indented(lines, depth):
    return "\n".join("    " * depth + line for line in lines)


def _operand(i, operand, column):
    """Return lines before all rows, at a row and at a word, and the value of element j of a word."""
    start = [f"o{i} = place[{column}]"]
    if isinstance(operand, Dense):
        return _dense(i, operand, start)
    planes, affine = operand.words.shape[0], isinstance(operand, Affine)
    kind = "np.int64" if affine or operand.table.dtype.kind == "i" else "np.float64"
    buffer = "np.int32" if kind == "np.int64" else "np.float32"
    if not affine:
        start.append(f"p{i} = place[{column + 1}]")
    if not operand.along:
        bits = [f"np.int64(w{i}[{plane}, o{i}] & np.uint64(1)) << {plane}" for plane in range(planes)]
        value = f"b{i} + s{i} * c{i}" if affine else f"m{i}[p{i} + c{i}]"
        return [], [*start, f"c{i} = {' | '.join(f'({bit})' for bit in bits)}", f"y{i} = {kind}({value})"], [], f"y{i}"
    setup = [f"c{i} = np.zeros({LANES}, np.uint8)", f"l{i} = np.zeros({LANES}, {buffer})"]
    word = [f"i{i} = np.uint64(o{i} + (at >> 6))"]
    word += [f"put_plane(w{i}[{plane}, i{i}], {plane}, c{i}, 0)" for plane in range(planes)]
    if affine:
        word.append(f"put_affine(c{i}, b{i}, s{i}, l{i})")
    else:
        entry = f"p{i} + (at + j) // g{i} * {operand.levels}" if operand.group else f"p{i}"
        word += ["for j in range(n):", f"    l{i}[j] = m{i}[{entry} + c{i}[j]]"]
    return setup, start, word, f"{kind}(l{i}[j])"


def _dense(i, operand, start):
    kind = "np.float64" if operand.values.dtype.kind == "f" else "np.int64"
    if operand.stride == 0:
        return [], [*start, f"y{i} = {kind}(d{i}[o{i}])"], [], f"y{i}"
    if operand.stride == 1:
        return [], start, [f"e{i} = np.uint64(o{i} + at)"], f"{kind}(d{i}[e{i} + j])"
    return [], start, [f"e{i} = o{i} + at * s{i}"], f"{kind}(d{i}[e{i} + np.int64(j) * s{i}])"
