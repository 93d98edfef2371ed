"""The benchmark of calls beside others: blocks, ratios, situations that run; no figure is judged."""

import json
from importlib.util import find_spec

import pytest

from benchmarks.__main__ import main
from benchmarks.beside import blocks, summary
from benchmarks.beside.companions import COMPANIONS
from benchmarks.beside.situations import SITUATIONS


def test_calls_of_a_block_alternate():
    made = []
    found = blocks.block([lambda: made.append("a"), lambda: made.append("b")], 0.01)
    assert made[:6] == ["a", "b"] * 3 and made.count("a") == made.count("b")
    assert all(0 < one.median <= one.p99 and 1 < one.rate * 0.01 <= len(made) for one in found)


def test_rounds_go_forth_and_back():
    order = []
    found = blocks.rounds({"x": [lambda: None], "y": [lambda: None]}, 3, 0.0, begin=order.append)
    assert order == ["x", "y", "y", "x", "x", "y"]
    assert [len(rounds) for rounds in found.values()] == [3, 3]


def test_ratios_are_of_blocks_of_one_round():
    """A ratio of medians would differ: in both rounds two threads take half as long."""
    one, two = [[[2.0, 3.0, 10.0]], [[8.0, 9.0, 4.0]]], [[[1.0, 5.0, 20.0]], [[4.0, 13.0, 8.0]]]
    made = summary.summarise("beside", {"1": one, "2": two})
    assert made["ratio of rates"] == (2.0, 2.0, 2.0) and made["p99 later by"].median == 3.0
    assert made["1: median"].median == 5.0
    others = [[*one, [10.0, 10.0, 1.0]] for one in one], [[*two, [11.0, 11.0, 1.0]] for two in two]
    turns = {"theirs alone": one, "1 alone": one, "1 in turns": others[0], "2 alone": two, "2 in turns": others[1]}
    made = summary.summarise("turns", turns)
    assert made["ours over one thread"].median == 0.5 and made["ours over alone"].median == 1.0
    assert made["theirs over one thread"].median == pytest.approx(1.1)
    text = "\n".join(summary.lines("turns", made))
    assert "2 in turns, theirs: " in text and "theirs over one thread: 1.1 (1.1 to 1.1)" in text


@pytest.mark.parametrize("situation", ["beside 1", "numpy", "left behind"])
def test_command(situation, tmp_path, capsys):
    path = tmp_path / "found.json"
    main(["beside", "--situation", situation, "--rounds", "1", "--seconds", "0.02", "--json", str(path)])
    assert capsys.readouterr().out.startswith(f"{situation}\n")
    found = json.loads(path.read_text())
    assert list(found["situations"]) == [situation] and found["rounds"] == 1
    assert all(one["low"] <= one["median"] <= one["high"] for one in found["situations"][situation].values())


def test_a_companion_that_is_not_installed(capsys):
    absent = [name for name in COMPANIONS if not find_spec(name)]
    if not absent:
        pytest.skip("all are installed")
    main(["beside", "--situation", absent[0], "--rounds", "1", "--seconds", "0.01"])
    assert "not installed" in capsys.readouterr().out


def test_all_companions_have_a_situation():
    assert {one.get("companion") for one in SITUATIONS.values()} == {None, *COMPANIONS}


def test_one_thread_is_nothing_to_compare():
    with pytest.raises(SystemExit, match="--threads must be at least 2"):
        main(["beside", "--threads", "1"])
