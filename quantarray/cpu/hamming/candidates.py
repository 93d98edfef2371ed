"""Store the k best of scores, a block of rows at a time: of scores that are computed elsewhere, or of products.

`add_products` looks at products of queries and rows. A row is among the best where its product is above a number of the
query, plus another one times a number of the row. That is compared in float32, with a bound that is a little less than
it is; scores are computed, in float64, of the few that pass.
"""

import numpy as np

from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .reservoir import FAR, LEAST, add, finish, reservoir_of

_AT_ONCE = 64  # scores of which the least is compared with the limit
_SUM, _ESTIMATE, _DISTANCE, _COSINE = range(4)  # metrics of `add_products`
_NOT_SIGN = np.int64(FAR)  # the bits of a float64 that have its magnitude
_LESS = 1e-6  # of a bound's terms: more than what float32 rounds in a comparison
_TINY, _MOST = 1e-30, 3e38


def add_candidates(scores, flip, first, k, counts, limits, out):
    asked = len(scores)
    workers = min(asked, threads.workers(scores.size, LEAST))
    threads.run(_add_range, (scores, np.int64(flip), first, k, counts, limits, out), asked, workers)


def add_products(products, across, divisors, of_query, of_row, metric, first, k, counts, limits, out):
    asked, final = len(counts), len(divisors) == 0
    divisors = np.ones(asked) if final else divisors
    arguments = products, final, divisors, of_query, of_row, metric, first, k, counts, limits, out
    run = _add_across if across else _add_along
    threads.run(run, arguments, asked, min(asked, threads.workers(products.size, LEAST)))


def least_candidates(counts, candidates, out):
    finish(candidates[None], counts[None], out.shape[2], 0, out)


@Kernel
def _add_range(scores, flip, start, k, counts, limits, out, first, last):
    best = reservoir_of(out, counts, limits, k)
    for q in range(first, last):
        for at in range(0, scores.shape[1], _AT_ONCE):
            end = min(at + _AT_ONCE, scores.shape[1])
            if _least(scores, flip, q, at, end) < limits[q]:
                for i in range(at, end):
                    key = _key(scores[q, i], flip)
                    if key < limits[q]:
                        add(best, q, key, start + i)


@inner
def _least(scores, flip, q, first, last):
    least = FAR
    for i in range(first, last):
        least = min(least, _key(scores[q, i], flip))
    return least


@inner
def _key(score, flip):
    return score ^ ((score >> 63) & flip)


@Kernel
def _add_along(products, final, divisors, of_query, of_row, metric, start, k, counts, limits, out, first, last):
    """Look at products [asked rows], a run of rows at a time."""
    prefer_wide()
    best = reservoir_of(out, counts, limits, k)
    for q in range(first, last):
        look_along(products[q], products.shape[1], final, divisors[q], of_query[q], of_row, 0, metric, q, start, best)


@inline
def look_along(products, count, final, divisor, of_query, of_row, at, metric, q, start, best):
    """Add those of `count` rows, from `start` on, that are among the best of query q; their numbers are of_row[at ..].

    No slices: each counts references, for 5 ns.
    """
    least, slope = _bound(metric, best.limits[q], divisor, of_query)
    for first in range(0, count, _AT_ONCE):
        last = min(first + _AT_ONCE, count)
        if _passing_rows(products, first, last, least, slope, of_row, at, metric):
            for r in range(first, last):
                b = np.float32(0) if metric == _SUM else _term(metric, np.float32(of_row[at + r]))
                if not np.float32(products[r]) <= least + slope * b:
                    p = _quotient(products[r], divisor, final)
                    if _look(p, of_query, of_row, at + r, metric, q, start + r, best):
                        least, slope = _bound(metric, best.limits[q], divisor, of_query)


