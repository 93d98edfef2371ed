"""Gradients of PyTorch's operators where nothing is rounded, and where saved values move a little: a sample of them.

`python -m tests.long gradients` takes all operators.
"""

import pytest
import torch

from tests.long import stubs
from tests.long.gradients import Step, cases, operators

NAMES = (
    "add clamp exp lerp log_softmax matmul max mul nn.functional.batch_norm nn.functional.conv2d "
    "nn.functional.cross_entropy nn.functional.dropout nn.functional.elu nn.functional.gelu "
    "nn.functional.group_norm nn.functional.hardtanh nn.functional.layer_norm nn.functional.linear "
    "nn.functional.max_pool2d nn.functional.prelu nn.functional.relu nn.functional.silu sigmoid softmax tanh var"
).split()
OPERATORS = {op.name: op for op in operators() if op.name in NAMES}
SAMPLES = 6


@pytest.mark.parametrize("name", NAMES)
def test_gradients_without_rounding_and_of_moved_values(name):
    torch.manual_seed(0)
    for number, (function, sample) in enumerate(cases(OPERATORS[name])):
        if number == SAMPLES:
            return
        step = Step(function, sample)
        exact, again = step.gradients(None), step.gradients(None)
        assert torch.isfinite(exact).all()
        wrong = stubs.check(name, step, exact, again)
        assert wrong is None, (sample, wrong)


def test_what_the_checks_see(monkeypatch):
    """A mask of other values, and a value that is compared with another."""
    from quantarray.torch import saving

    (function, sample), *_ = cases(OPERATORS["nn.functional.relu"])
    step = Step(function, sample)
    exact = step.gradients(None)
    packed = saving.Packer.pack_compared
    monkeypatch.setattr(saving.Packer, "pack_compared", lambda *args: packed(*args[:-1], args[-1][::-1]))
    assert "without rounding" in stubs.check("relu", step, exact, exact)
    monkeypatch.undo()
    monkeypatch.setattr(stubs, "MOVE", 0.3)
    (function, sample), *_ = cases(OPERATORS["matmul"])
    step = Step(function, sample)
    assert "gradients move" in stubs.check("matmul", step, step.gradients(None), step.gradients(None))
