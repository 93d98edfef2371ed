"""Store codes as bytes between kernels that multiply bytes: none packs them, and none expands them again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...core.dtypes import Array
from .recording import Launched, Recorder, runtime

_WORDS = 8  # of codes as bytes for a word of planes


class _Use(NamedTuple):
    """A launch that uses memory: as codes that it may write, or read, as bytes, or else as None."""

    launch: Launched
    words: Array
    role: str | None


def store_bytes(recorder: Recorder, others: Iterable[Array]) -> None:
    """Replace memory of planes that only such kernels use by memory of bytes.

    others: inputs, and what is read after the launches.
    """
    uses: dict[int, list[_Use]] = defaultdict(list)
    for launch in recorder.launches:
        kernels = runtime().stored_bytes
        read = kernels.codes_read(launch.kernel, launch.arguments, launch.held)
        written = kernels.codes_written(launch.kernel, launch.arguments, launch.held)
        for a in launch.arrays:
            number = recorder.place_of(a)
            if number is not None:
                is_read = any(a is one for one in read)
                uses[number].append(_Use(launch, a, "writes" if a is written else "reads" if is_read else None))
    left_out = {recorder.place_of(a) for a in others}
    for number, users in uses.items():
        place, (first, *readers) = recorder.places[number], users
        fits = first.role == "writes" and readers and all(use.role == "reads" for use in readers)
        if number in left_out or not fits or any(use.words.nbytes != place.nbytes for use in users):
            continue
        _, rows, length = first.words.shape
        stored = recorder.array((1, rows, _WORDS * length), np.uint64)  # whose rows are written whole
        for use in users:
            use.launch.replace(use.words, stored.reshape(1, *use.words.shape[1:-1], -1))
