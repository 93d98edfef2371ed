"""Functions that move words: bytes a second against `np.copy` of the same words.

    python -m benchmarks.array_ops [--rounds N] [--only TEXT] [--json OUT]

64 MiB of words, of 1 and 4 bits: rows of 65,536 elements, and of 100, two words each. A row counts the words
that go in and come out, as for the copy; contenders take turns, times are medians.
"""

import argparse
import json

import numpy as np

import quantarray as qa

from .quantizers import in_turns

WIDE = {
    "slice of bits": lambda q: q[:, :, 1:-1],
    "slice of step 2": lambda q: q[:, :, ::2],
    "slice of step 3": lambda q: q[:, :, ::3],
    "slice of step 20": lambda q: q[:, :, ::20],
    "flip, packed": lambda q: qa.flip(q, 2),
    "concatenate, packed": lambda q: qa.concatenate([q, q[:, :, :7], q], axis=2),
    "concatenate, outer": lambda q: qa.concatenate([q, q], axis=0),
    "stack": lambda q: qa.stack([q, q]),
    "split, packed": lambda q: qa.array_split(q, 3, 2),
    "roll, packed": lambda q: qa.roll(q, 7, axis=2),
    "roll, outer": lambda q: qa.roll(q, 7, axis=1),
    "pad, packed": lambda q: qa.pad(q, ((0, 0), (0, 0), (3, 3)), constant_values=1),
    "pad, outer": lambda q: qa.pad(q, ((1, 1), (1, 1), (0, 0)), constant_values=1),
    "tile, packed": lambda q: qa.tile(q, 2),
    "tile, outer": lambda q: qa.tile(q, (1, 2, 1)),
    "take, packed": lambda q: qa.take(q, SHUFFLED, axis=2),
    "take, outer": lambda q: qa.take(q, np.arange(q.shape[1])[::-1], axis=1),
    "repeat, packed": lambda q: qa.repeat(q, 2, axis=2),
    "repeat, outer": lambda q: qa.repeat(q, 2, axis=1),
    "mask, outer": lambda q: q[:, np.arange(q.shape[1]) % 2 == 0],
    "repack": lambda q: qa.repack(q, 1),
    "copy": lambda q: q.copy(),
}
NARROW = {
    "slice of bits": lambda q: q[:, 1:],
    "flip": lambda q: qa.flip(q, 1),
    "concatenate": lambda q: qa.concatenate([q, q], axis=1),
    "roll": lambda q: qa.roll(q, 7, axis=1),
    "pad": lambda q: qa.pad(q, ((0, 0), (3, 3)), constant_values=1),
    "reshape to rows of 50": lambda q: qa.reshape(q, -1, 50),
    "reshape to rows of 400": lambda q: qa.reshape(q, -1, 400),
    "ravel": lambda q: qa.ravel(q),
    "repack": lambda q: qa.repack(q, 0),
}
INPUTS = {"concatenate": 2, "stack": 2}  # of the words; 1 elsewhere
SHUFFLED = np.random.default_rng(0).permutation(65536)


def dtype(bits):
    return qa.bipolar if bits == 1 else getattr(qa, f"uint{bits}")


def wide(bits):
    words = np.random.default_rng(bits).integers(0, 2**64, (bits, 64 // bits, 128, 1024), dtype=np.uint64)
    return qa.from_words(words, dtype(bits), (64 // bits, 128, 65536))


def narrow(bits):
    rows = 2**22 // bits
    words = np.random.default_rng(bits).integers(0, 2**64, (bits, rows, 2), dtype=np.uint64)
    words[..., 1] &= np.uint64(2**36 - 1)
    return qa.from_words(words, dtype(bits), (rows, 100))


def moved(result):
    """Return the number of bytes of words in a result: an array or a list of arrays."""
    return sum(map(moved, result)) if isinstance(result, list) else result.words.nbytes


def touch_memory():
    """Fill as much memory as any case needs: a process gets its first pages slowly, whichever case uses them."""
    for _ in range(2):
        held = [np.ones(2**23) for _ in range(8)]
        del held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="cases whose names begin so")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    rows = []
    touch_memory()
    print(f"{'':>30} {'bits':>4} {'ms':>8} {'GB/s':>7} {'of np.copy':>10}")
    for make, cases, kind in ((wide, WIDE, "wide"), (narrow, NARROW, "narrow")):
        for bits in (1, 4):
            q = make(bits)
            words = np.array(q.words)
            for case, call in cases.items():
                name = f"{kind}: {case}"
                if not name.startswith(args.only):
                    continue
                nbytes = words.nbytes * INPUTS.get(case.partition(",")[0], 1) + moved(call(q))
                ms = in_turns({"np.copy": words.copy, name: lambda call=call, q=q: call(q)}, args.rounds)
                rate, copied = nbytes / ms[name] / 1e6, 2 * words.nbytes / ms["np.copy"] / 1e6
                rows.append({"name": name, "bits": bits, "ms": ms[name], "gb_per_s": rate, "copy_gb_per_s": copied})
                print(f"{name:>30} {bits:>4} {ms[name]:>8.2f} {rate:>7.1f} {rate / copied:>10.0%}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
