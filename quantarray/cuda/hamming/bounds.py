"""Bounds of the distances of the nearest rows: of some rows, the nearest that are asked for are no nearer than those of
all."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..tensor_cores import ptx

_QUERIES = 4  # that a block counts
_BINS = 1 << 10  # of distances, for each of them


def find_bounds(words, queries, sample, most, near):
    """Set near.bounds to distances within which `most` rows are, the queries' ones, and counts to 0.

    Bounds are found among `sample` rows, spread evenly; with 0 they are the greatest distance. Lanes after the last
    query have no distance.
    """
    grid = -(-len(near.counts) // _QUERIES)
    launch.run(_count, grid, launch.WARPS * LANES, words, queries, sample, most, near)


@cuda.jit
def _count(words, queries, sample, most, near):
    bins = cuda.shared.array((_QUERIES, _BINS), np.int32)
    thread, threads, first = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x * _QUERIES
    rows, length = words.shape
    width = (64 * length + _BINS) // _BINS  # distances of a bin
    counts = cuda.local.array(_QUERIES, np.int32)
    i = thread
    while i < _BINS:
        for q in range(_QUERIES):
            bins[q, i] = 0
        i += threads
    cuda.syncthreads()
    i = thread
    while i < sample:
        for q in range(_QUERIES):
            counts[q] = 0
        at = i * rows // sample * length
        for k in range(length):
            word = ptx.read(words, at + k)
            for q in range(_QUERIES):
                query = min(first + q, queries.shape[0] - 1)
                counts[q] += cuda.popc(word ^ ptx.read(queries, query * length + k))
        for q in range(_QUERIES):
            cuda.atomic.add(bins, (q, counts[q] // width), 1)
        i += threads
    cuda.syncthreads()
    q, last = first + thread, 64 * length
    if thread < _QUERIES and q < near.counts.shape[0]:
        ones, seen, distance = np.int32(0), 0, -1
        if q < queries.shape[0]:
            for k in range(length):
                ones += cuda.popc(queries[q, k])
            while seen < most and distance < last:
                distance = distance + width if sample > 0 else last
                if distance < last:
                    seen += bins[thread, distance // width]
        near.extra[0, q], near.bounds[0, q], near.counts[q] = ones, min(distance, last), 0
