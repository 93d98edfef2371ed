"""The tutorial of a network runs as it is: its blocks in one session, then its shell commands."""

import contextlib
import io
import os
import re
import shlex

import numpy as np
import torch
from paths import DOCS

import quantarray as qa
from quantarray import cli

START = (DOCS / "index.md").read_text()
PAGE = (DOCS / "tutorials" / "network.md").read_text()


def test_every_step_of_the_tutorial(tmp_path, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names, printed, before = {}, [], os.getcwd()
    os.chdir(tmp_path)
    try:
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block, "network.md", "exec"), names)
            printed.append(out.getvalue())
        commands = re.search(r"```sh\n(.*?)```", PAGE, re.S)[1].splitlines()
        statuses = [cli.main(shlex.split(command)[1:]) for command in commands]
    finally:
        os.chdir(before)
    assert (names["expected"].argmax(axis=1) == names["labels"][350:]).mean() > 0.9
    for block, text in zip(blocks, printed, strict=True):
        expected = re.findall(r"^print\(.*\)  # (.*)$", block, re.M)
        if expected:
            assert text.splitlines() == expected
    assert statuses == [0, 0] and "digit.png: class 0, 0" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), names["scores"])
    table = re.search(r"```text\n(.*?)```", PAGE, re.S)[1].splitlines()
    shown = next(text for text in printed if text.startswith("Sequential\n")).splitlines()
    assert shown[1:] == table
    profile = printed[-1].splitlines()
    assert profile[1].split()[-2:] == ["us", "share"] and len(profile) == len(shown)
    size = (tmp_path / "digits.qa").stat().st_size
    assert f"{size // 1000} KB; {4 * 58_144 / 1000:.0f} KB of float32 weights" in PAGE


def test_training_on_the_start_page():
    code = re.search(r"### Training\n\n```python\n(.*?)```", START, re.S)[1]
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    names = {"qa": qa, "model": model, "example": torch.zeros(1, 8), "train": lambda model: model.eval()}
    names |= {"DoReFa": qa.torch.DoReFa, "PACT": qa.torch.PACT}
    exec(code, names)
    assert names["network"](np.zeros((2, 8), np.float32)).shape == (2, 8)
    assert any(row.runs == "packed" for row in names["network"].summary().rows)
