"""Windows: outputs, border classes and runs of words against plain loops."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantarray.cpu.popcount.tile_tasks import by_place, tile_words
from quantarray.kernels.windows import Window, along, classes, plan, row_plan, same_padding, tap_offsets


@st.composite
def windows(draw, most_axes=3):
    axes = draw(st.integers(1, most_axes))
    made = []
    for _ in range(axes):
        size, dilation, stride = (draw(st.integers(1, 3)) for _ in range(3))
        pads = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        image = max(draw(st.integers(1, 5)), (size - 1) * dilation + 1 - sum(pads))
        made.append((image, size, stride, pads, dilation))
    return Window(*map(tuple, zip(*made, strict=True)))


def seen(window):
    """For every output pixel, in order: input pixel (or None outside) of each tap, by literal loops."""
    pixels = []
    for out in itertools.product(*map(range, window.output)):
        taps = []
        for tap in itertools.product(*map(range, window.size)):
            at = [o * s - p[0] + t * d for o, s, p, t, d in
                  zip(out, window.stride, window.pads, tap, window.dilation, strict=True)]  # fmt: skip
            inside = all(0 <= a < n for a, n in zip(at, window.image, strict=True))
            taps.append(int(np.ravel_multi_index(at, window.image)) if inside else None)
        pixels.append(taps)
    return pixels


@given(windows())
def test_output_is_how_often_the_window_fits(window):
    for axis in range(len(window.image)):
        n, k, s = window.image[axis], window.size[axis], window.stride[axis]
        assert window.output[axis] == naive.out_size(n, k, s, *window.pads[axis], window.dilation[axis])


def test_same_padding_is_the_oracles():
    for n, k, s, d in itertools.product(range(1, 9), range(1, 5), range(1, 4), range(1, 4)):
        assert same_padding(n, k, s, d) == naive.pads(n, k, s, d, "same")
        window = Window((n,), (k,), (s,), (same_padding(n, k, s, d),), (d,))
        assert window.output == (-(-n // s),)


@given(windows())
def test_classes_say_which_taps_are_inside(window):
    found = classes(window)
    offsets = tap_offsets(window)
    for pixel, taps in enumerate(seen(window)):
        inside = found.inside[found.of_pixel[pixel]]
        assert inside.tolist() == [at is not None for at in taps]
        assert all(found.origin[pixel] + offsets[t] == at for t, at in enumerate(taps) if at is not None)


@given(windows(2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_plan_visits_every_pixel_and_word_once(window, words, groups, tile, placed):
    made = plan(window, words, groups, tile)
    made = by_place(made) if placed else made
    counted = tile_words(made)
    pixels, visited = seen(window), []
    assert made.image_words == int(np.prod(window.image)) * words * groups and made.parts == 1
    for t in range(len(made.counts)):
        kind = made.classes[t]
        runs = made.runs[made.first_run[kind] : made.first_run[kind + 1]]
        assert 1 <= made.counts[t] <= tile
        for pixel in made.pixels[t]:  # also those that fill the tile up must stay inside the image
            pairs = {(at + made.origin[pixel] + i, weight + i) for at, weight, n in runs for i in range(n)}
            expected = {
                (at * words * groups + i, tap * words + i)
                for tap, at in enumerate(pixels[pixel])
                if at is not None
                for i in range(words)
            }
            assert pairs == expected and sum(n for _, _, n in runs) == len(expected) == counted[t]
        visited += made.pixels[t][: made.counts[t]].tolist()
    assert sorted(visited) == list(range(window.pixels))
    first = made.pixels[:, 0] if placed else made.classes
    assert (np.diff(first) >= 0).all()


@given(windows(2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4))
def test_plan_of_taps_side_by_side(window, axes, words, tile):
    """Pixels have the places of outputs along the last axes; those with a tap inside the image are counted."""
    axes = min(axes, len(window.size))
    left, made = along(window, axes), plan(window, words, 1, tile, axes)
    kept, beside = len(window.size) - axes, window.taps // left.taps
    geometry = list(zip(window.stride, window.pads, window.dilation, strict=True))[:kept]
    assert left.output == window.output and made.image_words == int(np.prod(left.image)) * words
    for pixel, (out, taps) in enumerate(zip(itertools.product(*map(range, window.output)), seen(window), strict=True)):
        expected = set()
        for row, tap in enumerate(itertools.product(*map(range, window.size[:kept]))):
            if any(at is not None for at in taps[row * beside : (row + 1) * beside]):
                place = [o * s - p[0] + t * d for o, t, (s, p, d) in zip(out, tap, geometry, strict=False)]
                at = int(np.ravel_multi_index((*place, *out[kept:]), left.image))
                expected |= {(at * words + i, row * words + i) for i in range(words)}
        kind = classes(window).of_pixel[pixel]
        runs = made.runs[made.first_run[kind] : made.first_run[kind + 1]]
        assert {(at + made.origin[pixel] + i, weight + i) for at, weight, n in runs for i in range(n)} == expected


@given(st.integers(0, 9), st.integers(1, 7), st.integers(1, 4), st.integers(1, 4))
def test_row_plan_cuts_rows_into_parts(rows, words, part, tile):
    made = row_plan(rows, words, part, tile)
    visited = [p for t, n in enumerate(made.counts) for p in made.pixels[t][:n].tolist()]
    assert sorted(visited) == list(range(rows)) and made.image_words == rows * words
    assert made.origin.tolist() == [row * words for row in range(rows)]
    cuts = [list(range(words))[at : at + part] for at in range(0, words, part)]
    assert made.parts == len(cuts) == len(made.first_run) - 1
    for p, cut in enumerate(cuts):
        runs = made.runs[made.first_run[p] : made.first_run[p + 1]]
        assert [(at + i, weight + i) for at, weight, n in runs for i in range(n)] == [(i, i) for i in cut]


@pytest.mark.parametrize("image, size, output", [((0,), (1,), (0,)), ((2,), (3,), (0,)), ((1, 5), (1, 2), (1, 4))])
def test_a_window_that_does_not_fit_has_no_output(image, size, output):
    ones = (1,) * len(image)
    assert Window(image, size, ones, ((0, 0),) * len(image), ones).output == output
