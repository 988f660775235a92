"""Initial values of reductions over iterations are neutral elements."""

from __future__ import annotations

import pytest
import torch
from torch_mlir import ir

from shardc.backends.eager.interpreter import run as execute
from shardc.dialects.context import new_context
from shardc.passes.manager.pass_pipelines import build, run

MESH = '"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]} : () -> ()'
KEY = 'dist.role = "input", dist.name = "x"'
CUT = 'dist.sharding = #dist.sharding<@mesh, [["data", "micro"]], []>'
PASSES = "dist-propagate,dist-insert-reshards,verify-level{level=2},dist-partition,verify-level{level=3}"


def _module(target: str, dtype: str, cut: bool) -> ir.Module:
    given, made = f"!torch.vtensor<[8],{dtype}>", f"!torch.vtensor<[],{dtype}>"
    attributes = f"{KEY}, {CUT}" if cut else KEY
    text = f"""{MESH}
        func.func @step(%x: {given} {{{attributes}}}) -> {made} {{
          %0 = torch.aten.{target} %x : {given} -> {made}
          return %0 : {made}
        }}"""
    return ir.Module.parse(text, new_context())


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("all", torch.ones(8, dtype=torch.bool)),
        ("all", torch.arange(8) != 5),
        ("any", torch.zeros(8, dtype=torch.bool)),
        ("any", torch.arange(8) == 5),
        ("max", -1 - torch.arange(8, dtype=torch.int32)),
        ("min", 1 + torch.arange(8, dtype=torch.int32)),
        ("max", -1 - torch.arange(8.0)),
        ("min", 1 + torch.arange(8.0)),
    ],
    ids=["all true", "one false", "all false", "one true", "below 0", "above 0", "below 0.0", "above 0.0"],
)
def test_a_reduction_over_micro_batches(target: str, values: torch.Tensor) -> None:
    dtype = {torch.bool: "i1", torch.int32: "si32", torch.float32: "f32"}[values.dtype]
    module = _module(target, dtype, cut=True)
    run(module, build(PASSES))
    assert "dist.loop" in str(module)
    ((wanted,),) = execute(_module(target, dtype, cut=False), [[values]])
    (found,) = execute(module, [list(values.chunk(2))])
    assert found[0].equal(wanted)
    assert found[1].equal(wanted)
