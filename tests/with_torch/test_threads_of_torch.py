"""PyTorch's number of threads stays what it is, whichever package comes first and whoever sets its own."""

import os
import subprocess
import sys

import pytest

PROGRAMS = {
    "PyTorch first": """
import torch
torch.set_num_threads(1)
import quantarray as qa
qa.torch.LQ(2)(torch.randn(64, 16, 14, 14))
""",
    "numbers of both": """
import torch
torch.set_num_threads(1)
import quantarray as qa
qa.set_num_threads(qa.get_num_threads())
qa.torch.LQ(2)(torch.randn(64, 16, 14, 14))
""",
    "PyTorch last": """
import numpy as np, quantarray as qa
q = qa.encode(np.ones((640, 6400)), (-1, 1))
qa.linear(q, q)
import torch
torch.set_num_threads(1)
qa.torch.LQ(2)(torch.randn(64, 16, 14, 14))
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("variables", [{}, {"OMP_NUM_THREADS": "1"}, {"QUANTARRAY_THREADS": "own"}])
def test_number_of_threads(program, variables):
    code = PROGRAMS[program] + "print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True)
    assert done.stdout.split() == ["1"], done.stderr
