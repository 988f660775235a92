"""Random programs of fusible ops, and their gradients, through fusion and machine code, next to eager and to
f64.

``SHARDC_RANDOM_GRAPHS=5000 pytest test/unit/dynamo/test_random_graphs.py`` tries so many, others in each run.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.cpu.target import CpuTarget
from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision
from shardc.backends.torch.emit_graph import emit_graph
from shardc.compiler.compilation import Compilation, CompileOptions
from shardc.dynamo.program import load
from shardc.frontend.graph.aot_graph import import_graph
from shardc.frontend.operators.decompositions import decomposition_table
from shardc.options.numerics import ROUNDINGS

from .random_graphs import Program, programs

COUNT = int(os.environ.get("SHARDC_RANDOM_GRAPHS", "20"))
SEARCH = settings(
    max_examples=COUNT,
    derandomize=COUNT == 20,
    database=None,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
FLOOR = 0.05
"""Of the largest number of a program: what cancels out, such as a gradient of 0, has that number's rounding
errors.
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


def fused(
    program: Program, inputs: list[torch.Tensor], rounding: str
) -> Callable[[list[torch.Tensor]], tuple[Any, ...]]:
    """The program as ``torch.compile`` runs it, less Dynamo; a group that does not compile is an error."""
    graph = make_fx(program, decomposition_table=decomposition_table(), tracing_mode="fake")(*inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imported = import_graph(graph, "forward")
        options = CompileOptions(rounding, "extern", libraries=False, load=True)
        compilation = Compilation(
            lambda: import_graph(graph, "forward").module,
            CpuTarget(),
            options,
            imported.strides,
            imported.writes,
        )
        found = compilation.run()
    assert found.is_whole
    text = emit_graph(found.module, imported.outputs, imported.writes, imported.strides, pooled=True)
    function = load(text, found.kernels)
    return lambda given: function(SimpleNamespace(device=torch.device("cpu")), list(given))


@pytest.mark.slow
@SEARCH
@given(program=programs(), rounding=st.sampled_from(ROUNDINGS), threads=st.sampled_from((1, 2)))
def test_random_programs(program: Program, rounding: str, threads: int) -> None:
    """Results and gradients of one type, shape and layout with eager's, and as near to f64 as eager's,
    or within the dtype's bound.
    """
    torch.manual_seed(0)
    inputs = [g.make() for g in program.given]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = fused(program, inputs, rounding)(inputs)
        eager = program(*inputs)
    finally:
        torch.set_num_threads(before)
    exact = program(*(i.double() for i in inputs), wide=True)
    coarsest = max((t.dtype for t in [*inputs, *eager, *_casts(program)]), key=lambda d: torch.finfo(d).eps)
    bound = own_precision(coarsest).relative
    largest = max(map(magnitude, [*inputs, *exact]))
    for ours, theirs, reference in zip(found, eager, exact, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert all(
            n == 1 or a == b for n, a, b in zip(ours.shape, ours.stride(), theirs.stride(), strict=True)
        )
        allowed = bound * max(magnitude(reference), FLOOR * largest) + 4 * difference(theirs, reference)
        assert difference(ours, reference) <= allowed


def _casts(program: Program) -> list[torch.Tensor]:
    return [torch.empty(0, dtype=step.more[0]) for step in program.steps if step.op == "cast"]
