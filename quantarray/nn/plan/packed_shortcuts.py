"""Leave out launches that decode a shortcut's codes, where the chain that adds them can read their words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ...core.dtypes import Array
from .recording import Launched, Recorder, runtime


def read_packed(recorder: Recorder, others: Iterable[Array]) -> None:
    """Let chains read codes that nobody but them reads decoded.

    others: inputs, and what is read after the launches.
    """
    left_out, users = {recorder.place_of(a) for a in others}, defaultdict[int, list[Launched]](list)
    for launch in recorder.launches:
        for number in map(recorder.place_of, launch.arrays):
            if number is not None:
                users[number].append(launch)
    for number, using in users.items():
        if number in left_out or len(using) != 2:
            continue
        decoding, chain = using
        packed = runtime().packed_shortcut(decoding, chain)
        if packed is not None and not _is_written(recorder, packed[0], decoding, chain):
            other, levels = chain.arguments[1:3]
            recorder.launches.remove(decoding)
            chain.replace(other, packed[0])
            chain.replace(levels, packed[1])


def _is_written(recorder: Recorder, words: Array, first: Launched, last: Launched) -> bool:
    """Return True if a launch between two, or the last of them, could write to memory of words."""
    number, launches = recorder.place_of(words), recorder.launches
    for launch in launches[launches.index(first) + 1 : launches.index(last) + 1]:
        for a, writable in zip(launch.arrays, launch.writable, strict=True):
            if writable and number is not None and recorder.place_of(a) == number:
                return True
    return False
