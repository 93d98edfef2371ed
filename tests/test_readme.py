"""The README's example runs as printed, and its set-up commands are the two that it promises."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_example_prints_what_it_says(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line.split(")  # ")[1] for line in code.splitlines() if line.startswith("print(")]


def test_two_set_up_commands():
    assert re.findall(r"```sh\n(.*?)\n```", README, re.S) == [
        'pip install ".[plot]" && quantarray demo',
        'pip install -e ".[test]" && python -m pytest',
    ]
