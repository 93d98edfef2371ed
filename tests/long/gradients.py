"""Gradients under `compressed_activations` of PyTorch's operators, on PyTorch's samples, are exact or unbiased."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import stubs
from .proof import Proof

BITS, STEPS, MOST_SAMPLES = 2, 1000, 20
DIRECTIONS, ERRORS = 4, 4.33  # 4 standard errors of one direction are as rare as 4.33 of the worst of four
# Derivatives that are piecewise constant, or a comparison of saved values: equal to the bit
EXACT = frozenset(
    """
    abs amax amin aminmax clamp clamp_max clamp_min cummax cummin fmax fmin index_reduce_amax index_reduce_amin
    kthvalue masked.amax masked.amin max maximum median min minimum mode msort nan_to_num nanmedian
    nn.functional.adaptive_avg_pool2d nn.functional.adaptive_max_pool2d nn.functional.avg_pool2d nn.functional.dropout
    nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardtanh nn.functional.leaky_relu
    nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.relu nn.functional.relu6
    nn.functional.rrelu nn.functional.softshrink nn.functional.threshold renorm scatter_reduce_amax
    scatter_reduce_amin sgn sign sort topk where
    """.split()
)


def prepare() -> None:
    """Let PyTorch run on one thread."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def operators() -> list[Any]:
    """Return PyTorch's operators with a gradient in float32."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")]


def run(rng: np.random.Generator) -> str:
    """Compare an operator on its samples, and its variant in place.

    "unbiased": tensors were rounded, and the mean of 1,000 steps at 8 bits is right on the largest sample. "equal":
    tensors were packed and none was rounded: gradients at 2 bits are those of exact training to the bit. "left alone":
    nothing was packed.

    Without rounding gradients are exact, and where each value that is rounded moves by 1e-3 they move by at most ten
    times that: see `stubs`.
    """
    import torch

    seed, number = rng.bit_generator.seed_seq.entropy  # type: ignore[attr-defined]
    every = operators()
    op = every[np.random.default_rng(seed).permutation(len(every))[number % len(every)]]
    name = f"{op.name}_{op.variant_test_name}".strip("_")
    print(name)
    torch.manual_seed(seed)
    kinds, largest = set(), None
    for function, sample in cases(op):
        step = Step(function, sample)
        try:
            exact, again = step.gradients(None), step.gradients(None)
        except RuntimeError:
            if function is op.inplace_variant:
                continue  # a result of another dtype or shape
            raise
        for bits in (BITS, 8):
            context = step.context(bits)
            try:
                got = step.gradients(context)
            except ValueError as error:
                if not str(error).startswith("compressed_activations: ") or step.is_finite():
                    raise
                kinds.add("refused")
                break
            if bits == BITS and exact.numel() and torch.isfinite(exact).all():
                wrong = stubs.check(op.name, step, exact, again)
                assert wrong is None, wrong
            assert not (got.isnan() & ~exact.isnan()).any(), "NaN where exact training has none"
            rounded = bool(context.report.bits)
            assert not (rounded and {op.name, name} & EXACT), "values were rounded, where a comparison needs none"
            if not rounded:
                assert torch.equal(again, exact) <= torch.equal(got, exact), f"not equal: {(got - exact).abs().max()}"
                kinds.add("left alone" if context.report.before == context.report.after else "equal")
            elif bits == 8 and torch.isfinite(exact).all() and (largest is None or len(exact) > len(largest[2])):
                largest = step, context, exact
    if largest is not None:
        _check_mean(*largest)
        kinds.add("unbiased")
    for kind in ("unbiased", "equal", "left alone", "refused"):
        if kind in kinds:
            return kind
    return "no gradient"


def cases(op: Any) -> Iterator[tuple[Callable[..., Any], Any]]:
    import torch

    for i, sample in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=True)):
        if i >= MOST_SAMPLES:
            return
        yield op.op, sample
        if op.inplace_variant is not None and op.supports_inplace_autograd and not sample.broadcasts_input:
            yield op.inplace_variant, sample


class Step:
    """A forward and a backward pass of an operator on a sample, with fixed random numbers and gradients of results."""

    def __init__(self, function: Callable[..., Any], sample: Any) -> None:
        self._function, self._sample = function, sample
        self.upstream = 0.0  # the norm of the gradients of results

    def context(self, bits: int) -> Any:
        """Return a context that packs tensors of any size."""
        import quantarray as qa

        return qa.torch.compressed_activations(bits, least=1)

    def is_finite(self) -> bool:
        """True if no argument and no result has NaN or infinity."""
        import torch
        from torch.utils import _pytree as tree

        with torch.no_grad():
            result = self._function(*self._arguments(lambda x: x.clone())[0], **self._arguments(lambda x: x.clone())[1])
        leaves = tree.tree_leaves((self._sample.input, self._sample.args, self._sample.kwargs, result))
        return all(
            bool(torch.isfinite(x).all()) for x in leaves if isinstance(x, torch.Tensor) and x.layout == torch.strided
        )

    def _arguments(self, change: Callable[[Any], Any]) -> tuple[Any, Any]:
        import torch
        from torch.utils import _pytree as tree

        sample = self._sample
        changed = lambda x: change(x) if isinstance(x, torch.Tensor) and x.requires_grad else x  # noqa: E731
        return tree.tree_map(changed, ((sample.input, *sample.args), dict(sample.kwargs)))

    def gradients(self, context: Any) -> Any:
        """Return the gradients of all arguments, flattened, in or out of a context; of complex ones both parts."""
        import torch
        from torch.utils import _pytree as tree

        torch.manual_seed(0)
        leaves: list[Any] = []
        # A leaf is left alone, so functions take copies, or views where they need the memory around an argument
        copied = (lambda x: x.view_as(x)) if "as_strided" in str(self._function) else torch.clone
        args, kwargs = self._arguments(lambda x: leaves.append(x) or copied(x))
        if context is None:
            result = self._function(*args, **kwargs)
        else:
            with context:
                result = self._function(*args, **kwargs)
        if self._sample.output_process_fn_grad is not None:
            result = self._sample.output_process_fn_grad(result)
        results = [y for y in tree.tree_leaves(result) if isinstance(y, torch.Tensor) and y.requires_grad]
        if not results or not leaves:
            return torch.zeros(0)
        torch.manual_seed(1)
        upstream = [torch.randn(y.shape, dtype=y.dtype) for y in results]
        self.upstream = sum(float(g.abs().square().sum()) for g in upstream) ** 0.5
        each = torch.autograd.grad(results, leaves, upstream, allow_unused=True)
        parts = [g.to_dense() if g.layout != torch.strided else g for g in each if g is not None]
        flat = [torch.view_as_real(g.resolve_conj()) if g.is_complex() else g for g in parts]
        return torch.cat([g.reshape(-1).double() for g in flat]) if flat else torch.zeros(0)


def _check_mean(step: Step, context: Any, exact: Any) -> None:
    """Check that the mean of steps is the exact gradient, projected on fixed random directions."""
    import torch

    directions = torch.randn(DIRECTIONS, exact.numel(), dtype=exact.dtype, generator=torch.Generator().manual_seed(2))
    numbers = torch.stack([directions @ step.gradients(context) for _ in range(STEPS)])
    off = (numbers.mean(0) - directions @ exact).abs()
    error = numbers.std(0) / STEPS**0.5
    float32 = 1e-6 * directions.abs() @ exact.abs()  # sums of other numbers are rounded in other places
    assert (off <= ERRORS * error + float32).all(), f"off by {(off / error).tolist()} standard errors"


def verdict(counts: dict[str, int]) -> str | None:
    """Check that tensors of a fifth of the operators are packed: of the others most save none, or divide by it."""
    packed, total = counts.get("equal", 0) + counts.get("unbiased", 0), sum(counts.values())
    return f"tensors of {packed} of {total} operators are packed, less than a fifth" if packed < total / 5 else None


PROOF = Proof(run, 540, prepare=prepare, stretch=50, seconds=400, verdict=verdict)
