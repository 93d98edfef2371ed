"""PTX and SASS of kernels that ran on a GPU, as Numba compiles them: machine code from disk has no text."""

from . import launch, on_disk

FORMS = ("ptx", "sass")


def texts(modules, form, run):
    """{function: text} of the kernels of some modules that `run` launches."""
    if form not in FORMS:
        raise ValueError(f"explain: code of a GPU is one of {', '.join(map(repr, FORMS))}, got {form!r}")
    names, before = {module.__name__ for module in modules}, dict(launch._ready)
    launch._ready.clear()  # so that each kernel that is launched is noted
    try:
        with on_disk.unread():
            run()
        used = [one.compiled for one in launch._ready.values()]
    finally:
        launch._ready.update(before)
    return {
        f"{one.py_func.__name__}{takes}": one.inspect_asm(takes) if form == "ptx" else one.inspect_sass(takes)
        for one in used
        if one.py_func.__module__ in names
        for takes in one.overloads
    }
