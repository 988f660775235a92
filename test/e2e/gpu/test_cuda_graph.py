"""Steps as CUDA graphs, captured and replayed on the CPU as a GPU would: see ``fake_cuda.py``."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.runtime import cuda_graph
from shardc.runtime.cuda_graph import CudaGraphWarning
from shardc.runtime.errors import GraphNotCaptured, IndexOutOfRange
from shardc.runtime.kernels.kernel_call import FINE
from shardc.runtime.step import TrainStep

from .fake_cuda import FakeCuda


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    found = FakeCuda()
    monkeypatch.setattr(cuda_graph, "cuda", found)
    return found


class Net(nn.Module):
    """A layer, dropout and batch norm, whose buffers change: draws and state of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.dropout(self.norm(self.up(x)).relu(), 0.3)).square().mean()


def _step() -> TrainStep:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = shardc.compile_step(model, optimizer, {"x": torch.randn(8, 6)}, mesh={"data": 1}, fuse=False)
    return step.running


def _on_gpu(step: TrainStep) -> None:
    """Lets a step believe that it is on a GPU, from which its tensors are taken for those of the CPU."""
    place = step._place
    step._place = SimpleNamespace(rank=0, device=torch.device("cuda"), nccl=False)
    step.use_cuda_graph()
    step._place = place


def _batches(count: int) -> list[dict[str, Tensor]]:
    torch.manual_seed(1)
    return [{"x": torch.randn(8, 6)} for _ in range(count)]


@pytest.mark.slow
def test_steps_equal_those_without_a_graph(fake: FakeCuda) -> None:
    """Losses, parameters, optimizer state and buffers, bit for bit, while the learning rate and
    draws change.
    """
    plain, graphed = _step(), _step()
    _on_gpu(graphed)
    for number, batch in enumerate(_batches(7)):
        for step in (plain, graphed):
            step.hyper["group0.lr"] = 0.01 / (1 + number)
        assert torch.equal(plain(batch), graphed(batch))
    assert graphed.steps_done == 7 and [g.replays for g in fake.graphs] == [5]
    for name, value in plain.state.local.items():
        assert torch.equal(value, graphed.state.local[name]), name


def test_users_tensors_follow_a_replay(fake: FakeCuda) -> None:
    graphed = _step()
    _on_gpu(graphed)
    batches = _batches(5)
    for batch in batches[:4]:
        graphed(batch)
    held = graphed.state.local["up.weight"]
    before = held.clone()
    graphed(batches[4])
    assert not torch.equal(held, before) and graphed.state.local["up.weight"] is held


@pytest.mark.slow
def test_state_that_moved_is_captured_anew(fake: FakeCuda) -> None:
    plain, graphed = _step(), _step()
    _on_gpu(graphed)
    start = {
        name: value.detach().clone()
        for name, value in plain.state.local.items()
        if "." in name and "/" not in name
    }
    params = {n: v for n, v in start.items() if n in dict(Net().named_parameters())}
    for number, batch in enumerate(_batches(6)):
        if number == 4:
            for step in (plain, graphed):
                step.load_state_dict(copy.deepcopy(params))
        assert torch.equal(plain(batch), graphed(batch)), number
    assert [g.replays for g in fake.graphs] == [2, 2]


def test_a_step_that_waits_for_the_device_runs_as_it_is(fake: FakeCuda) -> None:
    function = lambda rank, x: (x * x.sum().item(),)  # noqa: E731
    graphed = cuda_graph.GraphedStep(function, _rank(), [False])
    with pytest.warns(CudaGraphWarning, match="not captured as a CUDA graph: operation not permitted"):
        found = [graphed([torch.tensor(float(n))]) for n in range(4)]
    assert [f.item() for f in found] == [0, 1, 4, 9] and fake.stream == "the stream"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graphed([torch.tensor(4.0)]).item() == 16
    assert graphed.captures == 0


def _rank() -> Any:
    from shardc.runtime.comm.collectives import Rank
    from shardc.runtime.comm.mesh import Mesh

    return Rank(Mesh.read([{"name": "data", "size": 1, "kind": "space"}]), 0, torch.device("cpu"), None)


def test_what_is_stored_is_read_as_it_was_until_the_end(fake: FakeCuda) -> None:
    """A view of the old state, and a collective that still reads it, see the old values within a step."""

    def function(rank: Any, w: Tensor) -> tuple[Tensor, ...]:
        row = w[0]
        rank.store(w, w + 1)
        return (row.sum(),)

    w = torch.zeros(2, 2)
    graphed = cuda_graph.GraphedStep(function, _rank(), [True])
    assert [graphed([w]).item() for _ in range(6)] == [0, 2, 4, 6, 8, 10]
    assert w.tolist() == [[6, 6], [6, 6]] and len(fake.graphs) == 1


def test_tables_and_checks_of_a_capture(fake: FakeCuda) -> None:
    """A table is there before the first replay; a wrong index is told of when the next step begins."""

    def function(rank: Any, x: Tensor) -> tuple[Tensor, ...]:
        table = cuda_graph.on_device(torch.tensor([10, 20]), torch.device("cpu"))
        cuda_graph.check_index(torch.where(x > 3, x, FINE).amin(), "index {} is out of range")
        return (table.sum() + x.sum(),)

    graphed = cuda_graph.GraphedStep(function, _rank(), [False])
    for n in (1, 2, 3):
        assert graphed([torch.tensor([n])]).item() == 30 + n
    assert len(fake.graphs) == 2  # the first told how much memory tables take
    graphed([torch.tensor([7])])
    with pytest.raises(IndexOutOfRange, match="index 7 is out of range"):
        graphed([torch.tensor([1])])
    assert graphed([torch.tensor([2])]).item() == 32
    graphed.finish()


def test_another_shape_is_captured_anew(fake: FakeCuda) -> None:
    graphed = cuda_graph.GraphedStep(lambda rank, x: (x.sum(),), _rank(), [False])
    found = [graphed([torch.ones(n)]).item() for n in (3, 3, 3, 3, 5, 5, 3)]
    assert found == [3, 3, 3, 3, 5, 5, 3] and graphed.captures == 3


def test_it_is_refused_on_a_cpu_and_for_a_pipeline(fake: FakeCuda) -> None:
    step = _step()
    with pytest.raises(GraphNotCaptured, match="rank 0 is on cpu"):
        step.use_cuda_graph()
    step._manifest["pipeline"] = [{}]
    with pytest.warns(CudaGraphWarning, match="it is a pipeline"):
        _on_gpu(step)
