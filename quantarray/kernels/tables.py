"""A part of the contract: kernels that map codes through tables."""

from __future__ import annotations

from ..core.dtypes import Array


def recode(words: Array, others: Array, tables: Array, row: Array, group: int, length: int, out: Array) -> None:
    """Map each code through a table: out planes of tables[row[r], i // group, code], tails zero.

    A code has the bits of words uint64[planes rows words], then above them those of others, of as many rows and words
    and perhaps no plane. tables uint32[row_tables group_tables 2**planes], row int64[rows], or its one entry for all;
    a row has `length` elements; out uint64[planes rows words]."""


def look_up(words: Array, others: Array, table: Array, factors: Array, length: int, out: Array) -> None:
    """Write the code table[c + 2**planes * d] for each code c of words uint64[planes rows words] and d of others.

    others has the rows of words, or no planes, and d is 0. table uint8[2**(planes of both)]. Where factors float32[8]
    are not empty, the table is clip(rint((c * f[0] + f[1] + (d * f[2] + f[3])) * f[4]) + f[5], f[6], f[7]) of float32,
    the products and the first additions rounded once together. Rows have `length` codes; out uint64[planes rows words]
    has zeros after them. On the CPU only."""
