"""``kern.extern``: its line in a rank's step and in a graph's function, and its result by the oracle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.backends.torch.emit_graph import emit_graph

X, W, Y = "vtensor<[7,8],f32>", "vtensor<[129,8],f32>", "vtensor<[7,129],f32>"
LINEAR = f"""
  %ins = torch.prim.TupleConstruct %x, %w : !torch.{X}, !torch.{W} -> !torch.tuple<{X}, {W}>
  %outs = "kern.extern"(%ins) {{target = "mkldnn._linear_pointwise", reads = ["X", "W"],
    arguments = {{attr = "gelu", scalars = [], algorithm = "tanh"}}}} : (!torch.tuple<{X}, {W}>) -> !torch.tuple<{Y}>
  %y = torch.prim.TupleUnpack %outs : !torch.tuple<{Y}> -> !torch.{Y}"""  # noqa: E501
STEP = f"""func.func @step(%x: !torch.{X} {{dist.name = "x"}}, %w: !torch.{W} {{dist.name = "w"}}) -> !torch.{Y} {{{LINEAR}
  return %y : !torch.{Y}
}}"""  # noqa: E501


def test_a_ranks_step(emit: Any) -> None:
    lines = emit(
        {"input:x": "[7,8],f32", "input:w": "[129,8],f32"}, {"loss:l": "[7,129],f32"}, LINEAR, ["%y"]
    )
    assert lines == [
        "linear_pointwise_0 = _linear_pointwise(x, w, None, 'gelu', [], 'tanh')",
        "return (linear_pointwise_0,)",
    ]


@pytest.mark.parametrize("widen", [False, True], ids=["own precision", "f64"])
def test_a_graph_and_the_oracle(context: ir.Context, widen: bool) -> None:
    """oneDNN has no f64, in which the oracle goes by what its operator means."""
    module = ir.Module.parse(STEP)
    torch.manual_seed(0)
    x, w = torch.randn(7, 8), torch.randn(129, 8)
    wide = functional.gelu(functional.linear(x.double(), w.double()), approximate="tanh")
    [[found]] = run(module, [[x], [w]], widen=widen)
    assert found.dtype == (torch.float64 if widen else torch.float32)
    torch.testing.assert_close(found.double(), wide, rtol=0, atol=1e-12 if widen else 1e-5)
    program: dict[str, Any] = {}
    exec(emit_graph(module, [0]), program)
    (made,) = program["graph"](SimpleNamespace(device=torch.device("cpu")), [x, w])
    torch.testing.assert_close(made.double(), wide, rtol=0, atol=1e-5)


def test_the_oracle_adds_what_onednn_adds(context: ir.Context) -> None:
    text = STEP.replace("%x, %w :", "%x, %o, %w :").replace(
        f"!torch.{X}, !torch.{W} ->", f"!torch.{X}, !torch.{Y}, !torch.{W} ->"
    )
    text = text.replace(f"tuple<{X}, {W}>", f"tuple<{X}, {Y}, {W}>").replace(
        '["X", "W"]', '["X", "other", "W"]'
    )
    text = text.replace("_linear_pointwise", "_linear_pointwise.binary").replace(
        ', scalars = [], algorithm = "tanh"', ""
    )
    text = text.replace('"gelu"', '"add"').replace("%w: ", f'%o: !torch.{Y} {{dist.name = "o"}}, %w: ')
    x, other, w = torch.randn(7, 8), torch.randn(7, 129), torch.randn(129, 8)
    for widen in (True, False):
        [[found]] = run(ir.Module.parse(text), [[x], [other], [w]], widen=widen)
        torch.testing.assert_close(
            found.double(), x.double() @ w.double().t() + other.double(), rtol=0, atol=1e-5
        )
