"""A softmax that was split computes what torch's does, on whole tensors:
cuts are the oracle's and the lit test's matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.interpreter import run as execute
from shardc.dialects.aten.schema import number_of
from shardc.dialects.aten.types import TensorType
from shardc.dialects.context import new_context
from shardc.dialects.location import source_line
from shardc.dialects.rules.proving.execution import sample
from shardc.passes.manager.pass_pipelines import build, run

STEP = """
"dist.mesh"() {{sym_name = "mesh", axes = [["tensor", {ways}, "space"]]}} : () -> ()
func.func @step(
    %x: {x} {{dist.sharding = #dist.sharding<@mesh, [{dims}], []>}}, %g: {y}) -> ({y}, {x}) {{
  %dim = torch.constant.int {dim}
  %wide = torch.constant.bool {wide}
  %dtype = torch.constant.int {dtype}
  %0 = torch.aten._{name} %x, %dim, %wide : {x}, !torch.int, !torch.bool -> {y} loc("model.py":7:1)
  %1 = torch.aten._{name}_backward_data %g, %0, %dim, %dtype : {y}, {y}, !torch.int, !torch.int -> {x} loc("model.py":8:1)
  return %0, %1 : {y}, {x}
}}
"""  # noqa: E501
BOTH = pytest.mark.parametrize("name", ["log_softmax", "softmax"])


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context():
        yield


def _module(name: str, x: Tensor, dim: int, *, wide: bool = False, ways: int = 2) -> ir.Module:
    dims = ", ".join('["tensor"]' if d == dim % x.dim() else "[]" for d in range(x.dim()))
    type_ = TensorType(tuple(x.shape), x.dtype)
    made = TensorType(type_.shape, torch.float32) if wide else type_
    given = {"x": type_, "y": made, "dtype": number_of(x.dtype), "wide": str(wide).lower()}
    return ir.Module.parse(STEP.format(name=name, dim=dim, ways=ways, dims=dims, **given))


def _split(module: ir.Module) -> ir.Module:
    run(module, build("torch-split-reductions"))
    assert "softmax" not in str(module)
    return module


def _values(module: ir.Module, *inputs: Tensor) -> list[Tensor]:
    return [by_rank[0] for by_rank in execute(module, [[t] for t in inputs], widen=False)]


@BOTH
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_it_computes_what_torch_does(name: str, dim: int, dtype: torch.dtype) -> None:
    """Large logits too, whose exponentials overflow, and masked ones. Gradients are differences:
    errors are absolute.
    """
    x = 200 * sample(4, 6, 8)
    x[x < -300] = -torch.inf
    x, g = x.to(dtype), sample(4, 6, 8, seed=1).to(dtype)
    native = _module(name, x, dim)
    wanted = _values(native, x, g)
    for want, found in zip(wanted, _values(_split(native), x, g), strict=True):
        torch.testing.assert_close(
            found, want, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps
        )


@BOTH
def test_halves_become_floats(name: str) -> None:
    """``half_to_float``; the CPU's operator has it not, so the reference is on floats."""
    x, g = sample(4, 8, dtype=torch.bfloat16), sample(4, 8, dtype=torch.float32)
    y = getattr(torch, name)(x.float(), 1)
    back = getattr(torch.ops.aten, f"_{name}_backward_data")(g, y, 1, torch.float32).bfloat16()
    for want, found in zip((y, back), _values(_split(_module(name, x, 1, wide=True)), x, g), strict=True):
        torch.testing.assert_close(found, want)


@BOTH
def test_every_call_keeps_its_line(name: str) -> None:
    module = _split(_module(name, torch.zeros(4, 8), 1))
    function = module.body.operations[1].operation
    lines = [
        source_line(o.location)
        for o in function.regions[0].blocks[0].operations
        if "aten" in o.operation.name
    ]
    split = lines.index("model.py:8")
    assert set(lines[:split]) == {"model.py:7"}
    assert set(lines[split:]) == {"model.py:8"}


def test_an_axis_of_one_device_cuts_nothing() -> None:
    module = _module("softmax", torch.zeros(4, 8), 1, ways=1)
    before = str(module)
    run(module, build("torch-split-reductions"))
    assert str(module) == before
