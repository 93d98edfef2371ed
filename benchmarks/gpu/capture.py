"""Calls that are launched as one, so that what Python takes between launches is not timed."""

from contextlib import suppress


def by_cupy(xp):
    """capture(call, count) for what runs on CuPy's current stream: launch() then runs so many calls."""

    def capture(call, count):
        from quantarray.cuda.runtime.launch import holding

        pool, stream = xp.cuda.MemoryPool(), xp.cuda.Stream(non_blocking=True)
        with stream, xp.cuda.using_allocator(pool.malloc), holding() as held:
            call()
            stream.synchronize()
            stream.begin_capture()
            try:
                for _ in range(count):
                    result = call()
            except BaseException:
                with suppress(Exception):  # that the capture is invalid, which would hide why
                    stream.end_capture()
                raise
            graph = stream.end_capture()
        return lambda buffers=(pool, held, result): graph.launch()

    return capture


def by_torch(call, count):
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph.replay