@Kernel
def _add_across(products, final, divisors, of_query, of_row, metric, start, k, counts, limits, out, first, last):
    """Look at products [rows asked], a run of queries at a time."""
    best = reservoir_of(out, counts, limits, k)
    least, slope = np.empty(last - first, np.float32), np.empty(last - first, np.float32)
    for q in range(first, last):
        least[q - first], slope[q - first] = _bound(metric, limits[q], divisors[q], of_query[q])
    for r in range(len(products)):
        b = np.float32(0) if metric == _SUM else _term(metric, np.float32(of_row[r]))
        for at in range(first, last, _AT_ONCE):
            end = min(at + _AT_ONCE, last)
            if _passing_queries(
                products[r, at:end], least[at - first : end - first], slope[at - first : end - first], b
            ):
                for q in range(at, end):
                    p = _quotient(products[r, q], divisors[q], final)
                    if _look(p, of_query[q], of_row, r, metric, q, start + r, best):
                        least[q - first], slope[q - first] = _bound(metric, limits[q], divisors[q], of_query[q])


@inner
def _bound(metric, limit, divisor, of_query):
    """Return (least, slope): products of rows that may be added are above least + slope * term, or not a number."""
    if limit == FAR:
        return np.float32(-np.inf), np.float32(0)
    worst = np.int64(limit ^ ((limit >> 63) & _NOT_SIGN)).view(np.float64)
    if metric == _DISTANCE and worst <= 0.0:  # no distance is less
        return np.float32(np.inf), np.float32(0)
    least, slope = 0.0, -worst * of_query * divisor
    if metric != _COSINE:
        half = 1.0 if metric == _SUM else 0.5
        sign = -1.0 if metric == _SUM else 1.0
        least, slope = half * divisor * (sign * of_query - worst), 0.0 if metric == _SUM else half * divisor
        least -= _LESS * divisor * (abs(worst) + abs(of_query))
    return np.float32(min(least - _TINY, _MOST)), np.float32(slope - _LESS * abs(slope))


@inline
def _term(metric, of_row):
    return of_row * of_row if metric == _ESTIMATE else of_row


@inline
def _passing_rows(products, first, last, least, slope, of_row, at, metric):
    """True if a product of a query and some rows is above its bound."""
    passing, first, last, at = False, np.uint64(first), np.uint64(last), np.uint64(at)
    if metric == _SUM:
        for r in range(first, last):
            passing |= not np.float32(products[r]) <= least
    elif metric == _ESTIMATE:
        for r in range(first, last):
            b = np.float32(of_row[at + r])
            passing |= not np.float32(products[r]) <= least + slope * (b * b)
    else:
        for r in range(first, last):
            passing |= not np.float32(products[r]) <= least + slope * np.float32(of_row[at + r])
    return passing


@inner
def _passing_queries(products, least, slope, b):
    """True if a product of a row and some queries is above its bound."""
    passing = np.int32(0)
    for q in range(len(products)):
        passing |= np.int32(not np.float32(products[q]) <= least[q] + slope[q] * b)
    return passing != 0


@inline
def _quotient(product, divisor, final):
    """Return the product that is scored, float64: as it is where it is `final`, or divided and rounded to float32."""
    return np.float64(product) if final else np.float64(np.float32(np.float64(product) / divisor))


@inline
def _look(p, of_query, of_row, r, metric, q, row, best):
    """Add a row, whose number is of_row[r], if its score is below the limit; True where this lowers the limit."""
    if metric == _SUM:
        score = -(p + of_query)
    elif metric == _COSINE:
        lengths = of_query * np.float64(of_row[r])
        score = -(p / lengths) if lengths != 0.0 else 0.0
    else:
        score = of_query + _term(metric, np.float64(of_row[r])) - 2 * p
        score = max(score, 0.0) if metric == _DISTANCE else score
    bits = np.float64(score + 0.0).view(np.int64)
    key = bits ^ ((bits >> 63) & _NOT_SIGN)
    return key < best.limits[q] and add(best, q, key, row)
