"""Write the page of what backward passes read of saved tensors: `python -m tools.saved_tensors`, with PyTorch."""

from __future__ import annotations

from quantarray.torch.reads import READS, Read

_INTRODUCTION = """# What backward passes read

Made by `python -m tools.saved_tensors` from the table in `quantarray/torch/reads.py`; the tests hold it to the code.

`qa.torch.compressed_activations` keeps each tensor that autograd saves in a form that has all that the function's
backward pass reads. Functions have the names of autograd's nodes, `ReluBackward0` is `Relu`, and tensors those of
PyTorch's derivatives.yaml. **Tensors that are not listed are left alone**, as functions of a program are. Why:
[decision 28](decisions/0028-what-backward-passes-read.md).
"""


def page() -> str:
    """Return the page docs/saved-tensors.md as Markdown, with a row for each kind of reading."""
    rows = ["| the backward pass reads, and the tensor is stored as | of |", "|---|---|"]
    for read in Read:
        names = " ".join(f"`{name}`" for name, each in READS.items() if each is read)
        rows.append(f"| {read.value} | {names} |")
    return "\n".join([_INTRODUCTION, *rows]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
