"""PTX and SASS of kernels that ran on a GPU, as Numba compiled them."""

FORMS = ("ptx", "sass")


def texts(modules, form, run):
    """{function: text} of the kernels of some modules, once `run` has compiled them."""
    if form not in FORMS:
        raise ValueError(f"explain: code of a GPU is one of {', '.join(map(repr, FORMS))}, got {form!r}")
    run()
    return {
        f"{one.py_func.__name__}{takes}": one.inspect_asm(takes) if form == "ptx" else one.inspect_sass(takes)
        for module in modules
        for one in vars(module).values()
        if hasattr(one, "inspect_asm") and hasattr(one, "inspect_sass")
        for takes in one.overloads
    }
