"""0-d CPU tensors in graphs of a GPU: supported graphs and copies, on fake tensors and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.diagnostics.dynamo import GraphNotCompiled
from shardc.dynamo import compile_graph as graph_compiler
from shardc.dynamo import program as graph_program
from shardc.dynamo.program import with_host_scalars
from shardc.dynamo.settings import Settings
from shardc.frontend.graph.graph_check import check_graph
from shardc.frontend.graph.host_scalars import HostScalars, host_scalars

GPU = torch.device("cuda", 0)


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> FakeTensorMode:
    """Tensors of a GPU without memory, whose ops are checked for their devices, and no driver."""
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    return FakeTensorMode(allow_non_fake_inputs=True)


def traced(mode: FakeTensorMode, function: Callable[..., Any], *devices: str, dims: int = 0) -> Any:
    with mode:
        given = [torch.empty(5, 3, device=GPU), *(torch.empty([2] * dims, device=d) for d in devices)]
    return make_fx(function, tracing_mode="fake")(*given), given


def scaled(x: Tensor, s: Tensor, t: Tensor) -> list[Tensor]:
    more = s * t + 1
    return [x * s, more, (x + more).sum(), s, torch.where(x > t, x, s)]


def test_a_graph_beside_scalars_runs_on_its_gpu(mode: FakeTensorMode) -> None:
    """Every op of the program finds its tensors on one device; results are where eager's are."""
    graph, given = traced(mode, scaled, "cpu", "cpu")
    assert check_graph(graph) == GPU
    assert host_scalars(graph, GPU) == HostScalars((1, 2), (), (1, 3))
    program = graph_compiler.compile_graph(Settings.of({"fuse": False}), None, "forward", graph)
    assert program.device == GPU
    seen: list[set[torch.device]] = []
    with mode:
        with _Devices(seen):
            results = program(list(given))
        expected = scaled(*given)
    assert [(r.device, r.shape, r.dtype) for r in results] == [(e.device, e.shape, e.dtype) for e in expected]
    assert results[3] is given[1]
    assert {GPU, torch.device("cpu")} not in seen  # ops are of one device


def test_constants_of_the_cpu(mode: FakeTensorMode) -> None:
    """``x * torch.tensor(2.0)`` in the model itself."""
    two = torch.tensor(2.0)

    def doubled(x: Tensor) -> list[Tensor]:
        return [x * two]

    graph, given = traced(mode, doubled)
    assert check_graph(graph) == GPU
    program = graph_compiler.compile_graph(Settings.of({"fuse": False}), None, "forward", graph)
    assert program.constants[0] is two
    with mode:
        (result,) = program(list(given))
    assert result.device == GPU and result.shape == (5, 3)


@pytest.mark.parametrize("devices, dims", [(("cpu",), 1), (("cuda:1",), 0)])
def test_other_devices_are_refused(mode: FakeTensorMode, devices: tuple[str, ...], dims: int) -> None:
    graph, _ = traced(mode, lambda x, s: [x + 1, s + 1], *devices, dims=dims)
    with pytest.raises(GraphNotCompiled, match="and only 0-d tensors may be on the CPU"):
        check_graph(graph)


def test_scalars_alone_are_of_the_cpu() -> None:
    graph = make_fx(lambda s: [s + 1], tracing_mode="fake")(torch.tensor(1.0))
    assert check_graph(graph) == torch.device("cpu")
    assert host_scalars(graph, torch.device("cpu")) == HostScalars()


def test_values_written_and_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies stand for what is on a GPU: what is written to one the caller's tensor gets, and what is
    returned of an input is that input.
    """
    monkeypatch.setattr(graph_program, "_moved", lambda x, device: x.clone())
    x, s, t = torch.arange(3.0), torch.tensor(2.0), torch.tensor(5.0)
    own = []

    def program(inputs: list[Tensor]) -> tuple[Tensor, ...]:
        x, s, t = inputs
        inputs.clear()
        own.extend([s, t])
        made = s + t
        s.copy_(made)
        return x * t, made, s, t

    run = partial(with_host_scalars, program, HostScalars((1, 2), (1,), (1, 2, 3)), GPU)
    results = run([x, s, t])
    assert results[0].tolist() == [0, 5, 10] and results[1].item() == 7
    assert results[2] is s and results[3] is t and s.item() == 7 and t.item() == 5
    assert own[0] is not s and own[1] is not t
    assert run([x, s, t])[1].item() == 12  # the next call sees what was written


def test_kernels_read_scalars_from_the_gpu(
    h200: None, mode: FakeTensorMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = traced(mode, lambda x, s: [torch.exp(x * s) + s, s], "cpu")
    texts = []
    monkeypatch.setattr(
        graph_program, "load", lambda text, library, strict: texts.append(text) or (lambda *given: None)
    )
    program = graph_compiler.compile_graph(Settings(), None, "forward", graph)
    assert (
        'kernel("' in texts[0] and program.scalars == HostScalars((1,), (), (1,)) and program.key is not None
    )


class _Devices(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the devices of each op's tensors."""

    def __init__(self, seen: list[set[torch.device]]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        self._seen.append({leaf.device for leaf in leaves if isinstance(leaf, Tensor)})
        return function(*args, **(kwargs or {}))
