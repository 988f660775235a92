"""``torch.compile``'s programs as CUDA graphs, captured and replayed on the CPU as a GPU would: see
``fake_cuda.py``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shardc.compiler.warn_once import warned
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.dynamo import cuda_graph as graphed_program
from shardc.dynamo import cuda_graph_plan as graph_plan
from shardc.dynamo.cuda_graph import GraphedProgram, GraphPlan
from shardc.dynamo.settings import Settings
from shardc.runtime import cuda_graph
from shardc.runtime.errors import IndexOutOfRange
from shardc.runtime.kernels.kernel_call import FINE

from .fake_cuda import FakeCuda


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[FakeCuda]:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    found = FakeCuda()
    monkeypatch.setattr(cuda_graph, "cuda", found)
    torch._dynamo.reset()
    warned.clear()
    graphed_program._resident.clear()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield found
    torch._dynamo.reset()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[GraphedProgram]:
    """Those of graphs that are compiled from now on, whose tensors are taken for a GPU's."""
    made: list[GraphedProgram] = []

    class Noted(GraphedProgram):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(graphed_program, "GraphedProgram", Noted)
    monkeypatch.setattr(graph_plan, "_why_not", lambda graph, device: "")
    return made


def compiled(function: Any, **more: Any) -> Any:
    return torch.compile(function, backend="shardc", options={"fuse": False, "cuda_graphs": True} | more)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.down(self.norm(self.up(x)).relu())
        return y.square().mean(), y


def trained(model: nn.Module, run: Any, steps: int, accumulate: int = 1) -> list[Tensor]:
    """Losses and outputs of all steps, kept to the end, then parameters and buffers."""
    generator = torch.Generator().manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(steps):
        for _ in range(accumulate):
            loss, y = run(torch.randn(8, 6, generator=generator))
            found += [loss.detach(), y.detach()]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *(value.detach() for value in model.state_dict().values())]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=lambda text, n=number: f"{n}: {text}")


def test_training_equals_eager(programs: list[GraphedProgram]) -> None:
    """Weights and buffers change in place; every output of every step is the caller's to keep."""
    torch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model)
    same(trained(model, compiled(model), 7), trained(other, other, 7))
    forward, backward = programs
    assert (forward.captures, backward.captures) == (1, 1)
    assert forward.replays == backward.replays == 5


def test_activations_are_not_copied(programs: list[GraphedProgram]) -> None:
    torch.manual_seed(0)
    model = Net()
    trained(model, compiled(model), 4)
    forward, backward = programs
    (graph,) = forward._graphs.values()
    assert [copy.shape for copy in graph.copies.values()] == [(8, 6)]
    (graph,) = backward._graphs.values()
    assert sum(copy.numel() for copy in graph.copies.values()) <= 8 * 6 + 8 * 3 + 1  # the batch, the tangents
    assert forward._plan.lends is not None and backward._plan.lends == 0


def test_gradients_that_accumulate(programs: list[GraphedProgram]) -> None:
    """The second backward finds the first one's gradients alive, and runs as it is."""
    torch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model)
    same(trained(model, compiled(model), 6, accumulate=2), trained(other, other, 6, accumulate=2))
    _, backward = programs
    assert backward.replays == 5


def test_two_forwards_before_a_backward(programs: list[GraphedProgram]) -> None:
    """What the first saved must outlive the second."""
    torch.manual_seed(0)
    model = Net().eval()
    other = copy.deepcopy(model)

    def twice(run: Any, held: nn.Module) -> list[Tensor]:
        generator, found = torch.Generator().manual_seed(5), []
        for _ in range(6):
            (first, _), (second, _) = (run(torch.randn(8, 6, generator=generator)) for _ in range(2))
            (first * 2 + second).backward()
            found += [p.grad.clone() for p in held.parameters()]
            held.zero_grad()
        return found

    same(twice(compiled(model), model), twice(other, other))
    assert programs[0].replays == 5


def test_gradients_that_are_kept_are_told_of(programs: list[GraphedProgram]) -> None:
    """And keep their values, for the backward runs as it is."""
    torch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model)

    def steps(run: Any, held: nn.Module) -> list[Tensor]:
        generator, kept = torch.Generator().manual_seed(3), []
        for _ in range(9):
            run(torch.randn(8, 6, generator=generator))[0].backward()
            kept += [p.grad for p in held.parameters()]
            held.zero_grad()
        return kept

    with pytest.warns(ShardcFallbackWarning, match=r"still in use at each new call .*set_to_none=True"):
        found = steps(compiled(model), model)
    same(found, steps(other, other))
    assert programs[1].replays == 1


def test_inference_of_several_sizes(programs: list[GraphedProgram]) -> None:
    torch.manual_seed(0)
    model = Net().eval()
    run = compiled(model)
    kept = []
    with torch.no_grad():
        for rows in (4, 4, 4, 4, 7, 9, 7, 9, 7, 4, 9, 4):
            x = torch.randn(rows, 6)
            kept.append((run(x), model(x)))
            model.up.weight.mul_(0.9)
    for (loss, y), (expected, wanted) in kept:
        same([loss, y], [expected, wanted])
    assert sum(program.captures for program in programs) >= 3
    assert sum(program.replays for program in programs) >= 5


