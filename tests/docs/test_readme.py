"""The README's examples run as printed, and its set-up commands are the two that it promises."""

import re

import pytest
from paths import ROOT

from tools.array_api import share

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.S), ids=["network", "arrays"])
def test_example_prints_what_it_says(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line.split(")  # ")[1] for line in code.splitlines() if line.startswith("print(")]


def test_share_of_the_array_api():
    assert f"{share() * 100:.0f} % of the array API's functions work for every dtype" in README


def test_two_set_up_commands():
    assert re.findall(r"```sh\n(.*?)\n```", README, re.S) == [
        'pip install ".[plot]" && quantarray demo',
        'pip install -e ".[test]" && python -m pytest',
    ]
