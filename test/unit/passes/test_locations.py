"""No pass drops a location: every op of every level has a line of the user's program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.dialects.context import new_context
from shardc.dialects.location import source_line
from shardc.passes.manager.pass_pipelines import build, run

STEP = """
"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"], ["micro", 2, "time"]]} : () -> ()
func.func @step(
    %x: !t {dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [["data", "micro"], []], []>},
    %w: !w {dist.role = "param", dist.name = "w", dist.sharding = #dist.sharding<@mesh, [["?"], ["tensor", "?"]], []>, dist.refine = [[1, "data", -1]]},
    %v: !w {dist.role = "param", dist.name = "v", dist.refine = [[1, "data", -1]]},
    %b: !b {dist.role = "param", dist.name = "b"}) -> (!w {dist.role = "param", dist.name = "w"}, !w {dist.role = "param", dist.name = "v"}, !b {dist.role = "param", dist.name = "b"}) {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %cpu = torch.constant.device "cpu"
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int16 = torch.constant.int 16
  %rows = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.mm %x, %w {dist.phase = "forward"} : !t, !w -> !t loc("model.py":10:1)
  %1 = torch.aten.arange %int16, %none, %none, %cpu, %false {dist.phase = "forward"} : !torch.int, !torch.none, !torch.none, !torch.Device, !torch.bool -> !i loc("model.py":11:1)
  %2 = torch.aten.mul.Tensor %0, %1 {dist.phase = "forward"} : !t, !i -> !t loc("model.py":12:1)
  %3 = torch.aten.addmm %b, %2, %v, %int1, %int1 {dist.phase = "forward"} : !b, !t, !w, !torch.int, !torch.int -> !t loc("model.py":13:1)
  %4 = torch.operator "torch.aten.linalg_matrix_exp"(%3) {dist.phase = "forward"} : (!t) -> !t loc("model.py":14:1)
  %5 = torch.aten.add.Tensor %4, %x, %int1 {dist.phase = "backward"} : !t, !t, !torch.int -> !t loc("model.py":15:1)
  %6 = torch.aten.t %5 {dist.phase = "backward"} : !t -> !t2 loc("model.py":16:1)
  %7 = torch.aten.mm %6, %5 {dist.phase = "backward", dist.name = "grad:w#0", dist.refine = [[1, "data", -1]]} : !t2, !t -> !w loc("model.py":17:1)
  %8 = torch.aten.mm %6, %2 {dist.phase = "backward", dist.name = "grad:v#0"} : !t2, !t -> !w loc("model.py":18:1)
  %9 = torch.aten.sum.dim_IntList %5, %rows, %false, %none {dist.phase = "backward", dist.name = "grad:b#0"} : !t, !torch.list<int>, !torch.bool, !torch.none -> !b loc("model.py":19:1)
  %10 = torch.aten.sub.Tensor %w, %7, %int1 {dist.phase = "optimizer"} : !w, !w, !torch.int -> !w loc("model.py":20:1)
  %11 = torch.aten.sub.Tensor %v, %8, %int1 {dist.phase = "optimizer"} : !w, !w, !torch.int -> !w loc("model.py":21:1)
  %12 = torch.aten.sub.Tensor %b, %9, %int1 {dist.phase = "optimizer"} : !b, !b, !torch.int -> !b loc("model.py":22:1)
  return %10, %11, %12 : !w, !w, !b loc("model.py":23:1)
} loc("model.py":9:1)
"""  # noqa: E501
TYPES = {"!t2": "[16,16]", "!t": "[16,16]", "!w": "[16,16]", "!b": "[16]", "!i": "[16],si64"}
PASSES = ("torch-share", "dist-propagate", "dist-insert-reshards", "dist-partition", "dist-combine")


def _module() -> ir.Module:
    text = STEP
    for name, type_ in TYPES.items():
        text = text.replace(f"{name} ", f"{_tensor(type_)} ").replace(f"{name},", f"{_tensor(type_)},")
        text = text.replace(f"{name})", f"{_tensor(type_)})").replace(f"{name}\n", f"{_tensor(type_)}\n")
    return ir.Module.parse(text)


def _tensor(type_: str) -> str:
    return f"!torch.vtensor<{type_}>" if "si64" in type_ else f"!torch.vtensor<{type_},f32>"


def _operations(op: ir.Operation) -> Iterator[ir.Operation]:
    """All ops below ``op``, but for shared constants and the mesh, which stand for no line of their own."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                inner = inner.operation
                if not is_constant(inner) and inner.name != "dist.mesh":
                    yield inner
                    yield from _operations(inner)


@pytest.mark.parametrize("last", range(len(PASSES)), ids=PASSES)
def test_every_op_keeps_a_line_and_every_line_an_op(last: int) -> None:
    with new_context():
        module = _module()
        before = {source_line(op.location) for op in _operations(module.operation)}
        run(module, build(",".join(PASSES[: last + 1])))
        after = [(op.name, source_line(op.location)) for op in _operations(module.operation)]
    assert [name for name, line in after if line is None] == []
    assert {line for _, line in after} == before == {f"model.py:{n}" for n in range(9, 24)}


def test_the_program_has_what_passes_make() -> None:
    """The test above would say nothing of a loop, a collective or a rule's own ops that were not there."""
    with new_context():
        module = _module()
        run(module, build(",".join(PASSES)))
        names = {op.name for op in _operations(module.operation)}
    made = {
        "dist.loop",
        "dist.yield",
        "dist.slice",
        "dist.offset",
        "dist.all_gather",
        "dist.all_reduce",
        "dist.reduce_scatter",
    }
    assert made <= names


def test_source_line_of_a_called_function() -> None:
    """The innermost frame, as the front end puts the user's there."""
    with new_context(), ir.Location.unknown():
        location = ir.Location.callsite(
            ir.Location.file("model.py", 7, 1), [ir.Location.file("train.py", 3, 1)]
        )
        assert source_line(location) == "model.py:7"
        assert source_line(ir.Location.name("mul", location)) == "model.py:7"
        assert source_line(ir.Location.fused([ir.Location.unknown(), location])) == "model.py:7"
        assert source_line(ir.Location.unknown()) is None