def test_an_optimizer_writes_where_parameters_lie(programs: list[GraphedProgram]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 4)
    other = copy.deepcopy(model)

    def steps(held: nn.Module, compile_: Callable[[Any], Any]) -> list[Tensor]:
        optimizer = torch.optim.SGD(held.parameters(), lr=torch.tensor(0.1), momentum=0.9)
        update, generator = compile_(optimizer.step), torch.Generator().manual_seed(1)
        for number in range(7):
            optimizer.param_groups[0]["lr"].fill_(0.1 / (1 + number))
            for p in held.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
            update()
        return [p.detach() for p in held.parameters()]

    same(steps(model, compiled), steps(other, lambda f: f))
    assert any(program.replays >= 3 for program in programs)


def test_parameters_that_moved(programs: list[GraphedProgram]) -> None:
    """Another address is another capture; with too many of them nothing is captured any more, and a warning
    says so.
    """
    torch.manual_seed(0)
    model = Net().eval()
    run = compiled(model)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        held = []
        for number in range(14):
            x = torch.randn(4, 6)
            same(list(run(x)), list(model(x)))
            if number >= 2:
                held.append(model.up.weight.data)
                model.up.weight.data = torch.randn(10, 6)
    (program,) = programs
    assert program.captures == graphed_program.MOST and not program._graphs
    assert [str(w.message) for w in said if "in more than 8 forms" in str(w.message)]


def test_large_inputs_that_move_are_not_copied(
    programs: list[GraphedProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphed_program, "COPIED_BYTES", 100)
    run = compiled(lambda x: x * 2)
    for _ in range(5):
        x = torch.randn(26)
        assert torch.equal(run(x), x * 2)
    assert programs[0].captures == 0


def test_another_stream_has_a_graph_of_its_own(programs: list[GraphedProgram], fake: FakeCuda) -> None:
    run = compiled(lambda x: x * 2)
    for stream in ("a", "a", "a", "b", "a", "b"):
        fake.stream = stream
        x = torch.randn(5)
        assert torch.equal(run(x), x * 2)
    assert programs[0].captures == 2 and programs[0].replays == 4


def test_results_that_are_inputs_or_views(fake: FakeCuda) -> None:
    """An input comes back as the caller's own tensor; what is lent of a copied input is not
    handed out twice.
    """

    def function(inputs: list[Any]) -> tuple[Any, ...]:
        x, w = inputs
        inputs.clear()
        return x * w, x, w, x.t(), 7, None

    program = GraphedProgram(function, GraphPlan(stays=frozenset([1]), lends=1))
    w = torch.randn(2, 2)
    x = turned = w
    for _ in range(6):
        x = torch.randn(2, 2)
        made, own, weight, turned, seven, nothing = program([x, w])
        assert torch.equal(made, x * w) and torch.equal(turned, x.t())
        assert own is x and weight is w and seven == 7 and nothing is None
    assert (
        program.captures == 1 and program.replays == 2
    )  # of four: two found the view of the last still held
    del turned
    held = program([x, w])[3]
    before = held.clone()
    for _ in range(2):
        program([torch.randn(2, 2), w])
    assert torch.equal(held, before)


def test_a_wrong_index_is_told_of_at_the_next_call(fake: FakeCuda) -> None:
    def function(inputs: list[Any]) -> tuple[Any, ...]:
        (x,) = inputs
        inputs.clear()
        cuda_graph.check_index(torch.where(x > 3, x, FINE).amin(), "index {} is out of range")
        return (x + 1,)

    program = GraphedProgram(function, GraphPlan())
    for n in (1, 2, 3, 7):
        assert program([torch.tensor([n])])[0].item() == n + 1
    with pytest.raises(IndexOutOfRange, match="index 7 is out of range"):
        program([torch.tensor([1])])
    assert program([torch.tensor([2])])[0].item() == 3


def test_what_waits_for_the_device_runs_as_it_is(fake: FakeCuda) -> None:
    def function(inputs: list[Any]) -> tuple[Any, ...]:
        (x,) = inputs
        inputs.clear()
        return (x * x.sum().item(),)

    program = GraphedProgram(function, GraphPlan())
    with pytest.warns(ShardcFallbackWarning, match="without a CUDA graph: operation not permitted"):
        found = [program([torch.tensor(float(n))])[0].item() for n in range(5)]
    assert found == [0, 1, 4, 9, 16] and program.captures == 0


def test_on_a_cpu_it_is_refused_by_name() -> None:
    with pytest.warns(ShardcFallbackWarning, match="CUDA graphs are for GPUs, and its tensors are on cpu"):
        x = torch.randn(3)
        assert torch.equal(compiled(lambda x: x + 1)(x), x + 1)
    torch._dynamo.reset()
    warned.clear()
    with pytest.warns(ShardcFallbackWarning, match="NoCudaGraph"):
        torch.compile(lambda x: x + 2, backend="shardc", mode="reduce-overhead")(x)
    with pytest.raises(BadArgument, match="cuda_graphs is 'yes', not True or False"):
        Settings.of({"cuda_graphs": "yes"})


def test_collectives_of_gloo_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    op = torch.ops._c10d_functional.all_reduce.default
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(op, (x, "sum", "0")),))
    module, device = torch.fx.GraphModule({}, graph), torch.device("cuda", 0)
    for backend, said in (("gloo", f"{op} goes over gloo, which works on the host"), ("nccl", "")):
        monkeypatch.setattr(graph_plan, "process_group", lambda name: name)
        monkeypatch.setattr(graph_plan, "backend_of", lambda group, device, backend=backend: backend)
        assert graph_plan._why_not(module, device) == said
