"""Grouped matmuls of experts as kernels: equal results, and calls that stay calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.frontend.graph.aot_graph import import_graph
from shardc.frontend.step.capture import capture_step
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.passes.fuse.grouping.region import EveryRegion, Region, Verdict
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.step.shard import compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.values import example_inputs

EXPERTS, ROWS, SIZE, INNER = 3, 20, 8, 16
KERNEL, CALL = '"kern.grouped_matmul"', '"torch.aten._grouped_mm"'
ENDS = [7, 7, ROWS]
"""The second expert has no rows."""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SIZE, SIZE)
        self.up = nn.Parameter(0.3 * torch.randn(EXPERTS, INNER, SIZE))
        self.down = nn.Parameter(0.3 * torch.randn(EXPERTS, INNER, SIZE))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        rows = self.first(x).bfloat16()
        inner = F.silu(torch._grouped_mm(rows, self.up.bfloat16().transpose(1, 2), offs=ends))
        return torch._grouped_mm(inner, self.down.bfloat16(), offs=ends).float().square().mean()


def traced() -> tuple[Any, ir.Module, Any]:
    """The program, it again to be fused, and example inputs."""
    torch.manual_seed(0)
    model, batch = Model(), {"x": torch.randn(ROWS, SIZE), "ends": torch.tensor(ENDS, dtype=torch.int32)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    capture = capture_step(model, optimizer, batch, context=new_context())
    compiled = compile_capture(capture, make_mesh({"data": 1}, 1), "data")
    return capture.module, compiled.rank_module, example_inputs(capture, optimizer, batch)


def test_each_call_becomes_a_kernel() -> None:
    _, module, _ = traced()
    assert str(module).count(CALL) == 6
    fuse_module(module, matmuls="generated", capabilities=ALL)
    module.operation.verify()
    text = str(module)
    assert text.count(KERNEL) == 6 and CALL not in text


@pytest.mark.parametrize(
    "options", [{"matmuls": "generated"}, {"capabilities": ALL}], ids=["for CPUs", "extern"]
)
def test_elsewhere_they_are_calls(options: dict[str, Any]) -> None:
    _, module, _ = traced()
    fuse_module(module, **options)
    assert str(module).count(CALL) == 6 and KERNEL not in str(module)


def test_each_is_decided_on() -> None:
    """Here: those with an expert's matrix in the result become kernels."""
    _, module, _ = traced()
    asked: list[Region] = []

    def choose(region: Region) -> Verdict:
        line = next((line for line in str(region.module).splitlines() if CALL in line), "")
        if line:
            asked.append(region)
        return Verdict(line.rpartition("->")[2].startswith(f" !torch.vtensor<[{EXPERTS},"), "")

    fuse_module(module, matmuls=EveryRegion(choose), capabilities=ALL)
    assert len({region.calls for region in asked}) == 6
    assert str(module).count(KERNEL) == 2 and str(module).count(CALL) == 4


@pytest.mark.parametrize(
    ("left", "right", "ends"),
    [((EXPERTS, 8, 16), (EXPERTS, 16, 8), False), ((0, 16), (EXPERTS, 16, 8), True)],
    ids=["a batch", "no rows"],
)
def test_what_no_kernel_says_stays(left: tuple[int, ...], right: tuple[int, ...], ends: bool) -> None:
    given = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in (left, right)]
    given += [torch.empty(EXPERTS, dtype=torch.int32, device="meta")] if ends else []
    graph = make_fx(lambda x, y, *offs: [torch.ops.aten._grouped_mm(x, y, *offs)], tracing_mode="fake")(
        *given
    )
    module = import_graph(graph, "forward").module
    fuse_module(module, matmuls="generated", capabilities=ALL)
    assert CALL in str(module) and KERNEL not in str(module)
