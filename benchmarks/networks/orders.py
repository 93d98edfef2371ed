"""Times of the two orders of axes, NCHW and NHWC: of the images that a network gets, and of its convolutions."""

import time
from functools import partial
from statistics import median

import numpy as np

import quantarray as qa

ORDERS = "NCHW", "NHWC"
_WARM, _LEAST = 3, 3  # calls before, in the second of which a network is planned; and calls that are timed


def orders(network, x, seconds):
    """Return {"images": {order: seconds}, "layers": {order: seconds}}, medians of a call of the prepared network and of
    all its 2-D convolutions together; the two orders take turns.

    x: uint8 [n c h w]. NHWC images are bytes in that order, of which the network gets a view with its axes exchanged.
    """
    prepared = network.prepared()
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    images = {"NCHW": lambda: prepared(x), "NHWC": lambda: prepared(turned)}
    layers = {order: partial(_all, _convolutions(network, x, order)) for order in ORDERS}
    return {"images": _turns(images, seconds), "layers": _turns(layers, seconds)}


def _all(calls):
    for call in calls:
        call()


def _convolutions(network, x, order):
    """Return a call of each 2-D convolution of a network on what it gets for x."""
    values, calls = {**network.constants, **network.trace(x)}, []
    for node in network.nodes:
        if node.op == "conv2d":
            a, w = (values[name] for name in node.inputs[:2])
            if order == "NHWC":
                a, w = (_channels_last(v) for v in (a, w))
            options = {name: node.attributes[name] for name in ("stride", "padding", "dilation", "groups")}
            calls.append(lambda a=a, w=w, options=options: qa.conv2d(a, w, data_format=order, **options))
    return calls


def _channels_last(v):
    last = v.transpose(0, 2, 3, 1)
    return last if isinstance(v, qa.QuantArray) else np.ascontiguousarray(last)


def _turns(calls, seconds):
    """Return the median seconds of each call, made in turns."""
    for _ in range(_WARM):
        for call in calls.values():
            call()
    times, end = {order: [] for order in calls}, time.perf_counter() + seconds
    while len(times["NHWC"]) < _LEAST or time.perf_counter() < end:
        for order, call in calls.items():
            start = time.perf_counter()
            call()
            times[order].append(time.perf_counter() - start)
    return {order: median(each) for order, each in times.items()}
