"""Results of steps whose micro-batches run as separate programs: means of gradients, sums into buffers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_mlir import ir

from shardc.backends.eager.interpreter import run as execute
from shardc.dialects.context import new_context
from shardc.passes.manager.pass_pipelines import build, run

PROGRAMS = Path(__file__).parents[3] / "filecheck" / "passes" / "accumulate"
OPTIONS = "{micro-batches=2 whole=bias}"
PIPELINES = {
    "torch-accumulate": f"torch-accumulate{OPTIONS}",
    "dist-accumulate": f"dist-propagate,dist-insert-reshards,dist-partition,dist-accumulate{OPTIONS}",
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_step_is_the_mean_over_its_micro_batches(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    w, n, bias = (torch.randn(shape, generator=generator) for shape in ((4,), (4,), (1, 4)))
    x = torch.randn(4, 4, generator=generator)
    module = ir.Module.parse((PROGRAMS / f"{name}.mlir").read_text(), new_context())
    run(module, build(PIPELINES[name]))
    ranks = 2 if name == "dist-accumulate" else 1
    loss, new_w, new_n = execute(module, [[value] * ranks for value in (w, n, x, bias)], widen=True)
    squares = [(part + bias).double().square().sum(0) for part in x.double().chunk(2)]
    gradient = sum(squares) / 2
    for rank in range(ranks):
        torch.testing.assert_close(loss[rank], (gradient * w.double()).sum())
        torch.testing.assert_close(new_w[rank], w.double() - gradient)
        torch.testing.assert_close(new_n[rank], n.double() + sum(squares))
