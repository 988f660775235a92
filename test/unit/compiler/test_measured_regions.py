"""Regions are measured with kernels that were compiled together."""

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.cpu import compile as compiler
from shardc.backends.cpu.target import CpuTarget
from shardc.compiler.measured_regions import MeasuredRegions
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.grouping.explain import FusionReport, explain_fusion
from shardc.passes.fuse.grouping.region import EveryRegion

CPU = torch.device("cpu")


def branches(x: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    """Three regions, of which two are equal."""
    return [torch.sigmoid(x @ a), torch.sigmoid(x @ b), torch.tanh(a @ b)]


def explained() -> FusionReport:
    given = [torch.empty(*shape, device="meta") for shape in ((48, 64), (64, 64), (64, 64))]
    module = import_graph(make_fx(branches, tracing_mode="fake")(*given), "forward").module
    return explain_fusion(module, matmuls=EveryRegion(MeasuredRegions(CpuTarget(), CPU)))


@pytest.fixture
def made(monkeypatch, tmp_path):
    """How many kernels each object file has that is made, in a cache of the test's own."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    counts, make = [], compiler._object_of

    def counted(functions, *more):
        counts.append(len(functions))
        return make(functions, *more)

    monkeypatch.setattr(compiler, "_object_of", counted)
    return counts


def test_the_kernels_of_all_regions_are_compiled_together(made):
    verdicts = [verdict for _, verdict in explained().choices]
    assert len(verdicts) == 3 and all("us as kernels" in verdict.why for verdict in verdicts)
    assert made == [3], "one of each region that differs, and that of a call: tanh by itself"
    again = [verdict for _, verdict in explained().choices]
    assert again == verdicts and made == [3], "what is decided is not compiled"


def test_a_kernel_that_does_not_compile_leaves_the_others_theirs(made, monkeypatch, tmp_path):
    emit = compiler._emit

    def fails(function, module):
        if "@mm_tanh" in str(function):
            raise KernelNotSupported(what="tanh")
        return emit(function, module)

    monkeypatch.setattr(compiler, "_emit", fails)
    reasons = [verdict.why for _, verdict in explained().choices]
    assert ["us as kernels" in why for why in reasons] == [True, True, False]
    assert "it does not run as kernels" in reasons[2]
