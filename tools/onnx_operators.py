"""Generate docs/onnx-operators.md: ONNX's own node tests, which pass, which are refused, and why.

    python -m tools.onnx_operators > docs/onnx-operators.md

Each case is a model of one node with its inputs and results. It is loaded unchanged. If `load` refuses it, it is loaded
again with all inputs except the first passed as `constants`, as in trained networks. A test compares the page.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa

QUANTISED = """Conv ConvTranspose ConvInteger QLinearConv MatMulInteger QLinearMatMul MaxPool AveragePool QuantizeLinear
    DequantizeLinear DynamicQuantizeLinear""".split()
OTHERS = """MatMul Gemm BatchNormalization Relu LeakyRelu PRelu Clip Sign Sigmoid HardSwish Selu Erf Mish Gelu
    LayerNormalization GlobalAveragePool GlobalMaxPool Add Sub Mul Div Pow Concat Split Flatten Reshape Transpose
    Squeeze Unsqueeze Slice Gather Pad Resize Tile DepthToSpace SpaceToDepth ArgMax ArgMin TopK Softmax Greater
    GreaterOrEqual Less LessOrEqual Equal And Or Xor Not Where""".split()
_INTRODUCTION = """# Operators of ONNX files

This page shows which node tests of ONNX 1.23 `quantarray.nn.load` passes. A node test is a model with a single node,
its inputs and the expected outputs. Float results must be within the tolerance of the test; all other results must be
equal. `python -m tools.onnx_operators > docs/onnx-operators.md` generates the page, and a test checks that it is up to
date.

The column `passed` counts cases that pass unchanged. The column `with constants` counts cases that pass only if some
inputs, such as a shape or pads, are constants; `load(constants=...)` makes them constants. ONNX has no node tests for
QONNX's `Quant` (`IntQuant`), `BipolarQuant`, `MultiThreshold` and `Trunc`. Random networks of these operators are
compared with ONNX's reference evaluator instead. ONNX Runtime's operators (`QLinearAdd`, `QGemm` and others, of the
domain `com.microsoft`) are compared with its results and with the formulas of its kernels.
"""


class Outcome(NamedTuple):
    """A case and its result: "passed", "with constants", "refused" or "wrong"."""

    op: str
    name: str
    result: str
    why: str


def cases(ops: list[str]) -> Iterator[Any]:
    """Yield ONNX's node tests that have a single node of one of these operators."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are computed when they are loaded, with overflows
        tests = load_model_tests(kind="node")
    for case in tests:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in ops:
            yield case


def outcome(case: Any) -> Outcome:
    """Load a case, run it, and compare."""
    op, why = case.model.graph.node[0].op_type, ""
    for fixed in (False, True):
        try:
            _compare(case, fixed)
        except ValueError as error:
            why = _reason(str(error))
        except (AssertionError, TypeError, IndexError) as error:
            return Outcome(op, case.name, "wrong", str(error))
        else:
            return Outcome(op, case.name, "with constants" if fixed else "passed", "")
    return Outcome(op, case.name, "refused", why)


def _compare(case: Any, fixed: bool) -> None:
    names = [i.name for i in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        arrays = dict(zip(names, map(_array, inputs), strict=True))
        constants = {n: arrays.pop(n) for n in names[1:]} if fixed else {}
        got = qa.nn.load(case.model, constants=constants)(**arrays)
        results = list(got.values()) if isinstance(got, dict) else [got]
        for result, wanted in zip(results, map(_array, outputs), strict=True):
            assert result.dtype == wanted.dtype, (result.dtype, wanted.dtype)
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(result, wanted, rtol=case.rtol, atol=case.atol)
            else:
                np.testing.assert_array_equal(result, wanted)


def _array(data: Any) -> Any:
    """Convert to an array in the dtype that holds it here: integers of 2 and 4 bits as bytes."""
    from onnx import TensorProto, numpy_helper

    a = np.asarray(numpy_helper.to_array(data) if isinstance(data, TensorProto) else data)
    if a.dtype.name in ("int2", "int4", "uint2", "uint4"):
        return a.astype(np.uint8 if a.dtype.name[0] == "u" else np.int8)
    return a


def _reason(error: str) -> str:
    """Return the reason in an error of `load`, without the names of the node."""
    line = error.splitlines()[-1].strip()
    line = line.split(": its attributes and operands do not go together: ")[-1]
    return re.sub(r"^.*?: ", "", line) if re.match(r"^(input|constant|\w+ (->|'))", line) else line


def table(ops: list[str]) -> tuple[list[str], list[Outcome]]:
    """(lines of the table, all outcomes)."""
    outcomes = [outcome(case) for case in cases(ops)]
    lines = ["| operator | cases | passed | with constants | refused | why |", "|---|---|---|---|---|---|"]
    for op in ops:
        of = [o for o in outcomes if o.op == op]
        count = {r: sum(o.result == r for o in of) for r in ("passed", "with constants", "refused", "wrong")}
        why = sorted({o.why for o in of if o.why})
        wrong = "; ".join(f"WRONG: {o.name}" for o in of if o.result == "wrong")
        reasons = "; ".join([*why, *([wrong] if wrong else [])]).replace("|", "\\|")
        lines.append(
            f"| {op} | {len(of)} | {count['passed']} | {count['with constants']} | {count['refused']} | {reasons} |"
        )
    return lines, outcomes


def page() -> tuple[str, list[Outcome]]:
    """(the page as Markdown, all outcomes)."""
    lines, all_of = [_INTRODUCTION], []
    for title, ops in (("Products, pools and quantisers", QUANTISED), ("All others", OTHERS)):
        rows, outcomes = table(ops)
        passed = sum(o.result in ("passed", "with constants") for o in outcomes)
        refused = sum(o.result == "refused" for o in outcomes)
        lines += [f"## {title}", "", f"{len(outcomes)} cases: {passed} pass, {refused} are refused.", "", *rows, ""]
        all_of += outcomes
    return "\n".join(lines), all_of


if __name__ == "__main__":
    print(page()[0], end="")
