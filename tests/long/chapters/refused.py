"""Calls whose results no machine holds. Each has to say what it needs, before it allocates anything like it."""

from __future__ import annotations

from typing import Any

import numpy as np

import quantarray as qa

ROW = qa.encode(np.ones(2**23, np.int8), values=(-1, 1))  # 1 MiB
WIDE: Any = qa.broadcast_to(qa.encode(np.ones(2**7, np.int8), values=(-1, 1)), (2**23, 2**21, 2**7))
REAL: Any = WIDE * 0.5

CALLS = {
    "codes": WIDE.codes,
    "dequantize": WIDE.dequantize,
    "dequantize floats": REAL.dequantize,
    "copy": WIDE.copy,
    "outer": lambda: qa.outer(ROW, ROW),
    "outer of floats": lambda: qa.outer(ROW * 0.5, ROW),
    "inner": lambda: qa.inner(ROW[:, None], ROW[:, None]),
    "matmul": lambda: qa.matmul(ROW.reshape(-1, 1), ROW.reshape(-1, 1).T),
    "linear": lambda: qa.linear(ROW.reshape(-1, 1), ROW.reshape(-1, 1)),
    "einsum": lambda: qa.einsum("ik,jk->ij", ROW.reshape(-1, 1), ROW.reshape(-1, 1)),
    "add": lambda: ROW.repack(0)[:, None] + ROW.reshape(1, -1, 1).repack(2)[0],
    "tile": lambda: qa.tile(ROW, (2**23, 2)),
    "repeat": lambda: qa.repeat(ROW, 2**30),
    "pad": lambda: qa.pad(ROW, 2**45, constant_values=1),
    "zeros": lambda: qa.zeros((2**23, 2**25)),
    "full": lambda: qa.full((2**23, 2**25), 1),
    "eye": lambda: qa.eye(2**24),
    "dropout_mask": lambda: qa.dropout_mask((2**23, 2**25), 0.5),
    "cumulative_sum": lambda: qa.cumulative_sum(WIDE, axis=0),
    "cumulative_prod": lambda: qa.cumulative_prod(WIDE, axis=0),
    "diff": lambda: qa.diff(WIDE, axis=0),
    "argsort": lambda: qa.argsort(WIDE, axis=0),
    "sort": lambda: qa.sort(WIDE, axis=0),
    "sum": lambda: qa.sum(WIDE, 2),
    "max": lambda: qa.max(WIDE, 2),
    "counts": lambda: qa.counts(WIDE, 2),
    "argmax": lambda: qa.argmax(WIDE, 2),
    "concatenate": lambda: qa.concatenate([WIDE, WIDE]),
    "stack": lambda: qa.stack([WIDE, WIDE]),
    "unique_inverse": lambda: qa.unique_inverse(WIDE),
    "reshape": lambda: WIDE.reshape(-1, 2**8),
    "repack": lambda: WIDE.repack(0),
    "greater": lambda: WIDE[..., None] > ROW[:128].repack(0)[:, None],
    "hamming": lambda: qa.hamming(WIDE, WIDE, 2),
    "vecdot": lambda: qa.vecdot(WIDE, WIDE),
    "max_pool2d": lambda: qa.max_pool2d(WIDE[None], 1),
    "conv2d": lambda: qa.conv2d(WIDE[None], WIDE[:1, :1, :].reshape(1, 1, 1, 128)),
    "from_codes": lambda: qa.from_codes(np.broadcast_to(np.uint8(1), (2**23, 2**25)), qa.uint1),
    "encode": lambda: qa.encode(np.broadcast_to(np.int8(1), (2**23, 2**25)), qa.uint1),
    "to_packbits": lambda: qa.to_packbits(qa.broadcast_to(qa.zeros(2**20), (2**30, 2**20))),
    "getitem": lambda: WIDE[:, :, 1:],
    "flip": lambda: qa.flip(WIDE),
    "roll": lambda: qa.roll(WIDE, 1, 2),
    "isin": lambda: qa.isin(WIDE, 1),
    "where": lambda: qa.where(WIDE > 0, WIDE, 0),
    "map": lambda: qa.map2(np.hypot, WIDE, WIDE),
    "take": lambda: qa.take(WIDE, np.zeros(2**20, int), 1),
    "swapaxes and repack": lambda: WIDE.swapaxes(0, 1).repack(1),
}
