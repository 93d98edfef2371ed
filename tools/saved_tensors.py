"""Write the page of what backward passes read of saved tensors: `python -m tools.saved_tensors`, with PyTorch."""

from __future__ import annotations

from quantarray.torch.reads import READS, Read

_INTRODUCTION = """# What backward passes read

`python -m tools.saved_tensors` writes this page from the table in `quantarray/torch/reads.py`, and tests compare the
table with the code.

Autograd saves tensors for the backward pass. `qa.torch.compressed_activations` stores each of them in a form that still
has all that the function's backward pass reads. Functions have the names of autograd's nodes: `ReluBackward0` is
`Relu`. Tensors have the names in PyTorch's derivatives.yaml. **Tensors that are not listed are not packed**, and
neither are tensors that your own `autograd.Function`s save. [Decision
28](decisions/0028-what-backward-passes-read.md) says why.
"""


def page() -> str:
    """Return the page docs/saved-tensors.md as Markdown, with a row for each kind of reading."""
    rows = ["| what the backward pass reads: how the tensor is stored | tensors |", "|---|---|"]
    for read in Read:
        names = " ".join(f"`{name}`" for name, each in READS.items() if each is read)
        rows.append(f"| {read.value} | {names} |")
    return "\n".join([_INTRODUCTION, *rows]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
